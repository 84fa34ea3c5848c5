//! OpenAI's Chat Completions API.

use serde_json::{Value, json};

use crate::conversation::{Conversation, Item, pieces, text_of, tokens};
use crate::script::ScriptedAnswer;

pub fn parse(request: &Value) -> Result<Conversation, String> {
    let messages = request.get("messages").and_then(Value::as_array).ok_or("the request has no messages")?;
    let mut conversation = Conversation { model: text_of(&request["model"]), ..Conversation::default() };
    for message in messages {
        let text = text_of(&message["content"]);
        match message["role"].as_str() {
            Some("system" | "developer") => conversation.add_system(&text),
            Some("user") => conversation.items.push(Item::User(text)),
            Some("assistant") => conversation.items.push(Item::Assistant(text)),
            Some("tool") => conversation.items.push(Item::Result(text)),
            role => return Err(format!("a message has the role {role:?}")),
        }
    }
    check_results(messages)?;
    Ok(conversation)
}

/// Refuses what the real endpoint refuses: a call without a result in the next messages, and a result without its call.
fn check_results(messages: &[Value]) -> Result<(), String> {
    let mut open: Vec<&str> = Vec::new();
    for message in messages {
        if message["role"] == "tool" {
            let id = message["tool_call_id"].as_str().unwrap_or_default();
            let place = open.iter().position(|call| *call == id).ok_or_else(|| format!("the result of {id:?} follows no call of it"))?;
            open.remove(place);
            continue;
        }
        if let Some(id) = open.first() {
            return Err(format!("the call {id:?} has no result before the next message"));
        }
        open.extend(message["tool_calls"].as_array().into_iter().flatten().filter_map(|call| call["id"].as_str()));
    }
    open.first().map_or(Ok(()), |id| Err(format!("the call {id:?} has no result")))
}

fn usage(conversation: &Conversation, answer: &ScriptedAnswer) -> Value {
    let (input, output) = (tokens(&conversation.all_text()), tokens(&answer.step.text) + 8 * answer.calls.len() as u64);
    json!({"prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output})
}

fn finish(answer: &ScriptedAnswer) -> &'static str {
    if answer.calls.is_empty() { "stop" } else { "tool_calls" }
}

pub fn response(model: &str, conversation: &Conversation, answer: &ScriptedAnswer) -> Value {
    let calls: Vec<Value> = answer
        .calls
        .iter()
        .map(|(id, call)| {
            let arguments = call.arguments_text();
            json!({"id": id, "type": "function", "function": {"name": call.tool, "arguments": arguments}})
        })
        .collect();
    let mut message = json!({"role": "assistant", "content": answer.step.text});
    if !calls.is_empty() {
        message["tool_calls"] = Value::Array(calls);
    }
    json!({
        "id": "chatcmpl-scripted", "object": "chat.completion", "created": 0, "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": finish(answer)}],
        "usage": usage(conversation, answer),
    })
}

/// Returns the events of a stream. Each ends with its blank line.
pub fn stream(model: &str, conversation: &Conversation, answer: &ScriptedAnswer) -> Vec<String> {
    let event = |choices: Value, usage: Value| {
        let body = json!({
            "id": "chatcmpl-scripted", "object": "chat.completion.chunk", "created": 0, "model": model, "choices": choices, "usage": usage,
        });
        format!("data: {body}\n\n")
    };
    let delta = |delta: Value| event(json!([{"index": 0, "delta": delta, "finish_reason": null}]), Value::Null);
    let mut events = vec![delta(json!({"role": "assistant", "content": ""}))];
    if !answer.step.text.is_empty() {
        events.extend(pieces(&answer.step.text).into_iter().map(|piece| delta(json!({"content": piece}))));
    }
    for (index, (id, call)) in answer.calls.iter().enumerate() {
        let head = json!({"index": index, "id": id, "type": "function", "function": {"name": call.tool, "arguments": ""}});
        events.push(delta(json!({"tool_calls": [head]})));
        for piece in pieces(&call.arguments_text()) {
            events.push(delta(json!({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})));
        }
    }
    events.push(event(json!([{"index": 0, "delta": {}, "finish_reason": finish(answer)}]), Value::Null));
    events.push(event(json!([]), usage(conversation, answer)));
    events.push("data: [DONE]\n\n".to_owned());
    events
}
