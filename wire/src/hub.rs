//! Between runtime and gateway.
//!
//! The runtime dials `GET /v1/line` and then serves the paths in [`served`] on that connection; its own requests go to the paths in
//! [`gateway_api`] over an ordinary connection. Both carry the projected token; the gateway derives the caller's name from the token alone.

use serde::{Deserialize, Serialize};

use crate::entry::AgentRef;

mod refusal;
mod report;

pub use refusal::{Refusal, RefusalReason};
pub use report::{Activity, ReportReason, RuntimeReport, SessionPointer, TaskReport, TaskState};

/// Paths that the gateway serves to runtimes.
pub mod gateway_api {
    /// Upgrade to a line.
    pub const LINE: &str = "/v1/line";
    /// `POST` [`super::RuntimeReport`], answers [`super::ReportAccepted`].
    pub const REPORT: &str = "/v1/report";
    /// `POST` `{}`, answers [`super::PodList`].
    pub const LIST_PODS: &str = "/v1/pods";
    /// `POST` [`super::SendRequest`], answers [`super::SendResponse`] or [`super::Refusal`]: 413 for a message that is too long.
    pub const SEND: &str = "/v1/send";
    /// `POST` [`super::RestoreRequest`], answers [`super::RestoreResponse`] or [`super::Refusal`].
    pub const RESTORE: &str = "/v1/restore";
    /// `POST` [`crate::children::SpawnRequest`], answers [`crate::children::SpawnResponse`] or [`super::Refusal`].
    pub const SPAWN: &str = "/v1/children/spawn";
    /// `POST` [`crate::children::ReadRequest`], answers [`crate::children::ChildWords`] or [`super::Refusal`].
    pub const READ_CHILD: &str = "/v1/children/words";
    /// `POST` [`crate::children::DiffRequest`], answers [`crate::people::DiffResponse`] or [`super::Refusal`].
    pub const DIFF_CHILD: &str = "/v1/children/diff";
    /// `POST` [`crate::evidence::ChildLogRequest`], answers [`crate::evidence::ChildLog`] or [`super::Refusal`].
    pub const CHILD_LOG: &str = "/v1/children/log";
    /// `POST` [`crate::evidence::ChildStateRequest`], answers [`crate::evidence::ChildFacts`] or [`super::Refusal`].
    pub const CHILD_STATE: &str = "/v1/children/state";
    /// `POST` [`crate::merge::MergeRequest`], answers with a line with a [`crate::merge::MergeOrder`] and the child's work behind it, as
    /// [`crate::bundle`] describes, or [`super::Refusal`].
    pub const CHILD_WORK: &str = "/v1/children/work";
    /// `POST` [`super::SendRequest`] to an idle child, answers [`super::SendResponse`] or [`super::Refusal`].
    pub const SEND_CHILD: &str = "/v1/children/send";
    /// `POST` [`crate::children::WaitRequest`], answers [`crate::children::WaitResponse`] or [`super::Refusal`].
    pub const WAIT_CHILDREN: &str = "/v1/children/wait";
    /// `POST` [`crate::children::StopRequest`], answers [`crate::children::StopResponse`] or [`super::Refusal`].
    pub const STOP_CHILD: &str = "/v1/children/stop";
    /// `POST` [`crate::children::LoansRequest`], answers [`crate::children::LoansResponse`] or [`super::Refusal`].
    pub const LOANS: &str = "/v1/children/loans";
    /// `GET`, of the Pod that pushes an agent's commits alone: [`crate::push`] describes the answer, and another status comes with a sentence. 400, 409
    /// and 413 are answered the same way the next time.
    pub const PUSH: &str = "/v1/push";
}

