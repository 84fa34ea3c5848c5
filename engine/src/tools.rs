//! Checks and runs tool calls: arguments, policy, slots, limits.

use std::sync::Arc;

use tokio::sync::{Semaphore, SemaphorePermit};
use yoi_wire::entry::{OfferedTool, ToolCall};
use yoi_wire::manifest::RunLimits;

mod arguments;
mod builtin;
pub mod output_limit;
mod schema;
mod search;
pub mod shell;
pub mod tool;
pub mod tree;
mod unconfirmed;

pub use tool::{CallResult, LiveOutput, Tool, ToolContext, TypedTool};

use arguments::normalize;
use shell::Shell;
use tree::{PathError, Tree};
use unconfirmed::UnconfirmedMessages;

use crate::error_text::without_os_error_number;
use crate::peers::Peers;

/// Calls in flight in the whole project.
const PROJECT_SLOTS: usize = 8;
/// Calls in flight in one conversation.
const CONVERSATION_SLOTS: usize = 4;

/// Runs tools for one conversation.
#[derive(Clone)]
pub struct ToolRunner {
    tools: Arc<[Box<dyn Tool>]>,
    context: Arc<ToolContext>,
    project: Arc<Semaphore>,
    conversation: Arc<Semaphore>,
}

impl ToolRunner {
    /// The built-in tools. `peers` answers ListPods and SendToPeerPod.
    #[must_use]
    pub fn new(tree: Arc<Tree>, shell: Arc<Shell>, peers: Arc<dyn Peers>, limits: RunLimits) -> Self {
        let context = ToolContext { tree, shell, peers, limits, unconfirmed: UnconfirmedMessages::default() };
        Self {
            tools: builtin::all().into(),
            context: Arc::new(context),
            project: Arc::new(Semaphore::new(PROJECT_SLOTS)),
            conversation: Arc::new(Semaphore::new(CONVERSATION_SLOTS)),
        }
    }

    /// The tools as the model is offered them.
    #[must_use]
    pub fn offered(&self) -> Vec<OfferedTool> {
        self.tools.iter().map(|tool| tool.offered(&self.context.limits)).collect()
    }

    /// Names of the tools that change nothing.
    #[must_use]
    pub fn read_only_tools(&self) -> std::collections::BTreeSet<String> {
        self.tools.iter().filter(|tool| tool.reads_only()).map(|tool| tool.name().to_owned()).collect()
    }

    /// A run begins. Messages that the last one could not confirm get new ids in this one.
    pub fn start_run(&self) {
        self.context.unconfirmed.clear();
    }

    /// Whether the call changes nothing, so that it may run beside others.
    #[must_use]
    pub fn reads_only(&self, call: &ToolCall) -> bool {
        self.tool(&call.tool).is_ok_and(Tool::reads_only)
    }

    /// Checks whether a call may begin. Has no side effects.
    ///
    /// # Errors
    /// The message for the model.
    pub fn check(&self, call: &ToolCall) -> Result<(), String> {
        self.tool(&call.tool)?.check(&self.context, &normalize(&call.args))
    }

    /// Checks a call again and runs it, when a slot is free. Dropping the future ends everything that the call started, except background
    /// commands.
    pub async fn run(&self, call: &ToolCall, live: &LiveOutput) -> CallResult {
        let args = normalize(&call.args);
        let tool = match self.tool(&call.tool).and_then(|tool| tool.check(&self.context, &args).map(|()| tool)) {
            Ok(tool) => tool,
            Err(message) => return CallResult::refused(message),
        };
        let limit = tool.time_limit(&self.context.limits, &args);
        let Ok(_slots) = tokio::time::timeout(limit, self.slots()).await else {
            return CallResult::refused(format!(
                "slots_full: within {} s none of the {CONVERSATION_SLOTS} calls in flight in this conversation, or of the {PROJECT_SLOTS} in \
                 this project, ended; nothing was done",
                limit.as_secs()
            ));
        };
        let end = tool.run(&self.context, args, live).await;
        CallResult { output: output_limit::truncate(end.output, self.context.output_bytes()), ..end }
    }

    /// Whether a background command runs.
    #[must_use]
    pub fn has_background(&self) -> bool {
        self.context.shell.has_background()
    }

    /// How many background commands run, and every change of that.
    #[must_use]
    pub fn background_count(&self) -> tokio::sync::watch::Receiver<usize> {
        self.context.shell.background_count()
    }

    /// Ends all background commands. Their processes have ended on return.
    pub async fn stop_all(&self) {
        self.context.shell.stop_all().await;
    }

    /// Waits for a slot of the conversation and one of the project. Calls get them in the order in which they came.
    async fn slots(&self) -> (Option<SemaphorePermit<'_>>, Option<SemaphorePermit<'_>>) {
        // The semaphores are never closed.
        let conversation = self.conversation.acquire().await.ok();
        (conversation, self.project.acquire().await.ok())
    }

    fn tool(&self, name: &str) -> Result<&dyn Tool, String> {
        self.tools.iter().find(|tool| tool.name() == name).map(Box::as_ref).ok_or_else(|| {
            let names: Vec<&str> = self.tools.iter().map(|tool| tool.name()).collect();
            let message = format!("unknown_tool: there is no tool {name:?}; there are {}", names.join(", "));
            output_limit::truncate(message, arguments::MAX_MESSAGE_BYTES)
        })
    }
}

impl From<PathError> for CallResult {
    fn from(error: PathError) -> Self {
        let message = without_os_error_number(&error.to_string());
        match error {
            PathError::Outside { .. } | PathError::Loop { .. } | PathError::NotAPath { .. } | PathError::Changed { .. } => {
                CallResult::refused(message)
            }
            PathError::Io { .. } => CallResult::failed(message),
        }
    }
}

#[cfg(test)]
mod tests;
