//! Trees that no object claims, and their discarding by a person.

use kube::Client;
use kube::runtime::watcher::Event;
use serde_json::{Value, json};
use yoi_agent_shim::decide::unclaimed::{BASE_GRACE, HeldTree, discard_refusal, goes_by_itself, status};
use yoi_agent_shim::shim::provisioning;
use yoi_agent_shim::shim::unclaimed::look;
use yoi_agent_shim::shim::workspaces::uid_of;
use yoi_agent_shim::volume::{PodVolume, PublishRecord, PublishedVolume};
use yoi_crds::AgentWorkspace;
use yoi_crds::node::UnclaimedTrees;
use yoi_workspace::{ChangeBase, DiskUsage, ProviderKind, Record, RecordState};

use crate::fixtures::{NODE, offers, record, uid, workspace};
use crate::orphans::{Asked, error_status, server, standing};
use crate::test_shim::TestShim;

fn base(n: u8) -> AgentWorkspace {
    workspace(n, json!({ "spec": { "base": { "generation": "g", "node": NODE } } }))
}

/// A shim that began anew after its node was lost. It holds a tree of `uid(1)`, in which a Pod worked, the base of `uid(2)`, and the tree of
/// `uid(3)`, the only object that the watch lists.
async fn returned() -> TestShim {
    let shim = TestShim::new();
    *shim.state.offers.write().unwrap() = offers(&[ProviderKind::Copy]);
    for ws in [workspace(1, json!({})), base(2), workspace(3, json!({}))] {
        provisioning::provision(&shim.state, &ws, uid_of(&ws).unwrap()).await.unwrap();
    }
    for n in [1, 3] {
        shim.state.journal.forget_object(uid(n)).unwrap();
    }
    for (n, exclusive_bytes) in [(1, 10), (2, 500)] {
        let usage = DiskUsage { logical_bytes: 1000, exclusive_bytes, entries: 1, charged_bytes: None };
        shim.mounter.usages.lock().unwrap().insert(uid(n), usage);
    }
    let shim = shim.restart();
    for event in [Event::Init, Event::InitApply(workspace(3, json!({}))), Event::InitDone] {
        shim.apply_event(event);
    }
    shim
}

/// An API server that lists these objects.
fn listing(objects: &[AgentWorkspace]) -> (Client, Asked) {
    server(&[(200, page(objects, ""))])
}

fn page(objects: &[AgentWorkspace], token: &str) -> String {
    let items: Vec<Value> = objects.iter().map(|ws| json!({ "metadata": ws.metadata })).collect();
    let list =
        json!({ "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": { "continue": token }, "items": items });
    list.to_string()
}

fn found(shim: &TestShim) -> UnclaimedTrees {
    shim.state.unclaimed.status().flatten().unwrap_or_default()
}

fn uids(found: &UnclaimedTrees) -> Vec<String> {
    found.items.iter().map(|item| item.uid.clone()).collect()
}

#[tokio::test]
async fn what_was_deleted_while_its_node_was_lost_is_listed_with_its_name_and_what_it_takes() {
    let shim = returned().await;
    let (client, asked) = listing(&[workspace(3, json!({}))]);
    for _ in 0..2 {
        look(&shim.state, &client).await.unwrap();
    }
    let found = found(&shim);
    assert_eq!((found.trees, found.bases, found.exclusive_bytes), (1, 1, 510));
    let named: Vec<_> = found.items.iter().map(|i| (i.base, i.object.as_deref(), i.generation.as_deref(), i.exclusive_bytes)).collect();
    assert_eq!(named, [(true, Some("team/ws-2"), Some("g"), Some(500)), (false, Some("team/ws-1"), None, Some(10))]);
    assert_eq!(found.items[0].created_at.as_deref(), Some("2023-11-14T22:13:20Z"));
    assert_eq!(asked.lock().unwrap().len(), 1, "the answer is remembered");
    assert_eq!(standing(&shim), [uid(1), uid(2), uid(3)], "nothing is destroyed");
}

#[tokio::test]
async fn a_tree_whose_object_is_on_another_node_is_claimed_and_every_page_of_the_list_counts() {
    let shim = returned().await;
    let (client, asked) = server(&[(200, page(&[workspace(1, json!({}))], "more")), (200, page(&[], ""))]);
    look(&shim.state, &client).await.unwrap();
    assert_eq!(uids(&found(&shim)), [uid(2).to_string()]);
    assert!(asked.lock().unwrap()[1].contains("continue=more"));
}

#[tokio::test]
async fn nothing_is_known_before_the_watch_has_listed_or_when_the_list_fails() {
    let shim = returned().await.restart();
    look(&shim.state, &listing(&[]).0).await.unwrap();
    assert_eq!(shim.state.unclaimed.status(), None, "not listed yet");
    let shim = returned().await;
    shim.state.unclaimed.set_wishes(&[uid(1).to_string()]);
    let (client, _) = server(&[error_status(500, "InternalError", json!({}))]);
    look(&shim.state, &client).await.unwrap_err();
    assert_eq!((shim.state.unclaimed.status(), standing(&shim).len()), (None, 3));
}

