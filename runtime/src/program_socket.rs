//! The socket by which a program's hooks and its MCP server reach the runtime.
//!
//! A connection carries one request and its answer, each a line of JSON. A request shows the token of the run. Any process of the Pod that
//! knows the token can make one, so what comes this way is the program's own word, and nothing is granted for it.

use std::fs::Permissions;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener as BoundListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{AtFlags, Mode, OFlags, fchmod, mkdirat, openat, unlinkat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};
use yoi_engine::foreign_json;
use yoi_engine::program::calls::ProgramCalls;
use yoi_engine::program::run_tokens::{RunGrant, RunTokens};
use yoi_wire::entry::{OfferedTool, ToolOutcome};

mod client;
mod run_calls;

#[cfg(test)]
mod tests;

pub use client::{AskError, ask};
use run_calls::RunCalls;

/// Bytes of a request or an answer, its newline included.
pub const MAX_LINE_BYTES: usize = 1 << 20;
/// Name of the socket in its folder.
const SOCKET: &str = "program.sock";
/// Connections at once. The next one waits to be accepted. Hooks of calls that wait for a person hold theirs, and of open calls there are 64 at most.
const MAX_CONNECTIONS: usize = 96;
/// How long a connection may take to bring its request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// How long to wait when no connection can be accepted, for example because no file descriptor is left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A request, with the run's token.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// Token of the run.
    pub token: String,
    /// What is asked.
    #[serde(flatten)]
    pub method: Method,
}

/// What is asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "method", rename_all = "camelCase")]
pub enum Method {
    /// A tool of the program's is about to run.
    HookBefore {
        /// The call.
        #[serde(flatten)]
        call: HookCall,
        /// For how many seconds the hook can wait for a person; 0: not at all.
        #[serde(default, rename = "waitSeconds")]
        wait_seconds: u64,
    },
    /// A tool of the program's has ended.
    HookAfter {
        /// The call, as before it.
        #[serde(flatten)]
        call: HookCall,
        /// How it ended.
        outcome: ToolOutcome,
        /// What the program's model reads.
        output: String,
    },
    /// Which tools the runtime runs for the program.
    ListTools,
    /// Run one of them.
    CallTool {
        /// Name of the tool.
        tool: String,
        /// Its arguments.
        args: serde_json::Value,
    },
}

/// A call of one of the program's own tools.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HookCall {
    /// The program's id for it; absent: the program tells none, and calls are told apart by tool and arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<String>,
    /// Name of the tool.
    pub tool: String,
    /// Its arguments.
    pub args: serde_json::Value,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "camelCase")]
pub enum Answer {
    /// It is done. Of [`Method::HookBefore`]: the begin of the call is durable.
    Done,
    /// The tools.
    Tools {
        /// As built-in agents are offered them.
        tools: Vec<OfferedTool>,
    },
    /// The call has ended.
    Ended {
        /// How.
        outcome: ToolOutcome,
        /// What the model reads.
        output: String,
    },
    /// It was not done.
    Refused {
        /// Why, as a sentence for the model.
        message: String,
    },
}

/// The socket cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    #[error("failed to make the folder {} for the program's socket", path.display())]
    Folder { path: PathBuf, source: io::Error },
    #[error("failed to open the program's socket {}", path.display())]
    Open { path: PathBuf, source: io::Error },
}

/// A socket that is not served yet. Dropping it leaves it where it is.
#[derive(Debug)]
pub struct BoundSocket {
    folder: OwnedFd,
    path: PathBuf,
    listener: BoundListener,
}

impl BoundSocket {
    /// Makes the socket in `folder`, which is made when it is not there. Both are for this user only. A socket that an earlier process left there is
    /// removed. The agent writes there, too: no link is followed, and what is no folder is removed.
    ///
    /// # Errors
    /// Folder or socket cannot be made.
    pub fn bind(folder: &Path) -> Result<Self, SocketError> {
        let opened = own_folder(folder).map_err(|source| SocketError::Folder { path: folder.to_owned(), source })?;
        let path = folder.join(SOCKET);
        let open_error = |source| SocketError::Open { path: path.clone(), source };
        match unlinkat(&opened, SOCKET, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(open_error(error.into())),
        }
        let by_descriptor = |descriptor: &OwnedFd| PathBuf::from(format!("/proc/self/fd/{}", descriptor.as_raw_fd()));
        let listener = BoundListener::bind(by_descriptor(&opened).join(SOCKET)).map_err(open_error)?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let socket = openat(&opened, SOCKET, flags, Mode::empty()).map_err(|error| open_error(error.into()))?;
        std::fs::set_permissions(by_descriptor(&socket), Permissions::from_mode(0o600)).map_err(open_error)?;
        Ok(Self { folder: opened, path, listener })
    }
}

