//! The manifest of an agent: the project's defaults and the YoiPod's spec, resolved once and named by digest.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, Volume, VolumeMount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};
use yoi_crds::assets::Assets;
use yoi_crds::name::{annotation, label};
use yoi_crds::pod::{Agent, EnvVar, Limits, ManifestRef, Model, PodSettings, Subagent, SubagentMode};
use yoi_crds::project::PodDefaults;
use yoi_crds::quota::quota_bytes;
use yoi_crds::{YoiPod, YoiPodSpec, YoiProject};
use yoi_wire::identity::MANIFEST_FILE;
use yoi_wire::manifest::{AgentManifest, Builtin, CompactionLimits, RunLimits, Task};
use yoi_wire::mode::Mode;
use yoi_wire::policy::ToolPolicy;
use yoi_wire::subagent::SubagentTemplate;

use super::assets::{self, ReadBy};
use super::model_endpoint::wire_model;
use super::program::wire_program;
use crate::meta::{self, uid};
use crate::names;
use crate::reservation;
use crate::settings::Settings;
use crate::stored::Stored;
use crate::visibility::agent_ref;

/// A YoiPod with its project's defaults filled in.
#[derive(Clone, Debug)]
pub(crate) struct Resolved {
    /// Only an agent that can do without has none.
    pub model: Option<Model>,
    pub pod: PodSettings,
    /// The project's.
    pub assets: Option<Box<Assets>>,
}

/// What a project gives its agents.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct OfProject {
    #[serde(flatten)]
    pub defaults: PodDefaults,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assets: Option<Box<Assets>>,
}

impl OfProject {
    pub fn new(project: &YoiProject) -> Self {
        OfProject { defaults: project.spec.defaults.clone(), assets: project.spec.assets.clone() }
    }

    /// What it is for an agent that was resolved to this.
    pub fn of_resolved(resolved: &Resolved) -> Self {
        let Resolved { model, pod, assets } = resolved.clone();
        OfProject { defaults: PodDefaults { model, pod: Some(pod), quota: None, rest: None }, assets }
    }
}

/// `None` when neither names a model, and the agent cannot do without. One that can has only a model of its own: the project's would be nothing but a key
/// that it waits for.
#[must_use]
pub(crate) fn resolve(yoipod: &YoiPod, project: OfProject) -> Option<Resolved> {
    let OfProject { defaults, assets } = project;
    let model = match yoipod.spec.model.clone() {
        None if yoipod.spec.agent.needs_model() => Some(defaults.model?),
        own => own,
    };
    Some(Resolved { model, pod: merge(yoipod.spec.pod.clone(), defaults.pod.unwrap_or_default()), assets })
}

/// What the agent was resolved to when this manifest was made; `None` for a manifest of an older operator.
#[must_use]
pub(crate) fn resolved_before(map: &ConfigMap) -> Option<OfProject> {
    serde_json::from_str(map.metadata.annotations.as_ref()?.get(annotation::RESOLVED)?).ok()
}

/// Digest of what a manifest is made from but for the project: while it is the same, the manifest of the last run holds.
#[must_use]
pub(crate) fn made_from(yoipod: &YoiPod) -> String {
    let YoiPodSpec {
        // Of what has stopped.
        push: _,
        // Immutable.
        project_ref: _,
        workspace: _,
        agent,
        task,
        // Whether the agent runs says nothing of how.
        completion: _,
        desired_state: _,
        rest: _,
        ttl_after_finished: _,
        model,
        pod,
        session,
        limits,
        compaction,
        // It reaches the Pod that is there.
        policy: _,
        scope,
        delegation,
        working_dir,
        // Immutable.
        spawned_by: _,
    } = &yoipod.spec;
    // A running agent has taken another limit of tokens already, the gateway reads that of children, and its lifetime is the operator's affair.
    let limits = Limits { tokens: None, children: None, lifetime: None, ..limits.clone() };
    let refresh = meta::annotation(&yoipod.metadata, annotation::REFRESH);
    // These types serialize without fail: their keys are strings and their values plain data.
    let mut text = serde_json::to_vec(&(agent, task, model, pod, &session.segment_size, limits, compaction, refresh)).unwrap_or_default();
    // Without these the digest is that of earlier versions.
    if let Some(delegation) = delegation {
        text.extend_from_slice(b"delegation");
        // What it names is the gateway's to read; whether it names anything is the runtime's.
        if !delegation.allow.is_empty() {
            text.extend_from_slice(b"allow");
        }
    }
    if scope.is_some() {
        text.extend(serde_json::to_vec(scope).unwrap_or_default());
    }
    if let Some(working_dir) = working_dir {
        text.extend_from_slice(b"workingDir");
        text.extend_from_slice(working_dir.as_bytes());
    }
    names::sha256(&text)
}

