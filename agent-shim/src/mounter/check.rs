//! Asks a mounter whether it works: the liveness probe of its container.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::frame;
use super::log_context::LogContext;
use super::protocol::{Envelope, MounterRefusal, Request, Response};

/// How long a mounter may take to answer: less than the kubelet waits for the probe, so that the probe can say what is wrong.
pub const TIMEOUT: Duration = Duration::from_secs(8);

/// The mounter does not work.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// It does not answer.
    #[error("failed to hear from the mounter at {path}")]
    Silent {
        /// Its socket.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It answers that it cannot work.
    #[error("failed to have the mounter do something")]
    Refused(#[from] MounterRefusal),
    /// It is of another version.
    #[error("failed to understand the mounter's answer")]
    Protocol,
}

/// Sends [`Request::Check`] and waits for the answer, at most [`TIMEOUT`].
pub fn run(socket: &Path) -> Result<(), CheckError> {
    let exchange = || -> io::Result<Result<Response, MounterRefusal>> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        frame::write(&stream, &Envelope { context: LogContext::default(), request: Request::Check })?;
        frame::read(&stream)
    };
    match exchange().map_err(|source| CheckError::Silent { path: socket.to_owned(), source })?? {
        Response::Done => Ok(()),
        _ => Err(CheckError::Protocol),
    }
}
