//! `GET yoipods/log`, `yoipods/diff` and `yoipods/patch`: the answers of the agent's runtime, streamed unchanged.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Extension, Path, Query, State};
use axum::http::{Request, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::unfold;
use http_body_util::{BodyDataStream, BodyExt, Empty, Limited};
use hyper::body::Incoming;
use serde::Deserialize;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use yoi_wire::hub::{Refusal, runtime_api};
use yoi_wire::people::{DiffQuery, PatchQuery};

use super::ApiFailure;
use super::target::{AgentTarget, unreachable};
use crate::GatewayState;
use crate::agent_index::AgentRecord;
use crate::front_proxy::User;

/// The longest refusal of a runtime, in bytes.
const MAX_REFUSAL: usize = 64 * 1024;
const MAX_TOKEN: usize = 256;

#[derive(Debug, Deserialize)]
pub struct LogQuery {
    #[serde(default)]
    follow: bool,
    tail: Option<u64>,
    after: Option<String>,
}

impl LogQuery {
    /// The path and query for the runtime, of the known parameters only.
    fn path(&self) -> Result<String, ApiFailure> {
        let mut path = format!("{}?follow={}", runtime_api::LOG, self.follow);
        if let Some(tail) = self.tail {
            path.push_str(&format!("&tail={tail}"));
        }
        if let Some(after) = &self.after {
            let plain = |c: u8| c.is_ascii_alphanumeric() || b"-_.:~/".contains(&c);
            if after.len() > MAX_TOKEN || !after.bytes().all(plain) {
                return Err(ApiFailure::new(StatusCode::BAD_REQUEST, "after is not a token of this log: take it from the line read last"));
            }
            path.push_str(&format!("&after={after}"));
        }
        Ok(path)
    }
}

pub async fn log(
    State(gateway): State<Arc<GatewayState>>,
    Path(target): Path<AgentTarget>,
    Extension(user): Extension<User>,
    query: Result<Query<LogQuery>, QueryRejection>,
) -> Result<Response, ApiFailure> {
    let record = target.resolve(&gateway, &user, "get", "log").await?;
    let Query(query) = query.map_err(bad_query)?;
    let answer = read_from_runtime(&gateway, &record, query.path()?).await?;
    // A followed log has no end of its own. Any other body may finish within the drain.
    let body = if query.follow { until_stopped(answer.into_body(), gateway.stopping.clone()) } else { Body::new(answer.into_body()) };
    Ok(([(header::CONTENT_TYPE, "application/x-ndjson")], body).into_response())
}

pub async fn diff(
    State(gateway): State<Arc<GatewayState>>,
    Path(target): Path<AgentTarget>,
    Extension(user): Extension<User>,
    query: Result<Query<DiffQuery>, QueryRejection>,
) -> Result<Response, ApiFailure> {
    let path = query.map(|Query(query)| format!("{}?since={}", runtime_api::DIFF, query.since.as_str()));
    pass_on(&gateway, target, &user, "diff", path, "application/json").await
}

pub async fn patch(
    State(gateway): State<Arc<GatewayState>>,
    Path(target): Path<AgentTarget>,
    Extension(user): Extension<User>,
    query: Result<Query<PatchQuery>, QueryRejection>,
) -> Result<Response, ApiFailure> {
    let path = query.map(|Query(query)| format!("{}?format={}", runtime_api::PATCH, query.format.as_str()));
    pass_on(&gateway, target, &user, "patch", path, "application/octet-stream").await
}

/// The runtime's answer to `path` as it is, for a user who may get this subresource.
async fn pass_on(
    gateway: &GatewayState,
    target: AgentTarget,
    user: &User,
    subresource: &'static str,
    path: Result<String, QueryRejection>,
    content_type: &'static str,
) -> Result<Response, ApiFailure> {
    let record = target.resolve(gateway, user, "get", subresource).await?;
    let answer = read_from_runtime(gateway, &record, path.map_err(bad_query)?).await?;
    Ok(([(header::CONTENT_TYPE, content_type)], Body::new(answer.into_body())).into_response())
}

fn bad_query(rejection: QueryRejection) -> ApiFailure {
    ApiFailure::new(StatusCode::BAD_REQUEST, rejection.body_text())
}

/// Requests `path` from the agent's runtime, and returns the response if its status is a success.
async fn read_from_runtime(
    gateway: &GatewayState,
    record: &AgentRecord,
    path: String,
) -> Result<axum::http::Response<Incoming>, ApiFailure> {
    let (namespace, name) = (&record.name.namespace, &record.name.name);
    let broken = |why: String| {
        ApiFailure::new(StatusCode::SERVICE_UNAVAILABLE, format!("YoiPod {namespace}/{name} did not answer: {why}; try again")).about(name)
    };
    let mut request = Request::new(Empty::<Bytes>::new());
    *request.uri_mut() = path.parse::<Uri>().map_err(|error| broken(error.to_string()))?;
    let line = gateway.delivery.line_to(record).await.map_err(|_| unreachable(record))?;
    let answer = timeout(gateway.settings.answer_timeout, line.request(request)).await;
    let answer = answer.map_err(|_| broken(format!("nothing came within {}", crate::seconds(gateway.settings.answer_timeout))))?;
    let answer = answer.map_err(|error| broken(yoi_wire::error_chain(&error)))?;
    if answer.status().is_success() {
        return Ok(answer);
    }
    let status = answer.status();
    let body = timeout(gateway.settings.answer_timeout, Limited::new(answer.into_body(), MAX_REFUSAL).collect()).await;
    let body = body.ok().and_then(Result::ok).map(|body| body.to_bytes()).unwrap_or_default();
    Err(match serde_json::from_slice::<Refusal>(&body) {
        Ok(refusal) => ApiFailure::from_refusal(namespace, name, &refusal),
        // A runtime older than this gateway may not serve the path.
        Err(_) if status == StatusCode::NOT_FOUND => {
            ApiFailure::new(StatusCode::SERVICE_UNAVAILABLE, format!("the runtime of YoiPod {namespace}/{name} does not serve {path}"))
                .about(name)
        }
        Err(_) => broken(format!("its runtime said {status}")),
    })
}

/// The body, which fails when this process stops. It fails instead of ending, so that no reader takes the stop for the end of the log.
fn until_stopped(body: Incoming, stop: CancellationToken) -> Body {
    let chunks = unfold((BodyDataStream::new(body), stop), |(mut body, stop)| async move {
        tokio::select! {
            biased;
            chunk = body.next() => chunk.map(|chunk| (chunk.map_err(axum::Error::new), (body, stop))),
            () = stop.cancelled() => Some((Err(axum::Error::new(std::io::Error::other("the gateway is stopping"))), (body, stop))),
        }
    });
    Body::from_stream(chunks)
}
