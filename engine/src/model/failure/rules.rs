//! What an endpoint's error means. The statuses alone do not tell: an empty account is 400, 402 or 429, and a full window 400, 413 or 429.
//!
//! The words are the endpoints'. They are matched because no code says the same; each list names where they were read.

use super::error_body::ErrorBody;
use super::{HistoryFault, ModelFailureClass, TRY_AGAIN, WaitReason};

/// Codes and types of a request that does not fit.
const TOO_LONG_CODES: [&str; 7] = [
    // OpenAI and compatible servers: OpenHands/OpenHands#998.
    "context_length_exceeded",
    "string_above_max_length",
    // Anthropic: https://platform.claude.com/docs/en/api/errors
    "request_too_large",
    // llama.cpp's server.
    "exceed_context_size_error",
    // Groq: the body is too large.
    "request_too_large_error",
    // GitHub Copilot and Vertex.
    "model_max_prompt_tokens_exceeded",
    "model_context_window_exceeded",
];

/// Words of a request that does not fit, in lower case. `rules/tests.rs` has a whole message for each.
pub(super) const TOO_LONG_WORDS: [&str; 25] = [
    // Anthropic, with the room for the answer in the second.
    "prompt is too long",
    "exceed context limit",
    // OpenAI, vLLM, DeepSeek, Mistral, OpenRouter, Fireworks.
    "maximum context length",
    // OpenAI's Responses.
    "exceeds the context window",
    // OpenAI, with status 429: one request is larger than a minute's tokens, so it never succeeds.
    "request too large for",
    // Gemini: google-gemini/gemini-cli#5807 and #15184.
    "input token count",
    // Groq and Cerebras: anomalyco/opencode#1551.
    "reduce the length of the",
    // llama.cpp, before and after the answer has begun.
    "exceeds the available context size",
    "context size has been exceeded",
    // LM Studio.
    "context length of only",
    "greater than the context length",
    // Bedrock.
    "input is too long",
    // xAI.
    "maximum prompt length is",
    // SGLang.
    "is longer than the model's context length",
    // vLLM.
    "longer than the maximum model length",
    // Ollama.
    "prompt too long",
    "exceeded max context length",
    // Moonshot.
    "exceeded model token limit",
    // MiniMax.
    "context window exceeds limit",
    // Z.ai.
    "prompt exceeds max length",
    // Alibaba's Model Studio.
    "range of input length should be",
    // GitHub Copilot.
    "prompt token count of",
    // Cohere.
    "total number of tokens in the prompt cannot exceed",
    // Hugging Face's text-generation-inference.
    "`inputs` tokens + `max_new_tokens` must be",
    "`inputs` must have less than",
];

/// Words of an account without money, in lower case.
const CREDIT_WORDS: [&str; 5] = [
    // LiteLLM, with 400: a budget that the proxy's owner set.
    "budget has been exceeded",
    // Anthropic, with status 400: anthropics/claude-code#4207.
    "credit balance is too low",
    // DeepSeek and others, with 402.
    "insufficient balance",
    // OpenRouter, with 402.
    "insufficient credits",
    // OpenAI, with 429.
    "billing hard limit",
];

/// Words of a quota that waiting for minutes does not fill, in lower case.
const QUOTA_WORDS: [&str; 4] = [
    // Gemini: `GenerateContentInputTokensPerModelPerDay-FreeTier`, google-gemini/gemini-cli#4656; `per day per user`, #5377.
    "perday",
    "per day",
    // Anthropic, with 400: a limit that the account's owner set.
    "reached your specified api usage limits",
    "monthly spend",
];

/// Parts of a request's body that come from `spec.model`, as errors name them.
const SETTINGS: [&str; 16] = [
    "model",
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "reasoning",
    "reasoning_effort",
    "thinking",
    "output_config",
    "effort",
    "generation_config",
    "generationconfig",
    "thinking_config",
    "stream_options",
    "prompt_cache_key",
    "tools",
    "store",
];

/// Codes of a conversation in which something is refused.
const HISTORY_CODES: [&str; 10] = [
    // Azure and OpenAI.
    "content_filter",
    "content_policy_violation",
    "invalid_prompt",
    "invalid_encrypted_content",
    // OpenAI's pictures.
    "invalid_image",
    "invalid_image_format",
    "image_parse_error",
    "empty_image_file",
    // Alibaba's Model Studio.
    "data_inspection_failed",
    // Mistral: zed-industries/zed#37021.
    "invalid_request_message_order",
];

/// Fields of a request that hold the conversation.
const HISTORY_FIELDS: [&str; 5] = ["messages", "input", "contents", "content", "prompt"];

/// Words for parts of a conversation, in lower case. A refusal that has none of them is about something else: a gateway, a rule of the network.
const HISTORY_WORDS: [&str; 41] = [
    "messages.",
    "messages[",
    "messages:",
    "messages must",
    "messages with",
    "'messages'",
    "`messages`",
    "\"messages\"",
    "contents[",
    "contents.",
    "contents:",
    "input[",
    "input.",
    "tool_call",
    "tool call",
    "tool_use",
    "tool_result",
    "tool message",
    "tool result",
    "function call",
    "functioncall",
    "function response",
    "functionresponse",
    "thought_signature",
    "thought signature",
    "reasoning_content",
    "reasoning_details",
    "encrypted_content",
    "encrypted content",
    "thinking block",
    "image",
    "content block",
    "content filter",
    "content management policy",
    "must alternate",
    "unexpected role",
    "after role",
    "assistant message",
    "user message",
    "last message",
    "conversation",
];

