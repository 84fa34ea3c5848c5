//! Calls that wait for a person, in an attached terminal.

use yoi_wire::approval::{ApprovalRequest, ApprovalResponse};
use yoi_wire::entry::{Body, CallFrom, Entry};

use super::{AttachState, Effect};

/// A call that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Its number.
    seq: u64,
    call_id: String,
    tool: String,
    unreadable: bool,
    is_apart: bool,
}

impl AttachState {
    pub(super) fn record_question(&mut self, entry: &Entry) {
        match &entry.body {
            Body::ToolAsked(asked) => {
                let (call_id, tool) = (asked.call_id.clone(), asked.tool.clone());
                let is_apart = asked.from == CallFrom::Engine;
                self.questions.push(Question { seq: entry.seq, call_id, tool, unreadable: asked.unreadable, is_apart });
                self.ask();
            }
            Body::ToolAnswered(answered) => self.end_questions(|question| question.seq == answered.asked),
            Body::ToolEnded(ended) => self.end_questions(|question| question.call_id == ended.call_id),
            // A call that no model asked for is none of the run's.
            Body::RunEnded(_) => self.end_questions(|question| !question.is_apart),
            _ => {}
        }
    }

    /// The oldest question is over, or another one: the next is asked.
    fn end_questions(&mut self, is_over: impl Fn(&Question) -> bool) {
        let before = self.questions.len();
        self.questions.retain(|question| !is_over(question));
        if self.questions.len() < before {
            self.notice = None;
            self.ask();
        }
    }

    fn ask(&mut self) {
        let Some(Question { seq, tool, unreadable, .. }) = self.questions.first() else { return };
        let always = if *unreadable { "" } else { " a it and all like it," };
        let text = format!("call {seq} of {tool} waits for you: y lets it run,{always} n REASON refuses it");
        self.warn(text);
    }

    /// What a typed text answers to the oldest call that waits; `None`: it is no answer, or nothing waits.
    pub(super) fn typed_answer(&self, text: &str) -> Option<Effect> {
        let call = self.questions.first()?.seq;
        let (word, rest) = text.trim().split_once(char::is_whitespace).unwrap_or((text.trim(), ""));
        let yes = ApprovalRequest { call, approve: true, always: false, because: None };
        let request = match (word, rest.trim()) {
            ("y" | "yes", "") => yes,
            ("a" | "always", "") => ApprovalRequest { always: true, ..yes },
            ("n" | "no", because) => {
                let because = (!because.is_empty()).then(|| because.to_owned());
                ApprovalRequest { approve: false, because, ..yes }
            }
            _ => return None,
        };
        Some(Effect::Answer(request))
    }

    pub(super) fn call_answered(&mut self, answer: Result<ApprovalResponse, String>) {
        match answer {
            // The entry of the log tells it.
            Ok(ApprovalResponse { repeated: false, .. }) => {}
            Ok(ApprovalResponse { call, answer, repeated: true }) => {
                let what = if answer.approved { "approved" } else { "denied" };
                self.warn(format!("{} {what} call {call} before, and the first answer counts", answer.by));
            }
            Err(why) => self.warn(why),
        }
    }
}
