//! The dialler's own requests: an ordinary HTTP/2 client on a connection of its own.

use crate::connect::{authorization, connect, resolve};
use crate::dial::Dial;
use crate::error::{FailureClass, LineError, LineFailure, chain};
use crate::service::{BoxBody, BoxError, boxed};
use crate::{h2, tls};
use bytes::Bytes;
use http::uri::{Authority, InvalidUri, InvalidUriParts, PathAndQuery, Scheme};
use http::{Method, Request, Response, StatusCode, Uri, Version, header};
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestLimits {
    /// For [`RequestClient::call`], until the answer's head; for the JSON calls, until its last byte. Connecting counts.
    pub answer: Duration,
    /// The longest JSON answer, in bytes.
    pub max_body: usize,
}

impl Default for RequestLimits {
    fn default() -> Self {
        Self { answer: Duration::from_secs(30), max_body: 8 << 20 }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// Nothing was sent.
    #[error("failed to connect")]
    Connect(#[from] LineError),
    /// Nothing was sent.
    #[error("failed to use {path:?} as the path of a call")]
    Path {
        path: String,
        #[source]
        source: http::Error,
    },
    /// Nothing was sent.
    #[error("failed to write the call's body as JSON")]
    Encode(#[source] serde_json::Error),
    /// The connection ended before the call left.
    #[error("failed to send the call")]
    Unsent(#[source] hyper::Error),
    /// The call left; whether the server acted on it is unknown.
    #[error("failed to get an answer to a call that was sent")]
    Broken(#[source] hyper::Error),
    /// Whether the server acted on the call is unknown.
    #[error("failed to get an answer within {0:?}")]
    TimedOut(Duration),
    /// The server said no. `message` is the field of that name of a JSON body, or the body's beginning; `body` is all of it.
    #[error("failed by the server's word: {status}: {message}")]
    Status { status: StatusCode, message: String, body: Bytes },
    #[error("failed to read the answer's body")]
    ReadBody(#[source] BoxError),
    #[error("failed to read the answer as JSON")]
    Decode(#[source] serde_json::Error),
}

impl CallError {
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

    /// The server's status, if it gave one.
    pub fn status(&self) -> Option<StatusCode> {
        match self {
            Self::Status { status, .. } => Some(*status),
            _ => None,
        }
    }

    pub fn fault(&self) -> LineFailure {
        LineFailure { class: self.class(), message: chain(self) }
    }
}

/// A client on one connection, made at the first call, shared by all clones, made anew by the first call after it ended.
///
/// Nothing is tried twice: which calls may be repeated is known only to who makes them.
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
    pub fn new(dial: Dial) -> Self {
        Self { shared: Arc::new(Shared { dial, connection: Mutex::new(None) }), limits: RequestLimits::default() }
    }

    /// The same connection under other limits.
    pub fn with_limits(&self, limits: RequestLimits) -> Self {
        Self { shared: self.shared.clone(), limits }
    }

    /// Any request, the answer whatever its status, its body as it streams in. The URI is path and query; the token is added.
    pub async fn call<B>(&self, request: Request<B>) -> Result<Response<Incoming>, CallError>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        self.within(self.send(request.map(boxed))).await
    }

    /// POST as JSON, the answer as JSON. An empty answer reads as `null`, so `Res` may be `()`.
    pub async fn post_json<Req: Serialize + ?Sized, Res: DeserializeOwned>(&self, path: &str, body: &Req) -> Result<Res, CallError> {
        let body = serde_json::to_vec(body).map_err(CallError::Encode)?;
        self.json(Method::POST, path, Some(body)).await
    }

    /// GET, the answer as JSON.
    pub async fn get_json<Res: DeserializeOwned>(&self, path: &str) -> Result<Res, CallError> {
        self.json(Method::GET, path, None).await
    }

    async fn json<Res: DeserializeOwned>(&self, method: Method, path: &str, body: Option<Vec<u8>>) -> Result<Res, CallError> {
        let mut request = Request::builder().method(method).uri(path).header(header::ACCEPT, "application/json");
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        let request = request
            .body(boxed(Full::from(body.unwrap_or_default())))
            .map_err(|source| CallError::Path { path: path.to_owned(), source })?;
        let (status, body) = self
            .within(async {
                let response = self.send(request).await?;
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

    async fn within<T>(&self, answer: impl Future<Output = Result<T, CallError>>) -> Result<T, CallError> {
        timeout(self.limits.answer, answer).await.map_err(|_| CallError::TimedOut(self.limits.answer))?
    }

    async fn send(&self, request: Request<BoxBody>) -> Result<Response<Incoming>, CallError> {
        let dial = &self.shared.dial;
        let mut request = addressed(request, &dial.server_name)?;
        // Read for each call, not for each connection: the connection outlives the token.
        request.headers_mut().insert(header::AUTHORIZATION, authorization(dial)?);
        let mut sender = self.shared.sender().await?;
        sender.try_send_request(request).await.map_err(|mut error| match error.take_message() {
            Some(_) => CallError::Unsent(error.into_error()),
            None => CallError::Broken(error.into_error()),
        })
    }
}

impl Shared {
    /// The connection. Who finds none dials while the others wait: a burst of calls makes one connection.
    async fn sender(&self) -> Result<SendRequest<BoxBody>, LineError> {
        let mut connection = self.connection.lock().await;
        if let Some(sender) = connection.as_ref().filter(|sender| !sender.is_closed()) {
            return Ok(sender.clone());
        }
        *connection = None;
        let mut last = None;
        for address in resolve(&self.dial).await? {
            match self.open_to(address).await {
                Ok(sender) => return Ok(connection.insert(sender).clone()),
                Err(error) => last = Some(error),
            }
        }
        Err(last.expect("resolve gives at least one address"))
    }

    async fn open_to(&self, address: std::net::SocketAddr) -> Result<SendRequest<BoxBody>, LineError> {
        let stream = connect(&self.dial, address, tls::HTTP2).await?;
        let (sender, connection) = h2::line_client(self.dial.timings.keep_alive)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|source| LineError::Http { address: address.to_string(), source })?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%address, error = chain(&error), "connection of calls ended");
            }
        });
        Ok(sender)
    }
}

fn addressed(mut request: Request<BoxBody>, server_name: &str) -> Result<Request<BoxBody>, CallError> {
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

/// What a server's error body says: the `message` of a JSON object (as Kubernetes writes it), or else its beginning as text.
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
