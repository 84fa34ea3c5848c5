//! The state of a session as a pure function of its entries.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use yoi_wire::{
    entry::{
        Body, CallDecision, CallQuestion, CarriedTask, Entry, InputFrom, ModeSwitched, PastQuestion, PastRequest, ReadPosition, RunEnded,
        RunOutcome, TokenUsage, ToolCall, ToolEnded, ToolOutcome,
    },
    hub::TaskState,
};

mod carried;
mod delivered;
mod questions;
mod requested;

pub use delivered::{DeliveredIds, MAX_DELIVERED};
pub use requested::{RequestedCall, request_digest};

/// Reason of a task, and of a run, that a person ended.
const CANCELLED: &str = "Cancelled";
/// Most tasks that are remembered. Beyond it, that which was given first of those that have ended is forgotten.
const MAX_TASKS: usize = 10_000;
/// Most agents of whom is remembered how far they were read.
const MAX_READ: usize = 1_000;

/// What a runtime has to know of its log before it goes on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LogState {
    /// Sequence number of the last entry; 0 before the first one.
    pub last_seq: u64,
    /// Run generation of the last entry; 0 before the first one.
    pub run_generation: u64,
    /// Ids of the latest [`MAX_DELIVERED`] inputs and messages in the log. A runtime takes none of them again.
    pub delivered: DeliveredIds,
    /// The inputs that were tasks, and how far each is. They are remembered longer than the ids of messages.
    pub tasks: BTreeMap<String, CarriedTask>,
    /// Ids of the inputs and messages that no answer of the model has followed, oldest first. A runtime appends a message before the model
    /// call that reads it and never during one, so an answer has read all messages that stand before it.
    pub unanswered: Vec<String>,
    /// The run that has begun and not ended.
    pub open_run: Option<OpenRun>,
    /// Tool calls that the model asked for and that have not ended, in the order in which it asked.
    pub open_calls: Vec<OpenCall>,
    /// Calls that no model asked for and that have not ended, oldest first. They belong to no run.
    pub requested: Vec<RequestedCall>,
    /// Such calls that have ended, the latest of them, oldest first.
    pub past_requested: VecDeque<PastRequest>,
    /// Causes of a run that was interrupted and that no run has taken over.
    pub interrupted: Option<Vec<String>>,
    /// Rules of the policy whose questions a person has answered for the whole conversation.
    pub always_approved: BTreeSet<String>,
    /// Questions about calls that nobody can answer any more, the latest of them, oldest first.
    pub past_questions: VecDeque<PastQuestion>,
    /// The mode that a person has set last; `None`: nobody has.
    pub mode: Option<ModeSwitched>,
    /// How far the words of other agents were read, by name.
    pub read: BTreeMap<String, ReadPosition>,
    /// Tokens of all model calls.
    pub tokens: TokenUsage,
}

/// A run that has begun and not ended.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenRun {
    /// Id of the run, from its `RunStarted`.
    pub run_id: String,
    /// Ids of the messages that started it.
    pub cause: Vec<String>,
    /// Sequence number of its `RunStarted`.
    pub seq: u64,
    /// Number of answers of the model in it.
    pub turns: u32,
    /// It is paused, and a person has to resume or cancel it.
    pub paused: bool,
    /// Tokens of its model calls.
    pub tokens: TokenUsage,
    /// How it ends, when a person has ended it and the append that said so was cut before its `RunEnded`.
    pub ending: Option<RunOutcome>,
}

/// A tool call that the model asked for and that has not ended.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenCall {
    /// Id that the model gave the call. Some models use an id again in a later answer.
    pub call_id: String,
    /// Name of the tool.
    pub tool: String,
    /// The call as the model asked for it; `None` when the log has only its start.
    pub request: Option<ToolCall>,
    /// Sequence number of its `ToolStarted`; `None` when it has not begun. After a crash the effects of a call that had begun are unknown.
    pub started: Option<u64>,
    /// What a person is asked about it, or has answered.
    pub question: Option<CallQuestion>,
}

impl OpenCall {
    /// Its end when the runtime stops.
    fn end_by_stop(&self, decision: Option<CallDecision>) -> Body {
        let (outcome, output) = match self.started {
            Some(_) => (ToolOutcome::Unknown, "The runtime stopped while this tool ran. It may or may not have taken effect."),
            None => (ToolOutcome::Refused, "The runtime stopped before this tool began. It did not run."),
        };
        Body::ToolEnded(ToolEnded {
            call_id: self.call_id.clone(),
            outcome,
            output: output.to_owned(),
            images: Vec::new(),
            millis: None,
            decision,
            read: None,
        })
    }
}

