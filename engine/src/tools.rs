//! Checks and runs tool calls: arguments, slots, limits.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use yoi_wire::entry::{Body, CallFrom, Extension, OfferedTool, ReadPosition, RefusalClass, ToolCall};
use yoi_wire::manifest::RunLimits;
use yoi_wire::policy::OutsideException;
use yoi_wire::subagent::SubagentTemplate;

mod arguments;
mod builtin;
mod gate;
pub mod output_limit;
mod policy_in_force;
mod read_positions;
mod redacted_live;
mod result;
mod schema;
mod search;
pub mod shell;
mod slots;
pub mod tool;
mod tool_set;
pub mod tree;
mod unconfirmed;

pub use gate::ToolGate;
pub use policy_in_force::PolicyInForce;
pub use result::{CallResult, LiveOutput};
pub use slots::ProjectSlots;
pub use tool::{Tool, ToolContext, TypedTool};
pub use tool_set::ToolSet;

use arguments::normalize;
use builtin::{SHARES, SPAWN_POD, SPAWN_SUBAGENT, without_share};
use read_positions::ReadPositions;
use redacted_live::RedactedLive;
use shell::Shell;
use slots::Slots;
use tree::{PathError, Tree};
use unconfirmed::UnconfirmedMessages;

use crate::assets::{AssetOffer, COMMAND, ProjectAssets, SKILL, has_use_for, list_of_commands, list_of_teams_skills};
use crate::children::Children;
use crate::conversation::FolderInstructions;
use crate::decision::{Question, Refusal};
use crate::error_text::without_os_error_number;
use crate::peers::Peers;
use crate::policy::{EXCEPTION, PathTarget, Policy};
use crate::subagents::{SubagentSlot, Subagents};
use crate::tree_context::folder_instructions;

/// Bytes of the instructions of folders that the model is told at once.
const MAX_INSTRUCTIONS_BYTES: usize = 32 << 10;

/// Runs the tools of one conversation, behind a [`ToolGate`].
#[derive(Clone)]
pub struct ToolRunner {
    tools: ToolSet,
    context: Arc<ToolContext>,
    slots: Slots,
}

impl ToolRunner {
    /// The built-in tools, with slots of a project of their own. `peers` answers ListPods and SendToPeerPod.
    #[must_use]
    pub fn new(tree: Arc<Tree>, shell: Arc<Shell>, peers: Arc<dyn Peers>, limits: RunLimits, policy: Arc<Policy>) -> Self {
        let (assets, policy) = (Arc::new(ProjectAssets::new(tree.clone())), PolicyInForce::new(policy));
        let context = ToolContext {
            tree,
            shell,
            peers,
            limits,
            policy,
            assets,
            subagents: Arc::default(),
            unconfirmed: UnconfirmedMessages::default(),
            read: ReadPositions::default(),
        };
        Self { tools: ToolSet::builtin(), context: Arc::new(context), slots: Slots::new(ProjectSlots::default()) }
    }

    /// The same tools for another conversation of the project. It has slots, commands in the background and a working directory of its own.
    fn for_another_conversation(&self) -> Self {
        let context =
            self.context_beside(self.context.shell.for_another_conversation(), Arc::new(self.context.subagents.of_another_conversation()));
        Self { tools: self.tools.clone(), context, slots: self.slots.of_another_conversation() }
    }

    /// The same tools, with the same slots and commands in the background, for a call that is none of the conversation's own: it starts in the root, and
    /// what it reads of other agents counts as read by nobody.
    fn beside_the_conversation(&self) -> Self {
        let context = self.context_beside(self.context.shell.in_root(), self.context.subagents.clone());
        Self { tools: self.tools.clone(), context, slots: self.slots.clone() }
    }

    /// What calls beside those of the conversation need. Nothing is unconfirmed there, and nothing read.
    fn context_beside(&self, shell: Shell, subagents: Arc<SubagentSlot>) -> Arc<ToolContext> {
        let ToolContext { tree, shell: _, peers, limits, policy, assets, subagents: _, unconfirmed: _, read: _ } = &*self.context;
        Arc::new(ToolContext {
            tree: tree.clone(),
            shell: Arc::new(shell),
            peers: peers.clone(),
            limits: *limits,
            policy: PolicyInForce::new(policy.get()),
            // Shared: all conversations of a project read one generation.
            assets: assets.clone(),
            subagents,
            unconfirmed: UnconfirmedMessages::default(),
            read: ReadPositions::default(),
        })
    }

