//! The tool StopSubagent.

use schemars::JsonSchema;
use serde::Deserialize;
use yoi_wire::manifest::RunLimits;

use super::wait_subagents::sentence;
use crate::decision::Refusal;
use crate::tools::arguments::not_empty;
use crate::tools::result::{CallResult, LiveOutput};
use crate::tools::tool::{ToolContext, TypedTool};

/// Ends a sub-agent.
pub struct StopSubagent;

// No doc comment: it would be in the schema.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Args {
    /// Its name.
    #[serde(deserialize_with = "not_empty")]
    #[schemars(length(min = 1))]
    name: String,
}

impl TypedTool for StopSubagent {
    type Args = Args;
    const NAME: &'static str = "StopSubagent";

    fn description(&self, _limits: &RunLimits) -> String {
        "End a sub-agent with all that it has started, and read its last words.".to_owned()
    }

    fn check(&self, context: &ToolContext, _args: &Args) -> Result<(), Refusal> {
        context.subagents().map(drop)
    }

    async fn run(&self, context: &ToolContext, args: Args, _live: &LiveOutput) -> CallResult {
        let subagents = match context.subagents() {
            Ok(subagents) => subagents,
            Err(refusal) => return CallResult::refused(refusal),
        };
        match subagents.stop(&args.name).await {
            Ok(result) => CallResult::succeeded(sentence(&result)),
            Err(refusal) => CallResult::refused(refusal),
        }
    }
}
