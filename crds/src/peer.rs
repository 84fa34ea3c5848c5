//! YoiPeer: two agents that may see and message each other.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::condition::Condition;

/// Mutual sight of two YoiPods of one namespace, and nothing else. Named `<a>.<b>` by its sorted members, so one pair is one object.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "yoi.dev",
    version = "v1alpha1",
    kind = "YoiPeer",
    namespaced,
    status = "YoiPeerStatus",
    derive = "PartialEq",
    shortname = "ypeer",
    category = "yoi",
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].reason"),
    printcolumn(name = "A", type_ = "string", json_path = ".spec.members[0]"),
    printcolumn(name = "B", type_ = "string", json_path = ".spec.members[1]"),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].message", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = ("size(self.spec.members) != 2 || self.metadata.name == self.spec.members[0] + '.' + self.spec.members[1]",
        "the name must be the two sorted members joined by a dot")
)]
#[x_kube(validation = ("self.members == oldSelf.members", "members are immutable: make another YoiPeer"))]
#[x_kube(validation = ("size(self.members) != 2 || self.members[0] != self.members[1]", "an agent cannot be its own peer"))]
#[x_kube(validation = ("size(self.members) != 2 || self.members[0] <= self.members[1]", "members must be sorted"))]
pub struct YoiPeerSpec {
    /// Exactly two names of YoiPods, sorted.
    #[schemars(length(min = 2, max = 2), inner(length(min = 1, max = 50), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")))]
    pub members: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct YoiPeerStatus {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The identities that were joined; a later YoiPod of the same name is not a member.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 2))]
    pub members: Vec<BoundMember>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    #[schemars(length(max = 8))]
    pub conditions: Vec<Condition>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BoundMember {
    pub name: String,
    pub uid: String,
}
