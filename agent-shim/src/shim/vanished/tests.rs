use super::*;
use std::convert::Infallible;
use std::sync::Mutex;

use hyper::{Request, Response};
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::mpsc::unbounded_channel;
use tokio::time::timeout;
use yoi_workspace::{Owner, ProviderKind};

use crate::sample::{uid, workspace};
use crate::shim::publish::{Exhibit, Publication};
use crate::shim::tests::Stage;
use crate::volume::PodVolume;

#[test]
fn only_an_end_with_our_finalizer_still_on_is_one_that_nobody_told() {
    let ws = || workspace(1, json!({}));
    assert!(untold(&Event::Delete(ws())).is_some_and(|ended| ended.metadata.deletion_timestamp.is_some()));
    assert!(untold(&Event::Apply(ws())).is_none());
    assert!(untold(&Event::Delete(workspace(1, json!({ "metadata": { "finalizers": [] } })))).is_none());
}

#[tokio::test]
async fn the_tree_of_a_workspace_that_vanished_goes_too() {
    let stage = Stage::new();
    *stage.world.offers.write().unwrap() = crate::sample::offers(&[ProviderKind::Copy]);
    let ws = workspace(1, json!({}));
    making::work(&stage.world, &ws, uid(1)).await.unwrap();
    assert!(stage.world.journal.get(uid(1)).unwrap().is_some());
    bury(&stage.world, &untold(&Event::Delete(ws)).unwrap()).await;
    assert_eq!(stage.world.journal.get(uid(1)).unwrap(), None);
    assert_eq!(stage.fake.heard().len(), 2, "made and destroyed");
}

type Asked = Arc<Mutex<Vec<String>>>;

/// An API server that gives these answers, and the last of them ever after.
fn server(answers: &[(u16, String)]) -> (Client, Asked) {
    let asked = Asked::default();
    let (heard, answers) = (asked.clone(), answers.to_vec());
    let service = tower::service_fn(move |request: Request<Body>| {
        let mut heard = heard.lock().unwrap();
        let (code, text) = answers[heard.len().min(answers.len() - 1)].clone();
        heard.push(format!("{} {}", request.method(), request.uri()));
        let response = Response::builder().status(code).body(Body::from(text.into_bytes())).unwrap();
        std::future::ready(Ok::<_, Infallible>(response))
    });
    (Client::new(service, "default"), asked)
}

fn refused(code: u16, reason: &str, details: Value) -> (u16, String) {
    let status = json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": reason, "message": "no",
        "details": details, "code": code });
    (code, status.to_string())
}

fn gone(n: u8) -> (u16, String) {
    refused(404, "NotFound", json!({ "name": format!("ws-{n}"), "group": "yoi.dev", "kind": "agentworkspaces" }))
}

fn there(ws: &AgentWorkspace) -> (u16, String) {
    (200, serde_json::to_string(ws).unwrap())
}

/// A shim that made a tree for each of these and starts anew.
async fn restarted(trees: &[AgentWorkspace]) -> Stage {
    let stage = Stage::new();
    *stage.world.offers.write().unwrap() = crate::sample::offers(&[ProviderKind::Copy]);
    for ws in trees {
        making::work(&stage.world, ws, uid_of(ws).unwrap()).await.unwrap();
    }
    stage.again()
}

/// The watch lists these, so often, and an hour passes.
async fn listed(stage: &Stage, living: &[AgentWorkspace], client: Client, times: usize) {
    let (tell, told) = unbounded_channel();
    for _ in 0..times {
        let all = living.iter().cloned().map(Event::InitApply);
        for event in std::iter::once(Event::Init).chain(all).chain([Event::InitDone]) {
            stage.world.cache.heard(&event);
            if let Some(news) = news(&event) {
                tell.send(news).unwrap();
            }
        }
    }
    _ = timeout(Duration::from_secs(3600), run(stage.world.clone(), client, told)).await;
}

/// Trees on the disk; the journal must name the same.
fn standing(stage: &Stage) -> Vec<Uid> {
    let trees: Vec<Uid> = stage.fake.trees.lock().unwrap().keys().copied().collect();
    let records: Vec<Uid> = stage.world.journal.read().unwrap().records.iter().map(|r| r.uid).collect();
    assert_eq!(trees, records);
    trees
}

