//! What the model reads beside inputs and answers, and how a long conversation becomes a short one.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::answer::{Assistant, Image, TokenUsage};
use super::control::Requester;

/// Something that the runtime tells the model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SystemItem {
    /// What it is about, in one CamelCase word: Interrupted, Truncated, Summary.
    pub topic: String,
    /// What the text was formed from.
    #[serde(default)]
    pub data: Value,
    /// The very text that the model reads.
    pub text: String,
}

/// One message of a request to the model. An entry becomes at most one item.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PromptItem {
    /// An input, a peer's message or a system item.
    User(String),
    /// An answer.
    Assistant(Box<Assistant>),
    /// All results of the calls of one answer. Anthropic's API takes them only in one message.
    Results(Vec<PromptToolResult>),
}

/// What a tool call gave back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PromptToolResult {
    /// As in the [`super::ToolCall`].
    pub call_id: String,
    /// Name of the tool.
    pub tool: String,
    /// What the model reads.
    pub output: String,
    /// The tool did not do what it was asked.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub failed: bool,
    /// Pictures beside the output.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<Image>,
}

/// Why the conversation is compacted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CompactionReason {
    /// It passed `spec.compaction.at` tokens.
    Threshold,
    /// The endpoint said that it is too long.
    TooLong,
    /// A person asked for it.
    Requested,
}

/// The model is asked for a summary: the conversation so far, then the instruction, and no tools.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CompactionStarted {
    /// Why.
    pub reason: CompactionReason,
    /// What the model is asked, as the last message of the request.
    pub instruction: String,
    /// The summary stands for everything before this sequence number; what follows is kept as it is.
    pub keep_from_seq: u64,
    /// Who asked for it; absent when nobody did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Requester>,
}

/// How a compaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CompactionOutcome {
    /// The summary is used: the next segment carries it.
    Used,
    /// The summary was empty, longer than what it replaces, or called tools.
    Rejected,
    /// The model gave none.
    Failed,
}

/// The end of a compaction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CompactionEnded {
    /// How it ended.
    pub outcome: CompactionOutcome,
    /// The summary as the model wrote it.
    pub summary: String,
    /// Tokens of the call; absent when the endpoint did not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<TokenUsage>,
    /// Why it is not used, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}
