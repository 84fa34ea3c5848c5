//! Parts of Pods that pass the Pod Security standard *restricted*.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{
    CSIVolumeSource, Capabilities, Container, EmptyDirVolumeSource, EnvVar, PodSecurityContext, PodSpec, ResourceRequirements,
    SeccompProfile, SecurityContext, Toleration, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use yoi_crds::pod::{ImagePullPolicy, PodSettings, Resources, Scope};
use yoi_crds::source::TreeOwner;
use yoi_wire::cover::{Cover, Shown};
use yoi_wire::identity::{CSI_DRIVER, VOLUME_COVERS, VOLUME_KIND, VOLUME_LENDS, VOLUME_SCOPED_TREE, VOLUME_TREE, VOLUME_WORKSPACE};

use crate::settings::Settings;
use crate::stored::{Object, Stored, Uid};

/// Metadata of a Pod that `owner` controls, in its namespace.
pub(crate) fn metadata<'a, K: Object>(
    name: String,
    owner: Stored<'_, K>,
    labels: impl IntoIterator<Item = (&'a str, &'a str)>,
    annotations: impl IntoIterator<Item = (&'a str, String)>,
) -> ObjectMeta {
    ObjectMeta {
        name: Some(name),
        namespace: Some(owner.namespace().to_owned()),
        labels: Some(labels.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()),
        annotations: Some(annotations.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()),
        owner_references: Some(vec![owner.owner_reference()]),
        ..ObjectMeta::default()
    }
}

/// A Pod that runs `container` once, for `deadline` seconds at most, without a token for the API server.
pub(crate) fn single_run(container: Container, volumes: Vec<Volume>, owner: TreeOwner, deadline: i64) -> PodSpec {
    PodSpec {
        automount_service_account_token: Some(false),
        enable_service_links: Some(false),
        containers: vec![container],
        restart_policy: Some("Never".to_owned()),
        security_context: Some(pod_security(owner)),
        termination_grace_period_seconds: Some(5),
        active_deadline_seconds: Some(deadline),
        volumes: Some(volumes),
        ..PodSpec::default()
    }
}

/// The container of such a Pod, without a name and a command. When it fails, its status holds the end of its output.
pub(crate) fn container() -> Container {
    Container {
        working_dir: Some("/".to_owned()),
        security_context: Some(container_security()),
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        ..Container::default()
    }
}

/// One that runs `script` in the populator's image.
pub(crate) fn script_container(name: &str, script: &str, env: Vec<EnvVar>, mounts: Vec<VolumeMount>, settings: &Settings) -> Container {
    Container {
        name: name.to_owned(),
        image: Some(settings.populator_image.clone()),
        image_pull_policy: settings.image_pull_policy.map(pull_policy),
        command: Some(["/bin/sh", "-eu", "-c", script].map(str::to_owned).to_vec()),
        env: Some(env),
        resources: Some(settings.populator_resources.clone()),
        volume_mounts: Some(mounts),
        ..container()
    }
}

/// A variable of exactly this value: Kubernetes would replace `$(NAME)` in it, and `$$` by `$`.
pub(crate) fn variable(name: &str, value: &str) -> EnvVar {
    EnvVar { name: name.to_owned(), value: Some(value.replace('$', "$$")), value_from: None }
}

/// The tolerations of a project's agents.
pub(crate) fn tolerations(agents: Option<&PodSettings>) -> Option<Vec<Toleration>> {
    agents.map(|agents| agents.tolerations.clone()).filter(|tolerations| !tolerations.is_empty())
}

pub(crate) fn pod_security(owner: TreeOwner) -> PodSecurityContext {
    PodSecurityContext {
        run_as_non_root: Some(true),
        run_as_user: Some(owner.uid),
        run_as_group: Some(owner.gid),
        fs_group: Some(owner.gid),
        fs_group_change_policy: Some("OnRootMismatch".to_owned()),
        seccomp_profile: Some(SeccompProfile { type_: "RuntimeDefault".to_owned(), localhost_profile: None }),
        ..PodSecurityContext::default()
    }
}

pub(crate) fn container_security() -> SecurityContext {
    SecurityContext {
        allow_privilege_escalation: Some(false),
        capabilities: Some(Capabilities { drop: Some(vec!["ALL".to_owned()]), add: None }),
        read_only_root_filesystem: Some(true),
        ..SecurityContext::default()
    }
}

/// An inline volume of our driver that shows a workspace's tree.
pub(crate) fn tree_volume(workspace: Uid<'_>, read_only: bool) -> Volume {
    inline(
        "tree",
        read_only,
        BTreeMap::from([(VOLUME_KIND.to_owned(), VOLUME_TREE.to_owned()), (VOLUME_WORKSPACE.to_owned(), workspace.as_str().to_owned())]),
    )
}