fn own_folder(folder: &Path) -> io::Result<OwnedFd> {
    let (Some(parent), Some(name)) = (folder.parent(), folder.file_name()) else { return Err(io::ErrorKind::InvalidInput.into()) };
    std::fs::create_dir_all(parent)?;
    let parent = rustix::fs::open(parent, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let make = || match mkdirat(&parent, name, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {
            openat(&parent, name, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
        }
        Err(error) => Err(error),
    };
    let opened = make().or_else(|_| unlinkat(&parent, name, AtFlags::empty()).and_then(|()| make()))?;
    fchmod(&opened, Mode::RWXU)?;
    Ok(opened)
}

/// A token opens the socket for one run. Dropping this revokes it; requests that have begun are answered.
pub type SocketGrant = RunGrant<Arc<RunCalls>>;

/// An open socket. Dropping it closes the socket and removes it.
#[derive(Debug)]
pub struct ProgramSocket {
    folder: OwnedFd,
    path: PathBuf,
    runs: Arc<RunTokens<Arc<RunCalls>>>,
    _stop: DropGuard,
}

impl ProgramSocket {
    /// Serves a socket. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// The runtime does not take the socket.
    pub fn serve(bound: BoundSocket) -> Result<Self, SocketError> {
        let BoundSocket { folder, path, listener } = bound;
        let open_error = |source| SocketError::Open { path: path.clone(), source };
        listener.set_nonblocking(true).map_err(open_error)?;
        let listener = UnixListener::from_std(listener).map_err(open_error)?;
        let runs: Arc<RunTokens<Arc<RunCalls>>> = Arc::default();
        let stop = CancellationToken::new();
        let (stopped, known) = (stop.clone(), runs.clone());
        tokio::spawn(async move { stopped.run_until_cancelled_owned(accept(listener, known)).await });
        Ok(Self { folder, path, runs, _stop: stop.drop_guard() })
    }

    /// Where the socket is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// `token` opens the socket for a run until the grant is dropped.
    #[must_use = "dropping the grant revokes the token"]
    pub fn allow(&self, token: &str, calls: Arc<dyn ProgramCalls>) -> SocketGrant {
        self.runs.allow(token, Arc::new(RunCalls::new(calls)))
    }
}

impl Drop for ProgramSocket {
    fn drop(&mut self) {
        let _ = unlinkat(&self.folder, SOCKET, AtFlags::empty());
    }
}

async fn accept(listener: UnixListener, runs: Arc<RunTokens<Arc<RunCalls>>>) {
    let connections = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    // Dropping the set ends what is still served.
    let mut served = tokio::task::JoinSet::new();
    // The semaphore is never closed.
    while let Ok(permit) = connections.clone().acquire_owned().await {
        while served.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((stream, _)) => {
                let runs = runs.clone();
                served.spawn(async move {
                    serve(stream, &runs).await;
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "program's socket cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Serves one connection. A client that goes away ends its call.
async fn serve(mut stream: UnixStream, runs: &RunTokens<Arc<RunCalls>>) {
    let answer = match timeout(REQUEST_TIMEOUT, read_line(&mut stream)).await {
        Err(_) | Ok(Err(_)) => return,
        Ok(Ok(None)) => refused(format!("a request to the runtime may have at most {MAX_LINE_BYTES} bytes, and nothing was done")),
        Ok(Ok(Some(line))) => {
            let gone = async {
                // It sends nothing more, so that a read ends only with the connection.
                let _ = stream.read(&mut [0; 1]).await;
            };
            tokio::select! {
                answer = answer(&line, runs) => answer,
                () = gone => return,
            }
        }
    };
    let line = line_of(&answer).unwrap_or_else(|| {
        let message = "the answer of the runtime is too long to be passed on; the log of the agent holds it";
        line_of(&refused(message)).unwrap_or_default()
    });
    let _ = stream.write_all(&line).await;
    let _ = stream.shutdown().await;
}

async fn answer(line: &[u8], runs: &RunTokens<Arc<RunCalls>>) -> Answer {
    let request: Request = match foreign_json::from_slice(line).and_then(serde_json::from_value) {
        Ok(request) => request,
        Err(error) => return refused(format!("the runtime cannot read the request: {error}")),
    };
    match runs.find(&request.token) {
        Some(run) => run.answer(request.method).await,
        None => refused("the token is not that of the current run, so nothing was done"),
    }
}

fn refused(message: impl Into<String>) -> Answer {
    Answer::Refused { message: message.into() }
}

/// A line of JSON; `None` when it would be too long.
fn line_of(value: &impl Serialize) -> Option<Vec<u8>> {
    let mut line = serde_json::to_vec(value).ok()?;
    line.push(b'\n');
    (line.len() <= MAX_LINE_BYTES).then_some(line)
}

/// Reads up to the first newline, or to the end; `None` when the line is too long.
async fn read_line(stream: &mut UnixStream) -> io::Result<Option<Vec<u8>>> {
    let (mut line, mut buffer) = (Vec::new(), [0; 8 << 10]);
    loop {
        let count = stream.read(&mut buffer).await?;
        let piece = &buffer[..count];
        let end = piece.iter().position(|byte| *byte == b'\n');
        line.extend_from_slice(&piece[..end.unwrap_or(count)]);
        if line.len() >= MAX_LINE_BYTES {
            return Ok(None);
        }
        if end.is_some() {
            return Ok(Some(line));
        }
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}
