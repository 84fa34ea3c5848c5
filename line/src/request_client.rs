//! The HTTP/2 client with which the runtime calls the gateway, on a connection of its own beside the lines.

use crate::connect::{authorization, connect, open_first};
use crate::dial::Dial;
use crate::error::{FailureClass, LineError, LineFailure};
use crate::service::{BoxBody, BoxError, boxed};
use crate::{h2, tls};
use bytes::Bytes;
use http::uri::{Authority, InvalidUri, InvalidUriParts, PathAndQuery, Scheme};
use http::{Request, Response, StatusCode, Uri, Version, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Body, Incoming};
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::timeout;
use yoi_wire::error_chain;

/// The limits of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestLimits {
    /// Time until the response's head for [`RequestClient::call`], until its last byte for the JSON calls. It includes connecting.
    pub response_timeout: Duration,
    /// The longest JSON response, in bytes.
    pub max_body: usize,
}

impl Default for RequestLimits {
    fn default() -> Self {
        Self { response_timeout: Duration::from_secs(30), max_body: 8 << 20 }
    }
}

/// Why a call failed, and whether the server can have acted on it.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// Nothing was sent.
    #[error("failed to connect")]
    Connect(#[from] LineError),
    /// Nothing was sent.
    #[error("failed to use {path:?} as the path of a call")]
    Path {
        /// The path of the call.
        path: String,
        /// The cause.
        #[source]
        source: http::Error,
    },
    /// Nothing was sent.
    #[error("failed to write the call's body as JSON")]
    Encode(#[source] serde_json::Error),
    /// The connection ended before the call was sent.
    #[error("failed to send the call")]
    Unsent(#[source] hyper::Error),
    /// The call was sent. Whether the server acted on it is unknown.
    #[error("failed to get an answer to a call that was sent")]
    Broken(#[source] hyper::Error),
    /// Whether the server acted on the call is unknown.
    #[error("failed to get an answer within {0:?}")]
    TimedOut(Duration),
    /// The server answered with a status that is no success.
    #[error("failed with status {status}: {message}")]
    Status {
        /// The status of the response.
        status: StatusCode,
        /// The `message` of the response's JSON body, or the beginning of the body.
        message: String,
        /// The whole body.
        body: Bytes,
    },
    /// The body broke off, or is longer than [`RequestLimits::max_body`].
    #[error("failed to read the answer's body")]
    ReadBody(#[source] BoxError),
    /// The body is not the expected JSON.
    #[error("failed to read the answer as JSON")]
    Decode(#[source] serde_json::Error),
}

impl CallError {
    /// The part that has to change before the call can succeed.
    pub fn class(&self) -> FailureClass {
        match self {
            Self::Connect(error) => error.class(),
            Self::Path { .. } | Self::Encode(_) => FailureClass::Local,
            Self::Unsent(_) | Self::TimedOut(_) => FailureClass::Unreachable,
            Self::Broken(_) | Self::ReadBody(_) => FailureClass::Lost,
            Self::Status { status: StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, .. } => FailureClass::Refused,
            Self::Status { .. } | Self::Decode(_) => FailureClass::Answered,
        }
    }

    /// The status of the response, if it was no success.
    pub fn status(&self) -> Option<StatusCode> {
        match self {
            Self::Status { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// The error as a [`LineFailure`].
    pub fn failure(&self) -> LineFailure {
        LineFailure { class: self.class(), message: error_chain(self) }
    }
}

/// An HTTP/2 client on one connection. The first call opens the connection, all clones share it, and the first call after its end opens a new
/// one.
///
/// The client repeats no call: only the caller knows which calls may be repeated.
#[derive(Clone, Debug)]
pub struct RequestClient {
    shared: Arc<Shared>,
    limits: RequestLimits,
}

#[derive(Debug)]
struct Shared {
    dial: Dial,
    connection: Mutex<Option<SendRequest<BoxBody>>>,
}

impl RequestClient {
    /// A client with the default limits. It does not connect yet.
    pub fn new(dial: Dial) -> Self {
        Self { shared: Arc::new(Shared { dial, connection: Mutex::new(None) }), limits: RequestLimits::default() }
    }

    /// A client with other limits on the same connection.
    pub fn with_limits(&self, limits: RequestLimits) -> Self {
        Self { shared: self.shared.clone(), limits }
    }

    /// Sends any request and returns the response whatever its status; its body streams. Only path and query of the URI are used. The bearer
    /// token is added.
    ///
    /// # Errors
    /// Every variant but `Status`, `ReadBody` and `Decode`.
    pub async fn call<B>(&self, request: Request<B>) -> Result<Response<Incoming>, CallError>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        self.with_timeout(self.send_unlimited(request.map(boxed))).await
    }

    /// Sends `body` as JSON by POST and returns the response read as JSON. An empty body reads as `null`, so `Res` may be `()`.
    ///
    /// # Errors
    /// [`CallError::Status`] when the status is no success.
    pub async fn post_json<Req: Serialize + ?Sized, Res: DeserializeOwned>(&self, path: &str, body: &Req) -> Result<Res, CallError> {
        let body = serde_json::to_vec(body).map_err(CallError::Encode)?;
        let request = Request::post(path).header(header::ACCEPT, "application/json").header(header::CONTENT_TYPE, "application/json");
        let request = request.body(boxed(Full::from(body))).map_err(|source| CallError::Path { path: path.to_owned(), source })?;
        let (status, body) = self
            .with_timeout(async {
                let response = self.send_unlimited(request).await?;
                let status = response.status();
                let body = Limited::new(response.into_body(), self.limits.max_body).collect().await.map_err(CallError::ReadBody)?;
                Ok((status, body.to_bytes()))
            })
            .await?;
        if !status.is_success() {
            return Err(CallError::Status { status, message: message_of(&body), body });
        }
        let text: &[u8] = if body.is_empty() { b"null" } else { &body };
        serde_json::from_slice(text).map_err(CallError::Decode)
    }

    async fn with_timeout<T>(&self, response: impl Future<Output = Result<T, CallError>>) -> Result<T, CallError> {
        timeout(self.limits.response_timeout, response).await.map_err(|_| CallError::TimedOut(self.limits.response_timeout))?
    }

    /// Sends a request on the connection, with authority and bearer token. It sets no timeout: [`RequestClient::call`] limits the time until
    /// the head, [`RequestClient::post_json`] the time until the last byte.
    async fn send_unlimited(&self, request: Request<BoxBody>) -> Result<Response<Incoming>, CallError> {
        let dial = &self.shared.dial;
        let mut request = with_authority(request, &dial.server_name)?;
        // Read at each call, because the connection outlives the token.
        request.headers_mut().insert(header::AUTHORIZATION, authorization(dial)?);
        let mut sender = self.shared.sender().await?;
        sender.try_send_request(request).await.map_err(|mut error| match error.take_message() {
            Some(_) => CallError::Unsent(error.into_error()),
            None => CallError::Broken(error.into_error()),
        })
    }
}

impl Shared {
    /// The open connection, or a new one. The lock is held while connecting, so that a burst of calls opens one connection.
    async fn sender(&self) -> Result<SendRequest<BoxBody>, LineError> {
        let mut connection = self.connection.lock().await;
        if let Some(sender) = connection.as_ref().filter(|sender| !sender.is_closed()) {
            return Ok(sender.clone());
        }
        *connection = None;
        let sender = open_first(&self.dial, |address| self.open_to(address)).await?;
        Ok(connection.insert(sender).clone())
    }

    async fn open_to(&self, address: std::net::SocketAddr) -> Result<SendRequest<BoxBody>, LineError> {
        let stream = connect(&self.dial, address, tls::HTTP2).await?;
        let (sender, connection) = h2::line_client(self.dial.timings.keep_alive)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|source| LineError::Http { address: address.to_string(), source })?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%address, error = error_chain(&error), "connection of calls ended");
            }
        });
        Ok(sender)
    }
}

/// Adds the scheme and authority that HTTP/2 requires.
fn with_authority(mut request: Request<BoxBody>, server_name: &str) -> Result<Request<BoxBody>, CallError> {
    let path = request.uri().path_and_query().cloned().unwrap_or(PathAndQuery::from_static("/"));
    let uri = Authority::try_from(server_name).map_err(|source: InvalidUri| http::Error::from(source)).and_then(|authority| {
        let mut parts = http::uri::Parts::default();
        (parts.scheme, parts.authority, parts.path_and_query) = (Some(Scheme::HTTPS), Some(authority), Some(path.clone()));
        Uri::from_parts(parts).map_err(|source: InvalidUriParts| http::Error::from(source))
    });
    *request.uri_mut() = uri.map_err(|source| CallError::Path { path: path.to_string(), source })?;
    *request.version_mut() = Version::HTTP_2;
    Ok(request)
}

/// The `message` of an error's JSON body (as Kubernetes writes it), or else the beginning of the body as text.
pub(crate) fn message_of(body: &[u8]) -> String {
    const MAX: usize = 1024;
    #[derive(serde::Deserialize)]
    struct ErrorBody {
        message: String,
    }
    if let Ok(ErrorBody { message }) = serde_json::from_slice(body) {
        return message;
    }
    String::from_utf8_lossy(&body[..body.len().min(MAX)]).trim().to_owned()
}
