//! Takes out of claims, volumes, nodes and WorkspaceNodes what no plan reads: the caches hold every one of them for as long as it exists.
//!
//! `yoi-plan` must not read what is taken out here. Nothing is ever written back from a cache.

use k8s_openapi::api::core::v1::{
    CSIPersistentVolumeSource, Node, NodeCondition, NodeSpec, NodeStatus, PersistentVolume, PersistentVolumeClaim,
    PersistentVolumeClaimSpec, PersistentVolumeClaimStatus, PersistentVolumeSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use yoi_crds::WorkspaceNode;
use yoi_crds::name::label;
use yoi_crds::node::WorkspaceNodeSpec;

/// A claim with its metadata, its volume and its phase; of a warm session claim also its class and its size.
#[must_use]
pub fn claim(mut claim: PersistentVolumeClaim) -> PersistentVolumeClaim {
    let is_warm = claim.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(label::WARM));
    claim.spec = claim.spec.map(|spec| PersistentVolumeClaimSpec {
        volume_name: spec.volume_name,
        storage_class_name: spec.storage_class_name.filter(|_| is_warm),
        resources: spec.resources.filter(|_| is_warm),
        ..PersistentVolumeClaimSpec::default()
    });
    claim.status = claim.status.map(|status| PersistentVolumeClaimStatus { phase: status.phase, ..PersistentVolumeClaimStatus::default() });
    claim
}

/// A volume with its metadata, its claim, the tree that it shows, its nodes and its reclaim policy.
#[must_use]
pub fn volume(mut volume: PersistentVolume) -> PersistentVolume {
    volume.spec = volume.spec.map(|spec| PersistentVolumeSpec {
        claim_ref: spec.claim_ref,
        csi: spec.csi.map(|csi| CSIPersistentVolumeSource {
            driver: csi.driver,
            volume_handle: csi.volume_handle,
            ..CSIPersistentVolumeSource::default()
        }),
        node_affinity: spec.node_affinity,
        persistent_volume_reclaim_policy: spec.persistent_volume_reclaim_policy,
        ..PersistentVolumeSpec::default()
    });
    volume.status = None;
    volume
}

/// A WorkspaceNode without the trees that no object claims. People read and discard those, and a change of them concerns no plan.
#[must_use]
pub fn offer(mut offer: WorkspaceNode) -> WorkspaceNode {
    offer.spec = WorkspaceNodeSpec::default();
    if let Some(status) = &mut offer.status {
        status.unclaimed = None;
    }
    offer
}

/// A node with its name, its labels, its cordon, its taints, and since when it is ready or not. The kubelet's heartbeats change nothing of that.
#[must_use]
pub fn node(node: Node) -> Node {
    let Node { metadata, spec, status } = node;
    let NodeSpec { unschedulable, taints, .. } = spec.unwrap_or_default();
    let ready = status.and_then(|status| status.conditions).into_iter().flatten().find(|condition| condition.type_ == "Ready");
    let ready = ready.map(|NodeCondition { type_, status, last_transition_time, .. }| NodeCondition {
        type_,
        status,
        last_transition_time,
        ..NodeCondition::default()
    });
    let metadata = ObjectMeta {
        name: metadata.name,
        uid: metadata.uid,
        resource_version: metadata.resource_version,
        labels: metadata.labels,
        ..ObjectMeta::default()
    };
    Node {
        metadata,
        spec: Some(NodeSpec { unschedulable, taints, ..NodeSpec::default() }),
        status: Some(NodeStatus { conditions: ready.map(|ready| vec![ready]), ..NodeStatus::default() }),
    }
}
