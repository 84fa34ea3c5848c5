//! Arguments as the model gave them, checked against what it was offered.

use serde::Deserialize;
use serde_json::Value;

use super::definition::definitions;

#[derive(Debug)]
pub enum ToolArgs {
    Shell(ShellArgs),
    Read(ReadArgs),
    Write(WriteArgs),
    Edit(EditArgs),
    ListPods(ListPodsArgs),
    SendToPeerPod(SendArgs),
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ShellArgs {
    pub command: String,
    pub timeout_seconds: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReadArgs {
    pub path: String,
    pub offset: Option<u64>,
    pub limit: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WriteArgs {
    pub path: String,
    pub content: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EditArgs {
    pub path: String,
    pub old: String,
    pub new: String,
    #[serde(default)]
    pub all: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListPodsArgs {}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SendArgs {
    pub to: String,
    pub message: String,
}

/// # Errors
/// The sentence for the model, with the path of the argument that is wrong.
pub fn parse(tool: &str, args: Value, tool_seconds: u32) -> Result<ToolArgs, String> {
    let definitions = definitions(tool_seconds);
    let Some(definition) = definitions.iter().find(|definition| definition.name == tool) else {
        let names: Vec<&str> = definitions.iter().map(|definition| definition.name).collect();
        return Err(format!("unknown_tool: there is no tool {tool:?}; there are {}", names.join(", ")));
    };
    check(&definition.schema, &args, "").map_err(|sentence| format!("invalid_args: {sentence}"))?;
    fn read<T: serde::de::DeserializeOwned>(args: Value) -> Result<T, String> {
        serde_json::from_value(args).map_err(|error| format!("invalid_args: {error}"))
    }
    match definition.name {
        "Shell" => read(args).map(ToolArgs::Shell),
        "Read" => read(args).map(ToolArgs::Read),
        "Write" => read(args).map(ToolArgs::Write),
        "Edit" => read(args).map(ToolArgs::Edit),
        "ListPods" => read(args).map(ToolArgs::ListPods),
        "SendToPeerPod" => read(args).map(ToolArgs::SendToPeerPod),
        name => Err(format!("unknown_tool: {name} is offered and not there")),
    }
}

/// The part of JSON Schema that definitions use.
fn check(schema: &Value, value: &Value, path: &str) -> Result<(), String> {
    let place = if path.is_empty() { "the arguments" } else { path };
    let wrong = |expected: &str| Err(format!("{place}: expected {expected}, got {}", kind(value)));
    match schema["type"].as_str() {
        Some("object") => {
            let Some(object) = value.as_object() else { return wrong("an object") };
            for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
                if !object.contains_key(name) {
                    return Err(format!("{path}/{name}: missing"));
                }
            }
            for (name, value) in object {
                match schema["properties"].get(name) {
                    Some(schema) => check(schema, value, &format!("{path}/{name}"))?,
                    None => return Err(format!("{path}/{name}: there is no such argument")),
                }
            }
            Ok(())
        }
        Some("string") => {
            let Some(text) = value.as_str() else { return wrong("a string") };
            if text.is_empty() && schema["minLength"].as_u64().is_some() {
                return Err(format!("{place}: must not be empty"));
            }
            Ok(())
        }
        Some("integer") => {
            let Some(number) = value.as_u64() else { return wrong("a whole number") };
            match (schema["minimum"].as_u64(), schema["maximum"].as_u64()) {
                (Some(least), _) if number < least => Err(format!("{place}: must be at least {least}")),
                (_, Some(most)) if number > most => Err(format!("{place}: must be at most {most}")),
                _ => Ok(()),
            }
        }
        Some("boolean") if value.is_boolean() => Ok(()),
        Some("boolean") => wrong("true or false"),
        other => Err(format!("{place}: the definition has the type {other:?}, which nothing checks")),
    }
}

fn kind(value: &Value) -> &'static str {
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
            ("Shell", json!({}), "invalid_args: /command: missing"),
            ("Shell", json!({"command": 7}), "invalid_args: /command: expected a string, got a number"),
            ("Shell", json!({"command": ""}), "invalid_args: /command: must not be empty"),
            ("Shell", json!({"command": "ls", "cwd": "/"}), "invalid_args: /cwd: there is no such argument"),
            ("Shell", json!({"command": "ls", "timeoutSeconds": 31}), "invalid_args: /timeoutSeconds: must be at most 30"),
            (
                "Shell",
                json!({"command": "ls", "timeoutSeconds": "5"}),
                "invalid_args: /timeoutSeconds: expected a whole number, got a string",
            ),
            ("Read", json!({"path": "x", "offset": -1}), "invalid_args: /offset: expected a whole number, got a number"),
            ("Edit", json!({"path": "x", "old": "a", "new": "b", "all": 1}), "invalid_args: /all: expected true or false, got a number"),
            ("Write", json!("{\"path\": "), "invalid_args: the arguments: expected an object, got a string"),
            ("ListPods", json!({"all": true}), "invalid_args: /all: there is no such argument"),
        ] {
            assert_eq!(parse(tool, args, 30).unwrap_err(), sentence);
        }
        assert!(parse("Rm", json!({}), 30).unwrap_err().starts_with("unknown_tool: there is no tool \"Rm\"; there are Shell,"));
        for definition in definitions(30) {
            assert!(!parse(definition.name, json!({"path": "x", "old": "a"}), 30).is_err_and(|error| error.starts_with("unknown_tool")));
        }
    }
}