/// [`made_from`] of the YoiPod that this manifest was made of; `None` for a manifest of an older operator.
#[must_use]
pub(crate) fn made_from_before(map: &ConfigMap) -> Option<&String> {
    map.metadata.annotations.as_ref()?.get(annotation::MADE_FROM)
}

/// Whether the ConfigMap holds what [`config_map`] put into it. Whoever may change ConfigMaps may change its annotations, or make another of its name.
#[must_use]
pub(crate) fn is_whole(yoipod: Stored<'_, YoiPod>, map: &ConfigMap, reference: &ManifestRef) -> bool {
    let text = map.data.as_ref().and_then(|data| data.get(MANIFEST_FILE));
    let resolved = meta::annotation(&map.metadata, annotation::RESOLVED);
    let (Some(text), Some(resolved), Some(made_from)) = (text, resolved, made_from_before(map)) else { return false };
    names::sha256(text.as_bytes()) == reference.digest && title(yoipod, text, resolved, made_from) == reference.name
}

/// A map is made once under its name, so that the name changes with all that it holds.
fn title(yoipod: Stored<'_, YoiPod>, text: &str, resolved: &str, made_from: &str) -> String {
    names::manifest(yoipod.name(), &names::sha256(format!("{text}\n{resolved}\n{made_from}").as_bytes()))
}

/// Field by field, the YoiPod's first; maps, environment, volumes and mounts entry by entry.
fn merge(own: PodSettings, default: PodSettings) -> PodSettings {
    let PodSettings {
        image,
        image_pull_policy,
        resources,
        env,
        node_selector,
        image_pull_secrets,
        runtime_class_name,
        affinity,
        tolerations,
        volumes,
        volume_mounts,
        security_context,
    } = own;
    let mut selector = default.node_selector;
    selector.extend(node_selector);
    PodSettings {
        // A policy belongs to the image that it was written for.
        image_pull_policy: image_pull_policy.or(if image.is_none() { default.image_pull_policy } else { None }),
        image: image.or(default.image),
        resources: if resources.is_empty() { default.resources } else { resources },
        env: by_key(default.env, env, |var: &EnvVar| &var.name),
        node_selector: selector,
        image_pull_secrets: if image_pull_secrets.is_empty() { default.image_pull_secrets } else { image_pull_secrets },
        runtime_class_name: runtime_class_name.or(default.runtime_class_name),
        affinity: affinity.or(default.affinity),
        tolerations: if tolerations.is_empty() { default.tolerations } else { tolerations },
        volumes: by_key(default.volumes, volumes, |volume: &Volume| &volume.name),
        volume_mounts: by_key(default.volume_mounts, volume_mounts, |mount: &VolumeMount| &mount.mount_path),
        security_context: security_context.or(default.security_context),
    }
}

/// Both lists, sorted by their keys; of two entries of one key the one of `own`.
fn by_key<T>(default: Vec<T>, own: Vec<T>, key: impl Fn(&T) -> &String) -> Vec<T> {
    let all = default.into_iter().chain(own).map(|entry| (key(&entry).clone(), entry));
    all.collect::<BTreeMap<_, _>>().into_values().collect()
}

/// Id and text of the YoiPod's task.
#[must_use]
pub fn task(yoipod: &YoiPod) -> Option<Task> {
    let text = yoipod.spec.task.clone()?;
    Some(Task { id: names::task(uid(&yoipod.metadata), &text), text })
}

