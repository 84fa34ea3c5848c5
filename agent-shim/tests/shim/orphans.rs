//! Trees whose objects are gone.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hyper::{Request, Response};
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::mpsc::unbounded_channel;
use tokio::time::timeout;
use yoi_workspace::{Owner, ProviderKind};

use crate::fixtures::{NODE, uid, workspace};
use crate::test_shim::TestShim;
use kube::Client;
use kube::runtime::watcher::Event;
use yoi_agent_shim::shim::orphans::{OrphanEvent, destroy_orphan, orphan_event, run};
use yoi_agent_shim::shim::provisioning;
use yoi_agent_shim::shim::workspaces::uid_of;
use yoi_agent_shim::volume::PodVolume;
use yoi_agent_shim::volume::{PublishRecord, PublishedVolume};
use yoi_crds::AgentWorkspace;
use yoi_workspace::Uid;

#[test]
fn only_a_deletion_with_our_finalizer_still_on_may_leave_an_orphan() {
    let ws = |over| Arc::new(workspace(1, over));
    let Some(OrphanEvent::Deleted(candidate)) = orphan_event(&Event::Delete(ws(json!({}))), NODE) else { panic!("no candidate") };
    assert_eq!((candidate.uid, &*candidate.namespace, &*candidate.name), (uid(1), "team", "ws-1"));
    assert!(orphan_event(&Event::Apply(ws(json!({}))), NODE).is_none());
    assert!(orphan_event(&Event::Delete(ws(json!({ "metadata": { "finalizers": [] } }))), NODE).is_none());
    assert!(orphan_event(&Event::Delete(ws(json!({}))), "node-2").is_none());
}

#[tokio::test]
async fn the_tree_of_an_orphan_is_destroyed_by_its_uid() {
    let shim = TestShim::new();
    *shim.state.offers.write().unwrap() = crate::fixtures::offers(&[ProviderKind::Copy]);
    let ws = workspace(1, json!({}));
    provisioning::provision(&shim.state, &ws, uid(1)).await.unwrap();
    assert!(shim.state.journal.get(uid(1)).unwrap().is_some());
    destroy_orphan(&shim.state, uid(1)).await;
    assert_eq!(shim.state.journal.get(uid(1)).unwrap(), None);
    assert_eq!(shim.mounter.take_requests().len(), 2, "made and destroyed");
}

pub type Asked = Arc<Mutex<Vec<String>>>;

/// An API server that gives these answers, and the last of them ever after.
pub fn server(answers: &[(u16, String)]) -> (Client, Asked) {
    let asked = Asked::default();
    let (requests, answers) = (asked.clone(), answers.to_vec());
    let service = tower::service_fn(move |request: Request<Body>| {
        let mut requests = requests.lock().unwrap();
        let (code, text) = answers[requests.len().min(answers.len() - 1)].clone();
        requests.push(format!("{} {}", request.method(), request.uri()));
        let response = Response::builder().status(code).body(Body::from(text.into_bytes())).unwrap();
        std::future::ready(Ok::<_, Infallible>(response))
    });
    (Client::new(service, "default"), asked)
}

pub fn error_status(code: u16, reason: &str, details: Value) -> (u16, String) {
    let status = json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": reason, "message": "no",
        "details": details, "code": code });
    (code, status.to_string())
}

fn not_found(n: u8) -> (u16, String) {
    error_status(404, "NotFound", json!({ "name": format!("ws-{n}"), "group": "yoi.dev", "kind": "agentworkspaces" }))
}

fn found(ws: &AgentWorkspace) -> (u16, String) {
    (200, serde_json::to_string(ws).unwrap())
}

/// Returns a shim that made a tree for each of these and was then restarted.
async fn start_with_trees(trees: &[AgentWorkspace]) -> TestShim {
    let shim = TestShim::new();
    *shim.state.offers.write().unwrap() = crate::fixtures::offers(&[ProviderKind::Copy]);
    for ws in trees {
        provisioning::provision(&shim.state, ws, uid_of(ws).unwrap()).await.unwrap();
    }
    shim.restart()
}

