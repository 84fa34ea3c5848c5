//! Checks and runs tool calls: arguments, policy, slots, limits.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::Semaphore;
use yoi_wire::entry::{ToolCall, ToolOutcome};
use yoi_wire::manifest::RunLimits;

mod call_args;
mod definition;
mod files;
pub mod output_limit;
mod peers;
pub mod shell;
pub mod tree;

pub use definition::{ToolDefinition, definitions};

use call_args::ToolArgs;
use peers::UnconfirmedMessages;
use shell::Shell;
use tree::Tree;

use crate::peers::Peers;

/// Calls in flight in the whole project.
const PROJECT_SLOTS: usize = 8;
/// Calls in flight in one conversation.
const CONVERSATION_SLOTS: usize = 4;

/// How a call ended, and its output for the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallResult {
    pub outcome: ToolOutcome,
    pub output: String,
}

impl CallResult {
    fn succeeded(output: impl Into<String>) -> Self {
        Self { outcome: ToolOutcome::Succeeded, output: output.into() }
    }

    fn failed(output: impl Into<String>) -> Self {
        Self { outcome: ToolOutcome::Failed, output: output.into() }
    }

    fn refused(output: impl Into<String>) -> Self {
        Self { outcome: ToolOutcome::Refused, output: output.into() }
    }
}

/// Runs tools for one conversation.
#[derive(Clone)]
pub struct ToolRunner {
    tree: Arc<Tree>,
    shell: Arc<Shell>,
    peers: Arc<dyn Peers>,
    limits: RunLimits,
    unconfirmed: Arc<UnconfirmedMessages>,
    project: Arc<Semaphore>,
    conversation: Arc<Semaphore>,
}

impl ToolRunner {
    /// `peers` answers ListPods and SendToPeerPod.
    #[must_use]
    pub fn new(tree: Arc<Tree>, shell: Arc<Shell>, peers: Arc<dyn Peers>, limits: RunLimits) -> Self {
        let (project, conversation) = (Arc::new(Semaphore::new(PROJECT_SLOTS)), Arc::new(Semaphore::new(CONVERSATION_SLOTS)));
        Self { tree, shell, peers, limits, unconfirmed: Arc::default(), project, conversation }
    }

    /// A run begins. Messages that the last one could not confirm get new ids in this one.
    pub fn start_run(&self) {
        self.unconfirmed.clear();
    }

    /// Names of the tools that change nothing.
    #[must_use]
    pub fn read_only_tools(&self) -> std::collections::BTreeSet<String> {
        ["Read", "ListPods"].map(str::to_owned).into()
    }

    /// Checks whether a call may begin. Has no side effects.
    ///
    /// # Errors
    /// The message for the model.
    pub fn check(&self, call: &ToolCall) -> Result<(), String> {
        let args = self.parse(call)?;
        match &args {
            ToolArgs::Read(read) => self.tree.check(&read.path),
            ToolArgs::Write(write) => self.tree.check(&write.path),
            ToolArgs::Edit(edit) => self.tree.check(&edit.path),
            ToolArgs::Shell(_) | ToolArgs::ListPods(_) | ToolArgs::SendToPeerPod(_) => Ok(()),
        }
        .map_err(|error| error.to_string())
    }

    /// Checks a call again and runs it.
    pub async fn run(&self, call: &ToolCall, _live: &(dyn Fn(&str) + Send + Sync)) -> CallResult {
        let args = match self.parse(call) {
            Ok(args) => args,
            Err(sentence) => return CallResult::refused(sentence),
        };
        let Ok(_conversation) = self.conversation.try_acquire() else {
            return CallResult::refused(format!("conversation_slots_full: this conversation has {CONVERSATION_SLOTS} calls in flight"));
        };
        let Ok(_project) = self.project.try_acquire() else {
            return CallResult::refused(format!("project_slots_full: this project has {PROJECT_SLOTS} calls in flight"));
        };
        let limit = Duration::from_secs(u64::from(self.limits.tool_seconds));
        let bytes = self.limits.tool_output_bytes as usize;
        let end = match args {
            ToolArgs::Shell(shell) => {
                let limit = shell.timeout_seconds.map_or(limit, |seconds| limit.min(Duration::from_secs(seconds.get())));
                self.shell.run(&shell.command, limit, bytes).await
            }
            ToolArgs::Read(read) => self.run_on_tree(limit, move |tree| files::read(tree, &read, bytes)).await,
            ToolArgs::Write(write) => self.run_on_tree(limit, move |tree| files::write(tree, &write)).await,
            ToolArgs::Edit(edit) => self.run_on_tree(limit, move |tree| files::edit(tree, &edit)).await,
            ToolArgs::ListPods(_) => with_timeout(limit, peers::list(&*self.peers)).await,
            ToolArgs::SendToPeerPod(send) => peers::send(&*self.peers, &self.unconfirmed, &send, limit).await,
        };
        CallResult { output: output_limit::truncate(end.output, bytes), ..end }
    }

    fn parse(&self, call: &ToolCall) -> Result<ToolArgs, String> {
        call_args::parse(&call.tool, normalize(&call.args), self.limits.tool_seconds)
    }

    async fn run_on_tree(&self, limit: Duration, operation: impl FnOnce(&Tree) -> CallResult + Send + 'static) -> CallResult {
        let tree = self.tree.clone();
        let result = async move {
            match tokio::task::spawn_blocking(move || operation(&tree)).await {
                Ok(end) => end,
                Err(error) => CallResult::failed(format!("the tool broke: {error}")),
            }
        };
        with_timeout(limit, result).await
    }
}

async fn with_timeout(limit: Duration, end: impl Future<Output = CallResult>) -> CallResult {
    tokio::time::timeout(limit, end).await.unwrap_or_else(|_| CallResult {
        outcome: ToolOutcome::TimedOut,
        output: format!("[the time limit of {} s was reached]", limit.as_secs()),
    })
}

/// Models send a call without arguments as null, as an empty string or as an empty object.
fn normalize(args: &Value) -> Value {
    match args {
        Value::Null => Value::Object(serde_json::Map::new()),
        Value::String(text) if text.trim().is_empty() => Value::Object(serde_json::Map::new()),
        other => other.clone(),
    }
}
