//! `POST yoipods/message`: a person's words into an agent's inbox.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{Extension, Path, State};
use axum::http::StatusCode;
use yoi_wire::hub::{DeliverRequest, MessageSender, SendResponse};
use yoi_wire::people::PersonMessage;

use super::Failure;
use super::target::{Target, unreachable};
use crate::Hub;
use crate::deliver::check;
use crate::frontproxy::User;

pub async fn send(
    State(hub): State<Arc<Hub>>,
    Path(target): Path<Target>,
    Extension(user): Extension<User>,
    body: Result<Bytes, BytesRejection>,
) -> Result<(StatusCode, Json<SendResponse>), Failure> {
    let record = target.resolve(&hub, &user, "create", "message").await?;
    // Whatever the content type: `kubectl create --raw` names none.
    let body = body.map_err(|rejection| Failure::new(rejection.status(), rejection.body_text()))?;
    let PersonMessage { message_id, text } = serde_json::from_slice(&body).map_err(|error| {
        Failure::new(StatusCode::BAD_REQUEST, format!("the body must be {{\"messageId\": ..., \"text\": ...}}: {error}"))
    })?;
    let (namespace, name) = (&record.name.namespace, &record.name.name);
    let from = MessageSender { agent: None, person: Some(user.name) };
    if let Err(refusal) = check(&message_id, &text) {
        hub.courier.audit(&from, namespace, name, Some(&record), &message_id, Err(&refusal));
        return Err(Failure::refused(namespace, name, &refusal));
    }
    // Asked here too, because why there is no line is told to a person in other words than to an agent.
    if let Err(refusal) = hub.courier.line_to(&record).await {
        hub.courier.audit(&from, namespace, name, Some(&record), &message_id, Err(&refusal));
        return Err(unreachable(&record));
    }
    let sent = hub.courier.deliver(&record, &DeliverRequest { message_id, from, text }).await;
    sent.map(|sent| (StatusCode::CREATED, Json(sent))).map_err(|refusal| Failure::refused(namespace, name, &refusal))
}
