//! The client's connections, on a loopback port.

use std::net::SocketAddr;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, WatchParams};
use kube::{Api, Config};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use yoi_test_support::eventually;
use yoi_watch_cache::client_builder;

async fn listener() -> (TcpListener, Config) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, Config::new(format!("http://{address}").parse().unwrap()))
}

async fn read_head(stream: &mut TcpStream) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
}

/// Kind and remaining time of the kernel's timer of this socket: kind 2 is the one that probes a quiet connection.
fn timer(local: SocketAddr, remote: SocketAddr) -> Option<(String, Duration)> {
    let port = |address: SocketAddr| format!(":{:04X}", address.port());
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let fields = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let socket = fields.into_iter().find(|f| f.len() > 5 && f[1].ends_with(&port(local)) && f[2].ends_with(&port(remote)))?;
    let (kind, left) = socket[5].split_once(':')?;
    Some((kind.to_owned(), Duration::from_millis(10 * u64::from_str_radix(left, 16).ok()?)))
}

#[tokio::test]
async fn the_connection_of_a_quiet_watch_is_probed_within_twenty_seconds() {
    let (listener, config) = listener().await;
    let client = client_builder(config).unwrap().build();
    let maps = Api::<ConfigMap>::default_namespaced(client);
    let params = WatchParams::default();
    let (watch, served) = tokio::join!(maps.watch(&params, "0"), async {
        let (mut stream, client) = listener.accept().await.unwrap();
        read_head(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n").await.unwrap();
        (stream, client)
    });
    let (_watch, (stream, client)) = (watch.unwrap(), served);
    // The kernel sets this timer when the last byte is acknowledged.
    let server = stream.local_addr().unwrap();
    let left = eventually("the kernel's timer of the connection is one that probes it", async || {
        timer(client, server).and_then(|(kind, left)| (kind == "02").then_some(left))
    });
    let left = left.await;
    assert!(left <= Duration::from_secs(20), "{left:?}");
}

#[tokio::test]
async fn a_proxy_that_would_not_be_used_is_an_error() {
    let (_listener, mut config) = listener().await;
    config.proxy_url = Some("http://proxy.example:3128".parse().unwrap());
    assert!(client_builder(config).is_err());
}

#[tokio::test]
async fn answers_are_read_and_errors_of_the_api_server_are_its_own() {
    let (listener, config) = listener().await;
    let client = client_builder(config).unwrap().build();
    let maps = Api::<ConfigMap>::default_namespaced(client);
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        for (line, body) in [
            ("200 OK", r#"{"metadata":{},"items":[{"metadata":{"name":"a"}}]}"#),
            ("403 Forbidden", r#"{"kind":"Status","status":"Failure","reason":"Forbidden","message":"no","code":403}"#),
        ] {
            read_head(&mut stream).await;
            let answer = format!("HTTP/1.1 {line}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}", body.len());
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    let listed = maps.list(&ListParams::default()).await.unwrap();
    assert_eq!(listed.items.len(), 1);
    let refused = maps.get("a").await.unwrap_err();
    assert!(matches!(&refused, kube::Error::Api(status) if status.code == 403), "{refused:?}");
}
