//! `POST yoipods/control`: what people ask of a running agent. The runtime answers, and the gateway says who asks.
//!
//! A request of a newer client is passed on as it is, because the runtime may understand it. Texts are in no log.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, Path, State};
use axum::http::{Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::StreamExt;
use futures::stream;
use http_body_util::BodyDataStream;
use serde::Deserialize;
use yoi_wire::control::{ControlDone, ControlReason, ControlResponse};
use yoi_wire::hub::{MAX_MESSAGE_TEXT, MessageTooLong, runtime_api};

use super::ApiFailure;
use super::register_peer::{check_peer_name, register_peer};
use super::runtime_client::{MAX_READ_ANSWER, RuntimeClient};
use super::target::AgentTarget;
use crate::GatewayState;
use crate::agent_index::AgentRecord;
use crate::body::{self, BodyError};
use crate::front_proxy::User;
use crate::metrics::ControlLabels;

/// As much of a request as the gateway looks at.
#[derive(Debug, Deserialize)]
struct RequestHead {
    id: uuid::Uuid,
    action: ActionHead,
}

#[derive(Debug, Deserialize)]
struct ActionHead {
    #[serde(rename = "type")]
    kind: String,
    text: Option<String>,
    peer: Option<String>,
}

pub async fn control(
    State(gateway): State<Arc<GatewayState>>,
    Path(target): Path<AgentTarget>,
    Extension(user): Extension<User>,
    body: Body,
) -> Result<Response, ApiFailure> {
    let record = target.resolve(&gateway, &user, "create", "control").await?;
    // The content type is not checked, because `kubectl create --raw` sends none.
    let body = body::read(body).await.map_err(|error| match error {
        BodyError::TooLong => too_long(&record, MessageTooLong { bytes: None }),
        BodyError::Broken(_) => ApiFailure::new(StatusCode::BAD_REQUEST, yoi_wire::error_chain(&error)),
    })?;
    let head: RequestHead = serde_json::from_slice(&body).map_err(|error| {
        let form = "{\"id\": UUID, \"action\": {\"type\": ..., ...}}";
        ApiFailure::new(StatusCode::BAD_REQUEST, format!("the body must be {form}: {error}")).about(&record.name.name)
    })?;
    if let Some(text) = head.action.text.as_ref().filter(|text| text.len() > MAX_MESSAGE_TEXT) {
        return Err(too_long(&record, MessageTooLong { bytes: Some(text.len()) }));
    }
    let path = target.runtime_path(runtime_api::CONTROL)?;
    let answer = carry_out(&gateway, &user, &record, &head, (&path, body)).await;
    let outcome = match &answer {
        Ok(answer) => answer.outcome(),
        Err(_) => "NoAnswer",
    };
    let action = action_label(&head.action.kind);
    gateway.metrics.control_requests.get_or_create(&ControlLabels { action, answer: outcome }).inc();
    let AgentRecord { name, run_generation: run, .. } = &*record;
    let request_id = head.id.to_string();
    tracing::info!(target: "audit", person = user.name, object = %name, uid = name.uid, run, action, request_id, outcome, "control request");
    answer.map(RuntimeAnswer::into_response)
}

/// Asks the runtime. A peer is made after the runtime has agreed.
async fn carry_out(
    gateway: &GatewayState,
    user: &User,
    record: &AgentRecord,
    head: &RequestHead,
    (path, body): (&str, Bytes),
) -> Result<RuntimeAnswer, ApiFailure> {
    let refused = |refusal| RuntimeAnswer::of(ControlResponse { id: head.id.to_string(), done: None, refused: Some(refusal) });
    let peer = head.action.peer.as_ref().filter(|_| head.action.kind == "registerPeer");
    if let Some(refusal) = peer.and_then(|peer| check_peer_name(record, peer).err()) {
        return Ok(refused(refusal));
    }
    let answer = ask_runtime(gateway, user, record, wakes_for(user, &head.action.kind), (path, body)).await?;
    let (Some(peer), RuntimeAnswer::Read(ControlResponse { done: Some(_), .. }, _)) = (peer, &answer) else { return Ok(answer) };
    Ok(match register_peer(gateway, user, record, peer).await {
        Ok(message) => {
            let done = Some(ControlDone { message, ..ControlDone::default() });
            RuntimeAnswer::of(ControlResponse { id: head.id.to_string(), done, refused: None })
        }
        Err(refusal) => refused(refusal),
    })
}

/// The answer of a runtime to a control request.
enum RuntimeAnswer {
    /// It is short. The bytes are those of the runtime, with fields that this version may not know.
    Read(ControlResponse, Bytes),
    /// It is long, so it is no refusal.
    Long(Body),
}

impl RuntimeAnswer {
    /// An answer of the gateway's own.
    fn of(response: ControlResponse) -> Self {
        // These types have no map with keys that are not strings, and no other way to fail.
        let bytes = serde_json::to_vec(&response).unwrap_or_default();
        RuntimeAnswer::Read(response, bytes.into())
    }

    fn outcome(&self) -> &'static str {
        match self {
            RuntimeAnswer::Read(ControlResponse { refused: Some(refusal), .. }, _) => reason_label(refusal.reason),
            RuntimeAnswer::Read(ControlResponse { refused: None, .. }, _) | RuntimeAnswer::Long(_) => "Done",
        }
    }

    fn into_response(self) -> Response {
        let body = match self {
            RuntimeAnswer::Read(_, bytes) => Body::from(bytes),
            RuntimeAnswer::Long(body) => body,
        };
        ([(header::CONTENT_TYPE, "application/json")], body).into_response()
    }
}

