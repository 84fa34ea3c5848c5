//! What the log says of runs, tasks and tokens, beyond what the session's own fold keeps.

use std::collections::BTreeMap;

use yoi_session::LogState;
use yoi_wire::entry::{
    Body, CarriedTask, CompactionOutcome, CompactionStarted, Entry, InputFrom, RunOutcome, SegmentReason, StopReason, TokenUsage,
};
use yoi_wire::hub::TaskState;

/// A pure fold of the log's entries.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Facts {
    /// All tasks, by id.
    pub tasks: BTreeMap<String, CarriedTask>,
    /// Model calls of the open run, or of the last one.
    pub turns: u32,
    /// The open run is paused.
    pub paused: bool,
    /// Tokens of the open run, or of the last one.
    pub run_tokens: TokenUsage,
    /// Tokens over the agent's life.
    pub tokens: TokenUsage,
    /// Causes of a run that was interrupted, until the next run takes them over.
    pub interrupted: Option<Vec<String>>,
    /// Inputs up to this sequence number start no run: one has ended that read them.
    pub settled: u64,
    /// Why the last answer ended. `None` when something follows it that the model has to read.
    pub last_stop: Option<StopReason>,
    /// The model's last answer was complete and had no tool calls.
    pub final_answer: bool,
    /// Answers in a row that were cut off at the output limit.
    pub truncated: u32,
    /// The compaction that has begun and not ended.
    pub compaction: Option<CompactionStarted>,
    /// The summary that the next segment has to carry.
    pub summary: Option<Summary>,
    /// Compactions in a row that brought no summary.
    pub failed_compactions: u32,
    /// No answer has come since the last summary was used.
    pub just_compacted: bool,
}

/// A summary that is used.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Summary {
    /// Its entry.
    pub seq: u64,
    /// It stands for everything before this one.
    pub keep_from_seq: u64,
    /// As the model wrote it.
    pub text: String,
}

/// Whether a person's act took the run's input away, so that its tasks count as cancelled.
fn failure_reason(outcome: RunOutcome, reason: Option<&String>) -> Option<String> {
    match outcome {
        RunOutcome::Cancelled | RunOutcome::RolledBack => Some("Cancelled".to_owned()),
        RunOutcome::LimitReached => Some(reason.cloned().unwrap_or_else(|| "LimitReached".to_owned())),
        RunOutcome::Truncated => Some("Truncated".to_owned()),
        RunOutcome::Failed => reason.cloned(),
        RunOutcome::Finished | RunOutcome::Interrupted => None,
    }
}

impl Facts {
    /// Takes one more entry. `log` is the state before it.
    pub fn record(&mut self, log: &LogState, entry: &Entry) {
        match &entry.body {
            Body::Input(input) => {
                if input.from == InputFrom::Task {
                    self.tasks.insert(input.message_id.clone(), CarriedTask { state: TaskState::Submitted, reason: None });
                }
                self.final_answer = false;
            }
            Body::PeerMessage(_) | Body::SystemItem(_) => self.final_answer = false,
            Body::RunStarted(run) => {
                (self.turns, self.truncated, self.paused, self.final_answer) = (0, 0, false, false);
                (self.run_tokens, self.interrupted, self.last_stop) = (TokenUsage::default(), None, None);
                self.mark_tasks(&run.cause, TaskState::Running, None);
            }
            Body::Assistant(answer) => {
                self.turns += 1;
                self.add_tokens(answer.usage);
                let complete = matches!(answer.stop, None | Some(StopReason::End | StopReason::ToolCalls));
                self.final_answer = answer.tool_calls.is_empty() && complete;
                let cut = answer.stop == Some(StopReason::Length) && answer.tool_calls.is_empty();
                self.truncated = if cut { self.truncated + 1 } else { 0 };
                self.last_stop = answer.stop;
                (self.failed_compactions, self.just_compacted) = (0, false);
            }
            Body::RunEnded(end) => {
                let cause = log.open_run.as_ref().map(|run| run.cause.clone()).unwrap_or_default();
                self.paused = false;
                match end.outcome {
                    RunOutcome::Finished => self.mark_tasks(&cause, TaskState::Succeeded, None),
                    // The task keeps its state: it goes on after the restart.
                    RunOutcome::Interrupted => self.interrupted = Some(cause),
                    RunOutcome::Failed
                    | RunOutcome::LimitReached
                    | RunOutcome::Truncated
                    | RunOutcome::Cancelled
                    | RunOutcome::RolledBack => {
                        self.mark_tasks(&cause, TaskState::Failed, failure_reason(end.outcome, end.reason.as_ref()));
                    }
                }
                if end.outcome != RunOutcome::Interrupted {
                    self.settled = entry.seq;
                }
            }
            Body::Paused(_) => self.paused = true,
            Body::Resumed(_) => self.paused = false,
            Body::Rewound(_) => {
                (self.settled, self.final_answer) = (entry.seq, false);
            }
            Body::Usage(used) => self.add_tokens(Some(used.usage)),
            Body::CompactionStarted(start) => self.compaction = Some(start.clone()),
            Body::CompactionEnded(end) => {
                self.add_tokens(end.usage);
                let Some(start) = self.compaction.take() else { return };
                match end.outcome {
                    CompactionOutcome::Used => {
                        (self.failed_compactions, self.just_compacted) = (0, true);
                        self.summary = Some(Summary { seq: entry.seq, keep_from_seq: start.keep_from_seq, text: end.summary.clone() });
                    }
                    CompactionOutcome::Rejected | CompactionOutcome::Failed => self.failed_compactions += 1,
                }
            }
            Body::SegmentStarted(start) => {
                // Whoever replays from here knows no more than this.
                (self.truncated, self.last_stop, self.failed_compactions) = (0, None, 0);
                self.just_compacted = start.reason == SegmentReason::Compacted;
            }
            Body::Carried(carried) => {
                let Some(state) = &carried.state else { return };
                self.summary = None;
                self.tasks.clone_from(&state.tasks);
                self.interrupted.clone_from(&state.interrupted);
                self.tokens = state.tokens;
                // What the segments before had settled is not among the unanswered that were carried.
                self.settled = 0;
                if let Some(run) = &state.open_run {
                    (self.turns, self.paused, self.run_tokens) = (run.turns, run.paused, run.tokens);
                }
            }
            Body::SessionStarted(_)
            | Body::RuntimeStarted(_)
            | Body::ToolStarted(_)
            | Body::ToolEnded(_)
            | Body::Notice(_)
            | Body::ConfigChanged(_)
            | Body::Abandoned(_)
            | Body::RolledBack(_)
            | Body::Extension(_)
            | Body::Unknown { .. } => {}
        }
    }

    fn add_tokens(&mut self, usage: Option<TokenUsage>) {
        let usage = usage.unwrap_or_default();
        (self.tokens, self.run_tokens) = (self.tokens.plus(usage), self.run_tokens.plus(usage));
    }

    /// A task that has ended stays as it ended.
    fn mark_tasks(&mut self, ids: &[String], state: TaskState, reason: Option<String>) {
        for id in ids {
            if let Some(task) = self.tasks.get_mut(id) {
                match task.state {
                    TaskState::Submitted | TaskState::Running => *task = CarriedTask { state, reason: reason.clone() },
                    TaskState::Succeeded | TaskState::Failed => {}
                }
            }
        }
    }
}
