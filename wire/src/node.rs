//! Between a Pod's runtime and its node's shim, over the Pod's own socket: HTTP/1.1 with JSON bodies.

use serde::{Deserialize, Serialize};

/// `GET`: [`ChangeList`] of the tree that this Pod mounts.
pub const CHANGES: &str = "/v1/changes";

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ChangeList {
    pub changes: Vec<ChangedPath>,
    /// True when there were more than the shim's limit.
    #[serde(default)]
    pub cut: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ChangedPath {
    /// Relative to the tree's root; bytes that are not UTF-8 are shown as U+FFFD.
    pub path: String,
    pub kind: ChangeType,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ChangeType {
    Added,
    Modified,
    Deleted,
}
