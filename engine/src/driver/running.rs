//! What a conversation wants done, and what runs for it.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::{AbortHandle, Id, JoinError, JoinSet, block_in_place};
use yoi_session::Error;
use yoi_wire::control::ControlResponse;
use yoi_wire::entry::{AgentConfig, Body, CallDecision, Carried, Entry, SegmentReason, ToolEnded, ToolOutcome};

use super::program_run::Acknowledgements;
use super::{Agent, Driver};
use crate::conversation::program::ProgramEnd;
use crate::conversation::{
    ApprovalResult, AskId, CallEnd, ConversationEvent, ConversationState, EffectId, Intent, ModelFailed, ModelFailureKind, RunToolResult,
    apply, policy_of,
};
use crate::policy::Policy;

/// The effects that run, and who waits for answers.
pub(super) struct Running<'a> {
    pub(super) driver: &'a Driver,
    pub(super) events: mpsc::UnboundedSender<ConversationEvent>,
    pub(super) tasks: JoinSet<()>,
    pub(super) effects: BTreeMap<EffectId, EffectHandle>,
    pub(super) by_task: HashMap<Id, EffectId>,
    pub(super) asks: HashMap<AskId, oneshot::Sender<ControlResponse>>,
    pub(super) approvals: HashMap<AskId, oneshot::Sender<ApprovalResult>>,
    pub(super) calls: HashMap<AskId, oneshot::Sender<RunToolResult>>,
    /// Who waits for the entry of the event that is carried out.
    pub(super) recorded: Vec<oneshot::Sender<()>>,
    pub(super) next_ask: AskId,
    pub(super) acknowledgements: Arc<Acknowledgements>,
}

pub(super) struct EffectHandle {
    pub(super) abort: AbortHandle,
    pub(super) retry: Arc<Notify>,
    pub(super) kind: EffectKind,
}

/// What has to be done when an effect ends without having said how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EffectKind {
    Model,
    Tool,
    Program,
    Loans,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.acknowledgements.close();
    }
}

