//! When an agent rests, and what is known of its rest.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// When an agent goes to rest: its Pod goes, and session and tree stay. A message, a run or somebody who attaches wakes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Rest {
    /// After how long without anything to do, e.g. `30m`: at least `10s`, or `0s` for never. A command in the background, a call that waits for a person and
    /// somebody attached are something to do. A change reaches a running agent without a restart.
    #[schemars(length(max = 7), regex(pattern = r"^[0-9]{1,6}(s|m|h)$"))]
    #[x_kube(validation = ("duration(self) == duration('0s') || duration(self) >= duration('10s')",
        "after must be at least 10s, or 0s for never"))]
    pub after: String,
}

/// The agent's last rest. It is over when `wake` is set, or when a later run has reported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RestStatus {
    /// Run generation of the Pod that went to rest.
    pub run_generation: i64,
    /// When it did, RFC 3339.
    pub since: String,
    /// What woke it. Absent while nothing has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wake: Option<Wake>,
}

/// What woke an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Wake {
    /// When, RFC 3339.
    pub requested_at: String,
    /// What, and whose, as in `a message of agent b`.
    #[schemars(length(max = 256))]
    pub by: String,
}
