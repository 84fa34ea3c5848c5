//! What Anthropic demands of the thoughts that a client gives back.

use serde_json::Value;

use super::blocks;
use super::content_rules::each_block;
use crate::endpoint::digest::signature;
use crate::endpoint::json::{list, text};
use crate::endpoint::rule::{Refusal, Request, Rule, demand};

pub const RULES: &[Rule] = &[
    Rule {
        name: "a thinking block has a signature",
        source: "https://github.com/anthropics/anthropic-sdk-python, types/thinking_block_param.py (Required)",
        check: |request| {
            each_block(request, &mut |path, _, block| {
                demand(block["type"] != "thinking" || block["signature"].is_string(), || {
                    Refusal::invalid(format!("{path}.thinking.signature: Field required"))
                })
            })
        },
    },
    Rule {
        name: "thinking is given back unaltered",
        // An empty or foreign signature is refused for certain. Whether a changed text with its old signature is, was measured otherwise
        // once (https://github.com/NousResearch/hermes-agent/pull/24107); the maker says that any difference fails.
        source: "https://github.com/anthropics/anthropic-sdk-python/issues/1598 and \
                 https://github.com/lbjlaq/Antigravity-Manager/issues/498",
        check: |request| {
            each_block(request, &mut |path, _, block| {
                let altered = block["type"] == "thinking" && text(&block["signature"]) != signature(text(&block["thinking"]));
                demand(!altered, || Refusal::invalid(format!("{path}: Invalid `signature` in `thinking` block")))
            })
        },
    },
    Rule {
        name: "with thinking on, the turn that calls tools begins with a thinking block",
        source: "https://github.com/lbjlaq/Antigravity-Manager/issues/139 and \
                 https://platform.claude.com/docs/en/build-with-claude/extended-thinking (preserving thinking blocks)",
        check: thinking_before_calls,
    },
];

/// Looks at the turn that the results at the end belong to: all since the last message of a person.
fn thinking_before_calls(request: &Request) -> Result<(), Refusal> {
    if request.body["thinking"]["type"] != "enabled" {
        return Ok(());
    }
    let messages = list(&request.body["messages"]);
    let is_person = |message: &Value| message["role"] == "user" && !blocks(message).iter().any(|block| block["type"] == "tool_result");
    let from = messages.iter().rposition(is_person).map_or(0, |at| at + 1);
    let first = messages[from..].iter().position(|message| message["role"] == "assistant");
    let Some(at) = first.map(|at| from + at) else { return Ok(()) };
    let blocks = blocks(&messages[at]);
    let calls = messages[at..].iter().any(|message| list(&message["content"]).iter().any(|block| block["type"] == "tool_use"));
    let found = text(&blocks.first().unwrap_or(&Value::Null)["type"]).to_owned();
    demand(!calls || ["thinking", "redacted_thinking"].contains(&found.as_str()), || {
        Refusal::invalid(format!(
            "messages.{at}.content.0.type: Expected `thinking` or `redacted_thinking`, but found `{found}`. When `thinking` is enabled, a \
             final `assistant` message must start with a thinking block (preceeding the lastmost set of `tool_use` and `tool_result` \
             blocks). We recommend you include thinking blocks from previous turns. To avoid this requirement, disable `thinking`. Please \
             consult our documentation at https://docs.claude.com/en/docs/build-with-claude/extended-thinking"
        ))
    })
}
