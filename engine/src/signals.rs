//! Signals of an agent: the entries of its log as CloudEvents.
//!
//! # Guarantees
//! What an entry becomes follows from it and from the entries before it in its segment, and a segment carries what it needs of those before. So whoever
//! begins anywhere gets the same events, with the same ids and causes. Ids come from the log: session and sequence number.

use std::time::SystemTime;

use serde_json::{Value, json};
use yoi_session::{StoredEntry, Token, rfc3339_millis};
use yoi_wire::control::{Delta, DeltaKind};
use yoi_wire::entry::{
    AgentRef, Assistant, Body, CallDecision, CompactionOutcome, Entry, Extension, RefusalClass, RunEnded, RunOutcome, ToolEnded,
    ToolOutcome,
};
use yoi_wire::signal::{CloudEvent, DATA_TYPE, DELTA_TYPE, SPEC_VERSION};
use yoi_wire::ssh;

mod causes;
mod cursor;
mod stream;
#[cfg(test)]
mod tests;

pub use cursor::Cursor;
pub use stream::{EventStream, EventsFrom};

use crate::assets::signal_of;
use crate::bounded_json::cut;
use crate::conversation::{QUEUE_OVERFLOW, STOPPED};
use crate::policy::EXCEPTION;
use crate::subagents;
use causes::Causes;

/// Reasons of a run's end that are about its model. Without a reason no endpoint could be reached.
const MODEL_FAILURES: [&str; 6] = ["ContentFilter", "ContextFull", "EmptyAnswer", "ModelRefusedHistory", "Refused", "WrittenCall"];
/// Timeouts of one tool after which they are told of, each time again.
const REPEATED_TIMEOUTS: u32 = 3;

/// Makes the events of one conversation.
#[derive(Debug)]
pub struct Signals {
    source: String,
    session: String,
    conversation: String,
    is_main: bool,
    /// Where the last entry ended.
    before: Token,
    causes: Causes,
}

/// An event, as far as its entry alone says it.
struct Draft {
    kind: &'static str,
    cause: Option<String>,
    data: Value,
    /// Its id is that of the entry: each entry has one such event at most.
    is_main: bool,
}

impl Draft {
    fn main(kind: &'static str, cause: Option<String>, data: Value) -> Self {
        Self { kind, cause, data, is_main: true }
    }

    fn beside(kind: &'static str, cause: Option<String>, data: Value) -> Self {
        Self { kind, cause, data, is_main: false }
    }
}

impl Signals {
    /// Those of a conversation of this agent, from the start of a segment on, which is where `before` ends.
    #[must_use]
    pub fn new(agent: &AgentRef, session: &str, conversation: &str, before: Token) -> Self {
        Self {
            source: format!("/namespaces/{}/yoipods/{}", agent.namespace, agent.name),
            session: session.to_owned(),
            conversation: conversation.to_owned(),
            is_main: conversation == yoi_wire::conversation::MAIN,
            before,
            causes: Causes::new(session),
        }
    }

    /// The events of the next entry, in their order. Some entries have none.
    pub fn take(&mut self, stored: &StoredEntry) -> Vec<CloudEvent> {
        let StoredEntry { entry, token } = stored;
        let run_before = self.causes.run_id();
        let was_apart = call_of(&entry.body).is_some_and(|call_id| self.causes.is_apart(call_id));
        let drafts = self.drafts(entry);
        let is_apart = was_apart || matches!(entry.body, Body::ToolRequested(_));
        let run = self.causes.run_id().or(run_before).filter(|_| !is_apart);
        let before = std::mem::replace(&mut self.before, *token);
        let last = drafts.len();
        let event = |(place, draft): (usize, Draft)| {
            let Draft { kind, cause, data, is_main } = draft;
            let of_entry = self.causes.id(entry.seq);
            let taken = place + 1;
            let cursor = if taken == last { Cursor { token: *token, taken: 0 } } else { Cursor { token: before, taken } };
            CloudEvent {
                specversion: SPEC_VERSION.to_owned(),
                id: if is_main { of_entry } else { format!("{of_entry}/{taken}") },
                source: self.source.clone(),
                kind: kind.to_owned(),
                subject: self.conversation.clone(),
                time: entry.at.clone(),
                datacontenttype: DATA_TYPE.to_owned(),
                data: cut(data),
                session: self.session.clone(),
                causeid: cause,
                runid: run.clone(),
                cursor: cursor.to_string(),
            }
        };
        drafts.into_iter().enumerate().map(event).collect()
    }

