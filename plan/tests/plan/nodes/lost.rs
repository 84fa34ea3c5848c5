//! What is said of agents whose node, project or namespace is going or gone: which, and what that means.

use std::sync::Arc;

use serde_json::{Value, json};
use yoi_crds::condition::ConditionStatus;
use yoi_crds::{AgentWorkspace, Condition, YoiPod, YoiProject};
use yoi_plan::nodes::{Node, Nodes};
use yoi_plan::step::Step;
use yoi_plan::{workspace, yoipod};

use crate::nodes::agents::{agent, bound_to, only_on, run};
use crate::nodes::*;

fn not_ready() -> Node {
    node(1, json!({}), Some(400))
}

fn ready_of(seen: &yoipod::Observed) -> Condition {
    condition(&status(run(seen)).conditions, "Ready").clone()
}

/// An agent whose tree is to be a fork of `parent`, which was made on node a. Its Pod can only go there.
fn fork(all: Vec<(&str, Node)>, pod: Option<(Value, Value)>) -> yoipod::Observed {
    let mut seen = agent(&[], nodes(all), pod, "Creating");
    let source = json!({"source": {"workspace": {"name": "parent"}}, "path": "/workspace"});
    let tree = Arc::make_mut(seen.workspace.as_mut().expect("a workspace"));
    tree.spec = made(source);
    let parent = json!({"metadata": meta("parent"), "spec": {"source": {"project": {"name": "p"}}},
        "status": {"nodeName": "a", "path": "/workspace", "origin": {"kind": "Base", "workspaceUID": "b"}, "conditions": [is_true("Provisioned")]}});
    seen.parent = Some(stored(parent));
    seen
}

#[test]
fn a_fork_whose_parents_node_is_lost_or_not_ready_says_which_node_and_that_the_tree_is_gone_with_it() {
    let waiting = || Some((only_on("a"), unschedulable(100)));
    for pod in [waiting(), None] {
        let ready = ready_of(&fork(vec![("b", plain(1))], pod));
        let says = "node a no longer exists, and with it went the tree of AgentWorkspace parent, of which a fork was to be made";
        assert_eq!((ready.reason.as_str(), ready.message.as_str()), ("NodeLost", says));
    }
    let ready = ready_of(&fork(vec![("a", not_ready()), ("b", plain(1))], waiting()));
    assert!(
        ready.message.starts_with("the tree of AgentWorkspace parent, of which a fork is made, is on node a, and node a is not ready. "),
        "{}",
        ready.message
    );
    let ready = ready_of(&fork(vec![("a", plain(1)), ("b", plain(1))], waiting()));
    assert_eq!(ready.reason, "Unschedulable");
    // The workspace of the fork.
    let fork: AgentWorkspace = made(json!({"metadata": meta("f"), "spec": {"source": {"workspace": {"name": "parent"}}, "claim": true}}));
    let parent = self::fork(vec![], None).parent;
    let seen = workspace::Observed { parent, ..workspace_with(Arc::new(fork), nodes(vec![("b", plain(1))])) };
    let scheduled = condition(&status(workspace::plan(&seen, &settings(), now())).conditions, "Scheduled").clone();
    assert!(scheduled.reason == "NodeLost" && scheduled.message.starts_with("node a no longer exists"), "{scheduled:?}");
}

