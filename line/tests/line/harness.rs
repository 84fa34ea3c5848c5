//! What the tests share: certificates, a small gateway, a proxy that can fall silent, and waiting on conditions.

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{Response, StatusCode};
use axum::routing::{get, post};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use yoi_line::*;

pub use crate::certificates::{Ca, NAME, Pair};

pub use yoi_test_support::in_time as wait_for;

/// The state of the gateway's routes.
pub struct GatewayState {
    pub tokens: Mutex<Vec<String>>,
    pub refuse: Mutex<Option<StatusCode>>,
    pub peers: Mutex<BTreeSet<SocketAddr>>,
    /// Requests to `/hold` that wait for `release`.
    pub waiting: watch::Sender<usize>,
    pub release: Notify,
    pub keep_alive: Mutex<KeepAlive>,
    lines: mpsc::UnboundedSender<LineHandle>,
}

pub struct Gateway {
    pub address: SocketAddr,
    pub state: Arc<GatewayState>,
    pub lines: mpsc::UnboundedReceiver<LineHandle>,
    pub tls: watch::Sender<Arc<rustls::ServerConfig>>,
    stop: CancellationToken,
    task: JoinHandle<ServeSummary>,
}

/// An address that stays reserved while no server listens there: the kernel could give a free port to another test.
pub struct ReservedAddress {
    socket: TcpSocket,
}

impl ReservedAddress {
    pub fn new() -> Self {
        Self { socket: bind_shared("127.0.0.1:0".parse().unwrap()) }
    }

    pub fn address(&self) -> SocketAddr {
        self.socket.local_addr().unwrap()
    }

    pub fn listen(&self) -> TcpListener {
        bind_shared(self.address()).listen(64).unwrap()
    }
}

/// A bound socket that does not listen yet. The reservation and the listener share the port.
fn bind_shared(address: SocketAddr) -> TcpSocket {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_reuseport(true).unwrap();
    socket.bind(address).unwrap();
    socket
}

pub fn quick_limits() -> ServeLimits {
    ServeLimits {
        drain: Duration::from_secs(1),
        handshake: Duration::from_secs(10),
        header_read: Duration::from_secs(2),
        ..Default::default()
    }
}

impl Gateway {
    pub async fn start(ca: &Ca) -> Self {
        Self::start_at(ca, &ReservedAddress::new()).await
    }

    pub async fn start_at(ca: &Ca, reserved: &ReservedAddress) -> Self {
        Self::start_on(ca, reserved.listen(), &ClientAuth::None, quick_limits()).await
    }

    pub async fn start_with(ca: &Ca, auth: &ClientAuth, limits: ServeLimits) -> Self {
        Self::start_on(ca, ReservedAddress::new().listen(), auth, limits).await
    }

    pub async fn start_on(ca: &Ca, listener: TcpListener, auth: &ClientAuth, limits: ServeLimits) -> Self {
        let pair = ca.server();
        let (tls, config) = watch::channel(tls_server_config(&pair.cert, &pair.key, auth).unwrap());
        let address = listener.local_addr().unwrap();
        let (sender, lines) = mpsc::unbounded_channel();
        let state = Arc::new(GatewayState {
            tokens: Mutex::default(),
            refuse: Mutex::default(),
            peers: Mutex::default(),
            waiting: watch::Sender::new(0),
            release: Notify::new(),
            keep_alive: Mutex::default(),
            lines: sender,
        });
        let stop = CancellationToken::new();
        let service = routes(state.clone());
        let stopped = stop.clone().cancelled_owned();
        let task = tokio::spawn(serve_tls(listener, config, service, limits, stopped));
        Self { address, state, lines, tls, stop, task }
    }

    pub async fn line(&mut self) -> LineHandle {
        wait_for("a line", self.lines.recv()).await.expect("the gateway runs")
    }

    pub fn begin_stop(&self) {
        self.stop.cancel();
    }

    pub async fn stop(self) -> ServeSummary {
        self.stop.cancel();
        wait_for("the gateway's stop", self.task).await.unwrap()
    }

    pub fn tokens(&self) -> Vec<String> {
        self.state.tokens.lock().unwrap().clone()
    }
}

fn routes(state: Arc<GatewayState>) -> Router {
    Router::new()
        .route("/line", get(line).post(line))
        .route("/echo", post(echo))
        .route("/sum", post(sum))
        .route("/hold", get(hold).post(hold))
        .route("/who", get(who))
        .with_state(state)
}

