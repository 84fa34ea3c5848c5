//! The test house: certificates, a small gateway, a wire that can be silenced, and waiting on conditions.

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{Response, StatusCode};
use axum::routing::{get, post};
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use yoi_line::*;

pub const NAME: &str = "gateway.test";
/// Far longer than anything here takes: a test that waits this long has failed.
const PATIENCE: Duration = Duration::from_secs(60);

pub async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("waited in vain for {what}"))
}

pub struct Ca {
    pub pem: String,
    issuer: Issuer<'static, KeyPair>,
}

pub struct Pair {
    pub cert: String,
    pub key: String,
}

impl Ca {
    pub fn new() -> Self {
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    pub fn server(&self) -> Pair {
        self.sign(CertificateParams::new(vec![NAME.to_owned()]).unwrap(), ExtendedKeyUsagePurpose::ServerAuth)
    }

    pub fn client(&self, common_names: &[&str]) -> Pair {
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        // One of each type is all that rcgen holds, so a second common name comes by its number.
        let kinds = [DnType::CommonName, DnType::CustomDnType(vec![2, 5, 4, 3])];
        for (kind, name) in kinds.into_iter().zip(common_names) {
            params.distinguished_name.push(kind, *name);
        }
        self.sign(params, ExtendedKeyUsagePurpose::ClientAuth)
    }

    fn sign(&self, mut params: CertificateParams, usage: ExtendedKeyUsagePurpose) -> Pair {
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate().unwrap();
        let cert = params.signed_by(&key, &self.issuer).unwrap().pem();
        Pair { cert, key: key.serialize_pem() }
    }
}

/// What the gateway's routes share.
pub struct Desk {
    pub tokens: Mutex<Vec<String>>,
    pub refuse: Mutex<Option<StatusCode>>,
    pub peers: Mutex<BTreeSet<SocketAddr>>,
    /// How many requests are held, and the word to let one go.
    pub held: watch::Sender<usize>,
    pub release: Notify,
    pub keep_alive: Mutex<KeepAlive>,
    lines: mpsc::UnboundedSender<LineHandle>,
}

pub struct Gateway {
    pub address: SocketAddr,
    pub desk: Arc<Desk>,
    pub lines: mpsc::UnboundedReceiver<LineHandle>,
    pub tls: watch::Sender<Arc<rustls::ServerConfig>>,
    stop: CancellationToken,
    task: JoinHandle<ServeSummary>,
}

/// An address that is nobody else's, also while nobody listens there: a free port may be given to whoever asks for one.
pub struct Place {
    held: TcpSocket,
}

impl Place {
    pub fn new() -> Self {
        Self { held: shared("127.0.0.1:0".parse().unwrap()) }
    }

    pub fn address(&self) -> SocketAddr {
        self.held.local_addr().unwrap()
    }

    pub fn listen(&self) -> TcpListener {
        shared(self.address()).listen(64).unwrap()
    }
}

/// Bound, and not yet listened on. The holder and who listens have the port both.
fn shared(address: SocketAddr) -> TcpSocket {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_reuseport(true).unwrap();
    socket.bind(address).unwrap();
    socket
}

pub fn quick_limits() -> ServeLimits {
    ServeLimits {
        drain: Duration::from_secs(1),
        handshake: Duration::from_secs(2),
        header_read: Duration::from_secs(2),
        ..Default::default()
    }
}

impl Gateway {
    pub async fn start(ca: &Ca) -> Self {
        Self::start_at(ca, &Place::new()).await
    }

    pub async fn start_at(ca: &Ca, place: &Place) -> Self {
        Self::start_on(ca, place.listen(), &ClientAuth::None, quick_limits()).await
    }

    pub async fn start_with(ca: &Ca, auth: &ClientAuth, limits: ServeLimits) -> Self {
        Self::start_on(ca, Place::new().listen(), auth, limits).await
    }

    async fn start_on(ca: &Ca, listener: TcpListener, auth: &ClientAuth, limits: ServeLimits) -> Self {
        let pair = ca.server();
        let (tls, config) = watch::channel(tls_server_config(&pair.cert, &pair.key, auth).unwrap());
        let address = listener.local_addr().unwrap();
        let (sender, lines) = mpsc::unbounded_channel();
        let desk = Arc::new(Desk {
            tokens: Mutex::default(),
            refuse: Mutex::default(),
            peers: Mutex::default(),
            held: watch::Sender::new(0),
            release: Notify::new(),
            keep_alive: Mutex::default(),
            lines: sender,
        });
        let stop = CancellationToken::new();
        let service = routes(desk.clone());
        let stopped = stop.clone().cancelled_owned();
        let task = tokio::spawn(serve_tls(listener, config, service, limits, stopped));
        Self { address, desk, lines, tls, stop, task }
    }

    pub async fn line(&mut self) -> LineHandle {
        soon("a line", self.lines.recv()).await.expect("the gateway runs")
    }

