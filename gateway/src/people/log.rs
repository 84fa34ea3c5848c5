//! `GET yoipods/log`, `yoipods/diff` and `yoipods/patch`: the answers of the agent's runtime, or of a stopped agent's reader, streamed unchanged.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Extension, Path, Query, State};
use axum::http::{Request, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::unfold;
use http_body_util::{BodyDataStream, BodyExt, Empty, Limited};
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
use crate::readers::NoReader;

/// The longest refusal of a runtime, in bytes.
const MAX_REFUSAL: usize = 64 * 1024;
const MAX_TOKEN: usize = 256;
/// Seconds that a request waits for a reader.
const MAX_READER_WAIT: u64 = 20;

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

/// How long a request waits for the reader of a stopped agent.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReaderWait {
    /// 20 when absent, and at most that: the API server ends a request after a minute.
    wait_seconds: Option<u64>,
}

impl ReaderWait {
    fn duration(self) -> Duration {
        Duration::from_secs(self.wait_seconds.unwrap_or(MAX_READER_WAIT).min(MAX_READER_WAIT))
    }
}

pub async fn log(
    State(gateway): State<Arc<GatewayState>>,
    Path(target): Path<AgentTarget>,
    Extension(user): Extension<User>,
    query: Result<Query<LogQuery>, QueryRejection>,
    wait: Result<Query<ReaderWait>, QueryRejection>,
) -> Result<Response, ApiFailure> {
    let record = target.resolve(&gateway, &user, "get", "log").await?;
    let Query(query) = query.map_err(bad_query)?;
    let Query(wait) = wait.map_err(bad_query)?;
    let body = read_from_runtime(&gateway, &record, query.path()?, wait).await?;
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

/// The runtime's answer to `path` as it is, for a user who may get this subresource.
async fn pass_on(
    gateway: &GatewayState,
    target: AgentTarget,
    user: &User,
    subresource: &'static str,
    (path, wait): (Result<String, QueryRejection>, Result<Query<ReaderWait>, QueryRejection>),
    content_type: &'static str,
) -> Result<Response, ApiFailure> {
    let record = target.resolve(gateway, user, "get", subresource).await?;
    let Query(wait) = wait.map_err(bad_query)?;
    let body = read_from_runtime(gateway, &record, path.map_err(bad_query)?, wait).await?;
    Ok(([(header::CONTENT_TYPE, content_type)], body).into_response())
}

fn bad_query(rejection: QueryRejection) -> ApiFailure {
    ApiFailure::new(StatusCode::BAD_REQUEST, rejection.body_text())
}

/// Requests `path` from the agent's runtime, or from its reader when it has stopped, and returns the body if the response is a success. Waits as long as
/// `wait` says for the reader.
async fn read_from_runtime(gateway: &GatewayState, record: &AgentRecord, path: String, wait: ReaderWait) -> Result<Body, ApiFailure> {
    let (namespace, name) = (&record.name.namespace, &record.name.name);
    let broken = |why: String| {
        ApiFailure::new(StatusCode::SERVICE_UNAVAILABLE, format!("YoiPod {namespace}/{name} did not answer: {why}; try again")).about(name)
    };
    let mut request = Request::new(Empty::<Bytes>::new());
    *request.uri_mut() = path.parse::<Uri>().map_err(|error| broken(error.to_string()))?;
    let (line, is_reader) = match gateway.delivery.line_to(record).await {
        Ok(line) => (line, false),
        Err(_) if record.is_stopped => {
            let line = gateway.readers.line_to(record, wait.duration()).await;
            (line.map_err(|why| no_reader(namespace, name, &why))?, true)
        }
        Err(_) => return Err(unreachable(record)),
    };
    let answer = timeout(gateway.settings.answer_timeout, line.request(request)).await;
    let answer = answer.map_err(|_| broken(format!("nothing came within {}", crate::seconds(gateway.settings.answer_timeout))))?;
    let answer = answer.map_err(|error| broken(yoi_wire::error_chain(&error)))?;
    if answer.status().is_success() {
        let body = Body::new(answer.into_body());
        return Ok(if is_reader { gateway.readers.keep_during(record.name.clone(), body) } else { body });
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

fn no_reader(namespace: &str, name: &str, why: &NoReader) -> ApiFailure {
    let describe = format!("kubectl describe yoipod {name} -n {namespace}");
    let (code, sentence) = match why {
        NoReader::NothingToRead(why) => (StatusCode::CONFLICT, format!("has stopped: {why}; see {describe}")),
        NoReader::NotYet(_) => (StatusCode::SERVICE_UNAVAILABLE, format!("has stopped, and {why}; try again, or see {describe}")),
        NoReader::NotStopped => {
            (StatusCode::SERVICE_UNAVAILABLE, format!("was started or deleted meanwhile: try again, or see {describe}"))
        }
        NoReader::Request(error) => {
            tracing::warn!(namespace, name, error = yoi_wire::error_chain(error), "reader not asked for");
            (StatusCode::SERVICE_UNAVAILABLE, format!("has stopped, and {why}; try again"))
        }
    };
    let failure = ApiFailure::new(code, format!("YoiPod {namespace}/{name} {sentence}")).about(name);
    match why {
        NoReader::NotYet(why) => failure.retry(why),
        NoReader::NothingToRead(_) | NoReader::NotStopped | NoReader::Request(_) => failure,
    }
}

/// The body, which fails when this process stops. It fails instead of ending, so that no reader takes the stop for the end of the log.
fn until_stopped(body: Body, stop: CancellationToken) -> Body {
    let chunks = unfold((BodyDataStream::new(body), stop), |(mut body, stop)| async move {
        tokio::select! {
            biased;
            chunk = body.next() => chunk.map(|chunk| (chunk, (body, stop))),
            () = stop.cancelled() => Some((Err(axum::Error::new(std::io::Error::other("the gateway is stopping"))), (body, stop))),
        }
    });
    Body::from_stream(chunks)
}
