//! Servers for HTTP/1.1 with upgrades and HTTP/2 over TLS, and for HTTP/1.1 in clear text.

use crate::connections::{Connection, ConnectionLimits, Connections, Permit};
use crate::h2::{self, KeepAlive};
use crate::peer::{PeerAddress, PeerCertificate};
use crate::service::{BoxedService, HttpService};
use crate::tls;
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

/// The longest head of an HTTP/1.1 request, in bytes. As much of its body is read ahead.
const MAX_HEAD: usize = 64 << 10;

/// The limits of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServeLimits {
    /// How long a TLS handshake may take.
    pub handshake: Duration,
    /// Handshakes at once, where `connections` does not limit them. Further clients wait in the listener's backlog.
    pub max_handshakes: usize,
    /// How long the head of an HTTP/1.1 request may take, and how long such a connection may idle between two requests.
    pub header_read: Duration,
    /// How long connections may take to end after `shutdown`.
    pub drain: Duration,
    /// When to ping an HTTP/2 client, and when to give it up.
    pub keep_alive: KeepAlive,
    /// Requests that may be in flight on one HTTP/2 connection. More requests wait at the client.
    pub streams: u32,
    /// `None`: connections are not limited. With limits, the service must authenticate each [`Connection`](crate::Connection).
    pub connections: Option<ConnectionLimits>,
}

impl Default for ServeLimits {
    fn default() -> Self {
        Self {
            handshake: Duration::from_secs(5),
            max_handshakes: 256,
            header_read: Duration::from_secs(10),
            drain: Duration::from_secs(10),
            keep_alive: KeepAlive::default(),
            streams: 1024,
            connections: None,
        }
    }
}

/// The result of serving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServeSummary {
    /// Connections that were still busy after `drain`, and were aborted.
    pub cut: usize,
}

/// Serves until `shutdown` resolves, then waits up to `limits.drain` for connections to end.
///
/// Each handshake uses the configuration that `tls` holds at that moment. The extensions of a request carry [`PeerAddress`], with
/// `limits.connections` a [`Connection`](crate::Connection), and [`PeerCertificate`] if the client sent a certificate.
///
/// # Caveats
/// The server does not end connections that were upgraded: end lines with [`LineHandle::close`](crate::LineHandle::close).
pub async fn serve_tls(
    listener: TcpListener,
    tls: watch::Receiver<Arc<ServerConfig>>,
    service: impl HttpService,
    limits: ServeLimits,
    shutdown: impl Future<Output = ()>,
) -> ServeSummary {
    let context = ServerContext { service: service.into_boxed(), limits, stop: CancellationToken::new() };
    // A client in its handshake is unauthenticated. Limits on these must not wait behind the handshakes of those that they end.
    let handshakes = limits.connections.is_none().then(|| Arc::new(Semaphore::new(limits.max_handshakes.max(1))));
    serve(listener, context, handshakes, shutdown, move |tcp, address, handshake_permit, permit, context| {
        let config = tls.borrow().clone();
        serve_client(tcp, address, handshake_permit, permit, config, context)
    })
    .await
}

/// As [`serve_tls`], in clear text and HTTP/1.1 only: for probes and metrics.
///
/// With `limits.connections`, a connection that the service never authenticates ends after `authenticate_within`.
pub async fn serve_plain(
    listener: TcpListener,
    service: impl HttpService,
    limits: ServeLimits,
    shutdown: impl Future<Output = ()>,
) -> ServeSummary {
    let context = ServerContext { service: service.into_boxed(), limits, stop: CancellationToken::new() };
    serve(listener, context, None, shutdown, |tcp, address, _no_handshake, permit, context| {
        serve_stream(tcp, address, permit, None, false, context)
    })
    .await
}

type HandshakePermit = Option<OwnedSemaphorePermit>;

/// What the connections of one server share.
#[derive(Clone)]
struct ServerContext {
    service: BoxedService,
    limits: ServeLimits,
    stop: CancellationToken,
}

async fn serve<C: Future<Output = ()> + Send + 'static>(
    listener: TcpListener,
    context: ServerContext,
    handshakes: Option<Arc<Semaphore>>,
    shutdown: impl Future<Output = ()>,
    client: impl Fn(TcpStream, SocketAddr, HandshakePermit, Option<Arc<Permit>>, ServerContext) -> C,
) -> ServeSummary {
    let connections = context.limits.connections.map(Connections::new);
    let mut tasks = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    loop {
        tokio::select! {
            () = &mut shutdown => break,
            Some(ended) = tasks.join_next() => log_panic(ended),
            (tcp, address, handshake_permit) = next_client(&listener, handshakes.as_ref()) => {
                let permit = connections.as_ref().map(|connections| connections.admit(address).map(Arc::new));
                if let Some(None) = permit {
                    tracing::debug!(%address, "connection refused: too many are being authenticated");
                    continue;
                }
                let permit = permit.flatten();
                let serving = client(tcp, address, handshake_permit, permit.clone(), context.clone());
                tasks.spawn(until_aborted(serving, address, permit));
            }
        }
    }
    drop(listener);
    context.stop.cancel();
    let drained = async {
        while let Some(ended) = tasks.join_next().await {
            log_panic(ended);
        }
    };
    let _ = timeout(context.limits.drain, drained).await;
    let cut = tasks.len();
    tasks.shutdown().await;
    ServeSummary { cut }
}

