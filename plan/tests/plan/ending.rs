//! The end of an agent by itself: a lifetime stops it, a ttl deletes it, and both are told before.

use std::sync::Arc;

use serde_json::{Value, json};
use yoi_crds::condition::ConditionStatus;
use yoi_crds::pod::EndedBy;
use yoi_crds::{YoiPod, YoiPodStatus};
use yoi_plan::conditions::condition_events;
use yoi_plan::step::{Kind, Plan, Step};
use yoi_plan::yoipod;

use crate::reader::{ago, made, of_agent};
use crate::rest::running_pod;
use crate::samples::{now, settings};

/// The agent, made so many seconds ago, with its Pod.
fn aged(spec: Value, age: i64, status: &YoiPodStatus) -> yoipod::Observed {
    let mut seen = of_agent(spec, serde_json::to_value(status).expect("a status"));
    let mut yoipod = Arc::unwrap_or_clone(seen.yoipod.clone());
    yoipod.metadata.creation_timestamp = made::<YoiPod>(json!({"metadata": {"name": "a", "creationTimestamp": ago(age)},
        "spec": {"projectRef": {"name": "p"}, "agent": {}}}))
    .metadata
    .creation_timestamp
    .clone();
    seen.yoipod = Arc::new(yoipod);
    seen.users = vec![Arc::clone(&seen.yoipod)];
    seen
}

fn running() -> YoiPodStatus {
    let report = json!({"podUID": "pod", "runGeneration": 1, "ready": true, "reason": "Replayed", "message": "m"});
    serde_json::from_value(json!({"runGeneration": 1, "report": report, "pod": {"name": "a-1", "uid": "pod"}})).expect("a status")
}

fn with_pod(seen: yoipod::Observed) -> yoipod::Observed {
    yoipod::Observed { pods: vec![running_pod(json!(""))], ..seen }
}

fn plan(seen: &yoipod::Observed) -> Plan<YoiPodStatus> {
    yoipod::plan(seen, &settings(), now())
}

fn status(plan: &Plan<YoiPodStatus>) -> YoiPodStatus {
    plan.status.clone().expect("a status")
}

fn condition<'a>(status: &'a YoiPodStatus, type_: &str) -> Option<(ConditionStatus, &'a str, &'a str)> {
    status.conditions.iter().find(|c| c.type_ == type_).map(|c| (c.status, c.reason.as_str(), c.message.as_str()))
}

fn deletes(plan: &Plan<YoiPodStatus>, kind: Kind) -> bool {
    plan.steps.iter().any(|step| matches!(step, Step::Delete(of) | Step::DeleteUnchanged { of, .. } if of.kind == kind))
}

#[test]
fn r7_a_lifetime_is_told_before_it_ends_then_stops_the_agent_and_a_longer_one_lets_it_go_on() {
    let spec = json!({"limits": {"lifetime": "100m"}});
    let young = plan(&with_pod(aged(spec.clone(), 60, &running())));
    assert_eq!(condition(&status(&young), "Ending"), None);
    assert_eq!(young.requeue_after.map(|after| after.as_secs()), Some(89 * 60), "it looks again when the end is to be told");

    let old = plan(&with_pod(aged(spec.clone(), 90 * 60, &running())));
    let told = status(&old);
    let (is_true, reason, message) = condition(&told, "Ending").expect("Ending");
    assert!(is_true == ConditionStatus::True && reason == "LifetimeEnds" && message.contains("100m"), "{message}");
    assert!(!deletes(&old, Kind::Pod) && old.requeue_after.map(|after| after.as_secs()) == Some(600));
    assert!(condition_events(&[], &told.conditions).iter().any(|event| event.reason == "LifetimeEnds" && !event.warning));

    // The status says so first.
    let over = status(&plan(&with_pod(aged(spec.clone(), 6001, &running()))));
    assert_eq!(over.ended.as_ref().map(|ended| ended.by), Some(EndedBy::Lifetime));
    let recorded = YoiPodStatus { ended: over.ended, ..running() };
    assert!(deletes(&plan(&with_pod(aged(spec.clone(), 6002, &recorded))), Kind::Pod));

    let stopped = YoiPodStatus { pod: None, run_generation: Some(2), ..recorded };
    let seen = aged(spec, 6003, &stopped);
    assert!(yoipod::is_stopped(&seen.yoipod) && !yoipod::may_be_woken(&seen.yoipod));
    let rests = status(&plan(&seen));
    let (_, reason, message) = condition(&rests, "Ready").expect("Ready");
    assert!(reason == "LifetimeOver" && message.contains("it goes on"), "{reason}: {message}");
    assert!(!deletes(&plan(&seen), Kind::YoiPod), "without a ttl it stays");

    let longer = aged(json!({"limits": {"lifetime": "999h"}}), 6003, &stopped);
    let resumed = status(&plan(&longer));
    assert_eq!(resumed.ended, None);
    let next = aged(json!({"limits": {"lifetime": "999h"}}), 6004, &YoiPodStatus { ended: None, ..stopped });
    assert!(plan(&next).steps.iter().any(|step| matches!(step, Step::EnsurePod(_) | Step::EnsureConfigMap(_))), "{:?}", plan(&next).steps);
}

