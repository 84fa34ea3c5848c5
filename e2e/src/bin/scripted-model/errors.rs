//! What the real endpoints answer when they cannot serve a request, and the shape of all their errors.

use serde::Deserialize;
use serde_json::{Value, json};

use super::rule::Refusal;
use super::script::Profile;
use super::wire::Wire;

/// A failure that is not the request's fault alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ErrorKind {
    RateLimit,
    /// The account is empty.
    Quota,
    Overloaded,
    Server,
    InvalidKey,
    ModelNotFound,
}

/// Returns what the endpoint answers. Sources: the pages on errors (https://platform.claude.com/docs/en/api/errors,
/// https://platform.openai.com/docs/guides/error-codes, https://ai.google.dev/gemini-api/docs/troubleshooting,
/// https://api-docs.deepseek.com/quick_start/error_codes), and the threads beside the texts.
pub fn refusal(wire: Wire, profile: Profile, kind: ErrorKind, model: &str) -> Refusal {
    match (wire, kind) {
        (Wire::Messages, ErrorKind::RateLimit) => {
            Refusal::with_status(429, "This request would exceed your organization's rate limit. Please try again later.")
        }
        // https://github.com/anthropics/claude-code/issues/4684
        (Wire::Messages, ErrorKind::Quota) => Refusal::invalid(
            "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade or purchase credits.",
        ),
        (Wire::Messages, ErrorKind::Overloaded) => Refusal::with_status(529, "Overloaded"),
        (Wire::Messages, ErrorKind::Server) => Refusal::with_status(500, "Internal server error"),
        (Wire::Messages, ErrorKind::InvalidKey) => Refusal::with_status(401, "invalid x-api-key"),
        (Wire::Messages, ErrorKind::ModelNotFound) => Refusal::with_status(404, format!("model: {model}")),
        // https://github.com/google-gemini/gemini-cli/issues/14811
        (Wire::Gemini, ErrorKind::RateLimit) => Refusal::with_status(429, "Resource has been exhausted (e.g. check quota)."),
        // https://github.com/gke-labs/gemini-for-kubernetes-development/issues/1215
        (Wire::Gemini, ErrorKind::Quota) => Refusal::with_status(
            429,
            "You exceeded your current quota, please check your plan and billing details. For more information on this error, head to: \
             https://ai.google.dev/gemini-api/docs/rate-limits.",
        ),
        (Wire::Gemini, ErrorKind::Overloaded) => Refusal::with_status(503, "The model is overloaded. Please try again later."),
        (Wire::Gemini, ErrorKind::Server) => Refusal::with_status(500, "An internal error has occurred. Please retry or report."),
        (Wire::Gemini, ErrorKind::InvalidKey) => Refusal::invalid("API key not valid. Please pass a valid API key."),
        (Wire::Gemini, ErrorKind::ModelNotFound) => {
            Refusal::with_status(404, format!("models/{model} is not found for API version v1beta, or is not supported for generateContent."))
        }
        (Wire::Chat | Wire::Responses, ErrorKind::Quota) if profile == Profile::DeepSeek => {
            Refusal::with_status(402, "Insufficient Balance").kind("unknown_error").code("invalid_request_error")
        }
        // https://github.com/langchain-ai/langchainjs/issues/1929
        (Wire::Chat | Wire::Responses, ErrorKind::Quota) => Refusal::with_status(
            429,
            "You exceeded your current quota, please check your plan and billing details. For more information on this error, read the docs: \
             https://platform.openai.com/docs/guides/error-codes/api-errors.",
        )
        .kind("insufficient_quota")
        .code("insufficient_quota"),
        (Wire::Chat | Wire::Responses, ErrorKind::RateLimit) => Refusal::with_status(
            429,
            format!("Rate limit reached for {model} in organization org-scripted on tokens per min (TPM): Limit 30000, Used 29000, Requested 4000. Please try again in 6s."),
        )
        .kind("tokens")
        .code("rate_limit_exceeded"),
        (Wire::Chat | Wire::Responses, ErrorKind::Overloaded) => {
            Refusal::with_status(503, "The engine is currently overloaded, please try again later")
        }
        (Wire::Chat | Wire::Responses, ErrorKind::Server) => {
            Refusal::with_status(500, "The server had an error while processing your request. Sorry about that!")
        }
        (Wire::Chat | Wire::Responses, ErrorKind::InvalidKey) => {
            Refusal::with_status(401, "Incorrect API key provided: sk-*****. You can find your API key at https://platform.openai.com/account/api-keys.")
                .code("invalid_api_key")
        }
        (Wire::Chat | Wire::Responses, ErrorKind::ModelNotFound) => {
            Refusal::with_status(404, format!("The model `{model}` does not exist or you do not have access to it.")).code("model_not_found")
        }
    }
}

/// Returns the body of an error.
pub fn body(wire: Wire, profile: Profile, refusal: &Refusal) -> Value {
    let Refusal { status, message, kind, param, code, retry_after: _ } = refusal;
    match wire {
        Wire::Messages => json!({
            "type": "error", "error": {"type": kind.unwrap_or(anthropic_type(*status)), "message": message}, "request_id": "req_scripted",
        }),
        Wire::Gemini => google_error(refusal),
        // Gemini's compatible endpoint wraps its own error: https://github.com/manthanabc/paws/issues/103
        Wire::Chat if profile == Profile::Gemini => json!([google_error(refusal)]),
        Wire::Chat | Wire::Responses => {
            let kind = kind.unwrap_or(if *status < 500 { "invalid_request_error" } else { "server_error" });
            json!({"error": {"message": message, "type": kind, "param": param, "code": code}})
        }
    }
}

/// Source: https://platform.claude.com/docs/en/api/errors
fn anthropic_type(status: u16) -> &'static str {
    match status {
        401 => "authentication_error",
        402 => "billing_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        504 => "timeout_error",
        529 => "overloaded_error",
        500.. => "api_error",
        _ => "invalid_request_error",
    }
}

/// Source: https://cloud.google.com/apis/design/errors (google.rpc.Status and its mapping to HTTP).
fn google_error(refusal: &Refusal) -> Value {
    let status = match refusal.status {
        401 => "UNAUTHENTICATED",
        403 => "PERMISSION_DENIED",
        404 => "NOT_FOUND",
        429 => "RESOURCE_EXHAUSTED",
        503 => "UNAVAILABLE",
        504 => "DEADLINE_EXCEEDED",
        500.. => "INTERNAL",
        _ => "INVALID_ARGUMENT",
    };
    let mut error = json!({"code": refusal.status, "message": refusal.message, "status": status});
    if let Some(field) = &refusal.param {
        error["details"] = json!([{
            "@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": [{"field": field, "description": refusal.message}],
        }]);
    }
    // https://cloud.google.com/apis/design/errors (google.rpc.RetryInfo): Gemini says it in the body, and in no header.
    if let Some(seconds) = refusal.retry_after {
        error["details"] = json!([{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": format!("{seconds}s")}]);
    }
    json!({"error": error})
}
