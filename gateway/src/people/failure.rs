//! Failures in the form of Kubernetes: a `Status` object with a reason for programs and a sentence for people.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::json;
use yoi_wire::hub::{Refusal, RefusalReason};
use yoi_wire::people::{GROUP, WaitsFor};

/// A failed request of the API port.
#[derive(Debug)]
pub struct ApiFailure {
    code: StatusCode,
    message: String,
    /// The YoiPod that it is about.
    name: Option<String>,
    /// Of a runtime's refusal: its reason.
    refused: Option<RefusalReason>,
    /// What the request waits for, when trying again soon helps.
    waits_for: Option<(WaitsFor, String)>,
}

impl ApiFailure {
    pub fn new(code: StatusCode, message: impl Into<String>) -> Self {
        ApiFailure { code, message: message.into(), name: None, refused: None, waits_for: None }
    }

    pub fn about(self, name: &str) -> Self {
        ApiFailure { name: Some(name.to_owned()), ..self }
    }

    /// Says in the Status that the same request may succeed in a second, and, as its cause, what it waits for.
    pub fn retry(self, waits_for: WaitsFor, why: &str) -> Self {
        ApiFailure { waits_for: Some((waits_for, why.to_owned())), ..self }
    }

    /// Status and sentence.
    pub fn into_plain(self) -> (StatusCode, String) {
        (self.code, self.message)
    }

    /// As a refusal for an agent: with the runtime's own reason, if it has given one.
    pub fn into_refusal(self) -> Refusal {
        let reason = self.refused.unwrap_or(if self.code.is_server_error() { RefusalReason::Unreachable } else { RefusalReason::Invalid });
        Refusal { reason, message: self.message }
    }

    pub fn not_served(path: &str) -> Self {
        ApiFailure::new(StatusCode::NOT_FOUND, format!("{GROUP} serves nothing at {path}; see kubectl get --raw /apis/{GROUP}/v1alpha1"))
    }

    pub fn method_not_allowed() -> Self {
        ApiFailure::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "message, control, merge, push, sync and proxy/engine/tools/TOOL are sent with POST, all others are read with GET; approval, bundle and proxy/engine/events take both, and conversations/NAME takes POST and DELETE",
        )
    }

    /// The runtime does not serve what this gateway asks of it.
    pub fn older_runtime(namespace: &str, name: &str) -> Self {
        let message = format!(
            "the runtime of YoiPod {namespace}/{name} is older and cannot be asked this: restart it with kubectl yoi restart {name} -n {namespace}"
        );
        ApiFailure::new(StatusCode::CONFLICT, message).about(name)
    }

    /// The refusal of the target's runtime, or of the delivery to it.
    pub fn from_refusal(namespace: &str, name: &str, refusal: &Refusal) -> Self {
        let code = match refusal.reason {
            RefusalReason::Unreachable | RefusalReason::Resting | RefusalReason::Waking => StatusCode::SERVICE_UNAVAILABLE,
            RefusalReason::InboxFull => StatusCode::TOO_MANY_REQUESTS,
            RefusalReason::Invalid => StatusCode::BAD_REQUEST,
            RefusalReason::ReceiverFailed => StatusCode::INTERNAL_SERVER_ERROR,
            RefusalReason::Unacknowledged => StatusCode::GATEWAY_TIMEOUT,
            // These reasons are given to agents only.
            RefusalReason::NotAnAgent | RefusalReason::NotVisible | RefusalReason::NotAPeer => StatusCode::INTERNAL_SERVER_ERROR,
            RefusalReason::NotAChild | RefusalReason::AlreadyRunning | RefusalReason::NoDelegation => StatusCode::INTERNAL_SERVER_ERROR,
            RefusalReason::NameTaken | RefusalReason::Limit | RefusalReason::NotMade | RefusalReason::NotLent | RefusalReason::PathHeld => {
                StatusCode::INTERNAL_SERVER_ERROR
            }
            RefusalReason::NotGit => StatusCode::BAD_REQUEST,
            RefusalReason::AlreadyLive | RefusalReason::NotRestorable | RefusalReason::NotUp => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let failure = ApiFailure::new(code, format!("YoiPod {namespace}/{name}: {}", refusal.message)).about(name);
        let failure = ApiFailure { refused: Some(refusal.reason), ..failure };
        match refusal.reason {
            // Nothing was taken, so the same request may come again.
            RefusalReason::Resting | RefusalReason::Waking => failure.retry(WaitsFor::Wake, "it rested and is being woken"),
            _ => failure,
        }
    }
}

/// The reasons of `metav1.StatusReason` for the codes that we use.
fn reason(code: StatusCode) -> &'static str {
    match code {
        StatusCode::BAD_REQUEST => "BadRequest",
        StatusCode::UNAUTHORIZED => "Unauthorized",
        StatusCode::FORBIDDEN => "Forbidden",
        StatusCode::NOT_FOUND => "NotFound",
        StatusCode::METHOD_NOT_ALLOWED => "MethodNotAllowed",
        StatusCode::NOT_ACCEPTABLE => "NotAcceptable",
        StatusCode::CONFLICT => "Conflict",
        StatusCode::GONE => "Gone",
        StatusCode::PAYLOAD_TOO_LARGE => "RequestEntityTooLarge",
        StatusCode::UNSUPPORTED_MEDIA_TYPE => "UnsupportedMediaType",
        StatusCode::UNPROCESSABLE_ENTITY => "Invalid",
        StatusCode::TOO_MANY_REQUESTS => "TooManyRequests",
        StatusCode::INTERNAL_SERVER_ERROR => "InternalError",
        StatusCode::SERVICE_UNAVAILABLE => "ServiceUnavailable",
        StatusCode::GATEWAY_TIMEOUT => "Timeout",
        _ => "",
    }
}

impl IntoResponse for ApiFailure {
    fn into_response(self) -> Response {
        let mut details = self.name.map(|name| json!({"name": name, "group": GROUP, "kind": "yoipods"}));
        if let (Some(details), Some((waits_for, why))) = (details.as_mut(), self.waits_for) {
            details["retryAfterSeconds"] = json!(1);
            details["causes"] = json!([{"reason": waits_for.as_str(), "message": why}]);
        }
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": reason(self.code), "code": self.code.as_u16(),
        });
        if let (Some(details), Some(status)) = (details, status.as_object_mut()) {
            status.insert("details".to_owned(), details);
        }
        (self.code, Json(status)).into_response()
    }
}
