//! What the gateway says of an agent beside its log: a hint, and a notice of its task.

use serde_json::{Value, json};
use yoi_crds::YoiPod;
use yoi_crds::pod::{Completion, DesiredState};
use yoi_plan::yoipod;

use crate::nodes::agents::agent;
use crate::nodes::*;

/// The steps and the status that are planned when the gateway has written this, without what it wrote.
fn planned(seen: &yoipod::Observed, written: Value) -> (String, Value) {
    let mut seen = seen.clone();
    let yoipod = Arc::make_mut(&mut seen.yoipod);
    let mut status = serde_json::to_value(yoipod.status.take()).expect("JSON");
    status.as_object_mut().expect("a status").extend(written.as_object().cloned().expect("fields of the status"));
    yoipod.status = Some(made(status));
    seen.users = vec![seen.yoipod.clone()];
    let plan = yoipod::plan(&seen, &settings(), now());
    let mut status = serde_json::to_value(plan.status).expect("JSON");
    if let Some(fields) = status.as_object_mut() {
        fields.retain(|field, _| !["live", "task", "report", "session"].contains(&field.as_str()));
    }
    (format!("{:?}", plan.steps), status)
}

fn changed(mut seen: yoipod::Observed, change: impl FnOnce(&mut YoiPod)) -> yoipod::Observed {
    change(Arc::make_mut(&mut seen.yoipod));
    seen
}

#[test]
fn g10_a_live_hint_or_notice_that_is_lost_doubled_or_false_changes_nothing_that_is_decided() {
    let bases = [sealed_on(&git_project("https://git.example/a"), "a")];
    let with_pod = |pod: Option<(Value, Value)>| agent(&bases, nodes(vec![("a", plain(3))]), pod, "AllMet");
    let runs = || with_pod(Some((json!({"nodeName": "a"}), json!({"phase": "Running"}))));
    let ends_with_its_task = |yoipod: &mut YoiPod| {
        yoipod.spec.task = Some("do it".to_owned());
        yoipod.spec.completion = Completion::Stop;
    };
    let table = [
        ("it comes back", with_pod(None)),
        ("it runs", runs()),
        ("it runs until its task is done", changed(runs(), ends_with_its_task)),
        ("it is stopped", changed(runs(), |yoipod| yoipod.spec.desired_state = DesiredState::Stopped)),
        ("it is deleted", changed(runs(), |yoipod| yoipod.metadata.deletion_timestamp = made(json!(ago(1))))),
    ];
    let hint = |pod: &str, activity: &str| json!({"live": {"podUID": pod, "activity": activity, "observedAt": ago(1)}});
    // Notices of a task that the spec no longer names.
    let notice = |state: &str| json!({"task": {"id": "of-a-former-task", "state": state}});
    let told = [
        hint("pod", "Idle"),
        hint("pod", "Running"),
        hint("pod", "Tomorrow"),
        hint("of-a-former-pod", "Idle"),
        notice("Succeeded"),
        notice("Failed"),
        notice("Running"),
    ];
    let mut decided = std::collections::BTreeSet::new();
    for (what, seen) in table {
        let untold = planned(&seen, json!({}));
        for told in &told {
            assert_eq!(planned(&seen, told.clone()), untold, "{what}: {told}");
        }
        decided.insert(untold.0);
    }
    assert!(decided.len() >= 3, "the control: what is decided differs: {decided:?}");
    let its_task = json!({"task": {"id": yoi_plan::names::task("x", "do it"), "state": "Succeeded"}});
    let seen = changed(runs(), ends_with_its_task);
    assert_ne!(planned(&seen, its_task), planned(&seen, json!({})), "the control: what its log says of its own task counts");
}
