//! A conversation as a pure function of its events.
//!
//! [`apply`] takes a state and an event and returns the next state and what to do. Effects (model calls, tools) run side by side; each has an
//! [`EffectId`], and its end comes back as an event with that id. An end that the state does not wait for changes nothing. Appends are
//! strictly one after another: while one is under way, other events wait in the state. Decisions use only the log and the events.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use yoi_session::fold;
use yoi_wire::entry::{
    AgentConfig, Body, CarriedTask, CompactionEnded, CompactionOutcome, Entry, NOTICE_REASONS, Notice, RUN_END_REASONS, ReadPosition,
    RunEnded, RunOutcome, RunStarted, TokenUsage,
};
use yoi_wire::hub::Activity;
use yoi_wire::mode::Mode;

mod carried;
mod compaction;
mod ending;
mod event;
mod facts;
mod loans;
mod mode;
mod mode_switch;
mod policy_change;
mod preparation;
pub mod program;
mod program_calls;
mod program_history;
mod program_words;
mod prompt;
mod questions;
mod requested;
mod requests;
mod run;
mod start;
mod step;
mod told_calls;
mod written_call;

pub use event::{
    AskId, CallEnd, ConversationEvent, DecidedCall, EffectId, Intent, ModelFailed, ModelFailureKind, PromptRequest, RunSettings, StartInput,
};
pub use mode::is_open;
pub use policy_change::{PolicyChange, policy_of};
pub use preparation::{CommandInput, FolderInstructions, Prepared, ToPrepare};
pub use prompt::{Prompt, project};
pub use questions::ApprovalResult;
pub use requested::{CallRequest, RunToolResult, call_id_of};
pub use start::{QUEUE_OVERFLOW, STOPPED};
pub use step::apply;

use ending::Ending;
use facts::Facts;
use loans::Loans;
use preparation::Preparation;
use program::ProgramState;
use requested::RequestedEffect;
use requests::{HeldAsk, Requests};

/// The most notices in the log for one model call.
const MAX_NOTICES: u32 = 8;

/// Whether a run is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RunPhase {
    Idle,
    Running,
    Paused,
}

/// An effect that the conversation waits for.
#[derive(Clone, Debug)]
enum Effect {
    Model(ModelCall),
    Check,
    Preparation,
    /// A call that runs, by the sequence number of its start.
    Tool {
        call_id: String,
        started: u64,
    },
    Background,
    /// The program that is the agent.
    Program,
    /// The policy is asked again about a call of the program's, which a person has approved.
    ProgramCheck {
        call_id: String,
    },
}

#[derive(Clone, Debug, Default)]
struct ModelCall {
    summary: bool,
    /// Something of an answer has come.
    output: bool,
    waits_for_person: bool,
    notices: u32,
    last_notice: String,
}

/// A conversation after the events so far. Its size is bounded by the prompt, not by the length of the log.
#[derive(Clone, Debug, Default)]
pub struct ConversationState {
    /// The session's own fold of the log.
    pub log: yoi_session::LogState,
    facts: Facts,
    preparation: Preparation,
    loans: Loans,
    prompt: Prompt,
    config: Option<Arc<AgentConfig>>,
    requests: Requests,
    /// Names of the tools that change nothing.
    read_only_tools: Arc<BTreeSet<String>>,
    settings: RunSettings,
    segment: String,
    may_run: bool,
    /// The entry of this process's start is in the log, or on its way there.
    started: bool,
    stopping: bool,
    /// Tokens of the prompt up to and with the last answer, as the endpoint counted them, and how many items these are.
    measured: Option<(u64, usize)>,
    /// Tokens at which a compaction brought no summary. It is not tried again before the prompt has grown.
    compaction_refused_at: u64,
    /// The endpoint said that the prompt is too long, and no answer has come since.
    too_long: bool,
    /// The model's window in tokens, as an endpoint has named it to this process.
    told_window: Option<u64>,
    /// Entries of the running append that are not yet logged.
    appending: usize,
    rotating: bool,
    segment_full: bool,
    /// Events that wait for the running append.
    deferred: VecDeque<ConversationEvent>,
    effects: BTreeMap<EffectId, Effect>,
    /// Effects of calls that no model asked for.
    requested_effects: BTreeMap<EffectId, RequestedEffect>,
    /// Who waits for the end of such a call, and of which.
    call_asks: Vec<(AskId, String)>,
    next_effect: EffectId,
    ending: Option<Ending>,
    /// What people asked while the run was ending.
    held: VecDeque<HeldAsk>,
    /// People whose answers to questions are on their way to the log, and which.
    answering: Vec<(AskId, u64)>,
    /// The inbox was read since the last model call or wait.
    inbox_read: bool,
    /// The log says that the inbox was full, and nothing was read of it since.
    told_of_full_queue: bool,
    /// The program that is the agent.
    program: Option<ProgramState>,
}

