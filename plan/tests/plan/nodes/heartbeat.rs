//! Nodes that nothing is heard of.

use serde_json::{Value, json};
use yoi_crds::WorkspaceNode;
use yoi_crds::condition::ConditionStatus;
use yoi_plan::nodes::heartbeat::{self, ShimPod, Silence};
use yoi_plan::project;
use yoi_plan::step::{Kind, Step};

use super::{NOW, ago, git_project, made, node, nodes, now, outcome, plain, project_with, settings, stored};

/// The Pod of a shim; `ready` is its condition's status, and how many seconds ago that changed.
fn shim_pod(name: &str, ready: Option<(&str, i64)>) -> ShimPod {
    let conditions: Vec<Value> =
        ready.map(|(status, seconds)| json!({"type": "Ready", "status": status, "lastTransitionTime": ago(seconds)})).into_iter().collect();
    let metadata = json!({"name": name, "namespace": "yoi-node", "uid": name, "creationTimestamp": ago(31)});
    made::<k8s_openapi::api::core::v1::Pod>(
        json!({"metadata": metadata, "spec": {"nodeName": "n", "containers": []}, "status": {"conditions": conditions}}),
    )
    .into()
}

/// A WorkspaceNode whose condition Ready has this status since so many seconds.
fn offer(ready: &str, seconds: i64) -> WorkspaceNode {
    let ready = json!({"type": "Ready", "status": ready, "reason": "AllMet", "message": "m", "lastTransitionTime": ago(seconds)});
    made(json!({"metadata": {"name": "n", "uid": "offer", "resourceVersion": "7"}, "spec": {}, "status": {
        "providers": [{"name": "Btrfs", "available": true, "reason": "here"}], "runtimeDigests": ["d"], "conditions": [ready]}}))
}

fn plan(offer: &WorkspaceNode, pods: &[ShimPod], absent_for: i64) -> yoi_plan::step::Plan<std::convert::Infallible> {
    let absent_since = jiff::Timestamp::from_second(NOW - absent_for).expect("a time");
    let silence = Silence::observed(pods, absent_since);
    heartbeat::plan(offer, &nodes(vec![("n", plain(1))]), silence.as_ref(), now())
}

#[test]
fn a_node_whose_shim_is_not_ready_for_half_a_minute_is_unknown() {
    let of = |pods: &[ShimPod], absent_for: i64| plan(&offer("True", 5000), pods, absent_for);
    for (pods, absent_for, names) in [
        (vec![shim_pod("shim-a", Some(("False", 31)))], 9000, "Pod shim-a of its shim is not ready"),
        (vec![shim_pod("shim-a", Some(("Unknown", 31)))], 9000, "Pod shim-a"),
        (vec![shim_pod("shim-a", None)], 9000, "Pod shim-a"),
        (vec![], 31, "no yoi-agent-shim Pod is on the node"),
    ] {
        let plan = of(&pods, absent_for);
        let [Step::SetNodeCondition { of, resource_version, condition }] = &plan.steps[..] else { panic!("{names}: {plan:?}") };
        assert_eq!((of.name.as_str(), of.uid.as_str(), resource_version.as_str()), ("n", "offer", "7"));
        assert_eq!((&*condition.type_, condition.status, &*condition.reason), ("Ready", ConditionStatus::Unknown, "NodeStatusUnknown"));
        assert!(condition.message.contains(names), "{}", condition.message);
        assert_eq!(condition.last_transition_time, ago(0));
    }
    // An update of the DaemonSet takes a moment.
    for (pods, absent_for) in [(vec![shim_pod("shim-a", Some(("False", 10)))], 9000), (vec![], 10)] {
        let plan = of(&pods, absent_for);
        assert!(plan.steps.is_empty() && plan.requeue_after == Some(std::time::Duration::from_secs(20)), "{plan:?}");
    }
    // The former Pod is still going down.
    let plan = of(&[shim_pod("former", Some(("False", 5000))), shim_pod("new", Some(("True", 1)))], 9000);
    assert!(plan.steps.is_empty() && plan.requeue_after.is_none(), "{plan:?}");
}

#[test]
fn only_a_ready_node_becomes_unknown_and_not_one_whose_shim_has_reported_since() {
    let silent = [shim_pod("shim-a", Some(("False", 100)))];
    for (status, reported_for, is_written) in [("True", 101, true), ("True", 99, false), ("False", 5000, false), ("Unknown", 5000, false)] {
        let plan = plan(&offer(status, reported_for), &silent, 9000);
        assert_eq!(!plan.steps.is_empty(), is_written, "Ready={status} for {reported_for} s: {plan:?}");
    }
}

#[test]
fn no_base_goes_to_a_node_that_is_not_heard_of() {
    let silent = || {
        let mut silent = node(900, json!({}), None);
        silent.offer = Some(stored(serde_json::to_value(offer("Unknown", 1)).expect("JSON")));
        silent
    };
    let project = git_project("git://g/p");
    let made_on = |all| {
        let plan = project::plan(&project_with(&project, &[], &nodes(all)), &settings(), now());
        let (bases, _) = outcome(&plan.steps, Kind::Workspace);
        bases.into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(made_on(vec![("full", plain(10)), ("silent", silent())]), ["full"]);
    assert_eq!(made_on(vec![("silent", silent())]), Vec::<String>::new());
}