    /// The tools as whoever asks is offered them.
    pub(crate) fn offered(&self, to: CallFrom) -> Vec<OfferedTool> {
        let mut offered = self.tools.offered(&self.context.limits);
        for tool in &mut offered {
            match tool.name.as_str() {
                SPAWN_SUBAGENT => tool.description.push_str(&self.list_of_templates()),
                COMMAND => tool.description.push_str(&list_of_commands(&self.assets().current(), to)),
                // The model reads their list in its prompt.
                SKILL if to == CallFrom::Mcp => {
                    tool.description.push_str(&format!(" Skills:{}", list_of_teams_skills(&self.assets().current())));
                }
                SPAWN_POD if self.lends() => tool.description.push_str(SHARES),
                SPAWN_POD => without_share(&mut tool.schema),
                _ => {}
            }
        }
        offered
    }

    /// The templates of sub-agents, a line for each.
    fn list_of_templates(&self) -> String {
        let lines = self.context.subagents.templates().iter().map(|template| {
            format!(
                "\n- {}: {} It has {} and {} s.",
                template.name,
                template.description,
                template.tools.join(", "),
                template.most_seconds()
            )
        });
        lines.collect()
    }

    /// Says once from which templates the conversations of the project may start sub-agents.
    pub fn set_templates(&self, templates: &[SubagentTemplate]) {
        self.context.subagents.set_templates(templates);
    }

    /// The sub-agents of the conversation, while it is driven.
    pub(crate) fn set_subagents(&self, subagents: Option<Arc<dyn Subagents>>) {
        self.context.subagents.set(subagents);
    }

    /// Whether the tree has anything that the tool is for, and the agent any use for it.
    pub(crate) fn is_of_use(&self, tool: &str, to: CallFrom) -> bool {
        if builtin::FOR_CHILDREN.contains(&tool) && self.context.peers.children().is_none() {
            return false;
        }
        if builtin::FOR_SUBAGENTS.contains(&tool) && self.context.subagents.templates().is_empty() {
            return false;
        }
        !AssetOffer::is_tool(tool) || has_use_for(&self.assets().current(), tool, to)
    }

    /// Whether the agent may lend paths of its tree.
    pub(crate) fn lends(&self) -> bool {
        self.context.peers.children().is_some_and(Children::lends)
    }

    /// What answers for other agents.
    pub(crate) fn peers(&self) -> Arc<dyn Peers> {
        self.context.peers.clone()
    }

    /// Skills and commands of the tree.
    #[must_use]
    pub fn assets(&self) -> &Arc<ProjectAssets> {
        &self.context.assets
    }

    /// The tree.
    pub(crate) fn tree(&self) -> &Tree {
        &self.context.tree
    }

    /// Bytes of output that a call may return.
    pub(crate) fn output_bytes(&self) -> usize {
        self.context.output_bytes()
    }

    /// What the model is told of the instructions of these folders and of those above them, below the root: 32 KiB together, and what finds no room by
    /// name. A file that the policy hides is left out.
    pub(crate) fn instructions(&self, folders: &[String]) -> Vec<FolderInstructions> {
        let (mut told, mut room): (Vec<FolderInstructions>, usize) = (Vec::new(), MAX_INSTRUCTIONS_BYTES);
        for (path, text) in folders.iter().flat_map(|folder| folder_instructions(&self.context.tree, folder)) {
            if self.policy().hides(Path::new(&path)) || told.iter().any(|other| other.path == path) {
                continue;
            }
            let text = match room.checked_sub(text.len()) {
                Some(rest) => {
                    room = rest;
                    self.redact(text)
                }
                None => format!("There are instructions in {path}, too long to stand here: Read has them."),
            };
            told.push(FolderInstructions { path, text });
        }
        told
    }

    /// The tools.
    #[must_use]
    pub fn tools(&self) -> &ToolSet {
        &self.tools
    }

    /// A run begins. Messages that the last one could not confirm get new ids in this one.
    pub fn start_run(&self) {
        self.context.unconfirmed.clear();
    }

    /// The conversation goes on from its log, which says how far the words of other agents were read.
    pub(crate) fn set_read(&self, read: &BTreeMap<String, ReadPosition>) {
        self.context.read.restore(read);
    }

