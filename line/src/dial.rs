//! One line: dial, upgrade, then serve on the connection.

use crate::connect::{authorization, connect, open_first};
use crate::error::{LineEnd, LineError};
use crate::h2::{self, KeepAlive};
use crate::request_client::message_of;
use crate::service::{BoxedService, HttpService};
use crate::source::TextSource;
use crate::{UPGRADE, tls};
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Incoming;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// The server to dial, and the credentials.
#[derive(Clone, Debug)]
pub struct Dial {
    /// `host:port`. All addresses of the name are tried in turn. [`LineSet`](crate::LineSet) dials those of its resolver instead.
    pub address: String,
    /// The name (or IP address) that the server's certificate must bear.
    pub server_name: String,
    /// The CAs that may have signed it, PEM. No other CA is trusted.
    pub ca_pem: TextSource,
    /// The path of the upgrade request, from the root. A [`RequestClient`](crate::RequestClient) does not use it.
    pub path: String,
    /// The bearer token. White space around it is removed.
    pub token: TextSource,
    /// The timeouts of dialling and of the line.
    pub timings: Timings,
}

/// The timeouts of a dialler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timings {
    /// For each of: resolving the name, TCP, TLS.
    pub connect: Duration,
    /// From the request to its 101. Longer than `connect`, because the acceptor asks the API server to review the token.
    pub upgrade: Duration,
    /// How long responses in flight may take after a shutdown was requested.
    pub drain: Duration,
    /// When to ping, and when to give the peer up.
    pub keep_alive: KeepAlive,
}

impl Default for Timings {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            upgrade: Duration::from_secs(15),
            drain: Duration::from_secs(5),
            keep_alive: KeepAlive::default(),
        }
    }
}

/// A line that the server accepted, before [`DialledLine::serve`].
#[derive(Debug)]
pub struct DialledLine {
    io: Upgraded,
    address: SocketAddr,
    timings: Timings,
}

/// Dials once, serves until the line ends or `shutdown` resolves, and returns why it ended. It does not dial again.
///
/// # Errors
/// When no address of the name gives a line.
pub async fn serve_on_line(dial: &Dial, service: impl HttpService, shutdown: impl Future<Output = ()>) -> Result<LineEnd, LineError> {
    let mut shutdown = pin!(shutdown);
    let line = tokio::select! {
        line = dial.open() => line?,
        () = &mut shutdown => return Ok(LineEnd::ShutDown),
    };
    Ok(line.serve(service, shutdown).await)
}

impl Dial {
    /// Opens a line to the first address of the name that gives one.
    ///
    /// # Errors
    /// The error of the last address.
    pub async fn open(&self) -> Result<DialledLine, LineError> {
        open_first(self, |address| self.open_to(address)).await
    }

    /// Opens a line to one address.
    ///
    /// # Errors
    /// When the address gives no line; [`LineError::class`] tells what has to change.
    pub async fn open_to(&self, address: SocketAddr) -> Result<DialledLine, LineError> {
        let request = self.upgrade_request()?;
        let stream = connect(self, address, tls::HTTP1).await?;
        let after = self.timings.upgrade;
        let io = timeout(after, upgrade(stream, request, address)).await.map_err(|_| LineError::TimedOut {
            operation: "agree on a line",
            address: address.to_string(),
            after,
        })??;
        Ok(DialledLine { io, address, timings: self.timings })
    }

    fn upgrade_request(&self) -> Result<Request<Empty<Bytes>>, LineError> {
        Request::builder()
            .method(Method::GET)
            .uri(&self.path)
            .header(header::HOST, &self.server_name)
            .header(header::CONNECTION, "Upgrade")
            .header(header::UPGRADE, UPGRADE)
            .header(header::AUTHORIZATION, authorization(self)?)
            .body(Empty::new())
            .map_err(|source| LineError::Path { path: self.path.clone(), source })
    }
}

impl DialledLine {
    /// The address of the server.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until the line ends, and returns why. After `shutdown` resolves it takes no new requests, and cuts those in flight after
    /// `timings.drain`.
    pub async fn serve(self, service: impl HttpService, shutdown: impl Future<Output = ()>) -> LineEnd {
        self.serve_boxed(service.into_boxed(), shutdown).await
    }

    pub(crate) async fn serve_boxed(self, service: BoxedService, shutdown: impl Future<Output = ()>) -> LineEnd {
        let server = h2::line_server(self.timings.keep_alive);
        let mut connection = pin!(server.serve_connection(self.io, TowerToHyperService::new(service.0)));
        tokio::select! {
            result = connection.as_mut() => return LineEnd::of(result),
            () = shutdown => {}
        }
        connection.as_mut().graceful_shutdown();
        if timeout(self.timings.drain, connection).await.is_err() {
            tracing::warn!(address = %self.address, drain = ?self.timings.drain, "line cut with requests in flight");
        }
        LineEnd::ShutDown
    }
}

async fn upgrade(
    stream: tokio_rustls::client::TlsStream<tokio::net::TcpStream>,
    request: Request<Empty<Bytes>>,
    address: SocketAddr,
) -> Result<Upgraded, LineError> {
    let broken = |source| LineError::Http { address: address.to_string(), source };
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
    // The set aborts the task when the dial is dropped.
    let mut driver = JoinSet::new();
    driver.spawn(connection.with_upgrades());
    let response = sender.send_request(request).await.map_err(broken)?;
    if is_line(&response) {
        return hyper::upgrade::on(response).await.map_err(broken);
    }
    let status = response.status();
    let message = refusal_message(response).await;
    let address = address.to_string();
    Err(match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => LineError::Refused { address, status, message },
        _ => LineError::NotALine { address, status, message },
    })
}

fn is_line(response: &Response<Incoming>) -> bool {
    let protocol = response.headers().get(header::UPGRADE);
    response.status() == StatusCode::SWITCHING_PROTOCOLS
        && protocol.is_some_and(|protocol| protocol.as_bytes().eq_ignore_ascii_case(UPGRADE.as_bytes()))
}

/// The server's message. A message that cannot be read is replaced by the reason.
async fn refusal_message(response: Response<Incoming>) -> String {
    const MAX: usize = 16 << 10;
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        return format!("it switched to another protocol than {UPGRADE}");
    }
    match Limited::new(response.into_body(), MAX).collect().await {
        Ok(body) => message_of(&body.to_bytes()),
        Err(error) => format!("its message could not be read: {error}"),
    }
}
