//! Delivery of a message to its target's inbox.
//!
//! # Guarantees
//! The answer is [`SendResponse`] only after the target's runtime has acknowledged that the message is durable. Every other answer tells whether the
//! sender may repeat the message under the same id: the inbox takes an id once.

use std::sync::Arc;
use std::time::Duration;

use axum::http::{Method, Request, StatusCode, Uri, header};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use tokio::time::{Instant, timeout_at};
use yoi_crds::pod::DesiredState;
use yoi_line::{LineHandle, RequestError};
use yoi_wire::hub::{DeliverRequest, MAX_MESSAGE_TEXT, MessageSender, MessageTooLong, Refusal, RefusalReason, SendResponse};

use crate::agent_index::AgentRecord;
use crate::metrics::{DeliveryLabels, GatewayMetrics, OutcomeLabels};
use crate::open_lines::OpenLines;
use crate::waker::Waker;

/// The longest answer of an inbox, in bytes.
const MAX_ANSWER: usize = 64 * 1024;
const MAX_ID: usize = 128;

/// Delivers messages over the lines of this replica.
pub struct MessageDelivery {
    pub lines: Arc<OpenLines>,
    pub metrics: Arc<GatewayMetrics>,
    pub waker: Waker,
    /// How long to wait for the target's line.
    pub line_wait: Duration,
    /// How long the acknowledgement may take.
    pub ack_timeout: Duration,
}

/// Why no inbox would take a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidMessage {
    #[error("messageId must be 1 to {MAX_ID} letters, digits and dashes; use a UUID")]
    Id,
    #[error("the message's text is empty")]
    Empty,
    #[error(transparent)]
    TooLong(#[from] MessageTooLong),
}

impl InvalidMessage {
    pub fn status(&self) -> StatusCode {
        match self {
            InvalidMessage::Id | InvalidMessage::Empty => StatusCode::BAD_REQUEST,
            InvalidMessage::TooLong(_) => StatusCode::PAYLOAD_TOO_LARGE,
        }
    }
}

impl From<InvalidMessage> for Refusal {
    fn from(invalid: InvalidMessage) -> Self {
        Refusal { reason: RefusalReason::Invalid, message: invalid.to_string() }
    }
}

/// Refuses a message that no inbox would take.
pub fn validate(message_id: &str, text: &str) -> Result<(), InvalidMessage> {
    if message_id.is_empty() || message_id.len() > MAX_ID || !message_id.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-') {
        return Err(InvalidMessage::Id);
    }
    if text.is_empty() {
        return Err(InvalidMessage::Empty);
    }
    if text.len() > MAX_MESSAGE_TEXT {
        return Err(MessageTooLong { bytes: Some(text.len()) }.into());
    }
    Ok(())
}

impl MessageDelivery {
    /// The target's line. An agent that rests is woken if `wakes_for` says what for.
    ///
    /// # Errors
    /// `Unreachable`, with the reason, or `Waking`.
    pub async fn line_to(&self, target: &AgentRecord, wakes_for: Option<&str>) -> Result<LineHandle, Refusal> {
        let known = self.waker.current(target);
        // It may have been woken since it was looked up, and runs in another Pod.
        let target = known.as_deref().unwrap_or(target);
        let uid = &target.name.uid;
        let rests = target.may_be_woken || target.has_closed_inbox();
        // Another request may be waking it, so that this one waits with that.
        if let Some(by) = wakes_for.filter(|_| rests || target.is_waking()) {
            return self.waker.line_to(target, by, None).await;
        }
        if let Some(pod_uid) = &target.pod_uid {
            let goes_on = match target.desired {
                DesiredState::Running | DesiredState::Suspended => !rests,
                DesiredState::Stopped | DesiredState::Unknown => false,
            };
            // The Pod of a stopped agent may still have its line. A new line will not come.
            let within = if goes_on { self.line_wait } else { Duration::ZERO };
            if let Some(line) = self.lines.wait_for(uid, pod_uid, within).await {
                return Ok(line.handle);
            }
        }
        Err(unreachable(target))
    }