    /// The event of a piece of an answer that is not in the log yet; `None`: it is of something else.
    pub(crate) fn delta(&self, delta: &Delta) -> Option<CloudEvent> {
        let data = match delta.kind {
            DeltaKind::Text => json!({"block": delta.block, "offset": delta.offset, "text": delta.text}),
            DeltaKind::Discarded => json!({"block": delta.block, "discarded": true}),
            DeltaKind::Reasoning | DeltaKind::ToolCall | DeltaKind::ToolOutput | DeltaKind::Unknown => return None,
        };
        Some(CloudEvent {
            specversion: SPEC_VERSION.to_owned(),
            id: format!("{}/live/{}/{}", self.session, delta.block, delta.offset),
            source: self.source.clone(),
            kind: DELTA_TYPE.to_owned(),
            subject: self.conversation.clone(),
            time: rfc3339_millis(SystemTime::now()),
            datacontenttype: DATA_TYPE.to_owned(),
            data,
            session: self.session.clone(),
            causeid: self.causes.run(),
            runid: self.causes.run_id(),
            cursor: Cursor { token: self.before, taken: 0 }.to_string(),
        })
    }

    fn drafts(&mut self, entry: &Entry) -> Vec<Draft> {
        let one = |kind, cause, data| vec![Draft::main(kind, cause, data)];
        let of_run = self.causes.run();
        match &entry.body {
            Body::SessionStarted(started) => one("conversation.started", None, json!(started)),
            // Each conversation notes the start of the process.
            Body::RuntimeStarted(started) if self.is_main => one("project.started", None, json!(started)),
            Body::RuntimeStarted(_) => Vec::new(),
            Body::Input(input) => {
                self.causes.add_input(&input.message_id, entry.seq);
                one("conversation.user.message", None, json!(input))
            }
            Body::PeerMessage(message) => {
                self.causes.add_input(&message.message_id, entry.seq);
                one("conversation.peer.message", None, json!(message))
            }
            Body::RunStarted(run) => one("conversation.run.opened", self.causes.open_run(run, entry.seq), json!(run)),
            Body::Assistant(answer) => self.answer(answer, entry.seq, of_run),
            Body::ToolRequested(requested) => {
                let event = self.causes.id(entry.seq);
                self.causes.add_requested(&requested.call_id, &requested.tool, event);
                one("conversation.tool.requested", None, json!(requested))
            }
            Body::ToolAsked(asked) => one("policy.asked", self.causes.of_call(&asked.call_id), json!(asked)),
            Body::ToolAnswered(answered) => one("policy.answered", Some(self.causes.id(answered.asked)), json!(answered)),
            Body::ToolStarted(start) => {
                let cause = self.causes.start_call(&start.call_id, &start.tool, entry.seq);
                let allowed = start
                    .decision
                    .as_ref()
                    .map(|decision| Draft::beside("policy.allowed", cause.clone(), decided(&start.call_id, Some(&start.tool), decision)));
                let started = Draft::main("conversation.execution.started", cause, json!({"callId": start.call_id, "tool": start.tool}));
                allowed.into_iter().chain([started]).collect()
            }
            Body::ToolEnded(end) => self.tool_end(end),
            Body::RunEnded(end) => {
                let cause = self.causes.close_run();
                let closed = Draft::main("conversation.run.closed", cause.clone(), json!(end));
                let failed = is_failure_of_model(end).then(|| Draft::beside("conversation.llm.failed", cause, json!(end)));
                failed.into_iter().chain([closed]).collect()
            }
            Body::Paused(paused) => one("conversation.run.interrupted", of_run, json!(paused)),
            Body::Resumed(resumed) => one("conversation.run.resumed", of_run, json!(resumed)),
            Body::Abandoned(abandoned) => one("conversation.cancel", of_run, json!(abandoned)),
            Body::RolledBack(rolled_back) => one("conversation.rolled_back", of_run, json!(rolled_back)),
            Body::Rewound(rewound) => one("conversation.rewound", Some(self.causes.id(rewound.from_seq)), json!(rewound)),
            Body::Usage(usage) => one("conversation.llm.usage", of_run, json!(usage)),
            Body::Notice(notice) => one("conversation.execution.degraded", of_run, json!(notice)),
            Body::ModeSwitched(switched) => one("conversation.mode.switch.accepted", None, json!(switched)),
            Body::ConfigChanged(changed) => one(
                "conversation.config.changed",
                None,
                json!({"manifestDigest": changed.config.manifest_digest, "model": changed.config.model}),
            ),
            Body::CompactionStarted(started) => {
                self.causes.begin_compaction(entry.seq);
                one("conversation.compaction.started", None, json!(started))
            }
            Body::CompactionEnded(end) => {
                let kind = match end.outcome {
                    CompactionOutcome::Used => "conversation.compaction.completed",
                    CompactionOutcome::Rejected | CompactionOutcome::Failed => "conversation.compaction.failed",
                };
                one(kind, self.causes.end_compaction(), json!(end))
            }
            Body::SegmentStarted(_) => {
                self.causes = Causes::new(&self.session);
                Vec::new()
            }
            Body::Carried(carried) => {
                self.causes.restore(carried);
                Vec::new()
            }
            Body::Extension(Extension { name, data }) if name == QUEUE_OVERFLOW => one("conversation.queue.overflow", None, data.clone()),
            Body::Extension(Extension { name, data }) if name == EXCEPTION => {
                let call = data.get("callId").and_then(Value::as_str).unwrap_or_default();
                one("security.sandbox_exception_used", self.causes.of_started_call(call), data.clone())
            }
            Body::Extension(Extension { name, data }) if name == STOPPED => one("project.stopped", None, data.clone()),
            Body::Extension(Extension { name, data }) if name == ssh::EXTENSION => {
                let kind = if data.get("ended").is_some() { "project.ssh.closed" } else { "project.ssh.opened" };
                one(kind, None, data.clone())
            }
            Body::Extension(extension) => match (signal_of(extension).filter(|_| self.is_main), subagents::signal_of(extension)) {
                (Some(kind), _) => one(kind, None, extension.data.clone()),
                (None, Some((kind, change))) => one(kind, of_run, change),
                // What a later version or a program adds is in the log.
                (None, None) => Vec::new(),
            },
            Body::SystemItem(_) | Body::Unknown { .. } => Vec::new(),
        }
    }

