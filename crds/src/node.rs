//! WorkspaceNode: what one node offers.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::condition::Condition;
use crate::source::ProviderName;

/// What one node offers, as its shim reports it. Named like the node.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
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
    // The API server prints the first match only: the one that Auto takes, and the best of those that it passes over.
    printcolumn(name = "Provider", type_ = "string", json_path = ".status.providers[?(@.available==true)].name"),
    printcolumn(name = "Free", type_ = "string", json_path = ".status.capacity.free"),
    printcolumn(name = "Total", type_ = "string", json_path = ".status.capacity.total"),
    printcolumn(name = "Lacks", type_ = "string", json_path = ".status.providers[?(@.available==false)].name", priority = 1),
    printcolumn(name = "Because", type_ = "string", json_path = ".status.providers[?(@.available==false)].reason", priority = 1),
    printcolumn(name = "Kernel", type_ = "string", json_path = ".status.kernel", priority = 1),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].message", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
pub struct WorkspaceNodeSpec {
    /// UIDs of trees and bases that a person gives up: of those in `status.unclaimed`. The node destroys each of them, unless an AgentWorkspace has
    /// that UID or something uses it. `kubectl yoi trees discard` writes it. What is gone may stay here: a UID is never used again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 36), regex(pattern = r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")))]
    pub discard: Vec<String>,
}

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
    /// Folders of the node that trees can be made from, as the administrator lists them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    #[schemars(length(max = 64))]
    pub host_sources: Vec<OfferedHostSource>,
    /// What the node's disk holds and no AgentWorkspace claims. Absent while there is nothing of that kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unclaimed: Option<UnclaimedTrees>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    #[schemars(length(max = 8))]
    pub conditions: Vec<Condition>,
}

/// Trees and bases that no AgentWorkspace claims by its UID: their objects were deleted while the node was lost, or the cluster was made anew. They
/// stay until a person discards them, because somebody may have worked in them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnclaimedTrees {
    /// How many there are that are no bases.
    pub trees: i64,
    /// How many bases there are.
    pub bases: i64,
    /// What all of them have on the disk for themselves, as far as it was measured.
    pub exclusive_bytes: i64,
    /// At most 50 of them. What takes most comes first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["uid".into()]))]
    #[schemars(length(max = 50))]
    pub items: Vec<UnclaimedTree>,
}

/// The most entries of [`UnclaimedTrees::items`].
pub const MAX_UNCLAIMED_ITEMS: usize = 50;

/// A tree that no AgentWorkspace claims.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnclaimedTree {
    /// The UID of the object that it was made for.
    #[schemars(length(max = 36))]
    pub uid: String,
    /// Whether it is a base, which a project makes anew. In any other tree somebody may have worked.
    pub base: bool,
    /// Namespace and name of that object, as `team/alice`. Absent if an earlier version made the tree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 320))]
    pub object: Option<String>,
    /// The generation that it is a base of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub generation: Option<String>,
    /// When it was made, as RFC 3339. Absent if the file system does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub created_at: Option<String>,
    /// Sum of the sizes of its files. Absent until it is measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logical_bytes: Option<i64>,
    /// What no other tree shares with it. Absent until it is measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exclusive_bytes: Option<i64>,
    /// Why it was not destroyed although `spec.discard` names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub refused: Option<String>,
}

/// A folder of the node that trees can be made from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OfferedHostSource {
    #[schemars(length(max = 50))]
    pub name: String,
    /// Where it lies on the node, and where its trees show that name no path. Empty from a shim of an earlier version.
    #[serde(default)]
    #[schemars(length(max = 4096))]
    pub path: String,
    /// The namespaces whose objects may name it; `*` for all.
    #[schemars(length(max = 64), inner(length(max = 63)))]
    pub namespaces: Vec<String>,
    /// Whether the node has the folder now.
    pub available: bool,
}

impl OfferedHostSource {
    /// Whether objects of this namespace may name it.
    #[must_use]
    pub fn is_for(&self, namespace: &str) -> bool {
        self.namespaces.iter().any(|allowed| allowed == "*" || allowed == namespace)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OfferedProvider {
    pub name: ProviderName,
    pub available: bool,
    /// Why, or why not.
    pub reason: String,
}

/// Space of the ZFS pool that new trees are made in, or else of the node's data root.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Capacity {
    pub total_bytes: i64,
    pub free_bytes: i64,
    /// `totalBytes` for people, as a quantity like `12Gi`. Empty from a shim of an earlier version.
    #[serde(default)]
    #[schemars(length(max = 32))]
    pub total: String,
    /// `freeBytes` for people.
    #[serde(default)]
    #[schemars(length(max = 32))]
    pub free: String,
}

impl Capacity {
    /// A capacity with its quantities.
    #[must_use]
    pub fn new(total_bytes: i64, free_bytes: i64) -> Self {
        Capacity { total_bytes, free_bytes, total: quantity(total_bytes), free: quantity(free_bytes) }
    }
}

/// Bytes as a quantity of Kubernetes that people read: in the largest binary unit of which there is at least one, cut to two digits or to whole units.
#[must_use]
pub fn quantity(bytes: i64) -> String {
    let units = [("Ei", 60), ("Pi", 50), ("Ti", 40), ("Gi", 30), ("Mi", 20), ("Ki", 10)];
    let Some((unit, shift)) = units.into_iter().find(|(_, shift)| bytes >> shift > 0) else { return bytes.max(0).to_string() };
    let whole = bytes >> shift;
    let tenth = ((bytes >> (shift - 10)) & 1023) * 10 / 1024;
    if whole >= 10 || tenth == 0 { format!("{whole}{unit}") } else { format!("{whole}.{tenth}{unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_quantities_that_people_read() {
        let table = [
            (0, "0"),
            (-1, "0"),
            (1023, "1023"),
            (1 << 10, "1Ki"),
            (1536, "1.5Ki"),
            (12_884_901_888, "12Gi"),
            (13_958_643_711, "12Gi"),
            (10_200_547_328, "9.5Gi"),
            (i64::MAX, "7.9Ei"),
        ];
        for (bytes, text) in table {
            assert_eq!(quantity(bytes), text);
        }
    }
}
