//! An agent that rests is woken by what needs it, once.

use std::collections::BTreeSet;
use std::time::Duration;

use axum::http::StatusCode;
use futures::future::join_all;
use serde_json::{Value, json};
use yoi_gateway::GatewaySettings;
use yoi_wire::hub::{Activity, RefusalReason, ReportAccepted, ReportReason, RuntimeReport, SendRequest, SendResponse, gateway_api};

use crate::harness::{TestCluster, quick_settings, refusal, report, wait_for};

const A: &str = "/apis/runtime.yoi.dev/v1alpha1/namespaces/ns/yoipods/a";

/// The agent `a`, which rests after its first run.
fn resting(desired: &str) -> TestCluster {
    let cluster = TestCluster::new();
    cluster.put_agent("a", "u-a", "", desired);
    change_status(&cluster, |status| {
        status["runGeneration"] = json!(2);
        status["report"] = json!({"podUID": "p-1", "runGeneration": 1, "ready": false, "reason": "Resting", "message": "it rests"});
        status["rest"] = json!({"runGeneration": 1, "since": "2026-01-01T00:00:00Z"});
    });
    cluster.api.token("token-p-2", "ns", "p-2", "gateway.yoi.dev");
    cluster
}

fn change_status(cluster: &TestCluster, change: impl FnOnce(&mut Value)) {
    let mut a = cluster.api.get("yoipods", "ns", "a");
    change(&mut a["status"]);
    cluster.api.put("yoipods", a);
}

/// Waits for the wish, and makes another Pod as the operator does, whose runtime has started. Returns the wish.
async fn make_pod(cluster: &TestCluster, pod: &str, run: i64) -> Value {
    let a = cluster.api.wait_until("yoipods", "ns", "a", |a| a["status"]["rest"]["wake"].is_object()).await;
    change_status(cluster, |status| {
        status["runGeneration"] = json!(run);
        status["pod"] = json!({"name": "a-2", "uid": pod});
        status["report"] = json!({"podUID": pod, "runGeneration": run, "ready": true, "reason": "Replayed", "message": "m"});
    });
    a["status"]["rest"]["wake"].clone()
}

fn message(id: &str) -> Option<Value> {
    Some(json!({"messageId": id, "text": "t"}))
}

