//! What the Responses API demands of the items of the input.

use std::collections::HashSet;

use serde_json::Value;

use super::rules::unknown;
use super::{answer_of, items, kind};
use crate::endpoint::digest::is_sealed;
use crate::endpoint::json::{is_plain_name, list, text, unknown_field};
use crate::endpoint::rule::{Refusal, Request, Rule, demand};

/// Fields of items. Source: https://github.com/openai/openai-python, `types/responses/response_input_param.py`.
const ITEM_FIELDS: &[(&str, &str, &[&str])] = &[
    ("message", "msg", &["type", "id", "role", "content", "status", "phase"]),
    ("reasoning", "rs", &["type", "id", "summary", "content", "encrypted_content"]),
    ("function_call", "fc", &["type", "id", "call_id", "name", "arguments", "status", "namespace"]),
    ("function_call_output", "fc", &["type", "id", "call_id", "output", "status"]),
];

pub const FIELDS_OF_ITEMS: Rule = Rule {
    name: "an item has only fields of the API",
    source: "https://github.com/1jehuang/jcode/issues/1028 (reasoning takes no status), https://github.com/pydantic/pydantic-ai/issues/3653",
    check: |request| {
        each(request, |at, item| {
            let known = ITEM_FIELDS.iter().find(|(name, _, _)| *name == kind(item));
            match known.and_then(|(_, _, fields)| unknown_field(item, fields)) {
                Some(field) => Err(unknown(&format!("input[{at}].{field}"))),
                None => Ok(()),
            }
        })
    },
};

pub const ID_PREFIX: Rule = Rule {
    name: "an item's id begins as its type demands",
    source: "https://github.com/openai/codex/issues/33176 (msg), https://github.com/jlcodes99/cockpit-tools/issues/2090 (rs)",
    check: |request| {
        each(request, |at, item| {
            let (param, id) = (format!("input[{at}].id"), &item["id"]);
            let Some((_, prefix, _)) = ITEM_FIELDS.iter().find(|(name, _, _)| *name == kind(item)).filter(|_| !id.is_null()) else {
                return Ok(());
            };
            demand(is_plain_name(text(id), usize::MAX), || {
                // https://github.com/langchain-ai/langchainjs/issues/11044
                Refusal::invalid(format!(
                    "Invalid '{param}': '{}'. Expected an ID that contains letters, numbers, underscores, or dashes, but this value contained \
                     additional characters.",
                    text(id)
                ))
                .param(&param)
                .code("invalid_value")
            })?;
            demand(text(id).starts_with(prefix), || {
                Refusal::invalid(format!("Invalid '{param}': '{}'. Expected an ID that begins with '{prefix}'.", text(id)))
                    .param(&param)
                    .code("invalid_id_prefix")
            })
        })
    },
};

pub const NO_DUPLICATES: Rule = Rule {
    name: "no two items have one id",
    source: "https://github.com/microsoft/vscode/issues/321977 and https://github.com/OpenRouterTeam/ai-sdk-provider/issues/254",
    check: |request| {
        let mut seen = HashSet::new();
        each(request, |_, item| {
            let id = text(&item["id"]).to_owned();
            demand(id.is_empty() || seen.insert(id.clone()), || {
                let sentence = "Remove duplicate items from your input and try again.";
                Refusal::invalid(format!("Duplicate item found with id {id}. {sentence}")).param("input")
            })
        })
    },
};

pub const ASSISTANT_TEXT: Rule = Rule {
    name: "an assistant's text is output_text, a user's input_text",
    source: "https://github.com/jeremychone/rust-genai/pull/119",
    check: |request| {
        each(request, |at, item| {
            let (known, sentence): (&[&str], _) = match text(&item["role"]) {
                "assistant" => (&["output_text", "refusal"], "'output_text' and 'refusal'"),
                _ => (&["input_text", "input_image", "input_file"], "'input_text', 'input_image', and 'input_file'"),
            };
            let parts = if kind(item) == "message" { list(&item["content"]) } else { &[] };
            parts.iter().enumerate().try_for_each(|(n, part)| {
                let found = text(&part["type"]);
                demand(known.contains(&found), || {
                    Refusal::invalid(format!("Invalid value: '{found}'. Supported values are: {sentence}."))
                        .param(format!("input[{at}].content[{n}]"))
                        .code("invalid_value")
                })
            })
        })
    },
};

pub const NAMES_AND_IDS: Rule = Rule {
    name: "a call has a plain name and an id of at most 64 characters",
    source: "https://github.com/orchidfiles/ungate/issues/26 and https://github.com/mcp-use/mcp-use/issues/90",
    check: |request| {
        each(request, |at, item| {
            let (name, id) = (text(&item["name"]), text(&item["call_id"]));
            demand(kind(item) != "function_call" || is_plain_name(name, 128), || not_a_name(&format!("input[{at}].name")))?;
            demand(id.chars().count() <= 64, || {
                let (param, length) = (format!("input[{at}].call_id"), id.chars().count());
                let sentence = format!("Expected a string with maximum length 64, but got a string with length {length} instead.");
                Refusal::invalid(format!("Invalid '{param}': string too long. {sentence}")).param(&param).code("string_above_max_length")
            })
        })
    },
};

