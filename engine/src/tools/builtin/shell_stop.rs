//! The tool ShellStop.

use schemars::JsonSchema;
use serde::Deserialize;
use yoi_wire::manifest::RunLimits;

use super::shell_output::describe;
use crate::tools::arguments::not_empty;
use crate::tools::result::{CallResult, LiveOutput};
use crate::tools::tool::{ToolContext, TypedTool};

/// Bytes of an output's limit that are kept free for the line about its state.
const RESERVED_FOR_STATUS: usize = 300;

/// Ends a background command.
pub struct ShellStop;

// No doc comment: it would be in the schema.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Args {
    /// The id that Shell returned.
    #[serde(deserialize_with = "not_empty")]
    #[schemars(length(min = 1))]
    id: String,
}

impl TypedTool for ShellStop {
    type Args = Args;
    const NAME: &'static str = "ShellStop";

    fn description(&self, _limits: &RunLimits) -> String {
        "End a background command with all its processes. Returns what it wrote since it was last read.".to_owned()
    }

    async fn run(&self, context: &ToolContext, args: Args, _live: &LiveOutput) -> CallResult {
        let bytes = context.output_bytes().saturating_sub(RESERVED_FOR_STATUS);
        match context.shell.stop_background(&args.id, bytes).await {
            Ok(output) => CallResult::succeeded(describe(&output)),
            Err(error) => CallResult::failed(error.to_string()),
        }
    }
}
