//! What the operator and the gateway say of a YoiPod.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use yoi_wire::hub::{Activity, ReportReason, TaskState};
use yoi_wire::open::Open;

use super::{EndedStatus, LoanStatus, PushStatus, RestStatus};
use crate::assets::AssetsStatus;
use crate::condition::Condition;

/// Highest run generation: names that are made of it stay DNS labels.
pub const MOST_RUNS: i64 = 999_999_999;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct YoiPodStatus {
    /// Operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Operator: raised for every Pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = MOST_RUNS))]
    pub run_generation: Option<i64>,
    /// Operator: the manifest of the current or last Pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manifest: Option<ManifestRef>,
    /// Operator: what calls of its tools may do, by the last valid policy of spec and project together; JSON. Absent while nobody has named one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// Operator: the Pod that is this agent now. Identity of the runtime.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<PodRef>,
    /// Operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<WorkspaceRef>,
    /// Operator: of an agent that works in its parent's tree, how its loan stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loan: Option<Box<LoanStatus>>,
    /// Operator: the claim of the session volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_claim_name: Option<String>,
    /// Gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionRef>,
    /// Gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskStatus>,
    /// Gateway: a hint with an age.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub live: Option<LiveHint>,
    /// Gateway: the runtime's last report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<LastReport>,
    /// Gateway: the agent's last rest, and what ended it. Absent when it has never rested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rest: Option<Box<RestStatus>>,
    /// Operator: since when nothing runs the agent, because its task is done or its lifetime is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Box<EndedStatus>>,
    /// Operator: the agent that has started this one, as long as it is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Box<ParentRef>>,
    /// Operator: how many agents this one has started that are there; absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub children: Option<i32>,
    /// Of a stopped agent: the Pod that people read its session and tree by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reader: Option<ReaderStatus>,
    /// Of the agent's commits to a branch of the project's repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub push: Option<Box<PushStatus>>,
    /// Operator: Accepted, PolicyValid, WorkspaceReady, SessionReady, ScopeEnforced, AssetsLoaded, ProgramKnown, ManifestCurrent, TaskComplete, ReaderReady, Pushed, Ending, Ready.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    #[schemars(length(max = 16))]
    pub conditions: Vec<Condition>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ManifestRef {
    /// A ConfigMap.
    pub name: String,
    /// Hex SHA-256 of its content.
    pub digest: String,
}

/// The agent that another one hangs under.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ParentRef {
    pub name: String,
    pub uid: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PodRef {
    pub name: String,
    pub uid: String,
}

/// The Pod that serves log, diff and patch of an agent that has stopped. It reads and never writes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReaderStatus {
    /// Gateway: when somebody last asked for one, up to a minute late. The Pod is wanted for two minutes from then on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_at: Option<String>,
    /// Operator: the Pod, while there is one. Identity of the reader.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<PodRef>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceRef {
    pub name: String,
    /// UID of the workspace whose tree the session is about, once that tree was made. It stays when the workspace is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionRef {
    pub id: String,
    pub segment: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskStatus {
    pub id: String,
    /// Submitted, Running, Succeeded or Failed.
    pub state: Open<TaskState>,
    /// Why it failed: Cancelled, Truncated, Refused, ContentFilter, ContextFull, LimitReached, ModelRefusedHistory, EmptyAnswer, WrittenCall, CommandInvalid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub reason: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LiveHint {
    #[serde(rename = "podUID")]
    pub pod_uid: String,
    /// Idle, Running, Paused or NeedsInput: a call waits for a person.
    pub activity: Open<Activity>,
    /// Commands of the agent that run in the background, beside that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub background: Option<i32>,
    /// Names of its conversations beside `main` that run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(max = 63)))]
    pub conversations: Vec<String>,
    pub observed_at: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LastReport {
    #[serde(rename = "podUID")]
    pub pod_uid: String,
    pub run_generation: i64,
    pub ready: bool,
    pub reason: Open<ReportReason>,
    #[schemars(length(max = 1024))]
    pub message: String,
    /// The highest run generation that the session volume has seen, when it refuses this Pod for its lower one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_run_generation: Option<i64>,
    /// What the node's kernel lacks of the frame of the agent's processes; empty: nothing; absent: the runtime does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub scope: Option<String>,
    /// Whether the agent's processes are in a frame at all; absent: the runtime does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub has_frame: Option<bool>,
    /// Whether the agent's image has git; absent: the runtime does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub has_git: Option<bool>,
    /// Of an agent that is a program: that its version is none of those that its preset names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub program: Option<String>,
    /// Of an agent that is a program: that it has lost its own session and began another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub program_session: Option<String>,
    /// Its skills, commands and workflows; absent: there are none, and its project says nothing of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assets: Option<Box<AssetsStatus>>,
}
