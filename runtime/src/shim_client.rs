//! Client of the node's shim, over the Pod's own socket.

use std::path::{Path, PathBuf};
use std::time::Duration;

use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio::time::timeout;
use yoi_wire::node::{self, ChangeList};

/// The shim walks everything that the agent has changed.
const TIMEOUT: Duration = Duration::from_secs(28);
const MAX_BODY: usize = 32 << 20;

/// Why there is no list of changes.
#[derive(Debug, thiserror::Error)]
pub enum ShimClientError {
    #[error("failed to reach the node's shim at {}", path.display())]
    Connect { path: PathBuf, source: std::io::Error },
    #[error("failed to ask the node's shim for changes")]
    Ask(#[from] hyper::Error),
    /// The tree's base is gone, so there is nothing to compare it with. This is no failure.
    #[error("the node has no list of changes: {0}")]
    NoBase(String),
    #[error("failed to get changes from the node's shim: {status}: {message}")]
    Refused { status: StatusCode, message: String },
    #[error("failed to read the shim's answer: {0}")]
    Read(String),
    #[error("failed to get changes from the node's shim within {} s", TIMEOUT.as_secs())]
    TimedOut,
}

/// Paths of the tree that differ from its base, without those of `.git`, also of a repository in a folder of the tree.
///
/// # Errors
/// The shim cannot be reached, refuses, or takes longer than 28 s.
pub async fn list_changes(socket: &Path) -> Result<ChangeList, ShimClientError> {
    let mut list = timeout(TIMEOUT, get_changes(socket)).await.map_err(|_| ShimClientError::TimedOut)??;
    list.changes.retain(|change| change.path.split('/').all(|name| name != ".git"));
    Ok(list)
}

async fn get_changes(socket: &Path) -> Result<ChangeList, ShimClientError> {
    let stream = UnixStream::connect(socket).await.map_err(|source| ShimClientError::Connect { path: socket.to_owned(), source })?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let mut driver = tokio::task::JoinSet::new();
    driver.spawn(connection);
    let mut request = Request::new(Empty::<bytes::Bytes>::new());
    *request.uri_mut() = http::Uri::from_static(node::CHANGES);
    request.headers_mut().insert(header::HOST, header::HeaderValue::from_static("shim"));
    let response = sender.send_request(request).await?;
    let status = response.status();
    let body =
        Limited::new(response.into_body(), MAX_BODY).collect().await.map_err(|error| ShimClientError::Read(error.to_string()))?.to_bytes();
    if !status.is_success() {
        let message = String::from_utf8_lossy(&body[..body.len().min(1024)]).trim().to_owned();
        if status == StatusCode::CONFLICT {
            let reason: Option<String> =
                serde_json::from_slice::<serde_json::Value>(&body).ok().and_then(|v| Some(v["message"].as_str()?.to_owned()));
            return Err(ShimClientError::NoBase(reason.unwrap_or(message)));
        }
        return Err(ShimClientError::Refused { status, message });
    }
    serde_json::from_slice(&body).map_err(|error| ShimClientError::Read(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timeout_of_the_shim_is_given_in_seconds() {
        assert_eq!(ShimClientError::TimedOut.to_string(), "failed to get changes from the node's shim within 28 s");
    }
}