    /// Sends a message that [`validate`] has taken to this inbox of the runtime, waits for the acknowledgement, and logs the outcome for audit.
    pub async fn deliver(&self, target: &AgentRecord, inbox: &str, message: &DeliverRequest) -> Result<SendResponse, Refusal> {
        let began = Instant::now();
        let outcome = self.send_to_inbox(target, inbox, message).await;
        let labels = OutcomeLabels { outcome: if outcome.is_ok() { "sent" } else { "refused" } };
        self.metrics.delivery_seconds.get_or_create(&labels).observe(began.elapsed().as_secs_f64());
        self.audit(&message.from, &target.name.namespace, &target.name.name, Some(target), &message.message_id, outcome.as_ref().map(drop));
        outcome
    }

    /// Logs one event for each message, whatever its outcome. The text of the message is never logged.
    pub fn audit(
        &self,
        from: &MessageSender,
        namespace: &str,
        to: &str,
        target: Option<&AgentRecord>,
        id: &str,
        outcome: Result<(), &Refusal>,
    ) {
        let label = outcome_label(outcome.map_err(|refusal| refusal.reason));
        let (kind, agent, person) = match from {
            MessageSender { agent: Some(agent), .. } => ("agent", Some(agent), None),
            MessageSender { person, .. } => ("person", None, person.as_deref()),
        };
        let agent_name = agent.map(|agent| format!("{}/{}", agent.namespace, agent.name));
        let agent_uid = agent.map(|agent| agent.uid.as_str());
        let (object, message_id) = (format!("{namespace}/{}", log_safe(to)), log_safe(id));
        let (uid, run) = (target.map(|target| target.name.uid.as_str()), target.map(|target| target.run_generation));
        tracing::info!(target: "audit", agent = agent_name, agent_uid, person, object, uid, run, message_id, outcome = label, "message");
        self.metrics.deliveries.get_or_create(&DeliveryLabels { from: kind, outcome: label.to_owned() }).inc();
    }

    async fn send_to_inbox(&self, target: &AgentRecord, inbox: &str, message: &DeliverRequest) -> Result<SendResponse, Refusal> {
        let body = Bytes::from(
            serde_json::to_vec(message).map_err(|error| receiver_failed(target, &format!("the message cannot be written: {error}")))?,
        );
        let inbox: Uri = inbox.parse().map_err(|error| receiver_failed(target, &format!("{inbox} is no path of an inbox: {error}")))?;
        let by = sender_sentence(&message.from);
        let mut line = self.line_to(target, Some(&by)).await?;
        let mut deadline = Instant::now() + self.ack_timeout;
        let lost = || Refusal {
            reason: RefusalReason::Unacknowledged,
            message: format!(
                "{} did not acknowledge the message, and may have it all the same: send it again under the same id",
                target.name.name
            ),
        };
        // One Pod after another may go to rest before the message comes, and the sender has no more time than for one.
        let mut closed = None;
        loop {
            let answer = timeout_at(deadline, async {
                let response = match line.request(inbox_request(inbox.clone(), body.clone())).await {
                    Ok(response) => response,
                    Err(error) => return Err(Some(error)),
                };
                let status = response.status();
                let body = Limited::new(response.into_body(), MAX_ANSWER).collect().await.map_err(|_| None)?;
                Ok((status, body.to_bytes()))
            });
            match answer.await {
                Ok(Ok((status, answer))) => match parse_acknowledgement(target, message, status, &answer) {
                    Err(Refusal { reason: RefusalReason::Resting, .. }) if closed.is_none() => {
                        closed = self.lines.get(&target.name.uid).map(|line| line.pod_uid).or_else(|| target.pod_uid.clone());
                        line = self.waker.line_to(target, &by, closed.as_deref()).await?;
                        deadline = Instant::now() + self.ack_timeout;
                    }
                    answer => return answer,
                },
                // The target has not seen the message, and the line is closed: another line of the target may carry it.
                Ok(Err(Some(RequestError::Unsent(_)))) if Instant::now() < deadline => {
                    if !line.is_closed() {
                        return Err(unreachable(target));
                    }
                    line = self.line_to(target, Some(&by)).await?;
                }
                Ok(Err(_)) | Err(_) => return Err(lost()),
            }
        }
    }
}

