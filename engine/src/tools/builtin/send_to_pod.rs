//! The tool SendToPod.

use schemars::JsonSchema;
use serde::Deserialize;
use yoi_wire::manifest::RunLimits;

use super::send_to_peer_pod::{Way, send};
use crate::decision::Refusal;
use crate::tools::arguments::not_empty;
use crate::tools::result::{CallResult, LiveOutput};
use crate::tools::tool::{ToolContext, TypedTool, default_time_limit};

/// Gives an idle child more work.
pub struct SendToPod;

// No doc comment: it would be in the schema.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Args {
    /// Name of an agent that you started.
    #[serde(deserialize_with = "not_empty")]
    #[schemars(length(min = 1))]
    to: String,
    #[serde(deserialize_with = "not_empty")]
    #[schemars(length(min = 1))]
    message: String,
}

impl TypedTool for SendToPod {
    type Args = Args;
    const NAME: &'static str = "SendToPod";

    fn description(&self, _limits: &RunLimits) -> String {
        "Give more work to an agent that you started by SpawnPod and that is idle. It is refused, and nothing waits, while the agent works. What it \
         says is read by ReadPodOutput."
            .to_owned()
    }

    fn check(&self, context: &ToolContext, _args: &Args) -> Result<(), Refusal> {
        context.children().map(drop)
    }

    async fn run(&self, context: &ToolContext, args: Args, _live: &LiveOutput) -> CallResult {
        match context.children() {
            Ok(children) => {
                send(Way::Child(children), &context.unconfirmed, (&args.to, None, &args.message), default_time_limit(&context.limits)).await
            }
            Err(refusal) => CallResult::refused(refusal),
        }
    }
}
