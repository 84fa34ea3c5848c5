//! What a conversation asks of its sub-agents, and what its log says of them.
//!
//! A sub-agent is a conversation of its own, from a template of the project, for one task. It works in the tree of its agent, has a part of its agent's
//! tools and policy, reads nothing of the conversation that started it, and ends with the run that started it at the latest.

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use yoi_wire::entry::{Body, Extension, RefusalClass};
use yoi_wire::mode::Mode;
use yoi_wire::subagent::SubagentTemplate;

use crate::decision::Refusal;

/// The name of the entry that says how the sub-agents of a conversation are. It changes nothing.
const SUBAGENTS: &str = "yoi/subagents";

/// A sub-agent to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubagentRequest {
    /// Name of the template.
    pub template: String,
    /// What it is given.
    pub task: String,
    /// How long it may work, in seconds; absent: as long as the template says, which is also the longest.
    pub seconds: Option<u32>,
    /// The only tools that it has; absent: all of the template's.
    pub tools: Option<Vec<String>>,
}

/// How far a sub-agent is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SubagentState {
    /// It works.
    Running,
    /// It has done its task, by its own word.
    Completed,
    /// It could not.
    Failed,
    /// It was ended: by whoever started it, by its time, or with the run that started it.
    Stopped,
}

/// A sub-agent, as the log of the conversation that started it says it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SubagentStatus {
    /// Its name, which is also that of its conversation.
    pub name: String,
    /// Its template.
    pub template: String,
    /// How far it is.
    pub state: SubagentState,
    /// The first words of its task.
    pub task: String,
    /// Its tools.
    pub tools: Vec<String>,
    /// The mode that it cannot leave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// How long it may work, in seconds.
    pub seconds: u32,
    /// Why it has failed or was ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// A sub-agent with what it has said last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubagentResult {
    /// How it is.
    pub status: SubagentStatus,
    /// Its last words, once it has ended.
    pub words: String,
}

/// Starts sub-agents of one conversation and answers for them.
pub trait Subagents: fmt::Debug + Send + Sync {
    /// The templates that there are.
    fn templates(&self) -> &[SubagentTemplate];

    /// The conversation begins to be driven, and its log has said this last. What is received is for its log.
    fn begin(&self, told: Vec<SubagentStatus>) -> mpsc::UnboundedReceiver<Body>;

    /// Says once more for the log how all are: it goes on in a segment that does not.
    fn tell_again(&self);

    /// A run has ended, and so do those that it has started. They go on until they have.
    fn end_run(&self);

    /// Whether one may be started now. Has no side effects.
    ///
    /// # Errors
    /// Why not.
    fn check(&self, request: &SubagentRequest) -> Result<(), Refusal>;

    /// Starts one, which goes on after the call.
    ///
    /// # Errors
    /// Why not.
    fn spawn(&self, request: SubagentRequest) -> BoxFuture<'_, Result<SubagentStatus, SpawnError>>;

    /// Waits until one of these, or each, has ended, for a while; none is named: those that this conversation has started.
    ///
    /// # Errors
    /// There is none of a name.
    fn wait<'a>(&'a self, names: &'a [String], all: bool, limit: Duration) -> BoxFuture<'a, Result<Vec<SubagentResult>, Refusal>>;

    /// Ends one. It has ended on return.
    ///
    /// # Errors
    /// There is none of this name.
    fn stop<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<SubagentResult, Refusal>>;

    /// Ends all that run, for this reason. They have ended on return.
    fn stop_all<'a>(&'a self, why: &'a str) -> BoxFuture<'a, ()>;
}

/// Why no sub-agent was started.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// It may not.
    #[error("{}", .0.message)]
    Refused(Refusal),
    /// Its record cannot be written, or it does not start.
    #[error("failed to start the sub-agent: {0}")]
    Failed(String),
}

/// The sub-agents of a conversation, for its tools.
#[derive(Debug, Default)]
pub struct SubagentSlot {
    /// Known before the conversation is driven: what the model is offered is formed by them.
    templates: OnceLock<Arc<[SubagentTemplate]>>,
    /// While it is driven.
    subagents: Mutex<Option<Arc<dyn Subagents>>>,
}

impl SubagentSlot {
    /// That of another conversation of the same project.
    #[must_use]
    pub fn of_another_conversation(&self) -> Self {
        Self { templates: self.templates.clone(), subagents: Mutex::default() }
    }

    /// Says once which templates there are.
    pub fn set_templates(&self, templates: &[SubagentTemplate]) {
        self.templates.get_or_init(|| templates.into());
    }

    /// The templates from which the conversation may start some.
    #[must_use]
    pub fn templates(&self) -> &[SubagentTemplate] {
        self.templates.get().map_or(&[], |templates| templates)
    }

    /// `None`: the conversation has none.
    pub fn set(&self, subagents: Option<Arc<dyn Subagents>>) {
        *self.subagents.lock().unwrap_or_else(PoisonError::into_inner) = subagents;
    }

    /// `None`: the conversation has none.
    #[must_use]
    pub fn get(&self) -> Option<Arc<dyn Subagents>> {
        self.subagents.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// There is no sub-agent of this name.
#[must_use]
pub fn unknown(name: &str, known: &[String]) -> Refusal {
    let known = if known.is_empty() { "none was started".to_owned() } else { format!("there are {}", known.join(", ")) };
    Refusal::new(RefusalClass::InvalidArgs, format_args!("this conversation has started no sub-agent {name:?}; {known}"))
}

/// The entry that says how all of them are, and what of that is new, if anything.
#[must_use]
pub fn entry_of(all: &[SubagentStatus], change: Option<&SubagentStatus>) -> Body {
    Body::Extension(Extension { name: SUBAGENTS.to_owned(), data: json!({ "change": change, "subagents": all }) })
}

/// How all of them are, by an entry that says so.
#[must_use]
pub fn subagents_of(body: &Body) -> Option<Vec<SubagentStatus>> {
    match body {
        Body::Extension(Extension { name, data }) if name == SUBAGENTS => serde_json::from_value(data.get("subagents")?.clone()).ok(),
        _ => None,
    }
}

/// The type of the signal that an entry is, if it is about a sub-agent, and what it says.
#[must_use]
pub fn signal_of(Extension { name, data }: &Extension) -> Option<(&'static str, Value)> {
    let change = data.get("change").filter(|change| name == SUBAGENTS && change.is_object())?;
    let kind = match change.get("state").and_then(Value::as_str)? {
        "running" => "conversation.subagent.started",
        "completed" => "conversation.subagent.completed",
        "failed" => "conversation.subagent.failed",
        "stopped" => "conversation.subagent.stopped",
        _ => return None,
    };
    Some((kind, change.clone()))
}
