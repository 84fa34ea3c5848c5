//! The start of a process, what closes what the last one left, and messages out of the inbox.

use serde_json::json;
use yoi_session::inbox::{InboxMessage, Wake};
use yoi_wire::entry::{Body, ConfigChanged, Extension, Input, InputFrom, PeerMessage, RunOutcome, SegmentReason};

use super::prompt::peer_text;
use super::{ConversationEvent, ConversationState, Intent, StartInput, compaction_failed};

/// The entry that says that the inbox was full and a message was refused. It changes nothing.
pub const QUEUE_OVERFLOW: &str = "yoi/queue-overflow";
/// The entry that says that the process was asked to stop, and nothing runs any more. It changes nothing.
pub const STOPPED: &str = "yoi/stopped";

impl ConversationState {
    /// The sender was told. The log says it once, until messages were read.
    pub(super) fn note_full_queue(&mut self, waiting: usize, intents: &mut Vec<Intent>) {
        if !std::mem::replace(&mut self.told_of_full_queue, true) {
            let data = json!({ "waiting": waiting });
            self.append(vec![Body::Extension(Extension { name: QUEUE_OVERFLOW.to_owned(), data })], intents);
        }
    }

    /// Whether the open run can end.
    pub(super) fn is_complete(&self) -> bool {
        // What a program has said last need not be all that it wants to say.
        self.program.is_none() && self.facts.final_answer && self.log.unanswered.is_empty() && self.log.open_calls.is_empty()
    }

    /// Entries that close what was under way when the last process ended, or when this one is about to. A paused run stays paused.
    pub(super) fn closing_entries(&self) -> Vec<Body> {
        let mut bodies = self.log.recovery();
        if self.is_complete() {
            for body in &mut bodies {
                // The last process died between the model's final answer and the entry that ends the run.
                if let Body::RunEnded(end) = body {
                    (end.outcome, end.message) = (RunOutcome::Finished, None);
                }
            }
        }
        if self.facts.compaction.is_some() {
            bodies.insert(0, compaction_failed("the runtime stopped in the middle of it"));
        }
        bodies
    }

    pub(super) fn start(&mut self, start: StartInput, intents: &mut Vec<Intent>) {
        let StartInput { runtime, task, settings, may_run, config, policy, segment } = start;
        (self.settings, self.may_run, self.segment) = (settings, may_run, segment.clone());
        if let (Some(config), None) = (&config, &self.config) {
            // A log of format 1: the head of the next segment has the configuration. Then the start goes on.
            self.rotate(SegmentReason::Upgraded, config, intents);
            let rest = StartInput { runtime, task, settings, may_run, config: None, policy, segment };
            self.deferred.push_front(ConversationEvent::Started(Box::new(rest)));
            return;
        }
        self.started = true;
        let mut bodies = self.closing_entries();
        bodies.push(Body::RuntimeStarted(runtime));
        let policy = policy.map(|change| self.policy_entries(*change, config.as_ref().or(self.config.as_deref())));
        bodies.extend(config.map(|config| Body::ConfigChanged(ConfigChanged { config })));
        bodies.extend(policy.into_iter().flatten());
        if let Some(task) = task.filter(|task| !self.log.tasks.contains_key(&task.id) && !self.log.delivered.contains(&task.id)) {
            bodies.push(Body::Input(Input { from: InputFrom::Task, message_id: task.id, user: None, text: task.text }));
        }
        self.append(bodies, intents);
    }

    pub(super) fn take_messages(&mut self, messages: Vec<InboxMessage>, intents: &mut Vec<Intent>) {
        let new: Vec<InboxMessage> = messages.into_iter().filter(|message| !self.log.delivered.contains(&message.id)).collect();
        self.inbox_read = true;
        let idle = self.log.open_run.is_none();
        // Messages with Wake::Wait are read by the next run that something else starts.
        let waits = idle && new.iter().all(|message| message.wake == Wake::Wait);
        if new.is_empty() || waits || self.is_paused() || self.ending.is_some() {
            return;
        }
        self.told_of_full_queue = false;
        let mut bodies: Vec<Body> = new.iter().map(|message| with_prompt(message.body())).collect();
        if idle {
            let seq = self.log.last_seq + bodies.len() as u64 + 1;
            bodies.push(self.run_started(seq, new.iter().map(|message| message.id.clone())));
        }
        self.append(bodies, intents);
    }
}

/// What the model reads of a peer's message stands in the log.
fn with_prompt(body: Body) -> Body {
    match body {
        Body::PeerMessage(message) => {
            let prompt = Some(peer_text(&message.from.name, &message.text));
            Body::PeerMessage(PeerMessage { prompt, ..message })
        }
        other => other,
    }
}