/// Paths that a runtime serves on its line.
pub mod runtime_api {
    /// `GET ?after=<token>&follow=<bool>&tail=<n>`: NDJSON of [`crate::people::LogLine`].
    pub const LOG: &str = "/v1/log";
    /// `POST` [`super::DeliverRequest`], answers [`super::SendResponse`] (also to a duplicate) or [`super::Refusal`]: 400 or 413 for a message that no inbox
    /// takes, 429 when it is full, 500 or 503 when the session cannot store it.
    pub const INBOX: &str = "/v1/inbox";
    /// `GET` with [`crate::people::DiffQuery`]: [`crate::people::DiffResponse`].
    pub const DIFF: &str = "/v1/diff";
    /// `GET` with [`crate::people::PatchQuery`]: the agent's commits, or nothing; [`super::Refusal`] with 413 when they are too large.
    pub const PATCH: &str = "/v1/patch";
    /// `GET` with [`crate::bundle::BundleQuery`]: [`crate::bundle`] describes the answer; [`super::Refusal`] with 413 when it would be too long. `POST`
    /// [`crate::bundle::CommitRequest`], answers [`crate::bundle::CommitResponse`] or [`super::Refusal`]; a stopped agent's reader does not take it.
    pub const BUNDLE: &str = "/v1/bundle";
    /// `POST` of a line with a [`crate::merge::MergeOrder`], and of the other agent's work behind it: [`crate::merge::MergeOutcome`], or
    /// [`super::Refusal`]: 409 while a run is under way, and for a tree or a work that nothing can be merged into or from.
    pub const MERGE: &str = "/v1/merge";
    /// `POST` of [`crate::control::ControlRequest`], answered by [`crate::control::ControlResponse`].
    pub const CONTROL: &str = "/v1/control";
    /// `GET`: [`crate::approval::WaitingCalls`]. `POST` [`crate::approval::ApprovalRequest`], answers [`crate::approval::ApprovalResponse`] or
    /// [`super::Refusal`]: 400 for no request, 404 for a call that has never waited, 410 for one that ended without an answer.
    pub const APPROVAL: &str = "/v1/approval";
    /// `GET` with the query of [`LOG`]: an endless NDJSON stream of [`crate::control::AttachLine`].
    pub const ATTACH: &str = "/v1/attach";
    /// `GET`: [`crate::people::UsageResponse`].
    pub const USAGE: &str = "/v1/usage";
    /// `GET` with [`crate::assets::AssetsQuery`]: [`crate::assets::AssetsResponse`]. A stopped agent's reader answers it too. `POST`
    /// [`crate::assets::ReloadAssets`], answers [`crate::assets::ReloadedAssets`] or [`super::Refusal`]: 409 where strictness refuses them, or a program reads
    /// them itself.
    pub const ASSETS: &str = "/v1/assets";
    /// `GET`: the session's segments as they stand, as a tar archive. A stopped agent's reader answers it too.
    pub const EXPORT: &str = "/v1/export";
    /// `GET`: [`crate::conversation::ConversationList`], also of a stopped agent's reader. `POST` on the path of [`of_conversation`] with an empty rest
    /// starts one, and `DELETE` stops it; both answer [`crate::conversation::ConversationStatus`] or [`super::Refusal`]: 404 for one that is not there, 409
    /// for one that runs already or is one too many.
    pub const CONVERSATIONS: &str = "/v1/conversations";
    /// `POST` [`crate::fence::FenceRequest`], answers [`crate::fence::FenceResponse`], or [`super::Refusal`] with 400 for what is none. It takes seconds where
    /// processes have to be ended.
    pub const FENCE: &str = "/v1/fence";

    /// `GET` with [`crate::engine_api::EventsQuery`]: a stream of server-sent events, each a [`crate::signal::CloudEvent`] with its cursor as id. A stopped
    /// agent's reader answers it too, up to the end of the log. `POST` [`crate::engine_api::OutsideEvent`], answers [`crate::engine_api::EventTaken`] or
    /// [`super::Refusal`]: 400 for what is none, 409 when the conversation is in no state for it, 413, 429 when as many messages wait as may.
    pub const EVENTS: &str = "/v1/engine/events";
    /// `GET` of `/KEY` below it: what the log says in this form, JSON; [`super::Refusal`] with 404 for a key that is none. A stopped agent's reader answers
    /// it too.
    pub const PROJECTION: &str = "/v1/engine/projection";
    /// `GET`: [`crate::engine_api::ToolList`]. `POST` of `/TOOL` below it with [`crate::engine_api::RunTool`]: [`crate::engine_api::ToolRun`], or
    /// [`super::Refusal`]: 400 for what is no call, 429 when too many have not ended.
    pub const TOOLS: &str = "/v1/engine/tools";
    /// `GET`: [`crate::ssh::SshHost`]. `POST` with [`crate::ssh::SshQuery`]: a server of SSH, which reads the request's body and writes the answer's;
    /// [`super::Refusal`] with 400 for what is no key, 422 where the image has no server or no such user, 429 when as many run as may.
    pub const SSH: &str = "/v1/ssh";

