//! An answer as one JSON text: some servers pass over the wish for a stream.

use serde_json::{Value, json};

use super::{WireFormat, text};

/// The events that a stream of this answer would have had.
pub(super) fn events(format: WireFormat, whole: Value) -> Vec<Value> {
    match (format, whole) {
        // Gemini writes a stream that was not asked for as events as a list.
        (_, Value::Array(events)) => events,
        (WireFormat::Anthropic, whole) if text(&whole, "type") == "message" => message_events(&whole),
        (WireFormat::Responses, whole) if whole.get("output").is_some_and(Value::is_array) => {
            vec![json!({"type": "response.completed", "response": whole})]
        }
        // A chunk of a chat may hold a whole message, and an answer of Gemini's is an event.
        (_, whole) => vec![whole],
    }
}

fn message_events(message: &Value) -> Vec<Value> {
    let mut events = vec![json!({"type": "message_start", "message": {"usage": message["usage"]}})];
    for block in message["content"].as_array().into_iter().flatten() {
        events.push(json!({"type": "content_block_start", "content_block": block}));
        events.push(json!({"type": "content_block_stop"}));
    }
    events.push(json!({"type": "message_delta", "delta": {"stop_reason": message["stop_reason"]}, "usage": message["usage"]}));
    events.push(json!({"type": "message_stop"}));
    events
}