impl ConversationState {
    /// A conversation before its first entry. `read_only_tools` names the tools that change nothing.
    #[must_use]
    pub fn new(read_only_tools: BTreeSet<String>) -> Self {
        Self { read_only_tools: Arc::new(read_only_tools), ..Self::default() }
    }

    /// What the model is asked next, as far as the log has it.
    #[must_use]
    pub fn prompt(&self) -> &Prompt {
        &self.prompt
    }

    /// System prompt, tools and model as the log has them; `None` in a log of format 1.
    #[must_use]
    pub fn config(&self) -> Option<&Arc<AgentConfig>> {
        self.config.as_ref()
    }

    /// How far a task is.
    #[must_use]
    pub fn task(&self, id: &str) -> Option<&CarriedTask> {
        self.log.tasks.get(id)
    }

    /// How far the words of other agents were read, by name.
    #[must_use]
    pub fn read(&self) -> &BTreeMap<String, ReadPosition> {
        &self.log.read
    }

    /// Tokens over the agent's life.
    #[must_use]
    pub fn tokens(&self) -> TokenUsage {
        self.log.tokens
    }

    /// Tokens and number of model calls of the open run, or of the last one.
    #[must_use]
    pub fn run_usage(&self) -> (TokenUsage, u32) {
        let ended = (self.facts.last_tokens, self.facts.last_turns);
        self.log.open_run.as_ref().map_or(ended, |run| (run.tokens, run.turns))
    }

    /// The mode that a person has set; `None`: nobody has.
    #[must_use]
    pub fn mode(&self) -> Option<Mode> {
        self.log.mode.as_ref().map(|set| set.mode)
    }

    /// What the agent does.
    #[must_use]
    pub fn activity(&self) -> Activity {
        match self.phase() {
            RunPhase::Paused => Activity::Paused,
            RunPhase::Running | RunPhase::Idle if self.log.waiting().next().is_some() => Activity::NeedsInput,
            RunPhase::Running => Activity::Running,
            // It works, though not on a run.
            RunPhase::Idle if !self.log.requested.is_empty() => Activity::Running,
            RunPhase::Idle => Activity::Idle,
        }
    }

    fn phase(&self) -> RunPhase {
        match &self.log.open_run {
            Some(run) if run.paused => RunPhase::Paused,
            Some(_) => RunPhase::Running,
            None if self.facts.compaction.is_some() => RunPhase::Running,
            None => RunPhase::Idle,
        }
    }

