//! `claude -p --output-format stream-json --include-partial-messages --verbose`. A line is one block of an answer; the tokens of an answer
//! stand in the events of its stream.

use serde_json::Value;
use yoi_wire::entry::TokenUsage;

use super::{Line, ProgramLines, answer, call, count_at, ended, push_call, text_at, text_of};
use crate::program::event::ProgramEvent;

/// Characters of a background task's id and summary.
const MAX_SUMMARY_CHARS: usize = 300;

#[derive(Default)]
pub struct Claude {
    /// What the answer that is streamed has read.
    input: TokenUsage,
    /// Whether any answer has told its tokens. Otherwise those of the result count.
    counted: bool,
}

impl ProgramLines for Claude {
    fn read(&mut self, line: &Value, events: &mut Vec<ProgramEvent>) -> Line {
        let own = line["parent_tool_use_id"].is_null();
        match text_at(line, "/type") {
            Some("system") => match (text_at(line, "/subtype"), text_at(line, "/session_id")) {
                (Some("init"), Some(id)) => {
                    events.push(ProgramEvent::Session { id: id.to_owned() });
                    Line::Known
                }
                (Some("status" | "thinking_tokens"), _) => Line::Silent,
                (Some("task_notification"), _) if text_at(line, "/status") == Some("stopped") => {
                    events.push(stopped_task(line));
                    Line::Known
                }
                _ => Line::Unknown,
            },
            Some("stream_event") => self.stream_event(&line["event"], own, events),
            // What a program that claude starts inside itself says is no answer of this conversation. Its result is.
            Some("assistant") if own => blocks(&line["message"], events),
            Some("user") if own => results(&line["message"], events),
            Some("result") => self.result(line, events),
            _ => Line::Unknown,
        }
    }

    fn end(&mut self, _: &mut Vec<ProgramEvent>) {}
}

impl Claude {
    fn stream_event(&mut self, event: &Value, own: bool, events: &mut Vec<ProgramEvent>) -> Line {
        match text_at(event, "/type") {
            Some("message_start") => {
                self.input = usage(&event["message"]["usage"]);
                Line::Silent
            }
            Some("message_delta") if event["usage"].is_object() => {
                self.counted = true;
                events.push(ProgramEvent::Usage(TokenUsage { output_tokens: count_at(event, "/usage/output_tokens"), ..self.input }));
                Line::Known
            }
            Some("content_block_delta") => match text_at(event, "/delta/text") {
                Some(text) if own => {
                    events.push(ProgramEvent::Delta { text: text.to_owned() });
                    Line::Known
                }
                Some(_) | None => Line::Silent,
            },
            Some("message_delta" | "content_block_start" | "content_block_stop" | "message_stop" | "ping") => Line::Silent,
            _ => Line::Unknown,
        }
    }

    fn result(&mut self, line: &Value, events: &mut Vec<ProgramEvent>) -> Line {
        let (Some(subtype), Some(failed)) = (text_at(line, "/subtype"), line["is_error"].as_bool()) else { return Line::Unknown };
        if !self.counted && line["usage"].is_object() {
            events.push(ProgramEvent::Usage(usage(&line["usage"])));
        }
        let succeeded = subtype == "success" && !failed;
        let message = text_at(line, "/result").filter(|text| !text.is_empty()).unwrap_or(subtype);
        events.push(ProgramEvent::Result { succeeded, message: (!succeeded).then(|| message.to_owned()) });
        Line::Known
    }
}

/// A background task that claude ended together with its turn.
fn stopped_task(line: &Value) -> ProgramEvent {
    let short = |text: &str| text.chars().take(MAX_SUMMARY_CHARS).collect::<String>();
    let task = short(text_at(line, "/task_id").unwrap_or("unknown"));
    let summary = text_at(line, "/summary").map(|summary| format!(": {}", short(summary))).unwrap_or_default();
    let message = format!("claude ended its turn while its background task {task} ran, and has stopped the task{summary}");
    ProgramEvent::Notice { reason: "ProgramTaskStopped", message }
}

fn blocks(message: &Value, events: &mut Vec<ProgramEvent>) -> Line {
    let Some(blocks) = message["content"].as_array() else { return Line::Unknown };
    let model = text_at(message, "/model").unwrap_or_default();
    let mut meaning = Line::Silent;
    for block in blocks {
        meaning = match (text_at(block, "/type"), text_at(block, "/text"), text_at(block, "/id"), text_at(block, "/name")) {
            (Some("text"), Some(text), _, _) => {
                events.push(answer(model, text));
                Line::Known
            }
            (Some("tool_use"), _, Some(id), Some(name)) => {
                push_call(events, model, String::new(), call(id, name, &block["input"]));
                Line::Known
            }
            (Some("thinking" | "redacted_thinking"), ..) => meaning,
            _ => return Line::Unknown,
        };
    }
    meaning
}

fn results(message: &Value, events: &mut Vec<ProgramEvent>) -> Line {
    let Some(blocks) = message["content"].as_array() else { return Line::Unknown };
    for block in blocks {
        match (text_at(block, "/type"), text_at(block, "/tool_use_id")) {
            (Some("tool_result"), Some(id)) => events.push(ended(id, block["is_error"] != true, text_of(&block["content"]))),
            _ => return Line::Unknown,
        }
    }
    Line::Known
}

/// The three numbers of the input are disjoint there.
fn usage(usage: &Value) -> TokenUsage {
    let (cached_tokens, cache_write_tokens) =
        (count_at(usage, "/cache_read_input_tokens"), count_at(usage, "/cache_creation_input_tokens"));
    TokenUsage {
        input_tokens: count_at(usage, "/input_tokens").saturating_add(cached_tokens).saturating_add(cache_write_tokens),
        output_tokens: count_at(usage, "/output_tokens"),
        cached_tokens,
        cache_write_tokens,
        reasoning_tokens: 0,
    }
}
