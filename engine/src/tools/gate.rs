//! The one gate to all tools. The model of the runtime's own loop, a program's hook, a program's MCP client and the engine's API pass it.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use yoi_wire::entry::{CallFrom, OfferedTool, RefusalClass, ToolCall};
use yoi_wire::mode::Mode;

use super::ToolRunner;
use super::arguments::MAX_MESSAGE_BYTES;
use super::builtin::FOR_CHILDREN;
use super::output_limit::truncate;
use super::result::{CallResult, LiveOutput};
use crate::assets::{COMMAND, GRAPH, SKILL};
use crate::conversation::is_open;
use crate::decision::{Decision, Question, Refusal};
use crate::policy::Policy;

/// The tools of Yoi's that a program is offered, beside those for children. It has its own for everything else.
const FOR_PROGRAMS: [&str; 6] = ["ListPods", "SendToPeerPod", "RestorePod", GRAPH, COMMAND, SKILL];

/// Decides about calls, and runs those that may run.
#[derive(Clone)]
pub struct ToolGate {
    runner: ToolRunner,
    /// The mode of the conversation, which all clones share.
    mode: Arc<Mutex<Option<Mode>>>,
    /// A program is the agent of the conversation.
    of_program: Arc<AtomicBool>,
    /// What a sub-agent has; `None`: the conversation is none.
    of_subagent: Option<Arc<SubagentTools>>,
}

/// The only tools of a sub-agent.
#[derive(Debug)]
struct SubagentTools {
    names: BTreeSet<String>,
    mode: Option<Mode>,
}

impl fmt::Debug for ToolGate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolGate").field("mode", &self.mode()).finish_non_exhaustive()
    }
}

impl ToolGate {
    /// A gate before the tools of `runner`, which nothing else runs.
    #[must_use]
    pub fn new(runner: ToolRunner) -> Self {
        Self { runner, mode: Arc::default(), of_program: Arc::default(), of_subagent: None }
    }

    /// The gate of a sub-agent: as that of another conversation, with these tools alone, and a mode that it cannot leave.
    #[must_use]
    pub fn for_subagent(&self, names: BTreeSet<String>, mode: Option<Mode>) -> Self {
        Self { of_subagent: Some(Arc::new(SubagentTools { names, mode })), ..self.for_another_conversation() }
    }

    /// The gate of another conversation of the project: the same tools, tree, policy and slots of the project, and no mode yet.
    #[must_use]
    pub fn for_another_conversation(&self) -> Self {
        Self::new(self.runner.for_another_conversation())
    }

    /// What stands behind the gate, for all but calls.
    #[must_use]
    pub fn runner(&self) -> &ToolRunner {
        &self.runner
    }

    /// The mode of the conversation, as its log has it.
    pub fn set_mode(&self, mode: Option<Mode>) {
        *self.mode.lock().unwrap_or_else(PoisonError::into_inner) = mode;
    }

    /// Whether a program is the agent: then the engine's API has the tools that the program is offered, and no others.
    pub fn set_of_program(&self, of_program: bool) {
        self.of_program.store(of_program, Ordering::Relaxed);
    }

    /// As whom the engine's API calls tools.
    fn as_whom(&self, from: CallFrom) -> CallFrom {
        match from {
            CallFrom::Engine if self.of_program.load(Ordering::Relaxed) => CallFrom::Mcp,
            CallFrom::Engine => CallFrom::Model,
            CallFrom::Model | CallFrom::Hook | CallFrom::Mcp | CallFrom::Unknown => from,
        }
    }

