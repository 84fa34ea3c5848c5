//! OpenAI's Responses API.

use serde_json::{Value, json};

use super::answer::Answer;
use super::conversation::{Conversation, Item, text_of};
use super::digest::sealed;
use super::json::{is_marked, list, text};
use super::prefix_cache::PromptPart;
use super::script::Stop;
use super::tokens::prompt_text;

mod item_rules;
mod rules;
mod stream;

pub use rules::RULES;
pub use stream::stream;

/// Returns the items of the input. A text is one message.
fn items(request: &Value) -> Vec<Value> {
    match &request["input"] {
        Value::String(input) => vec![json!({"type": "message", "role": "user", "content": input})],
        input => list(input).to_vec(),
    }
}

/// Returns an item's type. A message may leave it out.
fn kind(item: &Value) -> &str {
    if item["type"].is_null() && item["role"].is_string() { "message" } else { text(&item["type"]) }
}

/// Returns the part of an id that all items of one answer have, and whether that answer began with reasoning.
fn answer_of(id: &str) -> Option<(&str, bool)> {
    let key = id.split('_').nth(1)?;
    let (reasoned, key) = key.split_at_checked(1)?;
    (key.len() == 16).then_some((key, reasoned == "1"))
}

pub fn conversation(request: &Value) -> Conversation {
    let mut conversation = Conversation { model: text_of(&request["model"]), system: text_of(&request["instructions"]), items: Vec::new() };
    // The items that follow each other are one answer, unless their ids say otherwise.
    let mut open: Option<Option<String>> = None;
    for item in items(request) {
        let key = answer_of(text(&item["id"])).map(|(key, _)| key.to_owned());
        let said = text_of(&item["content"]);
        match (kind(&item), text(&item["role"])) {
            ("message", "system" | "developer") => conversation.add_system(&said),
            ("message", "user") => {
                conversation.items.push(Item::User(said));
                open = None;
            }
            ("function_call_output", _) => {
                let output = text_of(&item["output"]);
                conversation.items.push(Item::Result(output));
                open = None;
            }
            _ => {
                let goes_on = open.as_ref().is_some_and(|before| before.is_none() || key.is_none() || *before == key);
                match conversation.items.last_mut() {
                    Some(Item::Assistant(before)) if goes_on => before.push_str(&said),
                    _ => conversation.items.push(Item::Assistant(said)),
                }
                open = Some(key);
            }
        }
    }
    conversation
}

pub fn prompt(request: &Value) -> Vec<PromptPart> {
    let before = list(&request["tools"]).iter().chain([&request["instructions"]]).filter(|part| !part.is_null());
    let parts: Vec<Value> = before.cloned().chain(items(request)).collect();
    parts.iter().map(|part| PromptPart { text: prompt_text(part), breakpoint: is_marked(part) }).collect()
}

/// Reports whether the request asks for its reasoning in sealed form.
pub fn wants_sealed(request: &Value) -> bool {
    list(&request["include"]).iter().any(|wanted| wanted == "reasoning.encrypted_content")
}

/// Returns the items of the answer, each whole.
fn output(answer: &Answer) -> Vec<Value> {
    let key = answer.key();
    let reasoned = !answer.reasoning().is_empty();
    let id = |kind: &str| format!("{kind}_{}{key}", u8::from(reasoned));
    let mut items = Vec::new();
    if reasoned {
        let mut item = json!({"id": id("rs"), "type": "reasoning", "summary": [{"type": "summary_text", "text": answer.reasoning()}]});
        if answer.shows_thoughts {
            item["encrypted_content"] = sealed(&key).into();
        }
        items.push(item);
    }
    if !answer.text().is_empty() {
        let content = match answer.stop() {
            Some(Stop::Refusal) => json!({"type": "refusal", "refusal": answer.text()}),
            Some(Stop::Length | Stop::ContentFilter | Stop::Pause) | None => {
                json!({"type": "output_text", "text": answer.text(), "annotations": []})
            }
        };
        items.push(json!({"id": id("msg"), "type": "message", "status": status(answer), "role": "assistant", "content": [content]}));
    }
    items.extend(answer.scripted.calls.iter().enumerate().map(|(n, (call_id, call))| {
        let mut item = json!({
            "id": format!("{}_{n}", id("fc")), "type": "function_call", "status": "completed", "call_id": call_id, "name": call.tool,
            "arguments": call.arguments_text(),
        });
        // https://github.com/openai/openai-python, types/responses/response_function_tool_call.py
        if let Some(namespace) = &call.namespace {
            item["namespace"] = namespace.as_str().into();
        }
        item
    }));
    items
}

fn status(answer: &Answer) -> &'static str {
    match answer.stop() {
        Some(Stop::Length | Stop::ContentFilter) => "incomplete",
        Some(Stop::Refusal | Stop::Pause) | None => "completed",
    }
}

/// The response as an object, with these items and this status.
fn object(answer: &Answer, status: &str, items: Vec<Value>) -> Value {
    let usage = answer.usage;
    let reason = match answer.stop() {
        Some(Stop::Length) => json!({"reason": "max_output_tokens"}),
        Some(Stop::ContentFilter) => json!({"reason": "content_filter"}),
        Some(Stop::Refusal | Stop::Pause) | None => Value::Null,
    };
    json!({
        "id": format!("resp_{}", answer.key()), "object": "response", "created_at": 0, "model": answer.model, "status": status, "error": null,
        "incomplete_details": if status == "incomplete" { reason } else { Value::Null }, "output": items,
        "usage": if status == "in_progress" { Value::Null } else { json!({
            "input_tokens": usage.input, "input_tokens_details": {"cached_tokens": usage.cached, "cache_write_tokens": usage.cache_written},
            "output_tokens": usage.output, "output_tokens_details": {"reasoning_tokens": usage.reasoning},
            "total_tokens": usage.input + usage.output,
        }) },
    })
}

pub fn response(answer: &Answer) -> Value {
    object(answer, status(answer), output(answer))
}
