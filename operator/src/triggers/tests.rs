use futures::channel::mpsc::UnboundedReceiver;
use k8s_openapi::api::core::v1::Node;
use kube::runtime::watcher::Event;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use yoi_crds::{WorkspaceNode, YoiProject};

use super::*;

fn object<K: DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).unwrap()
}

fn project(name: &str) -> YoiProject {
    object(json!({
        "apiVersion": "yoi.dev/v1alpha1", "kind": "YoiProject", "metadata": {"name": name, "namespace": "ns", "uid": format!("uid-{name}")},
        "spec": {"source": {"empty": {}}, "path": "/src"},
    }))
}

fn base_of(project: &str) -> AgentWorkspace {
    let name = yoi_plan::names::base("g", "n");
    let owner = json!({"apiVersion": "yoi.dev/v1alpha1", "kind": "YoiProject", "name": project, "uid": format!("uid-{project}"), "controller": true});
    object(json!({
        "apiVersion": "yoi.dev/v1alpha1", "kind": "AgentWorkspace",
        "metadata": {"name": name, "namespace": "ns", "uid": format!("uid-{name}"), "ownerReferences": [owner]},
        "spec": {"source": {"empty": {}}, "path": "/src", "base": {"generation": "g", "node": "n"}},
    }))
}

fn yoipod(name: &str, workspace: &str) -> YoiPod {
    object(json!({
        "apiVersion": "yoi.dev/v1alpha1", "kind": "YoiPod", "metadata": {"name": name, "namespace": "ns", "uid": format!("uid-{name}")},
        "spec": {"projectRef": {"name": "p"}, "agent": {"builtin": {}}, "workspace": {"ref": {"name": workspace}}},
    }))
}

/// Names of the objects that were triggered since the last call, sorted.
fn triggered<K: Resource<DynamicType = ()>>(receiver: &mut UnboundedReceiver<ObjectRef<Queued<K>>>) -> Vec<String> {
    let mut names: Vec<String> = std::iter::from_fn(|| receiver.try_recv().ok()).map(|object| object.name).collect();
    names.sort();
    names.dedup();
    names
}

#[test]
fn a_project_is_triggered_when_its_last_base_is_gone() {
    let (caches, writers, mut triggers) = WatchCaches::new();
    writers.projects.apply(Event::Apply(project("p")), |_| {});
    writers.workspaces.apply(Event::Apply(base_of("p")), |change| caches.workspace_changed(&change.keys));
    assert_eq!(triggered(&mut triggers.projects), ["p"]);
    writers.workspaces.apply(Event::Delete(base_of("p")), |change| caches.workspace_changed(&change.keys));
    assert_eq!(triggered(&mut triggers.projects), ["p"]);
}

#[test]
fn c16_a_parent_is_triggered_when_it_has_more_or_fewer_children_and_they_when_it_is_gone() {
    let (caches, writers, mut triggers) = WatchCaches::new();
    let child = |name: &str| {
        let mut child = yoipod(name, name);
        child.spec.spawned_by = Some(Box::new(object(json!({"name": "lead", "uid": "uid-lead", "requestId": "r"}))));
        child
    };
    let mut lead = yoipod("lead", "lead");
    writers.yoipods.apply(Event::Apply(lead.clone()), |_| {});
    let mut version = 1;
    let mut changed = |event: Event<YoiPod>| {
        version += 1;
        let set = |mut pod: YoiPod| {
            pod.metadata.resource_version = Some(version.to_string());
            pod
        };
        let event = match event {
            Event::Apply(pod) => Event::Apply(set(pod)),
            Event::Delete(pod) => Event::Delete(set(pod)),
            other => other,
        };
        writers.yoipods.apply(event, |change| caches.yoipod_changed(&change.keys));
        triggered(&mut triggers.yoipods)
    };
    assert!(changed(Event::Apply(child("one"))).contains(&"lead".to_owned()));
    lead.status = Some(object(json!({"children": 1, "conditions": []})));
    changed(Event::Apply(lead.clone()));
    assert!(!changed(Event::Apply(child("one"))).contains(&"lead".to_owned()), "its count is right");
    assert!(changed(Event::Delete(child("one"))).contains(&"lead".to_owned()));
    changed(Event::Apply(child("two")));
    assert!(changed(Event::Delete(lead)).contains(&"two".to_owned()));
}