    fn mode(&self) -> Option<Mode> {
        *self.mode.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The tools that whoever asks is offered in this mode.
    #[must_use]
    pub fn offered_now(&self, to: CallFrom) -> Vec<OfferedTool> {
        self.offered(to).into_iter().filter(|tool| self.check_mode(&tool.name).is_ok()).collect()
    }

    /// The tools that whoever asks is offered in some mode.
    #[must_use]
    pub fn offered(&self, to: CallFrom) -> Vec<OfferedTool> {
        self.offered_under(&self.runner.policy(), to)
    }

    /// The same under another policy.
    #[must_use]
    pub fn offered_under(&self, policy: &Policy, to: CallFrom) -> Vec<OfferedTool> {
        let to = self.as_whom(to);
        let is_offered = |tool: &OfferedTool| {
            is_exposed(&tool.name, to)
                && policy.exposes(&tool.name)
                && self.runner.is_of_use(&tool.name, to)
                && self.check_subagent(&tool.name).is_ok()
        };
        self.runner.offered(to).into_iter().filter(is_offered).collect()
    }

    /// Decides whether a call may begin. Has no side effects. The caller logs the decision before anything follows from it.
    #[must_use]
    pub fn begin(&self, call: &ToolCall, from: CallFrom) -> Decision {
        self.check(call, from).into()
    }

    /// Decides about a call again and runs it, when a slot is free. Its begin must be durable. Dropping the future ends everything that the call started,
    /// except background commands.
    pub async fn run(&self, call: &ToolCall, from: CallFrom, live: &LiveOutput) -> CallResult {
        match self.check(call, from) {
            // The begin of a call that has to be asked about is durable only once it is approved.
            Ok(_) if from == CallFrom::Engine => self.runner.beside_the_conversation().run(call, live).await,
            Ok(_) => self.runner.run(call, live).await,
            Err(refusal) => CallResult::refused(refusal),
        }
    }

    fn check(&self, call: &ToolCall, from: CallFrom) -> Result<Option<Question>, Refusal> {
        // A program's own tool has a schema that only the program knows.
        if from == CallFrom::Hook {
            return self.runner.check_policy(call);
        }
        if self.runner.tools().find(&call.tool).is_none() {
            return Err(self.unknown_tool(&call.tool, from));
        }
        let as_whom = self.as_whom(from);
        if !is_exposed(&call.tool, as_whom) {
            let there_are: Vec<&str> =
                FOR_PROGRAMS.into_iter().chain(FOR_CHILDREN).filter(|tool| self.runner.is_of_use(tool, as_whom)).collect();
            let why = format_args!("{} is not for a program; there are {}", call.tool, there_are.join(", "));
            return Err(Refusal::new(RefusalClass::ToolNotExposed, why));
        }
        self.check_subagent(&call.tool)?;
        self.check_mode(&call.tool)?;
        self.runner.check(call)?;
        self.runner.check_policy(call)
    }

    /// There is no such tool; there are those that whoever asks is offered now.
    fn unknown_tool(&self, name: &str, to: CallFrom) -> Refusal {
        let names: Vec<String> = self.offered_now(to).into_iter().map(|tool| tool.name).collect();
        let refusal = Refusal::new(RefusalClass::UnknownTool, format_args!("there is no tool {name:?}; there are {}", names.join(", ")));
        Refusal { message: truncate(refusal.message, MAX_MESSAGE_BYTES), ..refusal }
    }

    /// Whether the template of a sub-agent has the tool.
    fn check_subagent(&self, tool: &str) -> Result<(), Refusal> {
        let Some(SubagentTools { names, mode }) = self.of_subagent.as_deref() else { return Ok(()) };
        if names.contains(tool) && is_open(*mode, tool, &self.runner.tools().read_only()) {
            return Ok(());
        }
        let read_only = self.runner.tools().read_only();
        let open: Vec<&str> = names.iter().map(String::as_str).filter(|name| is_open(*mode, name, &read_only)).collect();
        Err(Refusal::new(RefusalClass::ToolNotExposed, format_args!("this sub-agent has only {}", open.join(", "))))
    }

    /// Whether the mode lets calls of a tool run.
    fn check_mode(&self, tool: &str) -> Result<(), Refusal> {
        let (mode, read_only) = (self.mode(), self.runner.tools().read_only());
        let (Some(name), false) = (mode, is_open(mode, tool, &read_only)) else { return Ok(()) };
        let open: Vec<String> = read_only.iter().filter(|tool| is_open(mode, tool, &read_only)).cloned().collect();
        let why = format_args!(
            "in mode {name} only tools run that change nothing: {}; a person sets another mode with kubectl yoi mode",
            open.join(", ")
        );
        Err(Refusal::new(RefusalClass::ToolNotExposed, why))
    }
}

fn is_exposed(tool: &str, to: CallFrom) -> bool {
    match to {
        CallFrom::Model => true,
        CallFrom::Mcp => FOR_PROGRAMS.contains(&tool) || FOR_CHILDREN.contains(&tool),
        CallFrom::Hook | CallFrom::Engine | CallFrom::Unknown => false,
    }
}
