//! What happens to a conversation, and what it wants done.

use std::sync::Arc;

use yoi_session::inbox::InboxMessage;
use yoi_wire::approval::ApprovalRequest;
use yoi_wire::control::{ControlRequest, ControlResponse};
use yoi_wire::entry::{
    AgentConfig, Assistant, Body, CallFrom, Carried, Entry, Image, PromptItem, ReadPosition, RefusalClass, RuntimeStarted, SegmentReason,
    TokenUsage, ToolCall, ToolOutcome,
};
use yoi_wire::manifest::{CompactionLimits, Task};

use super::policy_change::PolicyChange;
use super::preparation::{Prepared, ToPrepare};
use super::program::ProgramEnd;
use super::questions::ApprovalResult;
use super::requested::{CallRequest, RunToolResult};
use crate::decision::Decision;
use crate::program::event::ProgramEvent;

/// Names one effect of this process. An end whose effect the conversation does not wait for changes nothing.
pub type EffectId = u64;
/// Names one waiting asker of this process.
pub type AskId = u64;

/// What has happened to a conversation.
#[derive(Clone, Debug)]
pub enum ConversationEvent {
    /// An entry of the log was replayed.
    Recorded(Entry),
    /// The whole log was replayed.
    Started(Box<StartInput>),
    /// An entry of [`Intent::Append`] is durable.
    Logged(Entry),
    /// The log goes on in a new segment.
    Rotated {
        /// Its UUID.
        segment: String,
        /// Its first entries.
        entries: Vec<Entry>,
    },
    /// The segment has reached its size.
    SegmentFull,
    /// There may be messages in the inbox.
    InboxChanged,
    /// A message was refused, because so many wait.
    QueueFull {
        /// How many.
        waiting: usize,
    },
    /// The messages that are in the inbox.
    InboxRead(Vec<InboxMessage>),
    /// The first piece of the model's answer has come.
    OutputBegan {
        /// The effect of [`Intent::CallModel`].
        effect: EffectId,
    },
    /// The model answered.
    Answered {
        /// The effect of [`Intent::CallModel`].
        effect: EffectId,
        /// The answer.
        answer: Assistant,
    },
    /// The model does not answer for now. The call goes on.
    ModelTrouble {
        /// The effect of [`Intent::CallModel`].
        effect: EffectId,
        /// In CamelCase, of the vocabulary of condition reasons.
        reason: String,
        /// For people.
        message: String,
        /// Only a person can change it.
        waits_for_person: bool,
    },
    /// The model gave no answer, after all retries.
    ModelFailed {
        /// The effect of [`Intent::CallModel`].
        effect: EffectId,
        /// Why.
        failure: ModelFailed,
    },
    /// A model call that brought no answer used tokens. It counts whether or not anyone waits for the call.
    Used {
        /// As the endpoint counted them.
        usage: TokenUsage,
        /// Why there was no answer, in one CamelCase word.
        reason: String,
    },
    /// Whether the calls may run, in their order.
    Checked {
        /// The effect of [`Intent::Check`].
        effect: EffectId,
        /// For each call.
        decisions: Vec<Decision>,
    },
    /// What a run needs of the tree.
    Prepared {
        /// The effect of [`Intent::Prepare`].
        effect: EffectId,
        /// What was found.
        prepared: Prepared,
    },
    /// A running call has ended.
    Ended {
        /// The effect of [`Intent::Run`].
        effect: EffectId,
        /// How.
        end: CallEnd,
    },
    /// Of an effect that [`Intent::End`] ended nothing is left; or the background processes have ended.
    Gone {
        /// The effect.
        effect: EffectId,
    },
    /// The program has said something.
    ProgramSaid {
        /// The effect of [`Intent::RunProgram`].
        effect: EffectId,
        /// Who waits until it is in the log.
        ask: AskId,
        /// What.
        said: Vec<ProgramEvent>,
    },
    /// A call of the program's is about to begin, or it calls a tool of Yoi's.
    ProgramCall {
        /// The effect of [`Intent::RunProgram`].
        effect: EffectId,
        /// Who waits until its start, or its refusal, is in the log.
        ask: AskId,
        /// The call, and whether it may begin.
        call: Box<DecidedCall>,
    },
    /// Whoever asked about a call of the program's waits no longer.
    ProgramCallWithdrawn {
        /// The asker.
        ask: AskId,
    },
    /// The program's process has ended.
    ProgramEnded {
        /// The effect of [`Intent::RunProgram`].
        effect: EffectId,
        /// How.
        end: ProgramEnd,
    },
    /// Something that a person may want to know.
    Noticed {
        /// In CamelCase, of the vocabulary of condition reasons.
        reason: String,
        /// For people.
        message: String,
    },
    /// A person asks for something.
    Asked {
        /// The asker.
        ask: AskId,
        /// The person's authenticated user name.
        user: String,
        /// What.
        request: ControlRequest,
    },
    /// A person answers a call that waits.
    ApprovalGiven {
        /// The asker.
        ask: AskId,
        /// The person's authenticated user name.
        user: String,
        /// The answer.
        request: ApprovalRequest,
    },
    /// Somebody asks for a call of a tool.
    CallRequested {
        /// The asker.
        ask: AskId,
        /// The person's authenticated user name.
        user: String,
        /// The call.
        request: CallRequest,
    },
    /// Nobody has answered a call that waits in time.
    ApprovalExpired {
        /// Sequence number of the question.
        question: u64,
    },
    /// Another policy counts from its entry on.
    PolicyChanged(Box<PolicyChange>),
    /// Something of the project has changed beside the conversation: its assets, or its sub-agents. This entry says so, and changes nothing.
    ProjectNews(Box<Body>),
    /// `spec.limits.tokens` is another one now.
    TokenLimit(Option<u64>),
    /// The process was asked to stop. No effect runs any more.
    Stopping,
}

