//! Arguments of tool calls, one type per tool.
//!
//! The schema that the model is offered is derived from the type (see [`super::definition`]), and reading the type checks what the model
//! sent. The doc comment of a field is its description in the schema, so it is written for the model.

use std::num::NonZeroU64;

use schemars::JsonSchema;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::definition::definitions;
use super::output_limit::truncate;

/// Bytes of a message about wrong arguments, which repeats parts of them.
const MAX_MESSAGE_BYTES: usize = 1024;

/// The arguments of one call, by tool.
#[derive(Debug)]
pub enum ToolArgs {
    Shell(ShellArgs),
    Read(ReadArgs),
    Write(WriteArgs),
    Edit(EditArgs),
    ListPods(ListPodsArgs),
    SendToPeerPod(SendArgs),
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ShellArgs {
    #[serde(deserialize_with = "not_empty")]
    #[schemars(length(min = 1))]
    pub command: String,
    // `definitions` adds the maximum, which is the agent's limit, and `parse` checks it.
    #[serde(default, deserialize_with = "not_null")]
    pub timeout_seconds: Option<NonZeroU64>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReadArgs {
    /// Path relative to the root of the tree.
    pub path: String,
    /// First line, from 1.
    #[serde(default, deserialize_with = "not_null")]
    pub offset: Option<NonZeroU64>,
    /// Number of lines, 2000 by default.
    #[serde(default, deserialize_with = "not_null")]
    pub limit: Option<NonZeroU64>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WriteArgs {
    /// Path relative to the root of the tree.
    pub path: String,
    pub content: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EditArgs {
    /// Path relative to the root of the tree.
    pub path: String,
    #[serde(deserialize_with = "not_empty")]
    #[schemars(length(min = 1))]
    pub old: String,
    pub new: String,
    #[serde(default)]
    pub all: bool,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListPodsArgs {}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SendArgs {
    /// Name of the agent.
    #[serde(deserialize_with = "not_empty")]
    #[schemars(length(min = 1))]
    pub to: String,
    #[serde(deserialize_with = "not_empty")]
    #[schemars(length(min = 1))]
    pub message: String,
}

/// An optional argument may be left out, but is not null.
fn not_null<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

fn not_empty<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text = String::deserialize(deserializer)?;
    if text.is_empty() { Err(D::Error::custom("must not be empty")) } else { Ok(text) }
}

/// Checks and reads the arguments of a call.
///
/// # Errors
/// The message for the model: which argument is wrong, and what was expected.
pub fn parse(tool: &str, args: Value, tool_seconds: u32) -> Result<ToolArgs, String> {
    match tool {
        "Shell" => {
            let shell: ShellArgs = read(args)?;
            match shell.timeout_seconds {
                Some(seconds) if seconds.get() > u64::from(tool_seconds) => {
                    Err(format!("invalid_args: /timeoutSeconds: must be at most {tool_seconds}"))
                }
                _ => Ok(ToolArgs::Shell(shell)),
            }
        }
        "Read" => read(args).map(ToolArgs::Read),
        "Write" => read(args).map(ToolArgs::Write),
        "Edit" => read(args).map(ToolArgs::Edit),
        "ListPods" => read(args).map(ToolArgs::ListPods),
        "SendToPeerPod" => read(args).map(ToolArgs::SendToPeerPod),
        _ => {
            let names: Vec<&str> = definitions(tool_seconds).iter().map(|definition| definition.name).collect();
            Err(format!("unknown_tool: there is no tool {tool:?}; there are {}", names.join(", ")))
        }
    }
}

fn read<T: DeserializeOwned>(args: Value) -> Result<T, String> {
    if !args.is_object() {
        return Err(format!("invalid_args: the arguments: expected an object, got {}", type_of(&args)));
    }
    serde_path_to_error::deserialize(args).map_err(|error| {
        let at = if error.path().iter().len() == 0 { String::new() } else { format!("/{}: ", error.path()) };
        truncate(format!("invalid_args: {at}{}", error.inner()), MAX_MESSAGE_BYTES)
    })
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn p22_bad_arguments_are_refused_with_their_path() {
        for (tool, args, sentence) in [
            ("Shell", json!({}), "missing field `command`"),
            ("Shell", json!({"command": 7}), "/command: invalid type: integer `7`, expected a string"),
            ("Shell", json!({"command": ""}), "/command: must not be empty"),
            ("Shell", json!({"command": "ls", "cwd": "/"}), "/cwd: unknown field `cwd`, expected `command` or `timeoutSeconds`"),
            ("Shell", json!({"command": "ls", "timeoutSeconds": 31}), "/timeoutSeconds: must be at most 30"),
            (
                "Shell",
                json!({"command": "ls", "timeoutSeconds": "5"}),
                "/timeoutSeconds: invalid type: string \"5\", expected a nonzero u64",
            ),
            (
                "Shell",
                json!({"command": "ls", "timeoutSeconds": 5.0}),
                "/timeoutSeconds: invalid type: floating point `5.0`, expected a nonzero u64",
            ),
            ("Read", json!({"path": "x", "offset": -1}), "/offset: invalid value: integer `-1`, expected a nonzero u64"),
            ("Read", json!({"path": "x", "offset": 0}), "/offset: invalid value: integer `0`, expected a nonzero u64"),
            ("Read", json!({"path": "x", "limit": null}), "/limit: invalid type: null, expected a nonzero u64"),
            ("Edit", json!({"path": "x", "old": "a", "new": "b", "all": 1}), "/all: invalid type: integer `1`, expected a boolean"),
            ("Edit", json!({"path": "x", "old": "", "new": "b"}), "/old: must not be empty"),
            ("Write", json!("{\"path\": "), "the arguments: expected an object, got a string"),
            ("ListPods", json!({"all": true}), "/all: unknown field `all`, there are no fields"),
            ("SendToPeerPod", json!({"to": "", "message": "m"}), "/to: must not be empty"),
            ("SendToPeerPod", json!({"to": "b", "message": ""}), "/message: must not be empty"),
        ] {
            assert_eq!(parse(tool, args, 30).unwrap_err(), format!("invalid_args: {sentence}"));
        }
        assert!(parse("Rm", json!({}), 30).unwrap_err().starts_with("unknown_tool: there is no tool \"Rm\"; there are Shell,"));
        for definition in definitions(30) {
            assert!(!parse(definition.name, json!({"path": "x", "old": "a"}), 30).is_err_and(|error| error.starts_with("unknown_tool")));
        }
    }

    #[test]
    fn a_message_about_wrong_arguments_repeats_only_a_part_of_them() {
        let long = "x".repeat(1 << 20);
        for args in [json!({"command": "ls", "timeoutSeconds": long}), json!({"command": "ls", long.as_str(): 1}), json!([long])] {
            assert!(parse("Shell", args, 30).unwrap_err().len() <= MAX_MESSAGE_BYTES);
        }
    }

    /// Whatever the schema of a tool calls required is missed when it is left out.
    #[test]
    fn the_schema_and_the_type_require_the_same_arguments() {
        for definition in definitions(30) {
            for name in definition.schema["required"].as_array().unwrap().iter().filter_map(Value::as_str) {
                let others =
                    definition.schema["required"].as_array().unwrap().iter().filter_map(Value::as_str).filter(|other| *other != name);
                let args: Value = others.map(|other| (other.to_owned(), json!("text"))).collect::<serde_json::Map<_, _>>().into();
                assert_eq!(parse(definition.name, args, 30).unwrap_err(), format!("invalid_args: missing field `{name}`"));
            }
        }
    }
}
