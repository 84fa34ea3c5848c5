//! The manifest of an agent: the project's defaults and the YoiPod's spec, resolved once and named by digest.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use yoi_crds::name::label;
use yoi_crds::pod::{EnvVar, ManifestRef, Model, PodSettings};
use yoi_crds::{YoiPod, YoiProject};
use yoi_wire::identity::MANIFEST_FILE;
use yoi_wire::manifest::{AgentManifest, Builtin, ModelEndpoint as WireModel, RunLimits, SecretKeyName, Task};

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

/// `None` when neither names a model.
#[must_use]
pub(crate) fn resolve(yoipod: &YoiPod, project: &YoiProject) -> Option<Resolved> {
    let model = yoipod.spec.model.clone().or_else(|| project.spec.defaults.model.clone())?;
    Some(Resolved { model, pod: pod_settings(yoipod, Some(project)) })
}

/// What YoiPod and project say of the Pod; the YoiPod alone when there is no project.
#[must_use]
pub(crate) fn pod_settings(yoipod: &YoiPod, project: Option<&YoiProject>) -> PodSettings {
    let default = project.and_then(|project| project.spec.defaults.pod.clone());
    merge(yoipod.spec.pod.clone(), default.unwrap_or_default())
}

/// Field by field, the YoiPod's first; maps and environment entry by entry.
fn merge(own: PodSettings, default: PodSettings) -> PodSettings {
    let PodSettings { image, image_pull_policy, resources, env, node_selector, image_pull_secrets, runtime_class_name } = own;
    let mut named: BTreeMap<String, EnvVar> = BTreeMap::new();
    for var in default.env.into_iter().chain(env) {
        named.insert(var.name.clone(), var);
    }
    let mut selector = default.node_selector;
    selector.extend(node_selector);
    PodSettings {
        // A policy belongs to the image that it was written for.
        image_pull_policy: image_pull_policy.or(if image.is_none() { default.image_pull_policy } else { None }),
        image: image.or(default.image),
        resources: if resources.is_empty() { default.resources } else { resources },
        env: named.into_values().collect(),
        node_selector: selector,
        image_pull_secrets: if image_pull_secrets.is_empty() { default.image_pull_secrets } else { image_pull_secrets },
        runtime_class_name: runtime_class_name.or(default.runtime_class_name),
    }
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
        },
        task: task(yoipod),
        gateway: settings.gateway.clone(),
        limits: RunLimits {
            turns_per_run: limits.turns_per_run.unsigned_abs(),
            tool_seconds: limits.tool_seconds.unsigned_abs(),
            ..RunLimits::default()
        },
    }
}

/// The ConfigMap that holds a manifest, and the reference to it.
#[must_use]
pub(crate) fn config_map(yoipod: Stored<'_, YoiPod>, manifest: &AgentManifest) -> (ConfigMap, ManifestRef) {
    // A manifest serializes without fail: its keys are strings and its values plain data.
    let text = serde_json::to_string(manifest).unwrap_or_default();
    let digest = names::sha256(text.as_bytes());
    let title = names::manifest(yoipod.name(), &digest);
    let map = ConfigMap {
        metadata: ObjectMeta {
            name: Some(title.clone()),
            namespace: Some(yoipod.namespace().to_owned()),
            labels: Some(BTreeMap::from([(label::YOIPOD.to_owned(), yoipod.name().to_owned())])),
            owner_references: Some(vec![yoipod.owner_reference()]),
            ..ObjectMeta::default()
        },
        immutable: Some(true),
        data: Some(BTreeMap::from([(MANIFEST_FILE.to_owned(), text)])),
        binary_data: None,
    };
    (map, ManifestRef { name: title, digest })
}
