//! The tool MergePod.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use yoi_wire::entry::ToolOutcome;
use yoi_wire::hub::RefusalReason;
use yoi_wire::manifest::RunLimits;
use yoi_wire::merge::{MergeConflict, MergeOutcome, MergeRequest, MergeStrategy, MergedPath};

use super::peers_error_sentence;
use crate::decision::Refusal;
use crate::peers::PeersError;
use crate::tools::arguments::not_empty;
use crate::tools::result::{CallResult, LiveOutput};
use crate::tools::tool::{ToolContext, TypedTool};

/// A bundle may be large, and whoever merges ends it by itself before that.
const TIME_LIMIT: Duration = Duration::from_secs(300);
/// Paths that the model is told of.
const MAX_LINES: usize = 200;

/// Merges a child's work into the tree.
pub struct MergePod;

// No doc comment: it would be in the schema.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Args {
    /// Name of an agent that you started.
    #[serde(deserialize_with = "not_empty")]
    #[schemars(length(min = 1))]
    name: String,
    /// Only say what would be merged.
    #[serde(default)]
    dry_run: bool,
    /// Who is right about lines that you both have changed: "stop", the default, merges nothing then; "ours" is you, "theirs" the other agent.
    #[serde(default)]
    strategy: Strategy,
}

// No doc comment: it would be in the schema.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum Strategy {
    #[default]
    Stop,
    Ours,
    Theirs,
}

impl TypedTool for MergePod {
    type Args = Args;
    const NAME: &'static str = "MergePod";

    fn description(&self, _limits: &RunLimits) -> String {
        "Merge what an agent that you started has done into your tree, by git, its commits and what it has not committed. All of it is merged, or nothing: with \
         conflicts your tree stays as it is, and they are listed. What is merged stands in your tree without a commit. Look at DiffPod first, and merge again \
         when the agent has gone on."
            .to_owned()
    }

    fn check(&self, context: &ToolContext, _args: &Args) -> Result<(), Refusal> {
        context.children().map(drop)
    }

    fn time_limit(&self, _limits: &RunLimits, _args: &Args) -> Duration {
        TIME_LIMIT
    }

    async fn run(&self, context: &ToolContext, args: Args, _live: &LiveOutput) -> CallResult {
        let children = match context.children() {
            Ok(children) => children,
            Err(refusal) => return CallResult::refused(refusal),
        };
        let strategy = match args.strategy {
            Strategy::Stop => MergeStrategy::Stop,
            Strategy::Ours => MergeStrategy::Ours,
            Strategy::Theirs => MergeStrategy::Theirs,
        };
        let request = MergeRequest { name: args.name, dry_run: args.dry_run, strategy };
        match tokio::time::timeout(TIME_LIMIT, children.merge(&request)).await {
            Ok(answer) => end(&request.name, answer),
            Err(_) => unknown(&request.name, &format!("there was no answer within {} s", TIME_LIMIT.as_secs())),
        }
    }
}

fn end(name: &str, answer: Result<MergeOutcome, PeersError>) -> CallResult {
    match answer {
        Ok(outcome) if outcome.conflicts.is_empty() => CallResult::succeeded(merged(name, &outcome)),
        Ok(outcome) => CallResult::failed(in_conflict(name, &outcome)),
        Err(PeersError::Refused(refusal)) if refusal.reason == RefusalReason::ReceiverFailed => unknown(name, &refusal.message),
        Err(error) => CallResult::failed(peers_error_sentence(&error)),
    }
}

fn unknown(name: &str, why: &str) -> CallResult {
    let output = format!(
        "It is not known whether the work of {name} was merged, or a part of it: {why}. Call MergePod again: it goes on where it was."
    );
    CallResult::new(ToolOutcome::Unknown, output)
}

fn merged(name: &str, outcome: &MergeOutcome) -> String {
    let MergeOutcome { commit, dry_run, paths, path_count, notes, .. } = outcome;
    let head = match (path_count, dry_run) {
        (0, _) if commit.is_none() => format!("{name} has changed nothing."),
        (0, _) => format!("Your tree has all that {name} has done."),
        (1, true) => format!("1 path would be merged from {name}, without a conflict."),
        (1, false) => format!("1 path was merged from {name} into your tree. Nothing is committed."),
        (count, true) => format!("{count} paths would be merged from {name}, without a conflict."),
        (count, false) => format!("{count} paths were merged from {name} into your tree. Nothing is committed."),
    };
    let lines = paths.iter().take(MAX_LINES).map(|MergedPath { path, change }| format!("{change} {}", path.escape_debug()));
    text(head, lines, *path_count, notes)
}

fn in_conflict(name: &str, outcome: &MergeOutcome) -> String {
    let MergeOutcome { conflicts, conflict_count, notes, .. } = outcome;
    let head = format!("Nothing was merged from {name}: {conflict_count} paths are in conflict, and your tree is as it was.");
    let lines = conflicts.iter().take(MAX_LINES).map(|MergeConflict { path, why }| format!("{}: {why}", path.escape_debug()));
    text(head, lines, *conflict_count, notes)
}

fn text(head: String, lines: impl Iterator<Item = String>, count: u64, notes: &[String]) -> String {
    let mut all = vec![head];
    all.extend(notes.iter().map(|note| format!("[{note}]")));
    let before = all.len();
    all.extend(lines);
    let more = count.saturating_sub((all.len() - before) as u64);
    if more > 0 {
        all.push(format!("[{more} more]"));
    }
    all.join("\n")
}
