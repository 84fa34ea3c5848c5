use std::time::{Duration, Instant};

use axum::http::StatusCode;
use serde_json::{Value, json};
use yoi_line::{CallError, RequestClient};
use yoi_test_support::{eventually, slowness};
use yoi_wire::hub::{Activity, PodList, RefusalReason, ReportAccepted, RuntimeReport, VisibilityReason, gateway_api};
use yoi_wire::open::Open;

use crate::harness::{Replica, TestCluster, refusal, refusal_reason, report, wait_for};

/// Calls on a new connection, because the gateway ends the connection of an unknown token with the answer. hyper drops an answer when it
/// reads the connection's end before it schedules the request's sender, so a call that broke is repeated.
async fn call_on_a_new_connection(cluster: &TestCluster, replica: &Replica, token: &str, path: &str) -> Result<Value, CallError> {
    let mut answer = cluster.caller(replica, token).post_json(path, &json!({})).await;
    for _ in 0..5 {
        let Err(CallError::Broken(_)) = &answer else { break };
        answer = cluster.caller(replica, token).post_json(path, &json!({})).await;
    }
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_is_not_of_a_current_agents_pod_is_refused() {
    let cluster = TestCluster::new();
    cluster.agent("a", "u-a", "p-a");
    cluster.api.token("for-another", "ns", "p-a", "other.example");
    cluster.api.token("of-another-namespace", "elsewhere", "p-a", "gateway.yoi.dev");
    cluster.api.token("of-a-former-pod", "ns", "p-a0", "gateway.yoi.dev");
    let replica = cluster.replica().await;
    let cases = [("unknown", 401), ("for-another", 401), ("of-another-namespace", 403), ("of-a-former-pod", 403)];
    for (token, status) in cases {
        for path in [gateway_api::LIST_PODS, gateway_api::REPORT, gateway_api::SEND, "/v1/unknown"] {
            assert_eq!(
                refusal_reason(call_on_a_new_connection(&cluster, &replica, token, path).await),
                (status, RefusalReason::NotAnAgent),
                "{token} {path}"
            );
        }
        assert!(cluster.dial(&replica, token).open().await.is_err(), "{token}");
    }
    let response = cluster.request_with(replica.runtimes, None, "a", "POST", gateway_api::LIST_PODS, None).await;
    assert_eq!(response.status(), 401, "no token");
    let list: PodList = cluster.caller(&replica, "token-p-a").post_json(gateway_api::LIST_PODS, &json!({})).await.unwrap();
    assert_eq!(list.pods[0].name, "a");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_review_is_cached() {
    let cluster = TestCluster::new();
    cluster.agent("a", "u-a", "p-a");
    let replica = cluster.replica().await;
    let caller = cluster.caller(&replica, "token-p-a");
    for _ in 0..5 {
        caller.post_json::<_, PodList>(gateway_api::LIST_PODS, &json!({})).await.unwrap();
    }
    assert_eq!(cluster.api.request_count("POST apis/authentication"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runtime_that_dials_before_its_pod_is_in_the_status_is_accepted() {
    let cluster = TestCluster::new();
    cluster.put_agent("a", "u-a", "", "Running");
    cluster.api.token("token-p-a", "ns", "p-a", "gateway.yoi.dev");
    let replica = cluster.replica().await;
    let caller = cluster.caller(&replica, "token-p-a");
    let nothing = json!({});
    let asking = caller.post_json::<_, PodList>(gateway_api::LIST_PODS, &nothing);
    let operator = async {
        let is_reviewed = async || (cluster.api.request_count("POST apis/authentication") > 0).then_some(());
        eventually("the review of the token", is_reviewed).await;
        cluster.put_agent("a", "u-a", "p-a", "Running");
    };
    let (list, ()) = futures::join!(asking, operator);
    assert_eq!(list.unwrap().pods[0].name, "a");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_runs_no_agent_is_looked_for_once_however_often_it_asks_and_found_when_it_runs_one() {
    let cluster = TestCluster::new();
    cluster.api.token("token-p-x", "ns", "p-x", "gateway.yoi.dev");
    let replica = cluster.replica().await;
    let lists = || cluster.api.request_count("GET apis/yoi.dev/v1alpha1/namespaces/ns/yoipods");
    let callers: Vec<_> = (0..4).map(|_| cluster.caller(&replica, "token-p-x")).collect();
    let nothing = json!({});
    let ask = |caller: &RequestClient| {
        let (caller, nothing) = (caller.clone(), nothing.clone());
        async move { caller.post_json::<_, PodList>(gateway_api::LIST_PODS, &nothing).await }
    };
    let answers = wait_for("all refusals", futures::future::join_all(callers.iter().cycle().take(12).map(ask))).await;
    assert!(answers.iter().all(Result::is_err));
    for caller in &callers {
        ask(caller).await.unwrap_err();
    }
    assert_eq!(lists(), 1);
    cluster.put_agent("x", "u-x", "p-x", "Running");
    let list = eventually("the agent", async || ask(&callers[0]).await.ok()).await;
    assert_eq!((list.pods[0].name.as_str(), lists()), ("x", 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_is_written_on_change_and_never_touches_conditions() {
    let cluster = TestCluster::new();
    cluster.agent("a", "u-a", "p-a");
    let replica = cluster.replica().await;
    let caller = cluster.caller(&replica, "token-p-a");
    for _ in 0..3 {
        let taken: ReportAccepted = caller.post_json(gateway_api::REPORT, &report(Activity::Idle)).await.unwrap();
        assert_eq!((taken.agent.name.as_str(), taken.agent.uid.as_str()), ("a", "u-a"));
    }
    assert_eq!(cluster.api.request_count("PATCH"), 1);
    let status = cluster.api.get("yoipods", "ns", "a")["status"].clone();
    assert_eq!(
        status["report"],
        json!({"podUID": "p-a", "runGeneration": 1, "ready": true, "reason": "Replayed", "message": "replayed 3 entries"})
    );
    assert_eq!(status["session"], json!({"id": "s1", "segment": "g1"}));
    assert_eq!((&status["live"]["podUID"], &status["live"]["activity"]), (&json!("p-a"), &json!("Idle")));
    assert_eq!((&status["conditions"], &status["runGeneration"]), (&json!([]), &json!(1)));
    caller.post_json::<_, ReportAccepted>(gateway_api::REPORT, &report(Activity::Running)).await.unwrap();
    assert_eq!(cluster.api.request_count("PATCH"), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_that_an_object_cannot_hold_is_refused() {
    let cluster = TestCluster::new();
    cluster.agent("a", "u-a", "p-a");
    let replica = cluster.replica().await;
    let caller = cluster.caller(&replica, "token-p-a");
    let two_words = yoi_wire::hub::RuntimeReport { reason: Open::Other("two words".to_owned()), ..report(Activity::Idle) };
    assert_eq!(refusal_reason(caller.post_json::<_, Value>(gateway_api::REPORT, &two_words).await), (400, RefusalReason::Invalid));
    assert_eq!(cluster.api.request_count("PATCH"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn reports_without_end_are_few_writes_and_the_last_one_is_written() {
    let cluster = TestCluster::new();
    cluster.agent("a", "u-a", "p-a");
    let replica = cluster.replica().await;
    let caller = cluster.caller(&replica, "token-p-a");
    let loud = |message: String| RuntimeReport { message, ..report(Activity::Idle) };
    // What was sent before it on the same connection has come by the time of its answer.
    let probe = async || drop(caller.post_json::<_, PodList>(gateway_api::LIST_PODS, &json!({})).await);
    let began = Instant::now();
    let mut written = false;
    // On a busy machine the last sender may have left before its report was read, and a report from before may be read after it. Then all of it is
    // done again.
    for attempt in 0..5 {
        for n in 0..50 {
            let reports = (0..20).map(|m| {
                let (caller, report) = (caller.clone(), loud(format!("report {attempt}.{}", 20 * n + m)));
                async move { drop(caller.post_json::<_, ReportAccepted>(gateway_api::REPORT, &report).await) }
            });
            // The senders leave before their answers.
            tokio::select! {
                biased;
                _ = futures::future::join_all(reports) => {}
                () = probe() => {}
            }
        }
        let last = loud(format!("last {attempt}"));
        // The writes that are allowed at once are used up: this one has to wait for its turn, and its sender does not.
        let left = tokio::select! {
            biased;
            _ = caller.post_json::<_, Value>(gateway_api::REPORT, &last) => false,
            () = probe() => true,
        };
        let is_last = |pod: &Value| pod["status"]["report"]["message"] == last.message.as_str();
        let seen = cluster.api.wait_until("yoipods", "ns", "a", is_last);
        // A sender that got its answer has not left, and shows nothing. The write's turn comes within a second.
        written = left && tokio::time::timeout(Duration::from_secs(5).mul_f64(slowness()), seen).await.is_ok();
        if written {
            break;
        }
    }
    assert!(written, "the last report was written in none of five attempts");
    let (writes, took) = (cluster.api.request_count("PATCH"), began.elapsed());
    // Ten at once, and then one each second. A slow machine gives more time, and so may write more.
    assert!(writes as u64 <= 11 + took.as_secs(), "{writes} writes in {took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_activity_and_a_task_state_of_a_newer_runtime_are_written_as_they_are() {
    let cluster = TestCluster::new();
    cluster.agent("a", "u-a", "p-a");
    let replica = cluster.replica().await;
    let mut newer = serde_json::to_value(report(Activity::Idle)).unwrap();
    newer["activity"] = json!("Dreaming");
    newer["task"] = json!({"id": "t", "state": "Paused"});
    cluster.caller(&replica, "token-p-a").post_json::<_, ReportAccepted>(gateway_api::REPORT, &newer).await.unwrap();
    let status = &cluster.api.get("yoipods", "ns", "a")["status"];
    assert_eq!((&status["live"]["activity"], &status["task"]["state"]), (&json!("Dreaming"), &json!("Paused")));
    for (field, value) in [("activity", json!("two words")), ("task", json!({"id": "t", "state": ""}))] {
        let mut wrong = newer.clone();
        wrong[field] = value;
        let answer = cluster.caller(&replica, "token-p-a").post_json::<_, Value>(gateway_api::REPORT, &wrong).await;
        assert_eq!(refusal_reason(answer), (400, RefusalReason::Invalid), "{field}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_is_too_long_is_refused_with_its_limit() {
    let cluster = TestCluster::new();
    cluster.agent("a", "u-a", "p-a");
    let replica = cluster.replica().await;
    let long = json!({"message": "x".repeat(1 << 20)});
    for (path, what) in [(gateway_api::REPORT, "a report"), (gateway_api::LIST_PODS, "a request for the list of agents")] {
        let (status, refusal) = refusal(cluster.caller(&replica, "token-p-a").post_json::<_, Value>(path, &long).await);
        assert_eq!((status, refusal.reason), (413, RefusalReason::Invalid));
        assert_eq!(refusal.message, format!("the body is too long for {what}: 397312 bytes are allowed"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_sets_status_live_and_its_end_clears_it() {
    let cluster = TestCluster::new();
    cluster.agent("a", "u-a", "p-a");
    let replica = cluster.replica().await;
    let runtime = cluster.runtime(&[&replica], "token-p-a").await;
    cluster.api.wait_until("yoipods", "ns", "a", |pod| pod["status"]["live"]["podUID"] == "p-a").await;
    assert!(replica.metrics().await.contains("yoi_gateway_lines 1"));
    runtime.lines.stop().await;
    cluster.api.wait_until("yoipods", "ns", "a", |pod| pod["status"]["live"].is_null()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_line_of_a_pod_that_was_replaced_is_closed() {
    let cluster = TestCluster::new();
    cluster.agent("a", "u-a", "p-a");
    let replica = cluster.replica().await;
    let runtime = cluster.runtime(&[&replica], "token-p-a").await;
    let mut state = runtime.lines.state();
    cluster.put_agent("a", "u-a", "p-a2", "Running");
    wait_for("the line's end", state.wait_for(|state| state.up() == 0)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn b1_an_agent_sees_itself_and_its_peers_and_nobody_else() {
    let cluster = TestCluster::new();
    for (name, uid, pod) in [("a", "u-a", "p-a"), ("b", "u-b", "p-b"), ("c", "u-c", "p-c"), ("outsider", "u-s", "p-s")] {
        cluster.agent(name, uid, pod);
    }
    cluster.put_agent("c", "u-c", "", "Stopped");
    cluster.put_agent("d", "u-d-new", "", "Running");
    cluster.peer(("a", "u-a"), ("b", "u-b"));
    cluster.peer(("a", "u-a"), ("c", "u-c"));
    cluster.peer(("a", "u-a"), ("d", "u-d-former"));
    let replica = cluster.replica().await;
    let _b = cluster.runtime(&[&replica], "token-p-b").await;
    let caller = cluster.caller(&replica, "token-p-a");
    let list = eventually("b to be live", async || {
        let list: PodList = caller.post_json(gateway_api::LIST_PODS, &json!({})).await.unwrap();
        Some(list).filter(|list| list.pods.iter().any(|pod| pod.live))
    })
    .await;
    let seen: Vec<_> = list.pods.iter().map(|pod| (pod.name.as_str(), pod.live, pod.state.as_str())).collect();
    assert_eq!(seen, [("a", false, "Unreachable"), ("b", true, "Idle"), ("c", false, "Stopped"), ("d", false, "Missing")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a26_b3_without_any_line_a_peer_is_listed_with_the_reason_peer_and_the_peers_peers_are_not() {
    let cluster = TestCluster::new();
    for (name, uid, pod) in [("a", "u-a", "p-a"), ("b", "u-b", "p-b"), ("c", "u-c", "p-c")] {
        cluster.agent(name, uid, pod);
    }
    cluster.peer(("a", "u-a"), ("b", "u-b"));
    cluster.peer(("b", "u-b"), ("c", "u-c"));
    let replica = cluster.replica().await;
    let seen = async |token: &str| -> Vec<(String, Vec<VisibilityReason>)> {
        let list: PodList = cluster.caller(&replica, token).post_json(gateway_api::LIST_PODS, &json!({})).await.unwrap();
        list.pods.into_iter().map(|pod| (pod.name, pod.reasons)).collect()
    };
    let (me, peer) =
        (|name: &str| (name.to_owned(), vec![VisibilityReason::Itself]), |name: &str| (name.to_owned(), vec![VisibilityReason::Peer]));
    assert_eq!(seen("token-p-a").await, [me("a"), peer("b")]);
    assert_eq!(seen("token-p-b").await, [me("b"), peer("a"), peer("c")], "the control");
}

#[tokio::test(flavor = "multi_thread")]
async fn b4_b23_an_agent_without_a_session_yet_is_listed_and_can_be_attached_to_once_it_is_live() {
    let cluster = TestCluster::new();
    cluster.agent("a", "u-a", "p-a");
    cluster.agent("b", "u-b", "p-b");
    cluster.peer(("a", "u-a"), ("b", "u-b"));
    cluster.api.allow("alice", "get attach");
    let replica = cluster.replica().await;
    let caller = cluster.caller(&replica, "token-p-a");
    let b = async || {
        let list: PodList = caller.post_json(gateway_api::LIST_PODS, &json!({})).await.unwrap();
        list.pods.into_iter().find(|pod| pod.name == "b").map(|pod| (pod.live, pod.state)).unwrap()
    };
    let attach = async || {
        let path = "/apis/runtime.yoi.dev/v1alpha1/namespaces/ns/yoipods/b/attach";
        cluster.request(&replica, "alice", "GET", path, None).await.0
    };
    assert_eq!(b().await, (false, "Unreachable".to_owned()));
    assert_eq!(attach().await, StatusCode::SERVICE_UNAVAILABLE);
    let _b = cluster.runtime(&[&replica], "token-p-b").await;
    wait_for("b to be live", async { while !b().await.0 {} }).await;
    assert_eq!(attach().await, StatusCode::OK);
    assert!(cluster.api.get("yoipods", "ns", "b")["status"]["session"].is_null(), "and it still has none");
}
