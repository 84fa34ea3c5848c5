//! What of an agent's tree counts as skills, commands and workflows, as `yoipods/assets` answers it.

use serde::{Deserialize, Serialize};

use crate::hub::is_zero;

/// Answer of `yoipods/assets`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AssetsResponse {
    /// How often the agent's process has read them; 1 where they were read for this answer, as of an agent that has stopped.
    pub generation: u64,
    /// Equal where nothing has changed.
    pub digest: String,
    /// In the order in which the first of a name wins, those that do not count among them.
    pub assets: Vec<Asset>,
    /// What was found wrong or was taken leniently.
    pub diagnostics: Vec<AssetDiagnostic>,
    /// Assets and diagnostics that are not here, because there are too many.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out: u32,
}

/// One of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Asset {
    /// `Skill`, `Command` or `Workflow`.
    pub kind: String,
    /// By which it is called.
    pub name: String,
    /// As its file has it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Its file, relative to the root.
    pub path: String,
    /// Whose folder it is in, such as `.claude`.
    pub source: String,
    /// `Valid`, `Invalid`, `Shadowed` or `Disabled`.
    pub state: String,
    /// Why it does not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The line of its file that is wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// What a command takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub argument_hint: Option<String>,
    /// Its `allowed-tools`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed_tools: Vec<String>,
    /// Whether the model may use it by itself.
    pub for_model: bool,
    /// Whether people may use it by `/name`.
    pub for_people: bool,
}

/// What was found about a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AssetDiagnostic {
    /// The file, relative to the root.
    pub path: String,
    /// Its line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// `Error`, `Warning` or `Note`.
    pub level: String,
    /// A sentence.
    pub message: String,
}
