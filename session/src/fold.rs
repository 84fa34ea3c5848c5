//! What a runtime needs to know of its log before it goes on. Pure.

use std::collections::{BTreeMap, BTreeSet};

use yoi_wire::entry::{Body, Entry, InputFrom, RunEnded, RunOutcome, ToolCall, ToolEnded, ToolOutcome};

/// The sum of a log's entries.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LogState {
    /// 0 before the first entry.
    pub last_seq: u64,
    /// Of the last entry.
    pub run_generation: u64,
    /// Ids of every input and message in the log, with the entry that holds it: none of them is taken again.
    pub delivered: BTreeMap<String, u64>,
    /// Those of `delivered` that were tasks.
    pub tasks: BTreeSet<String>,
    /// Inputs and messages that no answer of the model has followed, oldest first. A runtime puts one into the log before the model call
    /// that shall read it and never during one, so an answer has read all that stand before it.
    pub unanswered: Vec<String>,
    /// The run that has begun and not ended.
    pub open_run: Option<OpenRun>,
    /// Tool calls that the model asked for and that have not ended, in the order in which it asked.
    pub open_calls: Vec<OpenCall>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct OpenRun {
    pub run_id: String,
    pub cause: Vec<String>,
    /// Its `RunStarted`.
    pub seq: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct OpenCall {
    pub call_id: String,
    pub tool: String,
    /// The call as the model asked for it; absent when the log has only its start.
    pub asked: Option<ToolCall>,
    /// The entry that says that it began. After a crash its effects are unknown.
    pub started: Option<u64>,
}

/// The state after one more entry. Entries come in their order, each once.
#[must_use]
pub fn apply(mut state: LogState, entry: &Entry) -> LogState {
    state.last_seq = entry.seq;
    state.run_generation = entry.run;
    match &entry.body {
        Body::Input(input) => {
            state.deliver(&input.message_id, entry.seq);
            match input.from {
                InputFrom::Task => {
                    state.tasks.insert(input.message_id.clone());
                }
                InputFrom::Person => {}
            }
        }
        Body::PeerMessage(message) => state.deliver(&message.message_id, entry.seq),
        Body::RunStarted(run) => {
            state.open_run = Some(OpenRun { run_id: run.run_id.clone(), cause: run.cause.clone(), seq: entry.seq });
        }
        Body::Assistant(answer) => {
            state.unanswered.clear();
            state.open_calls.extend(answer.tool_calls.iter().map(|call| OpenCall {
                call_id: call.call_id.clone(),
                tool: call.tool.clone(),
                asked: Some(call.clone()),
                started: None,
            }));
        }
        // Some models number their calls anew in every answer: the first call of that id that fits is meant.
        Body::ToolStarted(start) => {
            match state.open_calls.iter_mut().find(|call| call.call_id == start.call_id && call.started.is_none()) {
                Some(call) => call.started = Some(entry.seq),
                None => state.open_calls.push(OpenCall {
                    call_id: start.call_id.clone(),
                    tool: start.tool.clone(),
                    asked: None,
                    started: Some(entry.seq),
                }),
            }
        }
        Body::ToolEnded(end) => {
            let is_started = |call: &OpenCall| call.call_id == end.call_id && call.started.is_some();
            let has_id = |call: &OpenCall| call.call_id == end.call_id;
            if let Some(at) = state.open_calls.iter().position(is_started).or_else(|| state.open_calls.iter().position(has_id)) {
                state.open_calls.remove(at);
            }
        }
        Body::RunEnded(end) => {
            if state.open_run.as_ref().is_some_and(|run| run.run_id == end.run_id) {
                state.open_run = None;
            }
        }
        Body::SessionStarted(_) | Body::RuntimeStarted(_) | Body::Notice(_) | Body::Unknown { .. } => {}
    }
    state
}

/// The sum of entries from the start of a log.
#[must_use]
pub fn fold<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> LogState {
    entries.into_iter().fold(LogState::default(), apply)
}

impl LogState {
    fn deliver(&mut self, id: &str, seq: u64) {
        self.delivered.insert(id.to_owned(), seq);
        self.unanswered.push(id.to_owned());
    }

    /// What a runtime that comes up appends, in one append, before anything else of its own: nothing that was under way when the last one
    /// died is under way any more. A call that had begun ends as [`ToolOutcome::Unknown`] and is not run again; one that had not begun ends
    /// as [`ToolOutcome::Refused`]; the run ends as [`RunOutcome::Interrupted`]. Empty after a clean end, and after itself.
    #[must_use]
    pub fn recovery(&self) -> Vec<Body> {
        let calls = self.open_calls.iter().map(|call| {
            let (outcome, output) = match call.started {
                Some(_) => (ToolOutcome::Unknown, "The runtime stopped while this tool ran. It may or may not have taken effect."),
                None => (ToolOutcome::Refused, "The runtime stopped before this tool began. It did not run."),
            };
            Body::ToolEnded(ToolEnded { call_id: call.call_id.clone(), outcome, output: output.to_owned(), millis: None })
        });
        let run = self.open_run.iter().map(|run| {
            Body::RunEnded(RunEnded {
                run_id: run.run_id.clone(),
                outcome: RunOutcome::Interrupted,
                message: Some("the runtime stopped in the middle of it".to_owned()),
            })
        });
        calls.chain(run).collect()
    }
}
