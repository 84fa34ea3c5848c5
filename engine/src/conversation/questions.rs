//! Calls that wait for a person: the question, the answer, and what follows from it.
//!
//! A question is an entry of the log, and so is its answer. A call waits while the log has the one and not the other, over restarts too. After the answer the
//! policy is asked again, and the begin of an approved call is logged like that of any other.

use serde_json::Value;
use yoi_session::fold::OpenCall;
use yoi_wire::approval::{ApprovalRefusal, ApprovalRequest, ApprovalResponse, MAX_BECAUSE, WaitingCall};
use yoi_wire::entry::{Answer, Body, CallDecision, CallFrom, CallQuestion, RefusalClass, ToolAnswered, ToolAsked, ToolEnded, ToolOutcome};

use super::{AskId, ConversationState, Intent};
use crate::decision::Question;

/// Bytes of a call's arguments as a person is shown them.
const MAX_ARGS_BYTES: usize = 16 << 10;

/// An answer to a question, or why it is none.
pub type ApprovalResult = Result<ApprovalResponse, ApprovalRefusal>;

/// The entry by which a call begins to wait.
pub(super) fn asked(call_id: &str, tool: &str, from: CallFrom, question: &Question) -> Body {
    let Question { rules, unreadable, seconds } = question.clone();
    Body::ToolAsked(ToolAsked { call_id: call_id.to_owned(), tool: tool.to_owned(), from, rules, unreadable, seconds })
}

/// The end of a call that nobody approved.
pub(super) fn not_approved(call_id: &str, asked: &ToolAsked, why: &str) -> Body {
    let rule = asked.rules.first().cloned();
    Body::ToolEnded(ToolEnded {
        call_id: call_id.to_owned(),
        outcome: ToolOutcome::Refused,
        output: format!("{}: the call did not run: {why}", RefusalClass::NotApproved.word()),
        images: Vec::new(),
        millis: None,
        decision: Some(CallDecision { from: asked.from, refused: Some(RefusalClass::NotApproved), rule }),
        read: None,
    })
}

pub(super) fn denial(answer: &Answer) -> String {
    match answer.because.as_deref().map(str::trim).filter(|because| !because.is_empty()) {
        Some(because) => format!("{} denied it: {because}", answer.by),
        None => format!("{} denied it", answer.by),
    }
}

/// The arguments as a person is shown them.
fn shown_args(args: &Value) -> Value {
    let text = args.to_string();
    if text.len() <= MAX_ARGS_BYTES {
        return args.clone();
    }
    let head = text.get(..text.floor_char_boundary(MAX_ARGS_BYTES)).unwrap_or_default();
    serde_json::json!({ "cut": head, "note": format!("cut: the arguments have {} bytes", text.len()) })
}

impl ConversationState {
    /// The calls that wait for a person, oldest first.
    #[must_use]
    pub fn waiting_calls(&self) -> Vec<WaitingCall> {
        let shown = |(call, question): (&OpenCall, &CallQuestion)| {
            let ToolAsked { call_id: _, tool, from, rules, unreadable, seconds } = question.asked.clone();
            let args = call.request.as_ref().map_or(Value::Null, |request| shown_args(&request.args));
            let can_be_remembered = !unreadable;
            WaitingCall {
                conversation: None,
                call: question.seq,
                tool,
                args,
                from,
                rules,
                can_be_remembered,
                since: question.at.clone(),
                seconds,
            }
        };
        let mut calls: Vec<WaitingCall> = self.log.waiting().map(shown).collect();
        calls.sort_by_key(|call| call.call);
        calls
    }

    /// Whether the person's answer to an earlier question lets the call begin.
    pub(super) fn is_approved(&self, call: &OpenCall, question: &Question) -> bool {
        let answered = call.question.as_ref().filter(|asked| asked.answer.as_ref().is_some_and(|answer| answer.approved));
        answered.is_some_and(|asked| question.is_answered_with(&asked.asked)) || question.is_covered_by(&self.log.always_approved)
    }

