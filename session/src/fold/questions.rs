//! Calls that wait for a person, in the state of a session.

use yoi_wire::entry::{CallFrom, CallQuestion, Entry, PastQuestion, ToolAnswered, ToolAsked, ToolEnded};

use super::{LogState, OpenCall};

/// Questions that are remembered when nobody can answer them any more.
const MAX_PAST: usize = 64;
/// Characters of how a call ended without an answer.
const END_CHARS: usize = 200;

impl OpenCall {
    /// The question about it that nobody has answered.
    #[must_use]
    pub fn waiting(&self) -> Option<&CallQuestion> {
        self.question.as_ref().filter(|question| question.answer.is_none() && self.started.is_none())
    }
}

impl LogState {
    /// Calls that wait for a person, and the questions: those of the run in the order of the calls, then those that no model asked for.
    pub fn waiting(&self) -> impl Iterator<Item = (&OpenCall, &CallQuestion)> {
        let calls = self.open_calls.iter().chain(self.requested.iter().map(|requested| &requested.call));
        calls.filter_map(|call| call.waiting().map(|question| (call, question)))
    }

    /// Whether a run is open that goes on after a restart where it is, because of a call that waits for a person or has got its answer. A call of a program
    /// that is the agent does not: the program ends with the runtime.
    pub(super) fn waits_over_a_restart(&self) -> bool {
        let is_the_models = |question: &CallQuestion| question.asked.from == CallFrom::Model;
        let waits = |call: &OpenCall| call.started.is_none() && call.question.as_ref().is_some_and(is_the_models);
        self.open_run.as_ref().is_some_and(|run| run.ending.is_none()) && self.open_calls.iter().any(waits)
    }

    pub(super) fn ask(&mut self, asked: &ToolAsked, entry: &Entry) {
        let question = CallQuestion { seq: entry.seq, at: entry.at.clone(), asked: asked.clone(), answer: None };
        if asked.from == CallFrom::Engine {
            if let Some(call) = self.requested_call(&asked.call_id) {
                call.question = Some(question);
            }
            return;
        }
        // What a program's output tells of a call may come before its hook asks: the call has not begun then.
        let is_asked_about =
            |call: &&mut OpenCall| call.call_id == asked.call_id && (call.started.is_none() || asked.from == CallFrom::Hook);
        match self.open_calls.iter_mut().find(is_asked_about) {
            Some(call) => (call.question, call.started) = (Some(question), None),
            None => self.open_calls.push(OpenCall {
                call_id: asked.call_id.clone(),
                tool: asked.tool.clone(),
                request: None,
                started: None,
                question: Some(question),
            }),
        }
    }

    pub(super) fn answer(&mut self, answered: &ToolAnswered) {
        let calls = self.open_calls.iter_mut().chain(self.requested.iter_mut().map(|requested| &mut requested.call));
        let questions = calls.filter_map(|call| call.question.as_mut());
        let Some(question) = questions.into_iter().find(|question| question.seq == answered.asked) else { return };
        question.answer = Some(answered.answer.clone());
        if answered.answer.approved && answered.answer.always {
            self.always_approved.extend(question.asked.rules.iter().cloned());
        }
        self.remember(PastQuestion { seq: answered.asked, answer: Some(answered.answer.clone()), end: String::new() });
    }

    /// A call has ended. Its question, if nobody has answered it, can be answered no more.
    pub(super) fn close_question(&mut self, call: OpenCall, end: &ToolEnded) {
        if let Some(question) = call.question.filter(|question| question.answer.is_none()) {
            let end = end.output.chars().take(END_CHARS).collect();
            self.remember(PastQuestion { seq: question.seq, answer: None, end });
        }
    }

    fn remember(&mut self, past: PastQuestion) {
        self.past_questions.push_back(past);
        if self.past_questions.len() > MAX_PAST {
            self.past_questions.pop_front();
        }
    }
}
