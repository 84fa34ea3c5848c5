//! Reads of an agent: requests to its runtime, or to the reader of its session when it has stopped. Their bodies are streamed unchanged.

use std::time::Duration;

use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::http::{Request, StatusCode, Uri};
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::unfold;
use http_body_util::{BodyDataStream, BodyExt, Empty, Limited};
use serde::Deserialize;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use yoi_line::LineHandle;
use yoi_wire::hub::Refusal;
use yoi_wire::people::WaitsFor;

use super::ApiFailure;
use super::target::{no_line, unreachable};
use crate::GatewayState;
use crate::agent_index::AgentRecord;
use crate::readers::NoReader;

/// The longest refusal of a runtime, in bytes.
const MAX_REFUSAL: usize = 64 * 1024;
/// How long a failed request waits for the end of its line. Both come from one connection, so it is short.
const BROKEN_LINE_WAIT: Duration = Duration::from_secs(1);
/// Seconds that a request waits for a reader.
const MAX_READER_WAIT: u64 = 20;

/// How long a request waits for the reader of a stopped agent.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReaderWait {
    /// 20 when absent, and at most that: the API server ends a request after a minute.
    wait_seconds: Option<u64>,
}

impl ReaderWait {
    pub fn duration(self) -> Duration {
        Duration::from_secs(self.wait_seconds.unwrap_or(MAX_READER_WAIT).min(MAX_READER_WAIT))
    }
}

pub fn bad_query(rejection: QueryRejection) -> ApiFailure {
    ApiFailure::new(StatusCode::BAD_REQUEST, rejection.body_text())
}

/// Who answers for an agent that has stopped.
#[derive(Clone, Debug)]
pub enum WhenStopped {
    /// A reader of its session, after a wait.
    Reader(ReaderWait),
    /// Nobody: the request is refused.
    Nobody,
    /// One that rests is woken for this; of one that has stopped nobody.
    Woken(String),
}

/// Requests `path` from the agent's runtime, or from its reader when it has stopped, and returns the body if the response is a success.
pub async fn read_from_runtime(
    gateway: &GatewayState,
    record: &AgentRecord,
    path: String,
    when_stopped: WhenStopped,
) -> Result<Body, ApiFailure> {
    let (namespace, name) = (&record.name.namespace, &record.name.name);
    let broken = |why: String| {
        ApiFailure::new(StatusCode::SERVICE_UNAVAILABLE, format!("YoiPod {namespace}/{name} did not answer: {why}; try again")).about(name)
    };
    let path = path.parse::<Uri>().map_err(|error| broken(error.to_string()))?;
    let ask = async |line: &LineHandle| {
        let mut request = Request::new(Empty::<Bytes>::new());
        *request.uri_mut() = path.clone();
        let answer = timeout(gateway.settings.answer_timeout, line.request(request)).await;
        answer.map_err(|_| broken(format!("nothing came within {}", crate::seconds(gateway.settings.answer_timeout))))
    };
    let (line, is_reader) = line_to(gateway, record, &when_stopped).await?;
    let (answer, is_reader) = match ask(&line).await? {
        Ok(answer) => (answer, is_reader),
        // A connection that broke before the answer came, as when a Pod is replaced. A read may be asked twice.
        Err(_) if timeout(BROKEN_LINE_WAIT, line.closed()).await.is_ok() => {
            let known = gateway.agents.by_uid(&record.name.uid);
            let (line, is_reader) = line_to(gateway, known.as_deref().unwrap_or(record), &when_stopped).await?;
            (ask(&line).await?.map_err(|error| broken(yoi_wire::error_chain(&error)))?, is_reader)
        }
        Err(error) => return Err(broken(yoi_wire::error_chain(&error))),
    };
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

/// The line of the runtime, or of the reader, and whether it is the reader's.
async fn line_to(gateway: &GatewayState, record: &AgentRecord, when_stopped: &WhenStopped) -> Result<(LineHandle, bool), ApiFailure> {
    let wakes_for = match when_stopped {
        WhenStopped::Woken(by) => Some(by.as_str()),
        WhenStopped::Reader(_) | WhenStopped::Nobody => None,
    };
    match (gateway.delivery.line_to(record, wakes_for).await, when_stopped) {
        (Ok(line), _) => Ok((line, false)),
        (Err(_), WhenStopped::Reader(wait)) if record.is_stopped => {
            let line = gateway.readers.line_to(record, wait.duration()).await;
            Ok((line.map_err(|why| no_reader(&record.name.namespace, &record.name.name, &why))?, true))
        }
        (Err(_), WhenStopped::Reader(_) | WhenStopped::Nobody) => Err(unreachable(record)),
        (Err(refusal), WhenStopped::Woken(_)) => Err(no_line(record, &refusal)),
    }
}

/// The failure of an agent whose answer cannot be read.
pub fn bad_answer(record: &AgentRecord, why: &str) -> ApiFailure {
    let (namespace, name) = (&record.name.namespace, &record.name.name);
    let message = format!("the answer of YoiPod {namespace}/{name} about its commits cannot be read: {why}; try again");
    ApiFailure::new(StatusCode::SERVICE_UNAVAILABLE, message).about(name)
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
        NoReader::NotYet(why) => failure.retry(WaitsFor::Reader, why),
        NoReader::NothingToRead(_) | NoReader::NotStopped | NoReader::Request(_) => failure,
    }
}

/// The body, which fails when this process stops. It fails instead of ending, so that no reader takes the stop for the end of the log.
pub fn until_stopped(body: Body, stop: CancellationToken) -> Body {
    let chunks = unfold((BodyDataStream::new(body), stop), |(mut body, stop)| async move {
        tokio::select! {
            biased;
            chunk = body.next() => chunk.map(|chunk| (chunk, (body, stop))),
            () = stop.cancelled() => Some((Err(axum::Error::new(std::io::Error::other("the gateway is stopping"))), (body, stop))),
        }
    });
    Body::from_stream(chunks)
}
