//! The HTTP API that the runtime serves on its lines.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::rejection::JsonRejection;
use axum::extract::{DefaultBodyLimit, Query, State};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use bytes::Bytes;
use futures::stream;
use http::{StatusCode, header};
use serde::Deserialize;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use yoi_engine::assets::ProjectAssets;
use yoi_engine::error_text::error_text;
use yoi_engine::log_reads::{BYTES_PER_READ, ENTRIES_PER_READ, LogReads, blocking};
use yoi_engine::open_session::{OpenSession, closed_session_reader};
use yoi_engine::processes::ProcessSupervisor;
use yoi_engine::tools::ToolGate;
use yoi_session::{Error, InboxMessage, PutOutcome, Reader, Sender, StoredEntry, Token, Wake};
use yoi_wire::assets::AssetSettings;
use yoi_wire::entry::AgentRef;
use yoi_wire::hub::{
    Activity, DeliverRequest, MAX_MESSAGE_BODY, MAX_MESSAGE_TEXT, MessageTooLong, RefusalReason, SendResponse, runtime_api,
};
use yoi_wire::people::{DiffQuery, LogLine, MAX_LOG_TAIL, PatchQuery};

use crate::diff::{DiffError, diff, patch};
use crate::disk_space::DiskSpaceProbe;
use crate::git_repository::GitError;
use crate::merge::Merger;
use crate::refusal::refuse;
use crate::request_gate::{RequestGate, admit};
use crate::ssh::SshServers;
use crate::status::NotReady;

mod approval;
mod assets;
mod attach;
mod bundle;
mod control;
mod conversations;
mod engine;
mod export;
mod fence;
mod merge;
mod parts;
mod ssh;
mod usage;

pub use conversations::{AgentKind, OtherConversations};

/// What the requests that only read need. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ReadState {
    /// Whose session it is.
    pub agent: AgentRef,
    /// `None` while no session is open.
    pub open_session: watch::Receiver<Option<Arc<OpenSession>>>,
    pub conversations: OtherConversations,
    pub session_root: PathBuf,
    /// `None` for a stopped agent whose tree is gone.
    pub tree: Option<PathBuf>,
    /// How its skills and commands are read.
    pub assets: AssetSettings,
    pub shim_socket: PathBuf,
    pub processes: Arc<ProcessSupervisor>,
    pub log_reads: LogReads,
    /// Why git is not run here; absent: it is.
    pub no_git: Option<String>,
    pub stop: CancellationToken,
}

/// What the requests need that reach the agent itself. Cheap to clone.
#[derive(Clone, Debug)]
pub struct AgentState {
    /// `None` while no session is open.
    pub open_session: watch::Receiver<Option<Arc<OpenSession>>>,
    /// Those beside `main`.
    pub conversations: OtherConversations,
    /// Started when the inbox cannot be written.
    pub disk_space: Arc<DiskSpaceProbe>,
    /// `spec.limits.tokens`.
    pub token_limit: watch::Receiver<Option<u64>>,
    /// How many commands of the agent run in the background.
    pub background: watch::Receiver<usize>,
    /// Closes when the agent goes to rest.
    pub gate: RequestGate,
    /// Skills and commands of its tree and of its team's sets.
    pub assets: Arc<ProjectAssets>,
    /// The gate before its tools.
    pub tools: ToolGate,
    /// Merges the work of others into its tree.
    pub merger: Arc<Merger>,
    /// Lets people in.
    pub ssh: SshServers,
}

