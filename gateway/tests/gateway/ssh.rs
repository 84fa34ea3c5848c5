//! A person's way into an agent, through the gateway: who may, and the bytes of the stream.

use axum::http::StatusCode;
use futures::{SinkExt, StreamExt};
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;
use yoi_gateway::GatewaySettings;
use yoi_wire::ssh::{CLOSED, FROM_SERVER, PROTOCOL, TO_SERVER};

use crate::harness::{Replica, TestCluster, quick_settings, wait_for};

const SSH: &str = "/apis/runtime.yoi.dev/v1alpha1/namespaces/ns/yoipods/a/proxy/ssh";
const KEY: &str = "ssh-ed25519%20AAAAC3NzaC1lZDI1NTE5AAAAIJ7";
/// Of a request for a WebSocket.
const NONCE: &str = "dGhlIHNhbXBsZSBub25jZQ==";

fn cluster() -> TestCluster {
    let cluster = TestCluster::new();
    cluster.agent("a", "u-a", "p-a");
    for (user, rights) in [
        ("ann", &["get proxy", "create ssh"][..]),
        ("reads", &["get proxy"]),
        ("half", &["create ssh"]),
        ("tools", &["get proxy", "create tools"]),
    ] {
        rights.iter().for_each(|right| cluster.api.allow(user, right));
    }
    cluster
}

async fn replica(cluster: &TestCluster, ssh: bool) -> Replica {
    cluster.ready_replica(GatewaySettings { ssh, ..quick_settings() }).await
}

fn of_websocket(protocol: &str) -> [(&'static str, String); 5] {
    [
        ("connection", "Upgrade".to_owned()),
        ("upgrade", "websocket".to_owned()),
        ("sec-websocket-version", "13".to_owned()),
        ("sec-websocket-key", NONCE.to_owned()),
        ("sec-websocket-protocol", protocol.to_owned()),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_comes_into_an_agent_without_the_right_to_it_or_unless_the_chart_allows_it() {
    let cluster = cluster();
    let (off, on) = (replica(&cluster, false).await, replica(&cluster, true).await);
    let a = cluster.runtime(&[&off, &on], "token-p-a").await;
    for user in ["reads", "half", "tools"] {
        let (status, body) = cluster.request(&on, user, "GET", SSH, None).await;
        assert!(status == StatusCode::FORBIDDEN && body["message"].as_str().unwrap().contains("cannot"), "{user}: {body}");
    }
    let (status, body) = cluster.request(&off, "ann", "GET", SSH, None).await;
    assert!(status == StatusCode::UNPROCESSABLE_ENTITY && body["message"].as_str().unwrap().contains("--set gateway.ssh=true"), "{body}");
    assert_eq!(cluster.request(&off, "reads", "GET", SSH, None).await.0, StatusCode::FORBIDDEN);
    let refused = cluster.upgrade(&off, "ann", &format!("{SSH}?key={KEY}"), &of_websocket(PROTOCOL)).await;
    assert_eq!(refused.status(), StatusCode::UNPROCESSABLE_ENTITY);
    assert!(a.state.steering.lock().unwrap().attached.is_empty(), "nothing of these has reached the agent");

    let (status, host) = cluster.request(&on, "ann", "GET", SSH, None).await;
    assert_eq!((status, &host["user"]), (StatusCode::OK, &json!("ann")));
    for (path, headers) in [
        (SSH.to_owned(), of_websocket(PROTOCOL)),
        (format!("{SSH}?key=none"), of_websocket(PROTOCOL)),
        (format!("{SSH}?key={KEY}%0A{KEY}"), of_websocket(PROTOCOL)),
        (format!("{SSH}?key={KEY}"), of_websocket("chat")),
    ] {
        assert_eq!(cluster.upgrade(&on, "ann", &path, &headers).await.status(), StatusCode::BAD_REQUEST, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_carries_each_byte_both_ways_and_ends_with_the_server_or_the_gateway() {
    let cluster = cluster();
    let (first, second) = (replica(&cluster, true).await, replica(&cluster, true).await);
    let a = cluster.runtime(&[&first, &second], "token-p-a").await;
    let open = async |replica: &Replica| {
        let offered = format!("{PROTOCOL}, v4.channel.k8s.io");
        let response = cluster.upgrade(replica, "ann", &format!("{SSH}?key={KEY}"), &of_websocket(&offered)).await;
        assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
        assert_eq!(response.headers()["sec-websocket-accept"], derive_accept_key(NONCE.as_bytes()).as_str());
        assert_eq!(response.headers()["sec-websocket-protocol"], PROTOCOL);
        let upgraded = hyper::upgrade::on(response).await.unwrap();
        WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Client, None).await.split()
    };
    // The runtime of this test says back what it is told, and ends after the end of that.
    let (mut sink, mut source) = open(&first).await;
    let sent: Vec<u8> = (0..3_000_000_u32).map(|number| (number % 251) as u8).collect();
    let pieces: Vec<Vec<u8>> = sent.chunks(70_000).map(|piece| [&[TO_SERVER], piece].concat()).collect();
    let writing = tokio::spawn(async move {
        for piece in pieces {
            sink.send(Message::binary(piece)).await.unwrap();
        }
        sink.send(Message::binary(vec![CLOSED, TO_SERVER])).await.unwrap();
        sink
    });
    let mut got = Vec::new();
    loop {
        match wait_for("what is said back", source.next()).await.unwrap().unwrap() {
            Message::Binary(data) => {
                assert_eq!(data[0], FROM_SERVER);
                got.extend_from_slice(&data[1..]);
            }
            Message::Close(_) => break,
            _ => {}
        }
    }
    drop(writing.await.unwrap());
    assert!(got == sent, "{} of {} bytes", got.len(), sent.len());
    assert_eq!(a.state.steering.lock().unwrap().attached, [format!("POST {} by ann", KEY.replace("%20", " "))]);

    let (_sink, mut source) = open(&first).await;
    first.stop.cancel();
    loop {
        match wait_for("the end of the gateway", source.next()).await {
            Some(Ok(Message::Close(_)) | Err(_)) | None => break,
            Some(Ok(_)) => {}
        }
    }
    drop(open(&second).await);
}
