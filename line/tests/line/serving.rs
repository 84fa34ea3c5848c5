//! The TLS server.

use crate::harness::*;
use axum::body::Body;
use axum::http::StatusCode;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use yoi_line::*;

async fn connect(ca: &Ca, address: SocketAddr, pair: Option<&Pair>, alpn: &str) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(ca.pem.as_bytes()).unwrap()).unwrap();
    let builder = rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let mut config = match pair {
        None => builder.with_no_client_auth(),
        Some(Pair { cert, key }) => {
            let chain = vec![CertificateDer::from_pem_slice(cert.as_bytes()).unwrap()];
            builder.with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap()).unwrap()
        }
    };
    config.alpn_protocols = vec![alpn.as_bytes().to_vec()];
    let name = ServerName::try_from(NAME).unwrap();
    tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, TcpStream::connect(address).await?).await
}

async fn who(ca: &Ca, address: SocketAddr, pair: Option<&Pair>, alpn: &str) -> Result<String, Box<dyn std::error::Error>> {
    let io = TokioIo::new(connect(ca, address, pair, alpn).await?);
    let request = http::Request::builder().uri(format!("https://{NAME}/who")).body(Body::empty())?;
    let response = if alpn == "h2" {
        let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await?;
        tokio::spawn(connection);
        sender.send_request(request).await?
    } else {
        let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await?;
        tokio::spawn(connection);
        sender.send_request(request).await?
    };
    Ok(text(response).await)
}