/// The routes of a runtime, those of a stopped agent's reader among them.
pub fn router(read: ReadState, agent: AgentState) -> Router {
    let limit = || DefaultBodyLimit::max(MAX_MESSAGE_BODY);
    let gate = from_fn_with_state(agent.gate.clone(), admit);
    let counted_routes = Router::new()
        .route(runtime_api::INBOX, post(inbox).layer(limit()))
        .route(runtime_api::CONTROL, post(control::control).layer(limit()))
        .route(runtime_api::APPROVAL, get(approval::waiting).post(approval::answer).layer(limit()))
        .with_state(agent.clone());
    // Who looks at these does not keep the agent awake.
    let agent_routes = Router::new()
        .route(runtime_api::USAGE, get(usage::usage))
        .route(runtime_api::ASSETS, get(assets::assets).post(assets::reload).layer(limit()))
        .with_state(agent.clone())
        .merge(engine::tools_router(agent.clone()));
    let of_conversations = conversations::agent_router(read.clone(), agent.clone()).merge(engine::agent_router(agent.clone()));
    let commit_route = Router::new()
        .route(runtime_api::BUNDLE, post(bundle::post_commit).layer(limit()))
        // As long as a bundle may be, which it measures itself.
        .route(runtime_api::MERGE, post(merge::post_merge).layer(DefaultBodyLimit::disable()))
        .with_state((read.clone(), agent.clone()));
    let fence_route = Router::new().route(runtime_api::FENCE, post(fence::post).layer(limit())).with_state((read.clone(), agent.clone()));
    // A person who is in keeps the agent awake.
    let ssh_route = Router::new().route(runtime_api::SSH, get(ssh::host).post(ssh::serve)).with_state((read.clone(), agent.clone()));
    let attach_route = Router::new().route(runtime_api::ATTACH, get(attach::attach)).with_state(read.clone());
    let counted_routes = counted_routes
        .merge(commit_route)
        .merge(fence_route)
        .merge(attach_route)
        .merge(ssh_route)
        .merge(of_conversations)
        .route_layer(gate);
    reading_router(read).merge(agent_routes).merge(counted_routes)
}

/// The routes of the reader of a stopped agent.
pub fn stopped_router(read: ReadState) -> Router {
    let stopped_routes = Router::new()
        .route(runtime_api::USAGE, get(usage::usage_of_stopped))
        .route(runtime_api::ASSETS, get(assets::assets_of_stopped))
        .with_state(read.clone());
    reading_router(read).merge(stopped_routes)
}

/// The routes that change nothing: log, export, diff, patch, bundle, and what the engine says of the log.
fn reading_router(read: ReadState) -> Router {
    let of_conversations = conversations::reading_router(read.clone()).merge(engine::reading_router(read.clone()));
    Router::new()
        .route(runtime_api::LOG, get(log))
        .route(runtime_api::EXPORT, get(export::export))
        .route(runtime_api::DIFF, get(diff_response))
        .route(runtime_api::PATCH, get(patch_response))
        .route(runtime_api::BUNDLE, get(bundle::get_bundle))
        .with_state(read)
        .merge(of_conversations)
}

fn too_long(bytes: Option<usize>) -> Response {
    refuse(StatusCode::PAYLOAD_TOO_LARGE, RefusalReason::Invalid, MessageTooLong { bytes }.to_string())
}

