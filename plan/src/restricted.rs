//! Parts of Pods that pass the Pod Security standard *restricted*.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Affinity, CSIVolumeSource, Capabilities, EmptyDirVolumeSource, NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm,
    PodSecurityContext, SeccompProfile, SecurityContext, Volume, VolumeMount,
};
use yoi_crds::pod::ImagePullPolicy;
use yoi_crds::source::TreeOwner;
use yoi_wire::identity::{CSI_DRIVER, VOLUME_KIND, VOLUME_TREE, VOLUME_WORKSPACE};

use crate::nodes::{HOSTNAME, Hostname};
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

/// Requires a node with one of these hostnames.
pub(crate) fn only_on(hostnames: &[Hostname]) -> Affinity {
    let values = hostnames.iter().map(|hostname| hostname.as_str().to_owned()).collect();
    let listed = NodeSelectorRequirement { key: HOSTNAME.to_owned(), operator: "In".to_owned(), values: Some(values) };
    Affinity {
        node_affinity: Some(NodeAffinity {
            required_during_scheduling_ignored_during_execution: Some(NodeSelector {
                node_selector_terms: vec![NodeSelectorTerm { match_expressions: Some(vec![listed]), match_fields: None }],
            }),
            preferred_during_scheduling_ignored_during_execution: None,
        }),
        ..Affinity::default()
    }
}

/// Values of the hostname label that [`only_on`] allowed.
pub(crate) fn allowed_hostnames(affinity: Option<&Affinity>) -> Vec<&str> {
    let required = affinity.and_then(|a| a.node_affinity.as_ref()?.required_during_scheduling_ignored_during_execution.as_ref());
    let terms = required.map(|s| s.node_selector_terms.as_slice()).unwrap_or_default();
    terms
        .iter()
        .flat_map(|t| t.match_expressions.as_deref().unwrap_or_default())
        .filter(|r| r.key == HOSTNAME)
        .flat_map(|r| r.values.as_deref().unwrap_or_default())
        .map(String::as_str)
        .collect()
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

pub(crate) fn pull_policy(policy: ImagePullPolicy) -> String {
    match policy {
        ImagePullPolicy::Always => "Always",
        // A policy of another version is refused before. Without a policy, Kubernetes would decide by the tag.
        ImagePullPolicy::IfNotPresent | ImagePullPolicy::Unknown => "IfNotPresent",
        ImagePullPolicy::Never => "Never",
    }
    .to_owned()
}
