//! Client of the model's endpoint.
//!
//! | Module | Does |
//! |---|---|
//! | `turns` | makes of a conversation what every endpoint takes |
//! | `format` | the four wire formats: bodies of requests, readers of streams |
//! | `answer` | collects an answer within its limits |
//! | `sse` | splits bytes into events |
//! | `upstream` | what all requests to one endpoint have in common: TLS, proxy, key, headers |
//! | `connection` | sends a request and reads its stream |
//! | `failure` | says what failed and who can mend it |
//! | `fallbacks` | tries the next endpoint |
//! | `retries` | says how long to wait |

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use tokio::sync::{mpsc, oneshot};
use yoi_wire::entry::{AgentConfig, Assistant, ModelConfig, PromptItem};
use yoi_wire::manifest::ModelEndpoint;

mod answer;
mod api_key;
mod connection;
mod deltas;
pub(crate) mod failure;
mod fallbacks;
pub(crate) mod format;
mod retries;
mod secrets;
pub(crate) mod sse;
mod turns;
pub(crate) mod upstream;

pub use api_key::ApiKey;
pub use deltas::{DeltaSink, ModelDelta};
pub use failure::{HistoryFault, ModelFailure, ModelFailureClass, WaitReason};
pub use fallbacks::{FailedTry, FallbackModels};
pub use retries::RetryPolicy;
pub use secrets::ModelSecrets;

use connection::Connection;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long an answer may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelTimeouts {
    /// Until its head comes. Models that reason take long.
    pub head: Duration,
    /// Without a byte of it. Comments and pings are bytes.
    pub idle: Duration,
    /// For all of it. Ends an answer that comes slowly and without end.
    pub total: Duration,
}

impl Default for ModelTimeouts {
    fn default() -> Self {
        Self { head: Duration::from_secs(600), idle: Duration::from_secs(600), total: Duration::from_secs(2 * 3600) }
    }
}

/// The client cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    #[error("failed to set up TLS for the model")]
    Tls(#[from] rustls::Error),
    #[error("failed to make a client for the model")]
    Http(#[from] reqwest::Error),
    #[error("failed to make a client for the model: {0}")]
    Endpoint(String),
    #[error("failed to start the model's thread")]
    Thread(#[source] std::io::Error),
}

/// What the model is asked: all of it stands in the log.
#[derive(Clone, Debug)]
pub struct ModelRequest {
    /// System prompt, tools, and the model's name and options.
    pub config: Arc<AgentConfig>,
    /// The conversation.
    pub items: Arc<Vec<PromptItem>>,
    /// Whether tools may be called. They are named in either case, because the endpoint's cache begins with them.
    pub offer_tools: bool,
}

/// Calls the model on a thread of its own. Answers are parsed there, so that a large or fast one delays neither the line nor a stop.
#[derive(Debug)]
pub struct ModelClient {
    jobs: mpsc::UnboundedSender<Job>,
    config: ModelConfig,
}

#[derive(Debug)]
struct Job {
    request: ModelRequest,
    sink: DeltaSink,
    answer: oneshot::Sender<Result<Assistant, ModelFailure>>,
}

impl ModelClient {
    /// Starts the thread.
    ///
    /// # Errors
    /// The endpoint's settings, TLS, the client or the thread cannot be set up.
    pub fn new(endpoint: &ModelEndpoint, secrets: &ModelSecrets, timeouts: ModelTimeouts) -> Result<Self, ModelError> {
        let connection = Arc::new(Connection::new(endpoint, secrets, timeouts)?);
        let config = connection.config().clone();
        Self::start(config, move |request, sink| {
            let connection = connection.clone();
            async move { connection.call(&request, &sink).await }
        })
    }

    /// Starts a thread that runs `call` for one job after another.
    fn start<F>(config: ModelConfig, call: impl Fn(ModelRequest, DeltaSink) -> F + Send + 'static) -> Result<Self, ModelError>
    where
        F: Future<Output = Result<Assistant, ModelFailure>> + Send + 'static,
    {
        let (jobs, mut queue) = mpsc::unbounded_channel::<Job>();
        // With one thread, reading and parsing alternate, and a call can be dropped at each change between them.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(ModelError::Thread)?;
        let work = async move {
            while let Some(Job { request, sink, mut answer }) = queue.recv().await {
                let result = tokio::select! {
                    // Where a panic does not end the process, the next job must find the thread alive.
                    result = AssertUnwindSafe(call(request, sink)).catch_unwind() => match result {
                        Ok(result) => result,
                        Err(_) => Err(ModelFailure::call_panicked()),
                    },
                    // The caller is gone. Dropping the call closes its connection.
                    () = answer.closed() => continue,
                };
                let _ = answer.send(result);
            }
        };
        std::thread::Builder::new().name("model".to_owned()).spawn(move || runtime.block_on(work)).map_err(ModelError::Thread)?;
        Ok(Self { jobs, config })
    }

    /// Format, name and options, as the log records them and requests carry them.
    #[must_use]
    pub fn config(&self) -> ModelConfig {
        self.config.clone()
    }

    /// Calls the model and returns its complete answer; `sink` sees it come. Dropping the future ends the call; `sink` then still knows the
    /// tokens that were counted. The caller sees to it that `request.config.model` is this client's [`Self::config`].
    ///
    /// # Errors
    /// What failed, and who can mend it.
    pub async fn call(&self, request: ModelRequest, sink: DeltaSink) -> Result<Assistant, ModelFailure> {
        let (answer, answered) = oneshot::channel();
        let queued = self.jobs.send(Job { request, sink, answer });
        match answered.await {
            Ok(answer) if queued.is_ok() => answer,
            Ok(_) | Err(_) => Err(ModelFailure::call_panicked()),
        }
    }
}

#[cfg(test)]
pub(crate) mod test_server;
#[cfg(test)]
mod tests;