    pub fn begin_stop(&self) {
        self.stop.cancel();
    }

    pub async fn stop(self) -> ServeSummary {
        self.stop.cancel();
        soon("the gateway's stop", self.task).await.unwrap()
    }

    pub fn tokens(&self) -> Vec<String> {
        self.desk.tokens.lock().unwrap().clone()
    }
}

fn routes(desk: Arc<Desk>) -> Router {
    Router::new()
        .route("/line", get(line))
        .route("/echo", post(echo))
        .route("/sum", post(sum))
        .route("/hold", get(hold))
        .route("/who", get(who))
        .with_state(desk)
}

async fn line(State(desk): State<Arc<Desk>>, request: Request) -> Response<Body> {
    let token = bearer(request.headers()).unwrap_or_default().to_owned();
    desk.tokens.lock().unwrap().push(token);
    if let Some(status) = *desk.refuse.lock().unwrap() {
        return Response::builder().status(status).body(Body::from(r#"{"kind":"Status","message":"who are you?"}"#)).unwrap();
    }
    let keep_alive = *desk.keep_alive.lock().unwrap();
    match accept_upgrade(request, keep_alive) {
        Ok((response, line)) => {
            tokio::spawn(async move {
                let _ = desk.lines.send(line.await.unwrap());
            });
            response
        }
        Err(error) => Response::builder().status(error.status()).body(Body::from(error.to_string())).unwrap(),
    }
}

async fn echo(State(desk): State<Arc<Desk>>, request: Request) -> Response<Body> {
    desk.tokens.lock().unwrap().push(bearer(request.headers()).unwrap_or_default().to_owned());
    desk.peers.lock().unwrap().insert(request.extensions().get::<PeerAddress>().unwrap().0);
    Response::new(request.into_body())
}

async fn sum(axum::Json(numbers): axum::Json<Vec<i64>>) -> Result<axum::Json<i64>, (StatusCode, String)> {
    match numbers.is_empty() {
        true => Err((StatusCode::UNPROCESSABLE_ENTITY, r#"{"message":"nothing to add"}"#.to_owned())),
        false => Ok(axum::Json(numbers.iter().sum())),
    }
}

async fn hold(State(desk): State<Arc<Desk>>) -> &'static str {
    desk.held.send_modify(|held| *held += 1);
    desk.release.notified().await;
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

pub fn keep(dial: Dial, addresses: watch::Receiver<Vec<SocketAddr>>, service: Router) -> LineSet {
    let resolver = Resolver::from_fn(move || {
        let addresses = addresses.borrow().clone();
        async move { Ok(addresses) }
    });
    LineSet::keep(resolver, dial, service, policy(), Arc::new(|| 0.5))
}

pub async fn until(lines: &LineSet, what: &str, wanted: impl FnMut(&LineSetState) -> bool) -> LineSetState {
    soon(what, lines.state().wait_for(wanted)).await.expect("the lines are kept").clone()
}

/// What the dialler answers unless a test says otherwise.
pub fn hello() -> Router {
    Router::new().route("/hello", get(|| async { "hello" }))
}

pub fn ask(path: &str) -> http::Request<Body> {
    http::Request::builder().uri(path).body(Body::empty()).unwrap()
}

pub async fn text<B>(response: http::Response<B>) -> String
where
    B: hyper::body::Body<Data = bytes::Bytes, Error: std::fmt::Debug>,
{
    use http_body_util::BodyExt;
    let body = soon("a body", response.into_body().collect()).await.unwrap().to_bytes();
    String::from_utf8(body.to_vec()).unwrap()
}

pub async fn says_hello(line: &LineHandle) {
    let response = soon("an answer", line.request(ask("/hello"))).await.unwrap();
    assert_eq!(text(response).await, "hello");
}

/// A wire between two ends that can fall silent without closing: no FIN, no RST, nothing.
pub struct Wire {
    pub address: SocketAddr,
    silent: watch::Sender<bool>,
}

impl Wire {
    pub async fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (silent, hush) = watch::channel(false);
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let far = TcpStream::connect(target).await.unwrap();
                let (near_read, near_write) = near.into_split();
                let (far_read, far_write) = far.into_split();
                tokio::spawn(carry(near_read, far_write, hush.clone()));
                tokio::spawn(carry(far_read, near_write, hush.clone()));
            }
        });
        Self { address, silent }
    }

    pub fn silence(&self) {
        self.silent.send_replace(true);
    }
}

async fn carry(mut from: tokio::net::tcp::OwnedReadHalf, mut to: tokio::net::tcp::OwnedWriteHalf, mut hush: watch::Receiver<bool>) {
    tokio::select! {
        _ = tokio::io::copy(&mut from, &mut to) => {}
        _ = async { hush.wait_for(|silent| *silent).await.is_ok() } => {
            // Both halves stay open, and nothing passes.
            std::future::pending::<()>().await;
        }
    }
}
