//! Warm session claims: claims that are made and bound before an agent needs one.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::pod::ClaimTemplate;

/// What is kept ready for the agents of a project.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Warm {
    /// How many empty session claims stand ready, spread over the nodes that hold the source. 0 gives back those that are there. The chart's
    /// `agents.warmSessions` bounds how many there are in the whole cluster.
    #[schemars(range(min = 0, max = 100))]
    pub sessions: i64,
    /// Class and size of these claims. Only agents that ask for the same take them; when absent, those whose `session.claimTemplate` is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim_template: Option<ClaimTemplate>,
}

/// The warm session claims of a project, and why there are not more.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WarmStatus {
    /// Those that the operator has made and that no agent has taken, sorted by name. Whatever their labels say, no other claim is one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 200))]
    pub claims: Vec<WarmClaim>,
    /// Why the last one could not be had. Absent once as many stand ready as are asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<WarmFailure>,
}

/// A warm session claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WarmClaim {
    pub name: String,
    pub uid: String,
    /// The node that its volume was made for.
    pub node: String,
}

/// Why a warm session claim could not be had.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WarmFailure {
    pub message: String,
    /// When, RFC 3339. It is tried again some time later.
    pub at: String,
}
