//! The tool Command.

use schemars::JsonSchema;
use serde::Deserialize;
use yoi_wire::manifest::RunLimits;

use crate::assets::{COMMAND, text_of_command};
use crate::decision::Refusal;
use crate::tools::arguments::{invalid, not_empty, not_null};
use crate::tools::result::{CallResult, LiveOutput};
use crate::tools::tool::{ToolContext, TypedTool};

/// Gives the text of a command of the tree. One tool for all: endpoints take no name of a tool with a dot in it, as `command.run.NAME`.
pub struct Command;

// No doc comment: it would be in the schema.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Args {
    /// Name of the command, without `/`.
    #[serde(deserialize_with = "not_empty")]
    #[schemars(length(min = 1))]
    name: String,
    /// What people write after the name: `name=value` for its parameters, or an object of JSON.
    #[serde(default, deserialize_with = "not_null")]
    arguments: Option<String>,
}

impl TypedTool for Command {
    type Args = Args;
    const NAME: &'static str = COMMAND;
    const READS_ONLY: bool = true;

    fn description(&self, _limits: &RunLimits) -> String {
        "Get the text of a command of the repository, with its arguments put in: instructions for you, of which nothing has been done. Commands:"
            .to_owned()
    }

    fn check(&self, context: &ToolContext, args: &Args) -> Result<(), Refusal> {
        text(context, args).map(|_| ())
    }

    async fn run(&self, context: &ToolContext, args: Args, _live: &LiveOutput) -> CallResult {
        match text(context, &args) {
            Ok(text) => CallResult::succeeded(text),
            Err(refusal) => CallResult::refused(refusal),
        }
    }
}

fn text(context: &ToolContext, Args { name, arguments }: &Args) -> Result<String, Refusal> {
    text_of_command(&context.assets.current(), name, arguments.as_deref().unwrap_or_default()).map_err(invalid)
}
