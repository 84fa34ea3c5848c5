//! The one door to all tools. The model of the runtime's own loop, a program's hook and a program's MCP client pass it.

use yoi_wire::entry::{CallFrom, OfferedTool, RefusalClass, ToolCall};

use super::ToolRunner;
use super::result::{CallResult, LiveOutput};
use crate::assets::{COMMAND, GRAPH};
use crate::decision::{Decision, Question, Refusal};

/// The tools of Yoi's that a program is offered. It has its own for everything else.
const FOR_PROGRAMS: [&str; 4] = ["ListPods", "SendToPeerPod", GRAPH, COMMAND];

/// Decides about calls, and runs those that may run.
#[derive(Clone)]
pub struct ToolGate {
    runner: ToolRunner,
}

impl ToolGate {
    /// A gate before the tools of `runner`, which nothing else runs.
    #[must_use]
    pub fn new(runner: ToolRunner) -> Self {
        Self { runner }
    }

    /// The gate of another conversation of the project: the same tools, tree, policy and slots of the project.
    #[must_use]
    pub fn for_another_conversation(&self) -> Self {
        Self { runner: self.runner.for_another_conversation() }
    }

    /// What stands behind the gate, for all but calls.
    #[must_use]
    pub fn runner(&self) -> &ToolRunner {
        &self.runner
    }

    /// The tools that whoever asks is offered.
    #[must_use]
    pub fn offered(&self, to: CallFrom) -> Vec<OfferedTool> {
        let is_offered = |tool: &OfferedTool| {
            is_exposed(&tool.name, to) && self.runner.policy().exposes(&tool.name) && self.runner.is_of_use(&tool.name, to)
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
            Ok(_) => self.runner.run(call, live).await,
            Err(refusal) => CallResult::refused(refusal),
        }
    }

    fn check(&self, call: &ToolCall, from: CallFrom) -> Result<Option<Question>, Refusal> {
        // A program's own tool has a schema that only the program knows.
        if from == CallFrom::Hook {
            return self.runner.check_policy(call);
        }
        self.runner.tools().find(&call.tool)?;
        if !is_exposed(&call.tool, from) {
            let why = format_args!("{} is not for a program; there are {}", call.tool, FOR_PROGRAMS.join(", "));
            return Err(Refusal::new(RefusalClass::ToolNotExposed, why));
        }
        self.runner.check(call)?;
        self.runner.check_policy(call)
    }
}

fn is_exposed(tool: &str, to: CallFrom) -> bool {
    match to {
        CallFrom::Model => true,
        CallFrom::Mcp => FOR_PROGRAMS.contains(&tool),
        CallFrom::Hook | CallFrom::Unknown => false,
    }
}
