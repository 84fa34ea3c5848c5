//! Calls that no model asked for. They pass the same gate and have the same entries as others, belong to no run, and no model reads their results.
//!
//! A call is known by the id of its request, over restarts too: whoever sends the request again gets the end of the call, which ran once.

use uuid::Uuid;
use yoi_session::fold::{OpenCall, RequestedCall, request_digest};
use yoi_wire::engine_api::{MAX_CALL_ARGS, MAX_OPEN_CALLS, RunToolRefusal, ToolRun, ToolRunEnd, is_tool_name};
use yoi_wire::entry::{Body, CallDecision, CallFrom, PastRequest, Requester, ToolCall, ToolEnded, ToolOutcome, ToolRequested, ToolStarted};

use super::questions::{denial, not_approved};
use super::run::{asked, decided};
use super::{AskId, CallEnd, ConversationState, EffectId, Intent};
use crate::decision::Decision;

/// With what the ids of such calls begin.
const ID_PREFIX: &str = "engine-";
const BROKEN: &str = "The tool ended without a result. It may have taken effect in part.";

/// How far a call is that no model asked for, or why it was not taken.
pub type RunToolResult = Result<ToolRun, RunToolRefusal>;

/// A call that somebody asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct CallRequest {
    /// A UUID.
    pub id: String,
    /// Name of the tool.
    pub tool: String,
    /// Its arguments.
    pub args: serde_json::Value,
}

/// An effect of such a call.
#[derive(Clone, Debug)]
pub(super) enum RequestedEffect {
    /// The gate is asked about these.
    Check(Vec<String>),
    /// This one runs.
    Run(String),
}

/// The id in the log of the call that is asked for by this id.
#[must_use]
pub fn call_id_of(id: &str) -> String {
    format!("{ID_PREFIX}{}", id.to_ascii_lowercase())
}

/// Whether the end is one of a call that no model asked for.
pub(super) fn is_requested(end: &ToolEnded) -> bool {
    end.decision.as_ref().is_some_and(|decision| decision.from == CallFrom::Engine)
}

impl CallRequest {
    /// The id that the call has in the log.
    fn call_id(&self) -> Result<String, RunToolRefusal> {
        let invalid = |why: String| Err(RunToolRefusal::Invalid(why));
        if Uuid::try_parse(&self.id).is_err() {
            return invalid("the id of a call is a UUID".to_owned());
        }
        if !is_tool_name(&self.tool) {
            return invalid("the name of a tool has 1 to 64 letters, digits, `_`, `-` and `.`".to_owned());
        }
        let bytes = self.args.to_string().len();
        if bytes > MAX_CALL_ARGS {
            return invalid(format!("the arguments have {bytes} bytes, and {MAX_CALL_ARGS} are allowed"));
        }
        Ok(call_id_of(&self.id))
    }
}

impl ConversationState {
    /// Takes a call. Whoever asked is answered when it has ended, or when it waits for a person.
    pub(super) fn take_call_request(&mut self, ask: AskId, user: String, request: CallRequest, intents: &mut Vec<Intent>) {
        let refuse = |refusal| Intent::AnswerCall { ask, result: Err(refusal) };
        let call_id = match request.call_id() {
            Ok(call_id) => call_id,
            Err(refusal) => return intents.push(refuse(refusal)),
        };
        let open = self.log.requested.iter().find(|requested| requested.call.call_id == call_id).map(RequestedCall::digest);
        let known = open.or_else(|| self.past_request(&call_id).map(|past| past.digest.clone()));
        let CallRequest { id, tool, args } = request;
        match known {
            Some(digest) if digest != request_digest(&user, &tool, &args) => {
                let why = format!("the id {id} was used for another call; give each call an id of its own");
                intents.push(refuse(RunToolRefusal::Invalid(why)));
            }
            Some(_) => {
                self.call_asks.push((ask, call_id));
                self.answer_calls(intents);
            }
            None if self.log.requested.len() >= MAX_OPEN_CALLS => intents.push(refuse(RunToolRefusal::Full)),
            None => {
                self.call_asks.push((ask, call_id.clone()));
                let by = Requester { user, request_id: id };
                self.append(vec![Body::ToolRequested(ToolRequested { call_id, tool, args, by })], intents);
            }
        }
    }

    fn past_request(&self, call_id: &str) -> Option<&PastRequest> {
        self.log.past_requested.iter().rev().find(|past| past.call_id == call_id)
    }

