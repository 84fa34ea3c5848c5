//! `yoiprojects/sync`: a working tree of a person's machine, as one commit in a git bundle of what the project's repository lacks of it.
//!
//! The body of the request is the bundle, as `git bundle` writes it, with one name. The query says what it is.

use serde::{Deserialize, Serialize};

/// Query of `POST yoiprojects/sync`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SyncQuery {
    /// Name of the machine. Each has a ref of its own.
    pub machine: String,
    /// The commit that the bundle holds.
    pub commit: String,
    /// The commit of this machine that came last when this one was captured; absent when none had come. Another one in its place means that a newer state
    /// is there, and this one is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<String>,
    /// When the tree was captured, RFC 3339.
    pub captured_at: String,
    /// Of the bundle, in lower-case hex.
    pub sha256: String,
}

/// Answer of `POST yoiprojects/sync`. The commit counts; the same request again gets the same answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SyncResponse {
    /// The commit.
    pub commit: String,
    /// When it came, RFC 3339.
    pub received_at: String,
}
