//! Calls that wait for a person: `GET yoipods/approval` lists them, and `POST yoipods/approval` answers one.
//!
//! Both go through the gateway to the runtime as they are; the gateway adds the authenticated user name in the header [`crate::control::USER_HEADER`].

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::entry::{Answer, CallFrom};

/// Bytes of a reason.
pub const MAX_BECAUSE: usize = 4096;

/// Answer of `GET yoipods/approval`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WaitingCalls {
    /// What waits, oldest first.
    pub calls: Vec<WaitingCall>,
}

/// A call that waits for a person.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WaitingCall {
    /// The conversation that it is of; absent: `main`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation: Option<String>,
    /// Its number: the sequence number of its question in the log.
    pub call: u64,
    /// Name of the tool.
    pub tool: String,
    /// The arguments.
    pub args: Value,
    /// Who asked for the call.
    pub from: CallFrom,
    /// The rules of the policy that want it asked.
    pub rules: Vec<String>,
    /// An answer can be remembered for these rules.
    pub can_be_remembered: bool,
    /// Since when it waits, RFC 3339.
    pub since: String,
    /// After how many seconds it is refused.
    pub seconds: u64,
}

/// Body of `POST yoipods/approval`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ApprovalRequest {
    /// Number of the call.
    pub call: u64,
    /// Whether it may run.
    pub approve: bool,
    /// So may every other call of this conversation that the same rules want asked.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub always: bool,
    /// Why. The model reads why a call was denied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
}

/// Answer of `POST yoipods/approval`: the answer that counts, which is the first one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalResponse {
    /// Number of the call.
    pub call: u64,
    /// What counts, and whose answer it is.
    pub answer: Answer,
    /// It had been answered before.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub repeated: bool,
}

/// Why no answer was taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApprovalRefusal {
    /// The call ended without an answer.
    #[error("{0}")]
    Over(String),
    /// No call of this number has waited.
    #[error("{0}")]
    Unknown(String),
    /// The request is none.
    #[error("{0}")]
    Invalid(String),
}
