//! The tool WaitSubagents.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use yoi_wire::manifest::RunLimits;

use crate::decision::Refusal;
use crate::subagents::{SubagentResult, SubagentState};
use crate::tools::arguments::{check_wait, wait_time};
use crate::tools::result::{CallResult, LiveOutput};
use crate::tools::tool::{ToolContext, TypedTool, default_time_limit};

/// Waits for sub-agents, and gives their answers.
pub struct WaitSubagents;

// No doc comment: it would be in the schema.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Args {
    /// Names of sub-agents of this conversation; all of them when it is left out.
    #[serde(default)]
    names: Vec<String>,
    /// Wait for all of them; else for the first one.
    #[serde(default)]
    all: bool,
    /// How long to wait at most, 300 by default.
    #[serde(default)]
    #[schemars(range(max = 3600))]
    wait_seconds: Option<u32>,
}

impl TypedTool for WaitSubagents {
    type Args = Args;
    const NAME: &'static str = "WaitSubagents";
    const READS_ONLY: bool = true;

    fn description(&self, _limits: &RunLimits) -> String {
        "Wait until one of your sub-agents, or all of them, have ended, and read their answers.".to_owned()
    }

    fn check(&self, context: &ToolContext, args: &Args) -> Result<(), Refusal> {
        check_wait(args.wait_seconds)?;
        context.subagents().map(drop)
    }

    fn time_limit(&self, limits: &RunLimits, args: &Args) -> Duration {
        default_time_limit(limits) + wait_time(args.wait_seconds)
    }

    async fn run(&self, context: &ToolContext, args: Args, _live: &LiveOutput) -> CallResult {
        let subagents = match context.subagents() {
            Ok(subagents) => subagents,
            Err(refusal) => return CallResult::refused(refusal),
        };
        match subagents.wait(&args.names, args.all, wait_time(args.wait_seconds)).await {
            Ok(results) if results.is_empty() => CallResult::succeeded("No sub-agent was started."),
            Ok(results) => CallResult::succeeded(results.iter().map(sentence).collect::<Vec<_>>().join("\n\n")),
            Err(refusal) => CallResult::refused(refusal),
        }
    }
}

/// How a sub-agent is, with its words.
pub(super) fn sentence(result: &SubagentResult) -> String {
    let SubagentResult { status, words } = result;
    let state = match status.state {
        SubagentState::Running => return format!("{} works.", status.name),
        SubagentState::Completed => "has done its task",
        SubagentState::Failed => "has failed",
        SubagentState::Stopped => "was ended",
    };
    let why = status.why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
    let words = if words.is_empty() { "It said nothing.".to_owned() } else { format!("Its last words:\n{words}") };
    format!("{} {state}{why}. {words}", status.name)
}