/// What an agent that rests is woken for: whatever is not about a run that is under way.
fn wakes_for(user: &User, action: &str) -> Option<String> {
    let is_of_a_run = ["pause", "resume", "cancel"].contains(&action);
    (!is_of_a_run).then(|| format!("{} of {}", action_label(action), user.name))
}

async fn ask_runtime(
    gateway: &GatewayState,
    user: &User,
    record: &AgentRecord,
    wakes_for: Option<String>,
    (path, body): (&str, Bytes),
) -> Result<RuntimeAnswer, ApiFailure> {
    let client = RuntimeClient::new(gateway, user, record, "may have done it all the same: ask again under the same id").waking(wakes_for);
    let response = client.send(&Method::POST, path, &body).await?;
    let status = response.status();
    if status.is_success() {
        let answer = client.in_time(read_answer(Body::new(response.into_body()))).await;
        return answer.flatten().ok_or_else(|| client.lost("gave no answer that can be read"));
    }
    Err(client.refused(status, &client.read(response.into_body()).await.unwrap_or_default()))
}

/// The answer, or `None` when it breaks off or is none. Only the list of a long conversation's inputs is long.
async fn read_answer(body: Body) -> Option<RuntimeAnswer> {
    let mut frames = BodyDataStream::new(body);
    let mut read = Vec::new();
    while read.len() <= MAX_READ_ANSWER {
        match frames.next().await {
            Some(frame) => read.extend_from_slice(&frame.ok()?),
            None => {
                let response = serde_json::from_slice::<ControlResponse>(&read).ok()?;
                return (response.done.is_some() != response.refused.is_some()).then(|| RuntimeAnswer::Read(response, read.into()));
            }
        }
    }
    Some(RuntimeAnswer::Long(Body::from_stream(stream::iter([Ok(Bytes::from(read))]).chain(frames))))
}

fn too_long(record: &AgentRecord, error: MessageTooLong) -> ApiFailure {
    let (namespace, name) = (&record.name.namespace, &record.name.name);
    ApiFailure::new(StatusCode::PAYLOAD_TOO_LARGE, format!("YoiPod {namespace}/{name}: {error}")).about(name)
}

/// The action in the metric. A client may send any word, and a metric has few values.
fn action_label(kind: &str) -> &'static str {
    const ACTIONS: [&str; 9] = ["run", "pause", "resume", "cancel", "setMode", "compact", "registerPeer", "rewindTargets", "rewindTo"];
    ACTIONS.into_iter().find(|action| *action == kind).unwrap_or("unknown")
}

/// The answer in the metric and in the audit log: the reason as the wire spells it, because dashboards match on it.
fn reason_label(reason: ControlReason) -> &'static str {
    match reason {
        ControlReason::AlreadyRunning => "AlreadyRunning",
        ControlReason::NotRunning => "NotRunning",
        ControlReason::NotPaused => "NotPaused",
        ControlReason::Paused => "Paused",
        ControlReason::HeadChanged => "HeadChanged",
        ControlReason::Invalid => "Invalid",
        ControlReason::NotReady => "NotReady",
        ControlReason::NotSupported => "NotSupported",
        ControlReason::Failed => "Failed",
        ControlReason::Unknown => "Unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;
    use yoi_wire::control::ControlAction;
    use yoi_wire::mode::Mode;

    #[test]
    fn every_action_and_reason_is_spelled_as_on_the_wire() {
        let text = || "t".to_owned();
        let actions = [
            ControlAction::Run { text: text() },
            ControlAction::Pause {},
            ControlAction::Resume {},
            ControlAction::Cancel {},
            ControlAction::SetMode { mode: Mode::Planning, force: true },
            ControlAction::Compact {},
            ControlAction::RegisterPeer { peer: text() },
            ControlAction::RewindTargets {},
            ControlAction::RewindTo { segment: text(), seq: 1, head: 2 },
        ];
        for action in actions {
            let json = serde_json::to_value(&action).unwrap();
            assert_eq!(json["type"], action_label(json["type"].as_str().unwrap()), "{json}");
        }
        assert_eq!(action_label("dance"), "unknown");
        use ControlReason::{AlreadyRunning, Failed, HeadChanged, Invalid, NotPaused, NotReady, NotRunning, NotSupported, Paused, Unknown};
        for reason in [AlreadyRunning, NotRunning, NotPaused, Paused, HeadChanged, Invalid, NotReady, NotSupported, Failed, Unknown] {
            assert_eq!(serde_json::to_value(reason).unwrap(), reason_label(reason));
        }
    }

    #[tokio::test]
    async fn an_answer_is_one_that_is_done_or_refused_and_a_long_one_passes_whole() {
        let read = async |body: &str| read_answer(Body::from(body.to_owned())).await.map(|answer| answer.outcome());
        assert_eq!(read(r#"{"id":"i","done":{"message":"m"}}"#).await, Some("Done"));
        assert_eq!(read(r#"{"id":"i","refused":{"reason":"NotPaused","message":"m"}}"#).await, Some("NotPaused"));
        assert_eq!(read(r#"{"id":"i","refused":{"reason":"Tired","message":"m"}}"#).await, Some("Unknown"));
        assert_eq!(read(r#"{"id":"i"}"#).await, None);
        assert_eq!(read("").await, None);
        let long = format!(r#"{{"id":"i","done":{{"message":"{}"}}}}"#, "m".repeat(3 * MAX_READ_ANSWER));
        let answer = read_answer(Body::from(long.clone())).await.unwrap();
        assert_eq!(answer.outcome(), "Done");
        let body = answer.into_response().into_body().collect().await.unwrap().to_bytes();
        assert_eq!(body, long);
    }
}
