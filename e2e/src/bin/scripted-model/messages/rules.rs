//! What Anthropic demands of a request as a whole.

use serde_json::Value;

use super::{blocks, thinks};
use crate::endpoint::json::{is_plain_name, list, text, unknown_field};
use crate::endpoint::rule::{Refusal, Request, Rule, demand};

/// Fields of a request. Source: https://github.com/anthropics/anthropic-sdk-python, `types/message_create_params.py`.
const FIELDS: &[&str] = &[
    "cache_control",
    "container",
    "inference_geo",
    "max_tokens",
    "messages",
    "metadata",
    "model",
    "output_config",
    "service_tier",
    "stop_sequences",
    "stream",
    "system",
    "temperature",
    "thinking",
    "tool_choice",
    "tools",
    "top_k",
    "top_p",
];

/// Fields that a beta adds, with the name of that beta in the header `anthropic-beta` up to its date. Source:
/// https://github.com/anthropics/anthropic-sdk-python, `types/beta/message_create_params.py`.
const BETA_FIELDS: &[(&str, &str)] = &[("context_management", "context-management-"), ("mcp_servers", "mcp-client-")];

pub const RULES: &[Rule] = &[
    Rule {
        name: "the version of the API is named",
        source: "https://platform.claude.com/docs/en/api/versioning",
        check: |request| {
            demand(request.headers.contains_key("anthropic-version"), || Refusal::invalid("anthropic-version: header is required"))
        },
    },
    Rule {
        name: "model, max_tokens and messages are given",
        source: "https://github.com/anthropics/anthropic-sdk-python, types/message_create_params.py (Required)",
        check: |request| {
            let body = request.body;
            demand(body["model"].is_string(), || Refusal::invalid("model: Field required"))?;
            demand(body["max_tokens"].is_u64(), || Refusal::invalid("max_tokens: Field required"))?;
            demand(body["messages"].is_array(), || Refusal::invalid("messages: Field required"))?;
            demand(!list(&body["messages"]).is_empty(), || Refusal::invalid("messages: at least one message is required"))
        },
    },
    Rule {
        name: "a request has only fields of the API",
        source: "https://github.com/anthropics/anthropic-sdk-python, types/message_create_params.py; the text as in \
                 https://github.com/BerriAI/litellm/issues/30835",
        check: |request| {
            let betas = request.headers.get_all("anthropic-beta").iter().filter_map(|value| value.to_str().ok()).collect::<Vec<_>>();
            let asked = |beta: &str| betas.iter().flat_map(|value| value.split(',')).any(|name| name.trim().starts_with(beta));
            let added = BETA_FIELDS.iter().filter(|(_, beta)| asked(beta)).map(|(field, _)| *field);
            match unknown_field(request.body, &FIELDS.iter().copied().chain(added).collect::<Vec<_>>()) {
                Some(field) => Err(Refusal::invalid(format!("{field}: Extra inputs are not permitted"))),
                None => Ok(()),
            }
        },
    },
    Rule {
        name: "a message's role is user or assistant",
        source: "https://github.com/anthropics/anthropic-sdk-python, types/message_create_params.py (there is no system role)",
        check: |request| {
            let strange = list(&request.body["messages"])
                .iter()
                .map(|message| text(&message["role"]))
                .find(|role| !["user", "assistant"].contains(role));
            match strange {
                Some(role) => Err(Refusal::invalid(format!(
                    "messages: Unexpected role \"{role}\". The Messages API accepts a top-level `system` parameter, not \"system\" as an input message role."
                ))),
                None => Ok(()),
            }
        },
    },
    Rule {
        name: "a tool's name is made of letters, digits, _ and -",
        source: "https://github.com/apify/tester-mcp-client/issues/11; 128 characters: https://github.com/anthropics/claude-code/issues/96152",
        check: |request| {
            list(&request.body["tools"]).iter().enumerate().try_for_each(|(at, tool)| {
                demand(is_plain_name(text(&tool["name"]), 128), || {
                    Refusal::invalid(format!("tools.{at}.custom.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'"))
                })
            })
        },
    },
    Rule {
        name: "no two tools have one name",
        source: "https://github.com/anthropics/claude-code/issues/10687",
        check: |request| {
            let mut names: Vec<&str> = list(&request.body["tools"]).iter().map(|tool| text(&tool["name"])).collect();
            let count = names.len();
            names.sort_unstable();
            names.dedup();
            demand(names.len() == count, || Refusal::invalid("tools: Tool names must be unique."))
        },
    },
    Rule {
        name: "a tool has a schema of an object",
        source: "https://github.com/anthropics/anthropic-sdk-python, types/tool_param.py (input_schema.type is \"object\")",
        check: |request| {
            list(&request.body["tools"]).iter().enumerate().filter(|(_, tool)| tool.get("type").is_none()).try_for_each(|(at, tool)| {
                demand(tool["input_schema"]["type"] == "object", || {
                    Refusal::invalid(format!("tools.{at}.custom.input_schema.type: Input should be 'object'"))
                })
            })
        },
    },
    Rule {
        name: "max_tokens exceeds the thinking budget, which is at least 1024",
        source: "https://github.com/liuw1535/antigravity2api-nodejs/issues/150 and https://github.com/themaximalist/llm.js/issues/30",
        check: budget,
    },
    Rule {
        name: "thinking goes with temperature 1 and no forced tool",
        source: "https://platform.claude.com/docs/en/build-with-claude/extended-thinking (feature compatibility)",
        check: |request| {
            let body = request.body;
            if !thinks(body) {
                return Ok(());
            }
            let temperature = body["temperature"].as_f64().unwrap_or(1.0);
            demand(temperature == 1.0, || Refusal::invalid("`temperature` may only be set to 1 when thinking is enabled."))?;
            demand(!["any", "tool"].contains(&text(&body["tool_choice"]["type"])), || {
                Refusal::invalid("Thinking may not be enabled when tool_choice forces tool use.")
            })
        },
    },
    Rule {
        name: "max_tokens is within the model's",
        source: "https://github.com/anthropics/anthropic-sdk-python, types/message_create_params.py (different models, different maximum)",
        check: |request| {
            let asked = request.body["max_tokens"].as_u64().unwrap_or_default();
            let most = request.model.max_output_tokens.unwrap_or(u64::MAX);
            demand(asked <= most, || {
                let name = request.model.name();
                Refusal::invalid(format!("max_tokens: {asked} > {most}, which is the maximum allowed number of output tokens for {name}"))
            })
        },
    },
    Rule {
        name: "prompt and max_tokens fit the window",
        source: "https://github.com/whoz-oss/coday/issues/26 and https://github.com/docker/docker-agent/issues/569",
        check: |request| {
            let Some(window) = request.model.window_tokens else { return Ok(()) };
            let (tokens, asked) = (request.tokens, request.body["max_tokens"].as_u64().unwrap_or_default());
            demand(tokens <= window, || Refusal::invalid(format!("prompt is too long: {tokens} tokens > {window} maximum")))?;
            demand(tokens + asked <= window, || {
                Refusal::invalid(format!(
                    "input length and `max_tokens` exceed context limit: {tokens} + {asked} > {window}, decrease input length or `max_tokens` \
                     and try again"
                ))
            })
        },
    },
    Rule {
        name: "there are at most 4 marks for the cache",
        source: "https://github.com/tghamm/Anthropic.SDK/issues/50",
        check: |request| {
            let body = request.body;
            let contents: Vec<_> = list(&body["messages"]).iter().flat_map(blocks).collect();
            let all = list(&body["tools"]).iter().chain(list(&body["system"])).chain(&contents).chain([body]);
            let found = all.filter(|part| !part["cache_control"].is_null()).count();
            demand(found <= 4, || Refusal::invalid(format!("A maximum of 4 blocks with cache_control may be provided. Found {found}.")))
        },
    },
];

fn budget(request: &Request) -> Result<(), Refusal> {
    let thinking = &request.body["thinking"];
    if thinking["type"] != "enabled" {
        return Ok(());
    }
    let Value::Number(budget) = &thinking["budget_tokens"] else {
        return Err(Refusal::invalid("thinking.enabled.budget_tokens: Field required"));
    };
    let budget = budget.as_u64().unwrap_or_default();
    demand(budget >= 1024, || Refusal::invalid("thinking.enabled.budget_tokens: Input should be greater than or equal to 1024"))?;
    demand(request.body["max_tokens"].as_u64().unwrap_or_default() > budget, || {
        Refusal::invalid(
            "`max_tokens` must be greater than `thinking.budget_tokens`. Please consult our documentation at \
             https://docs.claude.com/en/docs/build-with-claude/extended-thinking#max-tokens-and-context-window-size",
        )
    })
}
