//! What people ask of a running agent.

use axum::http::StatusCode;
use serde_json::{Value, json};

use crate::harness::{Replica, Runtime, TestCluster};

const CONTROL: &str = "/apis/runtime.yoi.dev/v1alpha1/namespaces/ns/yoipods/a/control";
const ID: &str = "0197c0de-0000-7000-8000-000000000001";

fn cluster() -> TestCluster {
    let cluster = TestCluster::new();
    cluster.agent("a", "u-a", "p-a");
    cluster.put_agent("b", "u-b", "", "Stopped");
    for user in ["alice", "jürgen"] {
        cluster.api.allow(user, "create control");
    }
    cluster
}

/// One who may also make peers.
fn allow_peers(cluster: &TestCluster, user: &str) {
    for right in ["create control", "create yoipeers", "get yoipods"] {
        cluster.api.allow(user, right);
    }
}

async fn ask(cluster: &TestCluster, replica: &Replica, user: &str, action: Value) -> (StatusCode, Value) {
    cluster.request(replica, user, "POST", CONTROL, Some(json!({"id": ID, "action": action}))).await
}

fn requests(runtime: &Runtime) -> Vec<(String, Value)> {
    runtime.state.steering.lock().unwrap().requests.clone()
}

fn answer(runtime: &Runtime, status: u16, body: Value) {
    runtime.state.steering.lock().unwrap().answer = Some((status, body.to_string()));
}

