//! Messages.

use serde_json::{Value, json};

use crate::script::Found;
use crate::talk::{Item, Talk, pieces, text_of, tokens};

pub fn read(request: &Value) -> Result<Talk, String> {
    let messages = request.get("messages").and_then(Value::as_array).ok_or("the request has no messages")?;
    if request.get("max_tokens").and_then(Value::as_u64).is_none() {
        return Err("max_tokens: field required".to_owned());
    }
    let mut talk = Talk { model: text_of(&request["model"]), system: text_of(&request["system"]), items: Vec::new() };
    let mut open: Vec<&str> = Vec::new();
    for message in messages {
        let content = &message["content"];
        let blocks = content.as_array().map(Vec::as_slice).unwrap_or_default();
        match message["role"].as_str() {
            Some("user") => {
                let results = blocks.iter().filter(|block| block["type"] == "tool_result");
                for result in results {
                    let id = result["tool_use_id"].as_str().unwrap_or_default();
                    let place =
                        open.iter().position(|call| *call == id).ok_or_else(|| format!("tool_result {id:?} follows no tool_use"))?;
                    open.remove(place);
                    talk.items.push(Item::Result(text_of(&result["content"])));
                }
                if let Some(id) = open.first() {
                    return Err(format!("tool_use {id:?} has no tool_result in the next message"));
                }
                let text = text_of(content);
                if !text.is_empty() {
                    talk.items.push(Item::User(text));
                } else if blocks.is_empty() {
                    return Err("a user message is empty".to_owned());
                }
            }
            Some("assistant") => {
                if text_of(content).is_empty() && blocks.is_empty() {
                    return Err("an assistant message is empty".to_owned());
                }
                open.extend(blocks.iter().filter(|block| block["type"] == "tool_use").filter_map(|block| block["id"].as_str()));
                talk.items.push(Item::Assistant(text_of(content)));
            }
            role => return Err(format!("a message has the role {role:?}")),
        }
    }
    open.first().map_or(Ok(talk), |id| Err(format!("tool_use {id:?} has no tool_result")))
}

fn output_tokens(found: &Found) -> u64 {
    tokens(&found.step.text) + 8 * found.calls.len() as u64
}

fn stop_reason(found: &Found) -> &'static str {
    if found.calls.is_empty() { "end_turn" } else { "tool_use" }
}

pub fn whole(model: &str, talk: &Talk, found: &Found) -> Value {
    let text = (!found.step.text.is_empty()).then(|| json!({"type": "text", "text": found.step.text}));
    let calls = found.calls.iter().map(|(id, call)| json!({"type": "tool_use", "id": id, "name": call.tool, "input": call.args}));
    json!({
        "id": "msg_scripted", "type": "message", "role": "assistant", "model": model,
        "content": text.into_iter().chain(calls).collect::<Vec<_>>(),
        "stop_reason": stop_reason(found), "stop_sequence": null,
        "usage": {"input_tokens": tokens(&talk.everything()), "output_tokens": output_tokens(found)},
    })
}

/// The events of a stream, each with its blank line.
pub fn stream(model: &str, talk: &Talk, found: &Found) -> Vec<String> {
    let event = |body: Value| format!("event: {}\ndata: {body}\n\n", body["type"].as_str().unwrap_or_default());
    let usage = json!({"input_tokens": tokens(&talk.everything()), "output_tokens": 1});
    let head = json!({
        "id": "msg_scripted", "type": "message", "role": "assistant", "model": model, "content": [],
        "stop_reason": null, "stop_sequence": null, "usage": usage,
    });
    let mut events = vec![event(json!({"type": "message_start", "message": head})), event(json!({"type": "ping"}))];
    let mut index = 0;
    let mut block = |start: Value, deltas: Vec<Value>| {
        events.push(event(json!({"type": "content_block_start", "index": index, "content_block": start})));
        events.extend(deltas.into_iter().map(|delta| event(json!({"type": "content_block_delta", "index": index, "delta": delta}))));
        events.push(event(json!({"type": "content_block_stop", "index": index})));
        index += 1;
    };
    if !found.step.text.is_empty() {
        let deltas = pieces(&found.step.text).into_iter().map(|piece| json!({"type": "text_delta", "text": piece}));
        block(json!({"type": "text", "text": ""}), deltas.collect());
    }
    for (id, call) in &found.calls {
        let deltas = pieces(&call.written()).into_iter().map(|piece| json!({"type": "input_json_delta", "partial_json": piece}));
        block(json!({"type": "tool_use", "id": id, "name": call.tool, "input": {}}), deltas.collect());
    }
    let delta = json!({"stop_reason": stop_reason(found), "stop_sequence": null});
    events.push(event(json!({"type": "message_delta", "delta": delta, "usage": {"output_tokens": output_tokens(found)}})));
    events.push(event(json!({"type": "message_stop"})));
    events
}
