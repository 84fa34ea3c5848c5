//! Limits on unauthenticated connections, and on requests that do not end.

use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use yoi_gateway::GatewaySettings;
use yoi_line::ConnectionLimits;
use yoi_wire::hub::{PodList, gateway_api};

use crate::harness::{TestCluster, quick_settings, wait_for};

#[tokio::test(flavor = "multi_thread")]
async fn silent_connections_are_few_and_short() {
    let cluster = TestCluster::new();
    cluster.agent("a", "u-a", "p-a");
    let connections = ConnectionLimits {
        unauthenticated: 64,
        unauthenticated_per_address: 4,
        authenticate_within: Duration::from_secs(2),
        per_client: 2,
    };
    let replica = cluster.replica_without_keys(GatewaySettings { connections, ..quick_settings() }).await;
    cluster.write_keys(replica.tls_dir.path(), &cluster.ca.server());
    let caller = cluster.caller(&replica, "token-p-a");
    wait_for("the port", async { while caller.post_json::<_, PodList>(gateway_api::LIST_PODS, &json!({})).await.is_err() {} }).await;
    for port in [replica.runtimes, replica.api, replica.health] {
        let mut silent = Vec::new();
        for _ in 0..4 {
            silent.push(TcpStream::connect(port).await.unwrap());
        }
        // One more is closed unread; the others at their deadline.
        let mut refused = TcpStream::connect(port).await.unwrap();
        let _ = refused.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await;
        let mut received = Vec::new();
        let _ = wait_for("the end of one too many", refused.read_to_end(&mut received)).await;
        assert!(received.is_empty(), "port {port}: {}", String::from_utf8_lossy(&received));
        for mut tcp in silent {
            let _ = wait_for("the end of a silent one", tcp.read_to_end(&mut received)).await;
        }
        // The authenticated client stays, and a new one finds a slot again.
        caller.post_json::<_, PodList>(gateway_api::LIST_PODS, &json!({})).await.unwrap();
        let again = cluster.caller(&replica, "token-p-a");
        wait_for("a free slot", async { while again.post_json::<_, PodList>(gateway_api::LIST_PODS, &json!({})).await.is_err() {} }).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_never_ends_is_ended() {
    let cluster = TestCluster::new();
    cluster.agent("a", "u-a", "p-a");
    let replica = cluster
        .replica_without_keys(GatewaySettings { request_timeout: Duration::from_millis(300), requests_per_agent: 1, ..quick_settings() })
        .await;
    cluster.write_keys(replica.tls_dir.path(), &cluster.ca.server());
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
