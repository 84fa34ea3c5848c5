//! `codex exec --json`. An item is a text or a call; calls begin and end. The tokens that it tells are those of the whole session, runs
//! before this one included, so they are not counted: the model proxy counts.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use yoi_wire::entry::ToolCall;

use super::{Line, ProgramLines, answer, call, ended, push_call, text_at, text_of};
use crate::program::event::ProgramEvent;

/// Calls that may be open at once. A program that opens more is not believed.
const MAX_OPEN: usize = 256;

#[derive(Default)]
pub struct Codex {
    open: BTreeSet<String>,
}

impl ProgramLines for Codex {
    fn read(&mut self, line: &Value, events: &mut Vec<ProgramEvent>) -> Line {
        match (text_at(line, "/type"), text_at(line, "/item/type")) {
            (Some("thread.started"), _) => match text_at(line, "/thread_id") {
                Some(id) => {
                    events.push(ProgramEvent::Session { id: id.to_owned() });
                    Line::Known
                }
                None => Line::Unknown,
            },
            (Some("turn.started"), _) => Line::Silent,
            (Some("turn.completed"), _) => {
                events.push(ProgramEvent::Result { succeeded: true, message: None });
                Line::Known
            }
            (Some("turn.failed"), _) => {
                let message = text_at(line, "/error/message").unwrap_or("the turn failed").to_owned();
                events.push(ProgramEvent::Result { succeeded: false, message: Some(message) });
                Line::Known
            }
            (Some("item.completed"), Some("agent_message")) => match text_at(line, "/item/text") {
                Some(text) => {
                    events.push(answer("", text));
                    Line::Known
                }
                None => Line::Unknown,
            },
            (Some("item.started" | "item.updated" | "item.completed"), Some("reasoning")) => Line::Silent,
            (Some(kind @ ("item.started" | "item.updated" | "item.completed")), Some(_)) => self.item(kind, &line["item"], events),
            _ => Line::Unknown,
        }
    }

    fn end(&mut self, _: &mut Vec<ProgramEvent>) {}
}

impl Codex {
    fn item(&mut self, kind: &str, item: &Value, events: &mut Vec<ProgramEvent>) -> Line {
        let Some(call) = call_of(item) else { return Line::Unknown };
        let id = call.call_id.clone();
        let is_new = !self.open.contains(&id);
        if is_new && self.open.len() < MAX_OPEN {
            self.open.insert(id.clone());
            push_call(events, "", String::new(), call);
        }
        match kind {
            "item.completed" => {
                self.open.remove(&id);
                events.push(ended(&id, succeeded(item), output(item)));
                Line::Known
            }
            "item.updated" if !is_new => Line::Silent,
            _ => Line::Known,
        }
    }
}

fn call_of(item: &Value) -> Option<ToolCall> {
    let id = text_at(item, "/id")?;
    match text_at(item, "/type")? {
        kind @ "command_execution" => Some(call(id, kind, &json!({"command": text_at(item, "/command")?}))),
        kind @ "file_change" => Some(call(id, kind, &json!({"changes": item["changes"]}))),
        kind @ "web_search" => Some(call(id, kind, &json!({"query": item["query"]}))),
        "mcp_tool_call" => {
            let tool = format!("mcp__{}__{}", text_at(item, "/server")?, text_at(item, "/tool")?);
            Some(call(id, &tool, &item["arguments"]))
        }
        _ => None,
    }
}

fn succeeded(item: &Value) -> bool {
    item["status"] != "failed"
        && item["status"] != "declined"
        && item["exit_code"].as_i64().unwrap_or_default() == 0
        && item["error"].is_null()
}

fn output(item: &Value) -> String {
    if let Some(text) = text_at(item, "/aggregated_output").or_else(|| text_at(item, "/error/message")) {
        return text.to_owned();
    }
    text_of(item.pointer("/result/content").unwrap_or(&Value::Null))
}