#[test]
fn a_base_that_is_not_ready_is_triggered_by_its_project_and_a_ready_one_is_not() {
    let (caches, writers, mut triggers) = WatchCaches::new();
    let mut base = base_of("p");
    writers.workspaces.apply(Event::Apply(base.clone()), |_| {});
    let mut version = 1;
    let mut asked = || {
        version += 1;
        let mut project = project("p");
        project.metadata.resource_version = Some(version.to_string());
        writers.projects.apply(Event::Apply(project), |change| caches.project_changed(&change.keys));
        triggered(&mut triggers.workspaces)
    };
    assert_eq!(asked(), [base.name_any()]);
    base.status = Some(object(json!({"conditions": [
        {"type": "Ready", "status": "True", "reason": "AllMet", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]})));
    base.metadata.resource_version = Some("2".to_owned());
    writers.workspaces.apply(Event::Apply(base), |_| {});
    assert_eq!(asked(), Vec::<String>::new());
}

#[test]
fn an_agent_is_triggered_when_the_last_other_one_that_names_its_workspace_is_gone() {
    let (caches, writers, mut triggers) = WatchCaches::new();
    for name in ["first", "second"] {
        writers.yoipods.apply(Event::Apply(yoipod(name, "shared")), |change| caches.yoipod_changed(&change.keys));
    }
    triggered(&mut triggers.yoipods);
    writers.yoipods.apply(Event::Delete(yoipod("first", "shared")), |change| caches.yoipod_changed(&change.keys));
    assert_eq!(triggered(&mut triggers.yoipods), ["second"]);
}

#[test]
fn an_agent_that_is_ready_is_triggered_when_a_node_does_not_answer_and_when_it_does_again() {
    let (caches, writers, mut triggers) = WatchCaches::new();
    let mut agent = yoipod("a", "a");
    agent.status = Some(object(json!({"conditions": [
        {"type": "Ready", "status": "True", "reason": "AllMet", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]})));
    writers.yoipods.apply(Event::Apply(agent), |_| {});
    let mut version = 1;
    let mut node = |ready: &str, cordoned: bool| {
        version += 1;
        let condition = json!({"type": "Ready", "status": ready, "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let stored = json!({"metadata": {"name": "n", "uid": "n", "resourceVersion": version.to_string()},
            "spec": {"unschedulable": cordoned}, "status": {"conditions": [condition]}});
        writers.nodes.apply(Event::Apply(object::<Node>(stored)), |change| caches.nodes_changed(&change.keys));
        triggered(&mut triggers.yoipods)
    };
    assert_eq!(node("True", false), ["a"], "it joins");
    assert!(node("True", true).is_empty(), "a cordon moves no agent");
    assert_eq!(node("Unknown", true), ["a"]);
    assert_eq!(node("True", true), ["a"]);
}

#[test]
fn a_shims_pod_triggers_the_workspace_node_of_its_node_when_it_comes_and_when_it_goes() {
    let (caches, writers, mut triggers) = WatchCaches::new();
    let pod = || -> k8s_openapi::api::core::v1::Pod {
        object(json!({"metadata": {"name": "shim-a", "namespace": "yoi-node", "uid": "s"}, "spec": {"nodeName": "n", "containers": []},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]}}))
    };
    let started = caches.shim_silence("n").expect("no Pod is there").since;
    writers.shim_pods.apply(Event::Apply(pod()), |change| caches.shim_pods_changed(&change.keys));
    assert_eq!(triggered(&mut triggers.workspace_nodes), ["n"]);
    assert_eq!(caches.shim_silence("n"), None);
    writers.shim_pods.apply(Event::Delete(pod()), |change| caches.shim_pods_changed(&change.keys));
    assert_eq!(triggered(&mut triggers.workspace_nodes), ["n"]);
    let silence = caches.shim_silence("n").expect("the Pod is gone");
    assert!(silence.pod.is_none() && silence.since > started, "{silence:?}");
}

