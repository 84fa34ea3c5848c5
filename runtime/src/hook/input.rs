//! What a program tells its hook, in the words of each program that has hooks. Fields that are not known are passed over.
//!
//! | Program | Tool | Arguments | Id | Result |
//! |---|---|---|---|---|
//! | Claude Code | `tool_name` | `tool_input` | `tool_use_id` | `tool_response`; `error` of a call that failed |
//! | Gemini CLI | `tool_name` | `tool_input` | none | `tool_response` with `llmContent` and `error` |
//! | Copilot CLI | `toolName` | `toolArgs`, JSON as text | none | `toolResult` with `resultType` and `textResultForLlm` |

use serde_json::Value;
use yoi_engine::foreign_json;
use yoi_engine::tools::output_limit;
use yoi_wire::entry::ToolOutcome;

use crate::program_socket::HookCall;

const TOOL: [&str; 3] = ["tool_name", "toolName", "tool"];
const ARGS: [&str; 4] = ["tool_input", "toolArgs", "toolInput", "args"];
const ID: [&str; 4] = ["tool_use_id", "toolUseId", "tool_call_id", "toolCallId"];
const RESULT: [&str; 4] = ["tool_response", "toolResult", "tool_result", "toolResponse"];
/// Where the text of a result stands, the best first.
const TEXT: [&str; 6] = ["llmContent", "textResultForLlm", "content", "text", "output", "result"];
/// Bytes of a result that go to the log. As escaped JSON they still fit into one request.
const MAX_OUTPUT_BYTES: usize = 128 << 10;

/// A call, and how it ended where it has.
#[derive(Debug, PartialEq)]
pub(super) struct HookInput {
    pub call: HookCall,
    pub outcome: ToolOutcome,
    pub output: String,
}

impl HookInput {
    /// # Errors
    /// What is not understood, as a clause.
    pub fn read(text: &[u8]) -> Result<Self, String> {
        let all: Value = foreign_json::from_slice(text).map_err(|error| format!("it is no JSON: {error}"))?;
        let tool = first(&all, &TOOL).and_then(Value::as_str).filter(|tool| !tool.is_empty());
        let tool = tool.ok_or_else(|| format!("it names no tool in any of {}", TOOL.join(", ")))?;
        let args = match first(&all, &ARGS) {
            Some(Value::String(json)) => foreign_json::from_str(json).unwrap_or_else(|_| Value::String(json.clone())),
            Some(args) => args.clone(),
            None => Value::Object(serde_json::Map::new()),
        };
        let call_id = first(&all, &ID).and_then(Value::as_str).filter(|id| !id.is_empty());
        let result = first(&all, &RESULT).unwrap_or(&Value::Null);
        let error = [&all["error"], &result["error"]].into_iter().find(|error| is_told(error));
        let output = match (result_text(result), error) {
            (text, Some(error)) if text.is_empty() || *result == Value::Null => error_text(error),
            (text, _) => text,
        };
        let outcome = match result["resultType"].as_str() {
            Some("denied" | "rejected") => ToolOutcome::Refused,
            _ if error.is_some() || says_failure(result) => ToolOutcome::Failed,
            _ => ToolOutcome::Succeeded,
        };
        let call = HookCall { call_id: call_id.map(str::to_owned), tool: tool.to_owned(), args };
        Ok(Self { call, outcome, output: output_limit::truncate(output, MAX_OUTPUT_BYTES) })
    }
}

fn first<'a>(all: &'a Value, names: &[&str]) -> Option<&'a Value> {
    names.iter().filter_map(|name| all.get(name)).find(|value| !value.is_null())
}

fn is_told(error: &Value) -> bool {
    !matches!(error, Value::Null | Value::Bool(false)) && error.as_str() != Some("")
}

fn says_failure(result: &Value) -> bool {
    let is = |name: &str, value: bool| result[name] == Value::Bool(value);
    is("is_error", true)
        || is("isError", true)
        || is("interrupted", true)
        || is("success", false)
        || matches!(result["resultType"].as_str(), Some("failure" | "error"))
}

fn error_text(error: &Value) -> String {
    error["message"].as_str().or(error.as_str()).map_or_else(|| error.to_string(), str::to_owned)
}