#[tokio::test(flavor = "multi_thread")]
async fn r2_r4_ten_senders_to_a_resting_agent_wake_it_once_and_each_message_is_delivered_once() {
    let cluster = resting("Suspended");
    let users: Vec<String> = (0..10).map(|n| format!("user-{n}")).collect();
    for user in &users {
        cluster.api.allow(user, "create message");
    }
    let replica = cluster.replica().await;
    let sending = join_all(users.iter().map(|user| {
        let (cluster, replica) = (&cluster, &replica);
        async move { cluster.request(replica, user, "POST", &format!("{A}/message"), message(&format!("m-{user}"))).await }
    }));
    let operator = async {
        let wake = make_pod(&cluster, "p-2", 2).await;
        (wake, cluster.runtime(&[&replica], "token-p-2").await)
    };
    let ((wake, mut runtime), answers) = wait_for("all answers", async { tokio::join!(operator, sending) }).await;
    for (status, body) in answers {
        assert_eq!(status, StatusCode::CREATED, "{body}");
    }
    let mut got = BTreeSet::new();
    for _ in &users {
        got.insert(wait_for("a message", runtime.messages.recv()).await.unwrap().message_id);
    }
    assert_eq!(got.len(), users.len());
    assert!(runtime.messages.try_recv().is_err(), "one was delivered twice");
    assert!(wake["by"].as_str().unwrap().starts_with("a message of user-"), "{wake}");
    assert_eq!(cluster.api.get("yoipods", "ns", "a")["status"]["rest"]["wake"], wake, "it was woken twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn r2_a_sender_learns_that_waking_takes_long_and_the_same_id_arrives_once() {
    let cluster = resting("Running");
    cluster.api.allow("alice", "create message");
    let settings = GatewaySettings { wake_wait: Duration::from_millis(200), ..quick_settings() };
    let replica = cluster.ready_replica(settings).await;
    let (status, body) = cluster.request(&replica, "alice", "POST", &format!("{A}/message"), message("m1")).await;
    assert_eq!((status, &body["details"]["causes"][0]["reason"]), (StatusCode::SERVICE_UNAVAILABLE, &json!("AgentWaking")), "{body}");
    assert!(body["message"].as_str().unwrap().contains("under the same id"), "{body}");
    let wake = make_pod(&cluster, "p-2", 2).await;
    assert_eq!(wake["by"], "a message of alice");
    let mut runtime = cluster.runtime(&[&replica], "token-p-2").await;
    let (status, body) = cluster.request(&replica, "alice", "POST", &format!("{A}/message"), message("m1")).await;
    assert_eq!(status, StatusCode::CREATED, "{body}");
    assert_eq!(wait_for("the message", runtime.messages.recv()).await.unwrap().message_id, "m1");
}

#[tokio::test(flavor = "multi_thread")]
async fn r2_a_peer_wakes_it_and_learns_when_that_takes_long() {
    let cluster = resting("Suspended");
    cluster.agent("b", "u-b", "p-b");
    cluster.peer(("a", "u-a"), ("b", "u-b"));
    let settings = GatewaySettings { wake_wait: Duration::from_millis(200), ..quick_settings() };
    let replica = cluster.ready_replica(settings).await;
    let caller = cluster.caller(&replica, "token-p-b");
    let request = SendRequest { to: "a".into(), message_id: "m1".into(), text: "hello".into(), conversation: None };
    let (status, refused) = refusal(caller.post_json::<_, SendResponse>(gateway_api::SEND, &request).await);
    assert_eq!((status, refused.reason), (503, RefusalReason::Waking), "{}", refused.message);
    assert_eq!(cluster.api.get("yoipods", "ns", "a")["status"]["rest"]["wake"]["by"], "a message of agent b");
}

#[tokio::test(flavor = "multi_thread")]
async fn r8_the_sender_to_an_agent_that_cannot_start_is_told_why_and_the_same_id_arrives_once_it_can() {
    let cluster = resting("Suspended");
    cluster.api.allow("alice", "create message");
    let settings = GatewaySettings { wake_wait: Duration::from_secs(1), ..quick_settings() };
    let replica = cluster.ready_replica(settings).await;
    let sending = async { cluster.request(&replica, "alice", "POST", &format!("{A}/message"), message("m1")).await };
    // Its tree and its session are on a node that takes no Pods.
    let operator = async {
        cluster.api.wait_until("yoipods", "ns", "a", |a| a["status"]["rest"]["wake"].is_object()).await;
        let unready = json!({"type": "Ready", "status": "False", "reason": "Unschedulable", "message": "node n1 is cordoned",
            "lastTransitionTime": "2026-01-01T00:00:00Z"});
        change_status(&cluster, |status| status["conditions"] = json!([unready]));
    };
    let ((status, body), ()) = wait_for("the answer", async { tokio::join!(sending, operator) }).await;
    assert_eq!((status, &body["details"]["causes"][0]["reason"]), (StatusCode::SERVICE_UNAVAILABLE, &json!("AgentWaking")), "{body}");
    let text = body["message"].as_str().unwrap();
    assert!(text.contains("Unschedulable: node n1 is cordoned") && text.contains("under the same id"), "{body}");
    make_pod(&cluster, "p-2", 2).await;
    let mut runtime = cluster.runtime(&[&replica], "token-p-2").await;
    let (status, body) = cluster.request(&replica, "alice", "POST", &format!("{A}/message"), message("m1")).await;
    assert_eq!(status, StatusCode::CREATED, "{body}");
    assert_eq!(wait_for("the message", runtime.messages.recv()).await.unwrap().message_id, "m1");
    assert!(runtime.messages.try_recv().is_err(), "it was delivered twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn r3_a_message_that_meets_a_closed_inbox_wakes_the_agent_and_is_delivered_to_its_next_pod() {
    let cluster = TestCluster::new();
    cluster.agent("a", "u-a", "p-1");
    cluster.api.token("token-p-2", "ns", "p-2", "gateway.yoi.dev");
    cluster.api.allow("alice", "create message");
    let replica = cluster.replica().await;
    let mut first = cluster.runtime(&[&replica], "token-p-1").await;
    *first.state.resting.lock().unwrap() = true;
    let sending = async { cluster.request(&replica, "alice", "POST", &format!("{A}/message"), message("m1")).await };
    let going = async {
        wait_for("the message", first.messages.recv()).await.unwrap();
        let last = RuntimeReport { ready: false, reason: ReportReason::Resting.into(), ..report(Activity::Idle) };
        cluster.caller(&replica, "token-p-1").post_json::<_, ReportAccepted>(gateway_api::REPORT, &last).await.unwrap();
        make_pod(&cluster, "p-2", 2).await;
        cluster.runtime(&[&replica], "token-p-2").await
    };
    let ((status, body), mut second) = wait_for("the answer", async { tokio::join!(sending, going) }).await;
    assert_eq!(status, StatusCode::CREATED, "{body}");
    assert_eq!(wait_for("the message", second.messages.recv()).await.unwrap().message_id, "m1");
    assert!(second.messages.try_recv().is_err() && first.messages.try_recv().is_err());
    let rest = cluster.api.get("yoipods", "ns", "a")["status"]["rest"].clone();
    assert_eq!((&rest["runGeneration"], &rest["wake"]["by"]), (&json!(1), &json!("a message of alice")), "{rest}");
}

#[tokio::test(flavor = "multi_thread")]
async fn r6_a_stopped_agent_that_rested_before_is_not_woken_and_one_that_rests_is_not_woken_for_a_pause() {
    let stopped = resting("Stopped");
    stopped.api.allow("alice", "create message");
    let replica = stopped.replica().await;
    let (status, body) = stopped.request(&replica, "alice", "POST", &format!("{A}/message"), message("m1")).await;
    assert_eq!(status, StatusCode::CONFLICT, "{body}");
    assert!(body["message"].as_str().unwrap().contains("is Stopped: start it with"), "{body}");
    assert_eq!(stopped.api.get("yoipods", "ns", "a")["status"]["rest"]["wake"], Value::Null);

    let rests = resting("Suspended");
    rests.api.allow("alice", "create control");
    let replica = rests.replica().await;
    let pause = Some(json!({"id": "0198c0de-0000-7000-8000-000000000000", "action": {"type": "pause"}}));
    let (status, body) = rests.request(&replica, "alice", "POST", &format!("{A}/control"), pause).await;
    assert_eq!(status, StatusCode::CONFLICT, "{body}");
    assert!(body["message"].as_str().unwrap().contains("rests: a message, a run"), "{body}");
    assert_eq!(rests.api.get("yoipods", "ns", "a")["status"]["rest"]["wake"], Value::Null);
}
