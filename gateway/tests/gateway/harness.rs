//! What the tests share: certificates, replicas of the gateway, agents with lines, and users behind a front proxy.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderMap, Method, Request, Response, StatusCode};
use axum::response::IntoResponse;
use axum::routing::{any, get, post};
use axum::{Json, Router};
use bytes::Bytes;
use futures::Stream;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use yoi_gateway::{GatewaySettings, Ports, run};
use yoi_line::{BackoffPolicy, BoxError, CallError, Dial, KeepPolicy, LineSet, RequestClient, Resolver, TextSource, Timings};
use yoi_test_support::eventually;
use yoi_wire::control::USER_HEADER;
use yoi_wire::fence::{FenceRequest, FenceResponse};
use yoi_wire::hub::{
    Activity, DeliverRequest, Refusal, RefusalReason, ReportReason, RuntimeReport, SendResponse, SessionPointer, gateway_api, runtime_api,
};

use crate::api::FakeApiServer;
pub use crate::certificates::{Ca, NAME, Pair};

pub use yoi_test_support::in_time as wait_for;

pub struct Replica {
    pub runtimes: SocketAddr,
    pub api: SocketAddr,
    pub health: SocketAddr,
    pub metrics: SocketAddr,
    pub tls_dir: tempfile::TempDir,
    pub stop: CancellationToken,
    pub task: JoinHandle<Result<(), yoi_gateway::TaskEnded>>,
}

impl Replica {
    pub async fn wait_ready(&self) {
        eventually("readiness", async || (self.health("/readyz").await.0 == StatusCode::OK).then_some(())).await;
    }
}

pub struct TestCluster {
    pub api: FakeApiServer,
    pub ca: Ca,
    pub front: Ca,
}

pub fn quick_settings() -> GatewaySettings {
    GatewaySettings {
        pod_wait: Duration::from_secs(1),
        line_wait: Duration::from_secs(1),
        ack_timeout: Duration::from_secs(5),
        set_live_delay: Duration::from_millis(50),
        clear_live_delay: Duration::from_millis(200),
        certificate_poll_interval: Duration::from_millis(50),
        serve_on: Duration::from_millis(100),
        drain: Duration::from_secs(2),
        ..GatewaySettings::default()
    }
}

