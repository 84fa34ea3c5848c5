//! A TLS server for HTTP/1.1 with upgrades and HTTP/2.

use crate::answer::{Answer, Answerer};
use crate::h2::{self, KeepAlive};
use crate::peer::{PeerAddress, PeerCertificate};
use crate::tls;
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServeLimits {
    /// How long a client may take to agree on TLS.
    pub handshake: Duration,
    /// Handshakes at once; further clients wait in the listener's backlog.
    pub max_handshakes: usize,
    /// How long the head of an HTTP/1.1 request may take; also how long such a connection may idle between two requests.
    pub header_read: Duration,
    /// After `shutdown`: how long connections have to end.
    pub drain: Duration,
    pub keep_alive: KeepAlive,
}

impl Default for ServeLimits {
    fn default() -> Self {
        Self {
            handshake: Duration::from_secs(5),
            max_handshakes: 256,
            header_read: Duration::from_secs(10),
            drain: Duration::from_secs(10),
            keep_alive: KeepAlive::default(),
        }
    }
}

/// How serving ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Served {
    /// Connections that were still busy at the deadline, and were cut.
    pub cut: usize,
}

/// Serves until `shutdown` resolves, then lets connections end within `limits.drain`.
///
/// Each handshake takes the configuration that `tls` holds at that moment. Requests carry [`PeerAddress`], and [`PeerCertificate`] if the
/// client showed a certificate, in their extensions.
///
/// # Caveats
/// A connection that was upgraded is no longer this server's: end lines with [`LineHandle::close`](crate::LineHandle::close).
pub async fn serve_tls(
    listener: TcpListener,
    tls: watch::Receiver<Arc<ServerConfig>>,
    service: impl Answer,
    limits: ServeLimits,
    shutdown: impl Future<Output = ()>,
) -> Served {
    let service = service.into_answerer();
    let handshakes = Arc::new(Semaphore::new(limits.max_handshakes.max(1)));
    let stop = CancellationToken::new();
    let mut connections = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    loop {
        tokio::select! {
            () = &mut shutdown => break,
            Some(ended) = connections.join_next() => told(ended),
            (tcp, address, permit) = next_client(&listener, &handshakes) => {
                let config = tls.borrow().clone();
                connections.spawn(serve_client(tcp, address, permit, config, service.clone(), limits, stop.clone()));
            }
        }
    }
    drop(listener);
    stop.cancel();
    let drained = async {
        while let Some(ended) = connections.join_next().await {
            told(ended);
        }
    };
    let _ = timeout(limits.drain, drained).await;
    let cut = connections.len();
    connections.shutdown().await;
    Served { cut }
}

fn told(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "connection ended by a panic in its service");
    }
}

/// A client, once there is room to shake hands with it.
async fn next_client(listener: &TcpListener, handshakes: &Arc<Semaphore>) -> (TcpStream, SocketAddr, OwnedSemaphorePermit) {
    let permit = handshakes.clone().acquire_owned().await.expect("the semaphore is never closed");
    loop {
        match listener.accept().await {
            Ok((tcp, address)) => return (tcp, address, permit),
            Err(error) => {
                // Out of descriptors: accepting again at once would only spin until some other connection ends.
                tracing::warn!(%error, "no connection could be accepted");
                sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn serve_client(
    tcp: TcpStream,
    address: SocketAddr,
    permit: OwnedSemaphorePermit,
    config: Arc<ServerConfig>,
    service: Answerer,
    limits: ServeLimits,
    stop: CancellationToken,
) {
    let _ = tcp.set_nodelay(true);
    let shaken = tokio::select! {
        shaken = timeout(limits.handshake, TlsAcceptor::from(config).accept(tcp)) => shaken,
        () = stop.cancelled() => return,
    };
    drop(permit);
    match shaken {
        Ok(Ok(stream)) => serve_stream(stream, address, service, limits, stop).await,
        Ok(Err(error)) => tracing::debug!(%address, %error, "client refused in the handshake"),
        Err(_) => tracing::debug!(%address, after = ?limits.handshake, "client too slow in the handshake"),
    }
}

async fn serve_stream(stream: TlsStream<TcpStream>, address: SocketAddr, service: Answerer, limits: ServeLimits, stop: CancellationToken) {
    let (_, session) = stream.get_ref();
    let http2 = session.alpn_protocol() == Some(tls::HTTP2);
    let certificate = session.peer_certificates().and_then(|chain| chain.first()).map(PeerCertificate::of);
    let service = TowerToHyperService::new(service.0.map_request(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(PeerAddress(address));
        if let Some(certificate) = &certificate {
            request.extensions_mut().insert(certificate.clone());
        }
        request
    }));
    let io = TokioIo::new(stream);
    let result = if http2 {
        let connection = h2::plain_server(limits.keep_alive).serve_connection(io, service);
        until_stopped(connection, |connection| connection.graceful_shutdown(), &stop).await
    } else {
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(limits.header_read);
        let connection = builder.serve_connection(io, service).with_upgrades();
        until_stopped(connection, |connection| connection.graceful_shutdown(), &stop).await
    };
    if let Err(error) = result {
        tracing::debug!(%address, error = crate::fault::chain(&error), "connection broke");
    }
}

async fn until_stopped<C: Future>(connection: C, end: impl FnOnce(Pin<&mut C>), stop: &CancellationToken) -> C::Output {
    let mut connection = pin!(connection);
    tokio::select! {
        result = connection.as_mut() => return result,
        () = stop.cancelled() => {}
    }
    end(connection.as_mut());
    connection.await
}