    fn find(&self, name: &str) -> Result<&dyn Tool, Refusal> {
        self.tools.find(name).ok_or_else(|| Refusal::new(RefusalClass::UnknownTool, format_args!("there is no tool {name:?}")))
    }

    /// Checks whether a call fits its tool. Has no side effects.
    fn check(&self, call: &ToolCall) -> Result<(), Refusal> {
        self.find(&call.tool)?.check(&self.context, &normalize(&call.args))
    }

    /// The policy in force.
    #[must_use]
    pub fn policy(&self) -> Arc<Policy> {
        self.context.policy.get()
    }

    /// Another policy counts from the next decision on.
    pub(crate) fn set_policy(&self, policy: Arc<Policy>) {
        self.context.policy.set(policy);
    }

    /// Asks the policy about a call of any tool, a program's own included: what a person has to be asked, if anything. Has no side effects.
    fn check_policy(&self, call: &ToolCall) -> Result<Option<Question>, Refusal> {
        let (tree, policy) = (&self.context.tree, self.policy());
        let locate = |given: &str| match tree.locate(given) {
            Ok(path) => PathTarget::Inside(path),
            Err(PathError::Io { .. }) => tree.names_of(given).map_or(PathTarget::Outside, PathTarget::Inside),
            Err(PathError::Outside { .. } | PathError::Loop { .. } | PathError::NotAPath { .. } | PathError::Changed { .. }) => policy
                .exception_of(given)
                .and_then(|exception| excepted(exception, given))
                .map_or(PathTarget::Outside, PathTarget::Excepted),
        };
        policy.check(&call.tool, &call.args, &locate)
    }

    /// The exceptions to what is outside of the tree that a call uses, for the log.
    pub(crate) fn exceptions_of(&self, call: &ToolCall) -> Vec<Body> {
        let given =
            call.args.get("path").and_then(serde_json::Value::as_str).filter(|_| builtin::READ_OUTSIDE.contains(&call.tool.as_str()));
        let Some(given) = given.filter(|given| matches!(self.context.tree.check(given), Err(PathError::Outside { .. }))) else {
            return Vec::new();
        };
        let policy = self.policy();
        let used = |exception: &OutsideException| {
            let data = serde_json::json!({"callId": call.call_id, "tool": call.tool, "path": given, "reason": exception.reason});
            Body::Extension(Extension { name: EXCEPTION.to_owned(), data })
        };
        policy.exception_of(given).map(used).into_iter().collect()
    }

    /// Runs a call when a slot is free.
    async fn run(&self, call: &ToolCall, live: &LiveOutput) -> CallResult {
        let args = normalize(&call.args);
        let tool = match self.find(&call.tool) {
            Ok(tool) => tool,
            Err(refusal) => return CallResult::refused(refusal),
        };
        let _slot = match self.slots.take(tool.time_limit(&self.context.limits, &args)).await {
            Ok(slot) => slot,
            Err(refusal) => return CallResult::refused(refusal),
        };
        let policy = self.policy();
        let live = RedactedLive::new(policy.redactor(), live);
        let end = tool.run(&self.context, args, &live.output()).await;
        live.finish();
        // Before it is cut: half of a secret has no form by which it could be known.
        let output = policy.redactor().redact(end.output);
        CallResult { output: output_limit::truncate(output, self.context.output_bytes()), ..end }
    }

    /// What a program's own tool returned, without secrets.
    pub(crate) fn redact(&self, text: String) -> String {
        self.policy().redactor().redact(text)
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

    /// Ends all background commands and all sub-agents. Their processes have ended on return.
    pub async fn stop_all(&self) {
        self.context.shell.stop_all().await;
        if let Some(subagents) = self.context.subagents.get() {
            subagents.stop_all("a person ended the run that started it").await;
        }
    }
}

/// Where a path leads within a folder that the policy excepts; `None`: out of it.
fn excepted(exception: &OutsideException, given: &str) -> Option<std::path::PathBuf> {
    let root = Path::new(&exception.path);
    let located = Tree::open(root).ok()?.locate(given).ok()?;
    Some(root.join(located))
}

impl From<PathError> for CallResult {
    fn from(error: PathError) -> Self {
        let message = without_os_error_number(&error.to_string());
        match error.class() {
            Some(class) => CallResult::refused(Refusal::with_message(class, message)),
            None => CallResult::failed(message),
        }
    }
}

#[cfg(test)]
mod tests;
