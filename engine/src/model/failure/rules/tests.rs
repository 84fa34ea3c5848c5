use serde_json::{Value, json};

use super::*;
use HistoryFault::{Refused, TooLong};
use ModelFailureClass::{History, WaitForPerson};
use WaitReason::{Credit, Key, Quota, Settings};

fn openai(message: &str, kind: &str, param: Value, code: Value) -> Value {
    json!({"error": {"message": message, "type": kind, "param": param, "code": code}})
}

fn anthropic(kind: &str, message: &str) -> Value {
    json!({"type": "error", "error": {"type": kind, "message": message}, "request_id": "r"})
}

fn gemini(code: u16, status: &str, message: &str, details: Value) -> Value {
    json!({"error": {"code": code, "status": status, "message": message, "details": details}})
}

#[test]
fn each_error_of_the_providers_has_its_class() {
    let (bad, none) = ("invalid_request_error", Value::Null);
    let quota = |id: &str| json!([{"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [{"quotaId": id}]}]);
    for (status, body, class) in [
        // OpenAI and compatible servers.
        (
            429,
            openai("Rate limit reached for gpt-5. Please try again in 1s.", "tokens", none.clone(), json!("rate_limit_exceeded")),
            TRY_AGAIN,
        ),
        (
            429,
            openai(
                "Request too large for gpt-5 on tokens per min (TPM): Limit 30000, Requested 40000.",
                "tokens",
                none.clone(),
                json!("rate_limit_exceeded"),
            ),
            History(TooLong),
        ),
        (
            429,
            openai(
                "You exceeded your current quota, please check your plan and billing details.",
                "insufficient_quota",
                none.clone(),
                json!("insufficient_quota"),
            ),
            WaitForPerson(Credit),
        ),
        (
            400,
            openai("This model's maximum context length is 16385 tokens.", bad, json!("messages"), json!("context_length_exceeded")),
            History(TooLong),
        ),
        (
            400,
            openai(
                "Unsupported parameter: 'max_tokens' is not supported with this model.",
                bad,
                json!("max_tokens"),
                json!("unsupported_parameter"),
            ),
            WaitForPerson(Settings),
        ),
        (400, openai("Unsupported value: 'xhigh'", bad, json!("reasoning.effort"), json!("unsupported_value")), WaitForPerson(Settings)),
        (
            400,
            openai("Item 'rs_1' of type 'reasoning' was provided without its required following item.", bad, json!("input"), none.clone()),
            History(Refused),
        ),
        (
            404,
            openai(
                "Item with id 'rs_1' not found. Items are not persisted when `store` is set to false.",
                bad,
                json!("input"),
                none.clone(),
            ),
            History(Refused),
        ),
        (404, openai("The model `gpt-9` does not exist", bad, none.clone(), json!("model_not_found")), WaitForPerson(Settings)),
        (401, openai("Incorrect API key provided", bad, none.clone(), json!("invalid_api_key")), WaitForPerson(Key)),
        (403, openai("Project does not have access to model", bad, none.clone(), json!("model_not_found")), WaitForPerson(Settings)),
        (402, json!({"error": {"message": "Insufficient Balance", "code": 402}}), WaitForPerson(Credit)),
        (
            400,
            openai("The `reasoning_content` in the thinking mode must be passed back to the API.", bad, none.clone(), json!(bad)),
            History(Refused),
        ),
        (
            400,
            json!({"error": {"code": 400, "message": "the request exceeds the available context size", "type": "exceed_context_size_error"}}),
            History(TooLong),
        ),
        (422, json!({"detail": "messages.0: field required"}), History(Refused)),
        // Anthropic.
        (400, anthropic(bad, "prompt is too long: 345320 tokens > 199999 maximum"), History(TooLong)),
        (400, anthropic(bad, "input length and `max_tokens` exceed context limit: 190000 + 32000 > 200000"), History(TooLong)),
        (400, anthropic(bad, "Your credit balance is too low to access the Anthropic API."), WaitForPerson(Credit)),
        (
            400,
            anthropic(bad, "You have reached your specified API usage limits. You will regain access on 2026-12-01 at 00:00 UTC."),
            WaitForPerson(Quota),
        ),
        (400, anthropic(bad, "max_tokens: 64000 > 8192, which is the maximum allowed number of output tokens"), WaitForPerson(Settings)),
        (400, anthropic(bad, "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`"), History(Refused)),
        (400, anthropic(bad, "messages: text content blocks must be non-empty"), History(Refused)),
        (413, anthropic("request_too_large", "Request exceeds the maximum size"), History(TooLong)),
        (429, anthropic("rate_limit_error", "This request would exceed your account's rate limit."), TRY_AGAIN),
        (529, anthropic("overloaded_error", "Overloaded"), TRY_AGAIN),
        (401, anthropic("authentication_error", "invalid x-api-key"), WaitForPerson(Key)),
        (404, anthropic("not_found_error", "model: claude-x"), WaitForPerson(Settings)),
        // Gemini.
        (
            400,
            gemini(
                400,
                "INVALID_ARGUMENT",
                "The input token count (1091639) exceeds the maximum number of tokens allowed (1048576).",
                none.clone(),
            ),
            History(TooLong),
        ),
        (400, gemini(400, "INVALID_ARGUMENT", "API key not valid.", json!([{"reason": "API_KEY_INVALID"}])), WaitForPerson(Key)),
        (
            400,
            gemini(400, "INVALID_ARGUMENT", "Function call is missing a thought_signature in functionCall parts.", none.clone()),
            History(Refused),
        ),
        (400, gemini(400, "INVALID_ARGUMENT", "Thinking level is not supported for this model.", none.clone()), WaitForPerson(Settings)),
        (
            429,
            gemini(
                429,
                "RESOURCE_EXHAUSTED",
                "You exceeded your current quota",
                quota("GenerateContentInputTokensPerModelPerDay-FreeTier"),
            ),
            WaitForPerson(Quota),
        ),
        (
            429,
            gemini(429, "RESOURCE_EXHAUSTED", "You exceeded your current quota", quota("GenerateRequestsPerMinutePerProjectPerModel")),
            TRY_AGAIN,
        ),
        (403, gemini(403, "PERMISSION_DENIED", "denied", none.clone()), WaitForPerson(Key)),
        (503, gemini(503, "UNAVAILABLE", "The model is overloaded.", none.clone()), TRY_AGAIN),
        // Anything.
        (500, json!({}), TRY_AGAIN),
        (502, json!("<html>Bad Gateway</html>"), TRY_AGAIN),
        (408, json!({}), TRY_AGAIN),
        (405, json!({}), WaitForPerson(Settings)),
        (302, json!({}), TRY_AGAIN),
        (400, json!({}), History(Refused)),
    ] {
        assert_eq!(classify(status, &ErrorBody::of_value(&body), true), class, "{status} {body}");
    }
}

#[test]
fn without_a_key_the_setting_is_missing_and_not_the_key_wrong() {
    for status in [401, 403] {
        assert_eq!(classify(status, &ErrorBody::default(), false), WaitForPerson(Settings), "{status}");
    }
}

#[test]
fn an_error_in_a_stream_has_the_status_that_a_whole_answer_would_have_had() {
    for (body, status) in [
        (anthropic("overloaded_error", "Overloaded"), 529),
        (anthropic("rate_limit_error", ""), 429),
        (anthropic("api_error", ""), 500),
        (anthropic("invalid_request_error", ""), 400),
        (json!({"status": "failed", "error": {"code": "rate_limit_exceeded", "message": ""}}), 429),
        (json!({"status": "failed", "error": {"code": "server_error", "message": ""}}), 500),
        (json!({"type": "error", "code": "context_length_exceeded", "message": ""}), 400),
        (json!({"error": {"code": 502, "message": "Provider returned error"}}), 502),
    ] {
        assert_eq!(ErrorBody::of_value(&body).status(), status, "{body}");
    }
}
