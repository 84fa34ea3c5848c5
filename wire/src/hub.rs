//! Between runtime and gateway.
//!
//! The runtime dials `GET /v1/line` and then serves the paths in [`served`] on that connection; its own requests go to the paths in
//! [`asked`] over an ordinary connection. Both bear the projected token; the gateway derives the caller's name from the token alone.

use serde::{Deserialize, Serialize};

use crate::entry::AgentRef;

/// Paths that the gateway serves to runtimes.
pub mod gateway_api {
    /// Upgrade to a line.
    pub const LINE: &str = "/v1/line";
    /// `POST` [`super::Report`], answers [`super::ReportTaken`].
    pub const REPORT: &str = "/v1/report";
    /// `POST` `{}`, answers [`super::PodList`].
    pub const LIST_PODS: &str = "/v1/pods";
    /// `POST` [`super::SendToPeer`], answers [`super::Sent`] or [`super::Refusal`].
    pub const SEND: &str = "/v1/send";
}

/// Paths that a runtime serves on its line.
pub mod runtime_api {
    /// `GET ?after=<token>&follow=<bool>&tail=<n>`: NDJSON of [`crate::people::LogLine`].
    pub const LOG: &str = "/v1/log";
    /// `POST` [`super::Deliver`], answers [`super::Sent`] (also to a duplicate) or [`super::Refusal`]: 400 or 413 for a message that no inbox
    /// takes, 429 when it is full, 500 or 503 when the session cannot store it.
    pub const INBOX: &str = "/v1/inbox";
    /// `GET`: [`crate::people::Diff`].
    pub const DIFF: &str = "/v1/diff";
}

/// What the runtime last said of itself; the gateway writes it to `status`, on change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RuntimeReport {
    pub run_generation: u64,
    /// Replayed and locked.
    pub ready: bool,
    /// CamelCase; `Replayed` when ready, else SessionLocked, ReplayFailed, LogNewer, DiskFull, DiskFailed, SecretMissing, ModelUnreachable, Starting, Stopping.
    pub reason: String,
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionPointer>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskReport>,
    pub activity: Activity,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionPointer {
    pub id: String,
    pub segment: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Activity {
    Idle,
    Running,
}

impl Activity {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Activity::Idle => "Idle",
            Activity::Running => "Running",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskReport {
    pub id: String,
    pub state: TaskState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TaskState {
    Submitted,
    Running,
    Succeeded,
    Failed,
}

impl TaskState {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            TaskState::Submitted => "Submitted",
            TaskState::Running => "Running",
            TaskState::Succeeded => "Succeeded",
            TaskState::Failed => "Failed",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReportAccepted {
    /// The name under which the gateway knows the caller.
    pub agent: AgentRef,
}

/// Whom the caller may see.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodList {
    pub pods: Vec<VisiblePod>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VisiblePod {
    pub name: String,
    /// Why the caller sees it.
    pub reasons: Vec<VisibilityReason>,
    /// What seems reachable: a hint.
    pub live: bool,
    /// `Idle`, `Running`, or why it is not live: `Stopped`, `Unreachable`, or `Missing` when the agent that was joined is gone, even if a
    /// namesake took its place.
    pub state: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum VisibilityReason {
    #[serde(rename = "self")]
    Itself,
    Peer,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SendRequest {
    /// Name of a YoiPod of the caller's namespace.
    pub to: String,
    /// UUID; a repetition with the same id is delivered once.
    pub message_id: String,
    pub text: String,
}

/// What the gateway hands to the target's runtime.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeliverRequest {
    pub message_id: String,
    pub from: MessageSender,
    pub text: String,
}

/// Exactly one is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MessageSender {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentRef>,
    /// Authenticated user name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub person: Option<String>,
}

/// Durable at the receiver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SendResponse {
    pub message_id: String,
    /// True when this id had been taken before.
    #[serde(default)]
    pub duplicate: bool,
}

/// A request was understood and refused, or could not be carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "camelCase")]
#[error("{message}")]
pub struct Refusal {
    pub reason: RefusalReason,
    pub message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RefusalReason {
    /// No proof of identity, or it does not belong to a current agent's Pod.
    NotAnAgent,
    /// No such agent that the caller may see: a stranger and a name that nobody bears get the same answer.
    NotVisible,
    /// A YoiPeer names both, but does not join them now: it is not bound, not Ready or being deleted, or the agent it joined is gone or
    /// replaced by a namesake.
    NotAPeer,
    /// No live line to the target.
    Unreachable,
    InboxFull,
    Invalid,
    /// The receiver's disk or log refused it. It may be found there all the same once the disk works again; the same id makes another try safe.
    ReceiverFailed,
    /// It was handed over and not acknowledged: the receiver may have it. The same id makes another try safe.
    Unacknowledged,
}
