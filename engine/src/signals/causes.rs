//! What events follow from, as far as the segment says it. All of it is bounded by what is open: a run, its calls, and messages that wait.

use std::collections::BTreeMap;

use yoi_wire::entry::{Carried, RunStarted};

/// A call that has not ended.
#[derive(Debug)]
struct OpenCall {
    call_id: String,
    tool: String,
    /// The event that asked for it.
    requested: Option<String>,
    /// The event of its start.
    started: Option<String>,
    /// No model asked for it, so it is none of the run's.
    is_apart: bool,
}

/// The events that later ones may follow from.
#[derive(Debug, Default)]
pub(super) struct Causes {
    session: String,
    /// Id of the run under way, and the event that opened it.
    run: Option<(String, String)>,
    /// Messages that no answer has followed.
    inputs: BTreeMap<String, String>,
    calls: Vec<OpenCall>,
    compaction: Option<String>,
    /// Timeouts since the segment began, by tool.
    timeouts: BTreeMap<String, u32>,
}

impl Causes {
    pub fn new(session: &str) -> Self {
        Self { session: session.to_owned(), ..Self::default() }
    }

    /// The id of the main event of an entry.
    pub fn id(&self, seq: u64) -> String {
        format!("{}/{seq}", self.session)
    }

    pub fn run_id(&self) -> Option<String> {
        self.run.as_ref().map(|(run_id, _)| run_id.clone())
    }

    pub fn run(&self) -> Option<String> {
        self.run.as_ref().map(|(_, event)| event.clone())
    }

    pub fn add_input(&mut self, message_id: &str, seq: u64) {
        self.inputs.insert(message_id.to_owned(), self.id(seq));
    }

    pub fn clear_inputs(&mut self) {
        self.inputs.clear();
    }

    /// Returns the first message that it began with, if the segment has it.
    pub fn open_run(&mut self, run: &RunStarted, seq: u64) -> Option<String> {
        self.run = Some((run.run_id.clone(), self.id(seq)));
        run.cause.iter().find_map(|message| self.inputs.get(message)).cloned()
    }

    pub fn close_run(&mut self) -> Option<String> {
        self.calls.retain(|call| call.is_apart);
        self.run.take().map(|(_, event)| event)
    }

    pub fn add_call(&mut self, call_id: &str, tool: &str, event: String) {
        self.calls.push(OpenCall {
            call_id: call_id.to_owned(),
            tool: tool.to_owned(),
            requested: Some(event),
            started: None,
            is_apart: false,
        });
    }

    pub fn add_requested(&mut self, call_id: &str, tool: &str, event: String) {
        self.calls.push(OpenCall {
            call_id: call_id.to_owned(),
            tool: tool.to_owned(),
            requested: Some(event),
            started: None,
            is_apart: true,
        });
    }

    /// The event that asked for a call. Some models use an id again: the first one that has not begun is meant, as in the fold of the log.
    pub fn of_call(&self, call_id: &str) -> Option<String> {
        let call = self.calls.iter().find(|call| call.call_id == call_id && call.started.is_none());
        call.and_then(|call| call.requested.clone()).or_else(|| self.run().filter(|_| !self.is_apart(call_id)))
    }

    /// The event by which a call has begun, if it is open.
    pub fn of_started_call(&self, call_id: &str) -> Option<String> {
        self.calls.iter().find(|call| call.call_id == call_id)?.started.clone()
    }

    /// Whether no model asked for the call, so that it is none of the run's.
    pub fn is_apart(&self, call_id: &str) -> bool {
        self.calls.iter().any(|call| call.call_id == call_id && call.is_apart)
    }

    pub fn start_call(&mut self, call_id: &str, tool: &str, seq: u64) -> Option<String> {
        let cause = self.of_call(call_id);
        let started = Some(self.id(seq));
        match self.calls.iter_mut().find(|call| call.call_id == call_id && call.started.is_none()) {
            Some(call) => call.started = started,
            None => {
                self.calls.push(OpenCall { call_id: call_id.to_owned(), tool: tool.to_owned(), requested: None, started, is_apart: false })
            }
        }
        cause
    }

    /// Counts a timeout of the call, which has not ended yet: its tool, and which timeout of that it is since the segment began.
    pub fn count_timeout(&mut self, call_id: &str) -> Option<(String, u32)> {
        let tool = self.calls.iter().find(|call| call.call_id == call_id && call.started.is_some())?.tool.clone();
        let count = self.timeouts.entry(tool.clone()).or_default();
        *count += 1;
        Some((tool, *count))
    }

    /// Returns the event of its start, or the one that asked for it.
    pub fn end_call(&mut self, call_id: &str) -> Option<String> {
        let started = self.calls.iter().position(|call| call.call_id == call_id && call.started.is_some());
        let at = started.or_else(|| self.calls.iter().position(|call| call.call_id == call_id));
        let run = self.run().filter(|_| !self.is_apart(call_id));
        let call = at.map(|at| self.calls.remove(at));
        call.and_then(|call| call.started.or(call.requested)).or(run)
    }

    pub fn begin_compaction(&mut self, seq: u64) {
        self.compaction = Some(self.id(seq));
    }

    pub fn end_compaction(&mut self) -> Option<String> {
        self.compaction.take()
    }

    /// What the head of a segment carries of those before.
    pub fn restore(&mut self, carried: &Carried) {
        let mut calls = Vec::new();
        if let Some(state) = &carried.state {
            self.run = state.open_run.as_ref().map(|run| (run.run_id.clone(), self.id(run.seq)));
            let waiting = state.unanswered.iter().filter_map(|id| Some((id.clone(), self.id(*state.delivered.get(id)?))));
            self.inputs = waiting.collect();
            calls.extend(state.open_calls.iter().map(|call| (call, false)));
            calls.extend(state.requested.iter().map(|requested| (&requested.call, true)));
        }
        if let Some(more) = &carried.more {
            calls.extend(more.open_calls.iter().map(|call| (call, false)));
        }
        let open = |(call, is_apart): (&yoi_wire::entry::CarriedCall, bool)| {
            let started = call.started.map(|seq| format!("{}/{seq}", self.session));
            OpenCall { call_id: call.call.call_id.clone(), tool: call.call.tool.clone(), requested: None, started, is_apart }
        };
        let restored: Vec<OpenCall> = calls.into_iter().map(open).collect();
        self.calls.extend(restored);
    }
}
