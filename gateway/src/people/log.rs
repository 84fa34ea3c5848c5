//! `GET yoipods/log`, `yoipods/diff`, `yoipods/patch`, `yoipods/export` and `yoipods/usage`: the answers of the agent's
//! runtime, or of a stopped agent's reader, streamed unchanged.

use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Extension, Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use yoi_wire::bundle::BundleQuery;
use yoi_wire::hub::runtime_api;
use yoi_wire::people::{DiffQuery, MAX_LOG_TAIL, PatchQuery};

use super::ApiFailure;
use super::bundle::bundle;
use super::read::{ReaderWait, WhenStopped, bad_query, read_from_runtime, until_stopped};
use super::target::AgentTarget;
use crate::GatewayState;
use crate::front_proxy::User;

const MAX_TOKEN: usize = 256;

#[derive(Debug, Deserialize)]
pub struct LogQuery {
    #[serde(default)]
    follow: bool,
    /// The answer of `export`. The API server ends every stream after a minute, except those of subresources named `log` or `attach`: a large
    /// session comes this way.
    #[serde(default)]
    export: bool,
    /// The answer of `bundle`, for the same reason.
    #[serde(default)]
    bundle: bool,
}

/// From where on a log is read.
#[derive(Debug, Deserialize)]
pub struct LogPart {
    tail: Option<u64>,
    after: Option<String>,
}

impl LogPart {
    /// The same, after this token where none is named.
    pub fn after_or(self, after: Option<String>) -> Self {
        LogPart { after: self.after.or(after), ..self }
    }

    /// The parameters for the runtime, each with `&` before it.
    pub fn query(&self) -> Result<String, ApiFailure> {
        let mut query = String::new();
        if let Some(tail) = self.tail.map(|tail| tail.min(MAX_LOG_TAIL as u64)) {
            query.push_str(&format!("&tail={tail}"));
        }
        if let Some(after) = &self.after {
            let plain = |c: u8| c.is_ascii_alphanumeric() || b"-_.:~/".contains(&c);
            if after.len() > MAX_TOKEN || !after.bytes().all(plain) {
                return Err(ApiFailure::new(StatusCode::BAD_REQUEST, "after is not a token of this log: take it from the line read last"));
            }
            query.push_str(&format!("&after={after}"));
        }
        Ok(query)
    }
}

pub async fn log(
    State(gateway): State<Arc<GatewayState>>,
    Path(target): Path<AgentTarget>,
    Extension(user): Extension<User>,
    query: Result<Query<LogQuery>, QueryRejection>,
    part: Result<Query<LogPart>, QueryRejection>,
    wait: Result<Query<ReaderWait>, QueryRejection>,
    of_bundle: Result<Query<BundleQuery>, QueryRejection>,
) -> Result<Response, ApiFailure> {
    if query.as_ref().is_ok_and(|query| query.export) {
        return export(State(gateway), Path(target), Extension(user), wait).await;
    }
    if query.as_ref().is_ok_and(|query| query.bundle) {
        return bundle(State(gateway), Path(target), Extension(user), of_bundle, wait).await;
    }
    let record = target.resolve(&gateway, &user, "get", "log").await?;
    let Query(query) = query.map_err(bad_query)?;
    let Query(part) = part.map_err(bad_query)?;
    let Query(wait) = wait.map_err(bad_query)?;
    let path = format!("{}?follow={}{}", target.runtime_path(runtime_api::LOG)?, query.follow, part.query()?);
    let body = read_from_runtime(&gateway, &record, path, WhenStopped::Reader(wait)).await?;
    // A followed log has no end of its own. Any other body may finish within the drain.
    let body = if query.follow { until_stopped(body, gateway.stopping.clone()) } else { body };
    Ok(([(header::CONTENT_TYPE, "application/x-ndjson")], body).into_response())
}

pub async fn diff(
    State(gateway): State<Arc<GatewayState>>,
    Path(target): Path<AgentTarget>,
    Extension(user): Extension<User>,
    query: Result<Query<DiffQuery>, QueryRejection>,
    wait: Result<Query<ReaderWait>, QueryRejection>,
) -> Result<Response, ApiFailure> {
    let path = query.map(|Query(query)| format!("{}?since={}", runtime_api::DIFF, query.since.as_str()));
    pass_on(&gateway, target, &user, "diff", (path, wait), "application/json").await
}

pub async fn patch(
    State(gateway): State<Arc<GatewayState>>,
    Path(target): Path<AgentTarget>,
    Extension(user): Extension<User>,
    query: Result<Query<PatchQuery>, QueryRejection>,
    wait: Result<Query<ReaderWait>, QueryRejection>,
) -> Result<Response, ApiFailure> {
    let path = query.map(|Query(query)| format!("{}?format={}", runtime_api::PATCH, query.format.as_str()));
    pass_on(&gateway, target, &user, "patch", (path, wait), "application/octet-stream").await
}

pub async fn export(
    State(gateway): State<Arc<GatewayState>>,
    Path(target): Path<AgentTarget>,
    Extension(user): Extension<User>,
    wait: Result<Query<ReaderWait>, QueryRejection>,
) -> Result<Response, ApiFailure> {
    let path = target.runtime_path(runtime_api::EXPORT)?;
    pass_on(&gateway, target, &user, "export", (Ok(path), wait), "application/x-tar").await
}

pub async fn usage(
    State(gateway): State<Arc<GatewayState>>,
    Path(target): Path<AgentTarget>,
    Extension(user): Extension<User>,
    wait: Result<Query<ReaderWait>, QueryRejection>,
) -> Result<Response, ApiFailure> {
    pass_on(&gateway, target, &user, "usage", (Ok(runtime_api::USAGE.to_owned()), wait), "application/json").await
}

/// The runtime's answer to `path` as it is, for a user who may get this subresource.
pub(super) async fn pass_on(
    gateway: &GatewayState,
    target: AgentTarget,
    user: &User,
    subresource: &'static str,
    (path, wait): (Result<String, QueryRejection>, Result<Query<ReaderWait>, QueryRejection>),
    content_type: &'static str,
) -> Result<Response, ApiFailure> {
    let record = target.resolve(gateway, user, "get", subresource).await?;
    let Query(wait) = wait.map_err(bad_query)?;
    let body = read_from_runtime(gateway, &record, path.map_err(bad_query)?, WhenStopped::Reader(wait)).await?;
    Ok(([(header::CONTENT_TYPE, content_type)], body).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tail_is_bounded() {
        let query = |tail| LogPart { tail: Some(tail), after: None }.query().ok();
        assert_eq!(query(u64::MAX).as_deref(), Some("&tail=1000"));
        assert_eq!(query(7).as_deref(), Some("&tail=7"));
    }
}
