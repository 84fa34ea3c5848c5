//! What an agent asks of the gateway about its children: agents that it starts, each in a fork of its tree, or in paths of the tree itself that are lent to it.
//!
//! The gateway knows by token and UID who asks. A name that the caller has not started gets one answer, whether or not an agent bears it.

use serde::{Deserialize, Serialize};

use crate::entry::{AgentRef, ReadPosition};
use crate::people::DiffSince;

/// The longest task of a child, in bytes: as long as a message may be.
pub const MAX_TASK_TEXT: usize = crate::hub::MAX_MESSAGE_TEXT;

/// A child to start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SpawnRequest {
    /// Name of the new YoiPod, in the caller's namespace.
    pub name: String,
    /// What the child is given once.
    pub task: String,
    /// UUID. A repetition with the same id makes nothing, and has the same answer.
    pub request_id: String,
    /// Paths of the caller's own tree that the child works in, instead of in a fork. The caller does not write there until they are back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<Vec<SharedPath>>,
    /// The folder in which the child's commands start, relative to the tree. It allows nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Name of one of the caller's templates of sub-agents: the child is as narrow as that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
}

/// A path that is lent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedPath {
    /// Relative to the tree; `.` is the whole tree.
    pub path: String,
    /// What the child may do there.
    pub access: SharedAccess,
    /// Whether that holds for all below the path. If not, it holds for the path and the files in it.
    #[serde(default = "yes")]
    pub recursive: bool,
}

fn yes() -> bool {
    true
}

/// What a child may do in a path that is lent to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SharedAccess {
    /// Read. That closes the path to nobody.
    Read,
    /// Write, and read.
    Write,
}

/// The child is there. Whether it is up, its words and its state say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SpawnResponse {
    /// The child.
    pub agent: AgentRef,
    /// An earlier request with this id had made it.
    #[serde(default)]
    pub duplicate: bool,
    /// The loan by which it works in the caller's tree; absent when it has a fork.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loan: Option<String>,
}

/// Which paths of the caller's tree are lent. What the caller's log has as back is forgotten.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LoansRequest {
    /// Ids of loans whose return stands in the caller's log.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub returned: Vec<String>,
}

/// The loans of the caller's tree, in the order in which they were made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LoansResponse {
    /// Those that are out, and those that are back and not forgotten.
    pub loans: Vec<LentPaths>,
}

/// A loan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LentPaths {
    /// Its id.
    pub loan: String,
    /// Name of the child.
    pub holder: String,
    /// The paths that the child may write, and the caller may not meanwhile.
    pub paths: Vec<String>,
    /// The caller has them back.
    #[serde(default)]
    pub back: bool,
    /// Why the loan ended, where it did not end with the child's work: its last words, if it never came up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// The words of a child that come after a position.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReadRequest {
    /// Name of the child.
    pub name: String,
    /// How far it was read. One of another agent that had the name counts for nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<ReadPosition>,
}

/// What a child has said: the texts of its answers, never reasoning or calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ChildWords {
    /// The texts, oldest first, an empty line between two.
    pub text: String,
    /// Where to read on; as it was asked for when nothing could be read, and absent when nothing was ever read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<ReadPosition>,
    /// There is more to read now.
    #[serde(default)]
    pub more: bool,
    /// As [`crate::hub::VisiblePod::state`]; `Starting` of one that is idle because it has not taken up its task yet.
    pub state: String,
    /// Why nothing could be read, or why the child is not Ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// What a child has changed in its tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DiffRequest {
    /// Name of the child.
    pub name: String,
    /// What the tree is compared with.
    #[serde(default)]
    pub since: DiffSince,
}

/// A child to stop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StopRequest {
    /// Name of the child.
    pub name: String,
}

/// The child's desired state is Stopped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StopResponse {
    /// The child.
    pub agent: AgentRef,
    /// It was so before.
    #[serde(default)]
    pub duplicate: bool,
}

/// The most children that one request waits for.
pub const MAX_WAITED: usize = 100;
/// The longest that the gateway lets one request wait, in seconds.
pub const MAX_WAIT_SECONDS: u64 = 20;

/// Children to wait for, until they have nothing to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WaitRequest {
    /// Names of children.
    pub names: Vec<String>,
    /// Until all of them have nothing to do; else until one has not.
    #[serde(default)]
    pub all: bool,
    /// For so long, and at most [`MAX_WAIT_SECONDS`].
    pub seconds: u64,
}

/// How the children are. A hint: what they have done, their words and their trees say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WaitResponse {
    /// What was waited for has come.
    pub met: bool,
    /// The children, in the order of the request.
    pub children: Vec<WaitedChild>,
}

/// How a child is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WaitedChild {
    /// Its name.
    pub name: String,
    /// As [`ChildWords::state`]; `Missing` when it was deleted meanwhile.
    pub state: String,
    /// Why it is not Ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// Whether a child in this state does nothing until somebody does something about it.
#[must_use]
pub fn has_nothing_to_do(state: &str) -> bool {
    matches!(state, "Idle" | "NeedsInput" | "Paused" | "Resting" | "Stopped" | "Missing")
}