/// The text of a result. What is not understood is written as JSON.
fn result_text(result: &Value) -> String {
    match result {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            let texts: Vec<String> = parts.iter().map(result_text).collect();
            texts.join("\n")
        }
        Value::Object(fields) => {
            // The shell of Claude Code.
            if let (Some(out), Some(err)) = (result["stdout"].as_str(), result["stderr"].as_str()) {
                let between = if out.is_empty() || err.is_empty() || out.ends_with('\n') { "" } else { "\n" };
                return format!("{out}{between}{err}");
            }
            // What Claude Code has read of a file.
            if let Some(text) = result["file"]["content"].as_str() {
                return text.to_owned();
            }
            match TEXT.iter().filter_map(|name| fields.get(*name)).find(|value| !value.is_null()) {
                Some(text) => result_text(text),
                None => result.to_string(),
            }
        }
        Value::Bool(_) | Value::Number(_) => result.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(input: Value) -> HookInput {
        HookInput::read(input.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn the_calls_of_each_program_are_understood() {
        let claude = json!({
            "session_id": "s", "hook_event_name": "PostToolUse", "tool_name": "Bash", "tool_input": {"command": "ls"}, "tool_use_id": "toolu_1",
            "tool_response": {"stdout": "a", "stderr": "b", "interrupted": false, "isImage": false},
        });
        let read_file = json!({
            "tool_name": "Read", "tool_input": {"file_path": "/t/a"}, "tool_use_id": "toolu_2",
            "tool_response": {"type": "text", "file": {"filePath": "/t/a", "content": "hello\n", "numLines": 2, "startLine": 1, "totalLines": 2}},
        });
        let gemini = json!({
            "hook_event_name": "AfterTool", "tool_name": "read_file", "tool_input": {"path": "a"},
            "tool_response": {"llmContent": [{"text": "one"}, {"text": "two"}], "returnDisplay": "shown"},
        });
        let copilot = json!({
            "timestamp": 1, "toolName": "bash", "toolArgs": "{\"command\":\"ls\"}",
            "toolResult": {"resultType": "success", "textResultForLlm": "a"},
        });
        let call = |id: Option<&str>, tool: &str, args: Value| HookCall { call_id: id.map(str::to_owned), tool: tool.to_owned(), args };
        for (input, expected, output) in [
            (claude, call(Some("toolu_1"), "Bash", json!({"command": "ls"})), "a\nb"),
            (read_file, call(Some("toolu_2"), "Read", json!({"file_path": "/t/a"})), "hello\n"),
            (gemini, call(None, "read_file", json!({"path": "a"})), "one\ntwo"),
            (copilot, call(None, "bash", json!({"command": "ls"})), "a"),
        ] {
            let read = read(input);
            assert_eq!((read.call, read.output.as_str(), read.outcome), (expected, output, ToolOutcome::Succeeded));
        }
    }

    #[test]
    fn a_text_that_was_cut_in_the_middle_of_a_character_loses_no_call() {
        let read =
            HookInput::read(br#"{"toolName": "bash", "toolArgs": "{\"command\":\"\\ud83d\"}", "toolResult": "half \ud83d"}"#).unwrap();
        assert_eq!((read.call.args, read.output.as_str()), (json!({"command": "\u{fffd}"}), "half \u{fffd}"));
    }

    #[test]
    fn a_call_that_failed_is_told_as_failed_with_its_words() {
        for (fields, output) in [
            (json!({"error": "exit 1"}), "exit 1"),
            (json!({"tool_response": {"llmContent": "", "error": {"type": "t", "message": "no file"}}}), "no file"),
            (json!({"tool_response": {"content": [{"type": "text", "text": "no"}], "is_error": true}}), "no"),
            (json!({"toolResult": {"resultType": "failure", "textResultForLlm": "bad"}}), "bad"),
            (json!({"tool_response": {"stdout": "half", "stderr": "", "interrupted": true}}), "half"),
        ] {
            let mut input = json!({"tool_name": "T", "tool_input": {}});
            input.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            let read = read(input);
            assert_eq!((read.outcome, read.output.as_str()), (ToolOutcome::Failed, output));
        }
        let denied = read(json!({"toolName": "T", "toolResult": {"resultType": "denied"}}));
        assert_eq!(denied.outcome, ToolOutcome::Refused);
    }

    #[test]
    fn what_names_no_tool_is_no_call_and_a_long_output_is_bounded() {
        for text in ["", "{}", "[]", "null", "{\"tool_name\": \"\"}", "{\"tool_name\": 7}", "{\"tool_name\": \"Ba"] {
            assert!(HookInput::read(text.as_bytes()).is_err(), "{text}");
        }
        let long = read(json!({"tool_name": "T", "tool_response": "x".repeat(1 << 20)}));
        assert!(long.output.len() <= MAX_OUTPUT_BYTES);
        let unknown = read(json!({"tool_name": "T", "tool_response": {"filePath": "a", "success": true}}));
        assert_eq!(unknown.output, "{\"filePath\":\"a\",\"success\":true}");
    }
}
