//! `copilot -p --output-format json`. It prints its whole event log; most kinds say nothing that the log of an agent keeps. Its own session
//! id stands in the last line. It does not tell its tokens: the model proxy counts.

use serde_json::Value;
use yoi_wire::entry::{Assistant, StopReason};

use super::{Line, ProgramLines, call, ended, text_at, text_of};
use crate::program::event::ProgramEvent;

/// Kinds that say nothing which the log keeps.
pub const SILENT: &[&str] = &[
    "assistant.idle",
    "assistant.message_start",
    "assistant.reasoning",
    "assistant.reasoning_delta",
    "assistant.tool_call_delta",
    "assistant.turn_end",
    "assistant.turn_start",
    "model.call_final_result",
    "model.call_finished",
    "model.call_start",
    "session.background_tasks_changed",
    "session.mcp_server_status_changed",
    "session.mcp_server_tools_loaded",
    "session.mcp_servers_loaded",
    "session.skills_loaded",
    "session.tools_updated",
    "tool.execution_partial_result",
    "tool.shell_output",
    "user.message",
];

pub struct Copilot;

impl ProgramLines for Copilot {
    fn read(&mut self, line: &Value, events: &mut Vec<ProgramEvent>) -> Line {
        let Some(kind) = text_at(line, "/type") else { return Line::Unknown };
        let data = &line["data"];
        // What an agent inside the program says is no answer of this conversation. The result of the call that started it is.
        if SILENT.contains(&kind) {
            return Line::Silent;
        }
        if !data["parentToolCallId"].is_null() {
            return Line::Unknown;
        }
        match kind {
            "assistant.message_delta" => match text_at(data, "/deltaContent") {
                Some(text) => events.push(ProgramEvent::Delta { text: text.to_owned() }),
                None => return Line::Unknown,
            },
            "assistant.message" => match message(data) {
                Some(answer) => events.push(ProgramEvent::Answer(answer)),
                None => return Line::Unknown,
            },
            "tool.execution_start" => match (text_at(data, "/toolCallId"), text_at(data, "/toolName")) {
                (Some(id), Some(tool)) => events.push(ProgramEvent::CallStarted { call_id: id.to_owned(), tool: tool.to_owned() }),
                _ => return Line::Unknown,
            },
            "tool.execution_complete" => {
                let (Some(id), Some(succeeded)) = (text_at(data, "/toolCallId"), data["success"].as_bool()) else { return Line::Unknown };
                let exit_code = data.pointer("/shellExecution/exitCode").and_then(Value::as_i64).unwrap_or_default();
                let result = data.pointer("/result/content").or_else(|| data.pointer("/error/message")).unwrap_or(&Value::Null);
                events.push(ended(id, succeeded && exit_code == 0, text_of(result)));
            }
            "result" => {
                let (Some(id), Some(exit_code)) = (text_at(line, "/sessionId"), line["exitCode"].as_i64()) else { return Line::Unknown };
                events.push(ProgramEvent::Session { id: id.to_owned() });
                let message = (exit_code != 0).then(|| format!("copilot ended with exit code {exit_code}"));
                events.push(ProgramEvent::Result { succeeded: exit_code == 0, message });
            }
            _ => return Line::Unknown,
        }
        Line::Known
    }

    fn end(&mut self, _: &mut Vec<ProgramEvent>) {}
}

fn message(data: &Value) -> Option<Assistant> {
    let text = text_at(data, "/content")?.to_owned();
    let calls = data["toolRequests"].as_array().map(Vec::as_slice).unwrap_or_default().iter();
    let tool_calls: Vec<_> = calls
        .map(|asked| Some(call(text_at(asked, "/toolCallId")?, text_at(asked, "/name")?, &asked["arguments"])))
        .collect::<Option<_>>()?;
    let stop = Some(if tool_calls.is_empty() { StopReason::End } else { StopReason::ToolCalls });
    let model = text_at(data, "/model").unwrap_or_default().to_owned();
    Some(Assistant { text, tool_calls, model, stop, ..Assistant::default() })
}
