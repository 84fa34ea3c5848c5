//! The engine's calls: events, projections, tools, a call of a tool, and an event from outside. In process they are `Project::events`, and
//! `Conversation::{projection, tools, run_tool, send_event}`, whose answers are these.

use std::str::FromStr;

use axum::body::Body;
use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{DefaultBodyLimit, Path, Query, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use bytes::Bytes;
use futures::stream;
use http::{HeaderMap, StatusCode, header};
use serde_json::Value;
use yoi_engine::conversation::CallRequest;
use yoi_engine::error_text::error_text;
use yoi_engine::outside_events::{SendEventError, send_event};
use yoi_engine::project::{Projection, read_projection};
use yoi_engine::signals::{EventStream, EventsFrom};
use yoi_engine::tools::ToolGate;
use yoi_session::{Error, Reader};
use yoi_wire::conversation::MAIN;
use yoi_wire::engine_api::{EventRefusal, EventsQuery, MAX_CALL_BODY, RunTool, RunToolRefusal, ToolList};
use yoi_wire::entry::CallFrom;
use yoi_wire::hub::{MAX_MESSAGE_BODY, RefusalReason, runtime_api};
use yoi_wire::signal::CloudEvent;

use super::control::user_of;
use super::conversations::{Refused, agent_state, of_name, read_state};
use super::{AgentState, ReadState, blocking, closed_session_reader, refuse, session_error_response};
use crate::status::NotReady;

/// The calls that a stopped agent's reader answers, too.
pub(super) fn reading_router(read: ReadState) -> Router {
    let projection = format!("{}/{{key}}", runtime_api::PROJECTION);
    Router::new()
        .route(runtime_api::EVENTS, get(events))
        .route(&of_name(runtime_api::EVENTS), get(events_of))
        .route(&projection, get(projection_of_main))
        .route(&of_name(&projection), get(projection_of))
        .with_state(read)
}

/// The calls about tools that change nothing. Who looks at them does not keep the agent awake.
pub(super) fn tools_router(agent: AgentState) -> Router {
    Router::new().route(runtime_api::TOOLS, get(tools_of_main)).route(&of_name(runtime_api::TOOLS), get(tools_of)).with_state(agent)
}

/// The calls that reach the agent.
pub(super) fn agent_router(agent: AgentState) -> Router {
    let limit = || DefaultBodyLimit::max(MAX_CALL_BODY);
    let tool = format!("{}/{{tool}}", runtime_api::TOOLS);
    Router::new()
        .route(&tool, post(run_tool_in_main).layer(limit()))
        .route(&of_name(&tool), post(run_tool_in).layer(limit()))
        .route(runtime_api::EVENTS, post(event_to_main).layer(DefaultBodyLimit::max(MAX_MESSAGE_BODY)))
        .route(&of_name(runtime_api::EVENTS), post(event_to).layer(DefaultBodyLimit::max(MAX_MESSAGE_BODY)))
        .with_state(agent)
}

async fn tools_of_main(State(api): State<AgentState>) -> Json<ToolList> {
    offered(api.tools).await
}

async fn tools_of(State(api): State<AgentState>, Path(name): Path<String>) -> Result<Json<ToolList>, Refused> {
    let gate = if name == MAIN { Some(api.tools) } else { api.conversations.running(&name)?.gate().cloned() };
    Ok(offered(gate.ok_or_else(super::conversations::not_open)?).await)
}

/// The tools that its mode opens, which are those that run.
async fn offered(gate: ToolGate) -> Json<ToolList> {
    Json(ToolList { tools: blocking(move || gate.offered_now(CallFrom::Engine)).await })
}

type CallBody = Result<Json<RunTool>, JsonRejection>;

async fn run_tool_in_main(State(api): State<AgentState>, Path(tool): Path<String>, headers: HeaderMap, call: CallBody) -> Response {
    run_tool(&api, tool, &headers, call).await
}

async fn run_tool_in(
    State(api): State<AgentState>,
    Path((name, tool)): Path<(String, String)>,
    headers: HeaderMap,
    call: CallBody,
) -> Result<Response, Refused> {
    Ok(run_tool(&agent_state(api, &name)?, tool, &headers, call).await)
}

async fn run_tool(api: &AgentState, tool: String, headers: &HeaderMap, call: CallBody) -> Response {
    let call = match call {
        Ok(Json(call)) => call,
        Err(rejection) => return refuse(rejection.status(), RefusalReason::Invalid, rejection.body_text()),
    };
    let Some(user) = user_of(headers) else {
        return refuse(StatusCode::BAD_REQUEST, RefusalReason::Invalid, "the request does not say who asks");
    };
    let (wait, session) = (call.wait(), api.open_session.borrow().clone());
    let request = CallRequest { id: call.id, tool, args: call.args };
    let taken = match session {
        Some(session) => session.run_tool(user, request, wait).await,
        None => None,
    };
    match taken {
        Some(Ok(run)) => Json(run).into_response(),
        Some(Err(refusal @ RunToolRefusal::Invalid(_))) => refuse(StatusCode::BAD_REQUEST, RefusalReason::Invalid, refusal.to_string()),
        Some(Err(refusal @ RunToolRefusal::Full)) => refuse(StatusCode::TOO_MANY_REQUESTS, RefusalReason::InboxFull, refusal.to_string()),
        None => refuse(StatusCode::SERVICE_UNAVAILABLE, RefusalReason::ReceiverFailed, "the session is not open"),
    }
}

type EventBody = Result<Json<Value>, JsonRejection>;

async fn event_to_main(State(api): State<AgentState>, headers: HeaderMap, event: EventBody) -> Response {
    take_event(&api, &headers, event).await
}

async fn event_to(
    State(api): State<AgentState>,
    Path(name): Path<String>,
    headers: HeaderMap,
    event: EventBody,
) -> Result<Response, Refused> {
    Ok(take_event(&agent_state(api, &name)?, &headers, event).await)
}

async fn take_event(api: &AgentState, headers: &HeaderMap, event: EventBody) -> Response {
    let event = match event {
        Ok(Json(event)) => event,
        Err(rejection) => return refuse(rejection.status(), RefusalReason::Invalid, rejection.body_text()),
    };
    let Some(user) = user_of(headers) else {
        return refuse(StatusCode::BAD_REQUEST, RefusalReason::Invalid, "the request does not say who asks");
    };
    let session = api.open_session.borrow().clone();
    let taken = match session {
        Some(session) => send_event(session, &user, event).await,
        None => Err(SendEventError::Closed),
    };
    let refused = match taken {
        Ok(taken) => return Json(taken).into_response(),
        Err(SendEventError::Refused(refused)) => refused,
        Err(SendEventError::Session(error)) => {
            let failure = NotReady::from_session_error(&error);
            let message = format!("the event was not taken: {}", failure.message);
            api.disk_space.start(failure);
            return refuse(StatusCode::INTERNAL_SERVER_ERROR, RefusalReason::ReceiverFailed, message);
        }
        Err(SendEventError::Closed) => {
            return refuse(StatusCode::SERVICE_UNAVAILABLE, RefusalReason::ReceiverFailed, "the session is not open");
        }
    };
    let (status, reason) = match &refused {
        EventRefusal::Invalid(_) => (StatusCode::BAD_REQUEST, RefusalReason::Invalid),
        EventRefusal::TooLong(_) => (StatusCode::PAYLOAD_TOO_LARGE, RefusalReason::Invalid),
        EventRefusal::Full { .. } => (StatusCode::TOO_MANY_REQUESTS, RefusalReason::InboxFull),
        EventRefusal::Conflict(_) => (StatusCode::CONFLICT, RefusalReason::Invalid),
    };
    refuse(status, reason, refused.to_string())
}

type AskedQuery = Result<Query<EventsQuery>, QueryRejection>;

async fn events(State(api): State<ReadState>, query: AskedQuery) -> Response {
    stream_events(api, MAIN, query).await
}

async fn events_of(State(api): State<ReadState>, Path(name): Path<String>, query: AskedQuery) -> Response {
    match read_state(api, &name).await {
        Ok(api) => stream_events(api, &name, query).await,
        Err(refused) => refused.into_response(),
    }
}

async fn projection_of_main(State(api): State<ReadState>, Path(key): Path<String>) -> Response {
    project(api, &key).await
}

async fn projection_of(State(api): State<ReadState>, Path((name, key)): Path<(String, String)>) -> Response {
    match read_state(api, &name).await {
        Ok(api) => project(api, &key).await,
        Err(refused) => refused.into_response(),
    }
}

async fn stream_events(api: ReadState, conversation: &str, query: AskedQuery) -> Response {
    let query = match query {
        Ok(Query(query)) => query,
        Err(rejection) => return refuse(rejection.status(), RefusalReason::Invalid, rejection.body_text()),
    };
    match start(api, conversation, &query).await {
        Ok(Some(events)) => {
            let frames = stream::unfold(events, |mut events| async {
                let next = events.next().await?;
                Some((next.map(|events| encode(&events)), events))
            });
            let head = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
            (head, Body::from_stream(frames)).into_response()
        }
        Ok(None) => no_session(),
        Err(error) => session_error_response(&error),
    }
}

async fn start(api: ReadState, conversation: &str, query: &EventsQuery) -> Result<Option<EventStream>, Error> {
    let from = EventsFrom::try_from(query)?;
    // Before the reader is made, so that no entry is missed between the two.
    let session = api.open_session.borrow().clone();
    let appended = session.as_ref().map(|session| session.watch_last_seq());
    let Some(reader) = reader(&api).await? else { return Ok(None) };
    let stream = EventStream::start(reader, (&api.agent, conversation), from, appended, api.log_reads).await?;
    match session.filter(|_| from.follow && from.deltas) {
        Some(session) => stream.with_deltas(&session, api.stop).await.map(Some),
        None => Ok(Some(stream)),
    }
}

async fn project(api: ReadState, key: &str) -> Response {
    let of = match Projection::from_str(key) {
        Ok(of) => of,
        Err(unknown) => return refuse(StatusCode::NOT_FOUND, RefusalReason::Invalid, error_text(&unknown)),
    };
    match read(&api, of).await {
        Ok(Some(projection)) => Json(projection).into_response(),
        Ok(None) => no_session(),
        Err(error) => session_error_response(&error),
    }
}

async fn read(api: &ReadState, of: Projection) -> Result<Option<Value>, Error> {
    match reader(api).await? {
        Some(reader) => read_projection(reader, &api.log_reads, of).await.map(Some),
        None => Ok(None),
    }
}

async fn reader(api: &ReadState) -> Result<Option<Reader>, Error> {
    let session = api.open_session.borrow().clone();
    match session.and_then(|session| session.reader()) {
        Some(reader) => Ok(Some(reader)),
        None => {
            let root = api.session_root.clone();
            blocking(move || closed_session_reader(&root)).await
        }
    }
}

fn no_session() -> Response {
    refuse(StatusCode::NOT_FOUND, RefusalReason::Invalid, "there is no session yet")
}

/// Server-sent events: the id is where a client goes on that gives it back as `Last-Event-ID`.
fn encode(events: &[CloudEvent]) -> Bytes {
    let mut frames = Vec::new();
    for event in events {
        frames.extend_from_slice(format!("id: {}\ndata: ", event.cursor).as_bytes());
        if serde_json::to_writer(&mut frames, event).is_ok() {
            frames.extend_from_slice(b"\n\n");
        }
    }
    frames.into()
}
