//! The tool StopPod.

use schemars::JsonSchema;
use serde::Deserialize;
use yoi_wire::children::{StopRequest, StopResponse};
use yoi_wire::manifest::RunLimits;

use super::peers_error_sentence;
use crate::decision::Refusal;
use crate::tools::arguments::not_empty;
use crate::tools::result::{CallResult, LiveOutput};
use crate::tools::tool::{ToolContext, TypedTool, default_time_limit, with_timeout};

/// Stops a child.
pub struct StopPod;

// No doc comment: it would be in the schema.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Args {
    /// Name of an agent that you started.
    #[serde(deserialize_with = "not_empty")]
    #[schemars(length(min = 1))]
    name: String,
}

impl TypedTool for StopPod {
    type Args = Args;
    const NAME: &'static str = "StopPod";

    fn description(&self, _limits: &RunLimits) -> String {
        "Stop an agent that you started. Its tree and what it said stay, for ReadPodOutput and DiffPod. Only a person can start it again or delete it, and \
         until then it counts as one of your agents."
            .to_owned()
    }

    fn check(&self, context: &ToolContext, _args: &Args) -> Result<(), Refusal> {
        context.children().map(drop)
    }

    async fn run(&self, context: &ToolContext, args: Args, _live: &LiveOutput) -> CallResult {
        let children = match context.children() {
            Ok(children) => children,
            Err(refusal) => return CallResult::refused(refusal),
        };
        let request = StopRequest { name: args.name };
        let stop = async {
            match children.stop(&request).await {
                Ok(StopResponse { agent, duplicate: false }) => CallResult::succeeded(format!("{} is being stopped.", agent.name)),
                Ok(StopResponse { agent, duplicate: true }) => CallResult::succeeded(format!("{} was stopped before.", agent.name)),
                Err(error) => CallResult::failed(peers_error_sentence(&error)),
            }
        };
        with_timeout(default_time_limit(&context.limits), stop).await
    }
}