    /// The answer, its text and its calls.
    fn answer(&mut self, answer: &Assistant, seq: u64, of_run: Option<String>) -> Vec<Draft> {
        let Assistant { text, tool_calls, usage, stop, api, model, parts: _ } = answer;
        let id = self.causes.id(seq);
        let data = json!({"usage": usage, "stop": stop, "api": api, "model": model, "toolCalls": tool_calls.len()});
        let mut drafts = vec![Draft::main("conversation.llm.completed", of_run, data)];
        if !text.is_empty() {
            drafts.push(Draft::beside("conversation.assistant.message", Some(id.clone()), json!({"text": text})));
        }
        self.causes.clear_inputs();
        for call in tool_calls {
            drafts.push(Draft::beside("conversation.tool.requested", Some(id.clone()), json!(call)));
            self.causes.add_call(&call.call_id, &call.tool, format!("{id}/{}", drafts.len()));
        }
        drafts
    }

    fn tool_end(&mut self, end: &ToolEnded) -> Vec<Draft> {
        let ToolEnded { call_id, outcome, output, images, millis, decision, read: _ } = end;
        let timeout = (*outcome == ToolOutcome::TimedOut).then(|| self.causes.count_timeout(call_id)).flatten();
        let cause = self.causes.end_call(call_id);
        let mut drafts = Vec::new();
        if let Some((decision, class)) = decision.as_ref().and_then(|decision| Some((decision, decision.refused?))) {
            let data = decided(call_id, None, decision);
            if let Some(kind) = security(class) {
                drafts.push(Draft::beside(kind, cause.clone(), data.clone()));
            }
            if is_of_policy(class) {
                drafts.push(Draft::beside("policy.denied", cause.clone(), data));
            }
        }
        let kind = match outcome {
            ToolOutcome::Succeeded => "conversation.tool.completed",
            ToolOutcome::Failed | ToolOutcome::Refused | ToolOutcome::Unknown => "conversation.tool.failed",
            ToolOutcome::TimedOut => {
                drafts.push(Draft::beside("conversation.tool.timeout", cause.clone(), json!({"callId": call_id, "millis": millis})));
                if let Some((tool, timeouts)) = timeout.filter(|(_, timeouts)| timeouts.is_multiple_of(REPEATED_TIMEOUTS)) {
                    let data = json!({"callId": call_id, "tool": tool, "timeouts": timeouts});
                    drafts.push(Draft::beside("security.repeated_timeout_failures", cause.clone(), data));
                }
                "conversation.tool.failed"
            }
        };
        let data = json!({"callId": call_id, "outcome": outcome, "output": output, "images": images.len(), "millis": millis});
        drafts.push(Draft::main(kind, cause, data));
        drafts
    }
}

