//! The engine's calls over the cluster: `yoipods/proxy/engine/...`.

use serde::{Deserialize, Serialize};

use crate::entry::OfferedTool;

/// The subresource. API servers do not end its requests after a minute.
pub const SUBRESOURCE: &str = "proxy";
/// What stands after the subresource, before the words of a call.
pub const PREFIX: &str = "engine";

/// The keys of projections that this version knows. An agent of a newer version may have more.
pub const PROJECTIONS: [&str; 4] = ["timeline", "llm_context", "diagnostics", "pending_tool_calls"];

/// Which conversation a call is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConversationQuery {
    /// Absent: `main`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation: Option<String>,
}

/// Which events are asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventsQuery {
    /// Go on with what comes.
    #[serde(default)]
    pub follow: bool,
    /// Those after this [`crate::signal::CloudEvent::cursor`]. Absent: from the first one on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// Those of the last so many entries of the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tail: Option<usize>,
}

/// The tools that an agent's model is offered: of a program, those of Yoi's that the program is offered.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolList {
    /// In the order in which they are offered.
    pub tools: Vec<OfferedTool>,
}