/// What the runtime reads at its start. `path` is where it sees the tree.
#[must_use]
pub(crate) fn manifest(yoipod: &YoiPod, path: &str, resolved: &Resolved, policy: &ToolPolicy, settings: &Settings) -> AgentManifest {
    let YoiPodSpec { limits, compaction, .. } = &yoipod.spec;
    let segment_size = yoipod.spec.session.segment_size.as_deref();
    AgentManifest {
        agent: agent_ref(yoipod),
        project: yoipod.spec.project_ref.name.clone(),
        path: path.to_owned(),
        builtin: Builtin { instruction: yoipod.spec.agent.builtin.clone().unwrap_or_default().instruction },
        program: wire_program(&yoipod.spec.agent, settings),
        model: resolved.model.as_ref().map(wire_model),
        task: task(yoipod),
        gateway: settings.gateway.clone(),
        limits: RunLimits {
            turns_per_run: limits.turns_per_run.unsigned_abs(),
            tool_seconds: limits.tool_seconds.unsigned_abs(),
            tokens: limits.tokens.map(i64::unsigned_abs),
            silence_seconds: limits.silence_seconds.map(i32::unsigned_abs),
            conversations: limits.conversations.map(i32::unsigned_abs),
            ..RunLimits::default()
        },
        compaction: CompactionLimits { at: compaction.at.map(i64::unsigned_abs), keep: compaction.keep.map(i64::unsigned_abs) },
        policy: ToolPolicy { secret_variables: secret_variables(&resolved.pod), ..policy.clone() },
        assets: assets::wire(resolved.assets.as_deref(), settings, ReadBy::Agent),
        subagents: wire_subagents(&yoipod.spec.agent),
        delegation: yoipod.spec.delegation.is_some(),
        lends: reservation::lends(yoipod),
        working_dir: yoipod.spec.working_dir.clone(),
        segment_bytes: segment_size.and_then(quota_bytes).map(i64::unsigned_abs),
    }
}

/// The templates of a built-in agent's sub-agents.
fn wire_subagents(agent: &Agent) -> Vec<SubagentTemplate> {
    let templates = agent.builtin.iter().flat_map(|builtin| &builtin.subagents).map(|template| {
        let Subagent { name, description, instruction, tools, mode, seconds, turns, tokens } = template;
        SubagentTemplate {
            name: name.clone(),
            description: description.clone(),
            instruction: instruction.clone(),
            tools: tools.clone(),
            mode: mode.map(wire_mode),
            seconds: seconds.map(i32::unsigned_abs),
            turns: turns.map(i32::unsigned_abs),
            tokens: tokens.map(i64::unsigned_abs),
            ..SubagentTemplate::default()
        }
    });
    templates.collect()
}

fn wire_mode(mode: SubagentMode) -> Mode {
    match mode {
        SubagentMode::Coding => Mode::Coding,
        SubagentMode::Engineering => Mode::Engineering,
        // An object with a word of another version makes no manifest; this one closes the most.
        SubagentMode::Planning | SubagentMode::Unknown => Mode::Planning,
    }
}

/// Names of the agent's variables whose values come from Secrets.
fn secret_variables(pod: &PodSettings) -> Vec<String> {
    let is_secret = |env: &&EnvVar| env.value_from.as_ref().is_some_and(|from| from.secret_key_ref.is_some());
    pod.env.iter().filter(is_secret).map(|env| env.name.clone()).collect()
}

/// The ConfigMap that holds a manifest, and the reference to it.
#[must_use]
pub(crate) fn config_map(yoipod: Stored<'_, YoiPod>, manifest: &AgentManifest, resolved: &Resolved) -> (ConfigMap, ManifestRef) {
    // Both serialize without fail: their keys are strings and their values plain data.
    let text = serde_json::to_string(manifest).unwrap_or_default();
    let resolved = serde_json::to_string(&OfProject::of_resolved(resolved)).unwrap_or_default();
    let digest = names::sha256(text.as_bytes());
    let made_from = made_from(yoipod.get());
    let title = title(yoipod, &text, &resolved, &made_from);
    let map = ConfigMap {
        metadata: ObjectMeta {
            name: Some(title.clone()),
            namespace: Some(yoipod.namespace().to_owned()),
            labels: Some(BTreeMap::from([(label::YOIPOD.to_owned(), yoipod.name().to_owned())])),
            annotations: Some(BTreeMap::from([(annotation::RESOLVED.to_owned(), resolved), (annotation::MADE_FROM.to_owned(), made_from)])),
            owner_references: Some(vec![yoipod.owner_reference()]),
            ..ObjectMeta::default()
        },
        immutable: Some(true),
        data: Some(BTreeMap::from([(MANIFEST_FILE.to_owned(), text)])),
        binary_data: None,
    };
    (map, ManifestRef { name: title, digest })
}
