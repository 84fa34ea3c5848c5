//! What a tool is.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;
use yoi_wire::entry::{OfferedTool, RefusalClass, ToolOutcome};
use yoi_wire::manifest::RunLimits;

use super::arguments;
use super::policy_in_force::PolicyInForce;
use super::read_positions::ReadPositions;
use super::result::{CallResult, LiveOutput};
use super::schema::schema_of;
use super::shell::Shell;
use super::tree::Tree;
use super::unconfirmed::UnconfirmedMessages;
use crate::assets::ProjectAssets;
use crate::children::Children;
use crate::decision::Refusal;
use crate::error_text::without_os_error_number;
use crate::peers::Peers;
use crate::subagents::{SubagentSlot, Subagents};

/// A tool that the model can call. Most tools are a [`TypedTool`], which is one of these.
pub trait Tool: Send + Sync {
    /// The name by which the model calls it.
    fn name(&self) -> &str;

    /// The tool as the model is offered it.
    fn offered(&self, limits: &RunLimits) -> OfferedTool;

    /// Whether a call changes nothing, so that calls may run side by side.
    fn reads_only(&self) -> bool;

    /// Checks whether a call may begin. Has no side effects.
    ///
    /// # Errors
    /// Why not.
    fn check(&self, context: &ToolContext, args: &Value) -> Result<(), Refusal>;

    /// How long a call may take, also while it waits for its turn.
    fn time_limit(&self, limits: &RunLimits, args: &Value) -> Duration;

    /// Runs a call. Dropping the future ends everything that the call started, except what was asked to outlive it.
    fn run<'a>(&'a self, context: &'a ToolContext, args: Value, live: &'a LiveOutput) -> BoxFuture<'a, CallResult>;
}

/// A tool whose arguments are a type: the schema that the model is offered is derived from it, and reading it checks what the model sent.
/// The doc comment of a field is its description in the schema, so it is written for the model.
pub trait TypedTool: Send + Sync {
    /// The arguments.
    type Args: DeserializeOwned + JsonSchema + Send;

    /// The name by which the model calls it.
    const NAME: &'static str;

    /// Whether a call changes nothing, so that calls may run side by side.
    const READS_ONLY: bool = false;

    /// What it does, for the model.
    fn description(&self, limits: &RunLimits) -> String;

    /// Checks what the type of the arguments cannot. Has no side effects.
    ///
    /// # Errors
    /// Why not.
    fn check(&self, _context: &ToolContext, _args: &Self::Args) -> Result<(), Refusal> {
        Ok(())
    }

    /// How long a call may take.
    fn time_limit(&self, limits: &RunLimits, _args: &Self::Args) -> Duration {
        default_time_limit(limits)
    }

    /// Runs a call. Dropping the future ends everything that the call started, except what was asked to outlive it.
    fn run(&self, context: &ToolContext, args: Self::Args, live: &LiveOutput) -> impl Future<Output = CallResult> + Send;
}

impl<T: TypedTool> Tool for T {
    fn name(&self) -> &str {
        T::NAME
    }

    fn offered(&self, limits: &RunLimits) -> OfferedTool {
        OfferedTool { name: T::NAME.to_owned(), description: self.description(limits), schema: schema_of::<T::Args>() }
    }

    fn reads_only(&self) -> bool {
        T::READS_ONLY
    }

    fn check(&self, context: &ToolContext, args: &Value) -> Result<(), Refusal> {
        TypedTool::check(self, context, &arguments::read(args)?)
    }

    fn time_limit(&self, limits: &RunLimits, args: &Value) -> Duration {
        arguments::read(args).map_or_else(|_| default_time_limit(limits), |args| TypedTool::time_limit(self, limits, &args))
    }

    fn run<'a>(&'a self, context: &'a ToolContext, args: Value, live: &'a LiveOutput) -> BoxFuture<'a, CallResult> {
        Box::pin(async move {
            match arguments::read(&args) {
                Ok(args) => TypedTool::run(self, context, args, live).await,
                Err(refusal) => CallResult::refused(refusal),
            }
        })
    }
}

/// The time limit of a call that names none.
pub(super) fn default_time_limit(limits: &RunLimits) -> Duration {
    Duration::from_secs(u64::from(limits.tool_seconds))
}

/// What the tools of one conversation work on.
#[derive(Debug)]
pub struct ToolContext {
    /// The source tree.
    pub tree: Arc<Tree>,
    /// Runs commands.
    pub shell: Arc<Shell>,
    /// Answers for other agents.
    pub peers: Arc<dyn Peers>,
    /// Limits of a call.
    pub limits: RunLimits,
    /// What calls may do.
    pub policy: PolicyInForce,
    /// Skills and commands of the tree.
    pub assets: Arc<ProjectAssets>,
    /// The sub-agents of the conversation.
    pub(super) subagents: Arc<SubagentSlot>,
    pub(super) unconfirmed: UnconfirmedMessages,
    /// How far the words of children were read.
    pub(super) read: ReadPositions,
}

