//! What chat completions demand of tools, calls and results. The compatible endpoints demand it too.

use std::collections::HashSet;

use serde_json::Value;

use super::rules::{each, too_long};
use crate::endpoint::json::{is_plain_name, list, text};
use crate::endpoint::rule::{Refusal, Request, Rule, demand};

pub const RULES: &[Rule] = &[
    Rule {
        name: "a list of calls is not empty",
        source: "https://github.com/openai/openai-node/pull/1341",
        check: |request| {
            each(request, |at, message| {
                demand(message["tool_calls"].as_array().is_none_or(|calls| !calls.is_empty()), || {
                    let param = format!("messages[{at}].tool_calls");
                    let sentence = "Expected an array with minimum length 1, but got an empty array instead.";
                    Refusal::invalid(format!("Invalid '{param}': empty array. {sentence}")).param(param).code("empty_array")
                })
            })
        },
    },
    Rule { name: "a result follows its call", source: "https://github.com/miurla/morphic/issues/136", check: result_follows_call },
    Rule {
        name: "each call has a result before the next message",
        source: "https://github.com/aliasrobotics/cai/issues/111",
        check: calls_are_answered,
    },
    Rule {
        name: "a tool's name is made of letters, digits, _ and -",
        source: "https://github.com/brekkylab/ailoy/pull/109; in the history: https://github.com/mcp-use/mcp-use/issues/90",
        check: names,
    },
    Rule {
        name: "a call's id has at most 40 characters",
        source: "https://github.com/vercel/ai/issues/8132",
        check: |request| {
            each_call(request, |param, call| {
                let length = text(&call["id"]).chars().count();
                demand(length <= 40, || too_long(&format!("{param}.id"), 40, length))
            })
        },
    },
    Rule {
        name: "there are at most 128 tools",
        source: "https://github.com/vishalmysore/Tools4AI/issues/16",
        check: |request| {
            let count = list(&request.body["tools"]).len();
            demand(count <= 128, || {
                let sentence = format!("Expected an array with maximum length 128, but got an array with length {count} instead.");
                Refusal::invalid(format!("Invalid 'tools': array too long. {sentence}")).param("tools").code("array_above_max_length")
            })
        },
    },
];

fn each_call(request: &Request, mut check: impl FnMut(&str, &Value) -> Result<(), Refusal>) -> Result<(), Refusal> {
    each(request, |at, message| {
        let calls = list(&message["tool_calls"]).iter().enumerate();
        calls.into_iter().try_for_each(|(n, call)| check(&format!("messages[{at}].tool_calls[{n}]"), call))
    })
}

fn result_follows_call(request: &Request) -> Result<(), Refusal> {
    let mut open: HashSet<&str> = HashSet::new();
    let messages = list(&request.body["messages"]);
    for (at, message) in messages.iter().enumerate() {
        if message["role"] == "tool" {
            demand(open.remove(text(&message["tool_call_id"])), || {
                let sentence = "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.";
                Refusal::invalid(format!("Invalid parameter: {sentence}")).param(format!("messages.[{at}].role"))
            })?;
        } else {
            open = list(&message["tool_calls"]).iter().map(|call| text(&call["id"])).collect();
        }
    }
    Ok(())
}

fn calls_are_answered(request: &Request) -> Result<(), Refusal> {
    let messages = list(&request.body["messages"]);
    for (at, message) in messages.iter().enumerate() {
        let results = messages[at + 1..].iter().take_while(|next| next["role"] == "tool");
        let answered: HashSet<&str> = results.map(|result| text(&result["tool_call_id"])).collect();
        let ids = list(&message["tool_calls"]).iter().map(|call| text(&call["id"]));
        let missing: Vec<&str> = ids.filter(|id| !answered.contains(id)).collect();
        demand(missing.is_empty(), || {
            Refusal::invalid(format!(
                "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The following \
                 tool_call_ids did not have response messages: {}",
                missing.join(", ")
            ))
            .param(format!("messages.[{}].role", at + 1))
        })?;
    }
    Ok(())
}

fn names(request: &Request) -> Result<(), Refusal> {
    let check = |param: &str, name: &str| {
        let param = format!("{param}.function.name");
        demand(name.chars().count() <= 64, || too_long(&param, 64, name.chars().count()))?;
        demand(is_plain_name(name, 64), || {
            let sentence = "Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'.";
            Refusal::invalid(format!("Invalid '{param}': string does not match pattern. {sentence}")).param(&param).code("invalid_value")
        })
    };
    for (n, tool) in list(&request.body["tools"]).iter().enumerate() {
        check(&format!("tools[{n}]"), text(&tool["function"]["name"]))?;
    }
    each_call(request, |param, call| check(param, text(&call["function"]["name"])))
}
