//! An agent that rests has no Pod until something wakes it.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use yoi_crds::YoiPodStatus;
use yoi_plan::step::{Kind, Plan, Step};
use yoi_plan::{ObservedPod, yoipod};

use crate::reader::{ago, made, of_agent};
use crate::samples::{now, settings};

/// The agent after its first run, with or without the Pod of that, whose runtime said `reason` last.
fn after_first_run(spec: Value, has_pod: bool, reason: &str, rest: Value) -> yoipod::Observed {
    let pod = has_pod.then(|| json!({"name": "a-1", "uid": "pod"}));
    let report = json!({"podUID": "pod", "runGeneration": 1, "ready": reason == "Replayed", "reason": reason, "message": "m"});
    let mut status = json!({"runGeneration": if has_pod { 1 } else { 2 }, "report": report, "pod": pod});
    if !rest.is_null() {
        status["rest"] = rest;
    }
    let mut seen = of_agent(spec, status);
    if has_pod {
        seen.pods = vec![running_pod(json!(""))];
    }
    seen
}

pub fn running_pod(rest: Value) -> Arc<ObservedPod> {
    let pod = json!({
        "metadata": {"name": "a-1", "namespace": "ns", "uid": "pod", "creationTimestamp": ago(900), "labels": {"yoi.dev/yoipod": "a"},
            "annotations": {"yoi.dev/run-generation": "1", "yoi.dev/tokens": "", "yoi.dev/rest": rest},
            "ownerReferences": [{"apiVersion": "yoi.dev/v1alpha1", "kind": "YoiPod", "name": "a", "uid": "a", "controller": true}]},
        "spec": {"nodeName": "n1", "containers": [], "volumes": [{"name": "tree", "csi": {"driver": "csi.yoi.dev",
            "volumeAttributes": {"yoi.dev/workspace-uid": "tree"}}}]},
        "status": {"phase": "Running", "containerStatuses": [{"name": "agent", "image": "", "imageID": "", "ready": true, "restartCount": 0,
            "state": {"running": {}}}]},
    });
    Arc::new(Arc::unwrap_or_clone(made::<Pod>(pod)).into())
}

fn rested() -> Value {
    json!({"runGeneration": 1, "since": ago(60)})
}

fn woken() -> Value {
    json!({"runGeneration": 1, "since": ago(60), "wake": {"requestedAt": ago(1), "by": "a message of jane"}})
}

fn plan(seen: &yoipod::Observed) -> Plan<YoiPodStatus> {
    yoipod::plan(seen, &settings(), now())
}

fn deletes_pod(plan: &Plan<YoiPodStatus>) -> bool {
    plan.steps.iter().any(|step| matches!(step, Step::Delete(target) if target.kind == Kind::Pod))
}

fn makes_pod(plan: &Plan<YoiPodStatus>) -> Option<&Pod> {
    plan.steps.iter().find_map(|step| if let Step::EnsurePod(pod) = step { Some(&**pod) } else { None })
}

fn ready(plan: &Plan<YoiPodStatus>) -> (String, String) {
    let status = plan.status.as_ref().expect("a status");
    let ready = status.conditions.iter().find(|c| c.type_ == "Ready").expect("Ready");
    (ready.reason.clone(), ready.message.clone())
}

fn suspended() -> Value {
    json!({"desiredState": "Suspended"})
}

#[test]
fn r1_the_pod_goes_when_its_runtime_says_that_it_rests_and_lists_say_since_when() {
    for spec in [suspended(), json!({"rest": {"after": "30m"}})] {
        let works = plan(&after_first_run(spec.clone(), true, "Replayed", Value::Null));
        assert!(!deletes_pod(&works), "it has not said so: {spec}");
        assert!(deletes_pod(&plan(&after_first_run(spec.clone(), true, "Resting", rested()))), "{spec}");
        let gone = plan(&after_first_run(spec.clone(), false, "Resting", rested()));
        assert!(makes_pod(&gone).is_none(), "{spec}");
        let (reason, message) = ready(&gone);
        assert!(reason == "Resting" && message.contains(&format!("since {}", ago(60))), "{reason}: {message}");
    }
}

