//! `POST yoipods/control`: what people ask of a running agent. The runtime answers, and the gateway says who asks.
//!
//! A request of a newer client is passed on as it is, because the runtime may understand it. Texts are in no log.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, Path, State};
use axum::http::{HeaderValue, Method, Request, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::StreamExt;
use futures::stream;
use http_body_util::{BodyDataStream, BodyExt, Full, Limited};
use serde::Deserialize;
use tokio::time::{Instant, timeout_at};
use yoi_line::RequestError;
use yoi_wire::control::{ControlDone, ControlReason, ControlResponse, USER_HEADER};
use yoi_wire::hub::{MAX_MESSAGE_TEXT, MessageTooLong, Refusal, runtime_api};

use super::ApiFailure;
use super::register_peer::{check_peer_name, register_peer};
use super::target::{AgentTarget, unreachable};
use crate::GatewayState;
use crate::agent_index::AgentRecord;
use crate::body::{self, BodyError};
use crate::front_proxy::User;
use crate::metrics::ControlLabels;

/// The longest answer that the gateway looks into, in bytes. Only the list of a long conversation's inputs is longer.
const MAX_READ_ANSWER: usize = 64 * 1024;

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
    let answer = ask_runtime(gateway, user, record, path, body).await?;
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

/// Sends the request over the agent's line, and over another line when that one closes before the runtime can have seen it.
async fn ask_runtime(
    gateway: &GatewayState,
    user: &User,
    record: &AgentRecord,
    path: &str,
    body: Bytes,
) -> Result<RuntimeAnswer, ApiFailure> {
    let deadline = Instant::now() + gateway.settings.control_timeout;
    let (namespace, name) = (&record.name.namespace, &record.name.name);
    let lost = |why: &str| {
        let message = format!("YoiPod {namespace}/{name} {why}, and may have done it all the same: ask again under the same id");
        ApiFailure::new(StatusCode::GATEWAY_TIMEOUT, message).about(name)
    };
    loop {
        let line = gateway.delivery.line_to(record).await.map_err(|_| unreachable(record))?;
        let answer = timeout_at(deadline, line.request(person_request(user, Method::POST, path, body.clone())?));
        let response = match answer.await {
            Ok(Ok(response)) => response,
            Ok(Err(RequestError::Unsent(_))) if line.is_closed() && Instant::now() < deadline => continue,
            Ok(Err(RequestError::Unsent(_))) => return Err(unreachable(record)),
            Ok(Err(_)) => return Err(lost("broke off")),
            Err(_) => return Err(lost(&format!("did not answer within {}", crate::seconds(gateway.settings.control_timeout)))),
        };
        let status = response.status();
        if status.is_success() {
            let answer = timeout_at(deadline, read_answer(Body::new(response.into_body()))).await;
            return answer.ok().flatten().ok_or_else(|| lost("gave no answer that can be read"));
        }
        let body = timeout_at(deadline, Limited::new(response.into_body(), MAX_READ_ANSWER).collect()).await;
        let body = body.ok().and_then(Result::ok).map(|body| body.to_bytes()).unwrap_or_default();
        return Err(match serde_json::from_slice::<Refusal>(&body) {
            Ok(refusal) => ApiFailure::from_refusal(namespace, name, &refusal),
            // A runtime older than this gateway may not serve the path.
            Err(_) if status == StatusCode::NOT_FOUND => ApiFailure::older_runtime(namespace, name),
            Err(_) => lost(&format!("answered {status}")),
        });
    }
}

/// The answer, or `None` when it breaks off or is none.
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

/// A request to the runtime in the name of a person.
pub(super) fn person_request(user: &User, method: Method, path: &str, body: Bytes) -> Result<Request<Full<Bytes>>, ApiFailure> {
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = method;
    *request.uri_mut() = path
        .parse::<Uri>()
        .map_err(|error| ApiFailure::new(StatusCode::BAD_REQUEST, format!("{path} is no path of a request: {error}")))?;
    let user = HeaderValue::from_str(&header_text(&user.name))
        .map_err(|error| ApiFailure::new(StatusCode::BAD_REQUEST, format!("the user's name fits no header: {error}")))?;
    request.headers_mut().insert(USER_HEADER, user);
    request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(request)
}

/// A name as printable ASCII. Whoever decodes the percent signs gets the name, whatever is in it.
fn header_text(name: &str) -> String {
    let escaped = |byte: u8| match byte {
        b'%' => "%25".to_owned(),
        b' '..=b'~' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    name.bytes().map(escaped).collect()
}

fn too_long(record: &AgentRecord, error: MessageTooLong) -> ApiFailure {
    let (namespace, name) = (&record.name.namespace, &record.name.name);
    ApiFailure::new(StatusCode::PAYLOAD_TOO_LARGE, format!("YoiPod {namespace}/{name}: {error}")).about(name)
}

/// The action in the metric. A client may send any word, and a metric has few values.
fn action_label(kind: &str) -> &'static str {
    const ACTIONS: [&str; 8] = ["run", "pause", "resume", "cancel", "compact", "registerPeer", "rewindTargets", "rewindTo"];
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
    use yoi_wire::control::ControlAction;

    #[test]
    fn a_user_name_becomes_printable_ascii_that_decodes_to_itself() {
        for (name, header) in [
            ("jane", "jane"),
            ("system:serviceaccount:ns:ci", "system:serviceaccount:ns:ci"),
            ("jürgen", "j%C3%BCrgen"),
            ("50%41", "50%2541"),
            ("a\r\nx-yoi-user: root", "a%0D%0Ax-yoi-user: root"),
        ] {
            assert_eq!(header_text(name), header);
            assert!(HeaderValue::from_str(&header_text(name)).is_ok());
        }
    }

    #[test]
    fn every_action_and_reason_is_spelled_as_on_the_wire() {
        let text = || "t".to_owned();
        let actions = [
            ControlAction::Run { text: text() },
            ControlAction::Pause {},
            ControlAction::Resume {},
            ControlAction::Cancel {},
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
