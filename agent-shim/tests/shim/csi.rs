//! The kubelet's view: CSI over a real socket, with a mounter in memory.

use std::path::PathBuf;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use kube::ResourceExt;
use kube::runtime::watcher::Event;
use serde_json::json;
use tokio::time::timeout;
use tonic::Code;
use yoi_agent_shim::mounter::log_context::LogContext;
use yoi_agent_shim::mounter::protocol::Request;
use yoi_agent_shim::proto::csi::identity_client::IdentityClient;
use yoi_agent_shim::proto::csi::*;
use yoi_agent_shim::shim::provisioning::provision;
use yoi_agent_shim::shim::publishing;
use yoi_wire::identity::SHIM_SOCKET;
use yoi_workspace::{CloneAccess, ProviderKind, TreeOrigin, Uid};

use crate::fixtures::{NODE, uid, workspace};
use crate::test_shim::{TestShim, volume};

fn published(tree: Uid, pod: u8) -> Request {
    Request::Publish { tree, volume: volume(pod, "tree"), access: CloneAccess::ReadWrite, covers: Vec::new() }
}

#[tokio::test]
async fn the_driver_reports_its_name_and_its_node() {
    let shim = TestShim::new();
    let info = IdentityClient::new(shim.channel().await).get_plugin_info(GetPluginInfoRequest {}).await.unwrap().into_inner();
    assert_eq!(info.name, "csi.yoi.dev");
    let node = shim.node().await.node_get_info(NodeGetInfoRequest {}).await.unwrap().into_inner();
    assert_eq!(node.node_id, NODE);
    let segments = node.accessible_topology.unwrap().segments;
    assert_eq!((&*segments["topology.yoi.dev/node"], &*segments["topology.yoi.dev/trees"]), (NODE, "true"));
}

#[tokio::test(start_paused = true)]
async fn a_mount_waits_for_the_pod_to_be_named_and_the_tree_to_be_made() {
    let shim = TestShim::new();
    let mut node = shim.node().await;
    let request = shim.tree(7, 1);
    let mut waiting = tokio::spawn(async move { node.node_publish_volume(request).await });
    // The clock goes on when nobody has anything to do but to wait.
    assert!(timeout(Duration::from_secs(1), &mut waiting).await.is_err(), "no Pod is named");
    shim.assign_pod(1, 7);
    assert!(timeout(Duration::from_secs(1), &mut waiting).await.is_err(), "no tree is made");
    assert!(shim.mounter.take_requests().is_empty());
    shim.record_tree(1).await;
    shim.state.workspaces.notify(uid(1));
    waiting.await.unwrap().unwrap();
    assert_eq!(shim.mounter.take_requests(), [published(uid(1), 7)]);
    assert_eq!(shim.state.publish_records.count_for_tree(uid(1)), 1);
}

#[tokio::test(start_paused = true)]
async fn a_mount_that_waited_for_its_workspace_is_logged_with_the_workspace_and_its_run() {
    let shim = TestShim::new();
    shim.record_tree(1).await;
    let (mut node, mut request) = (shim.node().await, shim.tree(7, 1));
    for (key, value) in [("namespace", "ns"), ("name", "a-3")] {
        request.volume_context.insert(format!("csi.storage.k8s.io/pod.{key}"), value.to_owned());
    }
    let mut waiting = tokio::spawn(async move { node.node_publish_volume(request).await });
    assert!(timeout(Duration::from_secs(1), &mut waiting).await.is_err(), "no Pod is named");
    let mut ws = workspace(1, json!({ "status": { "podUID": uid(7) } }));
    ws.labels_mut().insert("yoi.dev/yoipod".to_owned(), "a".to_owned());
    let (object, tree) = (format!("{}/{}", ws.namespace().unwrap(), ws.name_any()), uid(1).to_string());
    shim.apply_event(Event::Apply(ws));
    waiting.await.unwrap().unwrap();
    let context = shim.mounter.context.lock().unwrap().clone();
    assert_eq!(context, LogContext { object: Some(object), uid: Some(tree), run: Some(3) });
}

