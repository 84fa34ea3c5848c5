//! Whether an agent may be restored: started again on its session and its tree. A pure function of its object; the gateway acts by it for agents, and the
//! plugin for people.
//!
//! | The agent | Answer |
//! |---|---|
//! | is reachable | `AlreadyLive`, with what it does |
//! | is to run, and is not reachable | `AlreadyLive`: it starts, or its conditions say why not |
//! | has no session, or none that can be replayed | `NotRestorable` |
//! | has ended by itself: its task is done, or its lifetime over | `NotRestorable` |
//! | worked in a tree that was lent to it | `NotRestorable`: nobody lends it again |
//! | has stopped, or rests | it may |

use yoi_crds::YoiPod;
use yoi_crds::pod::DesiredState;
use yoi_wire::hub::{Refusal, RefusalReason, ReportReason};

use crate::meta::{deleting, name};
use crate::yoipod::{is_finished, lifetime_is_over};

/// Why an agent cannot be restored from its session, whatever it does now; a sentence without a subject.
#[must_use]
pub fn not_restorable(pod: &YoiPod) -> Option<String> {
    let status = pod.status.as_ref();
    let Some(session) = status.and_then(|status| status.session.as_ref()) else {
        return Some("it has no session yet (NoSession)".to_owned());
    };
    if session.segment.is_empty() {
        return Some("its session has no segment (NoSession)".to_owned());
    }
    let report = status.and_then(|status| status.report.as_ref());
    if let Some(damage @ (ReportReason::ReplayFailed | ReportReason::LogNewer)) = report.and_then(|report| report.reason.known()) {
        let message = report.map(|report| report.message.as_str()).unwrap_or_default();
        return Some(format!("its session cannot be replayed ({}: {message})", damage.as_str()));
    }
    if is_finished(pod) {
        return Some("it has done its task, and completion Stop ends it then".to_owned());
    }
    if lifetime_is_over(pod) {
        return Some("its lifetime is over".to_owned());
    }
    // Its tree is its parent's, and only a loan lets it write there.
    let is_in_lent_tree = pod.spec.spawned_by.is_some() && pod.spec.workspace.as_ref().is_some_and(|workspace| workspace.ref_.is_some());
    is_in_lent_tree.then(|| "it worked in a tree that was lent to it, and a loan is not made again".to_owned())
}

/// Refuses what is not to be restored. `live` is what seems reachable, as words: its activity.
///
/// # Errors
/// `AlreadyLive` or `NotRestorable`.
pub fn check(pod: &YoiPod, live: Option<&str>) -> Result<(), Refusal> {
    let title = name(&pod.metadata);
    let refused = |reason, message: String| Err(Refusal { reason, message });
    if let Some(activity) = live {
        return refused(RefusalReason::AlreadyLive, format!("{title} is live, {activity}: there is nothing to restore"));
    }
    if deleting(&pod.metadata) {
        return refused(RefusalReason::NotRestorable, format!("{title} is not restorable: it is being deleted"));
    }
    if let Some(why) = not_restorable(pod) {
        return refused(RefusalReason::NotRestorable, format!("{title} is not restorable: {why}"));
    }
    match pod.spec.desired_state {
        DesiredState::Stopped => Ok(()),
        DesiredState::Running | DesiredState::Suspended if crate::yoipod::may_be_woken(pod) => Ok(()),
        DesiredState::Running | DesiredState::Suspended => refused(
            RefusalReason::AlreadyLive,
            format!("{title} is to run already, and is not reachable: it starts, or its conditions say why not"),
        ),
        DesiredState::Unknown => {
            refused(RefusalReason::NotRestorable, format!("{title} is not restorable: its desiredState is one of another version"))
        }
    }
}

/// The one answer about every name that the caller does not see as child or peer.
#[must_use]
pub fn not_visible(name: &str) -> Refusal {
    Refusal { reason: RefusalReason::NotVisible, message: format!("you see no agent named {name:?} that you could restore") }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(spec: Value, status: Value) -> YoiPod {
        let mut full = json!({ "projectRef": { "name": "p" }, "agent": { "builtin": {} }, "desiredState": "Stopped" });
        full.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        let metadata = json!({ "namespace": "ns", "name": "a", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z" });
        serde_json::from_value(json!({ "metadata": metadata, "spec": full, "status": status })).unwrap()
    }

    fn with_session(more: Value) -> Value {
        let mut status = json!({ "session": { "id": "s", "segment": "g" }, "conditions": [] });
        status.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        status
    }

    fn answer(pod: &YoiPod) -> Result<(), (RefusalReason, String)> {
        check(pod, None).map_err(|refusal| (refusal.reason, refusal.message))
    }

    #[test]
    fn b7_what_is_live_is_told_with_what_it_does_and_what_is_to_run_starts_by_itself() {
        let stopped = pod(json!({}), with_session(json!({})));
        let refused = check(&stopped, Some("Running")).unwrap_err();
        assert!(refused.reason == RefusalReason::AlreadyLive && refused.message.contains("live, Running"), "{}", refused.message);
        let running = pod(json!({ "desiredState": "Running" }), with_session(json!({})));
        assert_eq!(answer(&running).unwrap_err().0, RefusalReason::AlreadyLive);
    }

    #[test]
    fn b9_b14_without_a_session_or_a_segment_and_with_a_damaged_one_the_reason_is_named() {
        let reason = |status: Value| answer(&pod(json!({}), status)).unwrap_err();
        let report = json!({ "podUID": "p", "runGeneration": 1, "ready": false, "reason": "ReplayFailed", "message": "line 7 of g.jsonl" });
        for (status, word) in [
            (json!({ "conditions": [] }), "no session"),
            (json!({ "session": { "id": "s", "segment": "" }, "conditions": [] }), "no segment"),
            (with_session(json!({ "report": report })), "ReplayFailed: line 7 of g.jsonl"),
        ] {
            let (reason, message) = reason(status);
            assert!(reason == RefusalReason::NotRestorable && message.contains(word), "{message}");
        }
    }

    #[test]
    fn b16_b18_a_child_that_was_stopped_may_be_restored_and_one_in_a_lent_tree_is_refused_by_name() {
        let born = json!({ "name": "lead", "uid": "u-l", "requestId": "r" });
        assert_eq!(answer(&pod(json!({ "spawnedBy": born }), with_session(json!({})))), Ok(()));
        let lent = pod(json!({ "spawnedBy": born, "workspace": { "ref": { "name": "tree" } } }), with_session(json!({})));
        let (reason, message) = answer(&lent).unwrap_err();
        assert!(reason == RefusalReason::NotRestorable && message.contains("lent"), "{message}");
        // A person has given this one the tree.
        assert_eq!(answer(&pod(json!({ "workspace": { "ref": { "name": "tree" } } }), with_session(json!({})))), Ok(()));
    }
}
