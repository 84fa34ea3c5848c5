//! Answers of people to calls that wait.

use axum::http::StatusCode;
use serde_json::{Value, json};

use crate::harness::{Replica, TestCluster};

const APPROVAL: &str = "/apis/runtime.yoi.dev/v1alpha1/namespaces/ns/yoipods/a/approval";

fn cluster() -> TestCluster {
    let cluster = TestCluster::new();
    cluster.agent("a", "u-a", "p-a");
    cluster.api.allow("jürgen", "get approval");
    cluster.api.allow("jürgen", "create approval");
    // Whoever steers an agent and reads all of it need not be the one who says yes.
    for right in ["get log", "get attach", "create control", "create message", "get approval"] {
        cluster.api.allow("alice", right);
    }
    cluster
}

async fn answer(cluster: &TestCluster, replica: &Replica, user: &str, body: Value) -> (StatusCode, Value) {
    cluster.request(replica, user, "POST", APPROVAL, Some(body)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn p73_an_answer_reaches_the_runtime_with_the_name_of_its_user_and_needs_a_right_of_its_own() {
    let cluster = cluster();
    let replica = cluster.replica().await;
    let a = cluster.runtime(&[&replica], "token-p-a").await;
    cluster.api.wait_until("yoipods", "ns", "a", |a| a["status"]["live"].is_object()).await;
    let yes = json!({"call": 7, "approve": true});
    for user in ["alice", "mallory"] {
        let (status, body) = answer(&cluster, &replica, user, yes.clone()).await;
        assert_eq!((status, &body["reason"]), (StatusCode::FORBIDDEN, &json!("Forbidden")), "{user}: {body}");
        assert!(body["message"].as_str().unwrap().contains("cannot create resource \"yoipods/approval\""), "{body}");
    }
    assert!(a.state.steering.lock().unwrap().requests.is_empty());
    let list = cluster.request(&replica, "alice", "GET", APPROVAL, None).await;
    assert_eq!(list, (StatusCode::OK, json!({"calls": []})));
    assert_eq!(cluster.request(&replica, "mallory", "GET", APPROVAL, None).await.0, StatusCode::FORBIDDEN);

    let writes = cluster.api.writes();
    let counted = json!({"call": 7, "answer": {"approved": true, "by": "jürgen"}});
    a.state.steering.lock().unwrap().answer = Some((200, counted.to_string()));
    assert_eq!(answer(&cluster, &replica, "jürgen", yes.clone()).await, (StatusCode::OK, counted));
    let came = a.state.steering.lock().unwrap().requests.pop().unwrap();
    assert_eq!(came, ("j%C3%BCrgen".to_owned(), yes));
    assert_eq!(cluster.api.writes(), writes, "an answer wrote to the API server");
    let metrics = replica.metrics().await;
    assert!(metrics.contains(r#"yoi_gateway_control_requests_total{action="approve",answer="Done"} 1"#), "{metrics}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_runtime_says_of_the_call_is_the_answer_and_what_is_no_answer_reaches_no_runtime() {
    let cluster = cluster();
    let replica = cluster.replica().await;
    let a = cluster.runtime(&[&replica], "token-p-a").await;
    for body in [json!("yes"), json!({"call": 7}), json!({"call": "7", "approve": true}), json!({"call": 7, "approve": true, "sudo": true})]
    {
        let (status, answer) = answer(&cluster, &replica, "jürgen", body.clone()).await;
        assert_eq!((status, &answer["reason"]), (StatusCode::BAD_REQUEST, &json!("BadRequest")), "{body}");
    }
    assert!(a.state.steering.lock().unwrap().requests.is_empty());
    let deny = || json!({"call": 7, "approve": false, "because": "no"});
    for (code, reason) in [(404, "NotFound"), (410, "Gone"), (400, "BadRequest"), (503, "InternalError")] {
        let refusal = json!({"reason": if code == 503 { "ReceiverFailed" } else { "Invalid" }, "message": "call 7 is so"});
        a.state.steering.lock().unwrap().answer = Some((code, refusal.to_string()));
        let (_, body) = answer(&cluster, &replica, "jürgen", deny()).await;
        assert_eq!((&body["reason"], &body["message"]), (&json!(reason), &json!("YoiPod ns/a: call 7 is so")), "{code}");
    }
    a.state.steering.lock().unwrap().answer = Some((404, "no such path".to_owned()));
    let (status, body) = answer(&cluster, &replica, "jürgen", deny()).await;
    assert!(status == StatusCode::CONFLICT && body["message"].as_str().unwrap().contains("kubectl yoi restart a -n ns"), "{body}");
}
