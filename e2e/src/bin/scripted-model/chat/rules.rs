//! What chat completions demand of a request and of its messages.

use serde_json::Value;

use crate::endpoint::json::{list, text, unknown_field};
use crate::endpoint::rule::{Refusal, Request, Rule, demand};
use crate::endpoint::script::Profile;
use crate::endpoint::wire::Wire;

/// Fields of a request. Source: the schema CreateChatCompletionRequest of https://github.com/openai/openai-openapi, and
/// https://developers.openai.com/api/docs/guides/prompt-caching for `prompt_cache_options`.
const FIELDS: &[&str] = &[
    "audio",
    "frequency_penalty",
    "function_call",
    "functions",
    "logit_bias",
    "logprobs",
    "max_completion_tokens",
    "max_tokens",
    "messages",
    "metadata",
    "modalities",
    "model",
    "moderation",
    "n",
    "parallel_tool_calls",
    "prediction",
    "presence_penalty",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "reasoning_effort",
    "response_format",
    "safety_identifier",
    "seed",
    "service_tier",
    "stop",
    "store",
    "stream",
    "stream_options",
    "temperature",
    "tool_choice",
    "tools",
    "top_logprobs",
    "top_p",
    "user",
    "verbosity",
    "web_search_options",
];

/// The longest text that OpenAI takes as one content.
const MAX_CONTENT: usize = 10_485_760;

pub const RULES: &[Rule] = &[
    Rule {
        name: "a request names its model",
        source: "https://github.com/openai/openai-openapi, CreateChatCompletionRequest.required",
        check: |request| demand(!text(&request.body["model"]).is_empty(), || Refusal::invalid("you must provide a model parameter")),
    },
    Rule {
        name: "a request has messages",
        source: "https://github.com/openai/openai-openapi, CreateChatCompletionRequest.messages, minItems 1",
        check: |request| match &request.body["messages"] {
            Value::Array(messages) if messages.is_empty() => Err(Refusal::invalid(
                "Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array instead.",
            )
            .param("messages")
            .code("empty_array")),
            Value::Array(_) => Ok(()),
            _ => Err(Refusal::invalid("Missing required parameter: 'messages'.").param("messages").code("missing_required_parameter")),
        },
    },
    Rule {
        name: "content is null only beside calls",
        source: "https://github.com/songquanpeng/one-api/issues/784 and https://github.com/vercel/ai/pull/13744",
        check: |request| {
            each(request, |at, message| {
                let has_calls = !list(&message["tool_calls"]).is_empty() || message["refusal"].is_string();
                demand(!message["content"].is_null() || (message["role"] == "assistant" && has_calls), || {
                    Refusal::invalid("Invalid value for 'content': expected a string, got null.").param(format!("messages.[{at}].content"))
                })
            })
        },
    },
    Rule {
        name: "roles alternate, where the model's template demands it",
        source: "https://github.com/zed-industries/zed/issues/37021 (Mistral), https://github.com/huggingface/text-generation-inference/issues/3198",
        check: order,
    },
    Rule {
        name: "a model of text is shown no picture",
        source: "https://github.com/ollama/ollama/issues/17301",
        check: |request| {
            let shows = |message: &Value| list(&message["content"]).iter().any(|part| part["type"] == "image_url");
            each(request, |_, message| {
                demand(!request.model.text_only || !shows(message), || Refusal::invalid("this model does not support image input"))
            })
        },
    },
    Rule {
        name: "the prompt fits the window",
        source: "https://platform.openai.com/docs/guides/error-codes, context_length_exceeded; \
                 DeepSeek's text: https://github.com/evalstate/fast-agent/issues/621",
        check: window,
    },
];

