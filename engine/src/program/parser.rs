//! Parsers of programs that print one JSON object a line.
//!
//! A line has one of three fates: it becomes events, it is of a kind that its parser knows and that says nothing which the log keeps, or
//! it is [`ProgramEvent::Other`]. A line that is cut, mixed or of a newer version is of the third.

use serde_json::Value;
use yoi_wire::entry::{Assistant, StopReason, ToolCall, ToolOutcome};
use yoi_wire::preset::ParserName;

use super::event::{OutputParser, ProgramEvent};
use crate::foreign_json;

mod claude;
mod codex;
mod copilot;
mod gemini;
mod goose;
mod opencode;
#[cfg(test)]
mod tests;

/// Bytes of a line that are kept in [`ProgramEvent::Other`].
const MAX_OTHER_BYTES: usize = 16 << 10;
/// Bytes of text that a parser gathers before it passes them on as an answer of their own.
const MAX_GATHERED_BYTES: usize = 256 << 10;

/// Returns a new parser for one run. `None` for [`ParserName::Text`], whose output has no lines of JSON.
#[must_use]
pub fn parser_of(name: ParserName) -> Option<Box<dyn OutputParser>> {
    Some(match name {
        ParserName::Claude => Box::new(JsonLines(claude::Claude::default())),
        ParserName::Codex => Box::new(JsonLines(codex::Codex::default())),
        ParserName::Gemini => Box::new(JsonLines(gemini::Gemini::default())),
        ParserName::Copilot => Box::new(JsonLines(copilot::Copilot)),
        ParserName::Opencode => Box::new(JsonLines(opencode::Opencode::default())),
        ParserName::Goose => Box::new(JsonLines(goose::Goose::default())),
        ParserName::Text => return None,
    })
}

/// What a parser makes of an object.
enum Line {
    /// It has pushed what the line means.
    Known,
    /// It knows the kind, and the log keeps nothing of it.
    Silent,
    /// It does not know the kind, or misses a field.
    Unknown,
}

/// The lines of one program.
trait ProgramLines: Send {
    /// Pushes what a line means.
    fn read(&mut self, line: &Value, events: &mut Vec<ProgramEvent>) -> Line;

    /// Pushes what is left when the output has ended.
    fn end(&mut self, events: &mut Vec<ProgramEvent>);
}

struct JsonLines<L>(L);

impl<L: ProgramLines> OutputParser for JsonLines<L> {
    fn push_line(&mut self, line: &[u8]) -> Vec<ProgramEvent> {
        let mut events = Vec::new();
        if line.trim_ascii().is_empty() {
            return events;
        }
        let parsed = foreign_json::from_slice(line).ok().filter(Value::is_object);
        let silent = match parsed.map(|parsed| self.0.read(&parsed, &mut events)) {
            Some(Line::Silent) => true,
            Some(Line::Known) => false,
            Some(Line::Unknown) | None => {
                events.push(other(line));
                return events;
            }
        };
        if events.is_empty() && !silent {
            events.push(other(line));
        }
        events
    }

    fn finish(&mut self) -> Vec<ProgramEvent> {
        let mut events = Vec::new();
        self.0.end(&mut events);
        events
    }
}

fn other(line: &[u8]) -> ProgramEvent {
    let kept = String::from_utf8_lossy(&line[..line.len().min(MAX_OTHER_BYTES)]).into_owned();
    let cut = if line.len() > MAX_OTHER_BYTES { format!(" [{} more bytes]", line.len() - MAX_OTHER_BYTES) } else { String::new() };
    ProgramEvent::Other { line: kept + &cut }
}

/// The text at a JSON pointer, if there is one.
fn text_at<'v>(value: &'v Value, pointer: &str) -> Option<&'v str> {
    value.pointer(pointer).and_then(Value::as_str)
}

/// The number at a JSON pointer; 0 when there is none.
fn count_at(value: &Value, pointer: &str) -> u64 {
    value.pointer(pointer).and_then(Value::as_u64).unwrap_or_default()
}

fn answer(model: &str, text: &str) -> ProgramEvent {
    ProgramEvent::Answer(Assistant { text: text.to_owned(), model: model.to_owned(), ..Assistant::default() })
}

fn call(call_id: &str, tool: &str, args: &Value) -> ToolCall {
    ToolCall { call_id: call_id.to_owned(), tool: tool.to_owned(), args: args.clone() }
}

/// An answer that is one call, which begins.
fn push_call(events: &mut Vec<ProgramEvent>, model: &str, text: String, call: ToolCall) {
    let started = ProgramEvent::CallStarted { call_id: call.call_id.clone(), tool: call.tool.clone() };
    let stop = Some(StopReason::ToolCalls);
    events.push(ProgramEvent::Answer(Assistant { text, tool_calls: vec![call], model: model.to_owned(), stop, ..Assistant::default() }));
    events.push(started);
}

fn ended(call_id: &str, succeeded: bool, output: String) -> ProgramEvent {
    let outcome = if succeeded { ToolOutcome::Succeeded } else { ToolOutcome::Failed };
    ProgramEvent::CallEnded { call_id: call_id.to_owned(), outcome, output }
}

/// The text of a content: a text, or a list of blocks of which those of text count.
fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => blocks.iter().map(block_text).collect::<Vec<_>>().join("\n"),
        Value::Null => String::new(),
        Value::Bool(_) | Value::Number(_) | Value::Object(_) => content.to_string(),
    }
}

fn block_text(block: &Value) -> String {
    match text_at(block, "/text") {
        Some(text) => text.to_owned(),
        None => format!("[{}]", text_at(block, "/type").unwrap_or("unknown")),
    }
}

/// Text that comes in pieces, until the program does something else.
#[derive(Default)]
struct Gathered {
    model: String,
    text: String,
}

impl Gathered {
    fn add(&mut self, piece: &str, events: &mut Vec<ProgramEvent>) {
        self.text.push_str(piece);
        events.push(ProgramEvent::Delta { text: piece.to_owned() });
        if self.text.len() > MAX_GATHERED_BYTES {
            self.flush(events);
        }
    }

    fn flush(&mut self, events: &mut Vec<ProgramEvent>) {
        let text = std::mem::take(&mut self.text);
        if !text.is_empty() {
            events.push(answer(&self.model, &text));
        }
    }
}