impl Running<'_> {
    /// Gives the event to the conversation and carries out what it wants, up to what has to be waited for. True: it is over.
    pub(super) fn carry_out(&mut self, mut state: ConversationState, event: ConversationEvent) -> Result<(ConversationState, bool), Error> {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            let intents;
            (state, intents) = apply(state, event);
            for intent in intents {
                match intent {
                    Intent::Append(bodies) => {
                        let entries = match self.append(&bodies) {
                            // What another writer appended stays where it is, and the session goes on in another segment.
                            Err(Error::ForeignAppend { file }) => {
                                tracing::error!(file = %file.display(), "another process has written to the log");
                                state = self.leave_segment(state)?;
                                self.append(&bodies)?
                            }
                            entries => entries?,
                        };
                        // They come before everything else: the conversation waits for them.
                        for entry in entries.into_iter().rev() {
                            events.push_front(ConversationEvent::Logged(entry));
                        }
                        if self.driver.session.segment_bytes() >= self.driver.segment_bytes {
                            events.push_back(ConversationEvent::SegmentFull);
                        }
                    }
                    Intent::Rotate { reason, config, carried } => {
                        let (segment, entries) = self.rotate(reason, &config, carried)?;
                        events.push_front(ConversationEvent::Rotated { segment, entries });
                    }
                    Intent::ReadInbox => events.push_back(ConversationEvent::InboxRead(self.driver.session.pending())),
                    Intent::CallModel { effect, request, summary } => self.call_model(effect, request, summary, state.tokens()),
                    Intent::RetryModel { effect } => {
                        if let Some(handle) = self.effects.get(&effect) {
                            handle.retry.notify_one();
                        }
                    }
                    Intent::Check { effect, calls, from } => {
                        let decisions = block_in_place(|| self.decide(&calls, from));
                        events.push_back(ConversationEvent::Checked { effect, decisions });
                    }
                    Intent::Prepare { effect, mut wanted } => {
                        let loans = wanted.loans.take();
                        let prepared = block_in_place(|| self.prepare(wanted));
                        match loans {
                            Some(request) => self.ask_loans(effect, request, prepared),
                            None => events.push_back(ConversationEvent::Prepared { effect, prepared }),
                        }
                    }
                    Intent::Run { effect, call, from } => self.run_tool(effect, call, from),
                    Intent::End { effect } => {
                        if let Some(handle) = self.effects.get(&effect) {
                            handle.abort.abort();
                            if handle.kind != EffectKind::Tool {
                                self.driver.session.feed.discard_answer();
                            }
                        }
                    }
                    Intent::RunProgram { effect, input, session } => self.run_program(effect, input, session, state.tokens()),
                    Intent::Acknowledge { ask, result } => self.acknowledgements.answer(ask, result),
                    Intent::EndBackground { effect } => self.end_background(effect),
                    Intent::Answer { ask, response } => {
                        // The asker may be gone.
                        if let Some(answer) = self.asks.remove(&ask) {
                            let _ = answer.send(response);
                        }
                    }
                    Intent::AnswerApproval { ask, result } => {
                        if let Some(answer) = self.approvals.remove(&ask) {
                            let _ = answer.send(result);
                        }
                    }
                    Intent::AnswerCall { ask, result } => {
                        if let Some(answer) = self.calls.remove(&ask) {
                            let _ = answer.send(result);
                        }
                    }
                    Intent::Wait => {
                        self.driver.observer.on_wait();
                        self.renew_secrets();
                    }
                    Intent::Exit => return Ok((state, true)),
                }
            }
        }
        // All appends of the event are durable by now. Whoever asked may be gone.
        for recorded in self.recorded.drain(..) {
            let _ = recorded.send(());
        }
        Ok((state, false))
    }

    fn rotate(&self, reason: SegmentReason, config: &AgentConfig, carried: Vec<Carried>) -> Result<(String, Vec<Entry>), Error> {
        let entries = block_in_place(|| self.driver.session.rotate(reason, config, carried))?;
        if let Some(subagents) = &self.driver.subagents {
            subagents.tell_again();
        }
        self.driver.observer.on_entries_logged();
        log_entries(&entries);
        let pointer = self.driver.session.pointer();
        let segment = pointer.as_ref().map(|pointer| pointer.segment.clone()).unwrap_or_default();
        pointer.into_iter().for_each(|pointer| self.driver.observer.on_rotated(pointer));
        Ok((segment, entries))
    }

    /// While nothing runs, an endpoint's other Secrets are read although a fallback has answered in its place.
    fn renew_secrets(&self) {
        let refused = match &self.driver.agent {
            Agent::Builtin(model) => model.refused_for(),
            Agent::Program(_) | Agent::Blocked(_) => None,
        };
        if refused.is_some_and(|refused| self.driver.secrets.due_in(refused).is_zero()) {
            self.driver.secrets.renew();
        }
    }

    /// Goes on in a new segment in the middle of an append.
    fn leave_segment(&self, state: ConversationState) -> Result<ConversationState, Error> {
        let config = state.config().map(|config| (**config).clone()).unwrap_or_default();
        let (segment, entries) = self.rotate(SegmentReason::ForeignAppend, &config, state.carried())?;
        Ok(apply(state, ConversationEvent::Rotated { segment, entries }).0)
    }

    fn append(&self, bodies: &[Body]) -> Result<Vec<Entry>, Error> {
        let entries = block_in_place(|| self.driver.session.append(bodies))?;
        self.driver.observer.on_entries_logged();
        if entries.iter().any(|entry| matches!(entry.body, Body::RunStarted(_))) {
            self.driver.tools.runner().start_run();
        }
        if let Some(subagents) =
            self.driver.subagents.as_ref().filter(|_| entries.iter().any(|entry| matches!(entry.body, Body::RunEnded(_))))
        {
            subagents.end_run();
        }
        for entry in &entries {
            if let Body::ToolEnded(ToolEnded { decision: Some(CallDecision { refused: Some(class), .. }), .. }) = &entry.body {
                self.driver.observer.on_call_refused(*class);
            }
            if let Body::ModeSwitched(switch) = &entry.body {
                self.driver.tools.set_mode(Some(switch.mode));
            }
            // It was one when it was told.
            if let Some(Ok(policy)) = policy_of(&entry.body).map(|policy| Policy::new(&policy)) {
                self.driver.tools.runner().set_policy(Arc::new(policy));
            }
        }
        log_entries(&entries);
        Ok(entries)
    }

    /// What the end of an effect's task means, where the effect has not said it itself.
    pub(super) fn ended(&mut self, ended: Result<(Id, ()), JoinError>) -> Option<ConversationEvent> {
        let id = match &ended {
            Ok((id, ())) => *id,
            Err(error) => error.id(),
        };
        let effect = self.by_task.remove(&id)?;
        let handle = self.effects.remove(&effect)?;
        match ended {
            Ok(_) => None,
            Err(error) if error.is_cancelled() => Some(ConversationEvent::Gone { effect }),
            Err(error) => {
                let message = format!("it broke: {error}");
                tracing::error!(%error, "an effect of the conversation panicked");
                Some(match handle.kind {
                    EffectKind::Loans => ConversationEvent::Gone { effect },
                    EffectKind::Model => {
                        let failure = ModelFailed::new(ModelFailureKind::Unreachable, message);
                        ConversationEvent::ModelFailed { effect, failure }
                    }
                    EffectKind::Tool => {
                        let end = CallEnd {
                            outcome: ToolOutcome::Failed,
                            output: message,
                            images: Vec::new(),
                            refused: None,
                            read: None,
                            millis: 0,
                        };
                        ConversationEvent::Ended { effect, end }
                    }
                    EffectKind::Program => {
                        let end = ProgramEnd::not_started(message);
                        ConversationEvent::ProgramEnded { effect, end }
                    }
                })
            }
        }
    }
}

fn log_entries(entries: &[Entry]) {
    for entry in entries {
        // Only the kind is logged, never the content: transcripts stay on the session volume.
        tracing::info!(seq = entry.seq, kind = entry.body.kind(), call = call_id(&entry.body), "entry logged");
    }
}

/// The id of the tool call that an entry is about.
fn call_id(body: &Body) -> Option<&str> {
    match body {
        Body::ToolStarted(start) => Some(&start.call_id),
        Body::ToolEnded(end) => Some(&end.call_id),
        Body::ToolRequested(requested) => Some(&requested.call_id),
        Body::ToolAsked(asked) => Some(&asked.call_id),
        Body::ToolAnswered(answered) => Some(&answered.call_id),
        Body::SessionStarted(_)
        | Body::RuntimeStarted(_)
        | Body::Input(_)
        | Body::PeerMessage(_)
        | Body::RunStarted(_)
        | Body::Assistant(_)
        | Body::RunEnded(_)
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
        | Body::ModeSwitched(_)
        | Body::CompactionStarted(_)
        | Body::CompactionEnded(_)
        | Body::Extension(_)
        | Body::Unknown { .. } => None,
    }
}
