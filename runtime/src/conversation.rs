//! A conversation as a pure function of what happened to it.
//!
//! [`apply`] takes a state and an event and gives the next state and what to do now. There is one intent under way at a time, and each ends
//! in the event that its documentation names; nothing is decided from anything that is not in the log or in an event.

use std::collections::BTreeMap;

use yoi_session::fold;
use yoi_session::inbox::{InboxMessage, Wake};
use yoi_wire::entry::{
    Assistant, Body, Entry, Input, InputFrom, RunEnded, RunOutcome, RunStarted, RuntimeStarted, ToolCall, ToolEnded, ToolOutcome,
    ToolStarted,
};
use yoi_wire::hub::{Activity, TaskState};
use yoi_wire::manifest::Task;

mod projection;

pub use projection::{Item, ToolResult, project};

#[derive(Clone, Debug)]
pub enum Event {
    /// An entry that no intent asked for: replayed, or a notice.
    Recorded(Entry),
    /// All of the log was replayed.
    Started(Start),
    /// An entry of [`Intent::Append`] is durable.
    Logged(Entry),
    /// There may be something in the inbox.
    Woken,
    /// What the inbox holds.
    Drained(Vec<InboxMessage>),
    Answered(Assistant),
    /// The model cannot be had, after all retries.
    GaveUp {
        message: String,
    },
    /// Policy lets the call begin.
    Allowed,
    /// Policy does not.
    Refused {
        output: String,
    },
    /// The call that began has ended.
    Ended {
        outcome: ToolOutcome,
        output: String,
        millis: u64,
    },
    /// The process shall end.
    Stopping,
}

#[derive(Clone, Debug)]
pub struct Start {
    pub runtime: RuntimeStarted,
    pub task: Option<Task>,
    pub turns_per_run: u32,
    /// False when there is no way to call a model: inputs are kept and no run begins.
    pub may_run: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Intent {
    /// Put these into the log, in one append; then [`Event::Logged`] for each. Messages among them are settled in the inbox.
    Append(Vec<Body>),
    /// Look into the inbox; then [`Event::Drained`].
    Drain,
    /// Call the model with the projection of the log; then [`Event::Answered`] or [`Event::GaveUp`].
    CallModel,
    /// Ask policy; then [`Event::Allowed`] or [`Event::Refused`].
    Check(ToolCall),
    /// Run the call, whose start is durable; then [`Event::Ended`].
    Run(ToolCall),
    /// Nothing to do until something comes; then [`Event::Woken`].
    Rest,
    /// All that had to be said is in the log.
    Exit,
}

#[derive(Clone, Debug, Default)]
pub struct State {
    pub log: yoi_session::LogState,
    entries: Vec<Entry>,
    /// What became of each task in the log.
    tasks: BTreeMap<String, TaskState>,
    /// Model calls of the open run.
    turns: u32,
    turns_per_run: u32,
    may_run: bool,
    stopping: bool,
    /// Entries of the append that is under way.
    appending: usize,
    /// The inbox was emptied since the last model call, or since the last rest.
    drained: bool,
    /// A run shall begin.
    due: bool,
    /// The model's last word asked for nothing more.
    answered: bool,
    /// Causes of a run that was interrupted and not taken up again.
    interrupted: Option<Vec<String>>,
}

impl State {
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    #[must_use]
    pub fn task(&self, id: &str) -> Option<TaskState> {
        self.tasks.get(id).copied()
    }

    #[must_use]
    pub fn activity(&self) -> Activity {
        if self.log.open_run.is_some() { Activity::Running } else { Activity::Idle }
    }