fn session_error_response(error: &Error) -> Response {
    let status = match error {
        Error::BadToken { .. } => StatusCode::BAD_REQUEST,
        Error::UnknownToken { .. } => StatusCode::GONE,
        Error::NoSession { .. } => StatusCode::NOT_FOUND,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let reason = if status.is_client_error() { RefusalReason::Invalid } else { RefusalReason::ReceiverFailed };
    refuse(status, reason, error_text(error))
}

#[derive(Debug, Deserialize)]
struct LogQuery {
    after: Option<String>,
    #[serde(default)]
    follow: bool,
    tail: Option<usize>,
}

async fn log(State(api): State<ReadState>, Query(query): Query<LogQuery>) -> Response {
    let token = match query.after.as_deref().map_or(Ok(Token::Start), Token::from_str) {
        Ok(token) => token,
        Err(error) => return session_error_response(&error),
    };
    match LogStream::open(api, token, query.follow, query.tail).await {
        Ok(Some(log_stream)) => {
            let body = Body::from_stream(stream::unfold(log_stream, LogStream::next));
            ([(header::CONTENT_TYPE, "application/x-ndjson")], body).into_response()
        }
        Ok(None) => refuse(StatusCode::NOT_FOUND, RefusalReason::Invalid, "there is no session yet"),
        Err(error) => session_error_response(&error),
    }
}

/// The body of an answer to a request for the log.
struct LogStream {
    reader: Option<Reader>,
    token: Token,
    ready: VecDeque<StoredEntry>,
    /// `None`: the stream ends at the end of the log.
    appended: Option<watch::Receiver<u64>>,
    reads: LogReads,
    stop: CancellationToken,
    failed: bool,
}

impl LogStream {
    async fn open(api: ReadState, token: Token, follow: bool, tail: Option<usize>) -> Result<Option<Self>, Error> {
        let session = api.open_session.borrow().clone();
        let root = api.session_root.clone();
        // Subscribes before the first read, so that no entry is missed between the two.
        let appended = session.as_ref().filter(|_| follow).map(|session| session.watch_last_seq());
        let open = move || match session.and_then(|session| session.reader()) {
            Some(reader) => Ok(Some(reader)),
            None => closed_session_reader(&root),
        };
        let Some(reader) = blocking(open).await? else { return Ok(None) };
        let ready = VecDeque::new();
        let mut stream = Self { reader: Some(reader), token, ready, appended, reads: api.log_reads, stop: api.stop, failed: false };
        if let Some(tail) = tail {
            let found = stream.reads.with(&mut stream.reader, move |reader| reader.tail(token, tail.min(MAX_LOG_TAIL), None)).await?;
            stream.token = found.unwrap_or(token);
        }
        // The first read comes before the answer's head, so that a bad token gets an HTTP status.
        stream.read().await?;
        Ok(Some(stream))
    }

    async fn read(&mut self) -> Result<(), Error> {
        let token = self.token;
        let read = move |reader: &mut Reader| reader.read_bytes(token, ENTRIES_PER_READ, BYTES_PER_READ);
        if let Some((entries, next)) = self.reads.with(&mut self.reader, read).await? {
            (self.ready, self.token) = (entries.into(), next);
        }
        Ok(())
    }

    async fn next(mut self) -> Option<(Result<Bytes, Error>, Self)> {
        loop {
            if self.failed {
                return None;
            }
            if !self.ready.is_empty() {
                let mut lines = Vec::new();
                for raw in std::mem::take(&mut self.ready) {
                    let line = LogLine { token: raw.token.to_string(), entry: raw.entry };
                    if serde_json::to_writer(&mut lines, &line).is_ok() {
                        lines.push(b'\n');
                    }
                }
                return Some((Ok(lines.into()), self));
            }
            if let Some(appended) = &mut self.appended {
                appended.borrow_and_update();
            }
            if let Err(error) = self.read().await {
                self.failed = true;
                return Some((Err(error), self));
            }
            if self.ready.is_empty() {
                let appended = self.appended.as_mut()?;
                tokio::select! {
                    changed = appended.changed() => changed.ok()?,
                    () = self.stop.cancelled() => return None,
                }
            }
        }
    }
}

async fn inbox(State(api): State<AgentState>, deliver: Result<Json<DeliverRequest>, JsonRejection>) -> Response {
    let DeliverRequest { message_id, from, text, only_when_idle, weak } = match deliver {
        Ok(Json(deliver)) => deliver,
        Err(rejection) if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE => return too_long(None),
        Err(rejection) => return refuse(rejection.status(), RefusalReason::Invalid, rejection.body_text()),
    };
    let from = match (from.agent, from.person) {
        (Some(agent), None) => Sender::Agent(agent),
        (None, Some(user)) => Sender::Person { user },
        (Some(_), Some(_)) | (None, None) => {
            return refuse(StatusCode::BAD_REQUEST, RefusalReason::Invalid, "a message has exactly one sender, an agent or a person");
        }
    };
    if message_id.is_empty() || text.is_empty() {
        return refuse(StatusCode::BAD_REQUEST, RefusalReason::Invalid, "a message has an id and a text");
    }
    if text.len() > MAX_MESSAGE_TEXT {
        return too_long(Some(text.len()));
    }
    let Some(session) = api.open_session.borrow().clone() else {
        return refuse(StatusCode::SERVICE_UNAVAILABLE, RefusalReason::ReceiverFailed, "the session is not open");
    };
    if only_when_idle && (session.feed.progress().activity != Activity::Idle || session.has_work_pending()) {
        return refuse(StatusCode::CONFLICT, RefusalReason::AlreadyRunning, "it is at work; nothing was queued");
    }
    let message = InboxMessage { id: message_id.clone(), from, text, wake: if weak { Wake::Wait } else { Wake::Run } };
    match blocking(move || session.put(message)).await {
        Ok(PutOutcome::Accepted) => Json(SendResponse { message_id, duplicate: false }).into_response(),
        Ok(PutOutcome::Duplicate) => Json(SendResponse { message_id, duplicate: true }).into_response(),
        Ok(PutOutcome::Full { limit }) => {
            refuse(StatusCode::TOO_MANY_REQUESTS, RefusalReason::InboxFull, format!("{limit} messages wait to be read"))
        }
        Ok(PutOutcome::TooOld) => refuse(
            StatusCode::BAD_REQUEST,
            RefusalReason::Invalid,
            "the message's id is more than an hour old, and the agent has forgotten the ids of that time: if the message was not delivered, \
             send it under a new id",
        ),
        // The text was measured before, so it is the id.
        Ok(PutOutcome::TooLong { limit }) => {
            refuse(StatusCode::BAD_REQUEST, RefusalReason::Invalid, format!("the message's id has more than {limit} bytes"))
        }
        Err(error) => {
            let failure = NotReady::from_session_error(&error);
            let message = format!("the message was not taken: {}", failure.message);
            api.disk_space.start(failure);
            refuse(StatusCode::INTERNAL_SERVER_ERROR, RefusalReason::ReceiverFailed, message)
        }
    }
}

async fn diff_response(State(api): State<ReadState>, Query(query): Query<DiffQuery>) -> Response {
    let Some(tree) = &api.tree else { return diff_error_response(&DiffError::NoTree) };
    if let Some(why) = &api.no_git {
        return diff_error_response(&DiffError::NotHere(why.clone()));
    }
    match diff(&api.processes, tree, &api.shim_socket, query.since).await {
        Ok(diff) => Json(diff).into_response(),
        Err(error) => diff_error_response(&error),
    }
}

async fn patch_response(State(api): State<ReadState>, Query(query): Query<PatchQuery>) -> Response {
    let Some(tree) = &api.tree else { return diff_error_response(&DiffError::NoTree) };
    if let Some(why) = &api.no_git {
        return diff_error_response(&DiffError::NotHere(why.clone()));
    }
    match patch(&api.processes, tree, &api.shim_socket, query.format).await {
        Ok(commits) => ([(header::CONTENT_TYPE, "application/octet-stream")], commits).into_response(),
        Err(error) => diff_error_response(&error),
    }
}

fn diff_error_response(error: &DiffError) -> Response {
    let (status, reason) = match error {
        DiffError::NoRepository | DiffError::NoTree => (StatusCode::NOT_FOUND, RefusalReason::Invalid),
        DiffError::NotHere(_) | DiffError::Git(GitError::NotWhole(_) | GitError::Missing) => (StatusCode::CONFLICT, RefusalReason::Invalid),
        DiffError::PatchTooLarge => (StatusCode::PAYLOAD_TOO_LARGE, RefusalReason::Invalid),
        DiffError::Paths(_) | DiffError::Git(_) => (StatusCode::BAD_GATEWAY, RefusalReason::ReceiverFailed),
    };
    refuse(status, reason, error_text(error))
}
