//! A conversation as a pure function of its events.
//!
//! [`apply`] takes a state and an event and returns the next state and the intent to carry out. There is at most one intent at a time, and
//! each ends with the event that its documentation names. Decisions use only the log and the events.

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

pub use projection::project;

/// What has happened to a conversation.
#[derive(Clone, Debug)]
pub enum ConversationEvent {
    /// An entry is in the log that no intent asked for: it was replayed, or is a notice.
    Recorded(Entry),
    /// The whole log was replayed.
    Started(StartInput),
    /// An entry of [`Intent::Append`] is durable.
    Logged(Entry),
    /// There may be messages in the inbox.
    InboxChanged,
    /// The messages that are in the inbox.
    InboxRead(Vec<InboxMessage>),
    /// The model answered.
    Answered(Assistant),
    /// The model gave no answer, after all retries.
    ModelFailed { message: String },
    /// Policy allows the next call.
    Allowed,
    /// Policy refuses the next call.
    Refused { output: String },
    /// The running call has ended.
    Ended { outcome: ToolOutcome, output: String, millis: u64 },
    /// The process was asked to stop.
    Stopping,
}

/// What a process knows when it starts, beside the log.
#[derive(Clone, Debug)]
pub struct StartInput {
    pub runtime: RuntimeStarted,
    pub task: Option<Task>,
    pub turns_per_run: u32,
    /// False when no model can be called: inputs are kept and no run starts.
    pub may_run: bool,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq)]
pub enum Intent {
    /// Append these to the log at once and remove messages among them from the inbox; then [`ConversationEvent::Logged`] for each.
    Append(Vec<Body>),
    /// Read the inbox; then [`ConversationEvent::InboxRead`].
    ReadInbox,
    /// Call the model with the projection of the log; then [`ConversationEvent::Answered`] or [`ConversationEvent::ModelFailed`].
    CallModel,
    /// Ask policy; then [`ConversationEvent::Allowed`] or [`ConversationEvent::Refused`].
    Check(ToolCall),
    /// Run the call, whose start is durable; then [`ConversationEvent::Ended`].
    Run(ToolCall),
    /// Wait for a message; then [`ConversationEvent::InboxChanged`].
    Wait,
    /// End: everything is in the log.
    Exit,
}

/// A conversation after the events so far.
#[derive(Clone, Debug, Default)]
pub struct ConversationState {
    pub log: yoi_session::LogState,
    entries: Vec<Entry>,
    /// The state of each task in the log, by its id.
    tasks: BTreeMap<String, TaskState>,
    /// Number of model calls in the open run.
    turns: u32,
    turns_per_run: u32,
    may_run: bool,
    stopping: bool,
    /// Entries of the running append that are not yet logged.
    appending: usize,
    /// The inbox was read since the last model call or wait.
    inbox_read: bool,
    /// A run has to start.
    run_due: bool,
    /// The model's last answer had no tool calls.
    final_answer: bool,
    /// Causes of a run that was interrupted, until the next run takes them over.
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
                    RunOutcome::Failed
                    | RunOutcome::LimitReached
                    | RunOutcome::Truncated
                    | RunOutcome::Cancelled
                    | RunOutcome::RolledBack => self.mark_tasks(&cause, TaskState::Failed),
                    // The task keeps its state: it goes on after the restart.
                    RunOutcome::Interrupted => self.interrupted = Some(cause),
                }
                self.inbox_read = false;
            }
            Body::SessionStarted(_)
            | Body::RuntimeStarted(_)
            | Body::ToolStarted(_)
            | Body::ToolEnded(_)
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

    /// Whether the open run can end.
    fn is_complete(&self) -> bool {
        self.final_answer && self.log.unanswered.is_empty() && self.log.open_calls.is_empty()
    }

    /// Entries that close the open run and its open calls.
    fn closing_entries(&self) -> Vec<Body> {
        let mut bodies = self.log.recovery();
        if self.is_complete() {
            for body in &mut bodies {
                // The last process died between the model's final answer and the entry that ends the run.
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
        // The id is unique, because no other entry has this sequence number.
        Body::RunStarted(RunStarted { run_id: format!("run-{}", self.log.last_seq + 1), cause })
    }

    fn run_ended(&self, outcome: RunOutcome, message: Option<String>) -> Option<Body> {
        let run_id = self.log.open_run.as_ref()?.run_id.clone();
        Some(Body::RunEnded(RunEnded { run_id, outcome, message, reason: None, by: None }))
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
            let asked = call.request.clone().unwrap_or_else(|| ToolCall {
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
        // Replayed inputs have set this. Only inputs without an answer count.
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
        // Messages with Wake::Wait are read by the next run that something else starts.
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
        let body = Body::ToolEnded(ToolEnded { call_id: call.call_id.clone(), outcome, output, images: Vec::new(), millis });
        self.append(vec![body])
    }
}

/// Sets the run's id to the sequence number of its entry, which may not be the first of its append.
fn with_run_seq(body: Body, seq: u64) -> Body {
    match body {
        Body::RunStarted(run) => Body::RunStarted(RunStarted { run_id: format!("run-{seq}"), ..run }),
        other => other,
    }
}

/// Returns the state after one more event, and at most one intent.
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
            // Both in one append: a restart between them would find a run that looks unfinished.
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