#[test]
fn a_project_that_is_being_deleted_is_triggered_when_its_last_agent_is_gone_and_another_is_not() {
    let (caches, writers, mut triggers) = WatchCaches::new();
    let mut going = project("p");
    writers.projects.apply(Event::Apply(going.clone()), |_| {});
    let mut agent_goes = || {
        writers.yoipods.apply(Event::Apply(yoipod("a", "w")), |_| {});
        writers.yoipods.apply(Event::Delete(yoipod("a", "w")), |change| caches.yoipod_changed(&change.keys));
        triggered(&mut triggers.projects)
    };
    assert_eq!(agent_goes(), Vec::<String>::new());
    going.metadata = object(json!({"name": "p", "namespace": "ns", "uid": "uid-p", "deletionTimestamp": "2026-01-01T00:00:00Z"}));
    writers.projects.apply(Event::Apply(going), |_| {});
    assert_eq!(agent_goes(), ["p"]);
}

#[test]
fn a_nodes_heartbeat_and_its_free_bytes_wake_nobody_and_what_the_scheduler_judges_does() {
    let (caches, writers, mut triggers) = WatchCaches::new();
    let crate::watch_caches::CacheWriters { projects, nodes, workspace_nodes, .. } = writers;
    let project =
        json!({"metadata": {"name": "p", "namespace": "ns", "uid": "p", "resourceVersion": "1"}, "spec": {"source": {"empty": {}}}});
    projects.apply(Event::Apply(object::<YoiProject>(project)), |_| {});
    let mut version = 1;
    let mut projects_triggered = || {
        let mut count = 0;
        while let Ok(_project) = triggers.projects.try_recv() {
            count += 1;
        }
        count
    };
    let mut node = |spec: Value, ready: &str, since: &str, heartbeat: &str| {
        version += 1;
        let condition = json!({"type": "Ready", "status": ready, "lastTransitionTime": since, "lastHeartbeatTime": heartbeat});
        let stored = json!({"metadata": {"name": "n", "uid": "n", "resourceVersion": version.to_string()}, "spec": spec, "status": {"conditions": [condition]}});
        nodes.apply(Event::Apply(object::<Node>(stored)), |change| caches.nodes_changed(&change.keys));
        let found = caches.observed_nodes();
        assert_eq!(found.0["n"].not_ready_since.is_some(), ready != "True");
    };
    let (early, late) = ("2026-01-01T00:00:00Z", "2026-01-01T00:05:00Z");
    node(json!({}), "True", early, early);
    assert_eq!(projects_triggered(), 1, "it joins");
    node(json!({}), "True", early, late);
    assert_eq!(projects_triggered(), 0, "a heartbeat");
    node(json!({"unschedulable": true}), "True", early, late);
    assert_eq!(projects_triggered(), 1, "it is cordoned");
    node(json!({"taints": [{"key": "gpu", "effect": "NoSchedule"}]}), "True", early, late);
    assert_eq!(projects_triggered(), 1, "it is uncordoned and tainted");
    node(json!({"taints": [{"key": "gpu", "effect": "NoSchedule"}]}), "Unknown", late, early);
    assert_eq!(projects_triggered(), 1, "it is not ready");

    let mut offer = |free: i64, available: bool, version: i64| {
        let status = json!({"providers": [{"name": "Btrfs", "available": available, "reason": "r"}], "capacity": {"totalBytes": 9, "freeBytes": free}});
        let stored = json!({"metadata": {"name": "n", "uid": "o", "resourceVersion": version.to_string()}, "spec": {}, "status": status});
        workspace_nodes.apply(Event::Apply(object::<WorkspaceNode>(stored)), |change| caches.nodes_changed(&change.keys));
        projects_triggered()
    };
    assert_eq!((offer(5, true, 100), offer(4, true, 101), offer(4, false, 102)), (1, 0, 1), "free bytes change every minute");
}
