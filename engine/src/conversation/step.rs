//! One event after another: what it changes, and what to do next.

use yoi_wire::entry::Body;

use super::requested::RequestedEffect;
use super::{ConversationEvent, ConversationState, Effect, EffectId, Intent, MAX_NOTICES, compaction_failed, notice};

impl ConversationState {
    pub(super) fn decide(&mut self, intents: &mut Vec<Intent>) {
        if self.is_busy() || !self.started {
            return;
        }
        if self.stopping {
            intents.push(Intent::Exit);
            return;
        }
        if let Some((reason, config)) = self.due_rotation() {
            self.rotate(reason, &config, intents);
            return;
        }
        if self.go_on_with_requested(intents) {
            return;
        }
        if self.ending.is_some() {
            self.go_on_ending(intents);
            return;
        }
        if !self.may_run {
            intents.push(Intent::Wait);
            return;
        }
        if self.facts.compaction.is_some() {
            self.go_on_compacting(intents);
            return;
        }
        match &self.log.open_run {
            Some(run) if run.paused => intents.push(Intent::Wait),
            Some(_) if self.program.is_some() => self.go_on_with_program(intents),
            Some(_) => self.go_on_running(intents),
            None => {
                if self.due().next().is_some() || self.log.interrupted.is_some() {
                    let body = self.run_started(self.log.last_seq + 1, []);
                    self.append(vec![body], intents);
                } else if let Some(start) = self.due_compaction() {
                    self.append(vec![start], intents);
                } else {
                    intents.push(if self.inbox_read { Intent::Wait } else { Intent::ReadInbox });
                }
            }
        }
    }

