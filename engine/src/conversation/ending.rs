//! A person pauses or cancels the open run: its effects end first, then the log says so.

use yoi_wire::entry::{Abandoned, Body, Paused, Requester, RolledBack, RunEnded, RunOutcome, ToolOutcome};
use yoi_wire::mode::Mode;

use super::mode_switch::switched;
use super::run::tool_ended;
use super::{ConversationState, Effect, Intent, compaction_failed};

const ENDED_UNBEGUN: &str = "A person ended the run before this tool began. It did not run.";

/// The open run is being ended by a person.
#[derive(Clone, Debug)]
pub(super) struct Ending {
    pub cancel: bool,
    /// Nothing of an answer had come.
    pub roll_back: bool,
    pub background_ended: bool,
    /// The mode for which the run is cancelled.
    pub mode: Option<Mode>,
    pub by: Requester,
}

impl ConversationState {
    pub(super) fn unbegun_calls_end(&self, output: &str) -> Vec<Body> {
        let calls = self.log.open_calls.iter();
        calls.map(|call| tool_ended(&call.call_id, ToolOutcome::Refused, output)).collect()
    }

    /// Ends all effects. A model call is forgotten at once; of a tool or a program the end is awaited.
    pub(super) fn end_effects(&mut self, intents: &mut Vec<Intent>) {
        intents.extend(self.effects.keys().map(|effect| Intent::End { effect: *effect }));
        self.effects.retain(|_, effect| matches!(effect, Effect::Tool { .. } | Effect::Program));
    }

    pub(super) fn begin_ending(&mut self, cancel: bool, by: Requester, intents: &mut Vec<Intent>) {
        let output = self.effects.values().any(|effect| matches!(effect, Effect::Model(call) if call.output && !call.summary));
        // Nobody knows what a program has read and done before its first word.
        let roll_back = self.program.is_none()
            && self.turns() == 0
            && !output
            && self.facts.compaction.is_none()
            && self.hidden_by_rollback().is_some();
        self.end_effects(intents);
        self.ending = Some(Ending { cancel, roll_back, background_ended: false, mode: None, by });
    }

    /// The inputs that started the open run and what commands among them stand for, when no answer has followed any of them.
    fn hidden_by_rollback(&self) -> Option<Vec<u64>> {
        let run = self.log.open_run.as_ref()?;
        let unanswered = run.cause.iter().all(|id| self.log.unanswered.contains(id));
        (unanswered && !run.cause.is_empty()).then(|| {
            let inputs = run.cause.iter().filter_map(|id| self.log.delivered.get(id));
            inputs.chain(self.items_of_commands().iter().copied()).collect()
        })
    }

    pub(super) fn go_on_ending(&mut self, intents: &mut Vec<Intent>) {
        if !self.effects.is_empty() {
            return;
        }
        let Some(mut ending) = self.ending.take() else { return };
        if ending.cancel && !ending.background_ended {
            ending.background_ended = true;
            self.ending = Some(ending);
            let effect = self.new_effect(Effect::Background);
            intents.push(Intent::EndBackground { effect });
            return;
        }
        let Ending { cancel, roll_back, background_ended: _, mode, by } = ending;
        let Some(run_id) = self.log.open_run.as_ref().map(|run| run.run_id.clone()) else { return };
        let mut bodies = Vec::new();
        if self.facts.compaction.is_some() {
            bodies.push(compaction_failed("a person ended the run"));
        }
        let reason = Some("Cancelled".to_owned());
        match (roll_back.then(|| self.hidden_by_rollback()).flatten(), cancel) {
            (Some(hidden), _) => {
                bodies.push(Body::RolledBack(RolledBack { run_id: run_id.clone(), hidden, by: by.clone() }));
                let outcome = RunOutcome::RolledBack;
                bodies.push(Body::RunEnded(RunEnded { run_id, outcome, reason, message: None, by: Some(by) }));
            }
            (None, false) => bodies.push(Body::Paused(Paused { run_id, by })),
            (None, true) => {
                bodies.extend(self.unbegun_calls_end(ENDED_UNBEGUN));
                if self.is_paused() {
                    bodies.push(Body::Abandoned(Abandoned { run_id: run_id.clone(), by: by.clone() }));
                }
                let outcome = RunOutcome::Cancelled;
                bodies.push(Body::RunEnded(RunEnded { run_id, outcome, reason, message: None, by: Some(by.clone()) }));
                bodies.extend(mode.into_iter().flat_map(|mode| switched(mode, by.clone())));
            }
        }
        self.append(bodies, intents);
    }
}
