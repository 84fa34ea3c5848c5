//! Anthropic's Messages API.

use serde_json::{Value, json};

use crate::conversation::{Conversation, Item, pieces, text_of, tokens};
use crate::script::ScriptedAnswer;

pub fn parse(request: &Value) -> Result<Conversation, String> {
    let messages = request.get("messages").and_then(Value::as_array).ok_or("the request has no messages")?;
    if request.get("max_tokens").and_then(Value::as_u64).is_none() {
        return Err("max_tokens: field required".to_owned());
    }
    let mut conversation = Conversation { model: text_of(&request["model"]), system: text_of(&request["system"]), items: Vec::new() };
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
                    conversation.items.push(Item::Result(text_of(&result["content"])));
                }
                if let Some(id) = open.first() {
                    return Err(format!("tool_use {id:?} has no tool_result in the next message"));
                }
                let text = text_of(content);
                if !text.is_empty() {
                    conversation.items.push(Item::User(text));
                } else if blocks.is_empty() {
                    return Err("a user message is empty".to_owned());
                }
            }
            Some("assistant") => {
                if text_of(content).is_empty() && blocks.is_empty() {
                    return Err("an assistant message is empty".to_owned());
                }
                open.extend(blocks.iter().filter(|block| block["type"] == "tool_use").filter_map(|block| block["id"].as_str()));
                conversation.items.push(Item::Assistant(text_of(content)));
            }
            role => return Err(format!("a message has the role {role:?}")),
        }
    }
    open.first().map_or(Ok(conversation), |id| Err(format!("tool_use {id:?} has no tool_result")))
}

fn output_tokens(answer: &ScriptedAnswer) -> u64 {
    tokens(&answer.step.text) + 8 * answer.calls.len() as u64
}

fn stop_reason(answer: &ScriptedAnswer) -> &'static str {
    if answer.calls.is_empty() { "end_turn" } else { "tool_use" }
}

pub fn response(model: &str, conversation: &Conversation, answer: &ScriptedAnswer) -> Value {
    let text = (!answer.step.text.is_empty()).then(|| json!({"type": "text", "text": answer.step.text}));
    let calls = answer.calls.iter().map(|(id, call)| json!({"type": "tool_use", "id": id, "name": call.tool, "input": call.args}));
    json!({
        "id": "msg_scripted", "type": "message", "role": "assistant", "model": model,
        "content": text.into_iter().chain(calls).collect::<Vec<_>>(),
        "stop_reason": stop_reason(answer), "stop_sequence": null,
        "usage": {"input_tokens": tokens(&conversation.all_text()), "output_tokens": output_tokens(answer)},
    })
}

/// Returns the events of a stream. Each ends with its blank line.
pub fn stream(model: &str, conversation: &Conversation, answer: &ScriptedAnswer) -> Vec<String> {
    let event = |body: Value| format!("event: {}\ndata: {body}\n\n", body["type"].as_str().unwrap_or_default());
    let usage = json!({"input_tokens": tokens(&conversation.all_text()), "output_tokens": 1});
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
    if !answer.step.text.is_empty() {
        let deltas = pieces(&answer.step.text).into_iter().map(|piece| json!({"type": "text_delta", "text": piece}));
        block(json!({"type": "text", "text": ""}), deltas.collect());
    }
    for (id, call) in &answer.calls {
        let deltas = pieces(&call.arguments_text()).into_iter().map(|piece| json!({"type": "input_json_delta", "partial_json": piece}));
        block(json!({"type": "tool_use", "id": id, "name": call.tool, "input": {}}), deltas.collect());
    }
    let delta = json!({"stop_reason": stop_reason(answer), "stop_sequence": null});
    events.push(event(json!({"type": "message_delta", "delta": delta, "usage": {"output_tokens": output_tokens(answer)}})));
    events.push(event(json!({"type": "message_stop"})));
    events
}
