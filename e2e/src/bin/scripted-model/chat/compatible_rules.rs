//! What endpoints refuse that are compatible with OpenAI's chat completions.

use serde_json::Value;

use super::rules::each;
use crate::endpoint::json::{list, text, unknown_field};
use crate::endpoint::rule::{Refusal, Request, Rule, demand};

/// Fields that a strict server knows. Source: the schema ChatCompletionRequest of https://docs.mistral.ai/api, and `stream_options`, which
/// vLLM and llama.cpp take.
const FIELDS: &[&str] = &[
    "frequency_penalty",
    "max_tokens",
    "messages",
    "metadata",
    "model",
    "n",
    "parallel_tool_calls",
    "prediction",
    "presence_penalty",
    "prompt_mode",
    "random_seed",
    "reasoning_effort",
    "response_format",
    "safe_prompt",
    "seed",
    "stop",
    "stream",
    "stream_options",
    "temperature",
    "tool_choice",
    "tools",
    "top_p",
];

const ROLES: [&str; 4] = ["system", "user", "assistant", "tool"];

const KNOWN_ROLE: Rule = Rule {
    name: "a message's role is one of four",
    source: "https://github.com/crazyyanchao/llmcompiler/issues/1 (unknown variant `function`)",
    check: |request| {
        each(request, |at, message| {
            let role = text(&message["role"]);
            demand(ROLES.contains(&role), || {
                Refusal::with_status(
                    422,
                    format!(
                        "Failed to deserialize the JSON body into the target type: messages[{at}].role: unknown variant `{role}`, expected one \
                         of `system`, `user`, `assistant`, `tool`"
                    ),
                )
                .code("invalid_request_error")
            })
        })
    },
};

pub const DEEPSEEK: &[Rule] = &[
    KNOWN_ROLE,
    Rule {
        name: "reasoning_content is given back with the calls of the current turn",
        source: "https://api-docs.deepseek.com/guides/thinking_mode#tool-calls, https://github.com/hotovo/aider-desk/issues/529",
        check: |request| {
            let thinks = request.body["thinking"]["type"] == "enabled" || request.model.reasons(true);
            let (from, turn) = current_turn(request);
            let lacks = |message: &Value| message["role"] == "assistant" && !message["reasoning_content"].is_string();
            match turn.iter().position(lacks).filter(|_| thinks) {
                Some(at) => Err(Refusal::invalid(format!(
                    "Missing `reasoning_content` field in the assistant message at message index {}. For more information, please refer to \
                     https://api-docs.deepseek.com/guides/thinking_mode#tool-calls",
                    from + at
                ))
                .code("invalid_request_error")),
                None => Ok(()),
            }
        },
    },
];

pub const GEMINI: &[Rule] = &[Rule {
    name: "the first call of each step of the current turn has its thought signature",
    source: "https://ai.google.dev/gemini-api/docs/thought-signatures (OpenAI compatibility), https://github.com/manthanabc/paws/issues/103",
    check: |request| {
        let (from, turn) = current_turn(request);
        let unsigned = turn.iter().enumerate().find_map(|(at, message)| {
            let first = list(&message["tool_calls"]).first()?;
            let signature = text(&first["extra_content"]["google"]["thought_signature"]);
            signature.is_empty().then(|| (from + at, text(&first["function"]["name"])))
        });
        match unsigned.filter(|_| request.model.reasons(true)) {
            // Messages of the system are no turns of Gemini's.
            Some((at, name)) => {
                let turns = list(&request.body["messages"])[..=at].iter().filter(|message| message["role"] != "system");
                Err(missing_signature(name, turns.count()))
            }
            None => Ok(()),
        }
    },
}];

pub const PLAIN: &[Rule] = &[
    KNOWN_ROLE,
    Rule {
        name: "a request has only fields that every server knows",
        source: "https://github.com/mistralai/platform-docs-public/issues/7",
        check: |request| match unknown_field(request.body, FIELDS) {
            Some(field) => Err(extra_field(&format!("[\"body\",\"{field}\"]"))),
            None => Ok(()),
        },
    },
    Rule {
        name: "a message carries no reasoning_content",
        source: "https://github.com/charmbracelet/crush/issues/1590 (Mistral), https://github.com/SimonSchubert/Kai/issues/265 (Groq)",
        check: |request| {
            each(request, |at, message| {
                let path = format!("[\"body\",\"messages\",{at},\"assistant\",\"reasoning_content\"]");
                demand(message.get("reasoning_content").is_none(), || extra_field(&path))
            })
        },
    },
    Rule {
        name: "a call's arguments are JSON",
        source: "https://github.com/noonghunna/club-3090/issues/665 and https://github.com/ggml-org/llama.cpp/pull/25583",
        check: |request| {
            each(request, |_, message| {
                list(&message["tool_calls"]).iter().try_for_each(|call| {
                    serde_json::from_str::<Value>(text(&call["function"]["arguments"]))
                        .map(drop)
                        .map_err(|error| Refusal::with_status(500, format!("Failed to parse tool call arguments as JSON: {error}")))
                })
            })
        },
    },
];

/// Gemini's refusal of a call without its thought signature. `position` counts the turns from 1.
pub fn missing_signature(name: &str, position: usize) -> Refusal {
    Refusal::invalid(format!(
        "Function call is missing a thought_signature in functionCall parts. This is required for tools to work correctly, and missing \
         thought_signature may lead to degraded model performance. Additional data, function call `default_api:{name}` , position {position}. \
         Please refer to https://ai.google.dev/gemini-api/docs/thought-signatures for more details."
    ))
}

fn extra_field(path: &str) -> Refusal {
    let sentence = "Extra inputs are not permitted";
    Refusal::with_status(422, format!("{{\"detail\":[{{\"type\":\"extra_forbidden\",\"loc\":{path},\"msg\":\"{sentence}\"}}]}}"))
}

/// Returns the messages after the last one of a user, and the place of the first of them.
fn current_turn<'r>(request: &'r Request) -> (usize, &'r [Value]) {
    let messages = list(&request.body["messages"]);
    let from = messages.iter().rposition(|message| message["role"] == "user").map_or(0, |at| at + 1);
    (from, &messages[from..])
}
