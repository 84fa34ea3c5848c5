//! A person's SSH connection to the Pod: what a client has to know, and the stream of one server.
//!
//! # Guarantees
//! * The log says who comes before the server starts, and that it has ended unless the runtime ends with it.
//! * With the stream ends the server, and with it all that it has started.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use axum::Json;
use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::{StreamExt, stream};
use http::{HeaderMap, StatusCode, header};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;
use yoi_engine::error_text::error_text;
use yoi_wire::hub::RefusalReason;
use yoi_wire::ssh::{SshEnd, SshEntry, SshQuery, is_public_key};

use super::control::user_of;
use super::{AgentState, ReadState, refuse};
use crate::ssh::{Reserved, SshError, SshServer, stderr_text};

/// Bytes that are read of a server at once.
const PIECE: usize = 32 << 10;
/// Pieces that wait for the gateway.
const WAITING: usize = 4;
/// How long a server may take to end after its last byte, and the log to take the entry of its end.
const GRACE: Duration = Duration::from_secs(2);

pub(super) async fn host(State((_, agent)): State<(ReadState, AgentState)>) -> Response {
    match agent.ssh.host().await {
        Ok(host) => Json(host).into_response(),
        Err(error) => refused(&error),
    }
}

pub(super) async fn serve(
    State((read_state, agent)): State<(ReadState, AgentState)>,
    headers: HeaderMap,
    query: Result<Query<SshQuery>, QueryRejection>,
    body: Body,
) -> Response {
    let bad = |message: &str| refuse(StatusCode::BAD_REQUEST, RefusalReason::Invalid, message);
    let key = query.ok().and_then(|Query(query)| query.key).filter(|key| is_public_key(key));
    let Some(key) = key else { return bad("the request has no public key of OpenSSH") };
    let Some(user) = user_of(&headers) else { return bad("the request does not say who asks") };
    let reserved = match agent.ssh.reserve().await {
        Ok(reserved) => reserved,
        Err(error) => return refused(&error),
    };
    let (head, response) = oneshot::channel();
    let connection = Connection { agent, stop: read_state.stop, reserved, user, key };
    // In a task of its own: it goes on when the request is dropped, up to the entry of the end.
    tokio::spawn(connection.serve(body, head));
    let ended = |_| refuse(StatusCode::INTERNAL_SERVER_ERROR, RefusalReason::ReceiverFailed, "the SSH connection ended before it began");
    response.await.unwrap_or_else(ended)
}

/// One connection, before its server is started.
struct Connection {
    agent: AgentState,
    stop: CancellationToken,
    reserved: Reserved,
    user: String,
    key: String,
}

impl Connection {
    /// From the entry of the begin to that of the end. `head` gets the response.
    async fn serve(self, body: Body, head: oneshot::Sender<Response>) {
        let Self { agent, stop, reserved, user, key } = self;
        let id = Uuid::new_v4();
        let entry = SshEntry { id: id.to_string(), user, ended: None };
        let session = agent.open_session.borrow().clone();
        let recorded = match &session {
            Some(session) => session.record(entry.body()).await,
            None => false,
        };
        let Some(session) = session.filter(|_| recorded) else {
            let _ = head.send(refuse(StatusCode::SERVICE_UNAVAILABLE, RefusalReason::ReceiverFailed, "the session is not open"));
            return;
        };
        let begun = Instant::now();
        let started = reserved.start(id, &key).await;
        let (sender, receiver) = mpsc::channel(WAITING);
        let response = match &started {
            Ok(_) => {
                let pieces =
                    stream::unfold(receiver, |mut receiver| async { Some((Ok::<Bytes, Infallible>(receiver.recv().await?), receiver)) });
                ([(header::CONTENT_TYPE, "application/octet-stream")], Body::from_stream(pieces)).into_response()
            }
            Err(error) => refused(error),
        };
        // When nobody waits for the response any more, it is dropped with the receiver, and so the server ends at once.
        let _ = head.send(response);
        let killed = match started {
            Ok(server) => run(server, id, body, &sender, &stop).await,
            Err(_) => 0,
        };
        agent.ssh.forget(id).await;
        let ended = Some(SshEnd { seconds: begun.elapsed().as_secs(), killed });
        if !matches!(timeout(GRACE, session.record(SshEntry { ended, ..entry }.body())).await, Ok(true)) {
            tracing::warn!(%id, "the end of an SSH connection is not in the session log");
        }
        // The request is under way until then, so that the agent does not go to rest before.
        drop(sender);
    }
}

/// Passes the bytes of both directions on, up to the end of the server. Returns how many processes were left and were ended with it.
async fn run(mut server: SshServer, id: Uuid, body: Body, sender: &mpsc::Sender<Bytes>, stop: &CancellationToken) -> usize {
    let (input, output, errors) = server.process.take_pipes();
    let has_ended = tokio::select! {
        // The connection is over, or nobody is there any more.
        () = write(body, input) => false,
        () = read(output, sender) => true,
        () = log_stderr(errors, id) => false,
        () = sender.closed() => false,
        () = stop.cancelled() => false,
    };
    if has_ended {
        // Its own processes are nothing that was left.
        let _ = timeout(GRACE, server.process.wait()).await;
    }
    tokio::task::spawn_blocking(move || server.process.kill_tree()).await.unwrap_or_default()
}

/// From the person to the server. It resolves when the person is gone, and not when they have said all.
async fn write(body: Body, input: Option<ChildStdin>) {
    let (mut body, Some(mut input)) = (body.into_data_stream(), input) else { return };
    loop {
        match body.next().await {
            Some(Ok(data)) if input.write_all(&data).await.is_ok() => {}
            // The server may go on after the end of what it is told, and after it reads no more.
            Some(Ok(_)) | None => break,
            Some(Err(_)) => return,
        }
    }
    drop(input);
    std::future::pending().await
}

/// From the server to the person, up to its end.
async fn read(output: Option<ChildStdout>, sender: &mpsc::Sender<Bytes>) {
    let Some(mut output) = output else { return };
    loop {
        let mut piece = Vec::with_capacity(PIECE);
        match output.read_buf(&mut piece).await {
            Ok(count) if count > 0 && sender.send(piece.into()).await.is_ok() => {}
            _ => return,
        }
    }
}

/// Logs what the server writes on standard error, which is for whoever runs the agent. It never resolves.
async fn log_stderr(errors: Option<tokio::process::ChildStderr>, id: Uuid) {
    let said = stderr_text(errors).await;
    if !said.is_empty() {
        tracing::warn!(%id, said, "OpenSSH's server");
    }
    std::future::pending().await
}

fn refused(error: &SshError) -> Response {
    let (status, reason) = match error {
        SshError::NoProgram(_) | SshError::NoUser(_) => (StatusCode::UNPROCESSABLE_ENTITY, RefusalReason::Invalid),
        SshError::TooMany => (StatusCode::TOO_MANY_REQUESTS, RefusalReason::ReceiverFailed),
        SshError::HostKey(_) | SshError::Start(_) => (StatusCode::INTERNAL_SERVER_ERROR, RefusalReason::ReceiverFailed),
    };
    refuse(status, reason, error_text(error))
}