#[test]
fn r2_an_agent_that_was_woken_gets_one_pod_and_says_what_woke_it() {
    let before = plan(&after_first_run(suspended(), true, "Resting", woken()));
    assert!(deletes_pod(&before) && makes_pod(&before).is_none(), "a Pod that takes nothing goes first");
    let after = plan(&after_first_run(suspended(), false, "Resting", woken()));
    assert_eq!(makes_pod(&after).and_then(|pod| pod.metadata.name.as_deref()), Some("a-2"));
    assert!(ready(&after).1.starts_with("woken by a message of jane: "), "{:?}", ready(&after));
}

#[test]
fn an_agent_that_is_never_to_rest_is_as_before_and_one_that_may_not_any_more_starts() {
    let never = plan(&after_first_run(json!({}), true, "Replayed", Value::Null));
    assert!(!deletes_pod(&never) && never.steps.iter().all(|step| !matches!(step, Step::SetRest { .. })), "{:?}", never.steps);
    for spec in [json!({}), json!({"rest": {"after": "0s"}})] {
        let seen = after_first_run(spec.clone(), false, "Resting", rested());
        assert!(makes_pod(&plan(&seen)).is_some(), "{spec}");
    }
}

#[test]
fn what_the_spec_says_of_rest_reaches_the_pod_that_runs() {
    let set = |seen: &yoipod::Observed| {
        plan(seen).steps.into_iter().find_map(|step| if let Step::SetRest { after, .. } = step { Some(after) } else { None })
    };
    let with = |spec: Value| after_first_run(spec, true, "Replayed", Value::Null);
    assert_eq!(set(&with(suspended())).as_deref(), Some("0"));
    assert_eq!(set(&with(json!({"rest": {"after": "30m"}}))).as_deref(), Some("1800"));
    let mut by_default = with(json!({}));
    let project = json!({"metadata": {"name": "p", "namespace": "ns", "uid": "p"},
        "spec": {"source": {"empty": {}}, "path": "/workspace", "defaults": {"rest": {"after": "1h"}}}});
    by_default.project = Some(made(project.clone()));
    assert_eq!(set(&by_default).as_deref(), Some("3600"));
    let mut refuses = with(json!({"rest": {"after": "0s"}}));
    refuses.project = Some(made(project));
    assert_eq!(set(&refuses), None, "its own word counts");
    by_default.project = None;
    assert_eq!(set(&by_default), None, "nobody knows, so nothing changes");
}

#[test]
fn r6_a_stopped_agent_is_not_woken_and_its_rest_is_over_when_it_is_started_again() {
    let mut seen = after_first_run(json!({"desiredState": "Stopped"}), false, "Resting", woken());
    let stopped = plan(&seen);
    assert!(makes_pod(&stopped).is_none() && ready(&stopped).0 == "Stopped", "{:?}", ready(&stopped));
    seen = after_first_run(json!({"desiredState": "Stopped"}), false, "Resting", rested());
    let run = plan(&seen).status.expect("a status").run_generation;
    assert_eq!(run, Some(3), "the run after the rest is not the next one");
    seen = after_first_run(json!({"rest": {"after": "30m"}}), false, "Resting", rested());
    let mut yoipod = Arc::unwrap_or_clone(seen.yoipod);
    if let Some(status) = &mut yoipod.status {
        status.run_generation = run;
    }
    seen.yoipod = Arc::new(yoipod);
    seen.users = vec![seen.yoipod.clone()];
    assert_eq!(makes_pod(&plan(&seen)).and_then(|pod| pod.metadata.name.as_deref()), Some("a-3"));
}

#[test]
fn a_resting_agent_is_read_without_being_woken() {
    let mut status = json!({"requestedAt": ago(5)});
    let mut seen = after_first_run(suspended(), false, "Resting", rested());
    let mut yoipod = Arc::unwrap_or_clone(seen.yoipod);
    if let Some(known) = &mut yoipod.status {
        known.reader = serde_json::from_value(status.take()).expect("a reader");
    }
    seen.yoipod = Arc::new(yoipod);
    seen.users = vec![seen.yoipod.clone()];
    assert_eq!(makes_pod(&plan(&seen)).and_then(|pod| pod.metadata.name.as_deref()), Some("a-reader"));
}