    /// The path of [`LOG`], [`INBOX`], [`CONTROL`], [`APPROVAL`], [`ATTACH`], [`EXPORT`], [`EVENTS`], [`PROJECTION`] or [`TOOLS`] for one
    /// conversation. A runtime that knows one conversation only does not serve it, so nothing meant for another one reaches that.
    #[must_use]
    pub fn of_conversation(path: &str, name: &str) -> String {
        format!("{CONVERSATIONS}/{name}{}", path.strip_prefix("/v1").unwrap_or(path))
    }
}

/// The longest text of a message, in bytes.
pub const MAX_MESSAGE_TEXT: usize = 64 * 1024;
/// The longest body that can hold such a text, in bytes: JSON may escape one byte as six.
pub const MAX_MESSAGE_BODY: usize = 6 * MAX_MESSAGE_TEXT + 4096;

/// Why a message is not taken: its text has more bytes than [`MAX_MESSAGE_TEXT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the message's text has {bytes}, and {MAX_MESSAGE_TEXT} bytes are allowed; put the text into a file of the tree and name the file in the message", bytes = byte_count(*.bytes))]
pub struct MessageTooLong {
    /// How many bytes the text has. `None` when the request's body was longer than [`MAX_MESSAGE_BODY`] and was not read to its end.
    pub bytes: Option<usize>,
}

fn byte_count(bytes: Option<usize>) -> String {
    bytes.map_or_else(|| "more bytes than a request may carry".to_owned(), |bytes| format!("{bytes} bytes"))
}

/// Answer to a report.
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
    /// The caller and its peers.
    pub pods: Vec<VisiblePod>,
}

/// One agent that the caller may see.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VisiblePod {
    /// Name of the YoiPod.
    pub name: String,
    /// Why the caller sees it.
    pub reasons: Vec<VisibilityReason>,
    /// What seems reachable: a hint.
    pub live: bool,
    /// `Idle`, `Running`, `Paused`, `NeedsInput`, or why it is not live: `Stopped`, `Resting` until a message wakes it, `Unreachable`, or `Missing` when the
    /// agent that was joined is gone, even if a namesake took its place.
    pub state: String,
    /// Id of its session; absent while it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// Why it cannot be restored from its session once it has stopped; absent: it can, or a gateway of an earlier version does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_restorable: Option<String>,
}

/// A stopped agent to start again: a child or a peer of the caller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RestoreRequest {
    /// Name of the agent.
    pub name: String,
}

/// The agent is up again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RestoreResponse {
    /// The agent.
    pub agent: AgentRef,
    /// As [`VisiblePod::state`].
    pub state: String,
}

/// Why an agent is visible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum VisibilityReason {
    /// It is the caller.
    #[serde(rename = "self")]
    Itself,
    /// A YoiPeer joins both.
    Peer,
    /// The caller has started it.
    Child,
    /// It has started the caller.
    Parent,
}

/// A message of an agent to one of its peers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SendRequest {
    /// Name of a YoiPod of the caller's namespace.
    pub to: String,
    /// UUID; a repetition with the same id is delivered once.
    pub message_id: String,
    /// What the receiver's model reads.
    pub text: String,
    /// The receiver's conversation; absent: `main`. A child's is `main`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation: Option<String>,
}

/// What the gateway hands to the target's runtime.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeliverRequest {
    /// As the sender chose it.
    pub message_id: String,
    /// Who sent it, as the gateway authenticated it.
    pub from: MessageSender,
    /// What the receiver's model reads.
    pub text: String,
    /// An agent in whose conversation anything is under way refuses it as [`RefusalReason::AlreadyRunning`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub only_when_idle: bool,
    /// It starts no run and wakes nobody: the receiver's next run reads it. A runtime of an earlier version does not know that.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub weak: bool,
}

/// Who sent a message. Exactly one field is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MessageSender {
    /// Another agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentRef>,
    /// Authenticated user name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub person: Option<String>,
}

/// The message is durable at the receiver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SendResponse {
    /// The id of the message that is stored.
    pub message_id: String,
    /// True when this id had been taken before.
    #[serde(default)]
    pub duplicate: bool,
}
