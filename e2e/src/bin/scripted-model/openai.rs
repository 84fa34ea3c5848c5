//! Chat completions.

use serde_json::{Value, json};

use crate::script::Found;
use crate::talk::{Item, Talk, pieces, text_of, tokens};

pub fn read(request: &Value) -> Result<Talk, String> {
    let messages = request.get("messages").and_then(Value::as_array).ok_or("the request has no messages")?;
    let mut talk = Talk { model: text_of(&request["model"]), ..Talk::default() };
    for message in messages {
        let text = text_of(&message["content"]);
        match message["role"].as_str() {
            Some("system" | "developer") => talk.add_system(&text),
            Some("user") => talk.items.push(Item::User(text)),
            Some("assistant") => talk.items.push(Item::Assistant(text)),
            Some("tool") => talk.items.push(Item::Result(text)),
            role => return Err(format!("a message has the role {role:?}")),
        }
    }
    paired(messages)?;
    Ok(talk)
}

/// As the real endpoint: each call of an answer is followed by its result, and no result comes without its call.
fn paired(messages: &[Value]) -> Result<(), String> {
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

fn usage(talk: &Talk, found: &Found) -> Value {
    let (input, output) = (tokens(&talk.everything()), tokens(&found.step.text) + 8 * found.calls.len() as u64);
    json!({"prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output})
}

fn finish(found: &Found) -> &'static str {
    if found.calls.is_empty() { "stop" } else { "tool_calls" }
}

pub fn whole(model: &str, talk: &Talk, found: &Found) -> Value {
    let calls: Vec<Value> = found
        .calls
        .iter()
        .map(|(id, call)| {
            let arguments = call.written();
            json!({"id": id, "type": "function", "function": {"name": call.tool, "arguments": arguments}})
        })
        .collect();
    let mut message = json!({"role": "assistant", "content": found.step.text});
    if !calls.is_empty() {
        message["tool_calls"] = Value::Array(calls);
    }
    json!({
        "id": "chatcmpl-scripted", "object": "chat.completion", "created": 0, "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": finish(found)}],
        "usage": usage(talk, found),
    })
}

/// The events of a stream, each with its blank line.
pub fn stream(model: &str, talk: &Talk, found: &Found) -> Vec<String> {
    let event = |choices: Value, usage: Value| {
        let body = json!({
            "id": "chatcmpl-scripted", "object": "chat.completion.chunk", "created": 0, "model": model, "choices": choices, "usage": usage,
        });
        format!("data: {body}\n\n")
    };
    let delta = |delta: Value| event(json!([{"index": 0, "delta": delta, "finish_reason": null}]), Value::Null);
    let mut events = vec![delta(json!({"role": "assistant", "content": ""}))];
    if !found.step.text.is_empty() {
        events.extend(pieces(&found.step.text).into_iter().map(|piece| delta(json!({"content": piece}))));
    }
    for (index, (id, call)) in found.calls.iter().enumerate() {
        let head = json!({"index": index, "id": id, "type": "function", "function": {"name": call.tool, "arguments": ""}});
        events.push(delta(json!({"tool_calls": [head]})));
        for piece in pieces(&call.written()) {
            events.push(delta(json!({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})));
        }
    }
    events.push(event(json!([{"index": 0, "delta": {}, "finish_reason": finish(found)}]), Value::Null));
    events.push(event(json!([]), usage(talk, found)));
    events.push("data: [DONE]\n\n".to_owned());
    events
}
