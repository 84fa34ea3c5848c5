//! Whether a call of a tool may begin, as the log records it.

use serde::{Deserialize, Serialize};

/// Who asked for a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CallFrom {
    /// The model of the runtime's own loop.
    Model,
    /// A program, by its hook: it is about to run a tool of its own.
    Hook,
    /// A program, by its MCP client: it asks for a tool of Yoi's.
    Mcp,
    /// A person or a program, by the engine's API: no model asked for the call, and none reads its result.
    Engine,
    /// Somebody whom a newer version knows.
    #[serde(other)]
    Unknown,
}

/// Why a call was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum RefusalClass {
    /// A path leads out of the tree.
    SandboxViolation,
    /// A path is none, or is a loop of links.
    InvalidPath,
    /// There is no such tool.
    UnknownTool,
    /// The tool is there, and not for whoever asked, or the policy or the mode allows no call of it.
    ToolNotExposed,
    /// The policy does not allow the call.
    ToolDenied,
    /// A path is a file that may hold secrets.
    SensitivePathDenied,
    /// The policy does not allow a host or a scheme, or no host is named.
    NetworkDenied,
    /// The call sets variables that the policy does not name.
    EnvDenied,
    /// A person denied it, was not there in time, or cannot be asked.
    NotApproved,
    /// The arguments do not fit the tool, or were cut off.
    InvalidArgs,
    /// There is no such template of a sub-agent, or it has not what was asked for.
    SubagentDenied,
    /// As many sub-agents of the conversation work as may.
    SubagentQuota,
    /// No slot of the conversation or of the project came free in time, or there are as many background commands as there may be.
    SlotsFull,
    /// A class of a newer version.
    #[serde(other)]
    Unknown,
}

impl RefusalClass {
    /// The word with which the message for the model begins.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::SandboxViolation => "sandbox_violation",
            Self::InvalidPath => "invalid_path",
            Self::UnknownTool => "unknown_tool",
            Self::ToolNotExposed => "tool_not_exposed",
            Self::ToolDenied => "tool_denied",
            Self::SensitivePathDenied => "sensitive_path_denied",
            Self::NetworkDenied => "network_denied",
            Self::EnvDenied => "env_denied",
            Self::NotApproved => "not_approved",
            Self::InvalidArgs => "invalid_args",
            Self::SubagentDenied => "subagent_spawn_denied",
            Self::SubagentQuota => "subagent_quota_denied",
            Self::SlotsFull => "slots_full",
            Self::Unknown => "refused",
        }
    }
}

/// The decision about a call. A call that was allowed has it in its `ToolStarted`, and one that was refused in its `ToolEnded`. A call that began and was
/// then refused, as no slot came free or a path had changed, has both. What a program does without asking has none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallDecision {
    /// Who asked.
    pub from: CallFrom,
    /// Why it was refused; absent: it was allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<RefusalClass>,
    /// The rule of the policy that refused it, where one did; of a call that was allowed, the rule that had a person asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
}

impl CallDecision {
    /// The call may begin.
    #[must_use]
    pub fn allowed(from: CallFrom) -> Self {
        Self { from, refused: None, rule: None }
    }
}
