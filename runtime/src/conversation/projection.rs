//! What the model reads: a projection of the log and of nothing else.

use serde_json::{Value, json};
use yoi_wire::entry::{Body, Entry, ToolCall};

#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    User(String),
    Assistant {
        text: String,
        calls: Vec<ToolCall>,
    },
    /// All results of the calls of one answer: Anthropic wants them in one message.
    Results(Vec<ToolResult>),
}

#[derive(Clone, Debug, PartialEq)]
pub struct ToolResult {
    pub call_id: String,
    pub output: String,
}

#[must_use]
pub fn project(entries: &[Entry]) -> Vec<Item> {
    let mut items: Vec<Item> = Vec::new();
    // Calls without a result yet; a result of anything else would be refused by the endpoint.
    let mut open: Vec<String> = Vec::new();
    for entry in entries {
        match &entry.body {
            Body::Input(input) => items.push(Item::User(input.text.clone())),
            Body::PeerMessage(message) => {
                items.push(Item::User(format!("[message from agent {}]\n{}", message.from.name, message.text)));
            }
            Body::Assistant(answer) => {
                open = answer.tool_calls.iter().map(|call| call.call_id.clone()).collect();
                // An answer without a word cannot be sent back: both formats refuse an empty one.
                if !answer.text.is_empty() || !answer.tool_calls.is_empty() {
                    items.push(Item::Assistant { text: answer.text.clone(), calls: answer.tool_calls.iter().map(with_object).collect() });
                }
            }
            Body::ToolEnded(end) => {
                let Some(place) = open.iter().position(|id| *id == end.call_id) else { continue };
                open.remove(place);
                let result = ToolResult { call_id: end.call_id.clone(), output: end.output.clone() };
                match items.last_mut() {
                    Some(Item::Results(results)) => results.push(result),
                    _ => items.push(Item::Results(vec![result])),
                }
            }
            Body::SessionStarted(_)
            | Body::RuntimeStarted(_)
            | Body::RunStarted(_)
            | Body::ToolStarted(_)
            | Body::RunEnded(_)
            | Body::Notice(_)
            | Body::Unknown { .. } => {}
        }
    }
    items
}

/// Arguments that the model broke off are text; the endpoint takes only objects back.
fn with_object(call: &ToolCall) -> ToolCall {
    let args = match &call.args {
        Value::Object(_) => call.args.clone(),
        Value::Null => json!({}),
        other => json!({ "unreadable": other }),
    };
    ToolCall { args, ..call.clone() }
}
