//! The Kubernetes Pod that reads a stopped agent. It passes Pod Security *restricted*, gets no Secret but its own token for the gateway, and mounts
//! session and tree read-only.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, LocalObjectReference, Pod, PodSpec, ResourceRequirements, Toleration, Volume, VolumeMount};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use yoi_crds::assets::Assets;
use yoi_crds::name::label;
use yoi_crds::pod::PodSettings;
use yoi_crds::source::TreeOwner;
use yoi_crds::{AgentWorkspace, YoiPod};
use yoi_wire::identity::{RUNTIME_BINARY, RUNTIME_MOUNT, SESSION_MOUNT, TOKEN_MOUNT, env};
use yoi_wire::manifest::ReaderManifest;

use super::assets::{self, ReadBy};
use super::pod_spec::{non_empty, runtime_volume, session_volume, token_volume};
use crate::names;
use crate::node_affinity::NodeChoice;
use crate::restricted::{self, mount, scratch};
use crate::settings::Settings;
use crate::stored::Stored;

/// Name of the one container.
pub const CONTAINER: &str = "reader";
const HOME: &str = "/home/agent";

/// What a reader is made from.
pub(super) struct ReaderContext<'a> {
    pub yoipod: Stored<'a, YoiPod>,
    pub tree: Option<Stored<'a, AgentWorkspace>>,
    pub owner: TreeOwner,
    pub pod: PodSettings,
    /// Of the project, as the agent would start with them.
    pub assets: Option<Box<Assets>>,
    pub manifest: &'a ReaderManifest,
    pub claim: &'a str,
    pub runtime_digest: &'a str,
    pub nodes: NodeChoice,
    pub annotations: BTreeMap<String, String>,
    pub settings: &'a Settings,
}

#[must_use]
pub(super) fn pod(context: ReaderContext<'_>) -> Pod {
    let yoipod = context.yoipod;
    let workspace = context.tree.map(|tree| (label::WORKSPACE, tree.name()));
    let labels = [(label::ROLE, label::ROLE_READER), (label::YOIPOD, yoipod.name()), (label::PROJECT, &*yoipod.spec.project_ref.name)];
    let secrets = context.pod.image_pull_secrets.iter().map(|s| LocalObjectReference { name: s.name.clone() });
    Pod {
        metadata: ObjectMeta {
            name: Some(names::reader(yoipod.name())),
            namespace: Some(yoipod.namespace().to_owned()),
            labels: Some(labels.into_iter().chain(workspace).map(|(key, value)| (key.to_owned(), value.to_owned())).collect()),
            annotations: Some(context.annotations.clone()),
            owner_references: Some(vec![yoipod.owner_reference()]),
            ..ObjectMeta::default()
        },
        spec: Some(PodSpec {
            affinity: Some(context.nodes.affinity(None)),
            // The tree and its volume are there, whatever the taints.
            tolerations: Some(vec![Toleration { operator: Some("Exists".to_owned()), ..Toleration::default() }]),
            automount_service_account_token: Some(false),
            containers: vec![container(&context)],
            enable_service_links: Some(false),
            image_pull_secrets: non_empty(secrets.collect()),
            restart_policy: Some("Always".to_owned()),
            runtime_class_name: context.pod.runtime_class_name.clone(),
            security_context: Some(restricted::pod_security(context.owner)),
            termination_grace_period_seconds: Some(5),
            volumes: Some(volumes(&context)),
            ..PodSpec::default()
        }),
        status: None,
    }
}

fn container(context: &ReaderContext<'_>) -> Container {
    // A manifest serializes without fail: its keys are strings and its values plain data.
    let manifest = serde_json::to_string(context.manifest).unwrap_or_default();
    let tree: Option<VolumeMount> = context.manifest.path.as_deref().map(|path| mount("tree", path, true));
    let mounts = [
        mount("runtime", RUNTIME_MOUNT, true),
        mount("session", SESSION_MOUNT, true),
        mount("token", TOKEN_MOUNT, true),
        mount("tmp", "/tmp", false),
        mount("home", HOME, false),
    ];
    Container {
        name: CONTAINER.to_owned(),
        // It has git, whatever the agent's image has, and is on the nodes where sources were fetched.
        image: Some(context.settings.populator_image.clone()),
        image_pull_policy: context.settings.image_pull_policy.map(restricted::pull_policy),
        command: Some(vec![format!("{RUNTIME_MOUNT}/{RUNTIME_BINARY}"), "read".to_owned()]),
        env: Some(vec![restricted::variable("HOME", HOME), restricted::variable(env::READER, &manifest)]),
        resources: Some(resources()),
        security_context: Some(restricted::container_security()),
        volume_mounts: Some(
            mounts.into_iter().chain(tree).chain(assets::mounts(context.assets.as_deref(), context.settings, ReadBy::Reader)).collect(),
        ),
        working_dir: Some("/".to_owned()),
        ..Container::default()
    }
}

/// git needs memory in proportion to the largest objects of a repository.
fn resources() -> ResourceRequirements {
    let quantities = |cpu: &str, memory: &str| {
        let pairs = [("cpu", cpu), ("memory", memory)];
        Some(pairs.into_iter().map(|(key, value)| (key.to_owned(), Quantity(value.to_owned()))).collect())
    };
    ResourceRequirements { requests: quantities("10m", "32Mi"), limits: quantities("1", "1Gi"), claims: None }
}

fn volumes(context: &ReaderContext<'_>) -> Vec<Volume> {
    let tree = context.tree.map(|tree| restricted::tree_volume(tree.uid(), true));
    let scratch = ["tmp", "home"].map(|name| scratch(name, context.settings));
    let own = [runtime_volume(context.runtime_digest), session_volume(context.claim, true), token_volume()];
    own.into_iter().chain(scratch).chain(tree).chain(assets::volumes(context.assets.as_deref(), context.settings, ReadBy::Reader)).collect()
}