impl TestCluster {
    pub fn new() -> Self {
        let cluster = TestCluster { api: FakeApiServer::new(), ca: Ca::new(), front: Ca::new() };
        cluster.api.put(
            "configmaps",
            json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"namespace": "kube-system", "name": "extension-apiserver-authentication", "uid": "cm"},
            "data": {
                "requestheader-client-ca-file": cluster.front.pem,
                "requestheader-allowed-names": r#"["front-proxy-client"]"#,
                "requestheader-username-headers": r#"["X-Remote-User"]"#,
                "requestheader-group-headers": r#"["X-Remote-Group"]"#,
                "requestheader-extra-headers-prefix": r#"["X-Remote-Extra-"]"#,
            }}),
        );
        cluster
    }

    pub fn write_keys(&self, dir: &std::path::Path, pair: &Pair) {
        std::fs::write(dir.join("tls.crt"), &pair.cert).unwrap();
        std::fs::write(dir.join("tls.key"), &pair.key).unwrap();
    }

    /// A replica that is not ready yet, and has no certificate.
    pub async fn replica_without_keys(&self, settings: GatewaySettings) -> Replica {
        let listen = async || TcpListener::bind("127.0.0.1:0").await.unwrap();
        let ports = Ports { runtimes: listen().await, api: listen().await, health: listen().await, metrics: listen().await };
        let at = |listener: &TcpListener| listener.local_addr().unwrap();
        let (runtimes, api, health, metrics) = (at(&ports.runtimes), at(&ports.api), at(&ports.health), at(&ports.metrics));
        let tls_dir = tempfile::tempdir().unwrap();
        let stop = CancellationToken::new();
        let task = tokio::spawn(run(self.api.client(), tls_dir.path().to_owned(), ports, settings, stop.clone()));
        Replica { runtimes, api, health, metrics, tls_dir, stop, task }
    }

    pub async fn replica(&self) -> Replica {
        self.ready_replica(quick_settings()).await
    }

    /// A replica that has begun to start.
    pub async fn starting_replica(&self, settings: GatewaySettings) -> Replica {
        let replica = self.replica_without_keys(settings).await;
        self.write_keys(replica.tls_dir.path(), &self.ca.server());
        replica
    }

    pub async fn ready_replica(&self, settings: GatewaySettings) -> Replica {
        let replica = self.starting_replica(settings).await;
        replica.wait_ready().await;
        replica
    }

    /// A YoiPod of namespace `ns`, whose Pod's token is `token-<pod uid>`.
    pub fn agent(&self, name: &str, uid: &str, pod_uid: &str) {
        self.api.token(&format!("token-{pod_uid}"), "ns", pod_uid, "gateway.yoi.dev");
        self.put_agent(name, uid, pod_uid, "Running");
    }

    pub fn put_agent(&self, name: &str, uid: &str, pod_uid: &str, desired: &str) {
        let pod = if pod_uid.is_empty() { Value::Null } else { json!({"name": format!("{name}-1"), "uid": pod_uid}) };
        self.api.put(
            "yoipods",
            json!({"apiVersion": "yoi.dev/v1alpha1", "kind": "YoiPod", "metadata": {"namespace": "ns", "name": name, "uid": uid, "generation": 1},
                "spec": {"projectRef": {"name": "p"}, "agent": {"builtin": {}}, "desiredState": desired},
                "status": {"runGeneration": 1, "pod": pod, "conditions": []}}),
        );
    }

    pub fn peer(&self, a: (&str, &str), b: (&str, &str)) {
        self.api.put("yoipeers", yoipeer(a, b));
    }

    /// A YoiPeer that a request reads and no watch shows.
    pub fn unwatched_peer(&self, a: (&str, &str), b: (&str, &str)) {
        self.api.put_unwatched("yoipeers", yoipeer(a, b));
    }

    pub fn dial(&self, replica: &Replica, token: &str) -> Dial {
        Dial {
            address: replica.runtimes.to_string(),
            server_name: NAME.into(),
            ca_pem: TextSource::fixed(self.ca.pem.clone()),
            path: gateway_api::LINE.into(),
            token: TextSource::fixed(token),
            timings: Timings::default(),
        }
    }

    pub fn caller(&self, replica: &Replica, token: &str) -> RequestClient {
        RequestClient::new(self.dial(replica, token))
    }

    /// A runtime with a line to each of these replicas.
    pub async fn runtime(&self, replicas: &[&Replica], token: &str) -> Runtime {
        let addresses: Vec<SocketAddr> = replicas.iter().map(|replica| replica.runtimes).collect();
        let wanted = addresses.len();
        let resolver = Resolver::from_fn(move || futures::future::ready(Ok(addresses.clone())));
        let backoff = BackoffPolicy { first: Duration::from_millis(50), ..BackoffPolicy::default() };
        let policy = KeepPolicy { backoff, ..KeepPolicy::default() };
        self.runtime_with(resolver, policy, wanted, self.dial(replicas[0], token)).await
    }

    /// A runtime with lines to the replicas that the resolver returns; `wanted` of them are open when this returns.
    pub async fn runtime_with(&self, resolver: Resolver, policy: KeepPolicy, wanted: usize, dial: Dial) -> Runtime {
        let (got, messages) = mpsc::unbounded_channel();
        let state = Arc::new(RuntimeState {
            got,
            resting: Mutex::default(),
            hold: Mutex::default(),
            release: Notify::new(),
            log: Mutex::default(),
            log_held: watch::Sender::default(),
            log_queries: Mutex::default(),
            attach: Mutex::default(),
            steering: Mutex::default(),
            commits: Mutex::default(),
            fence: Mutex::default(),
            fences: Mutex::default(),
        });
        let routes = Router::new()
            .route(runtime_api::INBOX, post(inbox))
            .route(runtime_api::LOG, get(log))
            .route(runtime_api::ATTACH, get(attach))
            .route(runtime_api::CONTROL, post(control))
            .route(runtime_api::APPROVAL, get(async || r#"{"calls":[]}"#).post(control))
            .route(runtime_api::ASSETS, get(async |RawQuery(query): RawQuery| json!({ "query": query }).to_string()).post(control))
            .route(runtime_api::CONVERSATIONS, get(async || r#"{"conversations":[]}"#))
            .route(&runtime_api::of_conversation("", "{conversation}"), any(conversation))
            .route(&runtime_api::of_conversation("/v1/{rest}", "{conversation}"), any(of_conversation))
            .route("/v1/engine/{*rest}", get(engine).post(engine_call))
            .route(&runtime_api::of_conversation("/v1/engine/{*rest}", "{conversation}"), get(engine).post(engine_call))
            .route(runtime_api::USAGE, get(async || r#"{"activity":"Idle"}"#))
            .route(runtime_api::DIFF, get(async |RawQuery(query): RawQuery| json!({ "text": query, "paths": [] }).to_string()))
            .route(runtime_api::FENCE, post(fence))
            .route(runtime_api::SSH, get(ssh_host).post(ssh_server))
            .route(runtime_api::EXPORT, get(async || "a tar archive"))
            .route(runtime_api::BUNDLE, get(commits).post(committed))
            .with_state(state.clone());
        let lines = LineSet::keep(resolver, dial, routes, policy, Arc::new(|| 0.5));
        let mut lines_state = lines.state();
        wait_for("lines", lines_state.wait_for(|state| state.up() == wanted)).await.unwrap();
        Runtime { state, messages, lines }
    }

    /// Sends a request to the API port as the front proxy does for a user.
    pub async fn request(&self, replica: &Replica, user: &str, method: &str, path: &str, body: Option<Value>) -> (StatusCode, Value) {
        let pair = self.front.client(&["front-proxy-client"]);
        let response = self.request_with(replica.api, Some(&pair), user, method, path, body).await;
        json_of(response).await
    }

    /// A `GET` of the port of the runtimes, with this token.
    pub async fn get_of_runtimes(&self, replica: &Replica, token: &str, path: &str) -> (StatusCode, String) {
        let response =
            self.send(replica.runtimes, None, Request::get(path).header("authorization", format!("Bearer {token}")), String::new()).await;
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8_lossy(&body).into_owned())
    }

    pub async fn request_with(
        &self,
        address: SocketAddr,
        pair: Option<&Pair>,
        user: &str,
        method: &str,
        path: &str,
        body: Option<Value>,
    ) -> Response<Incoming> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", "application/json")
            .header("x-remote-user", user.as_bytes())
            .header("x-remote-group", "system:authenticated");
        self.send(address, pair, request, body.map(|body| body.to_string()).unwrap_or_default()).await
    }

    /// A `GET` as a client of server-sent events sends it when it connects again.
    pub async fn connect_again(&self, replica: &Replica, user: &str, path: &str, last_event_id: &str) -> Response<Incoming> {
        let pair = self.front.client(&["front-proxy-client"]);
        let request = Request::get(path)
            .header("x-remote-user", user)
            .header("x-remote-group", "system:authenticated")
            .header("last-event-id", last_event_id);
        self.send(replica.api, Some(&pair), request, String::new()).await
    }

    /// Posts bytes to the API port as the front proxy does for a user.
    pub async fn post_bytes(&self, replica: &Replica, user: &str, path: &str, body: Vec<u8>) -> (StatusCode, Value) {
        let pair = self.front.client(&["front-proxy-client"]);
        let request =
            Request::builder().method("POST").uri(path).header("x-remote-user", user).header("x-remote-group", "system:authenticated");
        json_of(self.send(replica.api, Some(&pair), request, body).await).await
    }

    /// A `GET` with these headers, of whose response the connection may be another protocol's.
    pub async fn upgrade(&self, replica: &Replica, user: &str, path: &str, headers: &[(&'static str, String)]) -> Response<Incoming> {
        let pair = self.front.client(&["front-proxy-client"]);
        let request = Request::get(path).header("x-remote-user", user).header("x-remote-group", "system:authenticated");
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, value));
        self.send(replica.api, Some(&pair), request, String::new()).await
    }

    async fn send(
        &self,
        address: SocketAddr,
        pair: Option<&Pair>,
        request: http::request::Builder,
        body: impl Into<Bytes>,
    ) -> Response<Incoming> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.ca.pem.as_bytes()).unwrap()).unwrap();
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let config = match pair {
            Some(pair) => config
                .with_client_auth_cert(
                    vec![CertificateDer::from_pem_slice(pair.cert.as_bytes()).unwrap()],
                    PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap(),
                )
                .unwrap(),
            None => config.with_no_client_auth(),
        };
        let tcp = TcpStream::connect(address).await.unwrap();
        let tls = tokio_rustls::TlsConnector::from(Arc::new(config)).connect(ServerName::try_from(NAME).unwrap(), tcp).await.unwrap();
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(tls)).await.unwrap();
        tokio::spawn(connection.with_upgrades());
        let request = request.header("host", NAME).body(Full::new(body.into())).unwrap();
        sender.send_request(request).await.unwrap()
    }
}

