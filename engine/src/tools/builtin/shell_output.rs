//! The tool ShellOutput.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use yoi_wire::manifest::RunLimits;

use crate::decision::Refusal;
use crate::tools::arguments::{invalid, not_empty, not_null};
use crate::tools::result::{CallResult, LiveOutput};
use crate::tools::shell::BackgroundOutput;
use crate::tools::tool::{ToolContext, TypedTool, default_time_limit};

/// The longest time that a call may wait.
const MAX_WAIT_SECONDS: u32 = 3600;
/// Bytes of an output's limit that are kept free for the line about its state.
const RESERVED_FOR_STATUS: usize = 300;

/// Reads what a background command wrote.
pub struct ShellOutput;

// No doc comment: it would be in the schema.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Args {
    /// The id that Shell returned.
    #[serde(deserialize_with = "not_empty")]
    #[schemars(length(min = 1))]
    id: String,
    /// How long to wait for new output or for the end, 0 by default.
    #[serde(default, deserialize_with = "not_null")]
    #[schemars(range(max = 3600))]
    wait_seconds: Option<u32>,
}

impl Args {
    fn wait(&self) -> Duration {
        Duration::from_secs(u64::from(self.wait_seconds.unwrap_or(0)))
    }
}

impl TypedTool for ShellOutput {
    type Args = Args;
    const NAME: &'static str = "ShellOutput";
    const READS_ONLY: bool = true;

    fn description(&self, _limits: &RunLimits) -> String {
        "Read what a background command wrote since it was last read, and whether it still runs or how it ended.".to_owned()
    }

    fn check(&self, _context: &ToolContext, args: &Args) -> Result<(), Refusal> {
        match args.wait_seconds {
            Some(seconds) if seconds > MAX_WAIT_SECONDS => Err(invalid(format_args!("/waitSeconds: must be at most {MAX_WAIT_SECONDS}"))),
            Some(_) | None => Ok(()),
        }
    }

    fn time_limit(&self, limits: &RunLimits, args: &Args) -> Duration {
        default_time_limit(limits) + args.wait()
    }

    async fn run(&self, context: &ToolContext, args: Args, _live: &LiveOutput) -> CallResult {
        let bytes = context.output_bytes().saturating_sub(RESERVED_FOR_STATUS);
        match context.shell.background_output(&args.id, args.wait(), bytes).await {
            Ok(output) => CallResult::succeeded(describe(&output)),
            Err(error) => CallResult::failed(error.to_string()),
        }
    }
}

/// The new output and the state of the command.
pub fn describe(output: &BackgroundOutput) -> String {
    let text = if output.text.is_empty() { "[no new output]\n" } else { &output.text };
    format!("{text}{}", output.end.as_deref().unwrap_or("[it is running]"))
}
