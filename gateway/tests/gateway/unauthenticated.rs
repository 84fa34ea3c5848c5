//! Limits on unauthenticated connections, and on requests that do not end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use serde_json::json;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;
use yoi_gateway::GatewaySettings;
use yoi_line::ConnectionLimits;
use yoi_test_support::slowness;
use yoi_wire::hub::{PodList, gateway_api};

use crate::harness::{Replica, TestCluster, quick_settings, wait_for};

#[tokio::test(flavor = "multi_thread")]
async fn silent_connections_are_few_and_short() {
    let cluster = TestCluster::new();
    cluster.agent("a", "u-a", "p-a");
    let limits =
        |authenticate_within| ConnectionLimits { unauthenticated: 64, unauthenticated_per_address: 4, authenticate_within, per_client: 2 };
    // At the first one the deadline never comes in a test, so its oldest connection makes room for one more.
    for (within, deadline) in [(Duration::from_secs(36_000), false), (Duration::from_secs(2), true)] {
        let replica = cluster.starting_replica(GatewaySettings { connections: limits(within), ..quick_settings() }).await;
        let caller = cluster.caller(&replica, "token-p-a");
        wait_for("the port", async { while caller.post_json::<_, PodList>(gateway_api::LIST_PODS, &json!({})).await.is_err() {} }).await;
        for port in [replica.runtimes, replica.api, replica.health, replica.metrics] {
            let mut silent = Vec::new();
            for _ in 0..5 {
                silent.push(TcpStream::connect(port).await.unwrap());
            }
            let mut received = Vec::new();
            for mut tcp in silent.into_iter().take(if deadline { 5 } else { 1 }) {
                let _ = wait_for(format!("the end of a silent one at port {port}"), tcp.read_to_end(&mut received)).await;
            }
            assert!(received.is_empty(), "port {port}: {}", String::from_utf8_lossy(&received));
            // The authenticated client stays.
            caller.post_json::<_, PodList>(gateway_api::LIST_PODS, &json!({})).await.unwrap();
        }
    }
}

/// Keeps `count` connections open to `port` from each of `addresses` addresses, and opens each again whenever it is closed.
/// Returns when each was open once.
async fn connect_silently_from_many(port: SocketAddr, addresses: u8, count: usize) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    let (opened, mut opening) = watch::channel(0);
    let opened = Arc::new(opened);
    for n in 0..usize::from(addresses) * count {
        let opened = opened.clone();
        let source = SocketAddr::from(([127, 0, 1, 1 + u8::try_from(n / count).unwrap()], 0));
        tasks.spawn(async move {
            let mut first = true;
            loop {
                let socket = TcpSocket::new_v4().unwrap();
                socket.bind(source).unwrap();
                if let Ok(mut tcp) = socket.connect(port).await {
                    opened.send_modify(|opened| *opened += usize::from(std::mem::take(&mut first)));
                    let _ = tcp.read_to_end(&mut Vec::new()).await;
                }
                // The pace of the attack.
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
        });
    }
    wait_for("all silent connections", opening.wait_for(|opened| *opened == usize::from(addresses) * count)).await.unwrap();
    tasks
}

/// As the kubelet does it, which waits one second. For the kubelet, three probes without an answer take the Pod out of its Service; a busy
/// machine may be slow more often. After 10 s the silent connections that were there first are closed, so all probes end before.
async fn probe(replica: &Replica) -> StatusCode {
    for _ in 0..8 {
        if let Ok(answer) = timeout(Duration::from_secs(1).mul_f64(slowness()), replica.try_health("/readyz")).await {
            return answer.unwrap().0;
        }
    }
    panic!("eight probes had no answer")
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_connections_from_many_addresses_keep_nobody_out() {
    let cluster = TestCluster::new();
    cluster.agent("a", "u-a", "p-a");
    cluster.api.allow("alice", "get log");
    let replica = cluster.replica().await;
    let _a = cluster.runtime(&[&replica], "token-p-a").await;
    for port in [replica.health, replica.metrics, replica.runtimes, replica.api] {
        // More than the port takes.
        let _silent = connect_silently_from_many(port, 100, 3).await;
        for _ in 0..10 {
            assert_eq!(probe(&replica).await, StatusCode::OK);
            wait_for("the metrics", replica.metrics()).await;
            let newcomer = cluster.caller(&replica, "token-p-a");
            newcomer.post_json::<_, PodList>(gateway_api::LIST_PODS, &json!({})).await.unwrap();
            let log = "/apis/runtime.yoi.dev/v1alpha1/namespaces/ns/yoipods/a/log";
            assert_eq!(wait_for("the log", cluster.request(&replica, "alice", "GET", log, None)).await.0, StatusCode::OK);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_never_ends_is_ended() {
    let cluster = TestCluster::new();
    cluster.agent("a", "u-a", "p-a");
    let settings = GatewaySettings { request_timeout: Duration::from_secs(3), requests_per_agent: 1, ..quick_settings() };
    let replica = cluster.starting_replica(settings).await;
    let caller = cluster.caller(&replica, "token-p-a");
    wait_for("the port", async { while caller.post_json::<_, PodList>(gateway_api::LIST_PODS, &json!({})).await.is_err() {} }).await;
    let (parts, body) = futures::channel::mpsc::unbounded::<Result<hyper::body::Frame<bytes::Bytes>, std::io::Error>>();
    let endless = http_body_util::StreamBody::new(body);
    let request = axum::http::Request::post(gateway_api::SEND).header("content-type", "application/json").body(endless).unwrap();
    let answer = wait_for("the end", caller.call(request)).await.unwrap();
    assert_eq!(answer.status(), 408);
    drop(parts);
    // The request has freed the agent's only permit.
    caller.post_json::<_, PodList>(gateway_api::LIST_PODS, &json!({})).await.unwrap();
}