/// What OpenAI itself refuses, and not every endpoint that is compatible with it.
pub const OPENAI: &[Rule] = &[
    Rule {
        name: "a request has only fields of the API",
        source: "https://github.com/nashsu/llm_wiki/issues/336 (Unrecognized request argument supplied: thinking)",
        check: |request| match unknown_field(request.body, FIELDS) {
            Some(field) => Err(Refusal::invalid(format!("Unrecognized request argument supplied: {field}"))),
            None => Ok(()),
        },
    },
    Rule {
        name: "a message's role is known",
        source: "https://github.com/openai/openai-openapi, ChatCompletionRequestMessage",
        check: |request| {
            each(request, |at, message| {
                let role = text(&message["role"]);
                demand(["system", "developer", "user", "assistant", "tool", "function"].contains(&role), || {
                    let known = "'system', 'assistant', 'user', 'function', 'tool', and 'developer'";
                    Refusal::invalid(format!("Invalid value: '{role}'. Supported values are: {known}."))
                        .param(format!("messages[{at}].role"))
                        .code("invalid_value")
                })
            })
        },
    },
    Rule {
        name: "a content is shorter than 10 MiB",
        source: "https://github.com/VectorlyApp/bluebox/issues/31; 1 MiB until 2024: https://github.com/gptscript-ai/clio/issues/41",
        check: |request| {
            each(request, |at, message| {
                let length = text(&message["content"]).chars().count();
                demand(length <= MAX_CONTENT, || too_long(&format!("messages[{at}].content"), MAX_CONTENT, length))
            })
        },
    },
];

/// Checks each message, with its place.
pub fn each(request: &Request, mut check: impl FnMut(usize, &Value) -> Result<(), Refusal>) -> Result<(), Refusal> {
    list(&request.body["messages"]).iter().enumerate().try_for_each(|(at, message)| check(at, message))
}

/// OpenAI's refusal of a text that is too long.
pub fn too_long(param: &str, most: usize, length: usize) -> Refusal {
    let sentence = format!("Expected a string with maximum length {most}, but got a string with length {length} instead.");
    Refusal::invalid(format!("Invalid '{param}': string too long. {sentence}")).param(param).code("string_above_max_length")
}

/// As the templates of Mistral's open models count: messages of tools and answers with calls are passed over.
fn order(request: &Request) -> Result<(), Refusal> {
    let Some(status) = request.model.order_status else { return Ok(()) };
    let refuse = |sentence: &str| Err(Refusal::with_status(status, sentence));
    let messages = list(&request.body["messages"]);
    if messages.windows(2).any(|pair| pair[0]["role"] == "tool" && pair[1]["role"] == "user") {
        return refuse("Unexpected role 'user' after role 'tool'");
    }
    let passed =
        |message: &&Value| message["role"] == "user" || (message["role"] == "assistant" && list(&message["tool_calls"]).is_empty());
    let mut roles = messages.iter().filter(passed).map(|message| text(&message["role"]));
    if roles.by_ref().zip(["user", "assistant"].into_iter().cycle()).any(|(role, expected)| role != expected) {
        return refuse("Conversation roles must alternate user/assistant/user/assistant/...");
    }
    Ok(())
}

fn window(request: &Request) -> Result<(), Refusal> {
    let Some(window) = request.model.window_tokens else { return Ok(()) };
    let tokens = request.tokens;
    let asked = request.body["max_tokens"].as_u64().or(request.body["max_completion_tokens"].as_u64()).unwrap_or_default();
    if Wire::Chat.profile(request.model) == Profile::DeepSeek {
        return demand(tokens + asked <= window, || {
            Refusal::invalid(format!(
                "This model's maximum context length is {window} tokens. However, you requested {} tokens ({tokens} in the messages, {asked} \
                 in the completion). Please reduce the length of the messages or completion.",
                tokens + asked
            ))
            .code("invalid_request_error")
        });
    }
    demand(tokens <= window, || {
        Refusal::invalid(format!(
            "This model's maximum context length is {window} tokens. However, your messages resulted in {tokens} tokens. Please reduce the \
             length of the messages."
        ))
        .param("messages")
        .code("context_length_exceeded")
    })
}