    fn record(mut self, entry: Entry) -> Self {
        match &entry.body {
            Body::Input(input) => {
                if input.from == InputFrom::Task {
                    self.tasks.insert(input.message_id.clone(), TaskState::Submitted);
                }
                self.answered = false;
                self.due |= self.log.open_run.is_none();
            }
            Body::PeerMessage(_) => {
                self.answered = false;
                self.due |= self.log.open_run.is_none();
            }
            Body::RunStarted(run) => {
                (self.turns, self.due, self.answered, self.interrupted) = (0, false, false, None);
                self.mark_tasks(&run.cause, TaskState::Running);
            }
            Body::Assistant(answer) => {
                self.turns += 1;
                self.drained = false;
                self.answered = answer.tool_calls.is_empty();
            }
            Body::RunEnded(end) => {
                let cause = self.log.open_run.as_ref().map(|run| run.cause.clone()).unwrap_or_default();
                match end.outcome {
                    RunOutcome::Finished => self.mark_tasks(&cause, TaskState::Succeeded),
                    RunOutcome::Failed | RunOutcome::LimitReached => self.mark_tasks(&cause, TaskState::Failed),
                    // Neither: it goes on after the restart.
                    RunOutcome::Interrupted => self.interrupted = Some(cause),
                }
                self.drained = false;
            }
            Body::SessionStarted(_)
            | Body::RuntimeStarted(_)
            | Body::ToolStarted(_)
            | Body::ToolEnded(_)
            | Body::Notice(_)
            | Body::Unknown { .. } => {}
        }
        self.log = fold::apply(self.log, &entry);
        self.entries.push(entry);
        self
    }

    fn mark_tasks(&mut self, ids: &[String], state: TaskState) {
        for id in ids {
            if let Some(task) = self.tasks.get_mut(id) {
                *task = state;
            }
        }
    }

    /// Whether the open run has nothing left to do but to end.
    fn complete(&self) -> bool {
        self.answered && self.log.unanswered.is_empty() && self.log.open_calls.is_empty()
    }

    /// What ends all that is under way.
    fn closing(&self) -> Vec<Body> {
        let mut bodies = self.log.recovery();
        if self.complete() {
            for body in &mut bodies {
                // The last one died between the model's last word and the entry that says that it was the last.
                if let Body::RunEnded(end) = body {
                    (end.outcome, end.message) = (RunOutcome::Finished, None);
                }
            }
        }
        bodies
    }

    fn run_started(&self, more: impl IntoIterator<Item = String>) -> Body {
        let mut cause: Vec<String> = Vec::new();
        for id in self.interrupted.clone().unwrap_or_default().into_iter().chain(self.log.unanswered.iter().cloned()).chain(more) {
            if !cause.contains(&id) {
                cause.push(id);
            }
        }
        // No other entry has this number, so no other run has this id.
        Body::RunStarted(RunStarted { run_id: format!("run-{}", self.log.last_seq + 1), cause })
    }

    fn run_ended(&self, outcome: RunOutcome, message: Option<String>) -> Option<Body> {
        let run_id = self.log.open_run.as_ref()?.run_id.clone();
        Some(Body::RunEnded(RunEnded { run_id, outcome, message }))
    }

    fn append(mut self, bodies: Vec<Body>) -> (Self, Vec<Intent>) {
        self.appending = bodies.len();
        (self, vec![Intent::Append(bodies)])
    }

    fn decide(self) -> (Self, Vec<Intent>) {
        if self.appending > 0 {
            return (self, Vec::new());
        }
        if self.stopping {
            return (self, vec![Intent::Exit]);
        }
        if !self.may_run {
            return (self, vec![Intent::Rest]);
        }
        if self.log.open_run.is_none() {
            if self.due {
                let body = self.run_started([]);
                return self.append(vec![body]);
            }
            let intent = if self.drained { Intent::Rest } else { Intent::Drain };
            return (self, vec![intent]);
        }
        if let Some(call) = self.log.open_calls.first() {
            let asked = call.request.clone().unwrap_or_else(|| ToolCall {
                call_id: call.call_id.clone(),
                tool: call.tool.clone(),
                args: serde_json::Value::Null,
            });
            let intent = if call.started.is_some() { Intent::Run(asked) } else { Intent::Check(asked) };
            return (self, vec![intent]);
        }
        let end = if self.complete() {
            self.run_ended(RunOutcome::Finished, None)
        } else if self.turns >= self.turns_per_run {
            self.run_ended(
                RunOutcome::LimitReached,
                Some(format!("the limit of {} model calls in one run was reached", self.turns_per_run)),
            )
        } else {
            None
        };
        if let Some(end) = end {
            return self.append(vec![end]);
        }
        let intent = if self.drained { Intent::CallModel } else { Intent::Drain };
        (self, vec![intent])
    }