/// The outcome in the metric and in the audit log: the reason as the wire spells it, because dashboards match on it.
fn outcome_label(outcome: Result<(), RefusalReason>) -> &'static str {
    match outcome {
        Ok(()) => "Sent",
        Err(RefusalReason::NotAnAgent) => "NotAnAgent",
        Err(RefusalReason::NotVisible) => "NotVisible",
        Err(RefusalReason::NotAPeer) => "NotAPeer",
        Err(RefusalReason::Unreachable) => "Unreachable",
        Err(RefusalReason::InboxFull) => "InboxFull",
        Err(RefusalReason::Invalid) => "Invalid",
        Err(RefusalReason::ReceiverFailed) => "ReceiverFailed",
        Err(RefusalReason::Unacknowledged) => "Unacknowledged",
        Err(RefusalReason::Resting) => "Resting",
        Err(RefusalReason::Waking) => "Waking",
        Err(RefusalReason::NotAChild) => "NotAChild",
        Err(RefusalReason::AlreadyRunning) => "AlreadyRunning",
        Err(RefusalReason::NoDelegation) => "NoDelegation",
        Err(RefusalReason::NameTaken) => "NameTaken",
        Err(RefusalReason::Limit) => "Limit",
        Err(RefusalReason::NotMade) => "NotMade",
        Err(RefusalReason::NotLent) => "NotLent",
        Err(RefusalReason::PathHeld) => "PathHeld",
        Err(RefusalReason::NotGit) => "NotGit",
        Err(RefusalReason::AlreadyLive) => "AlreadyLive",
        Err(RefusalReason::NotRestorable) => "NotRestorable",
        Err(RefusalReason::NotUp) => "NotUp",
    }
}

/// A name or id that the sender chose, cut to what a log may hold.
fn log_safe(text: &str) -> String {
    text.chars().filter(char::is_ascii_graphic).take(MAX_ID).collect()
}

fn inbox_request(inbox: Uri, body: Bytes) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = inbox;
    request.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    request
}

/// The meaning of the runtime's answer. Only an answer that names this message's id is an acknowledgement.
fn parse_acknowledgement(target: &AgentRecord, message: &DeliverRequest, status: StatusCode, body: &[u8]) -> Result<SendResponse, Refusal> {
    if status.is_success() || status == StatusCode::CONFLICT {
        let sent = serde_json::from_slice::<SendResponse>(body).ok().filter(|sent| sent.message_id == message.message_id);
        if let Some(sent) = sent {
            return Ok(SendResponse { duplicate: sent.duplicate || status == StatusCode::CONFLICT, ..sent });
        }
    }
    if let Ok(refusal) = serde_json::from_slice::<Refusal>(body) {
        return Err(refusal);
    }
    if status == StatusCode::TOO_MANY_REQUESTS {
        let message = format!("the inbox of {} is full; wait until it has read", target.name.name);
        return Err(Refusal { reason: RefusalReason::InboxFull, message });
    }
    Err(receiver_failed(target, &format!("its runtime answered {status} without an acknowledgement")))
}

fn receiver_failed(target: &AgentRecord, why: &str) -> Refusal {
    Refusal { reason: RefusalReason::ReceiverFailed, message: format!("{} did not take the message: {why}", target.name.name) }
}

/// What wakes an agent, as the end of a sentence.
fn sender_sentence(from: &MessageSender) -> String {
    match (&from.agent, &from.person) {
        (Some(agent), _) => format!("a message of agent {}", agent.name),
        (None, Some(person)) => format!("a message of {person}"),
        (None, None) => "a message".to_owned(),
    }
}

