//! What Anthropic demands of the contents of messages.

use serde_json::Value;

use super::blocks;
use crate::endpoint::json::{list, text, unknown_field};
use crate::endpoint::rule::{Refusal, Request, Rule, demand};

/// Fields of the blocks that a client writes. Source: https://github.com/anthropics/anthropic-sdk-python, `types/*_block_param.py`.
const BLOCK_FIELDS: &[(&str, &[&str])] = &[
    ("text", &["type", "text", "cache_control", "citations"]),
    ("thinking", &["type", "thinking", "signature"]),
    ("redacted_thinking", &["type", "data"]),
    ("tool_use", &["type", "id", "name", "input", "cache_control", "caller"]),
    ("tool_result", &["type", "tool_use_id", "content", "is_error", "cache_control"]),
];

pub const RULES: &[Rule] = &[
    Rule {
        name: "every message but the last has content",
        source: "https://github.com/anthropics/claude-code/issues/6774 and https://github.com/glowingjade/obsidian-smart-composer/pull/156",
        check: |request| {
            let messages = list(&request.body["messages"]);
            messages.iter().enumerate().try_for_each(|(at, message)| {
                let empty = match &message["content"] {
                    Value::String(content) => content.is_empty(),
                    content => list(content).is_empty(),
                };
                let may_be_empty = at + 1 == messages.len() && message["role"] == "assistant";
                demand(!empty || may_be_empty, || {
                    Refusal::invalid(format!(
                        "messages.{at}: all messages must have non-empty content except for the optional final assistant message"
                    ))
                })
            })
        },
    },
    Rule {
        name: "text is not empty",
        source: "https://github.com/anthropics/anthropic-sdk-python/issues/461 and https://github.com/anthropics/claude-code/issues/59812",
        check: |request| {
            each_text(request, &mut |path, block| {
                let marked = !block["cache_control"].is_null();
                demand(!marked || !text(&block["text"]).is_empty(), || {
                    Refusal::invalid(format!("{path}.text: cache_control cannot be set for empty text blocks"))
                })?;
                let place = path.split('.').next().unwrap_or_default();
                demand(!text(&block["text"]).is_empty(), || Refusal::invalid(format!("{place}: text content blocks must be non-empty")))
            })
        },
    },
    Rule {
        name: "text is not blank",
        source: "https://github.com/anthropics/claude-code/issues/23369",
        check: |request| {
            each_text(request, &mut |path, block| {
                let place = path.split('.').next().unwrap_or_default();
                demand(!text(&block["text"]).trim().is_empty(), || {
                    Refusal::invalid(format!("{place}: text content blocks must contain non-whitespace text"))
                })
            })
        },
    },
    Rule {
        name: "the conversation ends with a user message",
        source: "https://github.com/ericc-ch/copilot-api/pull/261 (Claude 4.6 and later)",
        check: |request| {
            let Some(last) = list(&request.body["messages"]).last() else { return Ok(()) };
            // https://platform.claude.com/docs/en/build-with-claude/handling-stop-reasons: an answer that paused is sent back as it is.
            let paused = blocks(last).iter().any(|block| block["type"] == "server_tool_use");
            demand(last["role"] == "user" || paused || request.model.prefill, || {
                Refusal::invalid("This model does not support assistant message prefill. The conversation must end with a user message.")
            })
        },
    },
    Rule {
        name: "the assistant's last text does not end with white space",
        source: "https://github.com/tailcallhq/forgecode/issues/1872",
        check: |request| {
            let Some(last) = list(&request.body["messages"]).last().filter(|last| last["role"] == "assistant") else { return Ok(()) };
            let blocks = blocks(last);
            let Some(end) = blocks.last().filter(|block| block["type"] == "text") else { return Ok(()) };
            demand(!text(&end["text"]).ends_with(char::is_whitespace), || {
                Refusal::invalid("messages: final assistant content cannot end with trailing whitespace")
            })
        },
    },
    Rule {
        name: "a block has only fields of the API",
        source: "https://github.com/anthropics/anthropic-sdk-python, types/*_block_param.py; the text as in \
                 https://github.com/BerriAI/litellm/issues/30835",
        check: |request| {
            each_block(request, &mut |path, _, block| {
                let known = BLOCK_FIELDS.iter().find(|(kind, _)| block["type"] == *kind);
                match known.and_then(|(kind, fields)| Some((kind, unknown_field(block, fields)?))) {
                    Some((kind, field)) => Err(Refusal::invalid(format!("{path}.{kind}.{field}: Extra inputs are not permitted"))),
                    None => Ok(()),
                }
            })
        },
    },
];

/// Checks each block of each message, with its path and the message's role.
pub fn each_block(request: &Request, check: &mut dyn FnMut(&str, &str, &Value) -> Result<(), Refusal>) -> Result<(), Refusal> {
    for (at, message) in list(&request.body["messages"]).iter().enumerate() {
        for (n, block) in blocks(message).iter().enumerate() {
            check(&format!("messages.{at}.content.{n}"), text(&message["role"]), block)?;
        }
    }
    Ok(())
}

/// Checks each block of text: of the system prompt, of messages and of results.
fn each_text(request: &Request, check: &mut dyn FnMut(&str, &Value) -> Result<(), Refusal>) -> Result<(), Refusal> {
    for (n, block) in list(&request.body["system"]).iter().enumerate() {
        check(&format!("system.{n}"), block)?;
    }
    each_block(request, &mut |path, _, block| match text(&block["type"]) {
        "text" => check(path, block),
        "tool_result" => {
            let inner = list(&block["content"]).iter().filter(|inner| inner["type"] == "text");
            inner.into_iter().try_for_each(|inner| check(path, inner))
        }
        _ => Ok(()),
    })
}