    fn start(mut self, start: Start) -> (Self, Vec<Intent>) {
        let Start { runtime, task, turns_per_run, may_run } = start;
        (self.turns_per_run, self.may_run) = (turns_per_run, may_run);
        let mut bodies = self.closing();
        // Set by the inputs of the past; what counts is what they still wait for.
        let goes_on = |body: &Body| matches!(body, Body::RunEnded(end) if end.outcome == RunOutcome::Interrupted);
        self.due = bodies.iter().any(goes_on) || self.interrupted.is_some() || !self.log.unanswered.is_empty();
        bodies.push(Body::RuntimeStarted(runtime));
        if let Some(task) = task.filter(|task| !self.log.delivered.contains_key(&task.id)) {
            bodies.push(Body::Input(Input { from: InputFrom::Task, message_id: task.id, user: None, text: task.text }));
        }
        self.append(bodies)
    }

    fn take(mut self, messages: Vec<InboxMessage>) -> (Self, Vec<Intent>) {
        let new: Vec<InboxMessage> = messages.into_iter().filter(|message| !self.log.delivered.contains_key(&message.id)).collect();
        self.drained = true;
        let idle = self.log.open_run.is_none();
        // Messages that do not wake wait for the run that something else begins.
        if new.is_empty() || (idle && new.iter().all(|message| message.wake == Wake::Wait)) {
            return self.decide();
        }
        let mut bodies: Vec<Body> = new.iter().map(InboxMessage::body).collect();
        if idle {
            let run = self.run_started(new.iter().map(|message| message.id.clone()));
            bodies.push(shifted(run, self.log.last_seq + bodies.len() as u64 + 1));
        }
        self.append(bodies)
    }

    fn end_call(self, outcome: ToolOutcome, output: String, millis: Option<u64>) -> (Self, Vec<Intent>) {
        let Some(call) = self.log.open_calls.first() else { return self.decide() };
        let body = Body::ToolEnded(ToolEnded { call_id: call.call_id.clone(), outcome, output, millis });
        self.append(vec![body])
    }
}

/// A run's id is the number of its own entry, also when it is not the first of its append.
fn shifted(body: Body, seq: u64) -> Body {
    match body {
        Body::RunStarted(run) => Body::RunStarted(RunStarted { run_id: format!("run-{seq}"), ..run }),
        other => other,
    }
}

/// The state after one more event, and what to do now.
#[must_use]
pub fn apply(mut state: State, event: Event) -> (State, Vec<Intent>) {
    match event {
        Event::Recorded(entry) => (state.record(entry), Vec::new()),
        Event::Logged(entry) => {
            state.appending = state.appending.saturating_sub(1);
            state.record(entry).decide()
        }
        Event::Started(start) => state.start(start),
        Event::Woken => {
            state.drained = false;
            state.decide()
        }
        Event::Drained(messages) => state.take(messages),
        Event::Answered(answer) => {
            let last = answer.tool_calls.is_empty();
            let mut bodies = vec![Body::Assistant(answer)];
            // In one append: a restart between the two would find a run that looks unfinished.
            bodies.extend(if last { state.run_ended(RunOutcome::Finished, None) } else { None });
            state.append(bodies)
        }
        Event::GaveUp { message } => match state.run_ended(RunOutcome::Failed, Some(message)) {
            Some(end) => state.append(vec![end]),
            None => state.decide(),
        },
        Event::Allowed => {
            let Some(call) = state.log.open_calls.first() else { return state.decide() };
            let body = Body::ToolStarted(ToolStarted { call_id: call.call_id.clone(), tool: call.tool.clone() });
            state.append(vec![body])
        }
        Event::Refused { output } => state.end_call(ToolOutcome::Refused, output, None),
        Event::Ended { outcome, output, millis } => state.end_call(outcome, output, Some(millis)),
        Event::Stopping => {
            state.stopping = true;
            let bodies = state.closing();
            if bodies.is_empty() { state.decide() } else { state.append(bodies) }
        }
    }
}

#[cfg(test)]
mod tests;
