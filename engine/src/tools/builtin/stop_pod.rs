//! The tool StopPod.

use yoi_wire::children::{StopRequest, StopResponse};
use yoi_wire::manifest::RunLimits;

use super::child::{ChildName, ask};
use crate::decision::Refusal;
use crate::tools::result::{CallResult, LiveOutput};
use crate::tools::tool::{ToolContext, TypedTool};

/// Stops a child.
pub struct StopPod;

impl TypedTool for StopPod {
    type Args = ChildName;
    const NAME: &'static str = "StopPod";

    fn description(&self, _limits: &RunLimits) -> String {
        "Stop an agent that you started. Its tree and what it said stay, for ReadPodOutput and DiffPod. RestorePod starts it again. Only a person can \
         delete it, and until then it counts as one of your agents."
            .to_owned()
    }

    fn check(&self, context: &ToolContext, _args: &ChildName) -> Result<(), Refusal> {
        context.children().map(drop)
    }

    async fn run(&self, context: &ToolContext, args: ChildName, _live: &LiveOutput) -> CallResult {
        let request = StopRequest { name: args.name };
        ask(context, |children| async move {
            let StopResponse { agent, duplicate } = children.stop(&request).await?;
            let how = if duplicate { "was stopped before" } else { "is being stopped" };
            Ok(CallResult::succeeded(format!("{} {how}.", agent.name)))
        })
        .await
    }
}