/// Returns the state after one more entry. The caller passes the entries of a log in order, each once.
#[must_use]
pub fn apply(mut state: LogState, entry: &Entry) -> LogState {
    state.last_seq = entry.seq;
    state.run_generation = entry.run;
    match &entry.body {
        Body::Input(input) => {
            state.deliver(&input.message_id, entry.seq);
            match input.from {
                InputFrom::Task => {
                    state.tasks.insert(input.message_id.clone(), CarriedTask { state: TaskState::Submitted, reason: None });
                    state.forget_a_task();
                }
                InputFrom::Person => {}
            }
        }
        Body::PeerMessage(message) => state.deliver(&message.message_id, entry.seq),
        Body::RunStarted(run) => {
            state.mark_tasks(&run.cause, TaskState::Running, None);
            state.interrupted = None;
            state.open_run = Some(OpenRun {
                run_id: run.run_id.clone(),
                cause: run.cause.clone(),
                seq: entry.seq,
                turns: 0,
                paused: false,
                tokens: TokenUsage::default(),
                ending: None,
            });
        }
        Body::Assistant(answer) => {
            state.unanswered.clear();
            state.count(answer.usage);
            if let Some(run) = &mut state.open_run {
                run.turns = run.turns.saturating_add(1);
            }
            state.open_calls.extend(answer.tool_calls.iter().map(|call| OpenCall {
                call_id: call.call_id.clone(),
                tool: call.tool.clone(),
                request: Some(call.clone()),
                started: None,
                question: None,
            }));
        }
        Body::ToolRequested(requested) => state.request(requested),
        Body::ToolAsked(asked) => state.ask(asked, entry),
        Body::ToolAnswered(answered) => state.answer(answered),
        Body::ToolStarted(start) if requested::is_of_engine(start.decision.as_ref()) => state.start_requested(&start.call_id, entry.seq),
        // Some models use the same ids in every answer, so the first call of that id that has not started is the one that starts.
        Body::ToolStarted(start) => {
            match state.open_calls.iter_mut().find(|call| call.call_id == start.call_id && call.started.is_none()) {
                Some(call) => call.started = Some(entry.seq),
                None => state.open_calls.push(OpenCall {
                    call_id: start.call_id.clone(),
                    tool: start.tool.clone(),
                    request: None,
                    started: Some(entry.seq),
                    question: None,
                }),
            }
        }
        Body::ToolEnded(end) if requested::is_of_engine(end.decision.as_ref()) => state.end_requested(end, entry.seq),
        Body::ToolEnded(end) => {
            let is_started = |call: &OpenCall| call.call_id == end.call_id && call.started.is_some();
            let has_id = |call: &OpenCall| call.call_id == end.call_id;
            if let Some(at) = state.open_calls.iter().position(is_started).or_else(|| state.open_calls.iter().position(has_id)) {
                let call = state.open_calls.remove(at);
                state.close_question(call, end);
            }
            if let Some(read) = &end.read {
                state.set_read(read);
            }
        }
        Body::RunEnded(end) => state.end_run(end),
        Body::Paused(pause) => state.with_run(&pause.run_id, |run| run.paused = true),
        Body::Resumed(resume) => state.with_run(&resume.run_id, |run| run.paused = false),
        Body::Abandoned(abandoned) => {
            state.with_run(&abandoned.run_id, |run| (run.paused, run.ending) = (false, Some(RunOutcome::Cancelled)));
        }
        Body::RolledBack(rolled_back) => {
            state.hide(|seq| rolled_back.hidden.contains(&seq));
            state.with_run(&rolled_back.run_id, |run| (run.paused, run.ending) = (false, Some(RunOutcome::RolledBack)));
        }
        Body::Rewound(rewound) => state.rewind(rewound.from_seq),
        Body::ModeSwitched(switch) => state.mode = Some(switch.clone()),
        Body::Usage(call) => state.count(Some(call.usage)),
        Body::CompactionEnded(end) => state.count(end.usage),
        Body::Carried(carried) => {
            if let Some(carried) = &carried.state {
                state.restore(carried);
            }
            if let Some(more) = &carried.more {
                state.restore_more(more);
            }
        }
        Body::SessionStarted(_)
        | Body::RuntimeStarted(_)
        | Body::Notice(_)
        | Body::SegmentStarted(_)
        | Body::ConfigChanged(_)
        | Body::SystemItem(_)
        | Body::CompactionStarted(_)
        | Body::Extension(_)
        | Body::Unknown { .. } => {}
    }
    state
}

/// Returns the state after these entries, which begin at the start of a session or with the head of one of its segments.
#[must_use]
pub fn fold<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> LogState {
    entries.into_iter().fold(LogState::default(), apply)
}

impl LogState {
    fn deliver(&mut self, id: &str, seq: u64) {
        self.delivered.insert(id, seq);
        self.unanswered.push(id.to_owned());
    }

    fn set_read(&mut self, read: &ReadPosition) {
        self.read.insert(read.agent.clone(), read.clone());
        // Whoever is forgotten is read from its beginning once more.
        if self.read.len() > MAX_READ
            && let Some(forgotten) = self.read.keys().find(|name| **name != read.agent).cloned()
        {
            self.read.remove(&forgotten);
        }
    }

