//! A fake gateway. It accepts every runtime and records what it gets.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::response::IntoResponse;
use axum::routing::{get, post};
use axum::{Json, Router};
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use tokio::net::TcpListener;
use tokio::sync::watch;
use yoi_line::{ClientAuth, KeepAlive, LineHandle, ServeLimits, accept_upgrade, serve_tls, tls_server_config};
use yoi_test_support::{eventually, eventually_in, in_time};
use yoi_wire::control::AttachLine;
use yoi_wire::entry::AgentRef;
use yoi_wire::hub::{
    DeliverRequest, MessageSender, PodList, Refusal, RefusalReason, ReportAccepted, RuntimeReport, SendRequest, SendResponse,
    VisibilityReason, VisiblePod, gateway_api, runtime_api,
};
use yoi_wire::people::LogLine;

/// What happens to a message to a peer.
#[derive(Clone, Copy, Debug)]
pub enum SendFate {
    /// It arrives, but the answer never comes.
    Lost,
    /// It arrives, and the gateway answers that the receiver has not acknowledged it.
    Unacknowledged,
    Delivered,
}

#[derive(Clone)]
pub struct Gateway {
    pub address: String,
    pub ca: String,
    seen: Arc<Recorded>,
}

struct Recorded {
    reports: Mutex<Vec<RuntimeReport>>,
    /// How many reports have come, recorded or not.
    reports_begun: AtomicUsize,
    /// Time until a report of a ready agent is recorded, even when its sender has gone.
    report_delay: Mutex<Duration>,
    sends: Mutex<Vec<SendRequest>>,
    /// What happens to the next messages. When none is left, `b` has a full inbox and other agents are not visible.
    fates: Mutex<VecDeque<SendFate>>,
    line: watch::Sender<Option<LineHandle>>,
}

pub fn agent(name: &str) -> AgentRef {
    AgentRef { namespace: "ns".to_owned(), name: name.to_owned(), uid: format!("uid-{name}") }
}

impl Gateway {
    pub async fn start() -> Self {
        let made = rcgen::generate_simple_self_signed(vec!["gateway.test".to_owned()]).unwrap();
        let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let seen = Arc::new(Recorded {
            reports: Mutex::default(),
            reports_begun: AtomicUsize::new(0),
            report_delay: Mutex::default(),
            sends: Mutex::default(),
            fates: Mutex::default(),
            line: watch::channel(None).0,
        });
        let router = Router::new()
            .route(gateway_api::LINE, get(line))
            .route(gateway_api::REPORT, post(report))
            .route(gateway_api::LIST_PODS, post(list))
            .route(gateway_api::SEND, post(send))
            .with_state(seen.clone());
        let tls = tls_server_config(&certificate, &key, &ClientAuth::None).unwrap();
        let (_keep, tls) = watch::channel(tls);
        tokio::spawn(async move {
            let _keep = _keep;
            serve_tls(listener, tls, router, ServeLimits::default(), std::future::pending()).await
        });
        Self { address, ca: certificate, seen }
    }

    /// Sets what happens to the next messages to peers.
    pub fn set_fates(&self, fates: impl IntoIterator<Item = SendFate>) {
        self.seen.fates.lock().unwrap().extend(fates);
    }

    /// Sets the time until a report of a ready agent is recorded, even when its sender has gone.
    pub fn set_report_delay(&self, time: Duration) {
        *self.seen.report_delay.lock().unwrap() = time;
    }

    pub fn sends(&self) -> Vec<SendRequest> {
        self.seen.sends.lock().unwrap().clone()
    }

    pub fn reports(&self) -> Vec<RuntimeReport> {
        self.seen.reports.lock().unwrap().clone()
    }

    /// All reports, once each that has come is recorded.
    pub async fn all_reports(&self) -> Vec<RuntimeReport> {
        let is_recorded = |reports: &Vec<RuntimeReport>| reports.len() == self.seen.reports_begun.load(Ordering::SeqCst);
        eventually("the reports that are on their way", async || Some(self.reports()).filter(is_recorded)).await
    }

    pub async fn wait_for_report(&self, wanted: impl Fn(&RuntimeReport) -> bool) -> RuntimeReport {
        let late = |late| format!("{late}: {:?}", self.reports());
        let look = async || Ok(self.reports().into_iter().rev().find(&wanted));
        let usual = Duration::from_secs(100);
        eventually_in(usual, Duration::from_millis(25), "such a report", late, look).await.unwrap_or_else(|late| panic!("{late}"))
    }

    pub async fn request(&self, method: &str, path: &str, body: impl Into<Bytes>) -> (StatusCode, Bytes) {
        let line = self.seen.line.subscribe().wait_for(Option::is_some).await.unwrap().clone().unwrap();
        let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
        let response = line.request(request.body(Full::new(body.into())).unwrap()).await.unwrap();
        (response.status(), response.into_body().collect().await.unwrap().to_bytes())
    }

    /// A request in the name of a person; `None` when the line breaks first.
    pub async fn try_request_as(&self, user: &str, method: &str, path: &str, body: impl Into<Bytes>) -> Option<(StatusCode, Bytes)> {
        let line = self.seen.line.subscribe().wait_for(Option::is_some).await.unwrap().clone().unwrap();
        let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
        let request = request.header(yoi_wire::control::USER_HEADER, user);
        let response = line.request(request.body(Full::new(body.into())).unwrap()).await.ok()?;
        Some((response.status(), response.into_body().collect().await.ok()?.to_bytes()))
    }

    /// A request in the name of a person.
    pub async fn request_as(&self, user: &str, method: &str, path: &str, body: impl Into<Bytes>) -> (StatusCode, Bytes) {
        self.try_request_as(user, method, path, body).await.unwrap()
    }

