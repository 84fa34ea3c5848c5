//! What Anthropic demands of calls and their results.

use std::collections::HashSet;

use serde_json::Value;

use super::blocks;
use super::content_rules::each_block;
use crate::endpoint::json::{is_plain_name, list, text};
use crate::endpoint::rule::{Refusal, Request, Rule, demand};

pub const RULES: &[Rule] = &[
    Rule {
        name: "a call's id is made of letters, digits, _ and -",
        source: "https://github.com/tailcallhq/forgecode/issues/1142",
        check: |request| {
            each_block(request, &mut |path, _, block| {
                let bad = block["type"] == "tool_use" && !is_plain_name(text(&block["id"]), usize::MAX);
                demand(!bad, || Refusal::invalid(format!("{path}.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'")))
            })
        },
    },
    Rule {
        name: "the name in a call has 1 to 200 characters",
        source: "https://github.com/anthropics/claude-code/issues/2673 and https://github.com/TanStack/ai/pull/536",
        check: |request| {
            each_block(request, &mut |path, _, block| {
                let length = if block["type"] == "tool_use" { text(&block["name"]).chars().count() } else { 1 };
                demand(length > 0, || Refusal::invalid(format!("{path}.tool_use.name: String should have at least 1 character")))?;
                demand(length <= 200, || Refusal::invalid(format!("{path}.tool_use.name: String should have at most 200 characters")))
            })
        },
    },
    Rule {
        name: "a call's input is an object",
        source: "https://github.com/anthropics/anthropic-sdk-python, types/tool_use_block_param.py; reported as \
                 `tool_use.input: Input should be a valid dictionary`",
        check: |request| {
            each_block(request, &mut |path, _, block| {
                let bad = block["type"] == "tool_use" && !block["input"].is_object();
                demand(!bad, || Refusal::invalid(format!("{path}.tool_use.input: Input should be a valid dictionary")))
            })
        },
    },
    Rule {
        name: "no two calls have one id",
        source: "https://github.com/trycua/cua/issues/524",
        check: |request| {
            let mut seen = HashSet::new();
            each_block(request, &mut |path, _, block| {
                let again = block["type"] == "tool_use" && !seen.insert(text(&block["id"]).to_owned());
                demand(!again, || Refusal::invalid(format!("{path}: `tool_use` ids must be unique")))
            })
        },
    },
    Rule {
        name: "a call's results are the first blocks of the next message",
        source: "https://github.com/anthropics/claude-code/issues/5060 and \
                 https://platform.claude.com/docs/en/agents-and-tools/tool-use/implement-tool-use (results come first)",
        check: calls_are_answered,
    },
    Rule {
        name: "a result follows its call in the message before",
        source: "https://github.com/router-for-me/CLIProxyAPI/issues/497",
        check: results_have_calls,
    },
    Rule {
        name: "a call has one result",
        source: "https://github.com/vectorize-io/hindsight/pull/4250",
        check: |request| {
            for (at, message) in list(&request.body["messages"]).iter().enumerate() {
                let mut seen = HashSet::new();
                for (n, block) in blocks(message).iter().enumerate().filter(|(_, block)| block["type"] == "tool_result") {
                    let id = text(&block["tool_use_id"]).to_owned();
                    demand(seen.insert(id.clone()), || {
                        Refusal::invalid(format!(
                            "messages.{at}.content.{n}: each tool_use must have a single result. Found multiple `tool_result` blocks with id: {id}"
                        ))
                    })?;
                }
            }
            Ok(())
        },
    },
];

/// Returns the ids of a message's calls.
fn calls(message: &Value) -> Vec<String> {
    let calls = blocks(message).into_iter().filter(|block| block["type"] == "tool_use");
    calls.map(|call| text(&call["id"]).to_owned()).collect()
}

fn calls_are_answered(request: &Request) -> Result<(), Refusal> {
    let messages = list(&request.body["messages"]);
    for (at, message) in messages.iter().enumerate() {
        let next = messages.get(at + 1).map(blocks).unwrap_or_default();
        let first = next.iter().take_while(|block| block["type"] == "tool_result");
        let answered: HashSet<&str> = first.map(|result| text(&result["tool_use_id"])).collect();
        let missing: Vec<String> = calls(message).into_iter().filter(|id| !answered.contains(id.as_str())).collect();
        demand(missing.is_empty(), || {
            Refusal::invalid(format!(
                "messages.{at}: `tool_use` ids were found without `tool_result` blocks immediately after: {}. Each `tool_use` block must have \
                 a corresponding `tool_result` block in the next message.",
                missing.join(", ")
            ))
        })?;
    }
    Ok(())
}

fn results_have_calls(request: &Request) -> Result<(), Refusal> {
    let messages = list(&request.body["messages"]);
    for (at, message) in messages.iter().enumerate() {
        let before = at.checked_sub(1).map(|before| calls(&messages[before])).unwrap_or_default();
        for (n, block) in blocks(message).iter().enumerate().filter(|(_, block)| block["type"] == "tool_result") {
            let id = text(&block["tool_use_id"]);
            demand(before.iter().any(|call| call == id), || {
                Refusal::invalid(format!(
                    "messages.{at}.content.{n}: unexpected `tool_use_id` found in `tool_result` blocks: {id}. Each `tool_result` block must \
                     have a corresponding `tool_use` block in the previous message."
                ))
            })?;
        }
    }
    Ok(())
}
