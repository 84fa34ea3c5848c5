//! Maps a refusal to an HTTP status of the runtimes' port.

use axum::Json;
use axum::body::Body;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::de::DeserializeOwned;
use yoi_wire::hub::{MAX_MESSAGE_BODY, Refusal, RefusalReason};

use crate::body::{self, BodyError};
use crate::delivery::InvalidMessage;

/// A refusal and the status that it is sent with.
pub struct RefusalResponse {
    pub status: StatusCode,
    pub refusal: Refusal,
}

impl From<Refusal> for RefusalResponse {
    fn from(refusal: Refusal) -> Self {
        let status = match refusal.reason {
            RefusalReason::NotAnAgent => StatusCode::UNAUTHORIZED,
            RefusalReason::NotVisible | RefusalReason::NotAChild => StatusCode::NOT_FOUND,
            RefusalReason::NotAPeer | RefusalReason::NoDelegation | RefusalReason::Limit | RefusalReason::NotLent => StatusCode::FORBIDDEN,
            RefusalReason::AlreadyRunning | RefusalReason::NameTaken | RefusalReason::PathHeld | RefusalReason::NotGit => {
                StatusCode::CONFLICT
            }
            RefusalReason::AlreadyLive | RefusalReason::NotRestorable => StatusCode::CONFLICT,
            RefusalReason::Unreachable | RefusalReason::Resting | RefusalReason::Waking => StatusCode::SERVICE_UNAVAILABLE,
            RefusalReason::InboxFull => StatusCode::TOO_MANY_REQUESTS,
            RefusalReason::Invalid => StatusCode::BAD_REQUEST,
            RefusalReason::ReceiverFailed | RefusalReason::NotMade | RefusalReason::NotUp => StatusCode::BAD_GATEWAY,
            RefusalReason::Unacknowledged => StatusCode::GATEWAY_TIMEOUT,
        };
        RefusalResponse { status, refusal }
    }
}

impl From<InvalidMessage> for RefusalResponse {
    fn from(invalid: InvalidMessage) -> Self {
        RefusalResponse { status: invalid.status(), refusal: invalid.into() }
    }
}

impl RefusalResponse {
    /// The refusal of a body that should be `what`, as in "a report".
    pub fn of_body(what: &str, error: &BodyError) -> Self {
        let (status, message) = match error {
            BodyError::TooLong => {
                (StatusCode::PAYLOAD_TOO_LARGE, format!("the body is too long for {what}: {MAX_MESSAGE_BODY} bytes are allowed"))
            }
            BodyError::Broken(_) => (StatusCode::BAD_REQUEST, yoi_wire::error_chain(error)),
        };
        RefusalResponse { status, refusal: Refusal { reason: RefusalReason::Invalid, message } }
    }
}

/// Reads `what` from the JSON of a body.
pub async fn read_json<T: DeserializeOwned>(what: &str, body: Body) -> Result<T, RefusalResponse> {
    let body = body::read(body).await.map_err(|error| RefusalResponse::of_body(what, &error))?;
    serde_json::from_slice(&body)
        .map_err(|error| Refusal { reason: RefusalReason::Invalid, message: format!("the body is not {what}: {error}") }.into())
}

impl IntoResponse for RefusalResponse {
    fn into_response(self) -> Response {
        (self.status, Json(self.refusal)).into_response()
    }
}
