//! WorkspaceNode: what one node offers.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::condition::Condition;
use crate::source::ProviderName;

/// What one node offers, as its shim reports it. Named like the node.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "yoi.dev",
    version = "v1alpha1",
    kind = "WorkspaceNode",
    status = "WorkspaceNodeStatus",
    derive = "PartialEq",
    shortname = "wsnode",
    category = "yoi",
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].reason"),
    // The API server prints the first match only: the one that Auto takes.
    printcolumn(name = "Provider", type_ = "string", json_path = ".status.providers[?(@.available==true)].name"),
    printcolumn(name = "Free Bytes", type_ = "integer", json_path = ".status.capacity.freeBytes"),
    printcolumn(name = "Kernel", type_ = "string", json_path = ".status.kernel", priority = 1),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].message", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
pub struct WorkspaceNodeSpec {}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceNodeStatus {
    #[serde(default)]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    #[schemars(length(max = 8))]
    pub providers: Vec<OfferedProvider>,
    /// Rounded to 1 %, so that a quiet node writes nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<Capacity>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// Hex SHA-256 of each `yoi-runtime` binary that the node can give to Pods.
    #[serde(default)]
    #[schemars(length(max = 16))]
    pub runtime_digests: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    #[schemars(length(max = 8))]
    pub conditions: Vec<Condition>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OfferedProvider {
    pub name: ProviderName,
    pub available: bool,
    /// Why, or why not.
    pub reason: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Capacity {
    pub total_bytes: i64,
    pub free_bytes: i64,
}
