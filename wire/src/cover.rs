//! Mounts over paths of a tree, by which the node shows a Pod what its agent may do there. The operator decides them, and the node's shim lays them.

use serde::{Deserialize, Serialize};

/// One mount over a path of a tree, in the view of one Pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Cover {
    /// Relative to the tree; `.` is its root.
    pub path: String,
    /// What is seen there and below, until another cover.
    pub shown: Shown,
    /// What is seen there instead if the path is no folder. Absent: the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shown_file: Option<Shown>,
    /// What is seen instead in each folder directly below that has no cover of its own. Absent: the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folders: Option<Shown>,
}

/// What a cover shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Shown {
    /// The path as it is, to be written.
    Writable,
    /// The path as it is, to be read.
    ReadOnly,
    /// Nothing: an empty folder, or an empty file.
    Hidden,
}
