//! Workflows: steps that depend on each other. They are read and checked, and not run.

use serde::Serialize;
use serde_json::Value;

use crate::{AssetState, Source};

mod body;
mod check;
mod header;
mod read;
mod triggers;

pub(crate) use read::read;
pub(crate) use triggers::{read as read_triggers, settle as settle_triggers};

/// Steps that depend on each other.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Workflow {
    /// Of the front matter; of the file where that has none that can be read.
    pub name: String,
    /// What it does.
    pub description: String,
    /// `x.y.z`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Of its file, relative to the root.
    pub path: String,
    /// Whose folder it comes from.
    pub source: Source,
    /// What it needs, in the order of the file.
    pub inputs: Vec<Input>,
    /// What starts it.
    pub triggers: Vec<Trigger>,
    /// How it is run.
    pub settings: Settings,
    /// The topic of its signals.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topic: Option<String>,
    /// Which signals it sends.
    pub publish_events: Vec<String>,
    /// The steps, in the order of the file.
    pub steps: Vec<Step>,
    /// What undoes a step: its name, and the step that does it.
    pub compensations: Vec<(String, Step)>,
    /// `value` of `## Return`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub return_value: Option<String>,
    /// `transform` of `## Return`: text of a program. It is never run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub return_transform: Option<String>,
    /// Rules that each call of its steps would have to match, beside the policy's own: they only narrow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed_tools: Option<Vec<String>>,
    /// Whether it could be run.
    pub state: AssetState,
}

/// The type of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "the names say it")]
pub enum InputType {
    String,
    Integer,
    Boolean,
    Map,
    List,
}

/// What a workflow needs.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Input {
    /// How steps refer to it: `input:NAME`.
    pub name: String,
    /// What it is.
    #[serde(rename = "type")]
    pub kind: InputType,
    /// Whether the caller has to give it.
    pub required: bool,
    /// What it is without a value of the caller's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<Value>,
    /// In words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

/// What starts a workflow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "type")]
pub enum Trigger {
    /// A person.
    Manual {
        /// The name that the person calls it by.
        #[serde(skip_serializing_if = "Option::is_none")]
        command: Option<String>,
    },
    /// A signal of one of these types.
    Signal {
        /// With `*` for a segment and `**` for any number.
        patterns: Vec<String>,
    },
    /// The clock.
    Scheduled {
        /// As cron writes it.
        schedule: String,
    },
    /// Files of the tree.
    FileSystem {
        /// Of their paths.
        patterns: Vec<String>,
        /// What happens to them.
        events: Vec<String>,
        /// How long nothing may happen before it starts.
        debounce_ms: u64,
    },
    /// git.
    GitHook {
        /// `commit`, `push`, `merge`.
        events: Vec<String>,
    },
}

/// A trigger of `triggers.json`, which says itself which workflow it starts. None starts one yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GlobalTrigger {
    /// Its name, unlike that of any other.
    pub id: String,
    /// Name of the workflow.
    pub workflow: String,
    /// Of its file, relative to the root.
    pub path: String,
    /// Whose folder it comes from.
    pub source: Source,
    /// What starts the workflow; `None`: that cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trigger: Option<Trigger>,
    /// Whether it would start the workflow.
    pub state: AssetState,
    /// The line of its id, from 1.
    #[serde(skip)]
    pub(crate) line: Option<u32>,
}

impl Trigger {
    /// As its file writes the type.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Manual { .. } => "manual",
            Self::Signal { .. } => "signal",
            Self::Scheduled { .. } => "scheduled",
            Self::FileSystem { .. } => "file_system",
            Self::GitHook { .. } => "git_hook",
        }
    }
}

/// How a workflow is run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Settings {
    /// How many steps run side by side at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_concurrency: Option<u64>,
    /// How long the whole may take, at least a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// How often a step that failed is tried again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_retries: Option<u64>,
    /// How the time between two tries grows.
    pub backoff: Backoff,
    /// The time before the first of these tries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_delay_ms: Option<u64>,
    /// What happens when a step has failed for good.
    pub on_failure: OnFailure,
}

/// How the time between two tries grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "the names say it")]
pub enum Backoff {
    Linear,
    #[default]
    Exponential,
    Constant,
}

/// What happens when a step has failed for good.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OnFailure {
    /// What is done is undone, in reverse order.
    Compensate,
    /// Nothing more starts.
    #[default]
    Halt,
    /// Steps that do not need it go on.
    Continue,
}

/// One step.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// Its heading.
    pub name: String,
    /// The line of its heading, from 1.
    pub line: u32,
    /// What does it.
    pub kind: StepKind,
    /// What it is given, in the order of the file. References are `` `input:x` `` and `` `result:step.path` ``.
    pub inputs: Vec<(String, String)>,
    /// Names of what it gives.
    pub outputs: Vec<String>,
    /// The steps that have to succeed before it: named, or by a reference to their result.
    pub depends_on: Vec<String>,
    /// Whether nothing waits for it.
    pub is_async: bool,
    /// Whether the workflow goes on when it fails.
    pub optional: bool,
    /// Of a sub-workflow: when it is run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub condition: Option<String>,
    /// Of a sub-workflow: whether beside others.
    pub parallel: bool,
    /// How long it may take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// How often it is tried again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_retries: Option<u64>,
    /// Of an agent: its signal at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub callback_signal: Option<String>,
    /// Of an agent: what runs before it.
    pub pre_actions: Vec<String>,
    /// Of an agent: what runs after it.
    pub post_actions: Vec<String>,
}

/// What does a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "type", content = "target")]
pub enum StepKind {
    /// A tool.
    Action(String),
    /// An agent.
    Agent(String),
    /// A skill.
    Skill(String),
    /// Another workflow.
    SubWorkflow(String),
}
