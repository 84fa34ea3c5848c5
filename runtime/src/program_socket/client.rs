//! The program's end of the socket.

use std::io;
use std::path::{Path, PathBuf};

use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;

use super::{Answer, MAX_LINE_BYTES, Request, line_of, read_line};

/// A request that has no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    #[error("failed to reach the agent's runtime at {}", path.display())]
    Connect { path: PathBuf, source: io::Error },
    #[error("failed to ask the agent's runtime: the request has more than {MAX_LINE_BYTES} bytes")]
    TooLong,
    #[error("failed to get an answer of the agent's runtime")]
    Broken(#[from] io::Error),
    #[error("failed to read the answer of the agent's runtime")]
    Unreadable(#[from] serde_json::Error),
}

/// Asks once. Dropping the future ends what was asked for.
///
/// # Errors
/// There is no answer; whether anything was done is then not known, unless the runtime was not reached.
pub async fn ask(socket: &Path, request: &Request) -> Result<Answer, AskError> {
    let line = line_of(request).ok_or(AskError::TooLong)?;
    let mut stream = UnixStream::connect(socket).await.map_err(|source| AskError::Connect { path: socket.to_owned(), source })?;
    stream.write_all(&line).await?;
    let line = read_line(&mut stream).await?.ok_or(AskError::TooLong)?;
    Ok(serde_json::from_slice(&line)?)
}
