//! The tools as the model is offered them.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

use super::call_args::{EditArgs, ListPodsArgs, ReadArgs, SendArgs, ShellArgs, WriteArgs};

/// A tool as it is offered. [`super::call_args::parse`] reads the arguments into the type that the schema is derived from.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolDefinition {
    pub name: &'static str,
    pub description: String,
    /// The JSON Schema of the arguments, always of an object.
    pub schema: Value,
}

/// All tools. `tool_seconds` is the agent's time limit for one call.
#[must_use]
pub fn definitions(tool_seconds: u32) -> Vec<ToolDefinition> {
    let mut shell = schema_of::<ShellArgs>();
    shell["properties"]["timeoutSeconds"]["maximum"] = tool_seconds.into();
    vec![
        ToolDefinition {
            name: "Shell",
            description: format!(
                "Run a shell command in the root of the tree. Standard output and error come back interleaved, with the exit code. \
                 It may take {tool_seconds} seconds; every process that it started ends with it."
            ),
            schema: shell,
        },
        ToolDefinition { name: "Read", description: "Read a text file.".to_owned(), schema: schema_of::<ReadArgs>() },
        ToolDefinition {
            name: "Write",
            description: "Write a text file, whole, with the folders it needs. What stood there is replaced.".to_owned(),
            schema: schema_of::<WriteArgs>(),
        },
        ToolDefinition {
            name: "Edit",
            description: "Replace a piece of a text file. `old` must be in the file exactly once, unless `all` is true.".to_owned(),
            schema: schema_of::<EditArgs>(),
        },
        ToolDefinition {
            name: "ListPods",
            description: "List the agents that you may see, why you see them, and whether they seem reachable.".to_owned(),
            schema: schema_of::<ListPodsArgs>(),
        },
        ToolDefinition {
            name: "SendToPeerPod",
            description: "Send a message to another agent that is your peer. It is delivered once; an idle agent starts to work on it. \
                          An answer, if there is one, comes as a message."
                .to_owned(),
            schema: schema_of::<SendArgs>(),
        },
    ]
}

/// The schema of a type's arguments, with only those keywords that every endpoint accepts: an optional argument may be left out, but is not
/// null.
fn schema_of<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.meta_schema = None;
        settings.inline_subschemas = true;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    schema.remove("title");
    let schema = schema.ensure_object();
    // Endpoints refuse an object schema without these, also when there are no arguments.
    schema.entry("required").or_insert_with(|| Value::Array(Vec::new()));
    let properties = schema.entry("properties").or_insert_with(|| Value::Object(Map::new()));
    for property in properties.as_object_mut().into_iter().flat_map(|properties| properties.values_mut()).filter_map(Value::as_object_mut) {
        property.remove("format");
        property.remove("default");
        let single = property.get("type").and_then(Value::as_array).and_then(|types| types.iter().find(|name| *name != "null").cloned());
        if let Some(single) = single {
            property.insert("type".to_owned(), single);
        }
    }
    Value::Object(std::mem::take(schema))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_model_is_offered_the_six_tools_of_the_golden_file() {
        let golden: Value = serde_json::from_str(include_str!("definition/golden.json")).unwrap();
        let offered =
            definitions(30).into_iter().map(|tool| json!({"name": tool.name, "description": tool.description, "schema": tool.schema}));
        assert_eq!(Value::from_iter(offered), golden);
    }
}
