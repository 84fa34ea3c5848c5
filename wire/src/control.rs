//! What people ask of a running agent, and what they see of it while it works: `POST yoipods/control` and `GET yoipods/attach`.
//!
//! Both go through the gateway to the runtime as they are; the gateway adds the authenticated user name in the header [`USER_HEADER`].

use serde::{Deserialize, Serialize};

use crate::entry::{Entry, TokenUsage};
use crate::hub::Activity;
use crate::mode::Mode;

/// Header of the gateway's request to the runtime: the authenticated user name of the person. Percent signs and all bytes that are not printable
/// ASCII are percent-encoded.
pub const USER_HEADER: &str = "x-yoi-user";
/// The longest line of an attach stream or answer of a control request that a client has to take, in bytes.
pub const MAX_ATTACH_LINE: usize = 24 << 20;
/// Unread deltas after which an attached client is told [`AttachLine::Behind`] and cut off.
pub const MAX_UNREAD_DELTAS: usize = 256;

/// The most parts of one input.
pub const MAX_INPUT_PARTS: usize = 16;

/// Body of `POST yoipods/control`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ControlRequest {
    /// The client's id for it, a UUID. The same request with the same id gets the same answer and has its effect once.
    pub id: String,
    /// What is asked.
    pub action: ControlAction,
}

/// What a person asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "type", deny_unknown_fields)]
pub enum ControlAction {
    /// Start a run with this text. A newer client may send `parts`, too: at most [`MAX_INPUT_PARTS`] objects, each with a `type`. A version that does not
    /// know a type puts a placeholder in the place of the part, and the answer says so.
    #[serde(rename_all = "camelCase")]
    Run {
        /// What the model reads.
        text: String,
    },
    /// End model call and tools, and wait.
    Pause {},
    /// Go on.
    Resume {},
    /// End the run.
    Cancel {},
    /// Set the mode of the conversation, which counts from the next run on.
    #[serde(rename_all = "camelCase")]
    SetMode {
        /// The mode.
        mode: Mode,
        /// Cancel a run that is under way or paused for it. Else the request is refused then.
        #[serde(default)]
        force: bool,
    },
    /// Compact the conversation.
    Compact {},
    /// Make a YoiPeer of this agent and another, if the person may.
    #[serde(rename_all = "camelCase")]
    RegisterPeer {
        /// Name of the other agent.
        peer: String,
    },
    /// List the inputs that the conversation can be turned back to.
    RewindTargets {},
    /// Hide everything from one input on.
    #[serde(rename_all = "camelCase")]
    RewindTo {
        /// Segment that the list came from.
        segment: String,
        /// Sequence number of the input.
        seq: u64,
        /// Last sequence number when the list was made. Another one now is HeadChanged.
        head: u64,
    },
}

/// Answer of `POST yoipods/control`. Exactly one of `done` and `refused` is set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ControlResponse {
    /// The request's id.
    pub id: String,
    /// It was carried out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub done: Option<ControlDone>,
    /// It was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<ControlRefusal>,
}

/// What a request brought about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ControlDone {
    /// A sentence for people.
    pub message: String,
    /// Of RewindTo and a pause or cancel that rolled back: the input, handed back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<String>,
    /// Of RewindTo: tool calls that may have changed the tree and whose effects remain, as people read them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remaining_effects: Vec<String>,
    /// Of RewindTargets: what the conversation can be turned back to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rewind: Option<RewindTargets>,
}

/// What a conversation can be turned back to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RewindTargets {
    /// The segment.
    pub segment: String,
    /// Last sequence number of the log.
    pub head: u64,
    /// Inputs, oldest first.
    pub inputs: Vec<RewindTarget>,
}

/// An input that the conversation can be turned back to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RewindTarget {
    /// Its sequence number.
    pub seq: u64,
    /// Its first 200 characters.
    pub text: String,
}

/// Why a request was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "camelCase")]
#[error("{message}")]
pub struct ControlRefusal {
    /// For programs.
    pub reason: ControlReason,
    /// For people.
    pub message: String,
}

/// Why a request was not carried out, for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ControlReason {
    /// A run is under way.
    AlreadyRunning,
    /// No run is under way.
    NotRunning,
    /// No run is paused.
    NotPaused,
    /// A run is paused.
    Paused,
    /// The log has grown since the list was made, or is in another segment.
    HeadChanged,
    /// The request is not one, its id was used for another, or its sequence number is none of the list.
    Invalid,
    /// The agent cannot run: its session or model is not usable.
    NotReady,
    /// The program that is the agent cannot do it.
    NotSupported,
    /// The gateway refused or did not answer.
    Failed,
    /// A reason of a newer version.
    #[serde(other)]
    Unknown,
}

/// One line of `GET yoipods/attach`: NDJSON. The first is a greeting, whatever the client asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "type")]
pub enum AttachLine {
    /// The first line.
    #[serde(rename_all = "camelCase")]
    Greeting {
        /// UUID of the session.
        session: String,
        /// UUID of the segment that is written.
        segment: String,
        /// What the agent does.
        activity: Activity,
        /// Tokens over the agent's life.
        tokens: TokenUsage,
    },
    /// An entry of the log, in order, each once.
    #[serde(rename_all = "camelCase")]
    Entry {
        /// To go on after this entry.
        token: String,
        /// The entry.
        entry: Box<Entry>,
    },
    /// More of a block that is not in the log yet. What stands before `offset` came before, or in an earlier stream.
    #[serde(rename_all = "camelCase")]
    Delta(Delta),
    /// What the agent does has changed.
    #[serde(rename_all = "camelCase")]
    Activity {
        /// What it does now.
        activity: Activity,
        /// Tokens over the agent's life.
        tokens: TokenUsage,
    },
    /// The log goes on in another segment.
    #[serde(rename_all = "camelCase")]
    Rotated {
        /// UUID of the new segment.
        segment: String,
    },
    /// The client reads too slowly. It may attach again after the last token it has.
    Behind {},
    /// The stream ends because the runtime stops, or closes its session.
    Ended {},
    /// A line of a newer version.
    #[serde(other)]
    Unknown,
}

/// More of a block that is not in the log yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Delta {
    /// Which block. A block ends with the entry that holds it, or with [`DeltaKind::Discarded`].
    pub block: u64,
    /// What kind.
    pub kind: DeltaKind,
    /// Of a tool call or output: the call's id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<String>,
    /// Of a tool call or output: the tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// Bytes of the block before this text.
    pub offset: u64,
    /// The text.
    pub text: String,
}

/// The kind of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum DeltaKind {
    /// What the model writes.
    Text,
    /// What the model lets be seen of its reasoning. Never in the log as text.
    Reasoning,
    /// Arguments of a tool call.
    ToolCall,
    /// What a running tool writes.
    ToolOutput,
    /// All blocks of the model call are void: it failed or was cancelled.
    Discarded,
    /// A kind of a newer version.
    #[serde(other)]
    Unknown,
}
