//! The tool DiffPod.

use schemars::JsonSchema;
use serde::Deserialize;
use yoi_wire::children::DiffRequest;
use yoi_wire::manifest::RunLimits;
use yoi_wire::people::{DiffResponse, DiffSince};

use super::child::ask;
use crate::decision::Refusal;
use crate::tools::arguments::not_empty;
use crate::tools::result::{CallResult, LiveOutput};
use crate::tools::tool::{ToolContext, TypedTool};

/// The most paths that are listed where there is no text.
const MAX_PATHS: usize = 500;

/// Reads what a child has changed.
pub struct DiffPod;

// No doc comment: it would be in the schema.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Args {
    /// Name of an agent that you started.
    #[serde(deserialize_with = "not_empty")]
    #[schemars(length(min = 1))]
    name: String,
    /// Only what it has not committed.
    #[serde(default)]
    uncommitted: bool,
}

impl TypedTool for DiffPod {
    type Args = Args;
    const NAME: &'static str = "DiffPod";
    const READS_ONLY: bool = true;

    fn description(&self, _limits: &RunLimits) -> String {
        "Read the tree of an agent that you started, living or stopped, as a unified diff from the base of your project. It has what you had changed \
         before you started the agent, too."
            .to_owned()
    }

    fn check(&self, context: &ToolContext, _args: &Args) -> Result<(), Refusal> {
        context.children().map(drop)
    }

    async fn run(&self, context: &ToolContext, args: Args, _live: &LiveOutput) -> CallResult {
        let since = if args.uncommitted { DiffSince::Commit } else { DiffSince::Base };
        let request = DiffRequest { name: args.name, since };
        ask(context, |children| async move {
            let diff = children.diff(&request).await?;
            Ok(CallResult::succeeded(diff_text(&request.name, &diff)))
        })
        .await
    }
}

/// The text where the tree is a git work tree, else the paths.
fn diff_text(name: &str, diff: &DiffResponse) -> String {
    let cut = if diff.cut { "\n[The diff is cut here.]" } else { "" };
    if let Some(text) = &diff.text {
        return if text.is_empty() { format!("{name} has changed nothing.") } else { format!("{text}{cut}") };
    }
    let why = diff.no_text.as_deref().or(diff.no_base.as_deref()).unwrap_or("the tree is no git work tree");
    let paths: Vec<&str> = diff.paths.iter().take(MAX_PATHS).map(|changed| changed.path.as_str()).collect();
    let more = diff.paths.len().saturating_sub(paths.len());
    let more = if more > 0 { format!("\n[{more} more]") } else { cut.to_owned() };
    format!("[There is no text: {why}. {} paths differ.]\n{}{more}", diff.paths.len(), paths.join("\n"))
}
