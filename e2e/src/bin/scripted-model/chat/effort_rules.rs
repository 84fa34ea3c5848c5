//! What OpenAI's chat completions take from reasoning models only, or not from them.

use crate::endpoint::json::list;
use crate::endpoint::rule::{Refusal, Rule, demand};

pub const RULES: &[Rule] = &[
    Rule {
        name: "a reasoning model takes no tools unless its effort is none",
        source: "https://github.com/BerriAI/litellm/pull/34569 and https://github.com/pipecat-ai/pipecat/issues/4043",
        check: |request| {
            let model = request.model;
            if !model.reasons(false) || !model.refuses_tools_with_effort() {
                return Ok(());
            }
            let functions = list(&request.body["tools"]).iter().any(|tool| tool["type"] == "function");
            let effort = request.body["reasoning_effort"].as_str().unwrap_or(model.default_effort());
            demand(!functions || effort == "none", || {
                Refusal::invalid(format!(
                    "Function tools with reasoning_effort are not supported for {} in /v1/chat/completions. To use function tools, use \
                     /v1/responses or set reasoning_effort to 'none'.",
                    model.name()
                ))
                .param("reasoning_effort")
            })
        },
    },
    Rule {
        name: "only a reasoning model has an effort",
        source: "https://github.com/davidmigloz/langchain_dart/issues/712",
        check: |request| {
            demand(request.model.reasons(false) || request.body["reasoning_effort"].is_null(), || {
                Refusal::invalid("Unrecognized request argument supplied: reasoning_effort")
            })
        },
    },
    Rule {
        name: "a reasoning model is limited by max_completion_tokens",
        source: "https://github.com/sipeed/picoclaw/issues/16",
        check: |request| {
            demand(!request.model.reasons(false) || request.body["max_tokens"].is_null(), || {
                Refusal::invalid(
                    "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
                )
                .param("max_tokens")
                .code("unsupported_parameter")
            })
        },
    },
];