/// Why this agent has no line.
pub fn unreachable(target: &AgentRecord) -> Refusal {
    let AgentRecord { name, desired, unready, .. } = target;
    let why = match (desired, unready) {
        (DesiredState::Stopped, _) => "is Stopped".to_owned(),
        (DesiredState::Running | DesiredState::Suspended, Some((reason, _))) => format!("has no line to the gateway ({reason})"),
        (DesiredState::Unknown, _) => "has a desiredState of another version of Yoi".to_owned(),
        (DesiredState::Running | DesiredState::Suspended, None) => "has no line to the gateway".to_owned(),
    };
    Refusal { reason: RefusalReason::Unreachable, message: format!("{} {why}; nothing was sent", name.name) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent_index::GatewayStatus;
    use yoi_wire::entry::AgentRef;

    fn answer(status: u16, body: &str) -> Result<SendResponse, RefusalReason> {
        let target = AgentRecord {
            name: AgentRef { namespace: "ns".into(), name: "b".into(), uid: "u".into() },
            resource_version: String::new(),
            desired: DesiredState::Running,
            run_generation: 1,
            pod_uid: None,
            gateway_status: GatewayStatus::default(),
            unready: None,
            is_stopped: false,
            may_be_woken: false,
            lifetime_is_over: false,
            reader_pod_uid: None,
            pusher_pod_uid: None,
            ended_push: None,
            spawned_by: None,
            not_restorable: None,
            reader_unready: None,
        };
        let message = DeliverRequest {
            message_id: "m1".into(),
            from: MessageSender::default(),
            text: "t".into(),
            only_when_idle: false,
            weak: false,
        };
        parse_acknowledgement(&target, &message, StatusCode::from_u16(status).unwrap(), body.as_bytes()).map_err(|refusal| refusal.reason)
    }

    #[test]
    fn a24_only_an_answer_with_the_messages_id_is_an_acknowledgement() {
        assert!(!answer(200, r#"{"messageId":"m1"}"#).unwrap().duplicate);
        assert!(answer(409, r#"{"messageId":"m1"}"#).unwrap().duplicate);
        assert_eq!(answer(200, r#"{"messageId":"m2"}"#), Err(RefusalReason::ReceiverFailed));
        assert_eq!(answer(200, ""), Err(RefusalReason::ReceiverFailed));
        assert_eq!(answer(429, ""), Err(RefusalReason::InboxFull));
        assert_eq!(answer(500, r#"{"reason":"ReceiverFailed","message":"disk"}"#), Err(RefusalReason::ReceiverFailed));
    }

    #[test]
    fn an_outcome_is_spelled_as_on_the_wire() {
        use RefusalReason::{
            AlreadyLive, AlreadyRunning, InboxFull, Invalid, Limit, NameTaken, NoDelegation, NotAChild, NotAPeer, NotAnAgent, NotGit,
            NotLent, NotMade, NotRestorable, NotUp, NotVisible, PathHeld, ReceiverFailed, Resting, Unacknowledged, Unreachable, Waking,
        };
        let of_messages =
            [NotAnAgent, NotVisible, NotAPeer, Unreachable, InboxFull, Invalid, ReceiverFailed, Unacknowledged, Resting, Waking];
        let of_children = [NotAChild, AlreadyRunning, NoDelegation, NameTaken, Limit, NotMade, NotLent, PathHeld];
        let of_evidence = [NotGit, AlreadyLive, NotRestorable, NotUp];
        for reason in of_messages.into_iter().chain(of_children).chain(of_evidence) {
            assert_eq!(serde_json::to_value(reason).unwrap(), outcome_label(Err(reason)));
        }
        assert_eq!(outcome_label(Ok(())), "Sent");
    }

    #[test]
    fn ids_and_texts_have_bounds() {
        assert!(validate("0198-ab", "x").is_ok());
        assert_eq!(validate("", "x"), Err(InvalidMessage::Id));
        assert_eq!(validate("a b", "x"), Err(InvalidMessage::Id));
        assert_eq!(validate("a", ""), Err(InvalidMessage::Empty));
        assert!(validate("a", &"x".repeat(MAX_MESSAGE_TEXT)).is_ok());
        let too_long = validate("a", &"x".repeat(MAX_MESSAGE_TEXT + 1)).unwrap_err();
        assert_eq!(too_long.status(), StatusCode::PAYLOAD_TOO_LARGE);
        assert_eq!(
            too_long.to_string(),
            "the message's text has 65537 bytes, and 65536 bytes are allowed; put the text into a file of the tree and name the file in the message"
        );
    }
}