#[tokio::test(start_paused = true)]
async fn a_call_for_a_workspace_that_is_not_on_this_node_ends_after_seconds_and_not_minutes() {
    let shim = TestShim::new();
    // Before the first listing, the workspaces of this node are not known.
    for (listed, seconds) in [(false, 60..120), (true, 5..20)] {
        if listed {
            shim.apply_event(Event::Init);
            shim.apply_event(Event::InitDone);
        }
        let begun = tokio::time::Instant::now();
        let refused = shim.node().await.node_publish_volume(shim.tree(7, 1)).await.unwrap_err();
        assert_eq!(refused.code(), Code::Aborted);
        assert!(refused.message().contains("is scheduled to node"), "{refused}");
        assert!(seconds.contains(&begun.elapsed().as_secs()), "{listed}: {:?}", begun.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiting_mount_ends_when_its_pod_is_to_go() {
    let shim = TestShim::new();
    shim.assign_pod(1, 7);
    let (mut node, request) = (shim.node().await, shim.tree(7, 1));
    let mut waiting = tokio::spawn(async move { node.node_publish_volume(request).await });
    assert!(timeout(Duration::from_secs(60), &mut waiting).await.is_err(), "the tree is not made");
    // The operator names no Pod that is to go and has no tree.
    shim.apply_event(Event::Apply(workspace(1, json!({}))));
    let refused = timeout(Duration::from_secs(1), waiting).await.expect("the call waits for what nobody mounts").unwrap().unwrap_err();
    assert_eq!(refused.code(), Code::Aborted);
    // The kubelet may call once more.
    let (mut node, request) = (shim.node().await, shim.tree(7, 1));
    let again = timeout(Duration::from_secs(15), node.node_publish_volume(request)).await.expect("it waits as if the Pod were new");
    assert_eq!(again.unwrap_err().code(), Code::Aborted);
}

#[tokio::test(start_paused = true)]
async fn another_pod_waits_and_is_then_asked_to_try_again() {
    let shim = TestShim::new();
    shim.assign_pod(1, 7);
    shim.record_tree(1).await;
    let begun = tokio::time::Instant::now();
    let refused = shim.node().await.node_publish_volume(shim.tree(8, 1)).await.unwrap_err();
    assert!(begun.elapsed().as_secs() > 60, "{:?}", begun.elapsed());
    assert_eq!(refused.code(), Code::Aborted);
    assert!(refused.message().contains("is for the Pod with UID"), "{refused}");
    assert!(shim.mounter.take_requests().is_empty());
}

#[tokio::test]
async fn after_a_restart_without_the_api_server_the_same_pod_is_admitted() {
    let shim = TestShim::new();
    shim.assign_pod(1, 7);
    shim.record_tree(1).await;
    shim.node().await.node_publish_volume(shim.tree(7, 1)).await.unwrap();
    let shim = shim.restart();
    shim.mounter.take_requests();
    shim.node().await.node_publish_volume(shim.tree(7, 1)).await.unwrap();
    assert_eq!(shim.mounter.take_requests(), [published(uid(1), 7)]);
}

#[tokio::test]
async fn unpublishing_can_be_repeated_and_succeeds_for_an_unknown_volume() {
    let shim = TestShim::new();
    shim.assign_pod(1, 7);
    shim.record_tree(1).await;
    let mut node = shim.node().await;
    node.node_publish_volume(shim.tree(7, 1)).await.unwrap();
    for _ in 0..2 {
        node.node_unpublish_volume(shim.unpublish(7, "tree")).await.unwrap();
        assert!(shim.state.publish_records.all().is_empty());
    }
    assert!(shim.mounter.shown.lock().unwrap().is_empty());
    let foreign = NodeUnpublishVolumeRequest { volume_id: "x".into(), target_path: "/etc".into() };
    assert_eq!(node.node_unpublish_volume(foreign).await.unwrap_err().code(), Code::InvalidArgument);
}

#[tokio::test]
async fn a_final_code_is_returned_only_after_the_cleanup() {
    let shim = TestShim::new();
    shim.assign_pod(1, 7);
    shim.record_tree(1).await;
    let mut node = shim.node().await;
    *shim.mounter.refuse.lock().unwrap() = Some(yoi_workspace::ErrorReason::BackendError);
    assert_eq!(node.node_publish_volume(shim.tree(7, 1)).await.unwrap_err().code(), Code::Internal);
    assert_eq!(shim.mounter.take_requests(), [published(uid(1), 7), Request::Unpublish { volume: volume(7, "tree") }]);
    assert!(shim.state.publish_records.all().is_empty());

    // After a lost response the mount may exist: the record stays, and the kubelet must unpublish.
    *shim.mounter.refuse.lock().unwrap() = None;
    shim.mounter.unanswered.lock().unwrap().insert("publish");
    assert_eq!(node.node_publish_volume(shim.tree(7, 1)).await.unwrap_err().code(), Code::Aborted);
    assert_eq!(shim.state.publish_records.count_for_tree(uid(1)), 1);
    shim.state.journal.begin_destroy(uid(1)).unwrap();
    assert_eq!(node.node_publish_volume(shim.tree(7, 1)).await.unwrap_err().code(), Code::Aborted);
    node.node_unpublish_volume(shim.unpublish(7, "tree")).await.unwrap();
    assert_eq!(node.node_publish_volume(shim.tree(7, 1)).await.unwrap_err().code(), Code::FailedPrecondition);
}

#[tokio::test]
async fn a_tree_whose_scope_cannot_be_held_is_not_mounted_and_its_workspace_says_why() {
    let shim = TestShim::new();
    shim.assign_pod(1, 7);
    shim.record_tree(1).await;
    let mut node = shim.node().await;
    let scope = async |said_before: bool| {
        let before =
            json!([{ "type": "ScopeEnforced", "status": "True", "reason": "CoversLaid", "message": "", "lastTransitionTime": "" }]);
        let conditions = if said_before { before } else { json!([]) };
        let ws = workspace(1, json!({ "status": { "podUID": uid(7), "conditions": conditions } }));
        let update = provision(&shim.state, &ws, uid(1)).await.unwrap().update;
        let said = update.conditions.into_iter().find(|(type_, _)| *type_ == "ScopeEnforced");
        said.map(|(_, value)| (value.reason.as_str(), value.message))
    };
    assert_eq!(scope(false).await, None, "nobody has asked for one");

    let scoped = shim.scoped_tree(7, 1, &json!([{ "path": "nowhere", "shown": "ReadOnly" }]));
    *shim.mounter.refuse.lock().unwrap() = Some(yoi_workspace::ErrorReason::CoverRefused);
    let refused = node.node_publish_volume(scoped.clone()).await.unwrap_err();
    assert_eq!((refused.code(), refused.message().contains("as the test says")), (Code::Internal, true));
    assert!(shim.state.publish_records.all().is_empty());
    *shim.mounter.refuse.lock().unwrap() = None;
    assert_eq!(scope(false).await, Some(("CoverRefused", "as the test says".to_owned())));

    node.node_publish_volume(scoped).await.unwrap();
    let laid = shim.mounter.take_requests().into_iter().rev().find_map(|request| match request {
        Request::Publish { covers, .. } => Some(covers.len()),
        _ => None,
    });
    assert_eq!(laid, Some(1));
    assert_eq!(scope(false).await.unwrap().0, "CoversLaid");
    node.node_unpublish_volume(shim.unpublish(7, "tree")).await.unwrap();
    assert_eq!(scope(true).await.unwrap().0, "NotPublished");
}

#[tokio::test]
async fn each_pod_gets_the_runtime_and_a_socket_of_its_own() {
    let shim = TestShim::new();
    let mut node = shim.node().await;
    node.node_publish_volume(shim.runtime(7)).await.unwrap();
    let folder = shim.state.runtimes.pod_dir(uid(7));
    assert_eq!(std::fs::read_to_string(folder.join("bin/yoi-runtime")).unwrap(), "#!/bin/true");
    assert_eq!(get(folder.join(SHIM_SOCKET)).await, 404, "it mounts no tree yet");

    shim.assign_pod(1, 7);
    shim.state.journal.begin_create(uid(2), ProviderKind::Btrfs, empty()).unwrap();
    shim.state.journal.record_created(uid(2)).unwrap();
    shim.state.journal.begin_seal(uid(2)).unwrap();
    shim.state.journal.record_sealed(uid(2)).unwrap();
    let making = TreeOrigin::Clone { from: uid(2), access: CloneAccess::ReadWrite };
    shim.state.journal.begin_create(uid(1), ProviderKind::Btrfs, making).unwrap();
    shim.state.journal.record_created(uid(1)).unwrap();
    node.node_publish_volume(shim.tree(7, 1)).await.unwrap();
    shim.mounter.take_requests();
    assert_eq!(get(folder.join(SHIM_SOCKET)).await, 200);
    assert_eq!(shim.mounter.take_requests(), [Request::Changes { uid: uid(1), since: Some(uid(2)), limit: 10_000 }]);

    let shim = shim.restart();
    publishing::restore_pod_sockets(&shim.state).await.unwrap();
    assert_eq!(get(folder.join(SHIM_SOCKET)).await, 200, "the path is the same after a restart");
    shim.node().await.node_unpublish_volume(shim.unpublish(7, "runtime")).await.unwrap();
    assert!(!folder.exists());
}

fn empty() -> TreeOrigin {
    TreeOrigin::Empty { owner: yoi_workspace::Owner { uid: 1000, gid: 1000 } }
}

/// The status of the change list.
async fn get(socket: PathBuf) -> u16 {
    let stream = tokio::net::UnixStream::connect(socket).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let request = hyper::Request::get("/v1/changes").header("host", "shim").body(http_body_util::Empty::<&[u8]>::new()).unwrap();
    sender.send_request(request).await.unwrap().status().as_u16()
}
