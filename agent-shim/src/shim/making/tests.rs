use super::*;
use crate::sample::{uid, workspace};
use crate::shim::tests::Stage;
use serde_json::json;
use yoi_workspace::RecordState;

fn verdict<'a>(outcome: &'a Outcome, type_: &str) -> Option<&'a ConditionValue> {
    outcome.said.verdicts.iter().find(|(t, _)| *t == type_).map(|(_, v)| v)
}

fn reason<'a>(outcome: &'a Outcome, type_: &str) -> &'a str {
    verdict(outcome, type_).map_or("", |v| v.reason.word())
}

async fn look(stage: &Stage, over: serde_json::Value) -> Outcome {
    *stage.world.offers.write().unwrap() = crate::sample::offers(&[ProviderKind::Copy]);
    work(&stage.world, &workspace(1, over), uid(1)).await.unwrap()
}

#[tokio::test]
async fn a_tree_is_made_once_and_told_as_made() {
    let stage = Stage::new();
    let made = look(&stage, json!({})).await;
    assert_eq!((reason(&made, "Provisioned"), &made.next), ("TreeCreated", &Next::Rest));
    let again = look(&stage, json!({})).await;
    assert_eq!(reason(&again, "Provisioned"), "Adopted", "made, and never told");
    assert_eq!(stage.fake.heard().len(), 1);
}

#[tokio::test]
async fn a_refusal_is_told_with_its_reason_and_leaves_no_intent() {
    let stage = Stage::new();
    *stage.fake.refuse.lock().unwrap() = Some(ErrorReason::OutOfSpace);
    let outcome = look(&stage, json!({})).await;
    assert_eq!((reason(&outcome, "Provisioned"), &outcome.next), ("OutOfSpace", &Next::Retry));
    assert_eq!(stage.world.journal.get(uid(1)).unwrap(), None);
    *stage.fake.refuse.lock().unwrap() = None;
    assert_eq!(look(&stage, json!({})).await.next, Next::Rest);
}

#[tokio::test]
async fn a_filled_base_is_sealed_and_its_digest_told() {
    let stage = Stage::new();
    let base = json!({ "spec": { "base": { "generation": "g", "node": crate::sample::NODE } } });
    look(&stage, base.clone()).await;
    let mut filled = base;
    let populated = json!({ "type": "Populated", "status": "True", "reason": "Filled", "message": "", "lastTransitionTime": "" });
    filled["status"] = json!({ "conditions": [populated] });
    let sealed = look(&stage, filled).await;
    assert_eq!(reason(&sealed, "Sealed"), "Sealed");
    assert_eq!(sealed.said.volume.unwrap().entries, Some(4));
    assert_eq!(stage.world.journal.get(uid(1)).unwrap().unwrap().state, RecordState::Sealed);
}

#[tokio::test]
async fn a_deletion_waits_for_the_pod_and_then_leaves_nothing() {
    let stage = Stage::new();
    look(&stage, json!({})).await;
    stage.told(1, 7);
    stage.node().await.node_publish_volume(stage.tree(7, 1)).await.unwrap();
    let deleted = json!({ "metadata": { "deletionTimestamp": "2026-11-21T00:00:00Z" } });
    let waits = look(&stage, deleted.clone()).await;
    assert_eq!((reason(&waits, "CleanedUp"), &waits.next), ("WaitingForPods", &Next::Retry));
    stage.node().await.node_unpublish_volume(stage.unpublish(7, "tree")).await.unwrap();
    let gone = look(&stage, deleted.clone()).await;
    assert_eq!((reason(&gone, "CleanedUp"), &gone.next), ("Destroyed", &Next::LetGo));
    assert!(stage.fake.trees.lock().unwrap().is_empty());
    assert_eq!(stage.world.journal.read_and_clean().unwrap().records, []);
    assert_eq!(look(&stage, deleted).await.next, Next::LetGo, "said twice, and of what was never made");
}

#[tokio::test]
async fn a_mounter_that_is_not_heard_is_no_fact_about_the_tree() {
    let stage = Stage::new();
    stage.fake.deaf.lock().unwrap().insert("make");
    *stage.world.offers.write().unwrap() = crate::sample::offers(&[ProviderKind::Copy]);
    assert!(matches!(work(&stage.world, &workspace(1, json!({})), uid(1)).await, Err(Trouble::Disk(Failure::Unheard(_)))));
    assert_eq!(stage.world.journal.get(uid(1)).unwrap().unwrap().state, RecordState::Creating, "the intent stays for the next attempt");
}

/// The promise of the making door: from any crash, restarts and rounds bring the tree to stand, and then all is quiet.
#[tokio::test]
async fn a_crash_after_any_word_ends_well() {
    for crash in [RecordState::Creating, RecordState::Ready] {
        for on_disk in [false, true] {
            let stage = Stage::new();
            let making = TreeOrigin::Empty { owner: yoi_workspace::Owner { uid: 1000, gid: 1000 } };
            stage.world.journal.begin_create(uid(1), ProviderKind::Copy, making).unwrap();
            if crash == RecordState::Ready {
                stage.world.journal.record_created(uid(1)).unwrap();
            }
            if on_disk || crash == RecordState::Ready {
                let line: &dyn crate::mounter::client::Mounter = &*stage.fake;
                line.make(uid(1), ProviderKind::Copy, making).await.unwrap();
            }
            let lost = crate::shim::recover::recover(&stage.world.journal, &*stage.fake).await.unwrap();
            assert!(lost.lost.is_empty() && lost.unreadable.is_empty());
            let told = look(&stage, json!({})).await;
            assert!(verdict(&told, "Provisioned").is_some_and(|v| v.status == yoi_crds::ConditionStatus::True), "{crash:?} {on_disk}");
            let heard = stage.fake.heard().len();
            look(&stage, json!({})).await;
            assert_eq!(heard - stage.fake.heard().len(), heard, "quiet");
            assert_eq!(stage.fake.trees.lock().unwrap().len(), 1);
        }
    }
}

#[test]
fn pauses_grow_to_a_minute() {
    assert_eq!((pause(1), pause(4), pause(40)), (Duration::from_millis(500), Duration::from_secs(4), Duration::from_secs(60)));
}
