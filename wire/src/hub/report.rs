//! What a runtime reports of itself.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::assets::AssetsReport;
use crate::open::{Open, named_values};
use crate::zero::is_zero;

/// What a runtime reports of itself. The gateway writes it to `status` when it changes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RuntimeReport {
    /// Run generation of the Pod.
    pub run_generation: u64,
    /// The session is locked and replayed, and the agent can work.
    pub ready: bool,
    /// `Replayed` when ready. A newer runtime may report a CamelCase word that this version does not know.
    pub reason: Open<ReportReason>,
    /// A sentence for people.
    pub message: String,
    /// The session that is open, once it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionPointer>,
    /// The task of the spec, once it is submitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskReport>,
    /// What the agent does. A newer runtime may report a CamelCase word that this version does not know.
    pub activity: Open<Activity>,
    /// The highest run generation that the session volume has seen, when that is why the volume refuses this Pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_run_generation: Option<u64>,
    /// What the node's kernel lacks of the frame of the agent's processes, a sentence for people; empty: it has all of it. A runtime of an earlier version
    /// does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// Whether the agent's processes are in a frame at all. On a node without one the reader of a stopped agent runs no git.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub has_frame: Option<bool>,
    /// Whether the agent's image has git, which its diff, its commits and its push are read with while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub has_git: Option<bool>,
    /// Of an agent that is a program: that its version is none of those that its preset names, a sentence for people with the versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// Of an agent that is a program: that it has lost its own session and began another one, a sentence for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program_session: Option<String>,
    /// Skills, commands and workflows that count, and errors in their files; absent: there are none, and nobody has said how they are read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assets: Option<AssetsReport>,
    /// How many commands of the agent run in the background, beside what [`Self::activity`] says.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub background: u32,
    /// Names of the conversations beside `main` that run, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conversations: Vec<String>,
    /// How many calls of tools were refused since the report that was taken last, by [`crate::entry::RefusalClass`]. A report whose answer was lost comes again
    /// with them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub refused_calls: BTreeMap<String, u64>,
}

/// A session and its current segment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionPointer {
    /// UUID of the session.
    pub id: String,
    /// UUID of the segment that is written now.
    pub segment: String,
}

/// What an agent does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Activity {
    /// It waits for input.
    Idle,
    /// A run is under way.
    Running,
    /// A run is under way, and a person has paused it.
    Paused,
    /// A run is under way, and a call of it waits for a person.
    NeedsInput,
}

named_values!(Activity: Idle = "Idle", Running = "Running", Paused = "Paused", NeedsInput = "NeedsInput");

/// A task and its state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskReport {
    /// As in the manifest.
    pub id: String,
    /// How far it is. A newer runtime may report a CamelCase word that this version does not know.
    pub state: Open<TaskState>,
    /// Of a failed task: why, as in [`crate::entry::RunEnded::reason`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// How far a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TaskState {
    /// It is in the log, and no run has begun.
    Submitted,
    /// Its run is under way.
    Running,
    /// Its run finished.
    Succeeded,
    /// Its run failed or reached its limit.
    Failed,
}

named_values!(TaskState: Submitted = "Submitted", Running = "Running", Succeeded = "Succeeded", Failed = "Failed");

/// Why a runtime is ready, or is not. `yoi_crds::reason` has a reason of the same name for the condition Ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReportReason {
    /// The session is locked and replayed: the only reason of a runtime that is ready.
    Replayed,
    /// The runtime starts.
    Starting,
    /// The runtime was told to stop.
    Stopping,
    /// The agent goes to rest: its inbox is closed, nothing waits in it, and its Pod is wanted no more. Nothing follows on it from the same Pod.
    Resting,
    /// Another runtime holds the session volume.
    SessionLocked,
    /// The session cannot be replayed: it is damaged or missing.
    ReplayFailed,
    /// A newer version wrote the session.
    LogNewer,
    /// The session volume was to be empty, and is not.
    SessionNotEmpty,
    /// The session volume is full.
    DiskFull,
    /// The session volume refuses reads or writes.
    DiskFailed,
    /// The Secret with the model's key, or the key in it, is missing.
    SecretMissing,
    /// The model endpoint does not answer.
    ModelUnreachable,
    /// The model endpoint wants something of a person: another key, credit, a quota, other settings.
    ModelRefused,
    /// The model endpoint refuses the conversation as it stands.
    ModelRefusedHistory,
    /// The program that is the agent is not in its image.
    ProgramMissing,
    /// The preset that a ConfigMap of the user's holds is none.
    PresetInvalid,
    /// The program does not speak the wire format of its model.
    ModelFormatNotSpoken,
}

named_values!(ReportReason:
    Replayed = "Replayed",
    Starting = "Starting",
    Stopping = "Stopping",
    Resting = "Resting",
    SessionLocked = "SessionLocked",
    ReplayFailed = "ReplayFailed",
    LogNewer = "LogNewer",
    SessionNotEmpty = "SessionNotEmpty",
    DiskFull = "DiskFull",
    DiskFailed = "DiskFailed",
    SecretMissing = "SecretMissing",
    ModelUnreachable = "ModelUnreachable",
    ModelRefused = "ModelRefused",
    ModelRefusedHistory = "ModelRefusedHistory",
    ProgramMissing = "ProgramMissing",
    PresetInvalid = "PresetInvalid",
    ModelFormatNotSpoken = "ModelFormatNotSpoken",
);
