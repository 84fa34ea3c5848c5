//! Conversations of an agent beside `main`.

use axum::http::StatusCode;
use serde_json::json;

use crate::harness::TestCluster;

const A: &str = "/apis/runtime.yoi.dev/v1alpha1/namespaces/ns/yoipods/a";

#[tokio::test(flavor = "multi_thread")]
async fn what_is_asked_of_a_conversation_reaches_that_one_and_the_rights_are_those_to_its_agent() {
    let cluster = TestCluster::new();
    cluster.agent("a", "u-a", "p-a");
    for right in ["get log", "get attach", "get export", "get approval", "create control", "create message", "create approval"] {
        cluster.api.allow("jane", right);
    }
    let replica = cluster.replica().await;
    let _a = cluster.runtime(&[&replica], "token-p-a").await;
    cluster.api.wait_until("yoipods", "ns", "a", |a| a["status"]["live"].is_object()).await;
    let action = json!({"id": "0198c0de-0000-7000-8000-000000000001", "action": {"type": "pause"}});
    let answer = json!({"call": 7, "approve": true});
    for (method, path, body, wanted) in [
        ("GET", "log/review", None, "GET log of review"),
        ("GET", "export/review", None, "GET export of review"),
        ("GET", "log/review?export=true", None, "GET export of review"),
        ("GET", "attach/review", None, "GET attach of review"),
        ("GET", "approval/review", None, "GET approval of review"),
        ("POST", "approval/review", Some(answer), "POST approval of review"),
        ("POST", "control/review", Some(action), "POST control of review"),
    ] {
        let (status, said) = cluster.request(&replica, "jane", method, &format!("{A}/{path}"), body).await;
        assert_eq!((status, &said["done"]["message"]), (StatusCode::OK, &json!(wanted)), "{path}: {said}");
    }
    let message = json!({"messageId": "m", "text": "t"});
    let sent = cluster.request(&replica, "jane", "POST", &format!("{A}/message/review"), Some(message)).await;
    assert_eq!((sent.0, &sent.1["messageId"]), (StatusCode::CREATED, &json!("m")), "{}", sent.1);
    for name in ["No", "..%2Finbox", "a%3Fb"] {
        let (status, refused) = cluster.request(&replica, "jane", "GET", &format!("{A}/log/{name}"), None).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{name}: {refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn conversations_are_listed_started_and_stopped_by_rights_of_their_own() {
    let cluster = TestCluster::new();
    cluster.agent("a", "u-a", "p-a");
    for right in ["get conversations", "create conversations", "delete conversations"] {
        cluster.api.allow("jane", right);
    }
    cluster.api.allow("bob", "get conversations");
    let replica = cluster.replica().await;
    let _a = cluster.runtime(&[&replica], "token-p-a").await;
    cluster.api.wait_until("yoipods", "ns", "a", |a| a["status"]["live"].is_object()).await;
    let review = format!("{A}/conversations/review");
    let list = cluster.request(&replica, "bob", "GET", &format!("{A}/conversations"), None).await;
    assert_eq!(list, (StatusCode::OK, json!({"conversations": []})));
    for method in ["POST", "DELETE"] {
        let (status, refused) = cluster.request(&replica, "bob", method, &review, None).await;
        assert_eq!((status, &refused["reason"]), (StatusCode::FORBIDDEN, &json!("Forbidden")), "{method}: {refused}");
        let done = cluster.request(&replica, "jane", method, &review, None).await;
        assert_eq!(done, (StatusCode::OK, json!({"name": "review", "state": method})));
    }
    let (status, refused) = cluster.request(&replica, "jane", "POST", &format!("{A}/conversations/one-too-many"), None).await;
    assert_eq!((status, &refused["message"]), (StatusCode::CONFLICT, &json!("YoiPod ns/a: 16 run")));
    assert_eq!(cluster.request(&replica, "jane", "GET", &review, None).await.0, StatusCode::METHOD_NOT_ALLOWED);
    let metrics = replica.metrics().await;
    assert!(metrics.contains(r#"yoi_gateway_control_requests_total{action="stopConversation",answer="Done"} 1"#), "{metrics}");
}
