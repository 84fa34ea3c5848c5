//! Anthropic's Messages API.

use serde_json::{Value, json};

use super::answer::Answer;
use super::conversation::{Conversation, Item, text_of};
use super::digest::signature;
use super::json::{list, text};
use super::prefix_cache::PromptPart;
use super::rule::Rule;
use super::script::Stop;
use super::tokens::prompt_text;

mod content_rules;
mod rules;
mod stream;
mod thinking_rules;
mod tool_rules;

pub use stream::stream;

/// What a model thinks that always thinks and has nothing to think in the script.
const THOUGHT: &str = "I think about it.";

pub fn rules() -> impl Iterator<Item = &'static Rule> {
    let tables = [rules::RULES, content_rules::RULES, tool_rules::RULES, thinking_rules::RULES];
    tables.into_iter().flatten()
}

/// Returns the content of a message as blocks. A text is one block.
fn blocks(message: &Value) -> Vec<Value> {
    match &message["content"] {
        Value::String(content) => vec![json!({"type": "text", "text": content})],
        content => list(content).to_vec(),
    }
}

pub fn conversation(request: &Value) -> Conversation {
    let mut conversation = Conversation { model: text_of(&request["model"]), system: text_of(&request["system"]), items: Vec::new() };
    for message in list(&request["messages"]) {
        let said = text_of(&message["content"]);
        if message["role"] == "assistant" {
            conversation.items.push(Item::Assistant(said));
            continue;
        }
        let results = list(&message["content"]).iter().filter(|block| block["type"] == "tool_result");
        conversation.items.extend(results.map(|result| Item::Result(text_of(&result["content"]))));
        if !said.is_empty() {
            conversation.items.push(Item::User(said));
        }
    }
    conversation
}

pub fn prompt(request: &Value) -> Vec<PromptPart> {
    let part = |block: &Value| PromptPart { text: prompt_text(block), breakpoint: !block["cache_control"].is_null() };
    let mut parts: Vec<PromptPart> = list(&request["tools"]).iter().map(part).collect();
    match &request["system"] {
        Value::String(system) => parts.push(PromptPart { text: system.clone(), breakpoint: false }),
        system => parts.extend(list(system).iter().map(part)),
    }
    for message in list(&request["messages"]) {
        parts.extend(blocks(message).iter().map(|block| {
            let PromptPart { text: said, breakpoint } = part(block);
            PromptPart { text: format!("{}: {said}", text(&message["role"])), breakpoint }
        }));
    }
    // https://platform.claude.com/docs/en/build-with-claude/prompt-caching: a mark on the request marks its last block.
    if let (Some(last), false) = (parts.last_mut(), request["cache_control"].is_null()) {
        last.breakpoint = true;
    }
    parts
}

/// Reports whether the request turns thinking on.
pub fn thinks(request: &Value) -> bool {
    ["enabled", "adaptive"].contains(&text(&request["thinking"]["type"]))
}

/// Returns the blocks of the answer, each whole.
fn answer_blocks(answer: &Answer) -> Vec<Value> {
    let mut blocks = Vec::new();
    if answer.shows_thoughts {
        let thoughts = if answer.reasoning().is_empty() { THOUGHT } else { answer.reasoning() };
        blocks.push(json!({"type": "thinking", "thinking": thoughts, "signature": signature(thoughts)}));
    }
    if !answer.text().is_empty() {
        blocks.push(json!({"type": "text", "text": answer.text()}));
    }
    if answer.stop() == Some(Stop::Pause) {
        let id = format!("srvtoolu_{}", answer.key());
        blocks.push(json!({"type": "server_tool_use", "id": id, "name": "web_search", "input": {"query": "more"}}));
    }
    let calls = answer.scripted.calls.iter();
    blocks.extend(calls.map(|(id, call)| json!({"type": "tool_use", "id": id, "name": call.tool, "input": call.args})));
    blocks
}

fn stop_reason(answer: &Answer) -> &'static str {
    match answer.stop() {
        Some(Stop::Length) => "max_tokens",
        Some(Stop::Refusal | Stop::ContentFilter) => "refusal",
        Some(Stop::Pause) => "pause_turn",
        None if answer.scripted.calls.is_empty() => "end_turn",
        None => "tool_use",
    }
}

fn usage(answer: &Answer, output: u64) -> Value {
    let usage = answer.usage;
    // https://platform.claude.com/docs/en/build-with-claude/prompt-caching: the three numbers of the input are disjoint.
    json!({
        "input_tokens": usage.input - usage.cached - usage.cache_written, "cache_read_input_tokens": usage.cached,
        "cache_creation_input_tokens": usage.cache_written, "output_tokens": output,
    })
}

pub fn response(answer: &Answer) -> Value {
    json!({
        "id": format!("msg_{}", answer.key()), "type": "message", "role": "assistant", "model": answer.model,
        "content": answer_blocks(answer), "stop_reason": stop_reason(answer), "stop_sequence": null,
        "usage": usage(answer, answer.usage.output),
    })
}
