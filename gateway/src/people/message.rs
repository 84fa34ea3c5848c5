//! `POST yoipods/message`: delivers a message of a person to an agent.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{Extension, Path, State};
use axum::http::StatusCode;
use yoi_wire::hub::{DeliverRequest, MessageSender, MessageTooLong, SendResponse, runtime_api};
use yoi_wire::people::PersonMessage;

use super::ApiFailure;
use super::target::{AgentTarget, no_line};
use crate::GatewayState;
use crate::agent_index::AgentRecord;
use crate::body::{self, BodyError};
use crate::delivery::{InvalidMessage, validate};
use crate::front_proxy::User;

pub async fn send(
    State(gateway): State<Arc<GatewayState>>,
    Path(target): Path<AgentTarget>,
    Extension(user): Extension<User>,
    body: Body,
) -> Result<(StatusCode, Json<SendResponse>), ApiFailure> {
    let record = target.resolve(&gateway, &user, "create", "message").await?;
    let inbox = target.runtime_path(runtime_api::INBOX)?;
    // The content type is not checked, because `kubectl create --raw` sends none.
    let body = body::read(body).await.map_err(|error| match error {
        BodyError::TooLong => invalid(&record, MessageTooLong { bytes: None }.into()),
        BodyError::Broken(_) => ApiFailure::new(StatusCode::BAD_REQUEST, yoi_wire::error_chain(&error)),
    })?;
    let PersonMessage { message_id, text } = serde_json::from_slice(&body).map_err(|error| {
        ApiFailure::new(StatusCode::BAD_REQUEST, format!("the body must be {{\"messageId\": ..., \"text\": ...}}: {error}"))
    })?;
    let (namespace, name) = (&record.name.namespace, &record.name.name);
    let from = MessageSender { agent: None, person: Some(user.name.clone()) };
    if let Err(error) = validate(&message_id, &text) {
        gateway.delivery.audit(&from, namespace, name, Some(&record), &message_id, Err(&error.into()));
        return Err(invalid(&record, error));
    }
    // Checked here too, because a person gets another message than an agent when there is no line.
    if let Err(refusal) = gateway.delivery.line_to(&record, Some(&format!("a message of {}", user.name))).await {
        gateway.delivery.audit(&from, namespace, name, Some(&record), &message_id, Err(&refusal));
        return Err(no_line(&record, &refusal));
    }
    let sent =
        gateway.delivery.deliver(&record, &inbox, &DeliverRequest { message_id, from, text, only_when_idle: false, weak: false }).await;
    sent.map(|sent| (StatusCode::CREATED, Json(sent))).map_err(|refusal| ApiFailure::from_refusal(namespace, name, &refusal))
}

fn invalid(record: &AgentRecord, error: InvalidMessage) -> ApiFailure {
    let (namespace, name) = (&record.name.namespace, &record.name.name);
    ApiFailure::new(error.status(), format!("YoiPod {namespace}/{name}: {error}")).about(name)
}