async fn line(State(state): State<Arc<GatewayState>>, request: Request) -> Response<Body> {
    let token = bearer(request.headers()).unwrap_or_default().to_owned();
    state.tokens.lock().unwrap().push(token);
    if let Some(status) = *state.refuse.lock().unwrap() {
        return Response::builder().status(status).body(Body::from(r#"{"kind":"Status","message":"who are you?"}"#)).unwrap();
    }
    let keep_alive = *state.keep_alive.lock().unwrap();
    match accept_upgrade(request, keep_alive) {
        Ok((response, line)) => {
            tokio::spawn(async move {
                let _ = state.lines.send(line.await.unwrap());
            });
            response
        }
        Err(error) => Response::builder().status(error.status()).body(Body::from(error.to_string())).unwrap(),
    }
}

async fn echo(State(state): State<Arc<GatewayState>>, request: Request) -> Response<Body> {
    state.tokens.lock().unwrap().push(bearer(request.headers()).unwrap_or_default().to_owned());
    state.peers.lock().unwrap().insert(request.extensions().get::<PeerAddress>().unwrap().0);
    Response::new(request.into_body())
}

async fn sum(axum::Json(numbers): axum::Json<Vec<i64>>) -> Result<axum::Json<i64>, (StatusCode, String)> {
    match numbers.is_empty() {
        true => Err((StatusCode::UNPROCESSABLE_ENTITY, r#"{"message":"nothing to add"}"#.to_owned())),
        false => Ok(axum::Json(numbers.iter().sum())),
    }
}

async fn hold(State(state): State<Arc<GatewayState>>) -> &'static str {
    state.waiting.send_modify(|waiting| *waiting += 1);
    state.release.notified().await;
    "held"
}

async fn who(request: Request) -> String {
    match request.extensions().get::<PeerCertificate>() {
        None => "no certificate".to_owned(),
        Some(PeerCertificate { common_name, der }) => format!("{common_name:?} in {} bytes", der.len().min(1)),
    }
}

pub fn dial(ca: &Ca, address: SocketAddr) -> Dial {
    Dial {
        address: address.to_string(),
        server_name: NAME.to_owned(),
        ca_pem: TextSource::fixed(&ca.pem),
        path: "/line".to_owned(),
        token: TextSource::fixed("agent-token\n"),
        timings: Timings::default(),
    }
}

pub fn policy() -> KeepPolicy {
    let (first, cap) = (Duration::from_millis(20), Duration::from_millis(200));
    KeepPolicy {
        resolve_every: Duration::from_millis(50),
        gone_after: 2,
        backoff: BackoffPolicy { first, cap, settled: Duration::from_secs(5) },
    }
}

pub fn keep_lines(dial: Dial, addresses: watch::Receiver<Vec<SocketAddr>>, service: Router) -> LineSet {
    let resolver = Resolver::from_fn(move || {
        let addresses = addresses.borrow().clone();
        async move { Ok(addresses) }
    });
    LineSet::keep(resolver, dial, service, policy(), Arc::new(|| 0.5))
}

pub async fn wait_for_state(lines: &LineSet, what: &str, wanted: impl FnMut(&LineSetState) -> bool) -> LineSetState {
    wait_for(what, lines.state().wait_for(wanted)).await.expect("the lines are running").clone()
}

/// The default service of a dialler in these tests.
pub fn hello_service() -> Router {
    Router::new().route("/hello", get(|| async { "hello" }))
}

pub fn get_request(path: &str) -> http::Request<Body> {
    http::Request::builder().uri(path).body(Body::empty()).unwrap()
}

pub async fn text<B>(response: http::Response<B>) -> String
where
    B: hyper::body::Body<Data = bytes::Bytes, Error: std::fmt::Debug>,
{
    use http_body_util::BodyExt;
    let body = wait_for("a body", response.into_body().collect()).await.unwrap().to_bytes();
    String::from_utf8(body.to_vec()).unwrap()
}

pub async fn assert_says_hello(line: &LineHandle) {
    let response = wait_for("an answer", line.request(get_request("/hello"))).await.unwrap();
    assert_eq!(text(response).await, "hello");
}

/// A proxy that can stop forwarding without closing: no FIN and no RST.
pub struct SilenceableProxy {
    pub address: SocketAddr,
    silent: watch::Sender<bool>,
}

impl SilenceableProxy {
    pub async fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (silent, silenced) = watch::channel(false);
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let far = TcpStream::connect(target).await.unwrap();
                let (near_read, near_write) = near.into_split();
                let (far_read, far_write) = far.into_split();
                tokio::spawn(carry(near_read, far_write, silenced.clone()));
                tokio::spawn(carry(far_read, near_write, silenced.clone()));
            }
        });
        Self { address, silent }
    }

    pub fn silence(&self) {
        self.silent.send_replace(true);
    }
}

async fn carry(mut from: tokio::net::tcp::OwnedReadHalf, mut to: tokio::net::tcp::OwnedWriteHalf, mut silenced: watch::Receiver<bool>) {
    tokio::select! {
        _ = tokio::io::copy(&mut from, &mut to) => {}
        _ = async { silenced.wait_for(|silent| *silent).await.is_ok() } => {
            // Both halves stay open, and no byte passes.
            std::future::pending::<()>().await;
        }
    }
}