/// An agent of a task that has ended so, without a Pod.
fn finished(spec: &Value, state: &str) -> (Value, YoiPodStatus) {
    let mut whole = json!({"task": "t", "completion": "Stop"});
    whole.as_object_mut().expect("a spec").extend(spec.as_object().cloned().unwrap_or_default());
    let seen = of_agent(whole.clone(), json!({}));
    let id = yoipod::manifest::task(&seen.yoipod).expect("a task").id;
    let status = json!({"runGeneration": 2, "task": {"id": id, "state": state}});
    (whole, serde_json::from_value(status).expect("a status"))
}

#[test]
fn r7_a_ttl_deletes_what_has_ended_once_it_was_told_and_the_session_stays_as_its_spec_says() {
    for state in ["Succeeded", "Failed"] {
        let (spec, before) = finished(&json!({"ttlAfterFinished": "0s"}), state);
        let first = plan(&aged(spec.clone(), 60, &before));
        let told = status(&first);
        assert!(!deletes(&first, Kind::YoiPod), "it was not told: {state}");
        let (is_true, reason, _) = condition(&told, "Ending").expect("Ending");
        assert!(is_true == ConditionStatus::True && reason == "DeletedWhenFinished", "{reason}");
        assert_eq!(told.ended.as_ref().map(|ended| ended.by), Some(EndedBy::Task));
        let after = YoiPodStatus { ended: told.ended, conditions: told.conditions, ..before };
        let second = plan(&aged(spec.clone(), 61, &after));
        assert!(deletes(&second, Kind::YoiPod), "{state}: {:?}", second.steps);
        assert!(!deletes(&second, Kind::Claim));

        let kept = plan(&aged(json!({"task": "t", "completion": "Stop"}), 61, &after));
        assert!(!deletes(&kept, Kind::YoiPod) && condition(&status(&kept), "Ending").is_none());
        let (later, _) = finished(&json!({"ttlAfterFinished": "1h"}), state);
        assert_eq!(plan(&aged(later, 61, &after)).requeue_after.map(|after| after.as_secs()), Some(3600));
    }
}

#[test]
fn an_agent_whose_commits_are_not_pushed_yet_or_could_not_be_is_not_deleted() {
    let (spec, before) = finished(&json!({"ttlAfterFinished": "0s", "push": {}}), "Succeeded");
    let ended = json!({"since": ago(60), "by": "Task"});
    let ending =
        json!([{"type": "Ending", "status": "True", "reason": "DeletedWhenFinished", "message": "m", "lastTransitionTime": ago(60)}]);
    let before = YoiPodStatus {
        ended: Some(Box::new(serde_json::from_value(ended).expect("ended"))),
        conditions: serde_json::from_value(ending).expect("conditions"),
        ..before
    };
    // The source of the project is empty, so the push fails at once.
    let plan = plan(&aged(spec, 61, &before));
    assert!(!deletes(&plan, Kind::YoiPod), "{:?}", plan.steps);
    let after = status(&plan);
    let (is_true, reason, message) = condition(&after, "Ending").expect("Ending");
    assert!(is_true == ConditionStatus::False && reason == "PushFailed" && message.contains("before its commits are pushed"), "{message}");
}
