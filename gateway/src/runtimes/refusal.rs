//! Maps a refusal to an HTTP status of the runtimes' port.

use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use yoi_wire::hub::{Refusal, RefusalReason};

/// A refusal and the status that it is sent with.
pub struct RefusalResponse {
    pub status: StatusCode,
    pub refusal: Refusal,
}

impl From<Refusal> for RefusalResponse {
    fn from(refusal: Refusal) -> Self {
        let status = match refusal.reason {
            RefusalReason::NotAnAgent => StatusCode::UNAUTHORIZED,
            RefusalReason::NotVisible => StatusCode::NOT_FOUND,
            RefusalReason::NotAPeer => StatusCode::FORBIDDEN,
            RefusalReason::Unreachable => StatusCode::SERVICE_UNAVAILABLE,
            RefusalReason::InboxFull => StatusCode::TOO_MANY_REQUESTS,
            RefusalReason::Invalid => StatusCode::BAD_REQUEST,
            RefusalReason::ReceiverFailed => StatusCode::BAD_GATEWAY,
            RefusalReason::Unacknowledged => StatusCode::GATEWAY_TIMEOUT,
        };
        RefusalResponse { status, refusal }
    }
}

impl From<JsonRejection> for RefusalResponse {
    fn from(rejection: JsonRejection) -> Self {
        RefusalResponse { status: rejection.status(), refusal: Refusal { reason: RefusalReason::Invalid, message: rejection.body_text() } }
    }
}

impl IntoResponse for RefusalResponse {
    fn into_response(self) -> Response {
        (self.status, Json(self.refusal)).into_response()
    }
}