#[tokio::test]
async fn a_verified_client_certificate_carries_its_name_and_one_of_another_ca_gets_no_answer() {
    let (ca, front, other) = (Ca::new(), Ca::new(), Ca::new());
    let auth = ClientAuth::OptionalVerifiedBy { ca_pem: front.pem.clone() };
    let gateway = Gateway::start_with(&ca, &auth, quick_limits()).await;
    let address = gateway.address;
    let proxy = front.client(&["front-proxy-client"]);
    for alpn in ["h2", "http/1.1"] {
        assert_eq!(who(&ca, address, Some(&proxy), alpn).await.unwrap(), r#"Some("front-proxy-client") in 1 bytes"#);
        assert_eq!(who(&ca, address, None, alpn).await.unwrap(), "no certificate");
        who(&ca, address, Some(&other.client(&["front-proxy-client"])), alpn).await.expect_err("signed by another CA");
        who(&ca, address, Some(&front.server()), alpn).await.expect_err("a server's certificate is no client's");
    }
    let doubtful = front.client(&["front-proxy-client", "somebody-else"]);
    assert_eq!(who(&ca, address, Some(&doubtful), "h2").await.unwrap(), "None in 1 bytes");

    // After a reload, clients of the old CA are refused and those of the new one are served.
    let pair = ca.server();
    let auth = ClientAuth::OptionalVerifiedBy { ca_pem: other.pem.clone() };
    gateway.tls.send_replace(tls_server_config(&pair.cert, &pair.key, &auth).unwrap());
    who(&ca, address, Some(&proxy), "h2").await.expect_err("its CA was removed");
    assert!(who(&ca, address, Some(&other.client(&["new"])), "h2").await.unwrap().contains("new"));
}

#[tokio::test]
async fn without_client_auth_the_server_requests_no_certificate() {
    let ca = Ca::new();
    let gateway = Gateway::start(&ca).await;
    assert_eq!(who(&ca, gateway.address, Some(&ca.client(&["x"])), "h2").await.unwrap(), "no certificate");
}

#[tokio::test]
async fn a_request_without_an_upgrade_gets_426() {
    let ca = Ca::new();
    let gateway = Gateway::start(&ca).await;
    let caller = RequestClient::new(dial(&ca, gateway.address));
    let response = caller.call(get_request("/line")).await.unwrap();
    assert_eq!(response.status(), StatusCode::UPGRADE_REQUIRED);
    assert!(text(response).await.contains("HTTP/1.1"));
}

#[tokio::test]
async fn clients_that_never_finish_a_handshake_are_dropped_in_time() {
    let ca = Ca::new();
    let limits = ServeLimits { max_handshakes: 2, handshake: Duration::from_secs(3), ..quick_limits() };
    let gateway = Gateway::start_with(&ca, &ClientAuth::None, limits).await;
    let mut idle = Vec::new();
    for _ in 0..4 {
        idle.push(TcpStream::connect(gateway.address).await.unwrap());
    }
    let answer = wait_for("an answer behind four idle clients", who(&ca, gateway.address, None, "h2")).await.unwrap();
    assert_eq!(answer, "no certificate");
    let mut left = Vec::new();
    let _ = wait_for("the first idle client's end", idle[0].read_to_end(&mut left)).await;
}

#[tokio::test]
async fn no_more_handshakes_are_begun_than_allowed() {
    let ca = Ca::new();
    let limits = |max_handshakes| ServeLimits { max_handshakes, handshake: Duration::from_secs(600), ..quick_limits() };
    // A server that handshakes with both clients answers the second one after so many turns of this thread, on which both run.
    let generous = Gateway::start_with(&ca, &ClientAuth::None, limits(2)).await;
    let _idle = TcpStream::connect(generous.address).await.unwrap();
    let mut answer = std::pin::pin!(who(&ca, generous.address, None, "h2"));
    let mut needed = 0;
    let answered = wait_for("the answer of the generous one", async {
        loop {
            needed += 1;
            match turn(answer.as_mut()).await {
                Some(answered) => return answered,
                None => tokio::task::yield_now().await,
            }
        }
    });
    assert_eq!(answered.await.unwrap(), "no certificate");

    let gateway = Gateway::start_with(&ca, &ClientAuth::None, limits(1)).await;
    let idle = TcpStream::connect(gateway.address).await.unwrap();
    let mut answer = std::pin::pin!(who(&ca, gateway.address, None, "h2"));
    for _ in 0..20 * needed {
        assert!(turn(answer.as_mut()).await.is_none(), "the second handshake was begun beside the first");
        tokio::task::yield_now().await;
    }
    drop(idle);
    assert_eq!(wait_for("the answer", answer).await.unwrap(), "no certificate");
}

/// Looks once whether the future has ended.
async fn turn<T>(mut future: Pin<&mut impl Future<Output = T>>) -> Option<T> {
    std::future::poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

#[tokio::test]
async fn a_request_head_that_never_ends_is_aborted() {
    let ca = Ca::new();
    let limits = ServeLimits { header_read: Duration::from_millis(300), ..quick_limits() };
    let gateway = Gateway::start_with(&ca, &ClientAuth::None, limits).await;
    let mut slow = connect(&ca, gateway.address, None, "http/1.1").await.unwrap();
    slow.write_all(b"GET /who HTTP/1.1\r\nhost: ").await.unwrap();
    let mut left = Vec::new();
    wait_for("the cut", slow.read_to_end(&mut left)).await.ok();
}

async fn stop_during_a_request(drain: Duration, release: bool) -> (ServeSummary, Result<String, CallError>) {
    let ca = Ca::new();
    let limits = ServeLimits { drain, ..quick_limits() };
    let reserved = ReservedAddress::new();
    let gateway = Gateway::start_on(&ca, reserved.listen(), &ClientAuth::None, limits).await;
    let (caller, state, address) = (RequestClient::new(dial(&ca, gateway.address)), gateway.state.clone(), gateway.address);
    let answer = tokio::spawn(async move { Ok(text(caller.call(get_request("/hold")).await?).await) });
    wait_for("the request", state.waiting.subscribe().wait_for(|waiting| *waiting == 1)).await.unwrap();
    gateway.begin_stop();
    wait_for("the closed listener", async { while TcpStream::connect(address).await.is_ok() {} }).await;
    if release {
        state.release.notify_one();
    }
    (gateway.stop().await, wait_for("the answer", answer).await.unwrap())
}

#[tokio::test]
async fn a_stop_waits_for_answers_and_cuts_at_its_deadline() {
    let (served, answer) = stop_during_a_request(Duration::from_secs(30), true).await;
    assert_eq!((served, answer.unwrap().as_str()), (ServeSummary { cut: 0 }, "held"));
    let (served, answer) = stop_during_a_request(Duration::from_millis(100), false).await;
    assert_eq!(served, ServeSummary { cut: 1 });
    assert!(matches!(answer, Err(CallError::Broken(_))), "{answer:?}");
}

#[test]
fn the_default_crypto_provider_is_neither_set_nor_needed() {
    let ca = Ca::new();
    let pair = ca.server();
    tls_server_config(&pair.cert, &pair.key, &ClientAuth::OptionalVerifiedBy { ca_pem: ca.pem.clone() }).unwrap();
    assert!(rustls::crypto::CryptoProvider::get_default().is_none());
}

#[test]
fn a_text_that_is_no_certificate_is_refused_with_its_name() {
    let ca = Ca::new();
    let Pair { cert, key } = ca.server();
    let error_of = |cert: &str, key: &str, auth: ClientAuth| tls_server_config(cert, key, &auth).unwrap_err().to_string();
    assert!(error_of("", &key, ClientAuth::None).contains("server certificate"));
    assert!(error_of(&cert, "", ClientAuth::None).contains("server key"));
    assert!(error_of(&cert, &key, ClientAuth::OptionalVerifiedBy { ca_pem: String::new() }).contains("client CA"));
    assert!(error_of(&cert, &ca.server().key, ClientAuth::None).contains("TLS configuration"));
}
