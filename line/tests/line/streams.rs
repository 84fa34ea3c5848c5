//! Bodies that stream, that are not read, or whose reader leaves.

use crate::harness::*;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::response::Response;
use axum::routing::{get, post};
use futures::StreamExt;
use http_body_util::BodyExt;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::{Mutex, mpsc, watch};
use yoi_line::*;
use yoi_test_support::eventually;

async fn line_to(service: Router) -> (Gateway, LineHandle) {
    let ca = Ca::new();
    let mut gateway = Gateway::start(&ca).await;
    let dial = dial(&ca, gateway.address);
    tokio::spawn(async move { serve_on_line(&dial, service, std::future::pending()).await });
    let line = gateway.line().await;
    (gateway, line)
}

#[tokio::test]
async fn events_pass_one_by_one_as_they_are_sent() {
    let (sender, receiver) = mpsc::unbounded_channel::<Bytes>();
    let receiver = Arc::new(Mutex::new(Some(receiver)));
    let service = Router::new().route(
        "/events",
        get(move || async move {
            let receiver = receiver.lock().await.take().unwrap();
            let events = futures::stream::unfold(receiver, |mut receiver| async {
                receiver.recv().await.map(|event| (Ok::<_, Infallible>(event), receiver))
            });
            Response::builder().header("content-type", "text/event-stream").body(Body::from_stream(events)).unwrap()
        }),
    );
    let (_gateway, line) = line_to(service).await;
    let mut events = wait_for("the head", line.request(get_request("/events"))).await.unwrap().into_body();
    // The next event is sent only after the last one was read, so no hop may buffer it.
    for n in 0..20 {
        sender.send(format!("data: {n}\n\n").into()).unwrap();
        let frame = wait_for("an event", events.frame()).await.unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), format!("data: {n}\n\n"));
    }
    drop(sender);
    assert!(wait_for("the end", events.collect()).await.unwrap().to_bytes().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_reads_nothing_blocks_no_other() {
    const SLOW: usize = 300;
    let flowed = Arc::new(AtomicUsize::new(0));
    let counted = flowed.clone();
    let service = hello_service().route(
        "/endless",
        get(move || async move {
            let chunk = Bytes::from(vec![7; 64 << 10]);
            Body::from_stream(futures::stream::repeat(chunk).map(move |chunk| {
                counted.fetch_add(chunk.len(), Ordering::Relaxed);
                Ok::<_, Infallible>(chunk)
            }))
        }),
    );
    let (_gateway, line) = line_to(service).await;
    let mut still = Vec::new();
    for _ in 0..SLOW {
        still.push(wait_for("a head", line.request(get_request("/endless"))).await.unwrap());
    }
    // The windows are full once each stream has sent more than one window.
    eventually("full windows", async || (flowed.load(Ordering::Relaxed) >= SLOW * (256 << 10)).then_some(())).await;
    for _ in 0..100 {
        assert_says_hello(&line).await;
    }
    let mut one = still.pop().unwrap().into_body();
    for _ in 0..64 {
        wait_for("more for a reader that reads again", one.frame()).await.unwrap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_burst_of_readers_who_leave_does_not_end_the_line() {
    const MANY: usize = 500;
    let (here, mut present) = watch::channel(0usize);
    let here = Arc::new(here);
    struct Reader(Arc<watch::Sender<usize>>);
    impl Drop for Reader {
        fn drop(&mut self) {
            self.0.send_modify(|present| *present -= 1);
        }
    }
    let service = hello_service().route(
        "/events",
        get(move || async move {
            here.send_modify(|present| *present += 1);
            let reader = Reader(here.clone());
            let events = futures::stream::unfold(reader, |reader| async {
                tokio::task::yield_now().await;
                Some((Ok::<_, Infallible>(Bytes::from_static(b"data: x\n\n")), reader))
            });
            Body::from_stream(events)
        }),
    );
    let (_gateway, line) = line_to(service).await;
    for _ in 0..3 {
        let asked = (0..MANY).map(|_| line.request(get_request("/events")));
        let readers = wait_for("all heads", futures::future::try_join_all(asked)).await.unwrap();
        wait_for("all readers", present.wait_for(|present| *present == MANY)).await.unwrap();
        drop(readers);
        wait_for("the last reader to leave", present.wait_for(|present| *present == 0)).await.unwrap();
    }
    // Readers that leave before the response.
    let impatient = (0..MANY).map(|_| tokio::time::timeout(std::time::Duration::ZERO, line.request(get_request("/hello"))));
    futures::future::join_all(impatient).await;
    assert_says_hello(&line).await;
    assert!(!line.is_closed());
}

#[tokio::test]
async fn a_large_body_passes_both_ways() {
    let (_gateway, line) = line_to(Router::new().route("/echo", post(|body: Body| async move { body }))).await;
    let sent: Vec<u8> = (0..8usize << 20).map(|n| (n % 251) as u8).collect();
    let request = http::Request::post("/echo").body(Body::from(sent.clone())).unwrap();
    let response = wait_for("the head", line.request(request)).await.unwrap();
    let got = wait_for("the body", response.into_body().collect()).await.unwrap().to_bytes();
    assert!(got == sent, "{} of {} bytes came back", got.len(), sent.len());
}

#[tokio::test]
async fn a_handler_that_panics_fails_alone() {
    let (_gateway, line) = line_to(hello_service().route("/panic", get(async || -> &'static str { panic!("planted") }))).await;
    let broken = wait_for("the failure", line.request(get_request("/panic"))).await;
    assert!(matches!(broken, Err(RequestError::Broken(_))), "{broken:?}");
    assert_says_hello(&line).await;
}
