//! Between people (through the API server) and the gateway, and on to the runtime.

use serde::{Deserialize, Serialize};

use crate::entry::Entry;

/// API group of the aggregated API.
pub const GROUP: &str = "runtime.yoi.dev";
/// Its version.
pub const VERSION: &str = "v1alpha1";

/// One line of `yoipods/log`: NDJSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LogLine {
    /// Where to go on reading: `?after=<token>`.
    pub token: String,
    /// The entry of the log.
    pub entry: Entry,
}

/// Body of `POST yoipods/message`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PersonMessage {
    /// UUID of the sender's choice; a repetition is delivered once.
    pub message_id: String,
    /// What the agent reads.
    pub text: String,
}

/// Answer of `yoipods/diff`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DiffResponse {
    /// Against git's HEAD, unified; absent where the tree is no git work tree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Paths that differ from the sealed base, by the node's change list, without git's own files.
    pub paths: Vec<crate::node::ChangedPath>,
    /// Why the node knows no base to compare the tree with; `paths` is empty then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_base: Option<String>,
    /// True when `text` or `paths` was cut at its limit.
    #[serde(default)]
    pub cut: bool,
    /// Whether `text` was; absent in the answer of an older runtime.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text_cut: Option<bool>,
    /// Whether `paths` was; absent in the answer of an older runtime.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paths_cut: Option<bool>,
}
