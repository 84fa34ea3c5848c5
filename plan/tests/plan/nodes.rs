//! Clusters of several nodes: which of them get bases and Pods, and what happens when one of them will not do.

mod agents;
mod assets;
mod git_sources;
mod heartbeat;
mod hints;
mod host;
mod lost;
mod manifests;
mod no_node;
mod policies;
mod programs;
mod projects;
mod refresh;
mod scopes;
mod warm;
mod workspaces;

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1;
use serde_json::{Value, json};
use yoi_crds::{AgentWorkspace, Condition, YoiProject};
use yoi_plan::nodes::{Node, Nodes};
use yoi_plan::project;
use yoi_plan::step::{Kind, Plan, Step};

use crate::samples::{NOW, now, settings, workspace_with, yoipod_with};

fn made<T: serde::de::DeserializeOwned>(object: Value) -> T {
    serde_json::from_value(object).expect("an object of the kind")
}

fn stored<T: serde::de::DeserializeOwned>(object: Value) -> Arc<T> {
    Arc::new(made(object))
}

/// A time as Kubernetes writes it.
fn ago(seconds: i64) -> String {
    jiff::Timestamp::from_second(NOW - seconds).expect("a time").to_string()
}

/// A Node as the API server has it; `spec` is the Node's. The shim offers Btrfs and this much room there.
fn node(free: i64, spec: Value, not_ready_for: Option<i64>) -> Node {
    let offer = json!({"metadata": {"name": "n"}, "spec": {}, "status": {
        "providers": [{"name": "Btrfs", "available": true, "reason": "here"}], "runtimeDigests": ["d"],
        "capacity": {"totalBytes": 1000, "freeBytes": free}}});
    let ready = match not_ready_for {
        None => json!({"type": "Ready", "status": "True", "lastTransitionTime": ago(5000)}),
        Some(seconds) => json!({"type": "Ready", "status": "Unknown", "lastTransitionTime": ago(seconds)}),
    };
    Node::new(&made::<v1::Node>(json!({"metadata": {}, "spec": spec, "status": {"conditions": [ready]}})), Some(Arc::new(made(offer))))
}

fn plain(free: i64) -> Node {
    node(free, json!({}), None)
}

fn without_shim() -> Node {
    Node { offer: None, ..plain(0) }
}

fn nodes(all: Vec<(&str, Node)>) -> Arc<Nodes> {
    Arc::new(Nodes(all.into_iter().map(|(name, node)| (name.to_owned(), node)).collect()))
}

fn owner(kind: &str, uid: &str) -> Value {
    json!([{"apiVersion": "yoi.dev/v1alpha1", "kind": kind, "name": uid, "uid": uid, "controller": true}])
}

fn meta(name: &str) -> Value {
    json!({"name": name, "namespace": "ns", "uid": name, "resourceVersion": "1", "generation": 1,
        "creationTimestamp": ago(1000), "finalizers": ["yoi.dev/operator", "yoi.dev/node-data"]})
}

fn is(type_: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({"type": type_, "status": status, "reason": reason, "message": message, "lastTransitionTime": ago(500)})
}

fn is_true(type_: &str) -> Value {
    is(type_, "True", "Is", "")
}

fn git_project(url: &str) -> Arc<YoiProject> {
    stored(json!({"metadata": meta("p"), "spec": {"source": {"git": {"url": url}}}}))
}

fn project_with(project: &Arc<YoiProject>, bases: &[Arc<AgentWorkspace>], nodes: &Arc<Nodes>) -> project::Observed {
    project::Observed {
        warm: yoi_plan::warm::Observed::default(),
        looks: Vec::new(),
        project: project.clone(),
        terminating: false,
        bases: bases.to_vec(),
        origins: BTreeSet::new(),
        agents: Vec::new(),
        trees: Vec::new(),
        nodes: nodes.clone(),
        network_policies: Vec::new(),
    }
}

fn status<S>(plan: Plan<S>) -> S {
    plan.status.expect("a status")
}

fn condition<'a>(all: &'a [Condition], type_: &str) -> &'a Condition {
    all.iter().find(|c| c.type_ == type_).unwrap_or_else(|| panic!("{type_} among {all:?}"))
}

/// Nodes of the bases that are made, and names of the objects of this kind that are deleted.
fn outcome(steps: &[Step], deleted: Kind) -> (Vec<&str>, Vec<&str>) {
    let base = |s: &'_ Step| matches!(s, Step::EnsureWorkspace(w) if w.spec.base.is_some());
    let made = steps.iter().filter(|s| base(s)).filter_map(|s| if let Step::EnsureWorkspace(w) = s { w.spec.base.as_ref() } else { None });
    let gone = steps.iter().filter_map(|s| if let Step::Delete(t) = s { Some(t) } else { None }).filter(|t| t.kind == deleted);
    (made.map(|b| b.node.as_str()).collect(), gone.map(|t| t.name.as_str()).collect())
}

/// The base of the project on this node, created so long ago, with these conditions.
fn base_on(project: &Arc<YoiProject>, node: &str, seconds: i64, conditions: Value) -> Arc<AgentWorkspace> {
    let seen = project_with(project, &[], &nodes(vec![(node, plain(1))]));
    let step = project::plan(&seen, &settings(), now()).steps.into_iter().next();
    let Some(Step::EnsureWorkspace(base)) = step else { panic!("the first base is made on the only node: {step:?}") };
    let mut base = *base;
    base.metadata.uid = Some(format!("base-{node}"));
    base.metadata.resource_version = Some("1".to_owned());
    base.metadata.creation_timestamp = Some(made(json!(ago(seconds))));
    base.status = Some(made(json!({"nodeName": node, "origin": {"kind": "Empty"}, "conditions": conditions})));
    Arc::new(base)
}

fn sealed_on(project: &Arc<YoiProject>, node: &str) -> Arc<AgentWorkspace> {
    base_on(project, node, 900, json!([is_true("Provisioned"), is_true("Populated"), is_true("Sealed")]))
}

fn stuck_on(project: &Arc<YoiProject>, node: &str) -> Arc<AgentWorkspace> {
    base_on(project, node, 900, json!([is_true("Provisioned"), is("Populated", "False", "PopulatorNotRunning", "no such image")]))
}

fn cordoned() -> Value {
    json!({"unschedulable": true})
}

fn unschedulable(seconds: i64) -> Value {
    json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
        "message": "0/3 nodes are available: 3 Insufficient memory.", "lastTransitionTime": ago(seconds)}]})
}

/// A Pod that has its node for so long, and whose container waits for this reason.
fn on_node(seconds: i64, container: &str, waits: &str) -> Value {
    json!({
        "phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": ago(seconds)}],
        "containerStatuses": [{"name": container, "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"waiting": {"reason": waits, "message": "no such image"}}}],
    })
}
