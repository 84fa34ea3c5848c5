//! The tool ListPods.

use schemars::JsonSchema;
use serde::Deserialize;
use yoi_wire::hub::{VisibilityReason, VisiblePod};
use yoi_wire::manifest::RunLimits;

use super::peers_error_sentence;
use crate::tools::result::{CallResult, LiveOutput};
use crate::tools::tool::{ToolContext, TypedTool, default_time_limit, with_timeout};

/// Tells which other agents this one sees.
pub struct ListPods;

// No doc comment: it would be in the schema.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Args {}

impl TypedTool for ListPods {
    type Args = Args;
    const NAME: &'static str = "ListPods";
    const READS_ONLY: bool = true;

    fn description(&self, _limits: &RunLimits) -> String {
        "List the agents that you may see, why you see them, whether they seem reachable, and whether one that has stopped can be restored."
            .to_owned()
    }

    async fn run(&self, context: &ToolContext, _args: Args, _live: &LiveOutput) -> CallResult {
        let list = async {
            match context.peers.list().await {
                Ok(list) if list.pods.is_empty() => CallResult::succeeded("You see no agents."),
                Ok(list) => CallResult::succeeded(list.pods.iter().map(pod_line).collect::<Vec<_>>().join("\n")),
                Err(error) => CallResult::failed(peers_error_sentence(&error)),
            }
        };
        with_timeout(default_time_limit(&context.limits), list).await
    }
}

fn pod_line(pod: &VisiblePod) -> String {
    let reasons = pod.reasons.iter().map(|reason| match reason {
        VisibilityReason::Itself => "self",
        VisibilityReason::Peer => "peer",
        VisibilityReason::Child => "child",
        VisibilityReason::Parent => "parent",
    });
    let live = match (pod.live, pod.state.as_str()) {
        (true, _) => "live",
        (false, "Resting") => "a message wakes it",
        (false, _) => "not live",
    };
    let is_other = !pod.reasons.contains(&VisibilityReason::Itself);
    let restorable = match &pod.not_restorable {
        _ if pod.live || !is_other || pod.state == "Resting" => String::new(),
        Some(why) => format!("; not restorable: {why}"),
        None => "; restorable".to_owned(),
    };
    format!("{} ({}): {live}, {}{restorable}", pod.name, reasons.collect::<Vec<_>>().join(", "), pod.state)
}