/// Whether a run has ended because its model gave no answer that could be used, or had no more steps.
fn is_failure_of_model(end: &RunEnded) -> bool {
    match end.outcome {
        RunOutcome::Failed => end.reason.as_deref().is_none_or(|reason| MODEL_FAILURES.contains(&reason)),
        RunOutcome::LimitReached | RunOutcome::Truncated => true,
        RunOutcome::Finished | RunOutcome::Interrupted | RunOutcome::Cancelled | RunOutcome::RolledBack => false,
    }
}

/// The id of the call that an entry is about.
fn call_of(body: &Body) -> Option<&str> {
    match body {
        Body::ToolAsked(asked) => Some(&asked.call_id),
        Body::ToolAnswered(answered) => Some(&answered.call_id),
        Body::ToolStarted(start) => Some(&start.call_id),
        Body::ToolEnded(end) => Some(&end.call_id),
        _ => None,
    }
}

fn decided(call_id: &str, tool: Option<&str>, decision: &CallDecision) -> Value {
    let CallDecision { from, refused, rule } = decision;
    let mut data = json!({"callId": call_id, "from": from});
    for (name, value) in
        [("tool", tool.map(Value::from)), ("class", refused.map(|class| json!(class))), ("rule", rule.clone().map(Value::from))]
    {
        if let (Some(value), Some(fields)) = (value, data.as_object_mut()) {
            fields.insert(name.to_owned(), value);
        }
    }
    data
}

/// What a refusal is called beside the decision of the policy.
fn security(class: RefusalClass) -> Option<&'static str> {
    match class {
        RefusalClass::SandboxViolation => Some("security.sandbox_violation"),
        RefusalClass::SensitivePathDenied => Some("security.sensitive_path_denied"),
        RefusalClass::NetworkDenied => Some("security.network_denied"),
        RefusalClass::EnvDenied => Some("security.env_denied"),
        RefusalClass::SubagentDenied => Some("security.subagent.spawn_denied"),
        RefusalClass::SubagentQuota => Some("security.subagent.quota_denied"),
        RefusalClass::InvalidPath
        | RefusalClass::UnknownTool
        | RefusalClass::ToolNotExposed
        | RefusalClass::ToolDenied
        | RefusalClass::NotApproved
        | RefusalClass::InvalidArgs
        | RefusalClass::SlotsFull
        | RefusalClass::Unknown => None,
    }
}

/// Whether the policy refused the call. Otherwise it was none that any policy could allow, or had no room.
fn is_of_policy(class: RefusalClass) -> bool {
    match class {
        RefusalClass::SandboxViolation
        | RefusalClass::SensitivePathDenied
        | RefusalClass::NetworkDenied
        | RefusalClass::ToolNotExposed
        | RefusalClass::ToolDenied
        | RefusalClass::NotApproved
        | RefusalClass::EnvDenied
        | RefusalClass::SubagentDenied
        | RefusalClass::SubagentQuota
        | RefusalClass::Unknown => true,
        RefusalClass::InvalidPath | RefusalClass::UnknownTool | RefusalClass::InvalidArgs | RefusalClass::SlotsFull => false,
    }
}
