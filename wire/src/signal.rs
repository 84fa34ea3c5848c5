//! Signals: what an agent's log says, as events of CloudEvents 1.0 in their JSON format.
//!
//! # Guarantees
//! Each is made of one entry of the log, but for those of [`DELTA_TYPE`]. So whoever asks again gets the same events with the same ids, and an id that was seen before is the same event.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The version of CloudEvents.
pub const SPEC_VERSION: &str = "1.0";
/// The media type of [`CloudEvent::data`].
pub const DATA_TYPE: &str = "application/json";

/// All types of signals that the log has. Programs must ignore a type that they do not know: later versions have more.
pub const TYPES: [&str; 49] = [
    "conversation.assistant.message",
    "conversation.cancel",
    "conversation.compaction.completed",
    "conversation.compaction.failed",
    "conversation.compaction.started",
    "conversation.config.changed",
    "conversation.execution.degraded",
    "conversation.execution.started",
    "conversation.llm.completed",
    "conversation.llm.failed",
    "conversation.llm.usage",
    "conversation.mode.switch.accepted",
    "conversation.peer.message",
    "conversation.queue.overflow",
    "conversation.rewound",
    "conversation.rolled_back",
    "conversation.run.closed",
    "conversation.run.interrupted",
    "conversation.run.opened",
    "conversation.run.resumed",
    "conversation.started",
    "conversation.subagent.completed",
    "conversation.subagent.failed",
    "conversation.subagent.started",
    "conversation.subagent.stopped",
    "conversation.tool.completed",
    "conversation.tool.failed",
    "conversation.tool.requested",
    "conversation.tool.timeout",
    "conversation.user.message",
    "policy.allowed",
    "policy.answered",
    "policy.asked",
    "policy.denied",
    "project.assets_loaded",
    "project.assets_reload_failed",
    "project.assets_reloaded",
    "project.ssh.closed",
    "project.ssh.opened",
    "project.started",
    "project.stopped",
    "security.env_denied",
    "security.network_denied",
    "security.repeated_timeout_failures",
    "security.sandbox_exception_used",
    "security.sandbox_violation",
    "security.sensitive_path_denied",
    "security.subagent.quota_denied",
    "security.subagent.spawn_denied",
];

/// The type of a piece of an answer that is not in the log yet. Only who asks for such gets them, and nobody gets one again.
pub const DELTA_TYPE: &str = "conversation.assistant.delta";

/// One event. The attributes after [`Self::data`] are extensions, whose names the format wants in lower case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CloudEvent {
    /// [`SPEC_VERSION`].
    pub specversion: String,
    /// `SESSION/SEQ` of the entry that it is made of, or `SESSION/SEQ/N` where that entry has several. Unique everywhere.
    pub id: String,
    /// The agent, as `/namespaces/NAMESPACE/yoipods/NAME`.
    pub source: String,
    /// One of [`TYPES`].
    #[serde(rename = "type")]
    pub kind: String,
    /// Name of the conversation.
    pub subject: String,
    /// When the entry was written, RFC 3339.
    pub time: String,
    /// [`DATA_TYPE`].
    pub datacontenttype: String,
    /// What happened, as the log has it. Long texts are cut, and say so.
    pub data: Value,
    /// UUID of the session.
    pub session: String,
    /// Id of the event that this one follows from, where the log says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub causeid: Option<String>,
    /// The run that it belongs to, where it belongs to one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runid: Option<String>,
    /// Where to go on after this event: `after` of the next request.
    pub cursor: String,
}
