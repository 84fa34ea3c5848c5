//! The model proxy: a program asks its model on the Pod's loopback and holds no key.
//!
//! It takes the requests of the endpoint's own wire format and no others, replaces the run's token by the endpoint's key, and passes the
//! answer on as it comes.
//!
//! | Format | Paths |
//! |---|---|
//! | Anthropic | `POST /v1/messages`, `POST /v1/messages/count_tokens` |
//! | OpenAI Responses | `POST /v1/responses`, `GET /v1/models` |
//! | OpenAI chat completions | `POST /v1/chat/completions`, `GET /v1/models` |
//! | Gemini | `POST /v1beta/models/NAME:generateContent`, `:streamGenerateContent`, `:countTokens` |
//!
//! # Guarantees
//! - Key, secret headers and a proxy's password are in no answer, no error and no line of the log. An endpoint that repeats a secret has
//!   it replaced by asterisks.
//! - Memory is bounded: bodies of requests, requests in flight, and what is read ahead of a slow client.
//! - Each answer's tokens are counted once, also those of an answer that breaks off or that its program does not wait for. An endpoint that
//!   tells none is counted by the sizes of request and answer.
//!
//! # Caveats
//! - The model's name in a request stays as the program wrote it, because programs also call smaller models beside their main one.
//! - The endpoint's fallbacks are not used: a program's conversation belongs to one endpoint.
//! - Any process of the Pod may ask with the run's token. All of them have one budget.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::{CancellationToken, DropGuard};
use yoi_wire::manifest::ModelEndpoint;
use yoi_wire::preset::ProgramFormat;

use super::access::RunBudget;
use super::run_tokens::{RunGrant, RunTokens};
use crate::model::format::WireFormat;
use crate::model::upstream::Upstream;
use crate::model::{ModelError, ModelSecrets, ModelTimeouts};

mod conceal;
mod forward;
mod passing;
mod refusal;
mod request_body;
mod route;
mod usage;

#[cfg(test)]
mod tests;

use conceal::Secrets;

/// Connections at once. The next one waits to be accepted.
const MAX_CONNECTIONS: usize = 64;
/// Requests in flight. The next one is refused.
const MAX_REQUESTS: usize = 32;
/// Memory for bodies of requests, in KiB. A request waits for its share.
const BODY_MEMORY_KIB: usize = 64 << 10;
/// Bytes of a request's head, and of what is read from a connection in advance.
const CONNECTION_BUFFER_BYTES: usize = 128 << 10;
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// How long to wait when no connection can be accepted, for example because no file descriptor is left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The proxy cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    #[error("failed to set up the model for its proxy")]
    Model(#[from] ModelError),
    #[error("failed to listen on the Pod's loopback for the model proxy")]
    Listen(#[source] io::Error),
    #[error("failed to start the thread of the model proxy")]
    Thread(#[source] io::Error),
}

/// A token opens the proxy. Dropping this revokes it; answers that have begun are passed on.
pub type ProxyGrant = RunGrant<Arc<dyn RunBudget>>;

/// A running proxy. Dropping it closes all its connections.
pub struct ModelProxy {
    address: SocketAddr,
    tokens: Arc<RunTokens<Arc<dyn RunBudget>>>,
    _stop: DropGuard,
}

impl std::fmt::Debug for ModelProxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ModelProxy").field("address", &self.address).finish_non_exhaustive()
    }
}

/// What all connections of a proxy share.
struct ProxyState {
    upstream: Upstream,
    secrets: Secrets,
    tokens: Arc<RunTokens<Arc<dyn RunBudget>>>,
    requests: Arc<Semaphore>,
    body_memory: Arc<Semaphore>,
}

impl ModelProxy {
    /// Listens on a port of 127.0.0.1 that the kernel chooses, and serves on a thread of its own, so that a fast answer delays nothing else.
    /// Of `endpoint`, `ca` holds the certificates already.
    ///
    /// # Errors
    /// The endpoint's settings, the listener or the thread cannot be set up.
    pub fn start(endpoint: &ModelEndpoint, secrets: &ModelSecrets) -> Result<Self, ProxyError> {
        let upstream = Upstream::new(endpoint, secrets, ModelTimeouts::default())?;
        let tokens = Arc::new(RunTokens::default());
        let state = Arc::new(ProxyState {
            upstream,
            secrets: Secrets::new(secrets),
            tokens: tokens.clone(),
            requests: Arc::new(Semaphore::new(MAX_REQUESTS)),
            body_memory: Arc::new(Semaphore::new(BODY_MEMORY_KIB)),
        });
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(ProxyError::Listen)?;
        listener.set_nonblocking(true).map_err(ProxyError::Listen)?;
        let address = listener.local_addr().map_err(ProxyError::Listen)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(ProxyError::Thread)?;
        let stop = CancellationToken::new();
        let stopped = stop.clone().cancelled_owned();
        let serve = async move {
            match TcpListener::from_std(listener) {
                Ok(listener) => tokio::select! {
                    () = stopped => {}
                    () = accept(listener, state) => {}
                },
                Err(error) => tracing::error!(%error, "model proxy cannot listen"),
            }
        };
        std::thread::Builder::new().name("model-proxy".to_owned()).spawn(move || runtime.block_on(serve)).map_err(ProxyError::Thread)?;
        Ok(Self { address, tokens, _stop: stop.drop_guard() })
    }

    /// The URL before the version segment, without a slash at its end.
    #[must_use]
    pub fn base_url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// `token` opens the proxy until the grant is dropped. What is asked with it is counted by `budget`.
    #[must_use = "dropping the grant revokes the token"]
    pub fn allow(&self, token: &str, budget: Arc<dyn RunBudget>) -> ProxyGrant {
        self.tokens.allow(token, budget)
    }
}

/// The format that an endpoint's proxy serves; `None` for an endpoint of another version.
#[must_use]
pub fn served_format(endpoint: &ModelEndpoint) -> Option<ProgramFormat> {
    WireFormat::of(endpoint).map(|format| match format {
        WireFormat::Responses => ProgramFormat::Responses,
        WireFormat::ChatCompletions => ProgramFormat::ChatCompletions,
        WireFormat::Anthropic => ProgramFormat::Anthropic,
        WireFormat::Gemini => ProgramFormat::Gemini,
    })
}

async fn accept(listener: TcpListener, state: Arc<ProxyState>) {
    let connections = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    // The semaphore is never closed.
    while let Ok(permit) = connections.clone().acquire_owned().await {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "model proxy cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let _ = stream.set_nodelay(true);
        let state = state.clone();
        tokio::spawn(async move {
            let service = service_fn(|request| {
                let state = state.clone();
                async move { Ok::<_, std::convert::Infallible>(forward::answer(&state, request).await) }
            });
            let mut http = hyper::server::conn::http1::Builder::new();
            http.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_buf_size(CONNECTION_BUFFER_BYTES);
            // It fails when the program goes away or an answer breaks off. Both are told where they happen.
            let _ = http.serve_connection(TokioIo::new(stream), service).await;
            drop(permit);
        });
    }
}
