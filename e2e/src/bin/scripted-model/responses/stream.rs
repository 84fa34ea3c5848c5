//! The events of a streamed answer. Source: https://platform.openai.com/docs/api-reference/responses-streaming

use serde_json::{Value, json};

use super::{object, output, status};
use crate::endpoint::answer::Answer;
use crate::endpoint::json::{list, text};
use crate::endpoint::pieces::pieces;
use crate::endpoint::sse::named;

/// Numbers the events.
#[derive(Default)]
struct Events {
    events: Vec<String>,
}

impl Events {
    fn push(&mut self, kind: &str, mut body: Value) {
        body["type"] = kind.into();
        body["sequence_number"] = self.events.len().into();
        self.events.push(named(&body));
    }

    /// The deltas of a text, and its end. `at` says where the text stands.
    fn text(&mut self, kind: &str, at: &Value, field: &str, whole: &str) {
        for piece in pieces(whole) {
            let mut body = at.clone();
            body["delta"] = piece.into();
            self.push(&format!("response.{kind}.delta"), body);
        }
        let mut body = at.clone();
        body[field] = whole.into();
        self.push(&format!("response.{kind}.done"), body);
    }

    /// A part of an item: its beginning, its text and its end.
    fn part(&mut self, part_kind: &str, text_kind: &str, at: &Value, field: &str, part: &Value) {
        let with = |part: Value| {
            let mut body = at.clone();
            body["part"] = part;
            body
        };
        let mut empty = part.clone();
        empty[field] = "".into();
        self.push(&format!("response.{part_kind}.added"), with(empty));
        self.text(text_kind, at, field, text(&part[field]));
        self.push(&format!("response.{part_kind}.done"), with(part.clone()));
    }
}

/// Returns the events of a stream. Each ends with its blank line.
pub fn stream(answer: &Answer) -> Vec<String> {
    let mut events = Events::default();
    let begun = object(answer, "in_progress", Vec::new());
    events.push("response.created", json!({"response": begun}));
    events.push("response.in_progress", json!({"response": begun}));
    let items = output(answer);
    for (index, item) in items.iter().enumerate() {
        let id = &item["id"];
        let mut added = item.clone();
        match text(&item["type"]) {
            "reasoning" => {
                added["summary"] = json!([]);
                // The seal of a part is not that of the whole: clients must take it from the item's end.
                if added["encrypted_content"].is_string() {
                    added["encrypted_content"] = "gAAAAA".into();
                }
                events.push("response.output_item.added", json!({"output_index": index, "item": added}));
                let at = json!({"item_id": id, "output_index": index, "summary_index": 0});
                events.part("reasoning_summary_part", "reasoning_summary_text", &at, "text", &item["summary"][0]);
            }
            "message" => {
                added["content"] = json!([]);
                added["status"] = "in_progress".into();
                events.push("response.output_item.added", json!({"output_index": index, "item": added}));
                let at = json!({"item_id": id, "output_index": index, "content_index": 0});
                for part in list(&item["content"]) {
                    let (kind, field) = if part["type"] == "refusal" { ("refusal", "refusal") } else { ("output_text", "text") };
                    events.part("content_part", kind, &at, field, part);
                }
            }
            _ => {
                added["arguments"] = "".into();
                added["status"] = "in_progress".into();
                events.push("response.output_item.added", json!({"output_index": index, "item": added}));
                let at = json!({"item_id": id, "output_index": index});
                events.text("function_call_arguments", &at, "arguments", text(&item["arguments"]));
            }
        }
        events.push("response.output_item.done", json!({"output_index": index, "item": item}));
    }
    let status = status(answer);
    events.push(&format!("response.{status}"), json!({"response": object(answer, status, items)}));
    events.events
}