pub async fn json_of(response: Response<Incoming>) -> (StatusCode, Value) {
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&body).unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&body).into_owned())))
}

impl Replica {
    pub async fn health(&self, path: &str) -> (StatusCode, String) {
        self.try_health(path).await.unwrap()
    }

    /// As [`Replica::health`], for a server that may close the connection.
    pub async fn try_health(&self, path: &str) -> Result<(StatusCode, String), BoxError> {
        get_plain(self.health, path).await
    }

    pub async fn metrics(&self) -> String {
        get_plain(self.metrics, "/metrics").await.unwrap().1
    }
}

pub async fn get_plain(address: SocketAddr, path: &str) -> Result<(StatusCode, String), BoxError> {
    let tcp = TcpStream::connect(address).await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(tcp)).await?;
    tokio::spawn(connection);
    let request = Request::get(path).header("host", "x").body(Full::<Bytes>::default()).unwrap();
    let response = sender.send_request(request).await?;
    let status = response.status();
    Ok((status, String::from_utf8(response.into_body().collect().await?.to_bytes().to_vec())?))
}

/// The runtime of an agent, with the paths that the gateway uses.
pub struct Runtime {
    pub state: Arc<RuntimeState>,
    pub messages: mpsc::UnboundedReceiver<DeliverRequest>,
    pub lines: LineSet,
}

