//! Answers of the proxy's own, as errors of the wire format that the program speaks.

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use hyper::{Response, StatusCode};
use serde_json::json;

use super::passing::ResponseBody;
use crate::model::format::WireFormat;
use crate::program::access::UsedUp;

/// Bytes of a request.
pub(super) const MAX_BODY_BYTES: usize = 32 << 20;

/// Why the proxy answers itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The request has no valid token.
    NoToken,
    /// No request of the endpoint's format is like this.
    NotServed { request: String },
    /// The request is larger than the proxy takes.
    TooLarge,
    /// The request did not arrive whole.
    Incomplete,
    /// The request is no JSON object.
    NoObject,
    /// Too many requests are in flight.
    Busy,
    /// A limit of the agent is used up.
    UsedUp(UsedUp),
    /// The endpoint did not begin to answer in time. With the sentence for people.
    Slow(String),
    /// The endpoint cannot be reached. With the sentence for people.
    Unreachable(String),
}

impl Refusal {
    fn status(&self) -> StatusCode {
        match self {
            Self::NoToken => StatusCode::UNAUTHORIZED,
            Self::NotServed { .. } => StatusCode::NOT_FOUND,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Incomplete | Self::NoObject => StatusCode::BAD_REQUEST,
            Self::Busy => StatusCode::SERVICE_UNAVAILABLE,
            Self::UsedUp(_) => StatusCode::TOO_MANY_REQUESTS,
            Self::Slow(_) => StatusCode::GATEWAY_TIMEOUT,
            Self::Unreachable(_) => StatusCode::BAD_GATEWAY,
        }
    }

    fn message(&self, format: WireFormat) -> String {
        match self {
            Self::NoToken => "Yoi's model proxy takes only the token of the current run as its key".to_owned(),
            Self::NotServed { request } => format!(
                "Yoi's model proxy does not serve {request:?}: the agent's model speaks the format {}, and only its requests are passed on",
                format.name()
            ),
            Self::TooLarge => format!("Yoi's model proxy takes requests of at most {} MiB", MAX_BODY_BYTES >> 20),
            Self::Incomplete => "the request did not arrive whole at Yoi's model proxy".to_owned(),
            Self::NoObject => "Yoi's model proxy passes on requests that are one JSON object, not compressed; this one is none".to_owned(),
            Self::Busy => "too many requests are under way in Yoi's model proxy; ask again when one has ended".to_owned(),
            Self::UsedUp(UsedUp::Turns) => {
                "the run has used up its calls of the model: limits.turnsPerRun of the agent's YoiPod allows no more in one run".to_owned()
            }
            Self::UsedUp(UsedUp::Tokens) => {
                "the agent's tokens are used up: limits.tokens of its YoiPod must be raised before its model is asked again".to_owned()
            }
            Self::Slow(sentence) | Self::Unreachable(sentence) => sentence.clone(),
        }
    }

    pub fn response(&self, format: WireFormat) -> Response<ResponseBody> {
        let (status, message) = (self.status(), self.message(format));
        let kind = match (self, format) {
            (Self::NoToken, WireFormat::Gemini) => "UNAUTHENTICATED",
            (Self::NotServed { .. }, WireFormat::Gemini) => "NOT_FOUND",
            (Self::TooLarge | Self::Incomplete | Self::NoObject, WireFormat::Gemini) => "INVALID_ARGUMENT",
            (Self::UsedUp(_), WireFormat::Gemini) => "RESOURCE_EXHAUSTED",
            (Self::Busy | Self::Slow(_) | Self::Unreachable(_), WireFormat::Gemini) => "UNAVAILABLE",
            (Self::NoToken, _) => "authentication_error",
            (Self::NotServed { .. }, _) => "not_found_error",
            (Self::TooLarge, WireFormat::Anthropic) => "request_too_large",
            (Self::TooLarge | Self::Incomplete | Self::NoObject, _) => "invalid_request_error",
            (Self::UsedUp(_), WireFormat::Anthropic) => "rate_limit_error",
            // Programs do not ask again after this one.
            (Self::UsedUp(_), _) => "insufficient_quota",
            (Self::Busy, WireFormat::Anthropic) => "overloaded_error",
            (Self::Slow(_) | Self::Unreachable(_), WireFormat::Anthropic) => "api_error",
            (Self::Busy | Self::Slow(_) | Self::Unreachable(_), _) => "server_error",
        };
        let body = match format {
            WireFormat::Anthropic => json!({"type": "error", "error": {"type": kind, "message": message}}),
            WireFormat::Responses | WireFormat::ChatCompletions => {
                json!({"error": {"message": message, "type": kind, "param": null, "code": kind}})
            }
            WireFormat::Gemini => json!({"error": {"code": status.as_u16(), "message": message, "status": kind}}),
        };
        let body = Full::new(Bytes::from(body.to_string())).map_err(|never| match never {}).boxed_unsync();
        let mut response = Response::new(body);
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        match self {
            Self::Busy => {
                headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
            }
            // The clients of Anthropic and OpenAI obey this.
            Self::UsedUp(_) | Self::NoToken => {
                headers.insert("x-should-retry", HeaderValue::from_static("false"));
            }
            Self::NotServed { .. } | Self::TooLarge | Self::Incomplete | Self::NoObject | Self::Slow(_) | Self::Unreachable(_) => {}
        }
        response
    }
}