    fn record(&mut self, entry: Entry) {
        if let Some(records) = requests::answered_by(self, &entry) {
            // The end of a run that was cancelled for another mode is not what was asked.
            if matches!(entry.body, Body::ModeSwitched(_)) {
                self.requests.replace(records);
            } else {
                self.requests.remember(records);
            }
        }
        match &entry.body {
            Body::SegmentStarted(start) => self.config = Some(Arc::new(start.config.clone())),
            Body::ConfigChanged(change) => self.config = Some(Arc::new(change.config.clone())),
            Body::Carried(carried) => {
                if let Some(state) = &carried.state {
                    self.requests.restore(&state.requests);
                }
                self.measured = None;
            }
            Body::Assistant(_) => (self.inbox_read, self.too_long, self.compaction_refused_at) = (false, false, 0),
            Body::RunEnded(_) => (self.inbox_read, self.too_long) = (false, false),
            Body::CompactionEnded(end) if end.outcome == CompactionOutcome::Used => self.too_long = false,
            Body::RolledBack(_) | Body::Rewound(_) => self.measured = None,
            Body::CompactionEnded(_) => self.compaction_refused_at = self.context_tokens(),
            Body::SessionStarted(_)
            | Body::RuntimeStarted(_)
            | Body::Input(_)
            | Body::PeerMessage(_)
            | Body::RunStarted(_)
            | Body::ToolRequested(_)
            | Body::ToolAsked(_)
            | Body::ToolAnswered(_)
            | Body::ToolStarted(_)
            | Body::ToolEnded(_)
            | Body::Notice(_)
            | Body::SystemItem(_)
            | Body::Paused(_)
            | Body::Resumed(_)
            | Body::Abandoned(_)
            | Body::Usage(_)
            | Body::ModeSwitched(_)
            | Body::CompactionStarted(_)
            | Body::Extension(_)
            | Body::Unknown { .. } => {}
        }
        self.facts.record(&self.log, &entry);
        self.preparation.record(&entry);
        self.loans.record(&entry);
        if !self.record_for_program(&entry) {
            self.prompt.record(&entry);
        }
        if let Body::Assistant(answer) = &entry.body {
            self.measured = answer.usage.map(|usage| (usage.input_tokens + usage.output_tokens, self.prompt.items().len()));
        }
        self.log = fold::apply(std::mem::take(&mut self.log), &entry);
    }

    /// Inputs and messages that no answer has followed and no run that has ended had read.
    fn due(&self) -> impl Iterator<Item = &String> {
        self.log.unanswered.iter().filter(|id| self.log.delivered.get(id).is_some_and(|seq| seq > self.facts.settled))
    }

    fn is_paused(&self) -> bool {
        self.log.open_run.as_ref().is_some_and(|run| run.paused)
    }

    /// Model calls of the open run so far.
    fn turns(&self) -> u32 {
        self.log.open_run.as_ref().map_or(0, |run| run.turns)
    }

    fn is_busy(&self) -> bool {
        self.appending > 0 || self.rotating
    }

    fn new_effect(&mut self, effect: Effect) -> EffectId {
        self.next_effect += 1;
        self.effects.insert(self.next_effect, effect);
        self.next_effect
    }

    fn append(&mut self, bodies: Vec<Body>, intents: &mut Vec<Intent>) {
        self.appending = bodies.len();
        intents.push(Intent::Append(bodies));
    }

    fn run_started(&self, seq: u64, more: impl IntoIterator<Item = String>) -> Body {
        let mut cause: Vec<String> = Vec::new();
        for id in self.log.interrupted.clone().unwrap_or_default().into_iter().chain(self.due().cloned()).chain(more) {
            if !cause.contains(&id) {
                cause.push(id);
            }
        }
        // The id is unique, because no other entry has this sequence number.
        Body::RunStarted(RunStarted { run_id: format!("run-{seq}"), cause })
    }

    fn run_ended(&self, outcome: RunOutcome, reason: Option<&str>, message: Option<String>) -> Option<Body> {
        debug_assert!(reason.is_none_or(|reason| RUN_END_REASONS.contains(&reason)), "{reason:?} is explained nowhere");
        let run_id = self.log.open_run.as_ref()?.run_id.clone();
        Some(Body::RunEnded(RunEnded { run_id, outcome, reason: reason.map(str::to_owned), message, by: None }))
    }

    fn end_run(&mut self, outcome: RunOutcome, reason: Option<&str>, message: Option<String>, intents: &mut Vec<Intent>) {
        if let Some(end) = self.run_ended(outcome, reason, message) {
            self.append(vec![end], intents);
        }
    }
}

fn notice(reason: String, message: String) -> Body {
    debug_assert!(NOTICE_REASONS.contains(&reason.as_str()), "{reason} is explained nowhere");
    Body::Notice(Notice { reason, message })
}

fn compaction_failed(message: &str) -> Body {
    Body::CompactionEnded(CompactionEnded {
        outcome: CompactionOutcome::Failed,
        summary: String::new(),
        usage: None,
        message: Some(message.to_owned()),
    })
}

#[cfg(test)]
mod tests;