pub struct RuntimeState {
    got: mpsc::UnboundedSender<DeliverRequest>,
    /// Messages come and are refused: it has closed its inbox.
    pub resting: Mutex<bool>,
    /// Acknowledgements and logs wait for `release`.
    pub hold: Mutex<bool>,
    pub release: Notify,
    /// The next log response.
    pub log: Mutex<Option<Body>>,
    /// How many logs wait.
    pub log_held: watch::Sender<u32>,
    /// The queries of those who read the log.
    pub log_queries: Mutex<Vec<String>>,
    /// The next response to an attached client.
    pub attach: Mutex<Option<Body>>,
    pub steering: Mutex<Steering>,
    /// The answer to who asks for its commits, in place of the query.
    pub commits: Mutex<Option<Vec<u8>>>,
    /// The answer to who asks whether paths are free, instead of that they are.
    pub fence: Mutex<Option<FenceResponse>>,
    /// What was asked so.
    pub fences: Mutex<Vec<FenceRequest>>,
}

/// What the runtime answers to control requests, and what came.
#[derive(Default)]
pub struct Steering {
    /// Status and body, instead of `done`.
    pub answer: Option<(u16, String)>,
    /// The header with the user, and the body.
    pub requests: Vec<(String, Value)>,
    /// The queries of attached clients.
    pub attached: Vec<String>,
}

