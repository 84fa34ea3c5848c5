//! The state of a session as a pure function of its entries.

use std::collections::{BTreeMap, BTreeSet};

use yoi_wire::entry::{Body, Entry, InputFrom, RunEnded, RunOutcome, ToolCall, ToolEnded, ToolOutcome};

/// What a runtime has to know of its log before it goes on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LogState {
    /// Sequence number of the last entry; 0 before the first one.
    pub last_seq: u64,
    /// Run generation of the last entry; 0 before the first one.
    pub run_generation: u64,
    /// Ids of all inputs and messages in the log, each with the sequence number of its entry. A runtime takes none of them again.
    pub delivered: BTreeMap<String, u64>,
    /// Those of `delivered` that were tasks.
    pub tasks: BTreeSet<String>,
    /// Ids of the inputs and messages that no answer of the model has followed, oldest first. A runtime appends a message before the model
    /// call that reads it and never during one, so an answer has read all messages that stand before it.
    pub unanswered: Vec<String>,
    /// The run that has begun and not ended.
    pub open_run: Option<OpenRun>,
    /// Tool calls that the model asked for and that have not ended, in the order in which it asked.
    pub open_calls: Vec<OpenCall>,
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
                request: Some(call.clone()),
                started: None,
            }));
        }
        // Some models use the same ids in every answer, so the first call of that id that has not started is the one that starts.
        Body::ToolStarted(start) => {
            match state.open_calls.iter_mut().find(|call| call.call_id == start.call_id && call.started.is_none()) {
                Some(call) => call.started = Some(entry.seq),
                None => state.open_calls.push(OpenCall {
                    call_id: start.call_id.clone(),
                    tool: start.tool.clone(),
                    request: None,
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
        Body::SessionStarted(_)
        | Body::RuntimeStarted(_)
        | Body::Notice(_)
        | Body::SegmentStarted(_)
        | Body::Carried(_)
        | Body::ConfigChanged(_)
        | Body::SystemItem(_)
        | Body::Paused(_)
        | Body::Resumed(_)
        | Body::Abandoned(_)
        | Body::RolledBack(_)
        | Body::Rewound(_)
        | Body::Usage(_)
        | Body::CompactionStarted(_)
        | Body::CompactionEnded(_)
        | Body::Extension(_)
        | Body::Unknown { .. } => {}
    }
    state
}

/// Returns the state after these entries, which begin at the start of a log.
#[must_use]
pub fn fold<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> LogState {
    entries.into_iter().fold(LogState::default(), apply)
}

impl LogState {
    fn deliver(&mut self, id: &str, seq: u64) {
        self.delivered.insert(id.to_owned(), seq);
        self.unanswered.push(id.to_owned());
    }

    /// Returns the entries that a starting runtime appends, in one append, before any others of its own. They end what was under way when
    /// the last runtime died: a call that had begun ends as [`ToolOutcome::Unknown`] and is not run again, a call that had not begun ends as
    /// [`ToolOutcome::Refused`], and the run ends as [`RunOutcome::Interrupted`].
    ///
    /// The result is empty after a clean end, and once these entries are in the log.
    #[must_use]
    pub fn recovery(&self) -> Vec<Body> {
        let calls = self.open_calls.iter().map(|call| {
            let (outcome, output) = match call.started {
                Some(_) => (ToolOutcome::Unknown, "The runtime stopped while this tool ran. It may or may not have taken effect."),
                None => (ToolOutcome::Refused, "The runtime stopped before this tool began. It did not run."),
            };
            Body::ToolEnded(ToolEnded {
                call_id: call.call_id.clone(),
                outcome,
                output: output.to_owned(),
                images: Vec::new(),
                millis: None,
            })
        });
        let run = self.open_run.iter().map(|run| {
            Body::RunEnded(RunEnded {
                run_id: run.run_id.clone(),
                outcome: RunOutcome::Interrupted,
                reason: None,
                message: Some("the runtime stopped in the middle of it".to_owned()),
                by: None,
            })
        });
        calls.chain(run).collect()
    }
}
