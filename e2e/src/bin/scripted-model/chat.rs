//! OpenAI's Chat Completions API.

use serde_json::{Value, json};

use super::answer::Answer;
use super::conversation::{Conversation, Item, text_of};
use super::digest::signature;
use super::json::{is_marked, list, text};
use super::pieces::pieces;
use super::prefix_cache::PromptPart;
use super::rule::Rule;
use super::script::{Call, Profile, Stop};
use super::sse::data;
use super::tokens::prompt_text;

mod compatible_rules;
mod effort_rules;
mod rules;
mod tool_rules;

pub use compatible_rules::missing_signature;

/// Returns the rules of every endpoint of this format, and those of this one.
pub fn rules(profile: Profile) -> impl Iterator<Item = &'static Rule> {
    let own: [&[Rule]; 2] = match profile {
        Profile::OpenAI | Profile::Anthropic => [rules::OPENAI, effort_rules::RULES],
        Profile::DeepSeek => [compatible_rules::DEEPSEEK, &[]],
        Profile::Gemini => [compatible_rules::GEMINI, &[]],
        Profile::Plain => [compatible_rules::PLAIN, &[]],
    };
    rules::RULES.iter().chain(tool_rules::RULES).chain(own.into_iter().flatten())
}

pub fn conversation(request: &Value) -> Conversation {
    let mut conversation = Conversation { model: text_of(&request["model"]), ..Conversation::default() };
    for message in list(&request["messages"]) {
        let content = text_of(&message["content"]);
        match text(&message["role"]) {
            "system" | "developer" => conversation.add_system(&content),
            "assistant" => conversation.items.push(Item::Assistant(content)),
            "tool" => conversation.items.push(Item::Result(content)),
            _ => conversation.items.push(Item::User(content)),
        }
    }
    conversation
}

pub fn prompt(request: &Value) -> Vec<PromptPart> {
    let parts = list(&request["tools"]).iter().chain(list(&request["messages"]));
    parts.map(|part| PromptPart { text: prompt_text(part), breakpoint: is_marked(part) }).collect()
}

fn usage(answer: &Answer, profile: Profile) -> Value {
    let usage = answer.usage;
    let mut body = json!({
        "prompt_tokens": usage.input, "completion_tokens": usage.output, "total_tokens": usage.input + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cached, "cache_write_tokens": usage.cache_written},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    });
    if profile == Profile::DeepSeek {
        body["prompt_cache_hit_tokens"] = usage.cached.into();
        body["prompt_cache_miss_tokens"] = (usage.input - usage.cached).into();
    }
    body
}

fn finish(answer: &Answer) -> &'static str {
    match answer.stop() {
        Some(Stop::Length) => "length",
        Some(Stop::ContentFilter) => "content_filter",
        // A refusal stands in a field of its own, and this format knows no pause.
        Some(Stop::Refusal | Stop::Pause) => "stop",
        None if answer.scripted.calls.is_empty() => "stop",
        None => "tool_calls",
    }
}

/// Returns a call, with the arguments that are known so far.
fn call(answer: &Answer, profile: Profile, index: usize, id: &str, call: &Call, arguments: &str) -> Value {
    let mut body = json!({"index": index, "id": id, "type": "function", "function": {"name": call.tool, "arguments": arguments}});
    // https://ai.google.dev/gemini-api/docs/thought-signatures ("OpenAI compatibility"): on the first call of a step.
    if profile == Profile::Gemini && index == 0 {
        body["extra_content"] = json!({"google": {"thought_signature": signature(&answer.key())}});
    }
    body
}

pub fn response(answer: &Answer, profile: Profile) -> Value {
    let refused = answer.stop() == Some(Stop::Refusal);
    let said = |shown: bool| if shown { json!(answer.text()) } else { Value::Null };
    let mut message = json!({"role": "assistant", "content": said(!refused), "refusal": said(refused)});
    if !answer.reasoning().is_empty() && profile != Profile::OpenAI {
        message["reasoning_content"] = answer.reasoning().into();
    }
    let calls = answer.scripted.calls.iter().enumerate();
    let calls: Vec<Value> = calls.map(|(index, (id, it))| call(answer, profile, index, id, it, &it.arguments_text())).collect();
    if !calls.is_empty() {
        message["tool_calls"] = Value::Array(calls);
    }
    json!({
        "id": format!("chatcmpl-{}", answer.key()), "object": "chat.completion", "created": 0, "model": answer.model,
        "choices": [{"index": 0, "message": message, "finish_reason": finish(answer)}],
        "usage": usage(answer, profile),
    })
}

/// Returns the events of a stream. Each ends with its blank line.
pub fn stream(answer: &Answer, profile: Profile) -> Vec<String> {
    let event = |choices: Value, usage: Value| {
        let id = format!("chatcmpl-{}", answer.key());
        let mut body = json!({"id": id, "object": "chat.completion.chunk", "created": 0, "model": answer.model, "choices": choices});
        // https://platform.openai.com/docs/api-reference/chat/create (`stream_options.include_usage`).
        if answer.streams_usage {
            body["usage"] = usage;
        }
        data(&body)
    };
    let delta = |delta: Value| event(json!([{"index": 0, "delta": delta, "finish_reason": null}]), Value::Null);
    let mut events = vec![delta(json!({"role": "assistant", "content": ""}))];
    if !answer.reasoning().is_empty() && profile != Profile::OpenAI {
        events.extend(pieces(answer.reasoning()).into_iter().map(|piece| delta(json!({"reasoning_content": piece}))));
    }
    if !answer.text().is_empty() {
        let field = if answer.stop() == Some(Stop::Refusal) { "refusal" } else { "content" };
        events.extend(pieces(answer.text()).into_iter().map(|piece| delta(json!({field: piece}))));
    }
    let calls = answer.scripted.calls.iter().enumerate();
    if answer.scripted.step.calls_in_one_delta {
        let all: Vec<Value> = calls.map(|(index, (id, it))| call(answer, profile, index, id, it, &it.arguments_text())).collect();
        events.push(delta(json!({"tool_calls": all})));
    } else {
        for (index, (id, it)) in calls {
            events.push(delta(json!({"tool_calls": [call(answer, profile, index, id, it, "")]})));
            for piece in pieces(&it.arguments_text()) {
                events.push(delta(json!({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})));
            }
        }
    }
    events.push(event(json!([{"index": 0, "delta": {}, "finish_reason": finish(answer)}]), Value::Null));
    if answer.streams_usage {
        events.push(event(json!([]), usage(answer, profile)));
    }
    events.push("data: [DONE]\n\n".to_owned());
    events
}