async fn inbox(State(state): State<Arc<RuntimeState>>, Json(message): Json<DeliverRequest>) -> Response<Body> {
    let message_id = message.message_id.clone();
    state.got.send(message).unwrap();
    if *state.resting.lock().unwrap() {
        let refusal = Refusal { reason: RefusalReason::Resting, message: "it rests".to_owned() };
        return (StatusCode::SERVICE_UNAVAILABLE, Json(refusal)).into_response();
    }
    if *state.hold.lock().unwrap() {
        state.release.notified().await;
    }
    Json(SendResponse { message_id, duplicate: false }).into_response()
}

async fn log(State(state): State<Arc<RuntimeState>>, RawQuery(query): RawQuery) -> Body {
    state.log_queries.lock().unwrap().push(query.unwrap_or_default());
    if *state.hold.lock().unwrap() {
        state.log_held.send_modify(|held| *held += 1);
        state.release.notified().await;
    }
    state.log.lock().unwrap().take().unwrap_or_else(|| Body::from("{}\n"))
}

async fn attach(State(state): State<Arc<RuntimeState>>, RawQuery(query): RawQuery) -> Body {
    state.steering.lock().unwrap().attached.push(query.unwrap_or_default());
    state.attach.lock().unwrap().take().unwrap_or_else(|| Body::from("{}\n"))
}

/// Says what of the engine was asked, if there is no body of an attached client, and refuses a projection that is not there.
async fn engine(State(state): State<Arc<RuntimeState>>, uri: http::Uri) -> Response<Body> {
    let asked = uri.path_and_query().unwrap().to_string();
    state.steering.lock().unwrap().attached.push(asked.clone());
    if uri.path().ends_with("/nothing") {
        let refusal = Refusal { reason: RefusalReason::Invalid, message: "there is no projection \"nothing\"".to_owned() };
        return (StatusCode::NOT_FOUND, Json(refusal)).into_response();
    }
    let body = state.attach.lock().unwrap().take();
    Response::new(body.unwrap_or_else(|| Body::from(json!({ "asked": asked }).to_string())))
}

/// A call that acts: what was asked is kept as an attached client's query is, and the rest as of a request of control.
async fn engine_call(state: State<Arc<RuntimeState>>, uri: http::Uri, headers: HeaderMap, request: Json<Value>) -> Response<Body> {
    state.steering.lock().unwrap().attached.push(uri.path().to_owned());
    control(state, headers, request).await
}

async fn control(State(state): State<Arc<RuntimeState>>, headers: HeaderMap, Json(request): Json<Value>) -> Response<Body> {
    let mut steering = state.steering.lock().unwrap();
    let user = headers[USER_HEADER].to_str().unwrap().to_owned();
    let done = json!({"id": request["id"], "done": {"message": "done"}, "ofANewerRuntime": true}).to_string();
    steering.requests.push((user, request));
    let (status, body) = steering.answer.clone().unwrap_or((200, done));
    Response::builder().status(status).body(Body::from(body)).unwrap()
}

/// A log body and its writer. The writer notices when the reader leaves.
pub fn writable_log() -> (mpsc::Sender<Result<Bytes, std::io::Error>>, Body) {
    let (sender, receiver) = mpsc::channel(1);
    (sender, Body::from_stream(stream(receiver)))
}

fn stream(receiver: mpsc::Receiver<Result<Bytes, std::io::Error>>) -> impl Stream<Item = Result<Bytes, std::io::Error>> {
    futures::stream::unfold(receiver, |mut receiver| async move { receiver.recv().await.map(|item| (item, receiver)) })
}

pub fn report(activity: Activity) -> RuntimeReport {
    RuntimeReport {
        run_generation: 1,
        ready: true,
        reason: ReportReason::Replayed.into(),
        message: "replayed 3 entries".into(),
        session: Some(SessionPointer { id: "s1".into(), segment: "g1".into() }),
        task: None,
        activity: activity.into(),
        volume_run_generation: None,
        scope: None,
        has_frame: None,
        has_git: None,
        program: None,
        program_session: None,
        assets: None,
        background: 0,
        conversations: Vec::new(),
        refused_calls: std::collections::BTreeMap::new(),
    }
}

