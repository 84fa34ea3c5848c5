//! What the Responses API demands.

use super::item_rules;
use crate::endpoint::json::{is_plain_name, list, text, unknown_field};
use crate::endpoint::rule::{Refusal, Request, Rule, demand};

/// Fields of a request. Source: https://github.com/openai/openai-python, `types/responses/response_create_params.py`; `client_metadata`,
/// which the endpoint takes from Codex with a key of the API too: https://github.com/openai/codex, `codex-rs/codex-api/src/common.rs`.
const FIELDS: &[&str] = &[
    "background",
    "client_metadata",
    "conversation",
    "include",
    "input",
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "metadata",
    "model",
    "parallel_tool_calls",
    "previous_response_id",
    "prompt",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "reasoning",
    "safety_identifier",
    "service_tier",
    "store",
    "stream",
    "stream_options",
    "temperature",
    "text",
    "tool_choice",
    "tools",
    "top_logprobs",
    "top_p",
    "truncation",
    "user",
];

pub const RULES: &[Rule] = &[
    Rule {
        name: "model and input are given",
        source: "https://github.com/openai/openai-python, types/responses/response_create_params.py (Required)",
        check: |request| {
            let missing = ["model", "input"].into_iter().find(|field| request.body[field].is_null());
            match missing {
                Some(field) => {
                    Err(Refusal::invalid(format!("Missing required parameter: '{field}'.")).param(field).code("missing_required_parameter"))
                }
                None => Ok(()),
            }
        },
    },
    Rule {
        name: "a request has only fields of the API",
        source: "https://github.com/teabranch/open-responses-server/issues/41 (Unknown parameter)",
        check: |request| match unknown_field(request.body, FIELDS) {
            Some(field) => Err(unknown(field)),
            None => Ok(()),
        },
    },
    Rule {
        name: "a function tool has its name at the top, of letters, digits, _ and -",
        source: "https://github.com/openai/openai-python, types/responses/function_tool_param.py; the pattern: \
                 https://github.com/xinnan-tech/xiaozhi-esp32-server/issues/1466",
        check: |request| {
            let functions = list(&request.body["tools"]).iter().enumerate().filter(|(_, tool)| tool["type"] == "function");
            functions.into_iter().try_for_each(|(at, tool)| {
                let param = format!("tools[{at}].name");
                demand(tool["name"].is_string(), || {
                    Refusal::invalid(format!("Missing required parameter: '{param}'.")).param(&param).code("missing_required_parameter")
                })?;
                demand(is_plain_name(text(&tool["name"]), 64), || item_rules::not_a_name(&param))
            })
        },
    },
    Rule {
        name: "a strict function closes its schema",
        source: "https://platform.openai.com/docs/guides/structured-outputs (additionalProperties must be false, all fields required)",
        check: |request| {
            list(&request.body["tools"]).iter().filter(|tool| tool["strict"] == true).try_for_each(|tool| {
                let name = text(&tool["name"]);
                let bad = |why: &str| {
                    Refusal::invalid(format!("Invalid schema for function '{name}': In context=(), {why}"))
                        .param("tools[0].parameters")
                        .code("invalid_function_parameters")
                };
                let schema = &tool["parameters"];
                demand(schema["additionalProperties"] == false, || {
                    bad("'additionalProperties' is required to be supplied and to be false.")
                })?;
                let required = list(&schema["required"]);
                let mut fields = schema["properties"].as_object().into_iter().flat_map(serde_json::Map::keys);
                demand(fields.all(|field| required.iter().any(|name| name == field)), || {
                    bad("'required' is required to be supplied and to be an array including every key in properties.")
                })
            })
        },
    },
    Rule {
        name: "max_output_tokens is at least 16",
        source: "https://github.com/openai/openai-openapi, CreateResponse.max_output_tokens (minimum 16)",
        check: |request| {
            let asked = request.body["max_output_tokens"].as_u64().unwrap_or(16);
            demand(asked >= 16, || {
                let sentence = format!("Expected a value >= 16, but got {asked} instead.");
                Refusal::invalid(format!("Invalid 'max_output_tokens': integer below minimum value. {sentence}"))
                    .param("max_output_tokens")
                    .code("integer_below_min_value")
            })
        },
    },
    Rule {
        name: "only a reasoning model gives sealed reasoning",
        source: "https://github.com/pydantic/pydantic-ai/issues/2865",
        check: |request| {
            demand(request.model.reasons(true) || !super::wants_sealed(request.body), || {
                Refusal::invalid("Encrypted content is not supported with this model.").param("include")
            })
        },
    },
    Rule {
        name: "only a reasoning model has an effort",
        source: "https://platform.openai.com/docs/api-reference/responses/create (reasoning: gpt-5 and o-series models only)",
        check: |request| {
            demand(request.model.reasons(true) || request.body["reasoning"]["effort"].is_null(), || {
                Refusal::invalid("Unsupported parameter: 'reasoning.effort' is not supported with this model.")
                    .param("reasoning.effort")
                    .code("unsupported_parameter")
            })
        },
    },
    item_rules::FIELDS_OF_ITEMS,
    item_rules::ID_PREFIX,
    item_rules::NO_DUPLICATES,
    item_rules::ASSISTANT_TEXT,
    item_rules::NAMES_AND_IDS,
    item_rules::REASONING_WITHOUT_STORAGE,
    item_rules::SEALED_UNALTERED,
    item_rules::REASONING_BEFORE_ITS_ITEM,
    item_rules::ITEM_AFTER_ITS_REASONING,
    item_rules::OUTPUT_HAS_CALL,
    item_rules::CALL_HAS_OUTPUT,
    Rule { name: "the prompt fits the window", source: "https://github.com/anomalyco/opencode/issues/6071", check: window },
];

/// OpenAI's refusal of a field that the API does not have.
pub fn unknown(param: &str) -> Refusal {
    Refusal::invalid(format!("Unknown parameter: '{param}'.")).param(param).code("unknown_parameter")
}

fn window(request: &Request) -> Result<(), Refusal> {
    let cuts = request.body["truncation"] == "auto";
    demand(cuts || request.tokens <= request.model.window_tokens.unwrap_or(u64::MAX), || {
        Refusal::invalid("Your input exceeds the context window of this model. Please adjust your input and try again.")
            .param("input")
            .code("context_length_exceeded")
    })
}
