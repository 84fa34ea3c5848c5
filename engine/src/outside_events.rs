//! Events that come to a conversation from outside. Each is what a person can also do by a request of its own, and has its effect once.

use std::sync::Arc;

use serde_json::Value;
use uuid::Uuid;
use yoi_session::{Error as SessionError, InboxMessage, PutOutcome, Sender, Wake};
use yoi_wire::control::{ControlReason, ControlRequest};
use yoi_wire::engine_api::{EventEffect, EventRefusal, EventTaken, OutsideEvent};

use crate::log_reads::blocking;
use crate::open_session::OpenSession;

/// Why an event was not taken.
#[derive(Debug, thiserror::Error)]
pub enum SendEventError {
    #[error(transparent)]
    Refused(#[from] EventRefusal),
    #[error("failed to store the event")]
    Session(#[from] SessionError),
    #[error("the session was closed before the event was taken")]
    Closed,
}

/// Gives a conversation an event, in the name of `user`. On return its effect is durable.
///
/// # Errors
/// See [`SendEventError`]. Of a refused one nothing is in the log.
pub async fn send_event(session: Arc<OpenSession>, user: &str, event: Value) -> Result<EventTaken, SendEventError> {
    let event = OutsideEvent::read(event)?;
    if Uuid::try_parse(&event.id).is_err() {
        return Err(EventRefusal::Invalid("the id of an event is a UUID".to_owned()).into());
    }
    match event.effect()? {
        EventEffect::Message(text) => {
            let message = InboxMessage { id: event.id.clone(), from: Sender::Person { user: user.to_owned() }, text, wake: Wake::Run };
            let duplicate = match blocking(move || session.put(message)).await? {
                PutOutcome::Accepted => false,
                PutOutcome::Duplicate => true,
                PutOutcome::Full { limit } => return Err(EventRefusal::Full { limit }.into()),
                PutOutcome::TooOld => {
                    let why = "the event's id is more than an hour old, and ids of that time are forgotten: send it under a new id";
                    return Err(EventRefusal::Invalid(why.to_owned()).into());
                }
                PutOutcome::TooLong { limit } => {
                    return Err(EventRefusal::Invalid(format!("the event's id has more than {limit} bytes")).into());
                }
            };
            Ok(EventTaken { id: event.id, duplicate, message: "the conversation reads it".to_owned() })
        }
        EventEffect::Control(action) => {
            let request = ControlRequest { id: event.id.clone(), action };
            let response = session.ask(user.to_owned(), request).await.ok_or(SendEventError::Closed)?;
            match (response.done, response.refused) {
                (Some(done), _) => Ok(EventTaken { id: event.id, duplicate: false, message: done.message }),
                (None, Some(refusal)) if refusal.reason == ControlReason::Invalid => Err(EventRefusal::Invalid(refusal.message).into()),
                (None, Some(refusal)) => Err(EventRefusal::Conflict(refusal.message).into()),
                (None, None) => Err(SendEventError::Closed),
            }
        }
    }
}
