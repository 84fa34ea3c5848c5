//! The tool SpawnSubagent.

use schemars::JsonSchema;
use serde::Deserialize;
use yoi_wire::hub::MAX_MESSAGE_TEXT;
use yoi_wire::manifest::RunLimits;

use crate::decision::Refusal;
use crate::subagents::{SpawnError, SubagentRequest};
use crate::tools::arguments::{invalid, not_empty, not_null};
use crate::tools::result::{CallResult, LiveOutput};
use crate::tools::tool::{ToolContext, TypedTool};

/// Starts a sub-agent from a template.
pub struct SpawnSubagent;

// No doc comment: it would be in the schema.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Args {
    /// Name of its template.
    #[serde(deserialize_with = "not_empty")]
    #[schemars(length(min = 1))]
    template: String,
    /// What it is to do. It knows nothing of this conversation, so say all that it needs, and what its answer has to say.
    #[serde(deserialize_with = "not_empty")]
    #[schemars(length(min = 1))]
    task: String,
    /// How long it may work; at most, and by default, what its template says.
    #[serde(default, deserialize_with = "not_null")]
    seconds: Option<u32>,
    /// The only tools that it has, of those of its template; all of them by default.
    #[serde(default, deserialize_with = "not_null")]
    tools: Option<Vec<String>>,
}

impl Args {
    fn request(&self) -> SubagentRequest {
        let Self { template, task, seconds, tools } = self;
        SubagentRequest { template: template.clone(), task: task.clone(), seconds: *seconds, tools: tools.clone() }
    }
}

impl TypedTool for SpawnSubagent {
    type Args = Args;
    const NAME: &'static str = "SpawnSubagent";

    fn description(&self, _limits: &RunLimits) -> String {
        "Start a sub-agent with a task of its own. It works in this tree at the same time as you, with the tools and for the time of its template, and ends with \
         this run. WaitSubagents gives you its answer. At most 3 work at a time. Templates:"
            .to_owned()
    }

    fn check(&self, context: &ToolContext, args: &Args) -> Result<(), Refusal> {
        if args.task.len() > MAX_MESSAGE_TEXT {
            return Err(invalid(format_args!("/task: has {} bytes, and {MAX_MESSAGE_TEXT} are allowed", args.task.len())));
        }
        context.subagents()?.check(&args.request())
    }

    async fn run(&self, context: &ToolContext, args: Args, _live: &LiveOutput) -> CallResult {
        let subagents = match context.subagents() {
            Ok(subagents) => subagents,
            Err(refusal) => return CallResult::refused(refusal),
        };
        match subagents.spawn(args.request()).await {
            Ok(status) => CallResult::succeeded(format!(
                "{} has begun, with {} and for at most {} s. WaitSubagents gives you its answer.",
                status.name,
                status.tools.join(", "),
                status.seconds
            )),
            Err(SpawnError::Refused(refusal)) => CallResult::refused(refusal),
            Err(error @ SpawnError::Failed(_)) => CallResult::failed(error.to_string()),
        }
    }
}
