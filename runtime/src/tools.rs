//! The one door to tools: policy, slots, limits.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::Semaphore;
use yoi_line::RequestClient;
use yoi_wire::entry::{ToolCall, ToolOutcome};
use yoi_wire::manifest::RunLimits;

mod args;
pub mod bound;
mod files;
mod offer;
mod peers;
pub mod processes;
pub mod shell;
pub mod tree;

pub use offer::{Offer, offers};

use args::Args;
use peers::Unsettled;
use shell::Shell;
use tree::Tree;

/// Calls in flight in the whole project.
const PROJECT_SLOTS: usize = 8;
/// Calls in flight in one conversation.
const CONVERSATION_SLOTS: usize = 4;

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    pub outcome: ToolOutcome,
    pub output: String,
}

impl End {
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
    caller: RequestClient,
    limits: RunLimits,
    unsettled: Arc<Unsettled>,
    project: Arc<Semaphore>,
    conversation: Arc<Semaphore>,
}

impl ToolRunner {
    #[must_use]
    pub fn new(tree: Arc<Tree>, shell: Arc<Shell>, caller: RequestClient, limits: RunLimits) -> Self {
        let (project, conversation) = (Arc::new(Semaphore::new(PROJECT_SLOTS)), Arc::new(Semaphore::new(CONVERSATION_SLOTS)));
        Self { tree, shell, caller, limits, unsettled: Arc::default(), project, conversation }
    }

    /// A run begins: what the last one left open is closed.
    pub fn new_run(&self) {
        self.unsettled.forget();
    }

    /// Whether a call may begin. Nothing has happened when it may not.
    ///
    /// # Errors
    /// The sentence for the model.
    pub fn check(&self, call: &ToolCall) -> Result<(), String> {
        let args = self.parse(call)?;
        match &args {
            Args::Read(read) => self.tree.check(&read.path),
            Args::Write(write) => self.tree.check(&write.path),
            Args::Edit(edit) => self.tree.check(&edit.path),
            Args::Shell(_) | Args::ListPods(_) | Args::SendToPeerPod(_) => Ok(()),
        }
        .map_err(|error| error.to_string())
    }

    /// Runs a call that may begin; whether it may is asked once more.
    pub async fn run(&self, call: &ToolCall) -> End {
        let args = match self.parse(call) {
            Ok(args) => args,
            Err(sentence) => return End::refused(sentence),
        };
        let Ok(_conversation) = self.conversation.try_acquire() else {
            return End::refused(format!("conversation_slots_full: this conversation has {CONVERSATION_SLOTS} calls in flight"));
        };
        let Ok(_project) = self.project.try_acquire() else {
            return End::refused(format!("project_slots_full: this project has {PROJECT_SLOTS} calls in flight"));
        };
        let limit = Duration::from_secs(u64::from(self.limits.tool_seconds));
        let bytes = self.limits.tool_output_bytes as usize;
        let end = match args {
            Args::Shell(shell) => {
                let limit = shell.timeout_seconds.map_or(limit, |seconds| limit.min(Duration::from_secs(seconds)));
                self.shell.run(&shell.command, limit, bytes).await
            }
            Args::Read(read) => self.on_disk(limit, move |tree| files::read(tree, &read, bytes)).await,
            Args::Write(write) => self.on_disk(limit, move |tree| files::write(tree, &write)).await,
            Args::Edit(edit) => self.on_disk(limit, move |tree| files::edit(tree, &edit)).await,
            Args::ListPods(_) => within(limit, peers::list(&self.caller)).await,
            Args::SendToPeerPod(send) => peers::send(&self.caller, &self.unsettled, &send, limit).await,
        };
        End { output: bound::text(end.output, bytes), ..end }
    }

    fn parse(&self, call: &ToolCall) -> Result<Args, String> {
        args::parse(&call.tool, normal(&call.args), self.limits.tool_seconds)
    }

    async fn on_disk(&self, limit: Duration, deed: impl FnOnce(&Tree) -> End + Send + 'static) -> End {
        let tree = self.tree.clone();
        let done = async move {
            match tokio::task::spawn_blocking(move || deed(&tree)).await {
                Ok(end) => end,
                Err(error) => End::failed(format!("the tool broke: {error}")),
            }
        };
        within(limit, done).await
    }
}

async fn within(limit: Duration, end: impl Future<Output = End>) -> End {
    tokio::time::timeout(limit, end).await.unwrap_or_else(|_| End {
        outcome: ToolOutcome::TimedOut,
        output: format!("[the time limit of {} s was reached]", limit.as_secs()),
    })
}

/// A call without arguments comes as nothing, as an empty text or as an empty object.
fn normal(args: &Value) -> Value {
    match args {
        Value::Null => Value::Object(serde_json::Map::new()),
        Value::String(text) if text.trim().is_empty() => Value::Object(serde_json::Map::new()),
        other => other.clone(),
    }
}
