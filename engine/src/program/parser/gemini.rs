//! `gemini -p --output-format stream-json`. Texts come in pieces.

use serde_json::Value;
use yoi_wire::entry::TokenUsage;

use super::{Gathered, Line, ProgramLines, call, count_at, ended, push_call, text_at, text_of};
use crate::program::event::ProgramEvent;

#[derive(Default)]
pub struct Gemini {
    text: Gathered,
}

impl ProgramLines for Gemini {
    fn read(&mut self, line: &Value, events: &mut Vec<ProgramEvent>) -> Line {
        match text_at(line, "/type") {
            Some("init") => {
                let Some(id) = text_at(line, "/session_id") else { return Line::Unknown };
                text_at(line, "/model").unwrap_or_default().clone_into(&mut self.text.model);
                events.push(ProgramEvent::Session { id: id.to_owned() });
                Line::Known
            }
            Some("message") => match (text_at(line, "/role"), text_at(line, "/content")) {
                (Some("user"), _) => Line::Silent,
                (Some("assistant"), Some(text)) => {
                    self.text.add(text, events);
                    Line::Known
                }
                _ => Line::Unknown,
            },
            Some("tool_use") => {
                let (Some(id), Some(tool)) = (text_at(line, "/tool_id"), text_at(line, "/tool_name")) else { return Line::Unknown };
                let text = std::mem::take(&mut self.text.text);
                push_call(events, &self.text.model, text, call(id, tool, &line["parameters"]));
                Line::Known
            }
            Some("tool_result") => {
                let (Some(id), Some(status)) = (text_at(line, "/tool_id"), text_at(line, "/status")) else { return Line::Unknown };
                self.text.flush(events);
                let output = text_at(line, "/error/message").map_or_else(|| text_of(&line["output"]), str::to_owned);
                events.push(ended(id, status == "success", output));
                Line::Known
            }
            Some("result") => {
                let Some(status) = text_at(line, "/status") else { return Line::Unknown };
                self.text.flush(events);
                if line["stats"].is_object() {
                    events.push(ProgramEvent::Usage(TokenUsage {
                        input_tokens: count_at(line, "/stats/input_tokens"),
                        output_tokens: count_at(line, "/stats/output_tokens"),
                        cached_tokens: count_at(line, "/stats/cached"),
                        ..TokenUsage::default()
                    }));
                }
                let succeeded = status == "success";
                let message = text_at(line, "/error/message").unwrap_or(status);
                events.push(ProgramEvent::Result { succeeded, message: (!succeeded).then(|| message.to_owned()) });
                Line::Known
            }
            _ => Line::Unknown,
        }
    }

    fn end(&mut self, events: &mut Vec<ProgramEvent>) {
        self.text.flush(events);
    }
}