    /// A request whose body goes on after the head of its answer, in the name of a person.
    pub async fn open(&self, user: &str, path: &str, body: Body) -> Response<hyper::body::Incoming> {
        let line = self.seen.line.subscribe().wait_for(Option::is_some).await.unwrap().clone().unwrap();
        let request = Request::builder().method("POST").uri(path).header(yoi_wire::control::USER_HEADER, user);
        line.request(request.body(body).unwrap()).await.unwrap()
    }

    pub async fn attach(&self, query: &str) -> LineStream<AttachLine> {
        self.stream(&format!("{}?{query}", runtime_api::ATTACH)).await
    }

    pub async fn follow(&self, query: &str) -> LineStream<LogLine> {
        self.stream(&format!("{}?{query}", runtime_api::LOG)).await
    }

    /// A stream of server-sent events, as it comes.
    pub async fn events(&self, query: &str) -> hyper::body::Incoming {
        self.body(&format!("{}?{query}", runtime_api::EVENTS)).await
    }

    async fn stream<T>(&self, path: &str) -> LineStream<T> {
        LineStream { body: self.body(path).await, rest: Vec::new(), lines: std::marker::PhantomData }
    }

    async fn body(&self, path: &str) -> hyper::body::Incoming {
        let line = self.seen.line.subscribe().wait_for(Option::is_some).await.unwrap().clone().unwrap();
        let response = line.request(Request::get(path).body(Full::new(Bytes::new())).unwrap()).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        response.into_body()
    }

    pub fn cut_line(&self) {
        let line = self.seen.line.send_replace(None);
        line.unwrap().close();
    }

    /// Makes the next request wait until the runtime has dialled again.
    pub fn forget_line(&self) {
        self.seen.line.send_replace(None);
    }

    pub async fn deliver(&self, id: &str, from: MessageSender, text: &str) -> (StatusCode, Bytes) {
        let deliver = DeliverRequest { message_id: id.to_owned(), from, text: text.to_owned(), only_when_idle: false, weak: false };
        self.request("POST", runtime_api::INBOX, serde_json::to_vec(&deliver).unwrap()).await
    }

    pub async fn log(&self, query: &str) -> Vec<LogLine> {
        let (status, body) = self.request("GET", &format!("{}?{query}", runtime_api::LOG), Bytes::new()).await;
        assert_eq!(status, StatusCode::OK, "{body:?}");
        body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).map(|line| serde_json::from_slice(line).unwrap()).collect()
    }
}

/// Who sends messages in tests.
pub fn person() -> MessageSender {
    MessageSender { agent: None, person: Some("jane".to_owned()) }
}

/// An answer that is a stream of lines.
pub struct LineStream<T> {
    body: hyper::body::Incoming,
    rest: Vec<u8>,
    lines: std::marker::PhantomData<fn() -> T>,
}

impl<T: serde::de::DeserializeOwned> LineStream<T> {
    /// The complete lines of the next chunk; there may be none.
    pub async fn next(&mut self) -> Vec<T> {
        let frame = in_time("the next chunk", self.body.frame()).await.unwrap().unwrap();
        self.rest.extend_from_slice(&frame.into_data().unwrap());
        let end = self.rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        let whole: Vec<u8> = self.rest.drain(..end).collect();
        whole.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).map(|line| serde_json::from_slice(line).unwrap()).collect()
    }
}

async fn line(State(seen): State<Arc<Recorded>>, request: Request<Body>) -> Response<Body> {
    assert_eq!(yoi_line::bearer(request.headers()), Some("the-token"));
    let (response, line) = accept_upgrade(request, KeepAlive::default()).unwrap();
    tokio::spawn(async move {
        if let Ok(line) = line.await {
            seen.line.send_replace(Some(line));
        }
    });
    response
}

async fn report(State(seen): State<Arc<Recorded>>, Json(report): Json<RuntimeReport>) -> Json<ReportAccepted> {
    seen.reports_begun.fetch_add(1, Ordering::SeqCst);
    let time = *seen.report_delay.lock().unwrap();
    let noted = tokio::spawn(async move {
        if report.ready {
            // A gateway that is slow; no test waits for it by the clock.
            tokio::time::sleep(time).await;
        }
        seen.reports.lock().unwrap().push(report);
    });
    noted.await.unwrap();
    Json(ReportAccepted { agent: agent("a") })
}

async fn list() -> Json<PodList> {
    let pod = |name: &str, reason, live| VisiblePod {
        name: name.to_owned(),
        reasons: vec![reason],
        live,
        state: "Idle".to_owned(),
        session: None,
        not_restorable: None,
    };
    Json(PodList { pods: vec![pod("a", VisibilityReason::Itself, true), pod("b", VisibilityReason::Peer, false)] })
}

async fn send(State(seen): State<Arc<Recorded>>, Json(send): Json<SendRequest>) -> Response<Body> {
    seen.sends.lock().unwrap().push(send.clone());
    let fate = seen.fates.lock().unwrap().pop_front();
    let refusal = |status: StatusCode, reason| (status, Json(Refusal { reason, message: "no".to_owned() })).into_response();
    match fate {
        Some(SendFate::Lost) => std::future::pending().await,
        Some(SendFate::Unacknowledged) => refusal(StatusCode::GATEWAY_TIMEOUT, RefusalReason::Unacknowledged),
        Some(SendFate::Delivered) => Json(SendResponse { message_id: send.message_id, duplicate: false }).into_response(),
        None => refusal(StatusCode::CONFLICT, if send.to == "b" { RefusalReason::InboxFull } else { RefusalReason::NotVisible }),
    }
}
