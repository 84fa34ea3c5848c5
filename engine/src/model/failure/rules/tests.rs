use serde_json::{Value, json};

use super::*;
use HistoryFault::{Refused, TooLong};
use ModelFailureClass::{History, WaitForPerson};
use WaitReason::{Credit, Key, Quota, Request, Settings};

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
        // Gateways.
        (
            400,
            openai("Budget has been exceeded! Current cost: 1.2, Max budget: 1.0", "budget_exceeded", none.clone(), json!("400")),
            WaitForPerson(Credit),
        ),
        (
            400,
            openai("Authentication Error - Expired Key. Key Expiry time 2026-01-01", "expired_key", json!("key"), json!("400")),
            WaitForPerson(Key),
        ),
        (429, openai("No deployments available for selected model, Try again in 5 seconds", "None", none.clone(), json!("429")), TRY_AGAIN),
        (
            400,
            openai("There are no healthy deployments for this model. Received Model Group=m", "None", none.clone(), json!("400")),
            TRY_AGAIN,
        ),
        (
            400,
            openai(
                "The response was filtered due to the prompt triggering Azure OpenAI's content management policy.",
                "",
                json!("prompt"),
                json!("content_filter"),
            ),
            History(Refused),
        ),
        (400, openai("invalid request", bad, json!("messages[3].content"), none.clone()), History(Refused)),
        (400, gemini(400, "INVALID_ARGUMENT", "Unable to process input image.", none.clone()), History(Refused)),
        // What nobody knows: another endpoint may take it, and a person can find out.
        (400, json!({}), WaitForPerson(Request)),
        (400, json!("<html><center>nginx</center></html>"), WaitForPerson(Request)),
        (418, json!({}), WaitForPerson(Request)),
        (431, json!("Request Header Fields Too Large"), WaitForPerson(Request)),
        (451, json!({}), WaitForPerson(Request)),
        (400, openai("The request was blocked by policy 17.", "None", none.clone(), json!("400")), WaitForPerson(Request)),
    ] {
        assert_eq!(classify(status, &ErrorBody::of_value(&body), true), class, "{status} {body}");
    }
}

/// Words of servers, as they write them, and the window that they name.
#[test]
fn a_conversation_that_is_too_long_is_known_in_the_words_of_each_server_with_its_window() {
    let messages = [
        ("Anthropic", "prompt is too long: 345320 tokens > 199999 maximum", Some(199_999)),
        ("Anthropic", "input length and `max_tokens` exceed context limit: 190000 + 32000 > 200000, decrease input length", Some(200_000)),
        ("OpenAI", "This model's maximum context length is 16385 tokens. However, your messages resulted in 20000 tokens.", Some(16_385)),
        ("OpenAI", "Your input exceeds the context window of this model. Please adjust your input and try again.", None),
        ("OpenAI", "Request too large for gpt-5 on tokens per min (TPM): Limit 30000, Requested 40000.", None),
        ("Mistral", "Prompt contains 40000 tokens, too large for model with 32768 maximum context length", Some(32_768)),
        ("Gemini", "The input token count (1091639) exceeds the maximum number of tokens allowed (1048576).", Some(1_048_576)),
        ("Groq", "Please reduce the length of the messages or completion.", None),
        ("Cerebras", "Please reduce the length of the messages or completion. Current length is 9000 while limit is 8192", Some(8192)),
        ("llama.cpp", "the request exceeds the available context size (4096 tokens), try increasing it", Some(4096)),
        ("llama.cpp", "Context size has been exceeded.", None),
        ("LM Studio", "the model is loaded with context length of only 4096 tokens, which is not enough", Some(4096)),
        ("LM Studio", "The number of tokens to keep from the initial prompt is greater than the context length.", None),
        ("Bedrock", "Input is too long for requested model.", None),
        ("xAI", "This model's maximum prompt length is 131072 but the request contains 140000 tokens.", Some(131_072)),
        ("SGLang", "The input (40960 tokens) is longer than the model's context length (32768 tokens).", Some(32_768)),
        ("vLLM", "The decoder prompt (length 40960) is longer than the maximum model length of 32768.", Some(32_768)),
        ("Ollama", "prompt too long; exceeded max context length by 4096 tokens", None),
        ("Moonshot", "Invalid request: Your request exceeded model token limit: 131072", Some(131_072)),
        ("MiniMax", "invalid params, context window exceeds limit", None),
        ("Z.ai", "Prompt exceeds max length", None),
        ("Alibaba", "Range of input length should be [1, 129024]", Some(129_024)),
        ("GitHub Copilot", "prompt token count of 140000 exceeds the limit of 128000", Some(128_000)),
        ("Cohere", "too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 9000.", Some(4081)),
        ("Hugging Face", "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 4000", Some(4096)),
        ("Hugging Face", "Input validation error: `inputs` must have less than 1024 tokens. Given: 2000", Some(1024)),
    ];
    for (server, message, window) in messages {
        let body = openai(message, "BadRequestError", Value::Null, Value::Null);
        for status in [400, 422, 500] {
            assert_eq!(classify(status, &ErrorBody::of_value(&body), true), History(TooLong), "{server} {status}: {message}");
        }
        assert_eq!(super::super::limits::window(&message.to_lowercase()), window, "{server}: {message}");
    }
    for words in TOO_LONG_WORDS {
        assert!(messages.iter().any(|(_, message, _)| message.to_lowercase().contains(words)), "no message has {words:?}");
    }
    assert_eq!(classify(503, &ErrorBody::of_value(&openai("maximum context length", "", Value::Null, Value::Null)), true), TRY_AGAIN);
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
        (json!({"choices": null, "error_type": "BadRequestError", "error_message": "maximum context length is 8192 tokens"}), 400),
        (json!({"object": "error", "type": "NotFoundError", "message": "The model does not exist"}), 404),
    ] {
        assert_eq!(ErrorBody::of_value(&body).status(), status, "{body}");
    }
}
