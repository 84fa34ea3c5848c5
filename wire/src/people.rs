//! Between people (through the API server) and the gateway, and on to the runtime.

use serde::{Deserialize, Serialize};

use crate::entry::Entry;
use crate::open::named_values;

/// API group of the aggregated API.
pub const GROUP: &str = "runtime.yoi.dev";
/// Its version.
pub const VERSION: &str = "v1alpha1";

/// The most entries that `tail` gives. A larger number gives as many.
pub const MAX_LOG_TAIL: usize = 1000;

/// What a refused request waits for, when the same request may succeed soon: the reason of the cause in the refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitsFor {
    /// The Pod that reads for an agent that has stopped.
    Reader,
    /// The agent's line to a gateway that has just started.
    Line,
    /// The agent, which rested and is being woken.
    Wake,
}

named_values!(WaitsFor: Reader = "ReaderStarting", Line = "LineStarting", Wake = "AgentWaking");

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

/// Answer of `yoipods/usage`: what an agent has used of its model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UsageResponse {
    /// What the agent does; `Stopped` of one that has stopped.
    pub activity: crate::open::Open<crate::hub::Activity>,
    /// Tokens over the agent's life.
    pub total: crate::entry::TokenUsage,
    /// Tokens of the run under way, or of the last one.
    pub run: crate::entry::TokenUsage,
    /// Model calls of that run.
    pub turns: u32,
    /// `spec.limits.tokens`; absent when there is no limit, and of an agent that has stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// Commands of the agent that run in the background.
    #[serde(default, skip_serializing_if = "crate::zero::is_zero")]
    pub background: u32,
}

/// What `yoipods/diff?since=…` compares the tree with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DiffSince {
    /// The commit of the base that the tree was made from: all that the agent has changed, committed or not.
    #[default]
    Base,
    /// HEAD: what is not committed.
    Commit,
}

named_values!(DiffSince: Base = "base", Commit = "commit");

/// Query of `yoipods/diff`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiffQuery {
    /// The base when absent.
    #[serde(default)]
    pub since: DiffSince,
}

/// Form of the commits in the answer of `yoipods/patch?format=…`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PatchFormat {
    /// `git format-patch`: one mail per commit, without merges; `git am` applies them.
    #[default]
    Mail,
    /// `git bundle`: the commits themselves under the name HEAD; `git fetch FILE HEAD` reads it.
    Bundle,
}

named_values!(PatchFormat: Mail = "mail", Bundle = "bundle");

/// Query of `yoipods/patch`. The answer's body is empty when there are no commits since the base.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PatchQuery {
    /// Mail when absent.
    #[serde(default)]
    pub format: PatchFormat,
}

/// Answer of `yoipods/diff`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DiffResponse {
    /// Unified, with untracked files; absent where the tree is no git work tree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Why there is no `text`, although the tree holds git's files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_text: Option<String>,
    /// Repositories below the root of the tree that `text` does not show.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inner_repositories: Vec<crate::bundle::InnerRepository>,
    /// The commit that `text` is the difference from; absent in a repository without commits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compared_with: Option<String>,
    /// The commit of the tree's base, where the node knows it. `text` is against HEAD all the same if the repository does not have it any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
    /// Paths that differ from the sealed base, by the node's change list, without git's own files.
    pub paths: Vec<crate::node::ChangedPath>,
    /// Directories that are too deep to look into, at most ten; `paths` lacks what is in them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub too_deep: Vec<String>,
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