/// The watch lists these workspaces `times` times. Then an hour passes.
async fn list_and_wait(shim: &TestShim, living: &[AgentWorkspace], client: Client, times: usize) {
    let (events, received) = unbounded_channel();
    for _ in 0..times {
        let all = living.iter().cloned().map(Event::InitApply);
        for event in std::iter::once(Event::Init).chain(all).chain([Event::InitDone]) {
            if let Some(event) = orphan_event(&shim.apply_event(event), NODE) {
                events.send(event).unwrap();
            }
        }
    }
    _ = timeout(Duration::from_secs(3600), run(shim.state.clone(), client, received)).await;
}

/// Trees on the disk; the journal must name the same.
pub fn standing(shim: &TestShim) -> Vec<Uid> {
    let trees: Vec<Uid> = shim.mounter.trees.lock().unwrap().keys().copied().collect();
    let records: Vec<Uid> = shim.state.journal.read().unwrap().records.iter().map(|r| r.uid).collect();
    assert_eq!(trees, records);
    trees
}

#[tokio::test(start_paused = true)]
async fn the_tree_of_a_workspace_that_was_deleted_while_no_shim_ran_is_destroyed_after_the_restart() {
    let successor = workspace(1, json!({ "metadata": { "uid": uid(9) } }));
    for answer in [not_found(1), found(&successor)] {
        let shim = start_with_trees(&[workspace(1, json!({})), workspace(2, json!({}))]).await;
        let (client, asked) = server(&[answer]);
        list_and_wait(&shim, &[workspace(2, json!({}))], client, 1).await;
        assert_eq!(standing(&shim), [uid(2)]);
        assert_eq!(*asked.lock().unwrap(), ["GET /apis/yoi.dev/v1alpha1/namespaces/team/agentworkspaces/ws-1"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_workspace_that_exists_keeps_its_tree_whether_the_listing_has_it_or_not() {
    let ws = workspace(1, json!({}));
    let shim = start_with_trees(std::slice::from_ref(&ws)).await;
    let (client, asked) = server(&[found(&ws)]);
    list_and_wait(&shim, std::slice::from_ref(&ws), client.clone(), 3).await;
    assert!(asked.lock().unwrap().is_empty());
    list_and_wait(&shim, &[], client, 1).await;
    assert_eq!((standing(&shim), asked.lock().unwrap().len()), (vec![uid(1)], 1));
}

#[tokio::test(start_paused = true)]
async fn only_a_404_about_this_object_destroys_its_tree() {
    let none = json!({});
    let others = json!({ "name": "ws-2", "group": "yoi.dev", "kind": "agentworkspaces" });
    let proxys = json!({ "name": "ws-1", "group": "", "kind": "services" });
    for error in [
        error_status(500, "InternalError", none.clone()),
        error_status(503, "ServiceUnavailable", none.clone()),
        error_status(403, "Forbidden", json!({ "name": "ws-1", "group": "yoi.dev", "kind": "agentworkspaces" })),
        error_status(401, "Unauthorized", none.clone()),
        error_status(404, "NotFound", none),
        error_status(404, "NotFound", others),
        error_status(404, "NotFound", proxys),
        (404, "404 page not found".into()),
        (200, "<html>".into()),
    ] {
        let shim = start_with_trees(&[workspace(1, json!({}))]).await;
        list_and_wait(&shim, &[], server(std::slice::from_ref(&error)).0, 3).await;
        assert_eq!(standing(&shim), [uid(1)], "{error:?}");
        list_and_wait(&shim, &[], server(&[error, not_found(1)]).0, 2).await;
        assert_eq!(standing(&shim), [], "it was asked again");
    }
    let nameless = json!({ "apiVersion": "yoi.dev/v1alpha1", "kind": "AgentWorkspace", "metadata": {}, "spec": { "source": {} } });
    let shim = start_with_trees(&[workspace(1, json!({}))]).await;
    list_and_wait(&shim, &[], server(&[(200, nameless.to_string())]).0, 1).await;
    assert_eq!(standing(&shim), [uid(1)]);
}

#[tokio::test(start_paused = true)]
async fn the_next_listing_does_not_repeat_a_check_that_is_under_way() {
    let shim = start_with_trees(&[workspace(1, json!({}))]).await;
    let counts = [1, 20].map(|times| {
        let (client, asked) = server(&[error_status(500, "InternalError", json!({}))]);
        (times, client, asked)
    });
    let mut seen = Vec::new();
    for (times, client, asked) in counts {
        list_and_wait(&shim, &[], client, times).await;
        seen.push(asked.lock().unwrap().len());
    }
    assert_eq!(seen[0], seen[1]);
}

#[tokio::test(start_paused = true)]
async fn bases_and_trees_whose_objects_the_journal_does_not_name_stay() {
    let populated = json!({ "type": "Populated", "status": "True", "reason": "Filled", "message": "", "lastTransitionTime": "" });
    let base = |n: u8, conditions: Value| {
        workspace(n, json!({ "spec": { "base": { "generation": "g", "node": NODE } }, "status": { "conditions": conditions } }))
    };
    let filled = base(2, json!([populated]));
    // Made, being filled; made and sealed; written down before names were kept.
    let shim = start_with_trees(&[base(1, json!([])), filled.clone(), filled]).await;
    shim.state.mounter.make(uid(3), ProviderKind::Copy, old()).await.unwrap();
    shim.state.journal.begin_create(uid(3), ProviderKind::Copy, old()).unwrap();
    shim.state.journal.record_created(uid(3)).unwrap();
    let (client, asked) = server(&[not_found(1)]);
    list_and_wait(&shim, &[], client, 3).await;
    assert_eq!(standing(&shim), [uid(1), uid(2), uid(3)]);
    assert!(asked.lock().unwrap().is_empty());
}

/// A cluster that was set back to an older state forgets objects, and the work in their trees is there.
#[tokio::test(start_paused = true)]
async fn a_tree_that_a_pod_has_mounted_is_never_destroyed_for_lack_of_its_object() {
    let shim = start_with_trees(&[workspace(1, json!({})), workspace(2, json!({}))]).await;
    shim.state.journal.forget_object(uid(1)).unwrap();
    let (client, asked) = server(&[not_found(2)]);
    list_and_wait(&shim, &[], client, 3).await;
    assert_eq!((standing(&shim), asked.lock().unwrap().len()), (vec![uid(1)], 1));
}

#[tokio::test]
async fn a_mount_removes_the_name_of_the_object_from_the_record() {
    let shim = TestShim::new();
    *shim.state.offers.write().unwrap() = crate::fixtures::offers(&[ProviderKind::Copy]);
    provisioning::provision(&shim.state, &workspace(1, json!({})), uid(1)).await.unwrap();
    shim.assign_pod(1, 7);
    let of = || shim.state.journal.get(uid(1)).unwrap().and_then(|record| record.object);
    assert_eq!(of().as_deref(), Some("team/ws-1"));
    shim.node().await.node_publish_volume(shim.tree(7, 1)).await.unwrap();
    assert_eq!(of(), None);
}

fn old() -> yoi_workspace::TreeOrigin {
    yoi_workspace::TreeOrigin::Empty { owner: Owner { uid: 1000, gid: 1000 } }
}

#[tokio::test(start_paused = true)]
async fn the_tree_of_an_orphan_stays_while_a_pod_mounts_it() {
    let shim = start_with_trees(&[workspace(1, json!({}))]).await;
    let volume = PodVolume { pod: uid(7), name: "tree".parse().unwrap() };
    let shows = PublishedVolume::Tree { tree: uid(1), read_only: false, covers: 0, lending: None };
    shim.state.publish_records.put(PublishRecord { volume: volume.clone(), shows }).await.unwrap();
    list_and_wait(&shim, &[], server(&[not_found(1)]).0, 1).await;
    assert_eq!(standing(&shim), [uid(1)]);
    shim.state.publish_records.remove(&volume).await.unwrap();
    list_and_wait(&shim, &[], server(&[not_found(1)]).0, 1).await;
    assert_eq!(standing(&shim), []);
}
