//! The tool RestorePod.

use schemars::JsonSchema;
use serde::Deserialize;
use yoi_wire::entry::ToolOutcome;
use yoi_wire::hub::{RefusalReason, RestoreRequest, RestoreResponse};
use yoi_wire::manifest::RunLimits;

use super::peers_error_sentence;
use crate::peers::PeersError;
use crate::tools::arguments::not_empty;
use crate::tools::result::{CallResult, LiveOutput};
use crate::tools::tool::{ToolContext, TypedTool, default_time_limit, with_timeout};

/// Starts a stopped agent again.
pub struct RestorePod;

// No doc comment: it would be in the schema.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Args {
    /// Name of an agent that you started, or of a peer.
    #[serde(deserialize_with = "not_empty")]
    #[schemars(length(min = 1))]
    name: String,
}

impl TypedTool for RestorePod {
    type Args = Args;
    const NAME: &'static str = "RestorePod";

    fn description(&self, _limits: &RunLimits) -> String {
        "Start an agent that has stopped again, one that you started or a peer: it goes on with its conversation and its tree, and waits for messages. \
         ListPods says which can be restored."
            .to_owned()
    }

    async fn run(&self, context: &ToolContext, args: Args, _live: &LiveOutput) -> CallResult {
        let request = RestoreRequest { name: args.name };
        let answer = async { end(&request.name, context.peers.restore(&request).await) };
        with_timeout(default_time_limit(&context.limits), answer).await
    }
}

fn end(name: &str, answer: Result<RestoreResponse, PeersError>) -> CallResult {
    let unknown = |why: &str| {
        let output = format!("It is not known whether {name} was started: {why}. ListPods says how it is.");
        CallResult::new(ToolOutcome::Unknown, output)
    };
    match answer {
        Ok(RestoreResponse { agent, state }) => CallResult::succeeded(format!("{} is restored, and is {state}.", agent.name)),
        Err(PeersError::Refused(refusal)) if refusal.reason == RefusalReason::Unacknowledged => unknown(&refusal.message),
        Err(PeersError::Unanswered { message, .. }) => unknown(&message),
        Err(error @ (PeersError::Refused(_) | PeersError::NotSent { .. })) => CallResult::failed(peers_error_sentence(&error)),
    }
}