    fn forget_a_task(&mut self) {
        if self.tasks.len() <= MAX_TASKS {
            return;
        }
        let ended = self.tasks.iter().filter(|(_, task)| match task.state {
            TaskState::Succeeded | TaskState::Failed => true,
            TaskState::Submitted | TaskState::Running => false,
        });
        // A task whose id is forgotten was given before all others.
        if let Some(first) = ended.map(|(id, _)| id).min_by_key(|id| self.delivered.get(id)).cloned() {
            self.tasks.remove(&first);
        }
    }

    fn count(&mut self, usage: Option<TokenUsage>) {
        let usage = usage.unwrap_or_default();
        self.tokens = self.tokens.plus(usage);
        if let Some(run) = &mut self.open_run {
            run.tokens = run.tokens.plus(usage);
        }
    }

    fn with_run(&mut self, run_id: &str, change: impl FnOnce(&mut OpenRun)) {
        if let Some(run) = self.open_run.as_mut().filter(|run| run.run_id == run_id) {
            change(run);
        }
    }

    fn mark_tasks(&mut self, ids: &[String], state: TaskState, reason: Option<&str>) {
        for id in ids {
            if let Some(task) = self.tasks.get_mut(id) {
                *task = CarriedTask { state, reason: reason.map(str::to_owned) };
            }
        }
    }

    fn end_run(&mut self, end: &RunEnded) {
        let Some(run) = self.open_run.take_if(|run| run.run_id == end.run_id) else { return };
        let failed = |otherwise| (TaskState::Failed, end.reason.as_deref().or(otherwise));
        let (state, reason) = match end.outcome {
            RunOutcome::Finished => (TaskState::Succeeded, None),
            RunOutcome::Failed => failed(None),
            RunOutcome::LimitReached => failed(Some("LimitReached")),
            RunOutcome::Truncated => failed(Some("Truncated")),
            RunOutcome::Cancelled | RunOutcome::RolledBack => failed(Some(CANCELLED)),
            // The tasks keep their state: they go on after the restart.
            RunOutcome::Interrupted => {
                self.interrupted = Some(run.cause);
                return;
            }
        };
        self.mark_tasks(&run.cause, state, reason);
    }

    /// Takes the inputs and messages with these sequence numbers out of those that wait for an answer.
    fn hide(&mut self, hidden: impl Fn(u64) -> bool) {
        let delivered = &self.delivered;
        let is_hidden = |id: &String| delivered.get(id).is_some_and(&hidden);
        self.unanswered.retain(|id| !is_hidden(id));
        if let Some(causes) = &mut self.interrupted {
            causes.retain(|id| !is_hidden(id));
        }
        self.interrupted = self.interrupted.take().filter(|causes| !causes.is_empty());
    }

    fn rewind(&mut self, from_seq: u64) {
        self.hide(|seq| seq >= from_seq);
        // No run will take up a task that the model no longer reads.
        let delivered = &self.delivered;
        for (id, task) in &mut self.tasks {
            let waits = match task.state {
                TaskState::Submitted | TaskState::Running => true,
                TaskState::Succeeded | TaskState::Failed => false,
            };
            if waits && delivered.get(id).is_some_and(|seq| seq >= from_seq) {
                *task = CarriedTask { state: TaskState::Failed, reason: Some(CANCELLED.to_owned()) };
            }
        }
    }

    /// Returns the entries that a starting runtime appends, in one append, before any others of its own. They end what was under way when
    /// the last runtime died: a call that had begun ends as [`ToolOutcome::Unknown`] and is not run again, a call that had not begun ends as
    /// [`ToolOutcome::Refused`], and the run ends as [`RunOutcome::Interrupted`]. A run that a person had ended ends as they said. A paused
    /// run stays paused. A call that a person is asked about, or has answered and that has not begun, stays open with those after it, and so does its run.
    /// Calls that no model asked for belong to no run, and each ends or stays open for itself.
    ///
    /// The result is empty after a clean end, and once these entries are in the log.
    #[must_use]
    pub fn recovery(&self) -> Vec<Body> {
        let waits = self.waits_over_a_restart();
        let calls = self.open_calls.iter().filter(|call| !waits || call.started.is_some()).map(|call| call.end_by_stop(None));
        let run = self.open_run.iter().filter(|run| !run.paused && !waits).map(|run| {
            let (outcome, reason, message) = match run.ending {
                Some(outcome) => (outcome, Some(CANCELLED), None),
                None => (RunOutcome::Interrupted, None, Some("the runtime stopped in the middle of it")),
            };
            Body::RunEnded(RunEnded {
                run_id: run.run_id.clone(),
                outcome,
                reason: reason.map(str::to_owned),
                message: message.map(str::to_owned),
                by: None,
            })
        });
        calls.chain(run).chain(self.requested_recovery()).collect()
    }
}
