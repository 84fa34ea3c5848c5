//! Takes out of our own objects and of nodes what no plan reads: the caches hold every one of them for as long as it exists. Other kinds are cached in a form
//! of their own: see [`cached`](crate::cached).
//!
//! `yoi-plan` must not read what is taken out here. Nothing is ever written back from a cache.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, NodeCondition, NodeSpec, NodeStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::core::object::HasStatus;
use yoi_crds::WorkspaceNode;
use yoi_crds::node::WorkspaceNodeSpec;
use yoi_plan::conditions::Conditions;

use crate::cached::is_read;

/// Labels and annotations of others can be many, and an empty map takes as much as one with eleven entries.
fn metadata(metadata: &mut ObjectMeta) {
    // A list that was read from JSON has room for four.
    metadata.finalizers.iter_mut().for_each(Vec::shrink_to_fit);
    metadata.owner_references.iter_mut().for_each(Vec::shrink_to_fit);
    for map in [&mut metadata.labels, &mut metadata.annotations] {
        let read: BTreeMap<_, _> = map.take().into_iter().flatten().filter(|(key, _)| is_read(key)).collect();
        *map = (!read.is_empty()).then_some(read);
    }
}

/// One of our own objects with the labels and annotations that plans read.
#[must_use]
pub fn own_object<K: Resource + HasStatus<Status: Conditions>>(mut object: K) -> K {
    metadata(object.meta_mut());
    if let Some(status) = object.status_mut() {
        status.conditions_mut().shrink_to_fit();
    }
    object
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
