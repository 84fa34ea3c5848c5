//! Agents that start others.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// That an agent may start others. It has no fields: a child works in a fork of the tree, so there is nothing to allow or deny.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Delegation {}

/// Who has started an agent: the record of its birth. It stays when that one is deleted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SpawnedBy {
    /// Name of the YoiPod that has started it.
    #[schemars(length(min = 1, max = 50))]
    pub name: String,
    /// UID of that YoiPod.
    #[schemars(length(min = 1, max = 64))]
    pub uid: String,
    /// Id of the request: the same one makes no second agent.
    #[schemars(length(min = 1, max = 128))]
    pub request_id: String,
}
