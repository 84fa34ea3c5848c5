//! The accepting end: it answers 101 and then sends the requests.

use crate::UPGRADE;
use crate::abort::AbortableIo;
use crate::error::LineEnd;
use crate::h2::{self, KeepAlive};
use crate::service::{BoxBody, BoxError, boxed};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri, Version, header};
use hyper::body::{Body, Incoming};
use hyper::client::conn::http2::SendRequest;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// From the 101 to the first byte of HTTP/2. Only the network lies between them.
const SWITCH_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a request did not become a line.
#[derive(Debug, thiserror::Error)]
pub enum AcceptError {
    /// The request is no request for a line. Answer it with [`AcceptError::status`].
    #[error("failed to find a request for a line: {missing}")]
    NotALine {
        /// What the request lacks, as a clause for people.
        missing: &'static str,
    },
    /// The connection ended, or its first bytes after the 101 were not HTTP/2.
    #[error("failed to switch the connection to a line")]
    Switch(#[source] hyper::Error),
    /// The dialler did not speak HTTP/2 in time.
    #[error("failed to switch the connection to a line within {0:?}")]
    TimedOut(Duration),
}

impl AcceptError {
    /// The HTTP status to answer with: 426 for a request that is none for a line, else 500.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::NotALine { .. } => StatusCode::UPGRADE_REQUIRED,
            Self::Switch(_) | Self::TimedOut(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

/// Why a request on a line got no response.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// The other end has not seen the request. The caller may send it again on another line.
    #[error("failed to send a request: the line has ended")]
    Unsent(#[source] hyper::Error),
    /// The request was sent and no response came. The other end may have acted on it.
    #[error("failed to get an answer to a request that was sent")]
    Broken(#[source] hyper::Error),
    /// The request has no usable path. Nothing was sent.
    #[error("failed to address a request to the line")]
    Uri(#[source] http::uri::InvalidUriParts),
}

/// The bearer token of a request, without white space around it. `None` when there is none, or an empty one.
pub fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

/// Whether a header that is a list separated by commas has this element, in whatever case.
pub fn header_has(headers: &HeaderMap, name: &header::HeaderName, wanted: &str) -> bool {
    let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|word| word.trim().eq_ignore_ascii_case(wanted))
}

/// The future of [`accept_upgrade`]: it resolves once the response is sent and the dialler speaks HTTP/2.
pub type SwitchingLine = BoxFuture<'static, Result<LineHandle, AcceptError>>;

/// Accepts a line. Call it **after** the dialler was authenticated: the 101 tells the dialler that it is accepted.
///
/// The caller returns the response, and awaits the future in a task of its own: the future resolves only after the response was sent.
/// `R` is the type of the response's body, which is empty (`axum::body::Body`, `http_body_util::Empty`, ...).
///
/// # Errors
/// [`AcceptError::NotALine`] at once; the other variants come from the future.
pub fn accept_upgrade<B, R: Default>(mut request: Request<B>, keep_alive: KeepAlive) -> Result<(Response<R>, SwitchingLine), AcceptError> {
    check_upgrade_headers(&request)?;
    let switched = hyper::upgrade::on(&mut request);
    let mut response = Response::new(R::default());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    response.headers_mut().insert(header::CONNECTION, header::HeaderValue::from_static("Upgrade"));
    response.headers_mut().insert(header::UPGRADE, header::HeaderValue::from_static(UPGRADE));

    let line = async move {
        let stop = CancellationToken::new();
        let (sender, connection) = timeout(SWITCH_TIMEOUT, async {
            let io = AbortableIo::new(switched.await?, stop.clone());
            h2::line_client(keep_alive).handshake(io).await
        })
        .await
        .map_err(|_| AcceptError::TimedOut(SWITCH_TIMEOUT))?
        .map_err(AcceptError::Switch)?;

        let (ended, end) = watch::channel(None);
        let stopped = stop.clone();
        tokio::spawn(async move {
            let end = tokio::select! {
                // Polled first, because the cancellation also makes the connection fail.
                biased;
                () = stopped.cancelled() => LineEnd::ShutDown,
                result = connection => LineEnd::of(result),
            };
            ended.send_replace(Some(end));
        });
        Ok(LineHandle { sender, end, stop })
    };
    Ok((response, line.boxed()))
}

fn check_upgrade_headers<B>(request: &Request<B>) -> Result<(), AcceptError> {
    let missing = if request.method() != Method::GET {
        "the method is not GET"
    } else if request.version() != Version::HTTP_11 {
        "the version is not HTTP/1.1"
    } else if !header_has(request.headers(), &header::CONNECTION, "upgrade") {
        "no Connection: Upgrade"
    } else if !header_has(request.headers(), &header::UPGRADE, UPGRADE) {
        "no Upgrade: yoi-line/1"
    } else if request.extensions().get::<hyper::upgrade::OnUpgrade>().is_none() {
        "the connection cannot be switched"
    } else {
        return Ok(());
    };
    Err(AcceptError::NotALine { missing })
}

/// The client end of a line. Cheap to clone; all clones share the line.
///
/// When the last clone is dropped, the line ends after the requests in flight.
#[derive(Clone, Debug)]
pub struct LineHandle {
    sender: SendRequest<BoxBody>,
    end: watch::Receiver<Option<LineEnd>>,
    stop: CancellationToken,
}

impl LineHandle {
    /// Sends a request to the other end and returns the response once its head is there. Only path and query of the URI are used.
    ///
    /// There is no timeout: wrap the call in `tokio::time::timeout`. Dropping the future, or later the response's body, cancels the request
    /// at the other end.
    ///
    /// # Errors
    /// [`RequestError`] tells whether the other end can have seen the request.
    pub async fn request<B>(&self, request: Request<B>) -> Result<Response<Incoming>, RequestError>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let request = with_authority(request)?.map(boxed);
        self.sender.clone().try_send_request(request).await.map_err(|mut error| match error.take_message() {
            Some(_) => RequestError::Unsent(error.into_error()),
            None => RequestError::Broken(error.into_error()),
        })
    }

    /// Resolves when the line takes no more requests, and returns why.
    ///
    /// A dialler that stops in order lets responses in flight finish. While there are any, this resolves only with the next request, which
    /// fails with [`RequestError::Unsent`]: hyper does not look for a GOAWAY before.
    pub async fn closed(&self) -> LineEnd {
        match self.end.clone().wait_for(Option::is_some).await {
            Ok(end) => end.clone().unwrap_or(LineEnd::ClosedByPeer),
            // The task was dropped without sending: the tokio runtime shuts down.
            Err(_) => LineEnd::ShutDown,
        }
    }

    /// Whether the line takes no more requests.
    pub fn is_closed(&self) -> bool {
        self.sender.is_closed() || self.end.borrow().is_some()
    }

    /// Ends the line and its requests in flight at once. The dialler will dial again.
    pub fn close(&self) {
        self.stop.cancel();
    }
}

/// Adds the scheme and authority that HTTP/2 requires in every request. On a line they carry no meaning.
fn with_authority<B>(mut request: Request<B>) -> Result<Request<B>, RequestError> {
    let mut uri = std::mem::take(request.uri_mut()).into_parts();
    uri.scheme = Some(Scheme::HTTPS);
    uri.authority.get_or_insert_with(|| Authority::from_static("line"));
    uri.path_and_query.get_or_insert_with(|| PathAndQuery::from_static("/"));
    *request.uri_mut() = Uri::from_parts(uri).map_err(RequestError::Uri)?;
    *request.version_mut() = Version::HTTP_2;
    Ok(request)
}