#[tokio::test]
async fn only_what_a_person_names_is_discarded() {
    let shim = returned().await;
    let (client, _) = listing(&[workspace(3, json!({}))]);
    shim.state.unclaimed.set_wishes(&[uid(1).to_string(), uid(3).to_string(), uid(9).to_string(), "no uid".into()]);
    look(&shim.state, &client).await.unwrap();
    assert_eq!(standing(&shim), [uid(2), uid(3)], "a tree with an object stays");
    assert_eq!(uids(&found(&shim)), [uid(2).to_string()]);
    shim.state.unclaimed.set_wishes(&[uid(1).to_string(), uid(2).to_string()]);
    look(&shim.state, &client).await.unwrap();
    assert_eq!((standing(&shim), shim.state.unclaimed.status()), (vec![uid(3)], Some(None)));
}

#[tokio::test]
async fn a_base_that_no_object_has_claimed_for_an_hour_goes_and_nothing_in_which_somebody_may_have_worked_does() {
    let shim = returned().await;
    let (client, _) = listing(&[workspace(3, json!({}))]);
    look(&shim.state, &client).await.unwrap();
    tokio::time::pause();
    tokio::time::advance(BASE_GRACE / 2).await;
    look(&shim.state, &client).await.unwrap();
    assert_eq!(standing(&shim), [uid(1), uid(2), uid(3)]);
    tokio::time::advance(BASE_GRACE / 2).await;
    look(&shim.state, &client).await.unwrap();
    assert_eq!(standing(&shim), [uid(1), uid(3)]);
    assert_eq!(uids(&found(&shim)), [uid(1).to_string()]);
}

#[test]
fn a_base_stays_while_a_tree_of_its_disk_is_counted_from_it() {
    let tree = |is_base| HeldTree { uid: uid(2), is_base, label: None, created_seconds: None };
    let clone = Record { since: ChangeBase::Tree(uid(2)), ..record(3, ProviderKind::Copy, RecordState::Ready) };
    let records = [record(2, ProviderKind::Copy, RecordState::Sealed), clone];
    assert!(goes_by_itself(&tree(true), BASE_GRACE, &records[..1]));
    assert!(!goes_by_itself(&tree(true), BASE_GRACE, &records));
    assert!(!goes_by_itself(&tree(false), 9 * BASE_GRACE, &records[..1]));
}

#[tokio::test]
async fn a_tree_that_has_an_object_by_now_is_not_discarded_although_it_had_none() {
    let shim = returned().await;
    look(&shim.state, &listing(&[]).0).await.unwrap();
    shim.state.unclaimed.set_wishes(&[uid(1).to_string()]);
    look(&shim.state, &listing(&[workspace(1, json!({}))]).0).await.unwrap();
    assert_eq!((standing(&shim).len(), uids(&found(&shim))), (3, vec![uid(2).to_string()]));
}

#[tokio::test]
async fn a_tree_that_is_mounted_is_not_discarded_and_the_status_says_why() {
    let shim = returned().await;
    let volume = PodVolume { pod: uid(7), name: "tree".parse().unwrap() };
    let shows = PublishedVolume::Tree { tree: uid(1), read_only: false, covers: 0, lending: None };
    shim.state.publish_records.put(PublishRecord { volume, shows }).await.unwrap();
    shim.state.unclaimed.set_wishes(&[uid(1).to_string()]);
    look(&shim.state, &listing(&[]).0).await.unwrap();
    assert_eq!(standing(&shim).len(), 3);
    let refused: Vec<_> = found(&shim).items.into_iter().filter_map(|item| item.refused).collect();
    assert_eq!(refused, ["1 mounts of it are left: delete the Pods that use it"]);
}

#[test]
fn a_base_is_kept_while_the_changes_of_a_claimed_tree_are_counted_from_it() {
    let clone = Record { since: ChangeBase::Tree(uid(2)), ..record(3, ProviderKind::Copy, RecordState::Ready) };
    let records = [record(2, ProviderKind::Copy, RecordState::Sealed), clone];
    let why = discard_refusal(uid(2), 0, &records, |uid| uid == crate::fixtures::uid(3));
    assert!(why.unwrap().contains("changes of 1 trees"));
    assert_eq!(discard_refusal(uid(2), 0, &records, |_| false), None);
}

#[test]
fn the_list_is_bounded_and_its_counts_are_of_all() {
    let trees: Vec<HeldTree> =
        (0..200).map(|n| HeldTree { uid: uid(n), is_base: n % 2 == 0, label: None, created_seconds: None }).collect();
    let usage = |n: u8| DiskUsage { logical_bytes: 1, exclusive_bytes: u64::from(n), entries: 1, charged_bytes: None };
    let usages = (0..200).map(|n| (uid(n), usage(n))).collect();
    let status = status(&trees, &usages, &Default::default()).unwrap();
    assert_eq!((status.trees, status.bases, status.items.len(), status.exclusive_bytes), (100, 100, 50, 19_900));
    assert_eq!(status.items[0].uid, uid(199).to_string(), "what takes most comes first");
}