/// The status and the reason of a refusal.
pub fn refusal_reason<T: std::fmt::Debug>(answer: Result<T, CallError>) -> (u16, RefusalReason) {
    let (status, refusal) = refusal(answer);
    (status, refusal.reason)
}

pub fn refusal<T: std::fmt::Debug>(answer: Result<T, CallError>) -> (u16, Refusal) {
    match answer {
        Err(CallError::Status { status, body, .. }) => (status.as_u16(), serde_json::from_slice(&body).unwrap()),
        other => panic!("not refused: {other:?}"),
    }
}

async fn commits(State(state): State<Arc<RuntimeState>>, uri: http::Uri) -> Vec<u8> {
    let query = uri.query().unwrap_or_default();
    match state.commits.lock().unwrap().clone() {
        Some(commits) if query == "whole=true" => [&commits, &b" and the base"[..]].concat(),
        Some(commits) => commits,
        None => format!("{{\"query\":{query:?}}}").into_bytes(),
    }
}

async fn ssh_host(headers: HeaderMap) -> Json<Value> {
    Json(json!({"user": headers[USER_HEADER].to_str().unwrap(), "hostKey": "k", "path": "/work"}))
}

/// A server that says back what it is told.
async fn ssh_server(
    State(state): State<Arc<RuntimeState>>,
    axum::extract::Query(query): axum::extract::Query<yoi_wire::ssh::SshQuery>,
    headers: HeaderMap,
    body: Body,
) -> Body {
    let user = headers[USER_HEADER].to_str().unwrap();
    state.steering.lock().unwrap().attached.push(format!("POST {} by {user}", query.key.unwrap()));
    Body::from_stream(body.into_data_stream())
}

async fn fence(State(state): State<Arc<RuntimeState>>, Json(request): Json<FenceRequest>) -> Json<FenceResponse> {
    state.fences.lock().unwrap().push(request);
    let answer = state.fence.lock().unwrap().clone();
    Json(answer.unwrap_or(FenceResponse { fenced: true, ..FenceResponse::default() }))
}

/// The answer of a runtime that commits what it is told to, unless a run is under way.
async fn committed(body: String) -> (StatusCode, String) {
    if body.contains("while it runs") {
        return (StatusCode::CONFLICT, r#"{"reason":"Invalid","message":"a run is under way"}"#.to_owned());
    }
    (StatusCode::OK, format!("{{\"commit\":{body:?}}}"))
}

/// Says as a control request's answer what was asked, or as a refusal of a conversation that is named so.
async fn conversation(method: Method, Path(name): Path<String>) -> (StatusCode, String) {
    if name == "one-too-many" {
        return (StatusCode::CONFLICT, json!({"reason": "Invalid", "message": "16 run"}).to_string());
    }
    (StatusCode::OK, json!({"name": name, "state": method.as_str()}).to_string())
}

/// Says as a control request's answer what was asked of which conversation; of a message that it has come.
async fn of_conversation(method: Method, Path((name, rest)): Path<(String, String)>, body: String) -> String {
    let body: Value = serde_json::from_str(&body).unwrap_or_default();
    let done = json!({"message": format!("{method} {rest} of {name}")});
    json!({"id": "i", "done": done, "messageId": body["messageId"], "duplicate": false}).to_string()
}

fn yoipeer(a: (&str, &str), b: (&str, &str)) -> Value {
    json!({"apiVersion": "yoi.dev/v1alpha1", "kind": "YoiPeer",
        "metadata": {"namespace": "ns", "name": format!("{}.{}", a.0, b.0), "uid": format!("{}.{}", a.1, b.1)},
        "spec": {"members": [a.0, b.0]},
        "status": {"members": [{"name": a.0, "uid": a.1}, {"name": b.0, "uid": b.1}], "conditions": [
            {"type": "Ready", "status": "True", "reason": "MembersBound", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}})
}