pub const REASONING_WITHOUT_STORAGE: Rule = Rule {
    name: "what is not stored is given back whole, not by its id",
    source: "https://github.com/openai/openai-agents-js/issues/546 and https://github.com/can1357/oh-my-pi/pull/50",
    check: |request| {
        let stored = request.body["store"] != false;
        each(request, |_, item| {
            let by_id = match kind(item) {
                "reasoning" => item["id"].is_string() && !item["encrypted_content"].is_string(),
                "item_reference" => true,
                _ => false,
            };
            demand(stored || !by_id, || {
                let sentence =
                    "Items are not persisted when `store` is set to false. Try again with `store` set to true, or remove this item";
                Refusal::with_status(404, format!("Item with id '{}' not found. {sentence} from your input.", text(&item["id"])))
                    .param("input")
            })
        })
    },
};

pub const SEALED_UNALTERED: Rule = Rule {
    name: "sealed reasoning is given back unaltered",
    source: "https://github.com/openai/codex/issues/8145 and https://github.com/Wei-Shaw/sub2api/issues/2863",
    check: |request| {
        each(request, |_, item| {
            let content = &item["encrypted_content"];
            demand(content.is_null() || is_sealed(text(content)), || {
                let shown: String = text(content).chars().take(7).collect();
                let reason = "Reason: Encrypted content could not be decrypted or parsed.";
                Refusal::invalid(format!("The encrypted content {shown}... could not be verified. {reason}"))
                    .code("invalid_encrypted_content")
            })
        })
    },
};

pub const REASONING_BEFORE_ITS_ITEM: Rule = Rule {
    name: "an item comes with the reasoning that led to it",
    // The endpoint knows an item by its id. One without an id is taken as it is.
    source: "https://github.com/continuedev/continue/issues/12620 and \
             https://github.com/alibaba/open-code-review/issues/812",
    check: |request| {
        let mut reasonings = HashSet::new();
        each(request, |_, item| {
            let Some((key, true)) = answer_of(text(&item["id"])) else { return Ok(()) };
            if kind(item) == "reasoning" {
                reasonings.insert(key.to_owned());
            }
            demand(reasonings.contains(key), || {
                Refusal::invalid(format!(
                    "Item '{}' of type '{}' was provided without its required 'reasoning' item: 'rs_1{key}'.",
                    text(&item["id"]),
                    kind(item)
                ))
                .param("input")
            })
        })
    },
};

pub const ITEM_AFTER_ITS_REASONING: Rule = Rule {
    name: "reasoning comes with the item that it led to",
    source: "https://github.com/openai/openai-node/issues/1567 and https://github.com/continuedev/continue/issues/8933",
    check: |request| {
        let items = items(request.body);
        items.iter().enumerate().filter(|(_, item)| kind(item) == "reasoning").try_for_each(|(at, item)| {
            let next = items[at + 1..].iter().find(|next| kind(next) != "reasoning");
            let led_to = next.is_some_and(|next| kind(next) == "function_call" || next["role"] == "assistant");
            demand(led_to, || {
                let id = text(&item["id"]);
                Refusal::invalid(format!("Item '{id}' of type 'reasoning' was provided without its required following item."))
                    .param("input")
            })
        })
    },
};

pub const OUTPUT_HAS_CALL: Rule = Rule {
    name: "an output follows its call",
    source: "https://github.com/microsoft/vscode/issues/320060",
    check: |request| {
        let mut calls = HashSet::new();
        each(request, |_, item| {
            let id = text(&item["call_id"]);
            if kind(item) == "function_call" {
                calls.insert(id.to_owned());
            }
            demand(kind(item) != "function_call_output" || calls.contains(id), || {
                Refusal::invalid(format!("No tool call found for function call output with call_id {id}.")).param("input")
            })
        })
    },
};

pub const CALL_HAS_OUTPUT: Rule = Rule {
    name: "each call has an output",
    source: "https://github.com/router-for-me/CLIProxyAPI/issues/2368",
    check: |request| {
        let items = items(request.body);
        let outputs: HashSet<&str> =
            items.iter().filter(|item| kind(item) == "function_call_output").map(|item| text(&item["call_id"])).collect();
        let mut calls = items.iter().filter(|item| kind(item) == "function_call").map(|item| text(&item["call_id"]));
        match calls.find(|id| !outputs.contains(id)) {
            Some(id) => Err(Refusal::invalid(format!("No tool output found for function call {id}.")).param("input")),
            None => Ok(()),
        }
    },
};

/// OpenAI's refusal of a name that does not match its pattern.
pub fn not_a_name(param: &str) -> Refusal {
    let sentence = "Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'.";
    Refusal::invalid(format!("Invalid '{param}': string does not match pattern. {sentence}")).param(param).code("invalid_value")
}

/// Checks each item, with its place.
fn each(request: &Request, mut check: impl FnMut(usize, &Value) -> Result<(), Refusal>) -> Result<(), Refusal> {
    items(request.body).iter().enumerate().try_for_each(|(at, item)| check(at, item))
}
