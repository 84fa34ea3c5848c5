//! The conversations of the agent: the list, starts and stops, and the requests to one of them.

use std::sync::Arc;

use axum::extract::rejection::JsonRejection;
use axum::extract::{DefaultBodyLimit, Path, Query, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use http::{HeaderMap, StatusCode};
use tokio::sync::watch;
use yoi_engine::error_text::error_text;
use yoi_engine::open_session::disk;
use yoi_engine::project::{Conversation, Conversations, ProjectError, running_status};
use yoi_session::{Error as SessionError, conversations as stored};
use yoi_wire::approval::{ApprovalRequest, WaitingCall};
use yoi_wire::conversation::{ConversationList, ConversationState, ConversationStatus, MAIN, is_other_name};
use yoi_wire::hub::{Activity, DeliverRequest, MAX_MESSAGE_BODY, RefusalReason, runtime_api};
use yoi_wire::open::Open;

use super::attach::AttachQuery;
use super::{AgentState, LogQuery, ReadState, approval, attach, blocking, control, export, inbox, log, refuse};

/// Why a request is not carried out.
pub(super) struct Refused(StatusCode, RefusalReason, String);

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let Self(status, reason, message) = self;
        refuse(status, reason, message)
    }
}

impl From<ProjectError> for Refused {
    fn from(error: ProjectError) -> Self {
        let (status, reason) = match &error {
            ProjectError::UnknownConversation { .. } => (StatusCode::NOT_FOUND, RefusalReason::Invalid),
            ProjectError::ConversationName { .. } => (StatusCode::BAD_REQUEST, RefusalReason::Invalid),
            ProjectError::ConversationRuns { .. }
            | ProjectError::IsSubagent { .. }
            | ProjectError::TooManyConversations { .. }
            | ProjectError::TooManyStored { .. }
            | ProjectError::MainIsNotStopped => (StatusCode::CONFLICT, RefusalReason::Invalid),
            _ => (StatusCode::INTERNAL_SERVER_ERROR, RefusalReason::ReceiverFailed),
        };
        Self(status, reason, error_text(&error))
    }
}

impl From<SessionError> for Refused {
    fn from(error: SessionError) -> Self {
        Self(StatusCode::INTERNAL_SERVER_ERROR, RefusalReason::ReceiverFailed, error_text(&error))
    }
}

/// The conversations of an agent beside `main`.
#[derive(Clone, Debug)]
pub struct OtherConversations {
    /// `None`: this process does not hold the session volume, or the agent is a program's.
    pub open: watch::Receiver<Option<Arc<Conversations>>>,
    /// Whose they are.
    pub of: AgentKind,
}

/// Which agents have other conversations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentKind {
    /// A built-in one, which this process runs.
    Builtin,
    /// A program, which has one conversation.
    Program,
    /// One that has stopped, and that this process reads.
    Stopped,
}

impl OtherConversations {
    /// Those of an agent that this process only reads.
    pub fn of_stopped() -> Self {
        Self { open: watch::channel(None).1, of: AgentKind::Stopped }
    }

    fn all(&self) -> Result<Arc<Conversations>, Refused> {
        if self.of == AgentKind::Program {
            let message = "this agent is a program's, and a program has one conversation: only built-in agents have others";
            return Err(Refused(StatusCode::CONFLICT, RefusalReason::Invalid, message.to_owned()));
        }
        self.open.borrow().clone().ok_or_else(not_open)
    }

    /// A conversation that runs.
    pub(super) fn running(&self, name: &str) -> Result<Arc<Conversation>, Refused> {
        let conversation = self.all()?.get(name)?;
        if conversation.is_running() {
            return Ok(conversation);
        }
        let why = conversation.status().message.unwrap_or_else(|| "it was stopped".to_owned());
        let message = format!("conversation {name} does not run: {why}; start it again");
        Err(Refused(StatusCode::CONFLICT, RefusalReason::Invalid, message))
    }

    /// One that has a run under way, if any has.
    pub(super) fn busy(&self) -> Option<String> {
        let all = self.open.borrow().clone()?;
        let idle = Open::Known(Activity::Idle);
        all.list().into_iter().find(|status| status.activity.as_ref().is_some_and(|activity| *activity != idle)).map(|status| status.name)
    }

    /// The calls of all of them that wait for a person.
    pub(super) async fn waiting_calls(&self) -> Vec<WaitingCall> {
        let Some(all) = self.open.borrow().clone() else { return Vec::new() };
        let mut calls = Vec::new();
        for name in all.list().into_iter().map(|status| status.name) {
            let waiting = match all.get(&name) {
                Ok(conversation) => conversation.waiting_calls().await.unwrap_or_default(),
                Err(_) => Vec::new(),
            };
            calls.extend(waiting.into_iter().map(|call| WaitingCall { conversation: Some(name.clone()), ..call }));
        }
        calls
    }
}

/// The routes of conversations that change nothing.
pub(super) fn reading_router(read: ReadState) -> Router {
    Router::new()
        .route(runtime_api::CONVERSATIONS, get(list))
        .route(&of_name(runtime_api::LOG), get(log_of))
        .route(&of_name(runtime_api::EXPORT), get(export_of))
        .with_state(read)
}