#[tokio::test(start_paused = true)]
async fn the_tree_of_a_workspace_that_vanished_while_no_shim_listened_goes_after_the_restart() {
    let successor = workspace(1, json!({ "metadata": { "uid": uid(9) } }));
    for answer in [gone(1), there(&successor)] {
        let stage = restarted(&[workspace(1, json!({})), workspace(2, json!({}))]).await;
        let (client, asked) = server(&[answer]);
        listed(&stage, &[workspace(2, json!({}))], client, 1).await;
        assert_eq!(standing(&stage), [uid(2)]);
        assert_eq!(*asked.lock().unwrap(), ["GET /apis/yoi.dev/v1alpha1/namespaces/team/agentworkspaces/ws-1"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_workspace_that_lives_keeps_its_tree_whether_the_list_shows_it_or_not() {
    let ws = workspace(1, json!({}));
    let stage = restarted(std::slice::from_ref(&ws)).await;
    let (client, asked) = server(&[there(&ws)]);
    listed(&stage, std::slice::from_ref(&ws), client.clone(), 3).await;
    assert!(asked.lock().unwrap().is_empty());
    listed(&stage, &[], client, 1).await;
    assert_eq!((standing(&stage), asked.lock().unwrap().len()), (vec![uid(1)], 1));
}

#[tokio::test(start_paused = true)]
async fn no_answer_but_that_this_object_is_gone_ends_its_tree() {
    let none = json!({});
    let others = json!({ "name": "ws-2", "group": "yoi.dev", "kind": "agentworkspaces" });
    let proxys = json!({ "name": "ws-1", "group": "", "kind": "services" });
    for error in [
        refused(500, "InternalError", none.clone()),
        refused(503, "ServiceUnavailable", none.clone()),
        refused(403, "Forbidden", json!({ "name": "ws-1", "group": "yoi.dev", "kind": "agentworkspaces" })),
        refused(401, "Unauthorized", none.clone()),
        refused(404, "NotFound", none),
        refused(404, "NotFound", others),
        refused(404, "NotFound", proxys),
        (404, "404 page not found".into()),
        (200, "<html>".into()),
    ] {
        let stage = restarted(&[workspace(1, json!({}))]).await;
        listed(&stage, &[], server(std::slice::from_ref(&error)).0, 3).await;
        assert_eq!(standing(&stage), [uid(1)], "{error:?}");
        listed(&stage, &[], server(&[error, gone(1)]).0, 2).await;
        assert_eq!(standing(&stage), [], "it was asked again");
    }
    let nameless = json!({ "apiVersion": "yoi.dev/v1alpha1", "kind": "AgentWorkspace", "metadata": {}, "spec": { "source": {} } });
    let stage = restarted(&[workspace(1, json!({}))]).await;
    listed(&stage, &[], server(&[(200, nameless.to_string())]).0, 1).await;
    assert_eq!(standing(&stage), [uid(1)]);
}

#[tokio::test(start_paused = true)]
async fn a_question_that_is_open_is_not_asked_again_by_the_next_list() {
    let stage = restarted(&[workspace(1, json!({}))]).await;
    let counts = [1, 20].map(|times| {
        let (client, asked) = server(&[refused(500, "InternalError", json!({}))]);
        (times, client, asked)
    });
    let mut seen = Vec::new();
    for (times, client, asked) in counts {
        listed(&stage, &[], client, times).await;
        seen.push(asked.lock().unwrap().len());
    }
    assert_eq!(seen[0], seen[1]);
}

#[tokio::test(start_paused = true)]
async fn bases_and_trees_whose_objects_the_journal_does_not_name_stay() {
    let populated = json!({ "type": "Populated", "status": "True", "reason": "Filled", "message": "", "lastTransitionTime": "" });
    let base = |n: u8, conditions: Value| {
        workspace(
            n,
            json!({ "spec": { "base": { "generation": "g", "node": crate::sample::NODE } }, "status": { "conditions": conditions } }),
        )
    };
    let filled = base(2, json!([populated]));
    // Made, being filled; made and sealed; written down before names were kept.
    let stage = restarted(&[base(1, json!([])), filled.clone(), filled]).await;
    stage.world.mounter.make(uid(3), ProviderKind::Copy, old()).await.unwrap();
    stage.world.journal.begin_create(uid(3), ProviderKind::Copy, old()).unwrap();
    stage.world.journal.record_created(uid(3)).unwrap();
    let (client, asked) = server(&[gone(1)]);
    listed(&stage, &[], client, 3).await;
    assert_eq!(standing(&stage), [uid(1), uid(2), uid(3)]);
    assert!(asked.lock().unwrap().is_empty());
}

/// A cluster that was set back to an older state forgets objects, and the work in their trees is there.
#[tokio::test(start_paused = true)]
async fn a_tree_that_somebody_was_shown_never_goes_for_want_of_its_object() {
    let stage = restarted(&[workspace(1, json!({})), workspace(2, json!({}))]).await;
    stage.world.journal.forget_object(uid(1)).unwrap();
    let (client, asked) = server(&[gone(2)]);
    listed(&stage, &[], client, 3).await;
    assert_eq!((standing(&stage), asked.lock().unwrap().len()), (vec![uid(1)], 1));
}

#[tokio::test]
async fn a_mount_makes_a_tree_worth_more_than_its_object() {
    let stage = Stage::new();
    *stage.world.offers.write().unwrap() = crate::sample::offers(&[ProviderKind::Copy]);
    making::work(&stage.world, &workspace(1, json!({})), uid(1)).await.unwrap();
    stage.told(1, 7);
    let of = || stage.world.journal.get(uid(1)).unwrap().and_then(|record| record.object);
    assert_eq!(of().as_deref(), Some("team/ws-1"));
    stage.node().await.node_publish_volume(stage.tree(7, 1)).await.unwrap();
    assert_eq!(of(), None);
}

fn old() -> yoi_workspace::TreeOrigin {
    yoi_workspace::TreeOrigin::Empty { owner: Owner { uid: 1000, gid: 1000 } }
}

#[tokio::test(start_paused = true)]
async fn what_a_pod_still_shows_of_a_workspace_that_vanished_is_waited_for() {
    let stage = restarted(&[workspace(1, json!({}))]).await;
    let volume = PodVolume { pod: uid(7), name: "tree".parse().unwrap() };
    let shows = Exhibit::Tree { tree: uid(1), read_only: false };
    stage.world.publications.put(Publication { volume: volume.clone(), shows }).await.unwrap();
    listed(&stage, &[], server(&[gone(1)]).0, 1).await;
    assert_eq!(standing(&stage), [uid(1)]);
    stage.world.publications.remove(&volume).await.unwrap();
    listed(&stage, &[], server(&[gone(1)]).0, 1).await;
    assert_eq!(standing(&stage), []);
}
