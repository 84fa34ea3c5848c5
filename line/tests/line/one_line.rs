//! One line, dialled once.

use crate::harness::*;
use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Barrier, mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use yoi_line::*;

async fn dial_error(dial: Dial) -> LineError {
    wait_for("a refusal", serve_on_line(&dial, hello_service(), std::future::pending())).await.expect_err("this dial cannot succeed")
}

#[tokio::test]
async fn the_acceptor_asks_and_the_dialler_answers() {
    let ca = Ca::new();
    let mut gateway = Gateway::start(&ca).await;
    let dial = dial(&ca, gateway.address);
    let stop = CancellationToken::new();
    let stopped = stop.clone();
    let served = tokio::spawn(async move { serve_on_line(&dial, hello_service(), stopped.cancelled()).await });

    let line = gateway.line().await;
    assert_says_hello(&line).await;
    let missing = wait_for("an answer", line.request(get_request("/nothing"))).await.unwrap();
    assert_eq!(missing.status(), StatusCode::NOT_FOUND);
    assert_eq!(gateway.tokens(), ["agent-token"]);

    stop.cancel();
    assert_eq!(wait_for("the end", served).await.unwrap().unwrap(), LineEnd::ShutDown);
    assert_eq!(wait_for("the end", line.closed()).await, LineEnd::ClosedByPeer);
    assert!(line.is_closed());
    assert!(matches!(line.request(get_request("/hello")).await, Err(RequestError::Unsent(_))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_line_carries_max_streams_per_line_requests_at_once() {
    const MANY: usize = MAX_STREAMS_PER_LINE as usize;
    let ca = Ca::new();
    let mut gateway = Gateway::start(&ca).await;
    let dial = dial(&ca, gateway.address);
    // No request is answered before all have arrived.
    let together = Arc::new(Barrier::new(MANY));
    let service = Router::new().route(
        "/n/{n}",
        get(move |axum::extract::Path(n): axum::extract::Path<usize>| async move {
            together.wait().await;
            n.to_string()
        }),
    );
    tokio::spawn(async move { serve_on_line(&dial, service, std::future::pending()).await });
    let line = gateway.line().await;
    let asked = (0..MANY).map(|n| {
        let line = line.clone();
        tokio::spawn(async move {
            let response = line.request(get_request(&format!("/n/{n}"))).await.unwrap();
            assert_eq!(text(response).await, n.to_string());
        })
    });
    wait_for("all answers", futures::future::try_join_all(asked)).await.unwrap();
}

#[tokio::test]
async fn a_server_of_another_ca_or_name_is_refused() {
    let ca = Ca::new();
    let gateway = Gateway::start(&ca).await;
    let other_ca = dial_error(dial(&Ca::new(), gateway.address)).await;
    assert_eq!(other_ca.class(), FailureClass::Tls, "{other_ca:?}");
    let renamed = dial_error(Dial { server_name: "other.test".to_owned(), ..dial(&ca, gateway.address) }).await;
    assert_eq!(renamed.class(), FailureClass::Tls, "{renamed:?}");
    assert!(renamed.failure().message.contains("other.test"), "{}", renamed.failure());
    assert!(gateway.tokens().is_empty(), "a token was shown to an unverified server");
}

#[tokio::test]
async fn a_refusal_carries_its_status_and_message() {
    let ca = Ca::new();
    let gateway = Gateway::start(&ca).await;
    for (status, class) in [
        (StatusCode::UNAUTHORIZED, FailureClass::Refused),
        (StatusCode::FORBIDDEN, FailureClass::Refused),
        (StatusCode::SERVICE_UNAVAILABLE, FailureClass::Answered),
    ] {
        *gateway.state.refuse.lock().unwrap() = Some(status);
        let error = dial_error(dial(&ca, gateway.address)).await;
        assert_eq!(error.class(), class);
        let text = error.to_string();
        assert!(text.contains(status.as_str()) && text.contains("who are you?"), "{text}");
        assert!(!format!("{error:?}").contains("agent-token"));
    }
    let lost = dial_error(Dial { path: "/nowhere".to_owned(), ..dial(&ca, gateway.address) }).await;
    assert_eq!(lost.class(), FailureClass::Answered, "{lost:?}");
}

#[tokio::test]
async fn a_closed_port_is_unreachable_and_a_missing_token_is_a_local_failure() {
    let ca = Ca::new();
    let reserved = ReservedAddress::new();
    let gateway = Gateway::start_at(&ca, &reserved).await;
    let good = dial(&ca, gateway.address);
    let missing = dial_error(Dial { token: TextSource::file("/nonexistent/token"), ..good.clone() }).await;
    assert_eq!(missing.class(), FailureClass::Local);
    assert!(missing.failure().message.contains("/nonexistent/token"), "{}", missing.failure());
    let unfit = dial_error(Dial { token: TextSource::fixed("two\nlines"), ..good.clone() }).await;
    assert_eq!(unfit.class(), FailureClass::Local);
    gateway.stop().await;
    assert_eq!(dial_error(good).await.class(), FailureClass::Unreachable);
}

#[tokio::test]
async fn a_silent_server_is_given_up_in_time() {
    let ca = Ca::new();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let timings = Timings { connect: Duration::from_millis(200), ..Default::default() };
    let silent = dial_error(Dial { timings, ..dial(&ca, listener.local_addr().unwrap()) }).await;
    assert!(matches!(silent, LineError::TimedOut { operation: "agree on TLS", .. }), "{silent:?}");

    let gateway = Gateway::start(&ca).await;
    let timings = Timings { upgrade: Duration::from_millis(200), ..Default::default() };
    let undecided = dial_error(Dial { path: "/hold".to_owned(), timings, ..dial(&ca, gateway.address) }).await;
    assert!(matches!(undecided, LineError::TimedOut { operation: "agree on a line", .. }), "{undecided:?}");
    assert_eq!(undecided.class(), FailureClass::Unreachable);
}

#[tokio::test]
async fn a_peer_that_is_gone_without_closing_is_noticed_at_both_ends() {
    assert!(KeepAlive::default().notice() < Duration::from_secs(20));
    let ca = Ca::new();
    let mut gateway = Gateway::start(&ca).await;
    let proxy = SilenceableProxy::to(gateway.address).await;
    let keep_alive = KeepAlive { interval: Duration::from_millis(300), timeout: Duration::from_secs(2) };
    *gateway.state.keep_alive.lock().unwrap() = keep_alive;
    let dial = Dial { timings: Timings { keep_alive, ..Default::default() }, ..dial(&ca, proxy.address) };
    let served = tokio::spawn(async move { serve_on_line(&dial, hello_service(), std::future::pending()).await });
    let line = gateway.line().await;
    assert_says_hello(&line).await;

    proxy.silence();
    let near = wait_for("the dialler to notice", served).await.unwrap().unwrap();
    assert!(matches!(near, LineEnd::Lost { .. }), "{near:?}");
    let far = wait_for("the acceptor to notice", line.closed()).await;
    assert!(matches!(far, LineEnd::Lost { .. }), "{far:?}");
}

#[tokio::test]
async fn closing_a_line_ends_requests_in_flight_at_both_ends() {
    let ca = Ca::new();
    let mut gateway = Gateway::start(&ca).await;
    let dial = dial(&ca, gateway.address);
    let (begun, mut beginnings) = mpsc::channel::<oneshot::Receiver<()>>(1);
    let service = Router::new().route(
        "/forever",
        get(move || async move {
            // Dropped with the handler.
            let (_alive, dropped) = oneshot::channel::<()>();
            begun.send(dropped).await.unwrap();
            std::future::pending::<()>().await
        }),
    );
    let served = tokio::spawn(async move { serve_on_line(&dial, service, std::future::pending()).await });
    let line = gateway.line().await;
    let asking = line.clone();
    let asked = tokio::spawn(async move { asking.request(get_request("/forever")).await });
    let dropped = wait_for("the handler's beginning", beginnings.recv()).await.unwrap();

    line.close();
    assert_eq!(wait_for("the end", line.closed()).await, LineEnd::ShutDown);
    assert!(matches!(wait_for("the answer", asked).await.unwrap(), Err(RequestError::Broken(_))));
    wait_for("the handler's end", dropped).await.expect_err("the sender is dropped, never used");
    assert!(!matches!(wait_for("the dialler's end", served).await.unwrap().unwrap(), LineEnd::ShutDown));
}

#[tokio::test]
async fn a_stopped_dialler_finishes_its_answers() {
    let ca = Ca::new();
    let mut gateway = Gateway::start(&ca).await;
    let dial = dial(&ca, gateway.address);
    let (begun, mut beginnings) = mpsc::channel::<oneshot::Sender<()>>(1);
    let service = Router::new().route(
        "/slow",
        get(move || async move {
            let (go, gone) = oneshot::channel();
            begun.send(go).await.unwrap();
            gone.await.unwrap();
            "done"
        }),
    );
    let stop = CancellationToken::new();
    let stopped = stop.clone();
    let served = tokio::spawn(async move { serve_on_line(&dial, service, stopped.cancelled()).await });
    let line = gateway.line().await;
    let asking = line.clone();
    let asked = tokio::spawn(async move { text(asking.request(get_request("/slow")).await.unwrap()).await });
    let go = wait_for("the handler's beginning", beginnings.recv()).await.unwrap();

    stop.cancel();
    // Before the GOAWAY arrives, requests are still answered. After it, they fail unsent.
    let error = wait_for("the GOAWAY", async {
        loop {
            if let Err(error) = line.request(get_request("/nothing")).await {
                return error;
            }
        }
    })
    .await;
    assert!(matches!(error, RequestError::Unsent(_)), "{error:?}");
    assert_eq!(wait_for("the end", line.closed()).await, LineEnd::ClosedByPeer);
    go.send(()).unwrap();
    assert_eq!(wait_for("the answer", asked).await.unwrap(), "done");
    assert_eq!(wait_for("the end", served).await.unwrap().unwrap(), LineEnd::ShutDown);
}

#[tokio::test]
async fn a_line_ends_with_its_last_handle() {
    let ca = Ca::new();
    let mut gateway = Gateway::start(&ca).await;
    let dial = dial(&ca, gateway.address);
    let served = tokio::spawn(async move { serve_on_line(&dial, hello_service(), std::future::pending()).await });
    let line = gateway.line().await;
    let other = line.clone();
    drop(line);
    assert_says_hello(&other).await;
    drop(other);
    assert_eq!(wait_for("the end", served).await.unwrap().unwrap(), LineEnd::ClosedByPeer);
}
