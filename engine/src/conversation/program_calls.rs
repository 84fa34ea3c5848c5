//! Calls that a program asks about before they begin, by its hook or its MCP client, and those of them that wait for a person.
//!
//! A call waits as long as whoever asks in the program can wait. It does not wait over a restart: the program ends with the runtime, and asks again when it
//! makes the call again.

use yoi_session::fold::OpenCall;
use yoi_wire::entry::{Answer, Assistant, Body, CallFrom, RefusalClass, ToolAsked, ToolCall, ToolStarted};

use super::program::AskingCall;
use super::program_words::RUN_OVER;
use super::questions::{denial, not_approved};
use super::run::decided;
use super::told_calls::{ToldCall, bounded_name};
use super::{AskId, ConversationState, DecidedCall, Effect, EffectId, Intent};
use crate::decision::{Decision, Question, Refusal};

const TOO_MANY_CALLS: &str = "the program has made as many calls as one run may have, so nothing more of it begins in this run";
const NOT_WAITED: &str = "the program did not wait for the answer";

impl ConversationState {
    /// A hook tells that a call is about to begin, or asks for a tool of Yoi's.
    pub(super) fn take_program_call(&mut self, effect: EffectId, ask: AskId, decided_call: DecidedCall, intents: &mut Vec<Intent>) {
        let DecidedCall { call, from, decision, wait_seconds } = decided_call;
        let over = self.ending.is_some() || !self.is_running_program(effect);
        let api = self.api();
        let Some(program) = self.program.as_mut().filter(|_| !over) else {
            intents.push(Intent::Acknowledge { ask, result: Err(RUN_OVER.to_owned()) });
            return;
        };
        if !program.run.budget.count() {
            intents.push(Intent::Acknowledge { ask, result: Err(TOO_MANY_CALLS.to_owned()) });
            return;
        }
        let call = ToolCall { call_id: bounded_name(call.call_id), tool: bounded_name(call.tool), args: call.args };
        let told = ToldCall::new(&call);
        let known = self.known_call(&told);
        let is_approved = |question: &Question| {
            question.is_covered_by(&self.log.always_approved) || known.as_ref().is_some_and(|known| self.is_approved(known, question))
        };
        let (decision, approved) = match decision {
            Decision::Ask(question) if is_approved(&question) => (Decision::Ask(question), true),
            Decision::Ask(question) if wait_seconds == 0 => (Decision::Refuse(cannot_wait(&question)), false),
            Decision::Ask(question) => (asked_in_time(question, wait_seconds), false),
            Decision::Allow | Decision::Refuse(_) => (decision, false),
        };
        let entry = |call_id: &str, tool: &str| {
            if approved { begun(call_id, tool, from, &decision) } else { decided(call_id, tool, from, &decision) }
        };
        let Some(program) = &mut self.program else { return };
        let run = &mut program.run;
        let waits = matches!(decision, Decision::Ask(_)) && !approved;
        let begins = decision == Decision::Allow || approved;
        let mut bodies = Vec::new();
        let call_id = match known {
            Some(known) => {
                if known.call_id != told.call_id {
                    run.aliases.insert(told.call_id, known.call_id.clone());
                }
                let is_asked = waits && known.waiting().is_some();
                // One that its output has told of is not begun a second time. It ends when it is refused now, and has not begun when a person is asked.
                if !is_asked && (known.started.is_none() || !begins) {
                    bodies.push(entry(&known.call_id, &known.tool));
                }
                known.call_id
            }
            None => {
                let (call_id, tool) = (call.call_id.clone(), call.tool.clone());
                let args = run.budget.kept_args(call.args.clone());
                run.told.push(told.clone());
                run.hooked.push(told);
                run.answered = true;
                self.end_lost_calls(1, &mut bodies);
                let kept = ToolCall { call_id: call_id.clone(), tool: tool.clone(), args };
                bodies.push(Body::Assistant(Assistant { tool_calls: vec![kept], api, ..Assistant::default() }));
                bodies.push(entry(&call_id, &tool));
                call_id
            }
        };
        let Some(program) = &mut self.program else { return };
        if waits {
            program.run.ended.remove(&call_id);
            program.asking.push(AskingCall { ask, call: ToolCall { call_id, ..call }, from, wait_seconds });
            if !bodies.is_empty() {
                self.append(bodies, intents);
            }
            return;
        }
        let result = match decision {
            Decision::Refuse(refusal) => {
                program.run.ended.insert(call_id.clone(), ());
                program.run.told.take(|other| other.call_id == call_id);
                Err(refusal.message)
            }
            Decision::Allow | Decision::Ask(_) => {
                program.run.ended.remove(&call_id);
                Ok(call_id)
            }
        };
        self.append_and_acknowledge(ask, result, bodies, intents);
    }

    /// The open call that the program tells of. A hook may not know the id that the output has, and the name of a tool of Yoi's has the program's prefix there.
    fn known_call(&self, told: &ToldCall) -> Option<OpenCall> {
        let program = self.program.as_ref()?;
        let is_same = |other: &ToldCall| other.has_args_of(told) && (other.tool == told.tool || has_suffix(&other.tool, &told.tool));
        let open = |id: &str| self.log.open_calls.iter().find(|open| open.call_id == id);
        let by_content = || program.run.told.find(|other| is_same(other) && open(&other.call_id).is_some());
        open(&told.call_id).or_else(|| by_content().and_then(|other| open(&other.call_id))).cloned()
    }

