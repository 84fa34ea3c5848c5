//! What the model reads: a projection of the log, with nothing added.

use serde_json::{Value, json};
use yoi_wire::entry::{Assistant, Body, Entry, PromptItem, PromptToolResult, ToolCall, ToolOutcome};

/// The request's messages, in the order of the log.
#[must_use]
pub fn project(entries: &[Entry]) -> Vec<PromptItem> {
    let mut items: Vec<PromptItem> = Vec::new();
    // Calls without a result, with the names of their tools. The endpoint refuses a result of any other call.
    let mut open: Vec<(String, String)> = Vec::new();
    for entry in entries {
        match &entry.body {
            Body::Input(input) => items.push(PromptItem::User(input.text.clone())),
            Body::PeerMessage(message) => {
                items.push(PromptItem::User(format!("[message from agent {}]\n{}", message.from.name, message.text)));
            }
            Body::Assistant(answer) => {
                open = answer.tool_calls.iter().map(|call| (call.call_id.clone(), call.tool.clone())).collect();
                // An empty answer is left out: both APIs refuse it.
                if !answer.text.is_empty() || !answer.tool_calls.is_empty() {
                    let tool_calls = answer.tool_calls.iter().map(with_object_args).collect();
                    items.push(PromptItem::Assistant(Box::new(Assistant { tool_calls, ..answer.clone() })));
                }
            }
            Body::ToolEnded(end) => {
                let Some(index) = open.iter().position(|(id, _)| *id == end.call_id) else { continue };
                let (call_id, tool) = open.remove(index);
                let failed = end.outcome != ToolOutcome::Succeeded;
                let result = PromptToolResult { call_id, tool, output: end.output.clone(), failed, images: end.images.clone() };
                match items.last_mut() {
                    Some(PromptItem::Results(results)) => results.push(result),
                    _ => items.push(PromptItem::Results(vec![result])),
                }
            }
            Body::SessionStarted(_)
            | Body::RuntimeStarted(_)
            | Body::RunStarted(_)
            | Body::ToolStarted(_)
            | Body::RunEnded(_)
            | Body::Notice(_)
            | Body::SegmentStarted(_)
            | Body::Carried(_)
            | Body::ConfigChanged(_)
            | Body::SystemItem(_)
            | Body::Paused(_)
            | Body::Resumed(_)
            | Body::Abandoned(_)
            | Body::RolledBack(_)
            | Body::Rewound(_)
            | Body::Usage(_)
            | Body::CompactionStarted(_)
            | Body::CompactionEnded(_)
            | Body::Extension(_)
            | Body::Unknown { .. } => {}
        }
    }
    items
}

/// Turns arguments into an object, because the endpoint takes nothing else. Arguments that the model broke off are text.
fn with_object_args(call: &ToolCall) -> ToolCall {
    let args = match &call.args {
        Value::Object(_) => call.args.clone(),
        Value::Null => json!({}),
        other => json!({ "unreadable": other }),
    };
    ToolCall { args, ..call.clone() }
}
