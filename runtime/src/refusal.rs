//! How the runtime refuses a request of the gateway.

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use yoi_wire::hub::{Refusal, RefusalReason};

pub(crate) fn refuse(status: StatusCode, reason: RefusalReason, message: impl Into<String>) -> Response {
    (status, Json(Refusal { reason, message: message.into() })).into_response()
}
