//! What one attempt to provision reports, and that attempts after any crash end well.

use std::time::Duration;

use crate::fixtures::{uid, workspace};
use crate::test_shim::TestShim;
use serde_json::json;
use yoi_agent_shim::mounter::client::MounterFailure;
use yoi_agent_shim::shim::error::Error;
use yoi_agent_shim::shim::provisioning::{Next, ProvisionOutcome, backoff, provision};
use yoi_agent_shim::shim::recovery;
use yoi_crds::condition::ConditionValue;
use yoi_workspace::{ErrorReason, ProviderKind, RecordState, TreeOrigin};

fn condition_value<'a>(outcome: &'a ProvisionOutcome, type_: &str) -> Option<&'a ConditionValue> {
    outcome.update.conditions.iter().find(|(t, _)| *t == type_).map(|(_, v)| v)
}

fn reason<'a>(outcome: &'a ProvisionOutcome, type_: &str) -> &'a str {
    condition_value(outcome, type_).map_or("", |v| v.reason.as_str())
}

async fn look(shim: &TestShim, over: serde_json::Value) -> ProvisionOutcome {
    *shim.state.offers.write().unwrap() = crate::fixtures::offers(&[ProviderKind::Copy]);
    provision(&shim.state, &workspace(1, over), uid(1)).await.unwrap()
}

#[tokio::test]
async fn a_tree_is_made_once_and_reported_as_made() {
    let shim = TestShim::new();
    let made = look(&shim, json!({})).await;
    assert_eq!((reason(&made, "Provisioned"), &made.next), ("TreeCreated", &Next::AwaitChange));
    let again = look(&shim, json!({})).await;
    assert_eq!(reason(&again, "Provisioned"), "Adopted", "made, and never reported");
    assert_eq!(shim.mounter.take_requests().len(), 1);
}

#[tokio::test]
async fn a_refusal_is_reported_with_its_reason_and_leaves_no_intent() {
    let shim = TestShim::new();
    *shim.mounter.refuse.lock().unwrap() = Some(ErrorReason::OutOfSpace);
    let outcome = look(&shim, json!({})).await;
    assert_eq!((reason(&outcome, "Provisioned"), &outcome.next), ("OutOfSpace", &Next::Retry));
    assert_eq!(shim.state.journal.get(uid(1)).unwrap(), None);
    *shim.mounter.refuse.lock().unwrap() = None;
    assert_eq!(look(&shim, json!({})).await.next, Next::AwaitChange);
}

#[tokio::test]
async fn a_populated_base_is_sealed_and_its_digest_reported() {
    let shim = TestShim::new();
    let base = json!({ "spec": { "base": { "generation": "g", "node": crate::fixtures::NODE } } });
    look(&shim, base.clone()).await;
    let mut filled = base;
    let populated = json!({ "type": "Populated", "status": "True", "reason": "Filled", "message": "", "lastTransitionTime": "" });
    filled["status"] = json!({ "conditions": [populated] });
    let sealed = look(&shim, filled).await;
    assert_eq!(reason(&sealed, "Sealed"), "Sealed");
    assert_eq!(sealed.update.volume.unwrap().entries, Some(4));
    assert_eq!(shim.state.journal.get(uid(1)).unwrap().unwrap().state, RecordState::Sealed);
}

#[tokio::test]
async fn a_fork_of_a_tree_that_is_too_deep_is_refused_once() {
    let shim = TestShim::new();
    shim.record_tree(2).await;
    *shim.mounter.refuse.lock().unwrap() = Some(ErrorReason::TreeTooDeep);
    let of_two = json!({ "status": { "origin": { "kind": "Fork", "workspaceUID": uid(2) } } });
    *shim.state.offers.write().unwrap() = crate::fixtures::offers(&[ProviderKind::Btrfs]);
    let refused = provision(&shim.state, &workspace(1, of_two), uid(1)).await.unwrap();
    assert_eq!((reason(&refused, "Provisioned"), &refused.next), ("TreeTooDeep", &Next::AwaitChange));
}

#[tokio::test]
async fn w36_a_deletion_waits_for_the_pod_and_then_leaves_nothing() {
    let shim = TestShim::new();
    look(&shim, json!({})).await;
    shim.assign_pod(1, 7);
    shim.node().await.node_publish_volume(shim.tree(7, 1)).await.unwrap();
    let deleted = json!({ "metadata": { "deletionTimestamp": "2026-11-21T00:00:00Z" } });
    let waits = look(&shim, deleted.clone()).await;
    assert_eq!((reason(&waits, "CleanedUp"), &waits.next), ("WaitingForPods", &Next::Retry));
    shim.node().await.node_unpublish_volume(shim.unpublish(7, "tree")).await.unwrap();
    let gone = look(&shim, deleted.clone()).await;
    assert_eq!((reason(&gone, "CleanedUp"), &gone.next), ("Destroyed", &Next::RemoveFinalizer));
    assert!(shim.mounter.trees.lock().unwrap().is_empty());
    assert_eq!(shim.state.journal.read_and_clean().unwrap().records, []);
    assert_eq!(look(&shim, deleted).await.next, Next::RemoveFinalizer, "a repeated deletion, and of a tree that was never made");
}

#[tokio::test]
async fn a_mounter_that_does_not_answer_says_nothing_about_the_tree() {
    let shim = TestShim::new();
    shim.mounter.unanswered.lock().unwrap().insert("make");
    *shim.state.offers.write().unwrap() = crate::fixtures::offers(&[ProviderKind::Copy]);
    assert!(matches!(provision(&shim.state, &workspace(1, json!({})), uid(1)).await, Err(Error::Mounter(MounterFailure::Transport(_)))));
    assert_eq!(shim.state.journal.get(uid(1)).unwrap().unwrap().state, RecordState::Creating, "the intent stays for the next attempt");
}

/// From any crash, restarts and attempts make the tree, and then no attempt sends a request.
#[tokio::test]
async fn after_any_crash_the_tree_ends_up_provisioned_and_nothing_more_is_done() {
    for crash in [RecordState::Creating, RecordState::Ready] {
        for on_disk in [false, true] {
            let shim = TestShim::new();
            let making = TreeOrigin::Empty { owner: yoi_workspace::Owner { uid: 1000, gid: 1000 } };
            shim.state.journal.begin_create(uid(1), ProviderKind::Copy, making).unwrap();
            if crash == RecordState::Ready {
                shim.state.journal.record_created(uid(1)).unwrap();
            }
            if on_disk || crash == RecordState::Ready {
                let line: &dyn yoi_agent_shim::mounter::client::Mounter = &*shim.mounter;
                line.make(uid(1), ProviderKind::Copy, making).await.unwrap();
            }
            let lost = recovery::recover(&shim.state.journal, &*shim.mounter).await.unwrap();
            assert!(lost.lost.is_empty() && lost.unreadable.is_empty());
            let report = look(&shim, json!({})).await;
            assert!(
                condition_value(&report, "Provisioned").is_some_and(|v| v.status == yoi_crds::ConditionStatus::True),
                "{crash:?} {on_disk}"
            );
            let requests = shim.mounter.take_requests().len();
            look(&shim, json!({})).await;
            assert_eq!(requests - shim.mounter.take_requests().len(), requests, "no new request");
            assert_eq!(shim.mounter.trees.lock().unwrap().len(), 1);
        }
    }
}

#[test]
fn the_backoff_grows_to_a_minute() {
    assert_eq!((backoff(1), backoff(4), backoff(40)), (Duration::from_millis(500), Duration::from_secs(4), Duration::from_secs(60)));
}
