//! The engine's calls, which change nothing here: events, projections and tools. In process they are `Project::events`, `Conversation::projection` and
//! `Project::tools`, whose answers are these.

use std::fmt;
use std::str::FromStr;

use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use bytes::Bytes;
use futures::stream;
use http::{StatusCode, header};
use serde_json::Value;
use yoi_engine::error_text::error_text;
use yoi_engine::project::{Projection, read_projection};
use yoi_engine::signals::{EventStream, EventsFrom};
use yoi_engine::tools::ToolGate;
use yoi_session::{Error, Reader};
use yoi_wire::conversation::MAIN;
use yoi_wire::engine_api::{EventsQuery, ToolList};
use yoi_wire::entry::CallFrom;
use yoi_wire::hub::{RefusalReason, runtime_api};
use yoi_wire::signal::CloudEvent;

use super::conversations::{of_name, read_state};
use super::{AgentState, ReadState, blocking, closed_session_reader, refuse, session_error_response};

/// The tools of the agent, as its model or its program is offered them.
#[derive(Clone)]
pub struct OfferedTools {
    pub gate: ToolGate,
    pub to: CallFrom,
}

impl fmt::Debug for OfferedTools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OfferedTools").field("to", &self.to).finish_non_exhaustive()
    }
}

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

pub(super) async fn tools(State(api): State<AgentState>) -> Json<ToolList> {
    let OfferedTools { gate, to } = api.tools;
    Json(ToolList { tools: blocking(move || gate.offered(to)).await })
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
    let appended = api.open_session.borrow().as_ref().map(|session| session.watch_last_seq());
    let Some(reader) = reader(&api).await? else { return Ok(None) };
    EventStream::start(reader, (&api.agent, conversation), from, appended, api.log_reads).await.map(Some)
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
