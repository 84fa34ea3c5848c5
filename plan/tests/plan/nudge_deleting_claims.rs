//! When a claim that is being deleted is changed, so that Kubernetes looks at it again, and which claims never are.

use std::time::Duration;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use serde_json::{Value, json};
use yoi_plan::nudge_deleting_claims::plan as nudge;
use yoi_plan::step::Step;

const DELETED: i64 = 1_700_000_000;

fn claim(more: Value) -> PersistentVolumeClaim {
    let mut meta = json!({
        "name": "a-session", "namespace": "ns", "uid": "u", "finalizers": ["kubernetes.io/pvc-protection"],
        "deletionTimestamp": jiff::Timestamp::from_second(DELETED).expect("a time").to_string(),
        "annotations": {"yoi.dev/yoipod-uid": "somebody"},
    });
    meta.as_object_mut().expect("an object").extend(more.as_object().cloned().unwrap_or_default());
    serde_json::from_value(json!({"metadata": meta})).expect("a claim")
}

/// Which nudge is due, and in how many seconds the next one is, so many seconds after the deletion.
fn after(claim: &PersistentVolumeClaim, seconds: i64) -> (Option<u32>, Option<u64>) {
    let plan = nudge(claim, jiff::Timestamp::from_second(DELETED + seconds).expect("a time"));
    let mut times = plan.steps.iter().map(|step| match step {
        Step::NudgeClaim { claim, times } if claim.uid == "u" && claim.namespace == "ns" => *times,
        other => panic!("{other:?}"),
    });
    (times.next(), plan.requeue_after.as_ref().map(Duration::as_secs))
}

#[test]
fn a_claim_is_nudged_after_20_s_and_then_each_time_after_twice_as_long() {
    let wanted =
        [(-90, None, 110), (0, None, 20), (19, None, 1), (20, Some(1), 20), (39, Some(1), 1), (40, Some(2), 40), (80, Some(3), 80)];
    for (seconds, times, next) in wanted {
        assert_eq!(after(&claim(json!({})), seconds), (times, Some(next)), "after {seconds} s");
    }
    let day = after(&claim(json!({})), 86_400);
    assert_eq!(day.0, Some(13), "a day costs that many writes at most");
}

#[test]
fn a_nudge_is_not_repeated_until_the_next_one_is_due() {
    let nudged = |times: &str| claim(json!({"annotations": {"yoi.dev/yoipod-uid": "somebody", "yoi.dev/reminded": times}}));
    assert_eq!(after(&nudged("2"), 79), (None, Some(1)));
    assert_eq!(after(&nudged("2"), 80), (Some(3), Some(80)));
    assert_eq!(after(&nudged("whatever"), 80), (Some(3), Some(80)));
}

#[test]
fn a_workspaces_claim_is_ours_too_and_other_peoples_are_left_alone() {
    let owned = |kind: &str, version: &str| {
        let owner = json!({"apiVersion": version, "kind": kind, "name": "w", "uid": "w", "controller": true});
        claim(json!({"annotations": {}, "ownerReferences": [owner]}))
    };
    assert_eq!(after(&owned("AgentWorkspace", "yoi.dev/v1alpha1"), 20), (Some(1), Some(20)));
    let nothing = (None, None);
    assert_eq!(after(&owned("AgentWorkspace", "example.com/v1"), 20), nothing);
    assert_eq!(after(&owned("StatefulSet", "apps/v1"), 20), nothing);
    assert_eq!(after(&claim(json!({"annotations": {}})), 20), nothing);
    assert_eq!(after(&claim(json!({"deletionTimestamp": null})), 20), nothing);
    assert_eq!(after(&claim(json!({"finalizers": ["example.com/kept"]})), 20), nothing, "it waits for others");
}
