//! `yoipods/proxy/engine/...`: what the engine says of an agent. `events` are the signals of a conversation, `projection/KEY` is its log in a form for programs, and
//! `tools` are what its model is offered. The runtime answers, or a stopped agent's reader; tools are those of an agent that runs.
//!
//! The subresource is `proxy`, because an API server ends the requests of others after a minute. Its right is `get`: all calls here read.

use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Extension, Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use yoi_wire::engine_api::{ConversationQuery, PROJECTIONS, SUBRESOURCE};
use yoi_wire::hub::runtime_api;

use super::ApiFailure;
use super::approval::json;
use super::attach::for_client;
use super::log::LogPart;
use super::read::{ReaderWait, WhenStopped, bad_query, read_from_runtime};
use super::target::AgentTarget;
use crate::GatewayState;
use crate::front_proxy::User;

/// What a client of server-sent events sends when it connects again.
const LAST_EVENT_ID: &str = "last-event-id";
/// Bytes of the key of a projection.
const MAX_KEY: usize = 64;

/// Which events, beside a part of them.
#[derive(Debug, Deserialize)]
pub struct Asked {
    #[serde(default)]
    follow: bool,
    conversation: Option<String>,
}

#[derive(Debug, Deserialize)]
pub struct ProjectionKey {
    key: String,
}

pub async fn events(
    State(gateway): State<Arc<GatewayState>>,
    Path(target): Path<AgentTarget>,
    Extension(user): Extension<User>,
    headers: HeaderMap,
    asked: Result<Query<Asked>, QueryRejection>,
    part: Result<Query<LogPart>, QueryRejection>,
    wait: Result<Query<ReaderWait>, QueryRejection>,
) -> Result<Response, ApiFailure> {
    let record = target.resolve(&gateway, &user, "get", SUBRESOURCE).await?;
    let (Query(Asked { follow, conversation }), Query(part)) = (asked.map_err(bad_query)?, part.map_err(bad_query)?);
    let (target, Query(wait)) = (AgentTarget { conversation, ..target }, wait.map_err(bad_query)?);
    let last = headers.get(LAST_EVENT_ID).and_then(|id| id.to_str().ok()).filter(|id| !id.is_empty());
    let part = part.after_or(last.map(str::to_owned));
    let path = format!("{}?follow={follow}{}", target.runtime_path(runtime_api::EVENTS)?, part.query()?);
    let body = read_from_runtime(&gateway, &record, path, WhenStopped::Reader(wait)).await?;
    let body = if follow { for_client(&gateway, body) } else { body };
    Ok(([(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")], body).into_response())
}

pub async fn projection(
    State(gateway): State<Arc<GatewayState>>,
    Path(target): Path<AgentTarget>,
    Path(ProjectionKey { key }): Path<ProjectionKey>,
    Extension(user): Extension<User>,
    of: Result<Query<ConversationQuery>, QueryRejection>,
    wait: Result<Query<ReaderWait>, QueryRejection>,
) -> Result<Response, ApiFailure> {
    let record = target.resolve(&gateway, &user, "get", SUBRESOURCE).await?;
    // An agent of a newer version may have more keys than this gateway knows.
    if !(1..=MAX_KEY).contains(&key.len()) || !key.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_') {
        let message =
            format!("{key:?} is no key of a projection: 1 to {MAX_KEY} lower-case letters and _; there are {}", PROJECTIONS.join(", "));
        return Err(ApiFailure::new(StatusCode::BAD_REQUEST, message).about(&record.name.name));
    }
    let (Query(ConversationQuery { conversation }), Query(wait)) = (of.map_err(bad_query)?, wait.map_err(bad_query)?);
    let target = AgentTarget { conversation, ..target };
    let path = target.runtime_path(&format!("{}/{key}", runtime_api::PROJECTION))?;
    Ok(json(read_from_runtime(&gateway, &record, path, WhenStopped::Reader(wait)).await?))
}

pub async fn tools(
    State(gateway): State<Arc<GatewayState>>,
    Path(target): Path<AgentTarget>,
    Extension(user): Extension<User>,
    of: Result<Query<ConversationQuery>, QueryRejection>,
) -> Result<Response, ApiFailure> {
    let record = target.resolve(&gateway, &user, "get", SUBRESOURCE).await?;
    let Query(ConversationQuery { conversation }) = of.map_err(bad_query)?;
    let path = AgentTarget { conversation, ..target }.runtime_path(runtime_api::TOOLS)?;
    Ok(json(read_from_runtime(&gateway, &record, path, WhenStopped::Nobody).await?))
}
