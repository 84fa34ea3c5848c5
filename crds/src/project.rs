//! YoiProject: a source tree and the rules for working in it.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::assets::Assets;
use crate::condition::Condition;
use crate::pod::{Model, PodSettings, Rest};
use crate::policy::Policy;
use crate::prepare::Prepare;
use crate::quota::{QUOTA_MESSAGE, QUOTA_PATTERN, QUOTA_RULE};
use crate::source::{MAX_PATH, PATH_MESSAGE, PATH_PATTERN, PATH_RULE, ProjectSource, ProviderName, TreeOwner};
use crate::sync::SyncStatus;
use crate::warm::{Warm, WarmStatus};

/// A source tree and the rules for working in it. Its content is sealed once per node that needs it.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "yoi.dev",
    version = "v1alpha1",
    kind = "YoiProject",
    namespaced,
    status = "YoiProjectStatus",
    derive = "PartialEq",
    shortname = "yproj",
    category = "yoi",
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].reason"),
    printcolumn(name = "Generation", type_ = "string", json_path = ".status.generation.name"),
    printcolumn(name = "Path", type_ = "string", json_path = ".status.path"),
    printcolumn(name = "Revision", type_ = "string", json_path = ".status.generation.revision", priority = 1),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].message", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = ("self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$') && size(self.metadata.name) <= 50",
        "the name must be a DNS label of at most 50 characters")
)]
#[serde(rename_all = "camelCase")]
pub struct YoiProjectSpec {
    pub source: ProjectSource,
    /// Where every agent sees the tree. When absent, a tree of source host shows at the folder's own path, and another
    /// one at `/workspace`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = MAX_PATH), regex(pattern = PATH_PATTERN))]
    #[x_kube(validation = (PATH_RULE, PATH_MESSAGE))]
    pub path: Option<String>,
    /// Owner of every file of the tree.
    #[serde(default)]
    pub owner: TreeOwner,
    #[serde(default)]
    pub provider: ProviderName,
    /// Runs in every base before it is sealed: what it builds is in every tree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prepare: Option<Box<Prepare>>,
    /// What calls of tools may do in every agent of this project. A change counts from an agent's next turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<Box<Policy>>,
    /// A team's own skills, commands and knowledge. When absent, agents read all that the tree has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assets: Option<Box<Assets>>,
    /// For YoiPods of this project that do not say otherwise.
    #[serde(default)]
    pub defaults: PodDefaults,
    /// Session claims that are bound before an agent needs one: it starts without waiting for a volume. None when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warm: Option<Box<Warm>>,
}

/// What a YoiPod takes from its project when its own spec is silent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodDefaults {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<Model>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<PodSettings>,
    /// How much the tree may take on its node's disk, e.g. `10Gi`; at least `1Mi`. Of every workspace that is made
    /// from this project and names none itself. It may be changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32), regex(pattern = QUOTA_PATTERN))]
    #[x_kube(validation = (QUOTA_RULE, QUOTA_MESSAGE))]
    pub quota: Option<String>,
    /// When agents go to rest by themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rest: Option<Box<Rest>>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct YoiProjectStatus {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<SealedGeneration>,
    /// Where every agent sees the tree, resolved. Absent until a folder of a node is taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Warm session claims. Absent while there are none, and nothing has failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warm: Option<Box<WarmStatus>>,
    /// What the looks at the git repository have found. Absent until the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refresh: Option<Box<RefreshStatus>>,
    /// What people have sent with `kubectl yoi sync`. Absent until the first time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sync: Option<Box<SyncStatus>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    #[schemars(length(max = 16))]
    pub conditions: Vec<Condition>,
}

/// What the looks at a project's git repository have found. It is written with each look, and by nothing else but a generation that follows from one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RefreshStatus {
    /// Digest of the source that was looked at. With another source, nothing here counts any more.
    pub source: String,
    /// When the last look ended, RFC 3339. Before the first one: when what is in use was synced.
    pub looked_at: String,
    /// What the last look failed with. Absent when it did not fail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// The commit that the ref was at when a look last found one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// Which look found the ref at that commit first, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// The commit of the generation that new trees are made from. Absent while that is the one that was fetched first. It becomes `revision` once that
    /// commit is sealed on a node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_use: Option<String>,
    /// The request of `kubectl yoi refresh` that was last carried out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
}

/// The content that new workspaces start from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SealedGeneration {
    /// Digest of the project's UID, source, owner, path, provider and prepare, and of the commit once the branch has moved.
    pub name: String,
    /// git commit of the tree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manifest_digest: Option<String>,
    /// Nodes that hold it sealed.
    #[serde(default)]
    #[schemars(length(max = 5000))]
    pub nodes: Vec<String>,
}
