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

pub use projection::{PromptItem, PromptToolResult, project};

#[derive(Clone, Debug)]
pub enum ConversationEvent {
    /// An entry that no intent asked for: replayed, or a notice.
    Recorded(Entry),
    /// All of the log was replayed.
    Started(StartInput),
    /// An entry of [`Intent::Append`] is durable.
    Logged(Entry),
    /// There may be something in the inbox.
    InboxChanged,
    /// What the inbox holds.
    InboxRead(Vec<InboxMessage>),
    Answered(Assistant),
    /// The model cannot be had, after all retries.
    ModelFailed {
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
pub struct StartInput {
    pub runtime: RuntimeStarted,
    pub task: Option<Task>,
    pub turns_per_run: u32,
    /// False when there is no way to call a model: inputs are kept and no run begins.
    pub may_run: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Intent {
    /// Put these into the log, in one append; then [`ConversationEvent::Logged`] for each. Messages among them are settled in the inbox.
    Append(Vec<Body>),
    /// Look into the inbox; then [`ConversationEvent::InboxRead`].
    ReadInbox,
    /// Call the model with the projection of the log; then [`ConversationEvent::Answered`] or [`ConversationEvent::ModelFailed`].
    CallModel,
    /// Ask policy; then [`ConversationEvent::Allowed`] or [`ConversationEvent::Refused`].
    Check(ToolCall),
    /// Run the call, whose start is durable; then [`ConversationEvent::Ended`].
    Run(ToolCall),
    /// Nothing to do until something comes; then [`ConversationEvent::InboxChanged`].
    Wait,
    /// All that had to be said is in the log.
    Exit,
}

#[derive(Clone, Debug, Default)]
pub struct ConversationState {
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
    inbox_read: bool,
    /// A run shall begin.
    run_due: bool,
    /// The model's last word asked for nothing more.
    final_answer: bool,
    /// Causes of a run that was interrupted and not taken up again.
    interrupted: Option<Vec<String>>,
}

impl ConversationState {
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
                self.final_answer = false;
                self.run_due |= self.log.open_run.is_none();
            }
            Body::PeerMessage(_) => {
                self.final_answer = false;
                self.run_due |= self.log.open_run.is_none();
            }
            Body::RunStarted(run) => {
                (self.turns, self.run_due, self.final_answer, self.interrupted) = (0, false, false, None);
                self.mark_tasks(&run.cause, TaskState::Running);
            }
            Body::Assistant(answer) => {
                self.turns += 1;
                self.inbox_read = false;
                self.final_answer = answer.tool_calls.is_empty();
            }
            Body::RunEnded(end) => {
                let cause = self.log.open_run.as_ref().map(|run| run.cause.clone()).unwrap_or_default();
                match end.outcome {
                    RunOutcome::Finished => self.mark_tasks(&cause, TaskState::Succeeded),
                    RunOutcome::Failed | RunOutcome::LimitReached => self.mark_tasks(&cause, TaskState::Failed),
                    // Neither: it goes on after the restart.
                    RunOutcome::Interrupted => self.interrupted = Some(cause),
                }
                self.inbox_read = false;
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
    fn is_complete(&self) -> bool {
        self.final_answer && self.log.unanswered.is_empty() && self.log.open_calls.is_empty()
    }

    /// What ends all that is under way.
    fn closing_entries(&self) -> Vec<Body> {
        let mut bodies = self.log.recovery();
        if self.is_complete() {
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
            return (self, vec![Intent::Wait]);
        }
        if self.log.open_run.is_none() {
            if self.run_due {
                let body = self.run_started([]);
                return self.append(vec![body]);
            }
            let intent = if self.inbox_read { Intent::Wait } else { Intent::ReadInbox };
            return (self, vec![intent]);
        }
        if let Some(call) = self.log.open_calls.first() {
            let asked = call.asked.clone().unwrap_or_else(|| ToolCall {
                call_id: call.call_id.clone(),
                tool: call.tool.clone(),
                args: serde_json::Value::Null,
            });
            let intent = if call.started.is_some() { Intent::Run(asked) } else { Intent::Check(asked) };
            return (self, vec![intent]);
        }
        let end = if self.is_complete() {
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
        let intent = if self.inbox_read { Intent::CallModel } else { Intent::ReadInbox };
        (self, vec![intent])
    }

    fn start(mut self, start: StartInput) -> (Self, Vec<Intent>) {
        let StartInput { runtime, task, turns_per_run, may_run } = start;
        (self.turns_per_run, self.may_run) = (turns_per_run, may_run);
        let mut bodies = self.closing_entries();
        // Set by the inputs of the past; what counts is what they still wait for.
        let interrupted = |body: &Body| matches!(body, Body::RunEnded(end) if end.outcome == RunOutcome::Interrupted);
        self.run_due = bodies.iter().any(interrupted) || self.interrupted.is_some() || !self.log.unanswered.is_empty();
        bodies.push(Body::RuntimeStarted(runtime));
        if let Some(task) = task.filter(|task| !self.log.delivered.contains_key(&task.id)) {
            bodies.push(Body::Input(Input { from: InputFrom::Task, message_id: task.id, user: None, text: task.text }));
        }
        self.append(bodies)
    }

    fn take_messages(mut self, messages: Vec<InboxMessage>) -> (Self, Vec<Intent>) {
        let new: Vec<InboxMessage> = messages.into_iter().filter(|message| !self.log.delivered.contains_key(&message.id)).collect();
        self.inbox_read = true;
        let idle = self.log.open_run.is_none();
        // Messages that do not wake wait for the run that something else begins.
        if new.is_empty() || (idle && new.iter().all(|message| message.wake == Wake::Wait)) {
            return self.decide();
        }
        let mut bodies: Vec<Body> = new.iter().map(InboxMessage::body).collect();
        if idle {
            let run = self.run_started(new.iter().map(|message| message.id.clone()));
            bodies.push(with_run_seq(run, self.log.last_seq + bodies.len() as u64 + 1));
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
fn with_run_seq(body: Body, seq: u64) -> Body {
    match body {
        Body::RunStarted(run) => Body::RunStarted(RunStarted { run_id: format!("run-{seq}"), ..run }),
        other => other,
    }
}

/// The state after one more event, and what to do now.
#[must_use]
pub fn apply(mut state: ConversationState, event: ConversationEvent) -> (ConversationState, Vec<Intent>) {
    match event {
        ConversationEvent::Recorded(entry) => (state.record(entry), Vec::new()),
        ConversationEvent::Logged(entry) => {
            state.appending = state.appending.saturating_sub(1);
            state.record(entry).decide()
        }
        ConversationEvent::Started(start) => state.start(start),
        ConversationEvent::InboxChanged => {
            state.inbox_read = false;
            state.decide()
        }
        ConversationEvent::InboxRead(messages) => state.take_messages(messages),
        ConversationEvent::Answered(answer) => {
            let last = answer.tool_calls.is_empty();
            let mut bodies = vec![Body::Assistant(answer)];
            // In one append: a restart between the two would find a run that looks unfinished.
            bodies.extend(if last { state.run_ended(RunOutcome::Finished, None) } else { None });
            state.append(bodies)
        }
        ConversationEvent::ModelFailed { message } => match state.run_ended(RunOutcome::Failed, Some(message)) {
            Some(end) => state.append(vec![end]),
            None => state.decide(),
        },
        ConversationEvent::Allowed => {
            let Some(call) = state.log.open_calls.first() else { return state.decide() };
            let body = Body::ToolStarted(ToolStarted { call_id: call.call_id.clone(), tool: call.tool.clone() });
            state.append(vec![body])
        }
        ConversationEvent::Refused { output } => state.end_call(ToolOutcome::Refused, output, None),
        ConversationEvent::Ended { outcome, output, millis } => state.end_call(outcome, output, Some(millis)),
        ConversationEvent::Stopping => {
            state.stopping = true;
            let bodies = state.closing_entries();
            if bodies.is_empty() { state.decide() } else { state.append(bodies) }
        }
    }
}

#[cfg(test)]
mod tests;