impl ToolContext {
    /// Bytes of output that a call may return.
    #[must_use]
    pub fn output_bytes(&self) -> usize {
        self.limits.tool_output_bytes as usize
    }

    /// What starts children and answers for them.
    ///
    /// # Errors
    /// The agent may start none.
    pub(super) fn children(&self) -> Result<&dyn Children, Refusal> {
        let why = format_args!("this agent starts no others: its YoiPod has no spec.delegation");
        self.peers.children().ok_or_else(|| Refusal::new(RefusalClass::ToolNotExposed, why))
    }

    /// The sub-agents of the conversation.
    ///
    /// # Errors
    /// It has none.
    pub(super) fn subagents(&self) -> Result<Arc<dyn Subagents>, Refusal> {
        let why = "this conversation starts no sub-agents: its project has no templates of any, or it is one";
        self.subagents.get().ok_or_else(|| Refusal::new(RefusalClass::ToolNotExposed, why))
    }

    /// Checks that a path lies in the tree.
    pub(super) fn check_path(&self, path: &str) -> Result<(), Refusal> {
        self.tree.check(path).map_err(|error| Refusal::with_message(error.class().unwrap_or(RefusalClass::InvalidPath), error.to_string()))
    }

    /// Checks that a path lies in the tree, or in a folder outside of it that the policy excepts.
    pub(super) fn check_readable(&self, path: &str) -> Result<(), Refusal> {
        match self.policy.get().exception_of(path).map(|exception| Tree::open(Path::new(&exception.path))) {
            Some(Ok(outside)) if self.tree.check(path).is_err() => outside
                .check(path)
                .map_err(|error| Refusal::with_message(error.class().unwrap_or(RefusalClass::InvalidPath), error.to_string())),
            Some(_) | None => self.check_path(path),
        }
    }

    /// As [`Self::run_on_tree`], or on a folder outside of the tree that the policy excepts and `path` names: in the frame of the agent's processes, so that
    /// nothing is opened there that is closed.
    pub(super) async fn read_tree(&self, path: &str, operation: impl FnOnce(&Tree) -> CallResult + Send + 'static) -> CallResult {
        let policy = self.policy.get();
        let outside = policy.exception_of(path).filter(|_| self.tree.check(path).is_err());
        let Some(root) = outside.map(|exception| PathBuf::from(&exception.path)) else { return self.run_on_tree(operation).await };
        let open = move || match Tree::open(&root) {
            Ok(tree) => operation(&tree),
            Err(error) => CallResult::failed(without_os_error_number(&format!("{}: {error}", root.display()))),
        };
        let read = self.shell.processes().run_in_frame(open);
        let result = async { read.await.unwrap_or_else(|error| CallResult::failed(format!("the tool broke: {error}"))) };
        with_timeout(default_time_limit(&self.limits), result).await
    }

    /// Checks that text for a file holds nothing that stands in the place of a secret: the model read it in a result, and the secret would be gone.
    pub(super) fn check_new_text(&self, text: &str) -> Result<(), Refusal> {
        let Some(marker) = self.policy.get().redactor().marker_in(text) else { return Ok(()) };
        let why = format_args!(
            "the text holds {marker:?}, which stands in results in the place of a secret; written to the file it would replace the secret: change the lines around it by Edit"
        );
        Err(Refusal::new(RefusalClass::InvalidArgs, why))
    }

    /// Runs `operation` on the tree, on a thread that may block, for at most the time limit of a call.
    pub(super) async fn run_on_tree(&self, operation: impl FnOnce(&Tree) -> CallResult + Send + 'static) -> CallResult {
        let tree = self.tree.clone();
        let result = async move {
            match tokio::task::spawn_blocking(move || operation(&tree)).await {
                Ok(end) => end,
                Err(error) => CallResult::failed(format!("the tool broke: {error}")),
            }
        };
        with_timeout(default_time_limit(&self.limits), result).await
    }
}

impl ToolContext {
    /// As [`Self::run_on_tree`], in the frame of the agent's processes. A search goes by paths, so a folder that is exchanged for a link meanwhile, or a list
    /// of files to ignore that is a link, could lead it out of the tree: it opens nothing there that is closed.
    pub(super) async fn search_tree(&self, operation: impl FnOnce(&Tree) -> CallResult + Send + 'static) -> CallResult {
        let tree = self.tree.clone();
        let search = self.shell.processes().run_in_frame(move || operation(&tree));
        let result = async { search.await.unwrap_or_else(|error| CallResult::failed(format!("the tool broke: {error}"))) };
        with_timeout(default_time_limit(&self.limits), result).await
    }
}

pub(super) async fn with_timeout(limit: Duration, end: impl Future<Output = CallResult>) -> CallResult {
    tokio::time::timeout(limit, end)
        .await
        .unwrap_or_else(|_| CallResult::new(ToolOutcome::TimedOut, format!("[the time limit of {} s was reached]", limit.as_secs())))
}
