//! The manifest of an agent: the project's defaults and the YoiPod's spec, resolved once and named by digest.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, Volume, VolumeMount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use yoi_crds::YoiPod;
use yoi_crds::name::{annotation, label};
use yoi_crds::pod::{EnvVar, ManifestRef, Model, PodSettings};
use yoi_crds::project::PodDefaults;
use yoi_wire::identity::MANIFEST_FILE;
use yoi_wire::manifest::{AgentManifest, Builtin, CompactionLimits, ModelEndpoint as WireModel, RunLimits, SecretKeyName, Task};

use crate::meta::uid;
use crate::names;
use crate::settings::Settings;
use crate::stored::Stored;
use crate::visibility::agent_ref;

/// A YoiPod with its project's defaults filled in.
#[derive(Clone, Debug)]
pub(crate) struct Resolved {
    pub model: Model,
    pub pod: PodSettings,
}

/// `None` when neither names a model. `defaults` are the project's.
#[must_use]
pub(crate) fn resolve(yoipod: &YoiPod, defaults: PodDefaults) -> Option<Resolved> {
    let model = yoipod.spec.model.clone().or(defaults.model)?;
    Some(Resolved { model, pod: merge(yoipod.spec.pod.clone(), defaults.pod.unwrap_or_default()) })
}

/// What the agent was resolved to when this manifest was made; `None` for a manifest of an older operator.
#[must_use]
pub(crate) fn resolved_before(map: &ConfigMap) -> Option<PodDefaults> {
    serde_json::from_str(map.metadata.annotations.as_ref()?.get(annotation::RESOLVED)?).ok()
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
pub(crate) fn manifest(yoipod: &YoiPod, path: &str, resolved: &Resolved, settings: &Settings) -> AgentManifest {
    let limits = yoipod.spec.limits;
    AgentManifest {
        agent: agent_ref(yoipod),
        project: yoipod.spec.project_ref.name.clone(),
        path: path.to_owned(),
        builtin: Builtin { instruction: yoipod.spec.agent.builtin.clone().unwrap_or_default().instruction },
        model: WireModel {
            provider: resolved.model.provider,
            name: resolved.model.name.clone(),
            base_url: resolved.model.base_url.clone(),
            key_secret: resolved.model.auth_secret_ref.as_ref().map(|r| SecretKeyName { secret: r.name.clone(), key: r.key.clone() }),
            api: None,
            max_output_tokens: None,
            effort: None,
            timeout_seconds: None,
            patience_seconds: None,
            ca: None,
            headers: Vec::new(),
            proxy_url: None,
            window_tokens: None,
            fallbacks: Vec::new(),
        },
        task: task(yoipod),
        gateway: settings.gateway.clone(),
        limits: RunLimits {
            turns_per_run: limits.turns_per_run.unsigned_abs(),
            tool_seconds: limits.tool_seconds.unsigned_abs(),
            ..RunLimits::default()
        },
        compaction: CompactionLimits::default(),
        segment_bytes: None,
    }
}

/// The ConfigMap that holds a manifest, and the reference to it.
#[must_use]
pub(crate) fn config_map(yoipod: Stored<'_, YoiPod>, manifest: &AgentManifest, resolved: &Resolved) -> (ConfigMap, ManifestRef) {
    // Both serialize without fail: their keys are strings and their values plain data.
    let text = serde_json::to_string(manifest).unwrap_or_default();
    let resolved = PodDefaults { model: Some(resolved.model.clone()), pod: Some(resolved.pod.clone()), quota: None };
    let resolved = serde_json::to_string(&resolved).unwrap_or_default();
    let digest = names::sha256(text.as_bytes());
    // A map is made once under its name, so that the name changes with all that it holds.
    let title = names::manifest(yoipod.name(), &names::sha256(format!("{text}\n{resolved}").as_bytes()));
    let map = ConfigMap {
        metadata: ObjectMeta {
            name: Some(title.clone()),
            namespace: Some(yoipod.namespace().to_owned()),
            labels: Some(BTreeMap::from([(label::YOIPOD.to_owned(), yoipod.name().to_owned())])),
            annotations: Some(BTreeMap::from([(annotation::RESOLVED.to_owned(), resolved)])),
            owner_references: Some(vec![yoipod.owner_reference()]),
            ..ObjectMeta::default()
        },
        immutable: Some(true),
        data: Some(BTreeMap::from([(MANIFEST_FILE.to_owned(), text)])),
        binary_data: None,
    };
    (map, ManifestRef { name: title, digest })
}
