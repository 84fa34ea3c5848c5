//! Reading an agent that has stopped.

use axum::http::StatusCode;
use serde_json::{Value, json};
use yoi_wire::hub::{Activity, RefusalReason, gateway_api};

use crate::harness::{TestCluster, refusal_reason, report, wait_for};

const LOG: &str = "/apis/runtime.yoi.dev/v1alpha1/namespaces/ns/yoipods/a/log";
const MESSAGE: &str = "/apis/runtime.yoi.dev/v1alpha1/namespaces/ns/yoipods/a/message";

/// A stopped agent `a`, and a user who may do all that people do.
fn cluster_with_stopped_agent() -> TestCluster {
    let cluster = TestCluster::new();
    cluster.put_agent("a", "u-a", "", "Stopped");
    cluster.api.token("token-p-r", "ns", "p-r", "gateway.yoi.dev");
    for right in ["get log", "get diff", "create message"] {
        cluster.api.allow("alice", right);
    }
    cluster
}

/// What the operator writes once it has made the reader, or while it cannot.
fn change_status(cluster: &TestCluster, change: impl FnOnce(&mut Value)) {
    let mut a = cluster.api.get("yoipods", "ns", "a");
    change(&mut a["status"]);
    cluster.api.put("yoipods", a);
}

fn not_ready(reason: &str, message: &str) -> Value {
    json!([{"type": "ReaderReady", "status": "False", "reason": reason, "message": message, "lastTransitionTime": "2026-01-01T00:00:00Z"}])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_agent_is_read_over_the_line_of_its_reader_and_stays_stopped() {
    let cluster = cluster_with_stopped_agent();
    let replica = cluster.replica().await;
    let operator = async {
        cluster.api.wait_until("yoipods", "ns", "a", |a| a["status"]["reader"]["requestedAt"].is_string()).await;
        change_status(&cluster, |status| status["reader"]["pod"] = json!({"name": "a-reader", "uid": "p-r"}));
        cluster.runtime(&[&replica], "token-p-r").await
    };
    let reading = cluster.request(&replica, "alice", "GET", LOG, None);
    let (mut reader, (status, body)) = wait_for("the log", async { tokio::join!(operator, reading) }).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    let asked = cluster.api.get("yoipods", "ns", "a")["status"]["reader"]["requestedAt"].clone();

    // Nothing but reads goes over that line, and nobody takes the agent for live.
    let (status, body) = cluster.request(&replica, "alice", "POST", MESSAGE, Some(json!({"messageId": "m1", "text": "t"}))).await;
    assert_eq!(status, StatusCode::CONFLICT, "{body}");
    assert!(body["message"].as_str().unwrap().contains("is Stopped: start it with"), "{body}");
    assert!(reader.messages.try_recv().is_err(), "the message reached the reader");
    let a = cluster.api.get("yoipods", "ns", "a");
    assert_eq!((&a["status"]["live"], &a["status"]["report"]), (&Value::Null, &Value::Null));

    // A second question within the minute writes nothing.
    let writes = cluster.api.writes();
    assert_eq!(cluster.request(&replica, "alice", "GET", LOG, None).await.0, StatusCode::OK);
    assert_eq!(cluster.api.writes(), writes);
    assert_eq!(cluster.api.get("yoipods", "ns", "a")["status"]["reader"]["requestedAt"], asked);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_token_of_a_reader_opens_a_line_and_nothing_else() {
    let cluster = cluster_with_stopped_agent();
    // Before there is a reader: a replica is Ready only once its line is there.
    let replica = cluster.replica().await;
    change_status(&cluster, |status| status["reader"] = json!({"pod": {"name": "a-reader", "uid": "p-r"}}));
    let caller = cluster.caller(&replica, "token-p-r");
    for path in [gateway_api::REPORT, gateway_api::LIST_PODS, gateway_api::SEND, "/v1/unknown"] {
        let answer: Result<Value, _> = caller.post_json(path, &report(Activity::Idle)).await;
        assert_eq!(refusal_reason(answer), (403, RefusalReason::NotAnAgent), "{path}");
    }
    let _reader = cluster.runtime(&[&replica], "token-p-r").await;
    assert_eq!(cluster.api.get("yoipods", "ns", "a")["status"]["report"], Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_that_comes_too_early_is_told_what_the_reader_waits_for() {
    let cluster = cluster_with_stopped_agent();
    change_status(&cluster, |status| status["conditions"] = not_ready("PodPending", "Pod a-reader: 0/2 nodes are available"));
    let replica = cluster.replica().await;
    let (status, body) = cluster.request(&replica, "alice", "GET", &format!("{LOG}?waitSeconds=0"), None).await;
    assert_eq!((status, &body["details"]["retryAfterSeconds"]), (StatusCode::SERVICE_UNAVAILABLE, &json!(1)), "{body}");
    assert!(body["details"]["causes"][0]["message"].as_str().unwrap().starts_with("PodPending: Pod a-reader: "), "{body}");
    assert!(body["message"].as_str().unwrap().contains("is not there yet: PodPending: Pod a-reader: 0/2 nodes are available; "), "{body}");
    let mut refused = not_ready("Starting", "it is being made");
    refused.as_array_mut().unwrap().push(json!({"type": "Ready", "status": "False", "reason": "ApplyFailed", "message": "exceeded quota",
        "lastTransitionTime": "2026-01-01T00:00:00Z"}));
    change_status(&cluster, |status| status["conditions"] = refused);
    let (_, body) = cluster.request(&replica, "alice", "GET", &format!("{LOG}?waitSeconds=1"), None).await;
    assert!(body["message"].as_str().unwrap().contains("ApplyFailed: exceeded quota"), "{body}");
    change_status(&cluster, |status| status["conditions"] = not_ready("NoSession", "the agent has never run"));
    let (status, body) = cluster.request(&replica, "alice", "GET", LOG, None).await;
    assert_eq!((status, &body["details"]["retryAfterSeconds"]), (StatusCode::CONFLICT, &Value::Null), "{body}");
    assert!(body["message"].as_str().unwrap().contains("has stopped: the agent has never run"), "{body}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_is_to_run_gets_no_reader() {
    let cluster = TestCluster::new();
    cluster.put_agent("a", "u-a", "", "Running");
    cluster.api.allow("alice", "get log");
    let replica = cluster.replica().await;
    let (status, body) = cluster.request(&replica, "alice", "GET", LOG, None).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    // Its line may come in a moment: whoever asks is told to ask again.
    assert_eq!(body["details"]["retryAfterSeconds"], json!(1), "{body}");
    assert_eq!(body["details"]["causes"][0]["reason"], json!("LineStarting"), "{body}");
    assert_eq!(cluster.api.get("yoipods", "ns", "a")["status"]["reader"], Value::Null);
}
