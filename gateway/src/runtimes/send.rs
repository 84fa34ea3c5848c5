//! `POST /v1/send`: a message from one agent to another.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Extension, State};
use yoi_plan::visibility::{check_name, may_send, yoipeer_name};
use yoi_wire::hub::{DeliverRequest, MessageSender, Refusal, RefusalReason, SendRequest, SendResponse};

use super::RefusalResponse;
use crate::Gateway;
use crate::agent_index::AgentRecord;
use crate::identity::AuthenticatedAgent;

pub async fn send(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<AuthenticatedAgent>,
    message: Result<Json<SendRequest>, JsonRejection>,
) -> Result<Json<SendResponse>, RefusalResponse> {
    let Json(SendRequest { to, message_id, text }) = message?;
    let from = MessageSender { agent: Some(caller.agent.clone()), person: None };
    match target(&gateway, &caller, &to) {
        Ok(target) => Ok(Json(gateway.delivery.deliver(&target, &DeliverRequest { message_id, from, text }).await?)),
        Err(refusal) => {
            gateway.delivery.audit(&from, &caller.agent.namespace, &to, None, &message_id, Err(&refusal));
            Err(refusal.into())
        }
    }
}

fn target(gateway: &Gateway, caller: &AuthenticatedAgent, to: &str) -> Result<Arc<AgentRecord>, Refusal> {
    check_name(&caller.agent, to)?;
    let namespace = &caller.agent.namespace;
    let link = gateway.agents.peer_link(namespace, &yoipeer_name(&caller.agent.name, to));
    let record = gateway.agents.get(namespace, to);
    may_send(&caller.agent, to, link.as_deref(), record.as_ref().map(|record| record.name.uid.as_str()))?;
    // `may_send` has compared the record's UID, so there is a record.
    record.ok_or_else(|| Refusal { reason: RefusalReason::NotVisible, message: format!("no agent named {to} is visible") })
}