/// A call of a program, and what the tool gate says to it.
#[derive(Clone, Debug, PartialEq)]
pub struct DecidedCall {
    /// The call.
    pub call: ToolCall,
    /// Who asks.
    pub from: CallFrom,
    /// Whether it may begin.
    pub decision: Decision,
    /// For how many seconds whoever asks can wait for a person; 0: not at all.
    pub wait_seconds: u64,
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq)]
pub struct CallEnd {
    /// How.
    pub outcome: ToolOutcome,
    /// What the model reads.
    pub output: String,
    /// Pictures beside it.
    pub images: Vec<Image>,
    /// Why it was refused after all, with outcome Refused.
    pub refused: Option<RefusalClass>,
    /// How far it has read the words of another agent.
    pub read: Option<ReadPosition>,
    /// Milliseconds since its start.
    pub millis: u64,
}

/// A model call without an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelFailed {
    /// What it means for the run.
    pub kind: ModelFailureKind,
    /// For people, with the endpoint's words.
    pub message: String,
    /// The model's window in tokens, where the endpoint named it.
    pub window_tokens: Option<u64>,
}

impl ModelFailed {
    /// A failure that tells no window.
    #[must_use]
    pub fn new(kind: ModelFailureKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), window_tokens: None }
    }
}

/// What a failed model call means for the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelFailureKind {
    /// The endpoint did not answer within the patience.
    Unreachable,
    /// The agent's tokens were used up by calls that brought no answer.
    LimitReached,
    /// The conversation does not fit into the window.
    TooLong,
    /// The endpoint refuses this conversation, and would refuse it again.
    HistoryRefused,
}

/// What a process knows when it starts, beside the log.
#[derive(Clone, Debug)]
pub struct StartInput {
    /// The entry of this start.
    pub runtime: RuntimeStarted,
    /// The agent's task, which is submitted once.
    pub task: Option<Task>,
    /// Limits and sizes.
    pub settings: RunSettings,
    /// False when no model can be called: inputs are kept and no run starts.
    pub may_run: bool,
    /// The configuration by the present manifest, where the log has none or one of another manifest.
    pub config: Option<AgentConfig>,
    /// The policy in force, where the log would not say so.
    pub policy: Option<Box<PolicyChange>>,
    /// UUID of the segment that is written.
    pub segment: String,
}

