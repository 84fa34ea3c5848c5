//! What an endpoint's error means. The statuses alone do not tell: an empty account is 400, 402 or 429, and a full window 400, 413 or 429.
//!
//! The words are the endpoints'. They are matched because no code says the same; each list names where they were read.

use super::error_body::ErrorBody;
use super::{HistoryFault, ModelFailureClass, TRY_AGAIN, WaitReason};

/// Codes and types of a request that does not fit.
const TOO_LONG_CODES: [&str; 5] = [
    // OpenAI and compatible servers: OpenHands/OpenHands#998.
    "context_length_exceeded",
    "string_above_max_length",
    // Anthropic: https://platform.claude.com/docs/en/api/errors
    "request_too_large",
    // llama.cpp's server.
    "exceed_context_size_error",
    // Groq: the body is too large.
    "request_too_large_error",
];

/// Words of a request that does not fit, in lower case.
const TOO_LONG_WORDS: [&str; 10] = [
    // Anthropic: `prompt is too long: 345320 tokens > 199999 maximum`, and with the room for the answer.
    "prompt is too long",
    "exceed context limit",
    // OpenAI: `This model's maximum context length is 16385 tokens`; vLLM has the same words.
    "maximum context length",
    "exceeds the context window",
    // OpenAI, with status 429: one request is larger than a minute's tokens, so it never succeeds.
    "request too large for",
    // Gemini: google-gemini/gemini-cli#5807 and #15184 (`The input token count (1091639) exceeds the maximum number of tokens allowed`).
    "input token count",
    // Compatible servers: anomalyco/opencode#1551 (`Please reduce the length of the messages`), llama.cpp, LM Studio.
    "reduce the length of the",
    "exceeds the available context size",
    "context length of only",
    "input is too long",
];

/// Words of an account without money, in lower case.
const CREDIT_WORDS: [&str; 4] = [
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

/// The class of an error.
pub(super) fn classify(status: u16, error: &ErrorBody<'_>, has_secret: bool) -> ModelFailureClass {
    let message = error.message.to_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| message.contains(word));
    let is = |codes: &[&str]| codes.contains(&error.code) || codes.contains(&error.kind);
    let refuses = (400..500).contains(&status);
    let too_long = status == 413 || is(&TOO_LONG_CODES) || (refuses && has(&TOO_LONG_WORDS));
    // The key is asked first: its message may name anything.
    let key_is_wrong = status == 401 || is(&["invalid_api_key", "authentication_error"]) || has_detail(error, "API_KEY_INVALID");
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
        400..500 => ModelFailureClass::History(HistoryFault::Refused),
        _ => TRY_AGAIN,
    }
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
