//! Gemini's `generateContent` and `streamGenerateContent`.

use serde_json::{Value, json};

use super::answer::Answer;
use super::conversation::{Conversation, Item};
use super::digest::signature;
use super::json::{list, text};
use super::pieces::pieces;
use super::prefix_cache::PromptPart;
use super::rule::Rule;
use super::script::Stop;
use super::sse::data;
use super::tokens::prompt_text;

mod rules;
mod schema_rules;
mod turn_rules;

pub fn rules() -> impl Iterator<Item = &'static Rule> {
    rules::RULES.iter().chain(schema_rules::RULES).chain(turn_rules::RULES)
}

/// Returns a field that may be written in the one spelling or the other, as all fields of this API.
fn field<'v>(value: &'v Value, camel: &str, snake: &str) -> &'v Value {
    if value[camel].is_null() { &value[snake] } else { &value[camel] }
}

fn call_of(part: &Value) -> &Value {
    field(part, "functionCall", "function_call")
}

fn response_of(part: &Value) -> &Value {
    field(part, "functionResponse", "function_response")
}

/// Returns what the parts say, thoughts left out.
fn said(parts: &[Value]) -> String {
    let said = parts.iter().filter(|part| part["thought"] != true).filter_map(|part| part["text"].as_str());
    said.collect::<Vec<_>>().join("\n")
}

/// Returns a tool's output: the texts of its response, or else all of it.
fn output(response: &Value) -> String {
    let texts = response.as_object().into_iter().flat_map(serde_json::Map::values).filter_map(Value::as_str);
    let texts: Vec<&str> = texts.collect();
    if texts.is_empty() { response.to_string() } else { texts.join("\n") }
}

pub fn conversation(request: &Value) -> Conversation {
    let system = field(request, "systemInstruction", "system_instruction");
    let mut conversation =
        Conversation { model: text(&request["model"]).to_owned(), system: said(list(&system["parts"])), items: Vec::new() };
    for content in list(&request["contents"]) {
        let parts = list(&content["parts"]);
        if content["role"] == "model" {
            conversation.items.push(Item::Assistant(said(parts)));
            continue;
        }
        let responses = parts.iter().map(response_of).filter(|response| !response.is_null());
        conversation.items.extend(responses.map(|response| Item::Result(output(&response["response"]))));
        if parts.iter().any(|part| part["text"].is_string()) {
            conversation.items.push(Item::User(said(parts)));
        }
    }
    conversation
}

pub fn prompt(request: &Value) -> Vec<PromptPart> {
    let system = field(request, "systemInstruction", "system_instruction");
    let parts = list(&request["tools"]).iter().chain([system]).filter(|part| !part.is_null()).chain(list(&request["contents"]));
    parts.map(|part| PromptPart { text: prompt_text(part), breakpoint: false }).collect()
}

/// Reports whether the request asks for a summary of the thoughts.
pub fn wants_thoughts(request: &Value) -> bool {
    request["generationConfig"]["thinkingConfig"]["includeThoughts"] == true
}

/// Returns the parts of the answer. With `streamed`, texts are in pieces, and the signature of a text comes in a last, empty part.
fn parts(answer: &Answer, streamed: bool) -> Vec<Value> {
    let cut = |text: &str| if streamed { pieces(text) } else { vec![text.to_owned()] };
    let reasons = !answer.reasoning().is_empty();
    let mut parts = Vec::new();
    if reasons && answer.shows_thoughts {
        parts.extend(cut(answer.reasoning()).into_iter().map(|piece| json!({"text": piece, "thought": true})));
    }
    if !answer.text().is_empty() && finish(answer) != "SAFETY" {
        parts.extend(cut(answer.text()).into_iter().map(|piece| json!({"text": piece})));
    }
    // https://ai.google.dev/gemini-api/docs/thought-signatures: on the first call of a step, or else on the last part, which a stream may
    // send with an empty text.
    let signed = signature(&answer.key());
    if answer.scripted.calls.is_empty() && reasons {
        match parts.last_mut() {
            Some(last) if !streamed => last["thoughtSignature"] = signed.clone().into(),
            _ => parts.push(json!({"text": "", "thoughtSignature": signed.clone()})),
        }
    }
    parts.extend(answer.scripted.calls.iter().enumerate().map(|(n, (id, call))| {
        let mut part = json!({"functionCall": {"id": id, "name": call.tool, "args": call.args}});
        if n == 0 {
            part["thoughtSignature"] = signed.clone().into();
        }
        part
    }));
    parts
}

fn finish(answer: &Answer) -> &'static str {
    match answer.stop() {
        Some(Stop::Length) => "MAX_TOKENS",
        Some(Stop::Refusal) => "SAFETY",
        Some(Stop::ContentFilter) => "PROHIBITED_CONTENT",
        Some(Stop::Pause) | None => "STOP",
    }
}

/// One object of the answer. The last one says why it ends.
fn object(answer: &Answer, parts: Vec<Value>, last: bool) -> Value {
    let usage = answer.usage;
    let mut candidate = json!({"index": 0});
    if !parts.is_empty() {
        candidate["content"] = json!({"role": "model", "parts": parts});
    }
    if last {
        candidate["finishReason"] = finish(answer).into();
    }
    // https://ai.google.dev/api/generate-content#UsageMetadata: thoughts are counted apart from the candidates.
    let counted = json!({
        "promptTokenCount": usage.input, "cachedContentTokenCount": usage.cached, "candidatesTokenCount": usage.output - usage.reasoning,
        "thoughtsTokenCount": usage.reasoning, "totalTokenCount": usage.input + usage.output,
    });
    json!({"candidates": [candidate], "usageMetadata": counted, "modelVersion": answer.model, "responseId": answer.key()})
}

pub fn response(answer: &Answer) -> Value {
    object(answer, parts(answer, false), true)
}

/// Returns the events of a stream. Each ends with its blank line.
pub fn stream(answer: &Answer) -> Vec<String> {
    let mut all = parts(answer, true);
    // Calls come whole, and all of a step in one event.
    let calls = all.split_off(all.iter().position(|part| !part["functionCall"].is_null()).unwrap_or(all.len()));
    let texts = all.into_iter().map(|part| data(&object(answer, vec![part], false)));
    let mut events: Vec<String> = texts.collect();
    events.push(data(&object(answer, calls, true)));
    events
}
