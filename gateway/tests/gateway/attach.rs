//! Clients that are attached to an agent.

use std::time::Duration;

use axum::http::StatusCode;
use bytes::Bytes;
use http_body_util::BodyExt;
use yoi_gateway::GatewaySettings;
use yoi_test_support::eventually;

use crate::harness::{Replica, TestCluster, quick_settings, wait_for, writable_log};

const A: &str = "/apis/runtime.yoi.dev/v1alpha1/namespaces/ns/yoipods/a";

fn cluster() -> TestCluster {
    let cluster = TestCluster::new();
    cluster.agent("a", "u-a", "p-a");
    for right in ["get attach", "get log", "get usage", "get export"] {
        cluster.api.allow("alice", right);
    }
    cluster
}

async fn wait_for_attachments(replica: &Replica, count: usize) {
    let line = format!("yoi_gateway_attachments {count}\n");
    eventually(&line, async || replica.metrics().await.contains(&line).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attached_client_gets_each_line_at_once_and_its_leaving_reaches_the_runtime() {
    let cluster = cluster();
    let replica = cluster.replica().await;
    let a = cluster.runtime(&[&replica], "token-p-a").await;
    let (lines, body) = writable_log();
    *a.state.attach.lock().unwrap() = Some(body);
    let pair = cluster.front.client(&["front-proxy-client"]);
    cluster.api.wait_until("yoipods", "ns", "a", |a| a["status"]["live"].is_object()).await;
    let writes = cluster.api.writes();
    let mut response =
        cluster.request_with(replica.api, Some(&pair), "alice", "GET", &format!("{A}/attach?after=s.1&tail=3&x=y"), None).await;
    assert_eq!((response.status(), response.headers()["content-type"].to_str().unwrap()), (StatusCode::OK, "application/x-ndjson"));
    assert_eq!(a.state.steering.lock().unwrap().attached, ["follow=true&tail=3&after=s.1"]);
    for n in 0..3 {
        let line = Bytes::from(format!("{{\"type\":\"delta\",\"n\":{n}}}\n"));
        lines.send(Ok(line.clone())).await.unwrap();
        let frame = wait_for("the line", response.body_mut().frame()).await.unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), line);
    }
    wait_for_attachments(&replica, 1).await;
    drop(response);
    wait_for("the end upstream", lines.closed()).await;
    wait_for_attachments(&replica, 0).await;
    assert_eq!(cluster.api.writes(), writes, "an attachment wrote to the API server");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_the_runtimes_stream_is_an_end_and_the_stop_of_the_gateway_is_an_error() {
    let cluster = cluster();
    let replica = cluster.replica().await;
    let a = cluster.runtime(&[&replica], "token-p-a").await;
    let pair = cluster.front.client(&["front-proxy-client"]);
    let attach = async || cluster.request_with(replica.api, Some(&pair), "alice", "GET", &format!("{A}/attach"), None).await;
    let (lines, body) = writable_log();
    *a.state.attach.lock().unwrap() = Some(body);
    let mut ended = attach().await;
    lines.send(Ok(Bytes::from("{\"type\":\"ended\"}\n"))).await.unwrap();
    drop(lines);
    assert!(wait_for("the line", ended.body_mut().frame()).await.unwrap().is_ok());
    assert!(wait_for("the end", ended.body_mut().frame()).await.is_none());
    let (lines, body) = writable_log();
    *a.state.attach.lock().unwrap() = Some(body);
    let mut broken = attach().await;
    replica.stop.cancel();
    assert!(wait_for("the error", broken.body_mut().frame()).await.unwrap().is_err());
    drop(lines);
}

#[tokio::test(flavor = "multi_thread")]
async fn p45_a_client_that_never_reads_is_cut_and_others_of_the_agent_are_served_meanwhile() {
    let cluster = cluster();
    let settings = GatewaySettings { attach_write_timeout: Duration::from_secs(8), ..quick_settings() };
    let replica = cluster.ready_replica(settings).await;
    let a = cluster.runtime(&[&replica], "token-p-a").await;
    let pair = cluster.front.client(&["front-proxy-client"]);
    let (lines, body) = writable_log();
    *a.state.attach.lock().unwrap() = Some(body);
    let lazy = cluster.request_with(replica.api, Some(&pair), "alice", "GET", &format!("{A}/attach"), None).await;
    let chunk = Bytes::from(vec![b'x'; 1 << 20]);
    let writer = tokio::spawn(async move {
        let mut taken = 0;
        while lines.send(Ok(chunk.clone())).await.is_ok() {
            taken += 1;
            assert!(taken < 64, "64 MiB were taken for a client that reads nothing");
        }
    });
    let mut served = 0;
    while !writer.is_finished() {
        let (status, _) = cluster.request(&replica, "alice", "GET", &format!("{A}/log"), None).await;
        assert_eq!(status, StatusCode::OK);
        served += 1;
    }
    // One that waits for this client until it is cut serves one or two meanwhile.
    assert!(served > 4, "only {served} other requests were served before the client was cut");
    wait_for("the cut", writer).await.unwrap();
    wait_for_attachments(&replica, 0).await;
    // When it reads at last, it finds the stream broken and not ended.
    let mut body = lazy.into_body();
    let end = wait_for("the error", async {
        loop {
            match body.frame().await {
                Some(Ok(_)) => {}
                end => return end,
            }
        }
    });
    assert!(end.await.is_some_and(|end| end.is_err()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_agent_is_not_attached_to_and_gets_no_reader_for_it() {
    let cluster = TestCluster::new();
    cluster.put_agent("a", "u-a", "", "Stopped");
    cluster.api.allow("alice", "get attach");
    let replica = cluster.replica().await;
    let (status, body) = cluster.request(&replica, "alice", "GET", &format!("{A}/attach"), None).await;
    assert_eq!(
        (status, body["message"].as_str()),
        (StatusCode::CONFLICT, Some("YoiPod ns/a is Stopped: start it with kubectl yoi start a -n ns"))
    );
    assert!(cluster.api.get("yoipods", "ns", "a")["status"]["reader"].is_null());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_is_none_is_refused_before_the_runtime_is_asked() {
    let cluster = cluster();
    let replica = cluster.replica().await;
    let a = cluster.runtime(&[&replica], "token-p-a").await;
    let (status, _) = cluster.request(&replica, "alice", "GET", &format!("{A}/attach?after=a%26follow%3Dfalse"), None).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(a.state.steering.lock().unwrap().attached.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn usage_and_segments_come_as_the_runtime_gives_them() {
    let cluster = cluster();
    let replica = cluster.replica().await;
    let _a = cluster.runtime(&[&replica], "token-p-a").await;
    let (status, usage) = cluster.request(&replica, "alice", "GET", &format!("{A}/usage"), None).await;
    assert_eq!((status, usage["activity"].as_str()), (StatusCode::OK, Some("Idle")));
    for path in ["export", "log?export=true"] {
        let (status, archive) = cluster.request(&replica, "alice", "GET", &format!("{A}/{path}"), None).await;
        assert_eq!((status, archive.as_str()), (StatusCode::OK, Some("a tar archive")), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn f16_the_segments_and_the_usage_of_a_stopped_agent_come_from_its_reader() {
    let cluster = TestCluster::new();
    cluster.put_agent("a", "u-a", "", "Stopped");
    cluster.api.token("token-p-r", "ns", "p-r", "gateway.yoi.dev");
    cluster.api.allow("alice", "get export");
    cluster.api.allow("alice", "get usage");
    let replica = cluster.replica().await;
    let operator = async {
        let mut a = cluster.api.wait_until("yoipods", "ns", "a", |a| a["status"]["reader"]["requestedAt"].is_string()).await;
        a["status"]["reader"]["pod"] = serde_json::json!({"name": "a-reader", "uid": "p-r"});
        cluster.api.put("yoipods", a);
        cluster.runtime(&[&replica], "token-p-r").await
    };
    let path = format!("{A}/export");
    let reading = cluster.request(&replica, "alice", "GET", &path, None);
    let (_reader, (status, archive)) = wait_for("the archive", async { tokio::join!(operator, reading) }).await;
    assert_eq!((status, archive.as_str()), (StatusCode::OK, Some("a tar archive")));
    let (status, usage) = cluster.request(&replica, "alice", "GET", &format!("{A}/usage"), None).await;
    assert_eq!((status, usage["activity"].as_str()), (StatusCode::OK, Some("Idle")), "as the reader says it");
    assert_eq!(cluster.api.get("yoipods", "ns", "a")["spec"]["desiredState"], "Stopped");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_was_attached_until_the_agent_stopped_reads_the_rest_from_its_reader_by_the_token_of_the_stream() {
    let cluster = cluster();
    let replica = cluster.replica().await;
    let a = cluster.runtime(&[&replica], "token-p-a").await;
    let pair = cluster.front.client(&["front-proxy-client"]);
    let (lines, body) = writable_log();
    *a.state.attach.lock().unwrap() = Some(body);
    let mut attached = cluster.request_with(replica.api, Some(&pair), "alice", "GET", &format!("{A}/attach?tail=3"), None).await;
    lines.send(Ok(Bytes::from("{\"type\":\"entry\",\"token\":\"g:7\"}\n"))).await.unwrap();
    assert!(wait_for("the entry", attached.body_mut().frame()).await.unwrap().is_ok());
    // The agent stops, and the stream breaks before its last entries.
    drop(a);
    cluster.put_agent("a", "u-a", "", "Stopped");
    wait_for("the end of the stream", async { while let Some(Ok(_)) = attached.body_mut().frame().await {} }).await;
    let refused = wait_for("the refusal", async {
        loop {
            let (status, body) = cluster.request(&replica, "alice", "GET", &format!("{A}/attach?after=g:7"), None).await;
            if status == StatusCode::CONFLICT {
                return body;
            }
        }
    });
    assert!(refused.await["message"].as_str().unwrap().contains("is Stopped"));
    cluster.api.token("token-p-r", "ns", "p-r", "gateway.yoi.dev");
    let operator = async {
        let mut a = cluster.api.wait_until("yoipods", "ns", "a", |a| a["status"]["reader"]["requestedAt"].is_string()).await;
        a["status"]["reader"]["pod"] = serde_json::json!({"name": "a-reader", "uid": "p-r"});
        cluster.api.put("yoipods", a);
        cluster.runtime(&[&replica], "token-p-r").await
    };
    let path = format!("{A}/log?follow=false&after=g:7");
    let reading = cluster.request(&replica, "alice", "GET", &path, None);
    let (reader, (status, log)) = wait_for("the rest", async { tokio::join!(operator, reading) }).await;
    assert_eq!(status, StatusCode::OK, "{log}");
    assert_eq!(reader.state.log_queries.lock().unwrap().as_slice(), ["follow=false&after=g:7"]);
}
