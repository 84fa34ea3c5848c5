//! A call about which the policy has a person asked, and the answer.

use serde::{Deserialize, Serialize};

use super::CallFrom;

/// A tool call waits for a person. Nothing of it runs before the answer is in the log. Durable before anybody is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolAsked {
    /// As in the [`super::ToolCall`].
    pub call_id: String,
    /// Name of the tool.
    pub tool: String,
    /// Who asked for the call.
    pub from: CallFrom,
    /// The rules of the policy that want it asked.
    pub rules: Vec<String>,
    /// The command cannot be read, so the rules are those that it may match. No answer to it is remembered.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unreadable: bool,
    /// After how many seconds without an answer the call is refused.
    pub seconds: u64,
}

/// A person has answered. A call is answered once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolAnswered {
    /// As in the [`super::ToolCall`].
    pub call_id: String,
    /// Sequence number of the [`ToolAsked`].
    pub asked: u64,
    /// What was answered.
    pub answer: Answer,
}

/// The answer of a person to a call that waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    /// The call may run.
    pub approved: bool,
    /// So may every other call of this conversation that the same rules want asked.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub always: bool,
    /// Why, in the person's words. The model reads why a call was denied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
    /// The person's authenticated user name.
    pub by: String,
}

/// A question about a call, and the answer once there is one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallQuestion {
    /// Sequence number of the [`ToolAsked`].
    pub seq: u64,
    /// When it was asked, as in [`super::Entry::at`].
    pub at: String,
    /// The question.
    pub asked: ToolAsked,
    /// The answer. The call has not begun yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<Answer>,
}

/// A question that nobody can answer any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PastQuestion {
    /// Sequence number of the [`ToolAsked`].
    pub seq: u64,
    /// The answer; absent: the call ended without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<Answer>,
    /// Of a call that ended without an answer: how, the first words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub end: String,
}