/// Runs until the connection has ended or must end at once, from its handshake on.
async fn until_aborted(serving: impl Future<Output = ()>, address: SocketAddr, permit: Option<Arc<Permit>>) {
    let Some(permit) = permit else { return serving.await };
    tokio::select! {
        () = serving => {}
        () = permit.wait_for_abort() => {
            tracing::debug!(%address, "connection aborted: not authenticated in time, or it made room for a newer one");
        }
    }
}

fn log_panic(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "connection ended by a panic in its service");
    }
}

/// The next client, once another handshake may begin.
async fn next_client(listener: &TcpListener, handshakes: Option<&Arc<Semaphore>>) -> (TcpStream, SocketAddr, HandshakePermit) {
    let handshake_permit = match handshakes {
        // The semaphore is never closed, so this is always `Some`.
        Some(handshakes) => handshakes.clone().acquire_owned().await.ok(),
        None => None,
    };
    loop {
        match listener.accept().await {
            Ok((tcp, address)) => return (tcp, address, handshake_permit),
            Err(error) => {
                // No file descriptor is left: accepting again at once would spin until another connection ends.
                tracing::warn!(%error, "no connection could be accepted");
                sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn serve_client(
    tcp: TcpStream,
    address: SocketAddr,
    handshake_permit: HandshakePermit,
    permit: Option<Arc<Permit>>,
    config: Arc<ServerConfig>,
    context: ServerContext,
) {
    let _ = tcp.set_nodelay(true);
    let limit = context.limits.handshake;
    let handshake = tokio::select! {
        handshake = timeout(limit, TlsAcceptor::from(config).accept(tcp)) => handshake,
        () = context.stop.cancelled() => return,
    };
    drop(handshake_permit);
    match handshake {
        Ok(Ok(stream)) => {
            let (_, session) = stream.get_ref();
            let http2 = session.alpn_protocol() == Some(tls::HTTP2);
            let certificate = session.peer_certificates().and_then(|chain| chain.first()).map(PeerCertificate::of);
            serve_stream(stream, address, permit, certificate, http2, context).await;
        }
        Ok(Err(error)) => tracing::debug!(%address, %error, "client refused in the handshake"),
        Err(_) => tracing::debug!(%address, after = ?limit, "client too slow in the handshake"),
    }
}

async fn serve_stream<S: AsyncRead + AsyncWrite + Send + Unpin + 'static>(
    stream: S,
    address: SocketAddr,
    permit: Option<Arc<Permit>>,
    certificate: Option<PeerCertificate>,
    http2: bool,
    context: ServerContext,
) {
    let ServerContext { service, limits, stop } = context;
    let connection = permit.as_ref().map(|permit| permit.connection());
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(PeerAddress(address));
        if let Some(certificate) = &certificate {
            request.extensions_mut().insert(certificate.clone());
        }
        if let Some(connection) = &connection {
            request.extensions_mut().insert(connection.clone());
        }
        let in_flight = connection.as_ref().map(Connection::begin_request);
        let response = service.0.clone().oneshot(request);
        async move {
            let _in_flight = in_flight;
            response.await
        }
    });
    let io = TokioIo::new(stream);
    let end = async {
        match &permit {
            Some(permit) => tokio::select! { () = stop.cancelled() => {} () = permit.end.cancelled() => {} },
            None => stop.cancelled().await,
        }
    };
    let serving = async {
        if http2 {
            let mut builder = h2::plain_server(limits.keep_alive);
            builder.max_concurrent_streams(limits.streams);
            serve_until(end, builder.serve_connection(io, service), |connection| connection.graceful_shutdown()).await
        } else {
            let mut builder = http1::Builder::new();
            builder.timer(TokioTimer::new()).header_read_timeout(limits.header_read).max_buf_size(MAX_HEAD);
            let connection = builder.serve_connection(io, service).with_upgrades();
            serve_until(end, connection, |connection| connection.graceful_shutdown()).await
        }
    };
    if let Err(error) = serving.await {
        tracing::debug!(%address, error = yoi_wire::error_chain(&error), "connection broke");
    }
}

async fn serve_until<C: Future>(end: impl Future<Output = ()>, connection: C, finish: impl FnOnce(Pin<&mut C>)) -> C::Output {
    let mut connection = pin!(connection);
    tokio::select! {
        result = connection.as_mut() => return result,
        () = end => {}
    }
    finish(connection.as_mut());
    connection.await
}
