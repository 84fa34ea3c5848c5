use std::time::Duration;

use axum::http::StatusCode;
use http_body_util::BodyExt;
use serde_json::json;
use yoi_gateway::GatewaySettings;
use yoi_wire::hub::{Activity, ReportAccepted, SendRequest, SendResponse, gateway_api};

use crate::harness::{TestCluster, quick_settings, report, wait_for, writable_log};

#[tokio::test(flavor = "multi_thread")]
async fn two_replicas_serve_the_same_agents_and_know_nothing_of_each_other() {
    let cluster = TestCluster::new();
    cluster.agent("a", "u-a", "p-a");
    cluster.agent("b", "u-b", "p-b");
    cluster.peer(("a", "u-a"), ("b", "u-b"));
    let (one, two) = (cluster.replica().await, cluster.replica().await);
    let mut b = cluster.runtime(&[&one, &two], "token-p-b").await;
    for (replica, id) in [(&one, "m1"), (&two, "m2")] {
        let message = SendRequest { to: "b".into(), message_id: id.into(), text: "t".into(), conversation: None };
        cluster.caller(replica, "token-p-a").post_json::<_, SendResponse>(gateway_api::SEND, &message).await.unwrap();
        assert_eq!(wait_for("the message", b.messages.recv()).await.unwrap().message_id, id);
    }
    // Reports go to both replicas. Neither undoes the other's write.
    let reports = (0..10).map(|n| {
        let caller = cluster.caller(if n % 2 == 0 { &one } else { &two }, "token-p-b");
        async move {
            let activity = if n % 3 == 0 { Activity::Running } else { Activity::Idle };
            caller.post_json::<_, ReportAccepted>(gateway_api::REPORT, &report(activity)).await.unwrap();
        }
    });
    futures::future::join_all(reports).await;
    let status = &cluster.api.get("yoipods", "ns", "b")["status"];
    assert_eq!((&status["session"]["id"], &status["report"]["reason"]), (&json!("s1"), &json!("Replayed")));
}

#[tokio::test(flavor = "multi_thread")]
async fn status_live_that_one_replica_clears_is_set_again_by_the_one_that_has_the_line() {
    let cluster = TestCluster::new();
    cluster.agent("b", "u-b", "p-b");
    let (one, two) = (cluster.replica().await, cluster.replica().await);
    let only_one = cluster.runtime(&[&one], "token-p-b").await;
    let _both = cluster.runtime(&[&two], "token-p-b").await;
    cluster.caller(&two, "token-p-b").post_json::<_, ReportAccepted>(gateway_api::REPORT, &report(Activity::Running)).await.unwrap();
    cluster.api.wait_until("yoipods", "ns", "b", |pod| pod["status"]["live"]["activity"] == "Running").await;
    let writes = cluster.api.writes();
    only_one.lines.stop().await;
    // The other replica may set it again at once.
    cluster.api.wait_for_write(writes, "yoipods/ns/b", |pod| pod["status"]["live"].is_null()).await;
    cluster.api.wait_until("yoipods", "ns", "b", |pod| pod["status"]["live"]["activity"] == "Running").await;
    let of_b = "PATCH apis/yoi.dev/v1alpha1/namespaces/ns/yoipods/b/";
    let writes = cluster.api.request_count(of_b);
    assert!(writes > 0);
    // The replica that would clear it again clears others meanwhile, as late after the end of their lines.
    cluster.agent("c", "u-c", "p-c");
    for _ in 0..3 {
        let line = cluster.runtime(&[&one], "token-p-c").await;
        cluster.api.wait_until("yoipods", "ns", "c", |pod| pod["status"]["live"]["podUID"] == "p-c").await;
        line.lines.stop().await;
        cluster.api.wait_until("yoipods", "ns", "c", |pod| pod["status"]["live"].is_null()).await;
    }
    assert_eq!(cluster.api.request_count(of_b), writes, "the replicas undo each other's writes");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_ends_followed_logs_and_lines_and_leaves_status_live() {
    let cluster = TestCluster::new();
    cluster.agent("a", "u-a", "p-a");
    cluster.api.allow("alice", "get log");
    // Neither is drained: that would take longer than any test waits.
    let replica = cluster.ready_replica(GatewaySettings { drain: Duration::from_secs(36_000), ..quick_settings() }).await;
    let a = cluster.runtime(&[&replica], "token-p-a").await;
    cluster.api.wait_until("yoipods", "ns", "a", |pod| pod["status"]["live"]["podUID"] == "p-a").await;
    let (_log, body) = writable_log();
    *a.state.log.lock().unwrap() = Some(body);
    let pair = cluster.front.client(&["front-proxy-client"]);
    let path = "/apis/runtime.yoi.dev/v1alpha1/namespaces/ns/yoipods/a/log?follow=true";
    let response = cluster.request_with(replica.api, Some(&pair), "alice", "GET", path, None).await;
    let mut state = a.lines.state();
    replica.stop.cancel();
    // The body fails instead of ending, so that no reader takes it for the end of the log.
    assert!(wait_for("the cut", response.into_body().collect()).await.is_err());
    wait_for("the line's end", state.wait_for(|state| state.up() == 0)).await.unwrap();
    wait_for("the end", replica.task).await.unwrap().unwrap();
    assert_eq!(cluster.api.get("yoipods", "ns", "a")["status"]["live"]["podUID"], "p-a");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_certificate_is_waited_for_and_reloaded() {
    let mut cluster = TestCluster::new();
    cluster.agent("a", "u-a", "p-a");
    let replica = cluster.replica_without_keys(quick_settings()).await;
    let (status, why) = replica.health("/readyz").await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(why.contains("certificate"), "{why}");
    assert_eq!(replica.health("/healthz").await.0, StatusCode::OK);
    cluster.write_keys(replica.tls_dir.path(), &cluster.ca.server());
    wait_for("a line under the first CA", async { while cluster.dial(&replica, "token-p-a").open().await.is_err() {} }).await;
    cluster.ca = crate::harness::Ca::new();
    cluster.write_keys(replica.tls_dir.path(), &cluster.ca.server());
    wait_for("a line under the second CA", async { while cluster.dial(&replica, "token-p-a").open().await.is_err() {} }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn status_live_without_a_line_is_cleared_after_a_start() {
    let cluster = TestCluster::new();
    cluster.agent("a", "u-a", "p-a");
    let mut object = cluster.api.get("yoipods", "ns", "a");
    object["status"]["live"] = json!({"podUID": "p-a", "activity": "Idle", "observedAt": "2026-01-01T00:00:00Z"});
    cluster.api.put("yoipods", object);
    let _replica = cluster.replica_without_keys(GatewaySettings { stale_live_delay: Duration::from_millis(100), ..quick_settings() }).await;
    cluster.api.wait_until("yoipods", "ns", "a", |pod| pod["status"]["live"].is_null()).await;
}
