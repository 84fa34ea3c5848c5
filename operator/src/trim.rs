//! Takes out of our own objects and of nodes what no plan reads: the caches hold every one of them for as long as it exists. Of what else the caches hold,
//! [`cached`](crate::cached) is the form.
//!
//! `yoi-plan` must not read what is taken out here. Nothing is ever written back from a cache.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, NodeCondition, NodeSpec, NodeStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use yoi_crds::node::WorkspaceNodeSpec;
use yoi_crds::{AgentWorkspace, WorkspaceNode, YoiPod, YoiProject};

use crate::cached::is_read;

/// Labels and annotations of others can be many, and an empty map takes as much as one with eleven entries.
fn metadata(metadata: &mut ObjectMeta) {
    // A list that was read from JSON has room for four.
    metadata.finalizers.iter_mut().for_each(Vec::shrink_to_fit);
    metadata.owner_references.iter_mut().for_each(Vec::shrink_to_fit);
    for map in [&mut metadata.labels, &mut metadata.annotations] {
        *map =
            map.take().map(|all| all.into_iter().filter(|(key, _)| is_read(key)).collect()).filter(|all: &BTreeMap<_, _>| !all.is_empty());
    }
}

/// A project with the labels and annotations that plans read.
#[must_use]
pub fn project(mut project: YoiProject) -> YoiProject {
    metadata(&mut project.metadata);
    project
}

/// A workspace with the labels and annotations that plans read.
#[must_use]
pub fn workspace(mut workspace: AgentWorkspace) -> AgentWorkspace {
    metadata(&mut workspace.metadata);
    if let Some(status) = &mut workspace.status {
        status.conditions.shrink_to_fit();
    }
    workspace
}

/// A YoiPod with the labels and annotations that plans read.
#[must_use]
pub fn yoipod(mut yoipod: YoiPod) -> YoiPod {
    metadata(&mut yoipod.metadata);
    if let Some(status) = &mut yoipod.status {
        status.conditions.shrink_to_fit();
    }
    yoipod
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