/// The other routes of conversations of an agent that runs.
pub(super) fn agent_router(read: ReadState, agent: AgentState) -> Router {
    let limit = || DefaultBodyLimit::max(MAX_MESSAGE_BODY);
    let attach_route = Router::new().route(&of_name(runtime_api::ATTACH), get(attach_to)).with_state(read);
    Router::new()
        .route(&of_name(""), post(start).delete(stop))
        .route(&of_name(runtime_api::INBOX), post(inbox_of).layer(limit()))
        .route(&of_name(runtime_api::CONTROL), post(control_of).layer(limit()))
        .route(&of_name(runtime_api::APPROVAL), get(waiting_of).post(answer_of).layer(limit()))
        .with_state(agent)
        .merge(attach_route)
}

pub(super) fn of_name(path: &str) -> String {
    runtime_api::of_conversation(path, "{conversation}")
}

pub(super) fn not_open() -> Refused {
    Refused(StatusCode::SERVICE_UNAVAILABLE, RefusalReason::ReceiverFailed, "the session is not open".to_owned())
}

async fn list(State(api): State<ReadState>) -> Result<Json<ConversationList>, Refused> {
    let main = match api.open_session.borrow().as_deref() {
        Some(session) => running_status(MAIN, session),
        None if api.conversations.of == AgentKind::Stopped => ConversationStatus::stopped(MAIN),
        None => ConversationStatus {
            state: ConversationState::Failed.into(),
            message: Some("its session is not open; the agent's condition Ready says why".to_owned()),
            ..ConversationStatus::stopped(MAIN)
        },
    };
    let open = api.conversations.open.borrow().clone();
    let others = match open {
        Some(all) => all.list(),
        None if api.conversations.of == AgentKind::Builtin => return Err(not_open()),
        None => {
            let root = api.session_root.clone();
            let found = blocking(move || stored::list(&*disk(), &root)).await?;
            found.into_iter().map(|(name, _)| ConversationStatus::stopped(&name)).collect()
        }
    };
    Ok(Json(ConversationList { conversations: std::iter::once(main).chain(others).collect() }))
}

async fn start(State(api): State<AgentState>, Path(name): Path<String>) -> Result<Json<ConversationStatus>, Refused> {
    let conversation = api.conversations.all()?.start(&name).await?;
    tracing::info!(conversation = name, "conversation started");
    Ok(Json(conversation.status()))
}

async fn stop(State(api): State<AgentState>, Path(name): Path<String>) -> Result<Json<ConversationStatus>, Refused> {
    api.conversations.all()?.stop(&name).await?;
    tracing::info!(conversation = name, "conversation stopped");
    Ok(Json(ConversationStatus::stopped(&name)))
}

/// What reads the conversation of this name, also one that does not run.
pub(super) async fn read_state(api: ReadState, name: &str) -> Result<ReadState, Refused> {
    if name == MAIN {
        return Ok(api);
    }
    let open = api.conversations.open.borrow().clone();
    if let Some(all) = open {
        let conversation = all.get(name)?;
        return Ok(ReadState { open_session: conversation.watch_session(), session_root: conversation.folder().to_owned(), ..api });
    }
    let unknown = || Refused(StatusCode::NOT_FOUND, RefusalReason::Invalid, format!("there is no conversation {name:?}"));
    if !is_other_name(name) {
        return Err(unknown());
    }
    let (root, of) = (api.session_root.clone(), name.to_owned());
    blocking(move || stored::read(&*disk(), &root, &of)).await?.ok_or_else(unknown)?;
    Ok(ReadState { open_session: watch::channel(None).1, session_root: stored::folder(&api.session_root, name), ..api })
}

/// What reaches the conversation of this name, which has to run.
pub(super) fn agent_state(api: AgentState, name: &str) -> Result<AgentState, Refused> {
    if name == MAIN {
        return Ok(api);
    }
    let open_session = api.conversations.running(name)?.watch_session();
    Ok(AgentState { open_session, ..api })
}

async fn log_of(State(api): State<ReadState>, Path(name): Path<String>, query: Query<LogQuery>) -> Result<Response, Refused> {
    Ok(log(State(read_state(api, &name).await?), query).await)
}

async fn export_of(State(api): State<ReadState>, Path(name): Path<String>) -> Result<Response, Refused> {
    Ok(export::export(State(read_state(api, &name).await?)).await)
}

async fn attach_to(State(api): State<ReadState>, Path(name): Path<String>, query: Query<AttachQuery>) -> Result<Response, Refused> {
    if name != MAIN {
        api.conversations.running(&name)?;
    }
    Ok(attach::attach(State(read_state(api, &name).await?), query).await)
}

async fn inbox_of(
    State(api): State<AgentState>,
    Path(name): Path<String>,
    deliver: Result<Json<DeliverRequest>, JsonRejection>,
) -> Result<Response, Refused> {
    Ok(inbox(State(agent_state(api, &name)?), deliver).await)
}

async fn control_of(
    State(api): State<AgentState>,
    Path(name): Path<String>,
    headers: HeaderMap,
    request: Result<Json<serde_json::Value>, JsonRejection>,
) -> Result<Response, Refused> {
    Ok(control::control(State(agent_state(api, &name)?), headers, request).await)
}

async fn waiting_of(State(api): State<AgentState>, Path(name): Path<String>) -> Result<Response, Refused> {
    Ok(approval::waiting_in(&agent_state(api, &name)?, &name).await)
}

async fn answer_of(
    State(api): State<AgentState>,
    Path(name): Path<String>,
    headers: HeaderMap,
    request: Result<Json<ApprovalRequest>, JsonRejection>,
) -> Result<Response, Refused> {
    Ok(approval::answer(State(agent_state(api, &name)?), headers, request).await)
}
