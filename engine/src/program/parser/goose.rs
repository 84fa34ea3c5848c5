//! `goose run --output-format stream-json`, by its source: npm has no goose, so no run of it was recorded. Texts come in pieces of one
//! message's id. It does not tell its session's id: the preset gives it one.

use serde_json::Value;

use super::{Gathered, Line, ProgramLines, call, ended, push_call, text_at, text_of};
use crate::program::event::ProgramEvent;

#[derive(Default)]
pub struct Goose {
    text: Gathered,
    failed: Option<String>,
}

impl ProgramLines for Goose {
    fn read(&mut self, line: &Value, events: &mut Vec<ProgramEvent>) -> Line {
        match text_at(line, "/type") {
            Some("message") => self.message(&line["message"], events),
            Some("notification" | "model_change") => Line::Silent,
            Some("error") => {
                let Some(error) = text_at(line, "/error") else { return Line::Unknown };
                self.text.flush(events);
                self.failed = Some(error.to_owned());
                // The error is in the log at its place; the run's end has only its sentence.
                Line::Unknown
            }
            Some("complete") => {
                self.text.flush(events);
                let message = self.failed.take();
                events.push(ProgramEvent::Result { succeeded: message.is_none(), message });
                Line::Known
            }
            _ => Line::Unknown,
        }
    }

    fn end(&mut self, events: &mut Vec<ProgramEvent>) {
        self.text.flush(events);
        let message = self.failed.take();
        events.extend(message.map(|message| ProgramEvent::Result { succeeded: false, message: Some(message) }));
    }
}

impl Goose {
    fn message(&mut self, message: &Value, events: &mut Vec<ProgramEvent>) -> Line {
        let (Some(role), Some(content)) = (text_at(message, "/role"), message["content"].as_array()) else { return Line::Unknown };
        let mut meaning = Line::Silent;
        for block in content {
            match (text_at(block, "/type"), role) {
                (Some("text"), "assistant") => self.text.add(text_at(block, "/text").unwrap_or_default(), events),
                (Some("thinking" | "redactedThinking"), _) | (Some("text"), "user") => continue,
                (Some("toolRequest"), _) => {
                    let request = &block["toolCall"]["value"];
                    let (Some(id), Some(tool)) = (text_at(block, "/id"), text_at(request, "/name")) else { return Line::Unknown };
                    let text = std::mem::take(&mut self.text.text);
                    push_call(events, "", text, call(id, tool, &request["arguments"]));
                }
                (Some("toolResponse"), _) => {
                    let Some(id) = text_at(block, "/id") else { return Line::Unknown };
                    let result = &block["toolResult"];
                    let value = &result["value"];
                    let output = text_at(result, "/error").map_or_else(|| text_of(value.get("content").unwrap_or(value)), str::to_owned);
                    self.text.flush(events);
                    events.push(ended(id, result["status"] == "success" && value["isError"] != true, output));
                }
                _ => return Line::Unknown,
            }
            meaning = Line::Known;
        }
        meaning
    }
}