/// The class of an error.
pub(super) fn classify(status: u16, error: &ErrorBody<'_>, has_secret: bool) -> ModelFailureClass {
    let message = error.message.to_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| message.contains(word));
    let is = |codes: &[&str]| codes.contains(&error.code) || codes.contains(&error.kind);
    let refuses = (400..500).contains(&status);
    // Some servers answer 500 to what they cannot put into the model's window or its template.
    let too_long = status == 413 || is(&TOO_LONG_CODES) || ((refuses || status == 500) && has(&TOO_LONG_WORDS));
    // The key is asked first: its message may name anything.
    let key_codes = ["invalid_api_key", "authentication_error", "expired_key", "token_not_found_in_db"];
    let key_is_wrong = status == 401 || is(&key_codes) || has_detail(error, "API_KEY_INVALID");
    // LiteLLM tells it of a key, with any status.
    if is(&["budget_exceeded"]) {
        return ModelFailureClass::WaitForPerson(WaitReason::Credit);
    }
    if key_is_wrong {
        return ModelFailureClass::WaitForPerson(if has_secret { WaitReason::Key } else { WaitReason::Settings });
    }
    if too_long {
        return ModelFailureClass::History(HistoryFault::TooLong);
    }
    if status == 402 || is(&["insufficient_quota", "billing_hard_limit_reached", "billing_error"]) || (refuses && has(&CREDIT_WORDS)) {
        return ModelFailureClass::WaitForPerson(WaitReason::Credit);
    }
    if refuses && (has(&QUOTA_WORDS) || (status == 429 && has_detail(error, "PerDay"))) {
        return ModelFailureClass::WaitForPerson(WaitReason::Quota);
    }
    // LiteLLM: the servers behind it have failed, and are left alone for a while.
    if refuses && has(&["no healthy deployment", "no deployments available"]) {
        return TRY_AGAIN;
    }
    match status {
        // A region or a model that the key may not use is no wrong key.
        403 if !has_secret || is(&["model_not_found", "unsupported_country_region_territory"]) => {
            ModelFailureClass::WaitForPerson(WaitReason::Settings)
        }
        403 => ModelFailureClass::WaitForPerson(WaitReason::Key),
        // OpenAI cannot find an item of the conversation: earendil-works/pi#5059.
        404 if message.contains("item with id") => ModelFailureClass::History(HistoryFault::Refused),
        404 | 405 => ModelFailureClass::WaitForPerson(WaitReason::Settings),
        408 | 409 | 425 | 429 => TRY_AGAIN,
        400..500 if names_setting(error, &message) => ModelFailureClass::WaitForPerson(WaitReason::Settings),
        400..500 if names_history(error, &message) => ModelFailureClass::History(HistoryFault::Refused),
        400..500 => ModelFailureClass::WaitForPerson(WaitReason::Request),
        _ => TRY_AGAIN,
    }
}

/// Whether the error is about something in the conversation.
fn names_history(error: &ErrorBody<'_>, message: &str) -> bool {
    let param = error.param.to_lowercase();
    let field = param.split(['.', '[']).next().unwrap_or_default();
    let code = |code: &str| HISTORY_CODES.contains(&code) || code.contains("image");
    HISTORY_FIELDS.contains(&field) || code(error.code) || code(error.kind) || HISTORY_WORDS.iter().any(|word| message.contains(word))
}

/// Whether the error is about something that `spec.model` decides, not about the conversation.
fn names_setting(error: &ErrorBody<'_>, message: &str) -> bool {
    if ["model_not_found", "unsupported_parameter", "invalid_model"].contains(&error.code) {
        return true;
    }
    // OpenAI: `reasoning.effort`, `tools[0].function.parameters`. Anthropic: a message that begins `max_tokens: 64000 > 8192`.
    // Gemini: `generation_config.thinking_config`, `Thinking level is not supported for this model.`
    let first_word =
        |text: &str| text.split(['.', '[', ':', ' ']).next().unwrap_or_default().trim_matches(['*', '`', '"', '\'']).to_owned();
    let param = first_word(&error.param.to_lowercase());
    let named =
        if param.is_empty() { first_word(message.trim_start_matches("* ").trim_start_matches("generatecontentrequest.")) } else { param };
    // `model` and `tools` begin many sentences; only with a colon or a place they name a field.
    let is_sentence = error.param.is_empty() && ["model", "tools", "reasoning", "store"].contains(&named.as_str());
    let marks_field = message.find([':', '.', '[']).is_some_and(|at| at == named.len());
    SETTINGS.contains(&named.as_str()) && (!is_sentence || marks_field)
}

/// Whether a word stands in the details of Google's errors.
fn has_detail(error: &ErrorBody<'_>, word: &str) -> bool {
    let details = error.body.and_then(|body| body.pointer("/error/details"));
    details.is_some_and(|details| details.to_string().contains(word))
}

#[cfg(test)]
mod tests;
