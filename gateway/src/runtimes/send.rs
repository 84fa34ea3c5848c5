//! `POST /v1/send`: a message from one agent to another.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{Extension, State};
use axum::http::StatusCode;
use yoi_plan::visibility::{check_name, may_send, yoipeer_name};
use yoi_wire::conversation::{MAIN, is_other_name};
use yoi_wire::hub::{DeliverRequest, MessageSender, MessageTooLong, Refusal, RefusalReason, SendRequest, SendResponse, runtime_api};

use super::RefusalResponse;
use super::refusal::read_json;
use crate::GatewayState;
use crate::agent_index::AgentRecord;
use crate::delivery::{InvalidMessage, validate};
use crate::identity::AuthenticatedAgent;

pub async fn send(
    State(gateway): State<Arc<GatewayState>>,
    Extension(caller): Extension<AuthenticatedAgent>,
    body: Body,
) -> Result<Json<SendResponse>, RefusalResponse> {
    let SendRequest { to, message_id, text, conversation } =
        read_json("a message", body).await.map_err(|refused| match refused.status {
            StatusCode::PAYLOAD_TOO_LARGE => InvalidMessage::from(MessageTooLong { bytes: None }).into(),
            _ => refused,
        })?;
    let from = MessageSender { agent: Some(caller.agent.clone()), person: None };
    let refused = |target: Option<&AgentRecord>, refusal: &Refusal| {
        gateway.delivery.audit(&from, &caller.agent.namespace, &to, target, &message_id, Err(refusal));
    };
    let mut found = target(&gateway, &caller, &to);
    let unseen = |refusal: &Refusal| matches!(refusal.reason, RefusalReason::NotVisible | RefusalReason::NotAPeer);
    if found.as_ref().is_err_and(unseen) && gateway.peer_lookup.look_again(&caller.agent, &to).await {
        found = target(&gateway, &caller, &to);
    }
    let target = found.inspect_err(|refusal| refused(None, refusal))?;
    validate(&message_id, &text).inspect_err(|invalid| refused(Some(&target), &Refusal::from(*invalid)))?;
    let inbox = inbox_of(conversation.as_deref()).inspect_err(|refusal| refused(Some(&target), refusal))?;
    Ok(Json(
        gateway.delivery.deliver(&target, &inbox, &DeliverRequest { message_id, from, text, only_when_idle: false, weak: false }).await?,
    ))
}

/// The path of the inbox of this conversation.
fn inbox_of(conversation: Option<&str>) -> Result<String, Refusal> {
    match conversation {
        None | Some(MAIN) => Ok(runtime_api::INBOX.to_owned()),
        Some(name) if is_other_name(name) => Ok(runtime_api::of_conversation(runtime_api::INBOX, name)),
        Some(name) => {
            let message =
                format!("{name:?} is no name of a conversation: 1 to 63 lower-case letters, digits and -, neither first nor last");
            Err(Refusal { reason: RefusalReason::Invalid, message })
        }
    }
}

fn target(gateway: &GatewayState, caller: &AuthenticatedAgent, to: &str) -> Result<Arc<AgentRecord>, Refusal> {
    check_name(&caller.agent, to)?;
    let namespace = &caller.agent.namespace;
    let link = gateway.agents.peer_link(namespace, &yoipeer_name(&caller.agent.name, to));
    let record = gateway.agents.get(namespace, to);
    may_send(&caller.agent, to, link.as_deref(), record.as_ref().map(|record| record.name.uid.as_str()))?;
    // `may_send` has compared the record's UID, so there is a record.
    record.ok_or_else(|| Refusal { reason: RefusalReason::NotVisible, message: format!("no agent named {to} is visible") })
}