    /// Whether a person is asked about the call, or has answered and it has not begun yet.
    pub(super) fn is_asked_about(&self, call_id: &str) -> bool {
        self.log.open_calls.iter().any(|call| call.call_id == call_id && call.started.is_none() && call.question.is_some())
    }

    /// Whoever asked in the program waits no longer.
    pub(super) fn withdraw_program_call(&mut self, ask: AskId, intents: &mut Vec<Intent>) {
        let Some(program) = &mut self.program else { return };
        let Some(at) = program.asking.iter().position(|asking| asking.ask == ask) else { return };
        let call_id = program.asking.remove(at).call.call_id;
        intents.push(Intent::Acknowledge { ask, result: Err(NOT_WAITED.to_owned()) });
        if program.asking.iter().any(|asking| asking.call.call_id == call_id) {
            return;
        }
        let waiting = self.log.open_calls.iter().find(|call| call.call_id == call_id && call.waiting().is_some());
        if let Some(asked) = waiting.and_then(|call| call.question.as_ref()).map(|question| &question.asked) {
            let body = not_approved(&call_id, asked, NOT_WAITED);
            self.append(vec![body], intents);
        }
    }

    /// Goes on with the calls that a person has answered. True: there is something to append first.
    pub(super) fn go_on_with_answered_calls(&mut self, intents: &mut Vec<Intent>) -> bool {
        let Some(program) = &self.program else { return false };
        let answered = self.log.open_calls.iter().filter(|call| call.started.is_none()).filter_map(|call| {
            let question = call.question.as_ref()?;
            Some((call.call_id.clone(), &question.asked, question.answer.as_ref()?))
        });
        let (mut bodies, mut due) = (Vec::new(), Vec::new());
        for (call_id, asked, answer) in answered {
            match program.asking.iter().find(|asking| asking.call.call_id == call_id) {
                Some(asking) if answer.approved => due.push((asking.call.clone(), asking.from)),
                Some(_) | None => bodies.push(not_begun(&call_id, asked, answer)),
            }
        }
        if !bodies.is_empty() {
            self.append(bodies, intents);
            return true;
        }
        for (call, from) in due {
            let is_checked = |effect: &Effect| matches!(effect, Effect::ProgramCheck { call_id } if *call_id == call.call_id);
            if !self.effects.values().any(is_checked) {
                let effect = self.new_effect(Effect::ProgramCheck { call_id: call.call_id.clone() });
                intents.push(Intent::Check { effect, calls: vec![call], from });
            }
        }
        false
    }

    /// The policy was asked again about a call that a person has approved.
    pub(super) fn take_program_decision(&mut self, call_id: &str, decisions: Vec<Decision>, intents: &mut Vec<Intent>) {
        let Some(decision) = decisions.into_iter().next() else { return };
        let Some(call) = self.log.open_calls.iter().find(|call| call.call_id == call_id && call.started.is_none()) else { return };
        let Some(question) = &call.question else { return };
        let asking = self.program.as_ref().and_then(|program| program.asking.iter().find(|asking| asking.call.call_id == call_id));
        let body = match (asking, decision) {
            // Whoever waited has gone in the meantime.
            (None, _) => not_approved(call_id, &question.asked, NOT_WAITED),
            (Some(asking), Decision::Ask(question)) if self.is_approved(call, &question) => {
                begun(call_id, &call.tool, asking.from, &Decision::Ask(question))
            }
            (Some(asking), Decision::Ask(question)) => {
                decided(call_id, &call.tool, asking.from, &asked_in_time(question, asking.wait_seconds))
            }
            (Some(asking), decision @ (Decision::Allow | Decision::Refuse(_))) => decided(call_id, &call.tool, asking.from, &decision),
        };
        self.append(vec![body], intents);
    }
}

/// The end of a call that was denied, or that nobody in the program waits for any more.
fn not_begun(call_id: &str, asked: &ToolAsked, answer: &Answer) -> Body {
    if answer.approved { not_approved(call_id, asked, NOT_WAITED) } else { not_approved(call_id, asked, &denial(answer)) }
}

/// The start of a call that a person has approved.
fn begun(call_id: &str, tool: &str, from: CallFrom, decision: &Decision) -> Body {
    Body::ToolStarted(ToolStarted { call_id: call_id.to_owned(), tool: tool.to_owned(), decision: Some(decision.record(from)) })
}

/// The question, open no longer than whoever asks in the program waits.
fn asked_in_time(question: Question, wait_seconds: u64) -> Decision {
    Decision::Ask(Question { seconds: question.seconds.min(wait_seconds), ..question })
}

/// Not every program waits at all.
fn cannot_wait(question: &Question) -> Refusal {
    let rule = question.rules.first().cloned();
    let why = format_args!(
        "the policy of this agent has a person asked about it by the rule {}, and a call that comes this way cannot wait for one. Do without it, or say what a person has to do",
        rule.as_deref().unwrap_or_default()
    );
    let refusal = Refusal::new(RefusalClass::NotApproved, why);
    Refusal { rule, ..refusal }
}

/// Whether a program's name for a tool is that of Yoi's with a prefix, such as `mcp__yoi__ListPods`.
fn has_suffix(long: &str, name: &str) -> bool {
    long.strip_suffix(name).is_some_and(|prefix| prefix.ends_with(|last: char| !last.is_alphanumeric()))
}
