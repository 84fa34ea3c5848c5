//! `GET yoipods/log` and `GET yoipods/diff`: the agent's own words, passed through as they come.

use std::sync::Arc;

use axum::body::Body;
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

use super::Failure;
use super::target::{Target, unreachable};
use crate::Hub;
use crate::frontproxy::User;
use crate::world::AgentRecord;

/// What a runtime that says no may say at most.
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
    /// Only what is understood is passed on.
    fn path(&self) -> Result<String, Failure> {
        let mut path = format!("{}?follow={}", runtime_api::LOG, self.follow);
        if let Some(tail) = self.tail {
            path.push_str(&format!("&tail={tail}"));
        }
        if let Some(after) = &self.after {
            let plain = |c: u8| c.is_ascii_alphanumeric() || b"-_.:~/".contains(&c);
            if after.len() > MAX_TOKEN || !after.bytes().all(plain) {
                return Err(Failure::new(StatusCode::BAD_REQUEST, "after is not a token of this log: take it from the line read last"));
            }
            path.push_str(&format!("&after={after}"));
        }
        Ok(path)
    }
}

pub async fn log(
    State(hub): State<Arc<Hub>>,
    Path(target): Path<Target>,
    Extension(user): Extension<User>,
    query: Result<Query<LogQuery>, axum::extract::rejection::QueryRejection>,
) -> Result<Response, Failure> {
    let record = target.resolve(&hub, &user, "get", "log").await?;
    let Query(query) = query.map_err(|rejection| Failure::new(StatusCode::BAD_REQUEST, rejection.body_text()))?;
    let answer = ask(&hub, &record, query.path()?).await?;
    // What is followed has no end of its own; anything else may finish within the drain.
    let body = if query.follow { until(answer.into_body(), hub.stopping.clone()) } else { Body::new(answer.into_body()) };
    Ok(([(header::CONTENT_TYPE, "application/x-ndjson")], body).into_response())
}

pub async fn diff(State(hub): State<Arc<Hub>>, Path(target): Path<Target>, Extension(user): Extension<User>) -> Result<Response, Failure> {
    let record = target.resolve(&hub, &user, "get", "diff").await?;
    let answer = ask(&hub, &record, runtime_api::DIFF.to_owned()).await?;
    Ok(([(header::CONTENT_TYPE, "application/json")], Body::new(answer.into_body())).into_response())
}

/// The head of the runtime's answer, if it is a good one.
async fn ask(hub: &Hub, record: &AgentRecord, path: String) -> Result<axum::http::Response<Incoming>, Failure> {
    let (namespace, name) = (&record.name.namespace, &record.name.name);
    let broken = |why: String| {
        Failure::new(StatusCode::SERVICE_UNAVAILABLE, format!("YoiPod {namespace}/{name} did not answer: {why}; try again")).of(name)
    };
    let mut request = Request::new(Empty::<Bytes>::new());
    *request.uri_mut() = path.parse::<Uri>().map_err(|error| broken(error.to_string()))?;
    let line = hub.courier.line_to(record).await.map_err(|_| unreachable(record))?;
    let answer = timeout(hub.settings.answer_within, line.request(request)).await;
    let answer = answer.map_err(|_| broken(format!("nothing came within {}", crate::seconds(hub.settings.answer_within))))?;
    let answer = answer.map_err(|error| broken(crate::chain(&error)))?;
    if answer.status().is_success() {
        return Ok(answer);
    }
    let status = answer.status();
    let body = timeout(hub.settings.answer_within, Limited::new(answer.into_body(), MAX_REFUSAL).collect()).await;
    let body = body.ok().and_then(Result::ok).map(|body| body.to_bytes()).unwrap_or_default();
    Err(match serde_json::from_slice::<Refusal>(&body) {
        Ok(refusal) => Failure::refused(namespace, name, &refusal),
        // A runtime that is older than this gateway may not know the path.
        Err(_) if status == StatusCode::NOT_FOUND => {
            Failure::new(StatusCode::SERVICE_UNAVAILABLE, format!("the runtime of YoiPod {namespace}/{name} does not serve {path}"))
                .of(name)
        }
        Err(_) => broken(format!("its runtime said {status}")),
    })
}

/// The stream, broken when this process stops: broken, not ended, so that nobody takes the cut for the end of the log.
fn until(body: Incoming, stop: CancellationToken) -> Body {
    let chunks = unfold((BodyDataStream::new(body), stop), |(mut body, stop)| async move {
        tokio::select! {
            biased;
            chunk = body.next() => chunk.map(|chunk| (chunk.map_err(axum::Error::new), (body, stop))),
            () = stop.cancelled() => Some((Err(axum::Error::new(std::io::Error::other("the gateway is stopping"))), (body, stop))),
        }
    });
    Body::from_stream(chunks)
}
