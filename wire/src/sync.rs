//! `yoiprojects/sync`: a working tree of a person's machine, as one commit in a git bundle of what the project's repository lacks of it.
//!
//! The body of a request is one part of the bundle, as `git bundle` writes it, with one name. Parts are sent in order, and each but the last one is of the
//! full length. The query says what it is. The project's status lists the parts that are there, so that a sender that was cut goes on with the next one.

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
    /// Of the whole bundle, in lower-case hex.
    pub sha256: String,
    /// Length of the whole bundle.
    pub bytes: usize,
    /// Which part the body is, from 0.
    pub part: usize,
    /// Of the body, in lower-case hex.
    pub part_sha256: String,
}

/// Answer of `POST yoiprojects/sync`. The same request again gets the same answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SyncResponse {
    /// The commit.
    pub commit: String,
    /// How many parts of the bundle are there.
    pub parts: usize,
    /// When the last one came, RFC 3339: from then on the commit counts. Absent while parts are missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received_at: Option<String>,
}
