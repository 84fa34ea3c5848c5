//! What people did to a run or to the conversation.

use serde::{Deserialize, Serialize};

use crate::mode::Mode;

/// The person who asked, and the request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Requester {
    /// The person's authenticated user name.
    pub user: String,
    /// The request's id.
    pub request_id: String,
}

/// The open run was paused: model call and tools have ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Paused {
    /// As in the [`super::RunStarted`].
    pub run_id: String,
    /// Who asked for it.
    pub by: Requester,
}

/// The paused run goes on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Resumed {
    /// As in the [`super::RunStarted`].
    pub run_id: String,
    /// Who asked for it.
    pub by: Requester,
}

/// The paused run will not go on. Its `RunEnded` follows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Abandoned {
    /// As in the [`super::RunStarted`].
    pub run_id: String,
    /// Who asked for it.
    pub by: Requester,
}

/// Hides the inputs of a run of which nothing of an answer had come. Its `RunEnded` follows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RolledBack {
    /// As in the [`super::RunStarted`].
    pub run_id: String,
    /// Sequence numbers of the inputs and messages that the model will not read.
    pub hidden: Vec<u64>,
    /// Who asked for it.
    pub by: Requester,
}

/// Hides all of the conversation from one input on. Nothing is cut.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rewound {
    /// Sequence number of the input. Nothing from here to this entry reaches the model.
    pub from_seq: u64,
    /// Who asked for it.
    pub by: Requester,
}

/// The conversation has another mode from here on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ModeSwitched {
    /// The new one.
    pub mode: Mode,
    /// Who asked for it. When they had the open run cancelled for it, its `RunEnded` names the same request.
    pub by: Requester,
}
