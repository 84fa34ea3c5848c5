//! What an agent asks of the gateway about the log and the tree of a child, living or stopped: evidence, where [`crate::children`] has the child's words.
//!
//! The answers come from the child's log, its tree and its object. What cannot be read now is said beside what can, and is no error.

use serde::{Deserialize, Serialize};

use crate::entry::RunOutcome;
use crate::hub::{SessionPointer, TaskReport};

/// Entries of a child's log in one answer, at most.
pub const MAX_ENTRIES: u32 = 200;
/// The token before the first entry of a log.
pub const FROM_START: &str = "start";

/// A part of a child's log: what comes after a token, or the end of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ChildLogRequest {
    /// Name of the child.
    pub name: String,
    /// [`ChildLog::after`] of an earlier answer, or [`FROM_START`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// How many entries, [`MAX_ENTRIES`] at most: the first ones behind `after`, or the last ones of the log.
    pub entries: u32,
}

/// A part of a child's log, in words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ChildLog {
    /// The entries, oldest first. Those that only repeat earlier ones are left out.
    pub entries: Vec<LogText>,
    /// Where to read on; absent when nothing could be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// There is more to read now.
    #[serde(default)]
    pub more: bool,
    /// As [`crate::children::ChildWords::state`].
    pub state: String,
    /// Why nothing more could be read, or why the child is not Ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// An entry of a log in words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LogText {
    /// As [`crate::entry::Entry::seq`].
    pub seq: u64,
    /// As [`crate::entry::Entry::at`].
    pub at: String,
    /// Who did it, in one word.
    pub who: String,
    /// What. Of a long one begin and end.
    pub text: String,
}

/// How far a child is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ChildStateRequest {
    /// Name of the child.
    pub name: String,
}

/// What object, log and tree of a child say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ChildFacts {
    /// As [`crate::children::ChildWords::state`].
    pub state: String,
    /// Why it is not Ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Its task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskReport>,
    /// Run generation: how often it was started.
    pub starts: u64,
    /// Its session; absent while it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionPointer>,
    /// What its log says; absent when it cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<LogFacts>,
    /// Why the log cannot be read, or not to its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_unread: Option<String>,
    /// What its tree says; absent when it cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<TreeFacts>,
    /// Why the tree cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree_unread: Option<String>,
}

/// What the end of a log says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LogFacts {
    /// Position of the last entry.
    pub seq: u64,
    /// When it was written, as [`crate::entry::Entry::at`].
    pub at: String,
    /// The last run; absent when none began in the end of the log that was looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunFacts>,
}

/// The last run of a log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunFacts {
    /// Its id.
    pub run_id: String,
    /// How it ended; absent while it is under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<RunOutcome>,
    /// Why it did not finish, as [`crate::entry::RunEnded::reason`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// What the repository in the root of a tree says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TreeFacts {
    /// The commit that is checked out; absent in a repository without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// The commit of the project that the tree was made from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
    /// Commits since then.
    pub commits: u64,
    /// What is not committed.
    pub uncommitted: crate::bundle::Uncommitted,
}