fn refused(reason: &str) -> Value {
    json!({"id": ID, "refused": {"reason": reason, "message": "a run is under way"}})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_reaches_the_runtime_as_it_is_with_the_name_of_its_user() {
    let cluster = cluster();
    let replica = cluster.replica().await;
    let a = cluster.runtime(&[&replica], "token-p-a").await;
    cluster.api.wait_until("yoipods", "ns", "a", |a| a["status"]["live"].is_object()).await;
    let writes = cluster.api.writes();
    // The runtime may know an action, and a field of one, that this gateway does not.
    for action in [json!({"type": "pause"}), json!({"type": "dance", "how": "slowly"})] {
        let (status, body) = ask(&cluster, &replica, "jürgen", action.clone()).await;
        assert_eq!((status, &body["done"]["message"], &body["ofANewerRuntime"]), (StatusCode::OK, &json!("done"), &json!(true)));
        let (user, request) = requests(&a).pop().unwrap();
        assert_eq!((user.as_str(), &request["id"], &request["action"]), ("j%C3%BCrgen", &json!(ID), &action));
    }
    answer(&a, 200, refused("NotPaused"));
    let (status, body) = ask(&cluster, &replica, "alice", json!({"type": "resume"})).await;
    assert_eq!((status, &body["refused"]["reason"]), (StatusCode::OK, &json!("NotPaused")));
    assert_eq!(cluster.api.writes(), writes, "a control request wrote to the API server");
    let metrics = replica.metrics().await;
    for line in [
        r#"yoi_gateway_control_requests_total{action="pause",answer="Done"} 1"#,
        r#"yoi_gateway_control_requests_total{action="unknown",answer="Done"} 1"#,
        r#"yoi_gateway_control_requests_total{action="resume",answer="NotPaused"} 1"#,
    ] {
        assert!(metrics.contains(line), "{line} is not in {metrics}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_request_or_too_long_is_refused_and_reaches_no_runtime() {
    let cluster = cluster();
    let replica = cluster.replica().await;
    let a = cluster.runtime(&[&replica], "token-p-a").await;
    for body in
        [json!("pause"), json!({"action": {"type": "pause"}}), json!({"id": "mine", "action": {"type": "pause"}}), json!({"id": ID})]
    {
        let (status, answer) = cluster.request(&replica, "alice", "POST", CONTROL, Some(body.clone())).await;
        assert_eq!((status, &answer["reason"]), (StatusCode::BAD_REQUEST, &json!("BadRequest")), "{body}");
    }
    for bytes in [64 * 1024 + 1, 1 << 20] {
        let (status, answer) = ask(&cluster, &replica, "alice", json!({"type": "run", "text": "x".repeat(bytes)})).await;
        assert_eq!((status, &answer["reason"]), (StatusCode::PAYLOAD_TOO_LARGE, &json!("RequestEntityTooLarge")));
        assert!(answer["message"].as_str().unwrap().contains("65536 bytes are allowed"), "{answer}");
    }
    assert!(requests(&a).is_empty());
    let longest = json!({"type": "run", "text": "\u{1}".repeat(64 * 1024)});
    assert_eq!(ask(&cluster, &replica, "alice", longest).await.0, StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_is_not_there_answers_as_to_a_message() {
    let cluster = cluster();
    cluster.put_agent("a", "u-a", "", "Stopped");
    let replica = cluster.replica().await;
    let (status, body) = ask(&cluster, &replica, "alice", json!({"type": "pause"})).await;
    assert_eq!((status, &body["reason"]), (StatusCode::CONFLICT, &json!("Conflict")));
    assert_eq!(body["message"], "YoiPod ns/a is Stopped: start it with kubectl yoi start a -n ns");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_passes_and_an_answer_that_cannot_be_read_may_be_asked_for_again() {
    let cluster = cluster();
    let replica = cluster.replica().await;
    let a = cluster.runtime(&[&replica], "token-p-a").await;
    let pause = || json!({"type": "pause"});
    answer(&a, 400, json!({"reason": "Invalid", "message": "no such method"}));
    let (status, body) = ask(&cluster, &replica, "alice", pause()).await;
    assert_eq!((status, &body["message"]), (StatusCode::BAD_REQUEST, &json!("YoiPod ns/a: no such method")));
    for (code, garbled) in [(200, json!({"id": ID})), (502, json!("what"))] {
        answer(&a, code, garbled);
        let (status, body) = ask(&cluster, &replica, "alice", pause()).await;
        assert_eq!((status, &body["reason"]), (StatusCode::GATEWAY_TIMEOUT, &json!("Timeout")), "{body}");
        assert!(body["message"].as_str().unwrap().contains("ask again under the same id"), "{body}");
    }
    answer(&a, 404, json!("no such path"));
    let (status, body) = ask(&cluster, &replica, "alice", pause()).await;
    assert!(status == StatusCode::CONFLICT && body["message"].as_str().unwrap().contains("kubectl yoi restart a -n ns"), "{body}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_list_of_inputs_passes_whole() {
    let cluster = cluster();
    let replica = cluster.replica().await;
    let a = cluster.runtime(&[&replica], "token-p-a").await;
    let inputs: Vec<Value> = (1..4000).map(|seq| json!({"seq": seq, "text": "x".repeat(200)})).collect();
    let list = json!({"id": ID, "done": {"message": "m", "rewind": {"segment": "g", "head": 9000, "inputs": inputs}}});
    answer(&a, 200, list.clone());
    assert_eq!(ask(&cluster, &replica, "alice", json!({"type": "rewindTargets"})).await, (StatusCode::OK, list));
}

async fn register(cluster: &TestCluster, replica: &Replica, user: &str, peer: &str) -> (StatusCode, Value) {
    ask(cluster, replica, user, json!({"type": "registerPeer", "peer": peer})).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a1_a3_itself_and_an_invalid_name_are_refused_before_any_lookup() {
    let cluster = cluster();
    allow_peers(&cluster, "alice");
    let replica = cluster.replica().await;
    let a = cluster.runtime(&[&replica], "token-p-a").await;
    for peer in ["a", "x/y", "", "A"] {
        let (status, body) = register(&cluster, &replica, "alice", peer).await;
        assert_eq!((status, &body["refused"]["reason"]), (StatusCode::OK, &json!("Invalid")), "{peer}: {body}");
    }
    assert!(requests(&a).is_empty());
    assert_eq!(cluster.api.request_count("POST apis/yoi.dev"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a2_a4_a_missing_peer_is_named_and_so_is_a_missing_agent_before_it() {
    let cluster = cluster();
    allow_peers(&cluster, "alice");
    let replica = cluster.replica().await;
    let _a = cluster.runtime(&[&replica], "token-p-a").await;
    let (_, body) = register(&cluster, &replica, "alice", "z").await;
    assert_eq!(body["refused"]["message"], "YoiPod ns/z does not exist; see kubectl get yoipods -n ns");
    assert_eq!(cluster.api.request_count("POST apis/yoi.dev"), 0);
    let missing = CONTROL.replace("/a/", "/gone/");
    let body = json!({"id": ID, "action": {"type": "registerPeer", "peer": "z"}});
    let (status, body) = cluster.request(&replica, "alice", "POST", &missing, Some(body)).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert!(body["message"].as_str().unwrap().starts_with("YoiPod ns/gone not found"), "{body}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a5_a6_a12_a_stopped_peer_is_joined_without_being_contacted_and_again_from_either_side() {
    let cluster = cluster();
    allow_peers(&cluster, "alice");
    cluster.agent("c", "u-c", "p-c");
    let replica = cluster.replica().await;
    let a = cluster.runtime(&[&replica], "token-p-a").await;
    let c = cluster.runtime(&[&replica], "token-p-c").await;
    let but_live = |name: &str| {
        let mut object = cluster.api.get("yoipods", "ns", name);
        object["status"]["live"] = Value::Null;
        (object["spec"].take(), object["status"].take())
    };
    let before = ["a", "b", "c"].map(but_live);
    for peer in ["b", "c"] {
        let (status, body) = register(&cluster, &replica, "alice", peer).await;
        let message = body["done"]["message"].as_str().unwrap();
        assert!(status == StatusCode::OK && message.contains(&format!("a and {peer} are joined by YoiPeer a.{peer}")), "{body}");
        let object = cluster.api.get("yoipeers", "ns", &format!("a.{peer}"));
        assert_eq!(object["spec"]["members"], json!(["a", peer]));
    }
    assert_eq!(cluster.api.get("yoipods", "ns", "b")["spec"]["desiredState"], "Stopped");
    assert!(requests(&c).is_empty(), "the peer was contacted");
    // Once more from a, and from c's side.
    for (path, peer) in [(CONTROL.to_owned(), "c"), (CONTROL.replace("/a/", "/c/"), "a")] {
        let body = json!({"id": ID, "action": {"type": "registerPeer", "peer": peer}});
        let (_, body) = cluster.request(&replica, "alice", "POST", &path, Some(body)).await;
        assert!(body["done"]["message"].is_string(), "{body}");
    }
    assert!(!cluster.api.exists("yoipeers", "ns", "c.a"));
    assert_eq!(["a", "b", "c"].map(but_live), before, "a member was changed");
    assert_eq!(requests(&a).len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a11_while_a_run_is_under_way_no_peer_is_made() {
    let cluster = cluster();
    allow_peers(&cluster, "alice");
    let replica = cluster.replica().await;
    let a = cluster.runtime(&[&replica], "token-p-a").await;
    answer(&a, 200, refused("AlreadyRunning"));
    let (_, body) = register(&cluster, &replica, "alice", "b").await;
    assert_eq!(body["refused"]["reason"], "AlreadyRunning");
    assert!(!cluster.api.exists("yoipeers", "ns", "a.b"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_is_made_with_the_persons_rights_only() {
    let cluster = cluster();
    let replica = cluster.replica().await;
    let _a = cluster.runtime(&[&replica], "token-p-a").await;
    let (_, body) = register(&cluster, &replica, "alice", "b").await;
    assert_eq!(body["refused"]["reason"], "Failed");
    assert!(body["refused"]["message"].as_str().unwrap().contains("User \"alice\" cannot create resource \"yoipeers\""), "{body}");
    cluster.api.allow("alice", "create yoipeers");
    // Who may not get YoiPods does not learn which there are.
    for peer in ["b", "z"] {
        let (_, body) = register(&cluster, &replica, "alice", peer).await;
        assert!(body["refused"]["message"].as_str().unwrap().contains("cannot get resource \"yoipods\""), "{body}");
    }
    assert!(!cluster.api.exists("yoipeers", "ns", "a.b"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_creation_makes_no_peer_and_a_peer_of_a_former_agent_is_said() {
    let cluster = cluster();
    allow_peers(&cluster, "alice");
    cluster.put_agent("d", "u-d-new", "", "Stopped");
    cluster.peer(("a", "u-a"), ("d", "u-d"));
    cluster.api.refuse_creation();
    let replica = cluster.replica().await;
    let _a = cluster.runtime(&[&replica], "token-p-a").await;
    let (_, body) = register(&cluster, &replica, "alice", "b").await;
    assert_eq!(body["refused"]["message"], "failed to make YoiPeer a.b: the namespace is being terminated");
    assert!(!cluster.api.exists("yoipeers", "ns", "a.b"));
    let (_, body) = register(&cluster, &replica, "alice", "d").await;
    assert!(body["refused"]["message"].as_str().unwrap().contains("make it anew with kubectl yoi peer a d -n ns"), "{body}");
}
