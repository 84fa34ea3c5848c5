//! The chain of segments: heads, and what is carried from one to the next.
//!
//! A session is a chain of segments. Each head names the segment before it; names and clocks mean nothing. A segment of format 1 has no
//! head: it is the first of its session.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::answer::{TokenUsage, ToolCall};
use super::asked::{CallQuestion, PastQuestion};
use super::control::{ModeSwitched, Requester};
use super::prompt::PromptItem;
use super::requested::PastRequest;
use super::{ReadPosition, RunOutcome};
use crate::control::ControlResponse;
use crate::hub::TaskState;

/// Head of a segment. In the first segment of a session it follows `SessionStarted`; in every other it is the first entry.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SegmentStarted {
    /// Place in the session, from 1.
    pub number: u64,
    /// [`super::FORMAT`] of the runtime that began it.
    pub format: u32,
    /// The segment before; absent in the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<SegmentLink>,
    /// Why it began.
    pub reason: SegmentReason,
    /// What the model is given beside the conversation, from here on.
    pub config: AgentConfig,
}

/// The segment before, as far as it belongs to the session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SegmentLink {
    /// Its name, a UUID.
    pub segment: String,
    /// Its last entry. Lines after it are not of the session: another writer put them there.
    pub last_seq: u64,
    /// Hex SHA-256 of the line of that entry, without its newline.
    pub digest: String,
}

/// Why a segment began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SegmentReason {
    /// The session began.
    SessionStarted,
    /// The segment before was of an older format.
    Upgraded,
    /// The segment before reached its size.
    Full,
    /// The conversation was compacted.
    Compacted,
    /// Another writer had appended to the segment before.
    ForeignAppend,
}

/// What the model is given beside the conversation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentConfig {
    /// The system prompt in blocks: what the runtime and the agent's owner say; then the tree's instructions, date, platform and git state.
    pub system: Vec<String>,
    /// The tools as the model is offered them.
    pub tools: Vec<OfferedTool>,
    /// The model and its options.
    pub model: ModelConfig,
    /// Hex SHA-256 of the manifest that this was formed from.
    #[serde(default)]
    pub manifest_digest: String,
}

/// A tool as the model is offered it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OfferedTool {
    /// Name of the tool.
    pub name: String,
    /// What it does, for the model.
    pub description: String,
    /// The JSON Schema of the arguments, always of an object.
    pub schema: Value,
}

/// The model and its options, as requests carry them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelConfig {
    /// The wire format, as in [`super::Assistant::api`].
    pub api: String,
    /// The model's name, as written in the spec.
    pub name: String,
    /// The most tokens of one answer; absent: the endpoint's own limit, or the format's where it demands one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<u32>,
    /// How much to reason, in the endpoint's word; absent: nothing is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effort: Option<String>,
}

/// The configuration is another one from here on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfigChanged {
    /// The new one.
    pub config: AgentConfig,
}

/// What of the segments before still counts. The first of a segment has the state, as far as one line has room for it; the others add to the
/// state. All of them together have the items.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Carried {
    /// The state after the segments before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<Box<CarriedState>>,
    /// More of the state. A runtime that does not know this field goes on without it: the state has the latest ids.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub more: Option<Box<CarriedMore>>,
    /// What the model goes on with, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub items: Vec<CarriedItem>,
}

/// An item that the model goes on with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CarriedItem {
    /// Sequence number of the entry that it comes from; for results, of the first one.
    pub seq: u64,
    /// Whether it was an input or a message, to which the conversation can be turned back.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rewindable: bool,
    /// The item.
    pub item: PromptItem,
}

/// What the line of a [`CarriedState`] has no room for. It adds to what the lines before it have.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CarriedMore {
    /// More ids, as in [`CarriedState::delivered`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub delivered: BTreeMap<String, u64>,
    /// More tasks.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tasks: BTreeMap<String, CarriedTask>,
    /// More tool calls that have not ended. They were asked for after those of the lines before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub open_calls: Vec<CarriedCall>,
}

/// The state of a session at the end of a segment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CarriedState {
    /// Ids of the inputs and messages so far that are remembered, each with the sequence number of its entry: the latest of them.
    pub delivered: BTreeMap<String, u64>,
    /// The tasks so far that are remembered, by id.
    #[serde(default)]
    pub tasks: BTreeMap<String, CarriedTask>,
    /// Ids of the inputs and messages that no answer has followed, oldest first.
    #[serde(default)]
    pub unanswered: Vec<String>,
    /// The run that has begun and not ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_run: Option<CarriedRun>,
    /// Tool calls that have not ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub open_calls: Vec<CarriedCall>,
    /// Calls that no model asked for and that have not ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requested: Vec<CarriedRequest>,
    /// Such calls that have ended, the latest of them, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub past_requested: Vec<PastRequest>,
    /// Causes of a run that was interrupted and that no run has taken over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interrupted: Option<Vec<String>>,
    /// The last requests of people and their answers, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<AnsweredRequest>,
    /// Rules of the policy whose questions a person has answered for the whole conversation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub always_approved: Vec<String>,
    /// Questions about calls that nobody can answer any more, the latest of them, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub past_questions: Vec<PastQuestion>,
    /// The mode that a person has set last, as its entry has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<ModeSwitched>,
    /// How far the words of other agents were read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub read: Vec<ReadPosition>,
    /// Tokens of all calls so far.
    #[serde(default)]
    pub tokens: TokenUsage,
    /// Where the program that is the agent stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<CarriedProgram>,
}

/// Where a program that is the agent stands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CarriedProgram {
    /// The program's own session id, once it has answered in that session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// Sequence number of its last answer: what stands before it was given to the program.
    #[serde(default)]
    pub answered: u64,
    /// What was said and done, the latest of it, oldest first: what a program is told that has lost its own session.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<String>,
    /// When it last began a new session because the former one was lost, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_lost_at: Option<String>,
}

/// A task and how far it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CarriedTask {
    /// How far it is.
    pub state: TaskState,
    /// Why it failed, as in [`super::RunEnded::reason`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A run that has begun and not ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CarriedRun {
    /// As in its `RunStarted`.
    pub run_id: String,
    /// Ids of the messages that started it.
    pub cause: Vec<String>,
    /// Sequence number of its `RunStarted`.
    pub seq: u64,
    /// Number of its model calls so far.
    #[serde(default)]
    pub turns: u32,
    /// It is paused.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
    /// How it ends, when a person has ended it and its `RunEnded` is not in the log yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ending: Option<RunOutcome>,
    /// Tokens of its calls so far.
    #[serde(default)]
    pub tokens: TokenUsage,
}

/// A tool call that has not ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CarriedCall {
    /// The call as the model asked for it.
    pub call: ToolCall,
    /// Sequence number of its `ToolStarted`; absent when it has not begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<u64>,
    /// No answer in the log asks for it: id and tool come from its `ToolStarted`, and the arguments are not known.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub only_started: bool,
    /// What a person is asked about it, or has answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<CallQuestion>,
}

/// A request of a person that has its answer: the same id gets the same answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AnsweredRequest {
    /// Hex SHA-256 of the request's user and content: another request with the same id is refused.
    pub digest: String,
    /// The answer, with the request's id.
    pub response: ControlResponse,
}

/// A call of [`super::ToolRequested`] that has not ended, as a segment carries it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CarriedRequest {
    /// The call.
    pub call: CarriedCall,
    /// Who asked.
    pub by: Requester,
}
