//! A child's work merged into its parent's tree: what is asked of the gateway and of the runtime, and what became of it.
//!
//! The work travels as [`crate::bundle`] describes, with `work=true`: the child's commits and what it has not committed, under the name [`WORK`].

use serde::{Deserialize, Serialize};

use crate::entry::AgentRef;

/// The only name in a bundle of an agent's work.
pub const WORK: &str = "refs/yoi/work";
/// Paths and conflicts that [`MergeOutcome`] names, of each.
pub const MAX_MERGE_PATHS: usize = 500;
/// Bytes of the longest [`MergeOrder`], its newline included.
pub const MAX_ORDER: usize = 4096;

/// Body of `POST /v1/children/work`: a child whose work is to be merged into the caller's tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MergeRequest {
    /// Name of the child.
    pub name: String,
    /// Nothing is written.
    #[serde(default)]
    pub dry_run: bool,
    /// Who is right about lines that both have changed.
    #[serde(default)]
    pub strategy: MergeStrategy,
}

/// Body of `POST yoipods/merge`: merges the work of another agent of the namespace into this one's tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PersonMerge {
    /// Name of the agent whose work is merged.
    pub from: String,
    /// Nothing is written.
    #[serde(default)]
    pub dry_run: bool,
    /// Who is right about lines that both have changed.
    #[serde(default)]
    pub strategy: MergeStrategy,
}

/// Who is right about lines that both trees have changed, each in its own way. What one has deleted and the other changed is a conflict all the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MergeStrategy {
    /// Nobody: they are a conflict.
    #[default]
    Stop,
    /// The tree that is merged into.
    Ours,
    /// The tree that is merged.
    Theirs,
}

/// The first line of what is merged. The gateway writes it, so that nobody else says whose work it is. The answer of `yoipods/bundle` with `work=true` follows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MergeOrder {
    /// Whose work follows.
    pub from: AgentRef,
    /// Nothing is written.
    pub dry_run: bool,
    /// Who is right about lines that both have changed.
    pub strategy: MergeStrategy,
}

/// What became of a merge: all of it, or nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MergeOutcome {
    /// The commit that was merged; absent when the other agent has changed nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// Nothing was written: `paths` are what would be.
    #[serde(default)]
    pub dry_run: bool,
    /// Why nothing was merged; empty when all was. At most [`MAX_MERGE_PATHS`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conflicts: Vec<MergeConflict>,
    /// How many there are.
    #[serde(default)]
    pub conflict_count: u64,
    /// The paths of the tree that are others now. At most [`MAX_MERGE_PATHS`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<MergedPath>,
    /// How many there are.
    #[serde(default)]
    pub path_count: u64,
    /// What did not come with it, or what the next merge lacks: sentences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

impl MergeOutcome {
    /// Of a merge whose conflicts and paths are all given: as many are named as fit, and all are counted.
    #[must_use]
    pub fn new(commit: String, dry_run: bool, conflicts: Vec<MergeConflict>, paths: Vec<MergedPath>, notes: Vec<String>) -> Self {
        let (conflict_count, path_count) = (conflicts.len() as u64, paths.len() as u64);
        let (mut conflicts, mut paths) = (conflicts, paths);
        conflicts.truncate(MAX_MERGE_PATHS);
        paths.truncate(MAX_MERGE_PATHS);
        Self { commit: Some(commit), dry_run, conflicts, conflict_count, paths, path_count, notes }
    }
}

/// A path that was merged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MergedPath {
    /// Relative to the root of the tree. Bytes that are not UTF-8 are shown as U+FFFD.
    pub path: String,
    /// `Added`, `Changed` or `Deleted`.
    pub change: String,
}

/// A path that could not be merged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MergeConflict {
    /// As [`MergedPath::path`].
    pub path: String,
    /// What is wrong with it: the kind in git's words, or a sentence.
    pub why: String,
}