    /// Answers everyone whose call has ended, or waits for a person.
    pub(super) fn answer_calls(&mut self, intents: &mut Vec<Intent>) {
        for (ask, call_id) in std::mem::take(&mut self.call_asks) {
            let end = self.past_request(&call_id).map(|past| ToolRunEnd {
                seq: past.seq,
                outcome: past.outcome,
                refused: past.refused,
                output: past.output.clone(),
            });
            let waits = |requested: &&RequestedCall| requested.call.call_id == call_id;
            let asked = self.log.requested.iter().find(waits).and_then(|requested| requested.call.waiting()).map(|question| question.seq);
            if end.is_some() || asked.is_some() {
                intents.push(Intent::AnswerCall { ask, result: Ok(ToolRun { call_id, end, asked }) });
            } else {
                self.call_asks.push((ask, call_id));
            }
        }
    }

    /// Begins, runs and ends them, as far as that is due. True: there is something to append first.
    pub(super) fn go_on_with_requested(&mut self, intents: &mut Vec<Intent>) -> bool {
        let calls = || self.log.requested.iter().map(|requested| &requested.call);
        let denied = calls().filter(|call| call.started.is_none()).filter_map(|call| {
            let question = call.question.as_ref()?;
            let answer = question.answer.as_ref().filter(|answer| !answer.approved)?;
            Some(not_approved(&call.call_id, &question.asked, &denial(answer)))
        });
        let denied: Vec<Body> = denied.collect();
        if !denied.is_empty() {
            self.append(denied, intents);
            return true;
        }
        let runs =
            |id: &str| self.requested_effects.values().any(|effect| matches!(effect, RequestedEffect::Run(running) if running == id));
        let begun: Vec<ToolCall> = calls().filter(|call| call.started.is_some() && !runs(&call.call_id)).map(asked).collect();
        let is_checked = self.requested_effects.values().any(|effect| matches!(effect, RequestedEffect::Check(_)));
        let due = |call: &&OpenCall| call.started.is_none() && call.waiting().is_none() && !is_checked;
        let unbegun: Vec<ToolCall> = calls().filter(due).map(asked).collect();
        for call in begun {
            let effect = self.new_requested_effect(RequestedEffect::Run(call.call_id.clone()));
            intents.push(Intent::Run { effect, call, from: CallFrom::Engine });
        }
        if !unbegun.is_empty() {
            let ids = unbegun.iter().map(|call| call.call_id.clone()).collect();
            let effect = self.new_requested_effect(RequestedEffect::Check(ids));
            intents.push(Intent::Check { effect, calls: unbegun, from: CallFrom::Engine });
        }
        false
    }

    fn new_requested_effect(&mut self, effect: RequestedEffect) -> EffectId {
        self.next_effect += 1;
        self.requested_effects.insert(self.next_effect, effect);
        self.next_effect
    }

    /// Logs what was decided about these calls.
    pub(super) fn take_requested_decisions(&mut self, ids: &[String], decisions: &[Decision], intents: &mut Vec<Intent>) {
        let from = CallFrom::Engine;
        let bodies = ids.iter().zip(decisions).filter_map(|(id, decision)| {
            let call = self.log.requested.iter().map(|requested| &requested.call).find(|call| call.call_id == *id)?;
            Some(match decision {
                Decision::Ask(question) if self.is_approved(call, question) => {
                    Body::ToolStarted(ToolStarted { call_id: id.clone(), tool: call.tool.clone(), decision: Some(decision.record(from)) })
                }
                Decision::Allow | Decision::Refuse(_) | Decision::Ask(_) => decided(id, &call.tool, from, decision),
            })
        });
        let bodies: Vec<Body> = bodies.collect();
        if !bodies.is_empty() {
            self.append(bodies, intents);
        }
    }

    /// Logs the end of a call; without `end`, it said nothing of its own.
    pub(super) fn end_requested(&mut self, call_id: String, end: Option<CallEnd>, intents: &mut Vec<Intent>) {
        // How far it has read another agent's words is nothing to the model.
        let (outcome, output, images, refused, millis) = match end {
            Some(CallEnd { outcome, output, images, refused, read: _, millis }) => (outcome, output, images, refused, Some(millis)),
            None => (ToolOutcome::Failed, BROKEN.to_owned(), Vec::new(), None, None),
        };
        let decision = Some(CallDecision { refused, ..CallDecision::allowed(CallFrom::Engine) });
        self.append(vec![Body::ToolEnded(ToolEnded { call_id, outcome, output, images, millis, decision, read: None })], intents);
    }
}
