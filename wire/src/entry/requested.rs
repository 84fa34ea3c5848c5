//! Calls of tools that no model asked for.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{RefusalClass, Requester, ToolOutcome};

/// Somebody asks for a call of a tool, by the engine's API. The decision about it follows, as that about any other call. No model reads its result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolRequested {
    /// The call's id, which begins with `engine-`.
    pub call_id: String,
    /// Name of the tool.
    pub tool: String,
    /// Its arguments.
    pub args: Value,
    /// Who asked.
    pub by: Requester,
}

/// A call of [`ToolRequested`] that has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PastRequest {
    /// The call's id.
    pub call_id: String,
    /// Hex SHA-256 of who asked for what: another call with the same id is refused.
    pub digest: String,
    /// Sequence number of its `ToolEnded`.
    pub seq: u64,
    /// How it ended.
    pub outcome: ToolOutcome,
    /// Why it was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<RefusalClass>,
    /// What it returned; absent: its entry alone has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
}