/// Limits of runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunSettings {
    /// Model calls in one run.
    pub turns_per_run: u32,
    /// Tokens in and out over the agent's life.
    pub tokens: Option<u64>,
    /// When and how far to compact.
    pub compaction: CompactionLimits,
    /// The model's window, where it is known.
    pub window_tokens: Option<u64>,
}

impl Default for RunSettings {
    fn default() -> Self {
        Self { turns_per_run: 50, tokens: None, compaction: CompactionLimits::default(), window_tokens: None }
    }
}

/// A request to the model. Everything in it is in the log.
#[derive(Clone, Debug, PartialEq)]
pub struct PromptRequest {
    /// System prompt, tools and options.
    pub config: Arc<AgentConfig>,
    /// The conversation.
    pub items: Arc<Vec<PromptItem>>,
    /// Whether the model may call tools.
    pub offer_tools: bool,
}

/// What to do next. Effects run side by side.
#[derive(Clone, Debug, PartialEq)]
pub enum Intent {
    /// Append these to the log at once and remove messages among them from the inbox; then [`ConversationEvent::Logged`] for each. Nothing
    /// else is appended before.
    Append(Vec<Body>),
    /// Go on in a new segment; then [`ConversationEvent::Rotated`].
    Rotate {
        /// Why.
        reason: SegmentReason,
        /// For the head.
        config: Box<AgentConfig>,
        /// What follows the head.
        carried: Vec<Carried>,
    },
    /// Read the inbox; then [`ConversationEvent::InboxRead`].
    ReadInbox,
    /// Call the model; then [`ConversationEvent::Answered`] or [`ConversationEvent::ModelFailed`].
    CallModel {
        /// For the event.
        effect: EffectId,
        /// The request.
        request: PromptRequest,
        /// It is for a summary: the call gives up instead of waiting for a person.
        summary: bool,
    },
    /// Run the program that is the agent; then [`ConversationEvent::ProgramEnded`].
    RunProgram {
        /// For the events.
        effect: EffectId,
        /// What it is given.
        input: String,
        /// Its own session, in which it goes on.
        session: Option<String>,
    },
    /// Answer the program, or whoever waits for what it said.
    Acknowledge {
        /// Whom.
        ask: AskId,
        /// It is durable: the id that a call has in the log, empty where it is about no call. Or why it is not taken.
        result: Result<String, String>,
    },
    /// Call the model at once instead of waiting longer.
    RetryModel {
        /// The effect of [`Intent::CallModel`].
        effect: EffectId,
    },
    /// Ask the tool gate; then [`ConversationEvent::Checked`].
    Check {
        /// For the event.
        effect: EffectId,
        /// The calls.
        calls: Vec<ToolCall>,
        /// Who asks for them.
        from: CallFrom,
    },
    /// Look at the tree's assets; then [`ConversationEvent::Prepared`].
    Prepare {
        /// For the event.
        effect: EffectId,
        /// What is asked of it.
        wanted: ToPrepare,
    },
    /// Run the call, whose start is durable; then [`ConversationEvent::Ended`].
    Run {
        /// For the event.
        effect: EffectId,
        /// The call.
        call: ToolCall,
        /// Who asks for it.
        from: CallFrom,
    },
    /// End an effect with all its processes; then [`ConversationEvent::Gone`], unless it has ended by itself.
    End {
        /// Which.
        effect: EffectId,
    },
    /// End all processes that tools have left in the background; then [`ConversationEvent::Gone`].
    EndBackground {
        /// For the event.
        effect: EffectId,
    },
    /// Answer a person.
    Answer {
        /// Whom.
        ask: AskId,
        /// The answer.
        response: ControlResponse,
    },
    /// Answer a person who has answered a call that waits.
    AnswerApproval {
        /// Whom.
        ask: AskId,
        /// The answer that counts, or why there is none.
        result: ApprovalResult,
    },
    /// Answer whoever asked for a call of a tool.
    AnswerCall {
        /// Whom.
        ask: AskId,
        /// How far the call is, or why it was not taken.
        result: RunToolResult,
    },
    /// There is nothing to do until something happens.
    Wait,
    /// End: everything is in the log.
    Exit,
}