    fn step(&mut self, event: ConversationEvent, intents: &mut Vec<Intent>) {
        match event {
            ConversationEvent::Recorded(entry) => {
                self.record(entry);
                return;
            }
            ConversationEvent::Logged(entry) => {
                self.appending = self.appending.saturating_sub(1);
                self.record(entry);
                if self.appending == 0 {
                    self.acknowledge(intents);
                    self.requests.answer_pending(intents);
                    self.confirm_answers(intents);
                    self.answer_calls(intents);
                }
            }
            ConversationEvent::Rotated { segment, entries } => {
                (self.rotating, self.segment_full, self.segment) = (false, false, segment);
                entries.into_iter().for_each(|entry| self.record(entry));
            }
            ConversationEvent::Started(start) => self.start(*start, intents),
            ConversationEvent::SegmentFull => self.segment_full = true,
            ConversationEvent::TokenLimit(limit) => self.settings.tokens = limit,
            ConversationEvent::PolicyChanged(change) => self.change_policy(*change, intents),
            ConversationEvent::ProjectNews(body) => self.append(vec![*body], intents),
            ConversationEvent::InboxChanged => self.inbox_read = false,
            ConversationEvent::QueueFull { waiting } => self.note_full_queue(waiting, intents),
            ConversationEvent::InboxRead(messages) => self.take_messages(messages, intents),
            ConversationEvent::OutputBegan { effect } => {
                if let Some(Effect::Model(call)) = self.effects.get_mut(&effect) {
                    (call.output, call.waits_for_person) = (true, false);
                }
                return;
            }
            ConversationEvent::Answered { effect, answer } => {
                let Some(Effect::Model(call)) = self.effects.remove(&effect) else { return };
                if call.summary { self.end_compaction(answer, intents) } else { self.take_answer(answer, intents) }
            }
            ConversationEvent::ModelTrouble { effect, reason, message, waits_for_person } => {
                self.note_trouble(effect, reason, message, waits_for_person, intents);
                return;
            }
            ConversationEvent::ModelFailed { effect, failure } => {
                let Some(Effect::Model(call)) = self.effects.remove(&effect) else { return };
                if call.summary {
                    self.append(vec![compaction_failed(&failure.message)], intents);
                } else {
                    self.take_failure(failure, intents);
                }
            }
            ConversationEvent::Used { usage, reason } => {
                self.append(vec![Body::Usage(yoi_wire::entry::UsageWithoutAnswer { usage, reason })], intents);
            }
            ConversationEvent::Checked { effect, decisions } => {
                if let Some(RequestedEffect::Check(ids)) = self.requested_effects.remove(&effect) {
                    self.take_requested_decisions(&ids, &decisions, intents);
                    self.decide(intents);
                    return;
                }
                match self.effects.remove(&effect) {
                    Some(Effect::Check) => self.take_decisions(decisions, intents),
                    Some(Effect::ProgramCheck { call_id }) => self.take_program_decision(&call_id, decisions, intents),
                    Some(Effect::Model(_) | Effect::Preparation | Effect::Tool { .. } | Effect::Background | Effect::Program) | None => {
                        return;
                    }
                }
            }
            ConversationEvent::Prepared { effect, prepared } => self.take_preparation(effect, prepared, intents),
            ConversationEvent::Ended { effect, end } => {
                if let Some(RequestedEffect::Run(call_id)) = self.requested_effects.remove(&effect) {
                    self.end_requested(call_id, Some(end), intents);
                    return;
                }
                let Some(Effect::Tool { call_id, .. }) = self.effects.remove(&effect) else { return };
                self.end_call(call_id, Some(end), intents);
            }
            ConversationEvent::Gone { effect } if self.requested_effects.contains_key(&effect) => {
                if let Some(RequestedEffect::Run(call_id)) = self.requested_effects.remove(&effect) {
                    self.end_requested(call_id, None, intents);
                }
            }
            ConversationEvent::Gone { effect } => match self.effects.remove(&effect) {
                Some(Effect::Tool { call_id, .. }) => self.end_call(call_id, None, intents),
                Some(Effect::Program) => self.program_is_gone(intents),
                Some(Effect::Background | Effect::Check | Effect::ProgramCheck { .. } | Effect::Preparation | Effect::Model(_)) => {}
                None => return,
            },
            ConversationEvent::Noticed { reason, message } => self.append(vec![notice(reason, message)], intents),
            ConversationEvent::ProgramSaid { effect, ask, said } => self.take_words(effect, ask, said, intents),
            ConversationEvent::ProgramCall { effect, ask, call } => self.take_program_call(effect, ask, *call, intents),
            ConversationEvent::ProgramCallWithdrawn { ask } => self.withdraw_program_call(ask, intents),
            ConversationEvent::ProgramEnded { effect, end } => {
                let Some(Effect::Program) = self.effects.remove(&effect) else { return };
                self.take_program_end(&end, intents);
            }
            ConversationEvent::Asked { ask, user, request } => self.take_request(ask, user, request, intents),
            ConversationEvent::ApprovalGiven { ask, user, request } => self.take_approval(ask, user, request, intents),
            ConversationEvent::CallRequested { ask, user, request } => self.take_call_request(ask, user, request, intents),
            ConversationEvent::ApprovalExpired { question } => self.take_expiry(question, intents),
            ConversationEvent::Stopping => {
                self.stopping = true;
                self.effects.clear();
                self.requested_effects.clear();
                self.ending = None;
                let bodies = self.closing_entries();
                if !bodies.is_empty() {
                    self.append(bodies, intents);
                }
            }
        }
        self.decide(intents);
    }

    fn note_trouble(&mut self, effect: EffectId, reason: String, message: String, waits: bool, intents: &mut Vec<Intent>) {
        let Some(Effect::Model(call)) = self.effects.get_mut(&effect) else { return };
        call.waits_for_person = waits;
        // One notice for each kind of failure. The count bounds them when two kinds alternate.
        if call.notices < MAX_NOTICES && call.last_notice != message {
            call.notices += 1;
            call.last_notice.clone_from(&message);
            self.append(vec![notice(reason, message)], intents);
        }
    }
}

/// Returns the state after one more event, and what to do.
#[must_use]
pub fn apply(mut state: ConversationState, event: ConversationEvent) -> (ConversationState, Vec<Intent>) {
    let mut intents = Vec::new();
    let ends_wait = matches!(event, ConversationEvent::Logged(_) | ConversationEvent::Rotated { .. } | ConversationEvent::Recorded(_));
    if state.is_busy() && !ends_wait {
        state.deferred.push_back(event);
        return (state, intents);
    }
    state.step(event, &mut intents);
    while !state.is_busy() {
        let Some(event) = state.next_held() else { break };
        state.step(event, &mut intents);
    }
    (state, intents)
}
