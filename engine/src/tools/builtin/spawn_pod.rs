//! The tool SpawnPod.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use yoi_wire::children::{SharedAccess, SharedPath, SpawnRequest, SpawnResponse};
use yoi_wire::entry::{RefusalClass, ToolOutcome};
use yoi_wire::hub::RefusalReason;
use yoi_wire::manifest::RunLimits;

use super::peers_error_sentence;
use crate::children::Children;
use crate::decision::Refusal;
use crate::peers::PeersError;
use crate::tools::arguments::{invalid, not_empty, not_null};
use crate::tools::result::{CallResult, LiveOutput};
use crate::tools::tool::{ToolContext, TypedTool, default_time_limit};

/// Tries to start one child. Asking again is safe, because the request has an id.
const TRIES: usize = 3;

/// What the model is told in addition, where the agent may lend paths.
pub const SHARES: &str = " With `share` it works in your own tree instead: it writes only the paths that you name, which must be there, and you do not write there \
    until it is back, by StopPod. What of your processes has something there open is ended first. It cannot commit: you do that afterwards.";

/// Takes out of the schema what an agent that lends nothing has no use for.
pub fn without_share(schema: &mut Value) {
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        properties.remove("share");
    }
}

/// Starts another agent, in a fork of this one's tree or in paths of it.
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
    /// Paths of your tree that it works in, instead of in a copy. Nobody else writes what it may write.
    #[serde(default)]
    share: Option<Vec<Shared>>,
    /// The folder in which its commands start: an absolute path in your tree. The root of the tree when left out. It allows nothing.
    #[serde(default, deserialize_with = "not_null")]
    cwd: Option<String>,
    /// Name of a template of sub-agents: it has the tools, the instruction and the limits of that. As you when left out.
    #[serde(default, deserialize_with = "not_null")]
    template: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Shared {
    /// Relative to the root of the tree, e.g. docs/api.
    #[serde(deserialize_with = "not_empty")]
    #[schemars(length(min = 1))]
    path: String,
    access: Access,
    /// Whether it holds for all below the path, too. True when left out.
    #[serde(default)]
    recursive: Option<bool>,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
enum Access {
    Read,
    Write,
}

impl From<Shared> for SharedPath {
    fn from(shared: Shared) -> Self {
        let Shared { path, access, recursive } = shared;
        let access = match access {
            Access::Read => SharedAccess::Read,
            Access::Write => SharedAccess::Write,
        };
        SharedPath { path, access, recursive: recursive.unwrap_or(true) }
    }
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

    fn check(&self, context: &ToolContext, args: &Args) -> Result<(), Refusal> {
        if let Some(cwd) = &args.cwd {
            in_tree(context, cwd)?;
        }
        if args.share.is_none() || context.children()?.lends() {
            return context.children().map(drop);
        }
        let why = format_args!(
            "this agent lends nothing: spec.delegation of its YoiPod names no paths; without share the child has a copy of the tree"
        );
        Err(Refusal::new(RefusalClass::ToolNotExposed, why))
    }

    async fn run(&self, context: &ToolContext, args: Args, _live: &LiveOutput) -> CallResult {
        let children = match context.children() {
            Ok(children) => children,
            Err(refusal) => return CallResult::refused(refusal),
        };
        let Args { name, task, share, cwd, template } = args;
        let cwd = match cwd.map(|cwd| in_tree(context, &cwd)).transpose() {
            Ok(cwd) => cwd,
            Err(refusal) => return CallResult::refused(refusal),
        };
        let share: Option<Vec<SharedPath>> = share.map(|share| share.into_iter().map(SharedPath::from).collect());
        let limit = default_time_limit(&context.limits);
        // The id is stored before the request is sent, so that it survives however this call ends. No agent's name has a space. Another share is another request, and so on.
        let shared = share.as_ref().map(|share| format!(" {share:?}")).unwrap_or_default();
        let more = if cwd.is_some() || template.is_some() { format!(" {cwd:?} {template:?}") } else { String::new() };
        let key = (format!("spawn {name}{shared}{more}"), task.clone());
        let (request_id, _) = context.unconfirmed.id_of(&key);
        let request = SpawnRequest { name, task, request_id, share, cwd, template };
        let answer = match tokio::time::timeout(limit, spawn(children, &request)).await {
            Ok(answer) => answer,
            Err(_) => Err(PeersError::Unanswered { message: format!("there was no answer within {} s", limit.as_secs()), retry: false }),
        };
        let result = spawn_end(answer, &request);
        if result.outcome != ToolOutcome::Unknown {
            context.unconfirmed.remove(&key);
        }
        result
    }
}

/// A folder of the tree, relative to it. A link is judged by where it leads.
fn in_tree(context: &ToolContext, cwd: &str) -> Result<String, Refusal> {
    let root = context.tree.root().display();
    if !cwd.starts_with('/') {
        return Err(invalid(format_args!("/cwd: {cwd:?} is relative; give the whole path, e.g. {root}/docs")));
    }
    let no_folder =
        |why: &dyn std::fmt::Display| invalid(format_args!("/cwd: {cwd:?} is no folder of your tree, which is at {root}: {why}"));
    context.tree.open_folder(cwd).map_err(|error| no_folder(&error))?;
    let located = context.tree.locate(cwd).map_err(|error| no_folder(&error))?;
    located.to_str().map(str::to_owned).ok_or_else(|| no_folder(&"its name is no text"))
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

fn spawn_end(answer: Result<SpawnResponse, PeersError>, request: &SpawnRequest) -> CallResult {
    let name = &request.name;
    match answer {
        Ok(SpawnResponse { agent, loan: Some(_), .. }) => CallResult::succeeded(format!(
            "{} is started in your tree, with its task. It writes what you share with it, and you do not until it is back. ReadPodOutput tells how it is.",
            agent.name
        )),
        Ok(SpawnResponse { agent, .. }) if request.share.is_some() => CallResult::failed(format!(
            "{} is started, with its task, but in a fork of your tree: the gateway is of an earlier version, which lends nothing.",
            agent.name
        )),
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
        "It is not known whether {name:?} was started: {why}. Call SpawnPod with the same arguments again to find out: in this run that starts it once."
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
        let mut request =
            SpawnRequest { name: "c".to_owned(), task: "t".to_owned(), request_id: "r".to_owned(), share: None, cwd: None, template: None };
        let agent = AgentRef { namespace: "ns".to_owned(), name: "c".to_owned(), uid: "u".to_owned() };
        let made = |loan: Option<&str>| Ok(SpawnResponse { agent: agent.clone(), duplicate: true, loan: loan.map(str::to_owned) });
        assert_eq!(spawn_end(made(None), &request).outcome, ToolOutcome::Succeeded);
        request.share = Some(vec![SharedPath { path: "docs".to_owned(), access: SharedAccess::Write, recursive: true }]);
        assert_eq!(spawn_end(made(Some("l")), &request).outcome, ToolOutcome::Succeeded);
        assert_eq!(spawn_end(made(None), &request).outcome, ToolOutcome::Failed, "an earlier gateway lends nothing");
        let outcome = |answer| spawn_end(answer, &request).outcome;
        for reason in [
            RefusalReason::NoDelegation,
            RefusalReason::NameTaken,
            RefusalReason::Limit,
            RefusalReason::Invalid,
            RefusalReason::NotMade,
            RefusalReason::NotLent,
            RefusalReason::PathHeld,
        ] {
            assert_eq!(outcome(refused(reason)), ToolOutcome::Failed, "{reason:?}");
        }
        assert_eq!(outcome(refused(RefusalReason::Unacknowledged)), ToolOutcome::Unknown);
        assert_eq!(outcome(Err(PeersError::NotSent { message: "m".to_owned(), retry: false })), ToolOutcome::Failed);
        assert_eq!(outcome(Err(PeersError::Unanswered { message: "m".to_owned(), retry: false })), ToolOutcome::Unknown);
    }
}
