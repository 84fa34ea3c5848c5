//! What the log says of runs, tasks and tokens, beyond what the session's own fold keeps.

use yoi_session::LogState;
use yoi_wire::entry::{Assistant, Body, CompactionOutcome, CompactionStarted, Entry, RunOutcome, SegmentReason, StopReason, TokenUsage};

/// A pure fold of the log's entries.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Facts {
    /// Model calls of the last run that has ended.
    pub last_turns: u32,
    /// Tokens of that run.
    pub last_tokens: TokenUsage,
    /// Inputs up to this sequence number start no run: one has ended that read them.
    pub settled: u64,
    /// Why the last answer ended. `None` when something follows it that the model has to read.
    pub last_stop: Option<StopReason>,
    /// The model's last answer was complete and had no tool calls.
    pub final_answer: bool,
    /// Answers in a row that were cut off at the output limit.
    pub truncated: u32,
    /// Answers in a row with neither a word nor a call.
    pub empty: u32,
    /// The model was told that a call which it had written as text is none, and has made none since.
    pub told_of_written_call: bool,
    /// The compaction that has begun and not ended.
    pub compaction: Option<CompactionStarted>,
    /// The summary that the next segment has to carry.
    pub summary: Option<Summary>,
    /// Compactions in a row that brought no summary.
    pub failed_compactions: u32,
    /// No answer has come since the last summary was used.
    pub just_compacted: bool,
}

/// The topic of the item that tells the model of a call which it has written as text.
pub(super) const WRITTEN_CALL: &str = "WrittenCall";

/// Whether an answer has neither a word nor a call. Reasoning alone is no answer.
pub(super) fn is_empty(answer: &Assistant) -> bool {
    answer.tool_calls.is_empty() && answer.text.trim().is_empty()
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

impl Facts {
    /// Takes one more entry. `log` is the state before it.
    pub fn record(&mut self, log: &LogState, entry: &Entry) {
        match &entry.body {
            Body::Input(_) | Body::PeerMessage(_) => self.final_answer = false,
            Body::SystemItem(item) => {
                self.final_answer = false;
                self.told_of_written_call |= item.topic == WRITTEN_CALL;
            }
            Body::RunStarted(_) => {
                (self.truncated, self.final_answer, self.last_stop) = (0, false, None);
                (self.empty, self.told_of_written_call) = (0, false);
            }
            Body::Assistant(answer) => {
                let complete = matches!(answer.stop, None | Some(StopReason::End | StopReason::ToolCalls));
                self.final_answer = answer.tool_calls.is_empty() && complete;
                let cut = answer.stop == Some(StopReason::Length) && answer.tool_calls.is_empty();
                self.truncated = if cut { self.truncated + 1 } else { 0 };
                self.last_stop = answer.stop;
                self.empty = if complete && is_empty(answer) { self.empty + 1 } else { 0 };
                self.told_of_written_call &= answer.tool_calls.is_empty();
                (self.failed_compactions, self.just_compacted) = (0, false);
            }
            Body::RunEnded(end) => {
                if let Some(run) = &log.open_run {
                    (self.last_turns, self.last_tokens) = (run.turns, run.tokens);
                }
                // An interrupted run goes on after the restart.
                if end.outcome != RunOutcome::Interrupted {
                    self.settled = entry.seq;
                }
            }
            Body::Rewound(_) => {
                (self.settled, self.final_answer) = (entry.seq, false);
            }
            Body::CompactionStarted(start) => self.compaction = Some(start.clone()),
            Body::CompactionEnded(end) => {
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
                if carried.state.is_none() {
                    return;
                }
                self.summary = None;
                // What the segments before had settled is not among the unanswered that were carried.
                self.settled = 0;
            }
            Body::SessionStarted(_)
            | Body::RuntimeStarted(_)
            | Body::ToolRequested(_)
            | Body::ToolAsked(_)
            | Body::ToolAnswered(_)
            | Body::ToolStarted(_)
            | Body::ToolEnded(_)
            | Body::Notice(_)
            | Body::ConfigChanged(_)
            | Body::Paused(_)
            | Body::Resumed(_)
            | Body::Usage(_)
            | Body::Abandoned(_)
            | Body::RolledBack(_)
            | Body::ModeSwitched(_)
            | Body::Extension(_)
            | Body::Unknown { .. } => {}
        }
    }
}