    /// Logs the end of the calls that a person has denied. False: there are none.
    pub(super) fn end_denied_calls(&mut self, intents: &mut Vec<Intent>) -> bool {
        let denied = self.log.open_calls.iter().filter(|call| call.started.is_none()).filter_map(|call| {
            let question = call.question.as_ref()?;
            let answer = question.answer.as_ref().filter(|answer| !answer.approved)?;
            Some(not_approved(&call.call_id, &question.asked, &denial(answer)))
        });
        let bodies: Vec<Body> = denied.collect();
        let are_some = !bodies.is_empty();
        if are_some {
            self.append(bodies, intents);
        }
        are_some
    }

    /// Nobody has answered in time.
    pub(super) fn take_expiry(&mut self, seq: u64, intents: &mut Vec<Intent>) {
        let Some((call, question)) = self.log.waiting().find(|(_, question)| question.seq == seq) else { return };
        let why = format!("nobody answered within {} s whether it may", question.asked.seconds);
        let body = not_approved(&call.call_id, &question.asked, &why);
        self.append(vec![body], intents);
    }

    /// A person answers. The answer that counts is told once it is in the log.
    pub(super) fn take_approval(&mut self, ask: AskId, user: String, request: ApprovalRequest, intents: &mut Vec<Intent>) {
        match self.answered(user, &request) {
            Ok(body) => {
                self.answering.push((ask, request.call));
                self.append(vec![body], intents);
            }
            Err(result) => intents.push(Intent::AnswerApproval { ask, result }),
        }
    }

    /// The entry of an answer; or what is told at once.
    fn answered(&self, user: String, request: &ApprovalRequest) -> Result<Body, ApprovalResult> {
        let ApprovalRequest { call: seq, approve, always, because } = request.clone();
        let refuse = |refusal| Err(Err(refusal));
        if because.as_ref().is_some_and(|because| because.len() > MAX_BECAUSE) {
            return refuse(ApprovalRefusal::Invalid(format!("a reason has at most {MAX_BECAUSE} bytes")));
        }
        if always && !approve {
            return refuse(ApprovalRefusal::Invalid("only an approval can be remembered; a rule of the policy denies for good".to_owned()));
        }
        if let Some(past) = self.log.past_questions.iter().rev().find(|past| past.seq == seq) {
            return match &past.answer {
                Some(answer) => Err(Ok(ApprovalResponse { call: seq, answer: answer.clone(), repeated: true })),
                None => refuse(ApprovalRefusal::Over(format!("call {seq} is over: {}", past.end))),
            };
        }
        let Some((call, question)) = self.log.waiting().find(|(_, question)| question.seq == seq) else {
            return refuse(ApprovalRefusal::Unknown(format!("no call {seq} waits for an answer; see kubectl yoi approvals")));
        };
        let is_of_run = question.asked.from != CallFrom::Engine;
        if is_of_run && self.ending.as_ref().is_some_and(|ending| ending.cancel) {
            return refuse(ApprovalRefusal::Over(format!("call {seq} is over: its run is being cancelled")));
        }
        if always && question.asked.unreadable {
            let why = "its command cannot be read, so no answer to it can be remembered; approve it alone, or deny it";
            return refuse(ApprovalRefusal::Invalid(format!("call {seq}: {why}")));
        }
        let answer = Answer { approved: approve, always, because, by: user };
        Ok(Body::ToolAnswered(ToolAnswered { call_id: call.call_id.clone(), asked: seq, answer }))
    }

    /// Tells those whose answer is in the log by now.
    pub(super) fn confirm_answers(&mut self, intents: &mut Vec<Intent>) {
        for (ask, seq) in std::mem::take(&mut self.answering) {
            let past = self.log.past_questions.iter().rev().find(|past| past.seq == seq);
            match past.and_then(|past| past.answer.clone()) {
                Some(answer) => {
                    let result = Ok(ApprovalResponse { call: seq, answer, repeated: false });
                    intents.push(Intent::AnswerApproval { ask, result });
                }
                None => self.answering.push((ask, seq)),
            }
        }
    }
}
