//! What the model is told of the tools.

use serde_json::{Value, json};

/// A tool as it is offered: what [`super::call_args::parse`] checks against is the same schema.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolDefinition {
    pub name: &'static str,
    pub description: String,
    pub schema: Value,
}

#[must_use]
pub fn definitions(tool_seconds: u32) -> Vec<ToolDefinition> {
    let object = |properties: Value, required: &[&str]| json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false});
    let path = json!({"type": "string", "description": "Path relative to the root of the tree."});
    vec![
        ToolDefinition {
            name: "Shell",
            description: format!(
                "Run a shell command in the root of the tree. Standard output and error come back interleaved, with the exit code. \
                 It may take {tool_seconds} seconds; every process that it started ends with it."
            ),
            schema: object(
                json!({
                    "command": {"type": "string", "minLength": 1},
                    "timeoutSeconds": {"type": "integer", "minimum": 1, "maximum": tool_seconds},
                }),
                &["command"],
            ),
        },
        ToolDefinition {
            name: "Read",
            description: "Read a text file.".to_owned(),
            schema: object(
                json!({
                    "path": path,
                    "offset": {"type": "integer", "minimum": 1, "description": "First line, from 1."},
                    "limit": {"type": "integer", "minimum": 1, "description": "Number of lines, 2000 by default."},
                }),
                &["path"],
            ),
        },
        ToolDefinition {
            name: "Write",
            description: "Write a text file, whole, with the folders it needs. What stood there is replaced.".to_owned(),
            schema: object(json!({"path": path, "content": {"type": "string"}}), &["path", "content"]),
        },
        ToolDefinition {
            name: "Edit",
            description: "Replace a piece of a text file. `old` must be in the file exactly once, unless `all` is true.".to_owned(),
            schema: object(
                json!({
                    "path": path,
                    "old": {"type": "string", "minLength": 1},
                    "new": {"type": "string"},
                    "all": {"type": "boolean"},
                }),
                &["path", "old", "new"],
            ),
        },
        ToolDefinition {
            name: "ListPods",
            description: "List the agents that you may see, why you see them, and whether they seem reachable.".to_owned(),
            schema: object(json!({}), &[]),
        },
        ToolDefinition {
            name: "SendToPeerPod",
            description: "Send a message to another agent that is your peer. It is delivered once; an idle agent starts to work on it. \
                          An answer, if there is one, comes as a message."
                .to_owned(),
            schema: object(
                json!({"to": {"type": "string", "minLength": 1, "description": "Name of the agent."}, "message": {"type": "string", "minLength": 1}}),
                &["to", "message"],
            ),
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_is_offered_the_six_tools_of_the_golden_file() {
        let golden: Value = serde_json::from_str(include_str!("definition/golden.json")).unwrap();
        let offered =
            definitions(30).into_iter().map(|tool| json!({"name": tool.name, "description": tool.description, "schema": tool.schema}));
        assert_eq!(Value::from_iter(offered), golden);
    }
}
