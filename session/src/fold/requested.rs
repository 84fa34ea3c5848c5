//! Calls that no model asked for, in the state of a session.
//!
//! What is logged of them says that the engine's API asked. So a call of a model or a program that has the same id is another call.

use serde_json::Value;
use sha2::{Digest, Sha256};
use yoi_wire::entry::{Body, CallDecision, CallFrom, CarriedRequest, PastRequest, Requester, ToolCall, ToolEnded, ToolRequested};

use super::carried::{carried_call, restored_call};
use super::{LogState, OpenCall};

/// Calls that are remembered when they have ended.
const MAX_PAST: usize = 64;
/// Bytes of what they returned that are remembered.
const MAX_OUTPUT_BYTES: usize = 512 << 10;

/// A call that no model asked for and that has not ended.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestedCall {
    /// The call.
    pub call: OpenCall,
    /// Who asked.
    pub by: Requester,
}

impl RequestedCall {
    /// Names who asked for what.
    #[must_use]
    pub fn digest(&self) -> String {
        let args = self.call.request.as_ref().map_or(&Value::Null, |call| &call.args);
        request_digest(&self.by.user, &self.call.tool, args)
    }

    pub(super) fn carried(&self) -> CarriedRequest {
        CarriedRequest { call: carried_call(&self.call), by: self.by.clone() }
    }

    pub(super) fn restored(carried: &CarriedRequest) -> Self {
        Self { call: restored_call(&carried.call), by: carried.by.clone() }
    }
}

/// Hex SHA-256 of who asked for what.
#[must_use]
pub fn request_digest(user: &str, tool: &str, args: &Value) -> String {
    hex::encode(Sha256::digest(format!("{user}\0{tool}\0{args}")))
}

/// Whether the decision is about a call by the engine's API.
pub(super) fn is_of_engine(decision: Option<&CallDecision>) -> bool {
    decision.is_some_and(|decision| decision.from == CallFrom::Engine)
}

impl LogState {
    pub(super) fn request(&mut self, requested: &ToolRequested) {
        let ToolRequested { call_id, tool, args, by } = requested.clone();
        let request = Some(ToolCall { call_id: call_id.clone(), tool: tool.clone(), args });
        self.requested.push(RequestedCall { call: OpenCall { call_id, tool, request, started: None, question: None }, by });
    }

    pub(super) fn requested_call(&mut self, call_id: &str) -> Option<&mut OpenCall> {
        self.requested.iter_mut().map(|requested| &mut requested.call).find(|call| call.call_id == call_id)
    }

    pub(super) fn start_requested(&mut self, call_id: &str, seq: u64) {
        if let Some(call) = self.requested_call(call_id) {
            call.started = Some(seq);
        }
    }

    pub(super) fn end_requested(&mut self, end: &ToolEnded, seq: u64) {
        let Some(at) = self.requested.iter().position(|requested| requested.call.call_id == end.call_id) else { return };
        let requested = self.requested.remove(at);
        let past = PastRequest {
            call_id: end.call_id.clone(),
            digest: requested.digest(),
            seq,
            outcome: end.outcome,
            refused: end.decision.as_ref().and_then(|decision| decision.refused),
            output: Some(end.output.clone()),
        };
        self.past_requested.push_back(past);
        if self.past_requested.len() > MAX_PAST {
            self.past_requested.pop_front();
        }
        let mut room = MAX_OUTPUT_BYTES;
        for past in self.past_requested.iter_mut().rev() {
            past.output.take_if(|output| output.len() > room);
            room = past.output.as_ref().map_or(room, |output| room - output.len());
        }
        self.close_question(requested.call, end);
    }

    /// The ends of those that had begun, or were about to, when the last runtime died. One that a person is asked about, or has answered, stays open.
    pub(super) fn requested_recovery(&self) -> impl Iterator<Item = Body> {
        let ended = self.requested.iter().map(|requested| &requested.call).filter(|call| call.started.is_some() || call.question.is_none());
        ended.map(|call| call.end_by_stop(Some(CallDecision::allowed(CallFrom::Engine))))
    }
}
