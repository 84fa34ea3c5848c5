//! The events of a streamed answer.

use serde_json::{Value, json};

use super::{answer_blocks, stop_reason, usage};
use crate::endpoint::answer::Answer;
use crate::endpoint::json::text;
use crate::endpoint::pieces::pieces;
use crate::endpoint::sse::named;

/// Returns the events of a stream. Each ends with its blank line.
pub fn stream(answer: &Answer) -> Vec<String> {
    let head = json!({
        "id": format!("msg_{}", answer.key()), "type": "message", "role": "assistant", "model": answer.model, "content": [],
        "stop_reason": null, "stop_sequence": null, "usage": usage(answer, 1),
    });
    let mut events = vec![named(&json!({"type": "message_start", "message": head})), named(&json!({"type": "ping"}))];
    let mut arguments = answer.scripted.calls.iter().map(|(_, call)| call.arguments_text());
    for (index, block) in answer_blocks(answer).into_iter().enumerate() {
        let (start, deltas) = start_and_deltas(block, &mut arguments);
        events.push(named(&json!({"type": "content_block_start", "index": index, "content_block": start})));
        events.extend(deltas.iter().map(|delta| named(&json!({"type": "content_block_delta", "index": index, "delta": delta}))));
        events.push(named(&json!({"type": "content_block_stop", "index": index})));
    }
    let delta = json!({"stop_reason": stop_reason(answer), "stop_sequence": null});
    events.push(named(&json!({"type": "message_delta", "delta": delta, "usage": {"output_tokens": answer.usage.output}})));
    events.push(named(&json!({"type": "message_stop"})));
    events
}

/// Returns how a block begins, and what makes it whole. `arguments` are those of the calls, as the script wrote them.
fn start_and_deltas(mut block: Value, arguments: &mut impl Iterator<Item = String>) -> (Value, Vec<Value>) {
    let take = |block: &mut Value, field: &str| text(&std::mem::replace(&mut block[field], json!(""))).to_owned();
    match text(&block["type"]) {
        "text" => {
            let deltas = pieces(&take(&mut block, "text")).into_iter().map(|piece| json!({"type": "text_delta", "text": piece}));
            (block, deltas.collect())
        }
        "thinking" => {
            let deltas =
                pieces(&take(&mut block, "thinking")).into_iter().map(|piece| json!({"type": "thinking_delta", "thinking": piece}));
            // https://platform.claude.com/docs/en/build-with-claude/extended-thinking: the signature comes last, in a delta of its own.
            let deltas: Vec<Value> = deltas.collect();
            let signature = json!({"type": "signature_delta", "signature": take(&mut block, "signature")});
            (block, deltas.into_iter().chain([signature]).collect())
        }
        _ => {
            let call = (block["type"] == "tool_use").then(|| arguments.next()).flatten();
            let arguments = call.unwrap_or_else(|| block["input"].to_string());
            block["input"] = json!({});
            (block, pieces(&arguments).into_iter().map(|piece| json!({"type": "input_json_delta", "partial_json": piece})).collect())
        }
    }
}
