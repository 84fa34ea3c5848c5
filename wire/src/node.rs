//! Between a Pod's runtime and its node's shim, over the Pod's own socket: HTTP/1.1 with JSON bodies.

use serde::{Deserialize, Serialize};

/// `GET`: [`ChangeList`] of the tree that this Pod mounts.
pub const CHANGES: &str = "/v1/changes";

/// What differs between a tree and the base that it was made from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ChangeList {
    /// Sorted by path.
    pub changes: Vec<ChangedPath>,
    /// The commit of the base; absent where the base is not from git, or the tree has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_revision: Option<String>,
    /// True when something was left out: there were more than the shim's limit, or `too_deep` is not empty.
    #[serde(default)]
    pub cut: bool,
    /// Directories more than 256 levels deep, at most ten. They may be listed themselves; what is in them is not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub too_deep: Vec<String>,
}

/// One path that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ChangedPath {
    /// Relative to the tree's root; bytes that are not UTF-8 are shown as U+FFFD.
    pub path: String,
    /// All bytes of a path that is not UTF-8, in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_hex: Option<String>,
    /// How it differs.
    pub kind: ChangeType,
}

/// How a path of a tree differs from its base.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ChangeType {
    /// Only the tree has it.
    Added,
    /// Both have it, with another content, type or mode.
    Modified,
    /// Only the base has it.
    Deleted,
}
