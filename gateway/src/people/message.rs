//! `POST yoipods/message`: a person's words into an agent's inbox.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Extension, Path, State};
use axum::http::StatusCode;
use yoi_wire::hub::{Deliver, Sender, Sent};
use yoi_wire::people::Message;

use super::Failure;
use super::target::{Target, unreachable};
use crate::Hub;
use crate::deliver::check;
use crate::frontproxy::User;

pub async fn send(
    State(hub): State<Arc<Hub>>,
    Path(target): Path<Target>,
    Extension(user): Extension<User>,
    message: Result<Json<Message>, JsonRejection>,
) -> Result<(StatusCode, Json<Sent>), Failure> {
    let record = target.resolve(&hub, &user, "create", "message").await?;
    let Json(Message { message_id, text }) = message?;
    let (namespace, name) = (&record.name.namespace, &record.name.name);
    check(&message_id, &text).map_err(|refusal| Failure::refused(namespace, name, &refusal))?;
    let from = Sender { agent: None, person: Some(user.name) };
    if let Err(refusal) = hub.courier.line_to(&record).await {
        hub.courier.audit(&from, namespace, name, &message_id, Err(&refusal));
        return Err(unreachable(&record));
    }
    let sent = hub.courier.deliver(&record, &Deliver { message_id, from, text }).await;
    sent.map(|sent| (StatusCode::CREATED, Json(sent))).map_err(|refusal| Failure::refused(namespace, name, &refusal))
}
