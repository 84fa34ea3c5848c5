//! The tool SpawnPod.

use schemars::JsonSchema;
use serde::Deserialize;
use yoi_wire::children::{SpawnRequest, SpawnResponse};
use yoi_wire::entry::ToolOutcome;
use yoi_wire::hub::RefusalReason;
use yoi_wire::manifest::RunLimits;

use super::peers_error_sentence;
use crate::children::Children;
use crate::decision::Refusal;
use crate::peers::PeersError;
use crate::tools::arguments::not_empty;
use crate::tools::result::{CallResult, LiveOutput};
use crate::tools::tool::{ToolContext, TypedTool, default_time_limit};

/// Tries to start one child. Asking again is safe, because the request has an id.
const TRIES: usize = 3;

/// Starts another agent in a fork of this one's tree.
pub struct SpawnPod;

// No doc comment: it would be in the schema.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Args {
    /// Its name: lower-case letters, digits and dashes, at most 50.
    #[serde(deserialize_with = "not_empty")]
    #[schemars(length(min = 1))]
    name: String,
    /// What it is to do. It knows nothing of this conversation, so say all that it needs.
    #[serde(deserialize_with = "not_empty")]
    #[schemars(length(min = 1))]
    task: String,
}

impl TypedTool for SpawnPod {
    type Args = Args;
    const NAME: &'static str = "SpawnPod";

    fn description(&self, _limits: &RunLimits) -> String {
        "Start another agent, your child, with a task. It works in a copy of your source tree as it is now, uncommitted changes included: neither of you \
         sees what the other changes from then on. It runs as you do, and starts no agents of its own. It begins within a minute; ReadPodOutput tells \
         what it says and how it is, DiffPod what it changed, SendToPod gives it more work once it is idle, StopPod ends it."
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
        let Args { name, task } = args;
        let limit = default_time_limit(&context.limits);
        // The id is stored before the request is sent, so that it survives however this call ends. No agent's name has a space.
        let key = (format!("spawn {name}"), task.clone());
        let (request_id, _) = context.unconfirmed.id_of(&key);
        let request = SpawnRequest { name, task, request_id };
        let answer = match tokio::time::timeout(limit, spawn(children, &request)).await {
            Ok(answer) => answer,
            Err(_) => Err(PeersError::Unanswered { message: format!("there was no answer within {} s", limit.as_secs()), retry: false }),
        };
        let result = spawn_end(answer, &request.name);
        if result.outcome != ToolOutcome::Unknown {
            context.unconfirmed.remove(&key);
        }
        result
    }
}

async fn spawn(children: &dyn Children, request: &SpawnRequest) -> Result<SpawnResponse, PeersError> {
    let mut tried = 1;
    loop {
        match children.spawn(request).await {
            Err(PeersError::Unanswered { retry: true, .. } | PeersError::NotSent { retry: true, .. }) if tried < TRIES => tried += 1,
            answer => return answer,
        }
    }
}

fn spawn_end(answer: Result<SpawnResponse, PeersError>, name: &str) -> CallResult {
    match answer {
        Ok(SpawnResponse { agent, .. }) => CallResult::succeeded(format!(
            "{} is started in a fork of your tree, with its task. ReadPodOutput tells how it is.",
            agent.name
        )),
        Err(PeersError::Refused(refusal)) if refusal.reason == RefusalReason::Unacknowledged => unknown(name, &refusal.message),
        Err(error @ (PeersError::Refused(_) | PeersError::NotSent { .. })) => {
            CallResult::failed(format!("No agent was started: {}", peers_error_sentence(&error)))
        }
        Err(PeersError::Unanswered { message, .. }) => unknown(name, &message),
    }
}

fn unknown(name: &str, why: &str) -> CallResult {
    let output = format!(
        "It is not known whether {name:?} was started: {why}. Call SpawnPod with the same name and task again to find out: in this run that starts it once."
    );
    CallResult::new(ToolOutcome::Unknown, output)
}

#[cfg(test)]
mod tests {
    use yoi_wire::entry::AgentRef;
    use yoi_wire::hub::Refusal;

    use super::*;

    #[test]
    fn only_an_answer_says_whether_a_child_was_started() {
        let refused = |reason| Err(PeersError::Refused(Refusal { reason, message: "why".to_owned() }));
        let outcome = |answer| spawn_end(answer, "c").outcome;
        let agent = AgentRef { namespace: "ns".to_owned(), name: "c".to_owned(), uid: "u".to_owned() };
        assert_eq!(outcome(Ok(SpawnResponse { agent, duplicate: true })), ToolOutcome::Succeeded);
        for reason in
            [RefusalReason::NoDelegation, RefusalReason::NameTaken, RefusalReason::Limit, RefusalReason::Invalid, RefusalReason::NotMade]
        {
            assert_eq!(outcome(refused(reason)), ToolOutcome::Failed, "{reason:?}");
        }
        assert_eq!(outcome(refused(RefusalReason::Unacknowledged)), ToolOutcome::Unknown);
        assert_eq!(outcome(Err(PeersError::NotSent { message: "m".to_owned(), retry: false })), ToolOutcome::Failed);
        assert_eq!(outcome(Err(PeersError::Unanswered { message: "m".to_owned(), retry: false })), ToolOutcome::Unknown);
    }
}