#[test]
fn an_agent_whose_tree_was_on_a_node_that_is_gone_says_so_though_its_pod_waits_for_a_node() {
    let mut seen = agent(&[], nodes(vec![("b", plain(1))]), Some((only_on("a"), unschedulable(100))), "AllMet");
    let tree = Arc::make_mut(seen.workspace.as_mut().expect("a workspace"));
    tree.status =
        Some(made(json!({"nodeName": "a", "origin": {"kind": "Empty"}, "conditions": [is_true("Provisioned"), is_true("Ready")]})));
    let ready = ready_of(&seen);
    assert_eq!((ready.reason.as_str(), ready.message.as_str()), ("NodeLost", "node a no longer exists, and the tree was on it"));

    // Its session may have been there, too. Then no new tree helps.
    let volume = |host: &str| {
        let term = json!({"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [host]}]});
        stored(json!({"metadata": {"name": "pv-1", "uid": "pv"}, "spec": {
            "claimRef": {"name": "x-session", "namespace": "ns", "uid": "c"}, "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}}}))
    };
    let mut other = plain(1);
    other.labels.insert("kubernetes.io/hostname".to_owned(), "b".to_owned());
    seen.nodes = nodes(vec![("b", other)]);
    let waiting = seen.pods.clone();
    for pods in [waiting, Vec::new()] {
        seen.pods = pods;
        for (host, reason) in [("a", "TreeAndSessionLost"), ("b", "NodeLost")] {
            seen.session_volume = Some(volume(host));
            let ready = ready_of(&seen);
            assert_eq!(ready.reason, reason, "{}", ready.message);
        }
    }
}

#[test]
fn an_agent_that_stops_on_a_node_that_is_not_ready_names_the_node() {
    let stop = |node: Node| {
        let pod = (bound_to("a"), json!({"phase": "Running", "containerStatuses": [{"name": "agent", "state": {"running": {}}}]}));
        let mut seen = agent(&[], nodes(vec![("a", node)]), Some(pod), "AllMet");
        Arc::make_mut(&mut seen.yoipod).spec.desired_state = made(json!("Stopped"));
        Arc::make_mut(&mut seen.pods[0]).metadata.deletion_timestamp = Some(made(json!(ago(1))));
        ready_of(&seen)
    };
    assert_eq!(stop(plain(1)).reason, "Stopping");
    let ready = stop(not_ready());
    assert_eq!(ready.reason, "NodeNotReady");
    assert!(ready.message.starts_with("Pod x-1 is going down with node a, which is not ready; it has ended when"), "{}", ready.message);
}

#[test]
fn the_conditions_of_an_agent_follow_its_pods_while_its_namespace_is_being_deleted_and_nothing_is_made() {
    let seen = |pod: Option<(Value, Value)>, desired: &str| {
        let mut seen = agent(&[], nodes(vec![("a", plain(1))]), pod, "AllMet");
        seen.terminating = true;
        let yoipod: &mut YoiPod = Arc::make_mut(&mut seen.yoipod);
        yoipod.spec.desired_state = made(json!(desired));
        let status = yoipod.status.get_or_insert_default();
        status.conditions = vec![made(is("Ready", "True", "AllMet", "replayed and locked; the agent listens"))];
        seen
    };
    let running = || (bound_to("a"), json!({"phase": "Running", "containerStatuses": [{"name": "agent", "state": {"running": {}}}]}));
    let gone = run(&seen(None, "Running"));
    assert!(gone.steps.is_empty(), "{:?}", gone.steps);
    let ready = condition(&status(gone).conditions, "Ready").clone();
    assert_eq!((ready.status, ready.reason.as_str()), (ConditionStatus::False, "NamespaceTerminating"));
    assert!(ready.message.starts_with("namespace ns is being deleted: it has no Pod, and"), "{}", ready.message);
    // It stops when it is told to.
    let stops = run(&seen(Some(running()), "Stopped"));
    assert!(matches!(&stops.steps[..], [Step::Delete(pod)] if pod.name == "x-1"), "{:?}", stops.steps);
}

#[test]
fn an_agent_and_a_workspace_of_a_project_that_is_being_deleted_say_that_it_is_going() {
    let mut seen = agent(&[], nodes(vec![("a", plain(1))]), None, "Creating");
    let going: &mut YoiProject = Arc::make_mut(seen.project.as_mut().expect("a project"));
    going.metadata.deletion_timestamp = Some(made(json!(ago(1))));
    let project = seen.project.clone();
    let ready = ready_of(&seen);
    assert_eq!(ready.reason, "ProjectDeleting");
    assert!(ready.message.starts_with("YoiProject p is being deleted, and nothing new begins from it"), "{}", ready.message);
    let tree: AgentWorkspace = made(json!({"metadata": meta("w"), "spec": {"source": {"project": {"name": "p"}}, "claim": true}}));
    let seen = workspace::Observed { project, ..workspace_with(Arc::new(tree), Arc::new(Nodes::default())) };
    let accepted = condition(&status(workspace::plan(&seen, &settings(), now())).conditions, "Accepted").clone();
    assert_eq!(accepted.reason, "ProjectDeleting", "{}", accepted.message);
}