/// Whether these covers show the root of the tree read-only.
pub(crate) fn root_is_read_only(covers: &[Cover]) -> bool {
    covers.iter().any(|cover| cover.path == "." && cover.shown != Shown::Writable)
}

/// The same as seen through covers; without any, as [`tree_volume`].
pub(crate) fn scoped_tree_volume(workspace: Uid<'_>, read_only: bool, covers: &[Cover], lends: Option<&Scope>) -> Volume {
    let mut volume = covered_tree_volume(workspace, read_only, covers);
    if let Some(attributes) = volume.csi.as_mut().and_then(|csi| csi.volume_attributes.as_mut()) {
        let lends = lends.map(|scope| serde_json::to_string(scope).unwrap_or_default());
        attributes.extend(lends.map(|lends| (VOLUME_LENDS.to_owned(), lends)));
    }
    volume
}

fn covered_tree_volume(workspace: Uid<'_>, read_only: bool, covers: &[Cover]) -> Volume {
    if covers.is_empty() {
        return tree_volume(workspace, read_only);
    }
    // These types serialize without fail; if they did not, the shim would refuse the volume.
    let covers = serde_json::to_string(covers).unwrap_or_default();
    let attributes = [(VOLUME_KIND, VOLUME_SCOPED_TREE), (VOLUME_WORKSPACE, workspace.as_str()), (VOLUME_COVERS, &covers)];
    inline("tree", read_only, attributes.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect())
}

pub(crate) fn inline(name: &str, read_only: bool, attributes: BTreeMap<String, String>) -> Volume {
    Volume {
        name: name.to_owned(),
        csi: Some(CSIVolumeSource {
            driver: CSI_DRIVER.to_owned(),
            read_only: Some(read_only),
            volume_attributes: Some(attributes),
            ..CSIVolumeSource::default()
        }),
        ..Volume::default()
    }
}

/// A folder of the Pod's own on its node's disk. The kubelet evicts a Pod that writes more into it than the limit.
pub(crate) fn scratch(name: &str, settings: &Settings) -> Volume {
    let size_limit = settings.scratch_limit.clone().map(Quantity);
    Volume {
        name: name.to_owned(),
        empty_dir: Some(EmptyDirVolumeSource { size_limit, ..EmptyDirVolumeSource::default() }),
        ..Volume::default()
    }
}

pub(crate) fn mount(name: &str, path: &str, read_only: bool) -> VolumeMount {
    VolumeMount { name: name.to_owned(), mount_path: path.to_owned(), read_only: read_only.then_some(true), ..VolumeMount::default() }
}

/// `None` where nothing is asked for.
pub(crate) fn resources(wanted: &Resources) -> Option<ResourceRequirements> {
    let quantities = |map: &BTreeMap<String, String>| {
        (!map.is_empty()).then(|| map.iter().map(|(k, v)| (k.clone(), Quantity(v.clone()))).collect::<BTreeMap<_, _>>())
    };
    (!wanted.is_empty()).then(|| ResourceRequirements {
        requests: quantities(&wanted.requests),
        limits: quantities(&wanted.limits),
        claims: None,
    })
}

/// `own`, with the defaults of each resource that it does not mention: a default request could be higher than its limit, or the other way round.
pub(crate) fn with_defaults(own: Option<ResourceRequirements>, defaults: &ResourceRequirements) -> Option<ResourceRequirements> {
    let mut all = own.unwrap_or_default();
    let mentioned: BTreeSet<String> = [&all.requests, &all.limits].into_iter().flatten().flat_map(BTreeMap::keys).cloned().collect();
    for (own, defaults) in [(&mut all.requests, &defaults.requests), (&mut all.limits, &defaults.limits)] {
        let missing = defaults.iter().flatten().filter(|(name, _)| !mentioned.contains(*name));
        for (name, value) in missing {
            own.get_or_insert_default().insert(name.clone(), value.clone());
        }
    }
    (all != ResourceRequirements::default()).then_some(all)
}

pub(crate) fn pull_policy(policy: ImagePullPolicy) -> String {
    match policy {
        ImagePullPolicy::Always => "Always",
        // A policy of another version is refused before. Without a policy, Kubernetes would decide by the tag.
        ImagePullPolicy::IfNotPresent | ImagePullPolicy::Unknown => "IfNotPresent",
        ImagePullPolicy::Never => "Never",
    }
    .to_owned()
}
