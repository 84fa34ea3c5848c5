//! Parts of Pods that pass the Pod Security standard *restricted*.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    CSIVolumeSource, Capabilities, EmptyDirVolumeSource, PodSecurityContext, ResourceRequirements, SeccompProfile, SecurityContext, Volume,
    VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use yoi_crds::pod::{ImagePullPolicy, Resources};
use yoi_crds::source::TreeOwner;
use yoi_wire::identity::{CSI_DRIVER, VOLUME_KIND, VOLUME_TREE, VOLUME_WORKSPACE};

use crate::stored::Uid;

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

pub(crate) fn empty(name: &str) -> Volume {
    Volume { name: name.to_owned(), empty_dir: Some(EmptyDirVolumeSource::default()), ..Volume::default() }
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

pub(crate) fn pull_policy(policy: ImagePullPolicy) -> String {
    match policy {
        ImagePullPolicy::Always => "Always",
        // A policy of another version is refused before. Without a policy, Kubernetes would decide by the tag.
        ImagePullPolicy::IfNotPresent | ImagePullPolicy::Unknown => "IfNotPresent",
        ImagePullPolicy::Never => "Never",
    }
    .to_owned()
}
