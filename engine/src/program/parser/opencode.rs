//! `opencode run --format json`. A call is one line, when it has ended. That a run has succeeded is said by its last step alone.

use serde_json::Value;
use yoi_wire::entry::TokenUsage;

use super::{Line, ProgramLines, answer, call, count_at, ended, push_call, text_at, text_of};
use crate::program::event::ProgramEvent;

#[derive(Default)]
pub struct Opencode {
    session_known: bool,
    /// What the last step or an error says of the run.
    result: Option<Result<(), String>>,
}

impl ProgramLines for Opencode {
    fn read(&mut self, line: &Value, events: &mut Vec<ProgramEvent>) -> Line {
        if let Some(id) = text_at(line, "/sessionID").filter(|_| !self.session_known) {
            self.session_known = true;
            events.push(ProgramEvent::Session { id: id.to_owned() });
        }
        let part = &line["part"];
        match text_at(line, "/type") {
            Some("step_start" | "reasoning") => Line::Silent,
            Some("text") => match text_at(part, "/text") {
                Some(text) => {
                    events.push(answer("", text));
                    Line::Known
                }
                None => Line::Unknown,
            },
            Some("tool_use") => {
                let (Some(id), Some(tool), Some(status)) =
                    (text_at(part, "/callID"), text_at(part, "/tool"), text_at(part, "/state/status"))
                else {
                    return Line::Unknown;
                };
                let state = &part["state"];
                let output = text_at(state, "/error").map_or_else(|| text_of(&state["output"]), str::to_owned);
                let exit_code = state.pointer("/metadata/exit").and_then(Value::as_i64).unwrap_or_default();
                push_call(events, "", String::new(), call(id, tool, &state["input"]));
                events.push(ended(id, status == "completed" && exit_code == 0, output));
                Line::Known
            }
            Some("step_finish") => {
                let Some(reason) = text_at(part, "/reason") else { return Line::Unknown };
                events.push(ProgramEvent::Usage(usage(&part["tokens"])));
                self.result = match reason {
                    "stop" => Some(Ok(())),
                    // Another step follows, or the program was stopped.
                    "tool-calls" => None,
                    _ => Some(Err(format!("the model stopped: {reason}"))),
                };
                Line::Known
            }
            Some("error") => {
                let message = text_at(line, "/error/data/message").or_else(|| text_at(line, "/error/name"));
                let Some(message) = message else { return Line::Unknown };
                self.result = Some(Err(message.to_owned()));
                // The error is in the log at its place; the run's end has only its sentence.
                Line::Unknown
            }
            _ => Line::Unknown,
        }
    }

    fn end(&mut self, events: &mut Vec<ProgramEvent>) {
        let result = self.result.take();
        events.extend(result.map(|result| ProgramEvent::Result { succeeded: result.is_ok(), message: result.err() }));
    }
}

/// The numbers are disjoint there.
fn usage(tokens: &Value) -> TokenUsage {
    let (cached_tokens, cache_write_tokens) = (count_at(tokens, "/cache/read"), count_at(tokens, "/cache/write"));
    let reasoning_tokens = count_at(tokens, "/reasoning");
    TokenUsage {
        input_tokens: count_at(tokens, "/input").saturating_add(cached_tokens).saturating_add(cache_write_tokens),
        output_tokens: count_at(tokens, "/output").saturating_add(reasoning_tokens),
        cached_tokens,
        cache_write_tokens,
        reasoning_tokens,
    }
}
