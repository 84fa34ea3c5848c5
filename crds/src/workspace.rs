//! AgentWorkspace: one isolated tree.

mod loans;

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::condition::Condition;
use crate::open_enum::open_enum;
use crate::prepare::Prepare;
use crate::quota::{QUOTA_MESSAGE, QUOTA_PATTERN, QUOTA_RULE};
use crate::source::{MAX_PATH, PATH_MESSAGE, PATH_PATTERN, PATH_RULE, ProjectSource, ProviderName, SUBDOMAIN, TreeOwner, WorkspaceSource};
pub use loans::{Claim, ClaimState, Holder, LOAN_PATTERN, Lender, LoanView, MAX_CLAIMS, MAX_LOAN, MAX_LOAN_MESSAGE};

/// One isolated, writable tree on one node.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "yoi.dev",
    version = "v1alpha1",
    kind = "AgentWorkspace",
    namespaced,
    status = "AgentWorkspaceStatus",
    derive = "PartialEq",
    shortname = "aws",
    shortname = "yws",
    category = "yoi",
    selectable = ".status.nodeName",
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].reason"),
    printcolumn(name = "Provider", type_ = "string", json_path = ".status.provider.selected"),
    printcolumn(name = "Node", type_ = "string", json_path = ".status.nodeName"),
    printcolumn(name = "Claim", type_ = "string", json_path = ".status.claimName"),
    printcolumn(name = "Revision", type_ = "string", json_path = ".status.origin.revision", priority = 1),
    printcolumn(name = "In Use", type_ = "string", json_path = ".status.conditions[?(@.type==\"InUse\")].status", priority = 1),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].message", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = ("self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$') && size(self.metadata.name) <= 50",
        "the name must be a DNS label of at most 50 characters")
)]
#[x_kube(validation = ("self.source == oldSelf.source", "source is immutable"))]
#[x_kube(validation = ("self.provider == oldSelf.provider", "provider is immutable"))]
#[x_kube(validation = ("has(self.path) == has(oldSelf.path) && (!has(self.path) || self.path == oldSelf.path)", "path is immutable"))]
#[x_kube(validation = ("self.claim == oldSelf.claim && self.binding == oldSelf.binding && self.readOnly == oldSelf.readOnly",
    "claim, binding and readOnly are immutable"))]
#[x_kube(validation = ("has(self.owner) == has(oldSelf.owner) && (!has(self.owner) || self.owner == oldSelf.owner)", "owner is immutable"))]
#[x_kube(validation = ("has(self.base) == has(oldSelf.base) && (!has(self.base) || self.base == oldSelf.base)", "base is immutable"))]
#[x_kube(validation = ("!has(self.base) || (!has(self.source.project) && !has(self.source.workspace) && !self.claim && !self.readOnly)",
    "a base is filled from git, host or empty, has no claim and is not readOnly"))]
#[x_kube(validation = ("!has(self.owner) || (!has(self.source.project) && !has(self.source.workspace))",
    "owner cannot be set: a clone has the owner of the project or workspace that it is made from"))]
#[x_kube(validation = ("!has(self.ttlAfterRelease) || self.claim", "ttlAfterRelease needs a claim: a YoiPod's workspace goes with its YoiPod"))]
#[x_kube(validation = ("self.binding != 'Immediate' || self.claim",
    "binding Immediate needs a claim: without one the tree is made where its YoiPod's Pod runs"))]
#[serde(rename_all = "camelCase")]
pub struct AgentWorkspaceSpec {
    pub source: WorkspaceSource,
    #[serde(default)]
    pub provider: ProviderName,
    /// Where the containers of YoiPods see the tree. When absent, a clone shows where the project's or the parent's tree
    /// does, a tree of source host at the folder's own path, and another one at `/workspace`. A Pod that mounts the
    /// claim says in its own mountPath where.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = MAX_PATH), regex(pattern = PATH_PATTERN))]
    #[x_kube(validation = (PATH_RULE, PATH_MESSAGE))]
    pub path: Option<String>,
    /// Of a git, host or empty source; 1000:1000 when absent. A clone has the owner of what it is made from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<TreeOwner>,
    /// True: a claim of the same name is made, for Pods that are not ours. False: only a YoiPod mounts it.
    #[serde(default)]
    pub claim: bool,
    /// When that claim binds. Immediate needs `claim`.
    #[serde(default)]
    pub binding: Binding,
    #[serde(default)]
    pub read_only: bool,
    /// Delete this workspace so long after the last Pod released its claim, e.g. `30s`, `10m`. Never when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16), regex(pattern = r"^[0-9]{1,8}(s|m|h)$"))]
    pub ttl_after_release: Option<String>,
    /// How much the tree may take on its node's disk, e.g. `10Gi`; at least `1Mi`. When absent, that of its project's
    /// defaults, or for a fork that of the parent. It may be changed; what the tree holds already stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32), regex(pattern = QUOTA_PATTERN))]
    #[x_kube(validation = (QUOTA_RULE, QUOTA_MESSAGE))]
    pub quota: Option<String>,
    /// Set by the operator on the base of a generation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<BaseRef>,
}

impl AgentWorkspace {
    /// Where the containers of YoiPods see the tree; `None` until the operator knows it.
    #[must_use]
    pub fn tree_path(&self) -> Option<&str> {
        let resolved = || self.status.as_ref().and_then(|status| status.path.as_deref());
        self.spec.path.as_deref().or_else(resolved)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub enum Binding {
    /// The scheduler chooses the node with the first Pod.
    #[default]
    WaitForConsumer,
    /// The operator chooses the node at once.
    Immediate,
    /// Of another version.
    #[schemars(skip)]
    Unknown,
}
open_enum!(Binding: WaitForConsumer, Immediate);

/// Which generation this workspace is the base of, and on which node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BaseRef {
    #[schemars(length(min = 1, max = 64), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub generation: String,
    #[schemars(length(min = 1, max = 253), regex(pattern = SUBDOMAIN))]
    pub node: String,
    /// What runs in it before it is sealed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prepare: Option<Box<Prepare>>,
    /// The commit that it is filled with, when the project's ref was found at it. What `ref` of the source holds when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 40, max = 64), regex(pattern = r"^([0-9a-f]{40}|[0-9a-f]{64})$"))]
    pub revision: Option<String>,
    /// Where what the repository lacks of this commit is. Absent where its server has the commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bundle: Option<Box<BundleRef>>,
}

/// A git bundle that lies in parts in ConfigMaps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BundleRef {
    /// Of the whole, in lower-case hex.
    #[schemars(length(min = 64, max = 64), regex(pattern = r"^[0-9a-f]{64}$"))]
    pub sha256: String,
    /// Names of the ConfigMaps, in the order of the parts.
    #[schemars(length(min = 1, max = 16), inner(length(min = 1, max = 253), regex(pattern = SUBDOMAIN)))]
    pub parts: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentWorkspaceStatus {
    /// Operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Operator: the node that makes and holds the tree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// Operator: what the node makes the tree from. Set together with `nodeName`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// Operator: owner of the files, resolved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<TreeOwner>,
    /// Operator: where the containers of YoiPods see the tree, resolved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Operator: bytes of the quota, resolved. Absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota_bytes: Option<i64>,
    /// Operator: claim of `spec.claim`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim_name: Option<String>,
    /// Operator: the only Pod that may mount the tree inline (a YoiPod's, or the one that fills or prepares a base).
    #[serde(default, rename = "podUID", skip_serializing_if = "Option::is_none")]
    pub pod_uid: Option<String>,
    /// Operator: the only Pod that may mount the tree inline read-only, to show what a stopped agent has done.
    #[serde(default, rename = "readerPodUID", skip_serializing_if = "Option::is_none")]
    pub reader_pod_uid: Option<String>,
    /// Shim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<SelectedProvider>,
    /// Shim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<VolumeStatus>,
    /// Gateway and operator: the loans of paths of this tree. Each write bears the version of this object that was read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["loan".into()]))]
    #[schemars(length(max = MAX_CLAIMS))]
    pub claims: Vec<Claim>,
    /// Shim: how these stand on the node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["loan".into()]))]
    #[schemars(length(max = MAX_CLAIMS))]
    pub loans: Vec<LoanView>,
    /// Operator: Accepted, Scheduled, Populated, Bound, Ready. Shim: ProviderSelected, Provisioned, QuotaEnforced, Healthy, Sealed,
    /// InUse, ScopeEnforced, CleanedUp.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    #[schemars(length(max = 24))]
    pub conditions: Vec<Condition>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Origin {
    pub kind: OriginKind,
    /// UID of the base or of the parent; absent for Empty and Host.
    #[serde(default, rename = "workspaceUID", skip_serializing_if = "Option::is_none")]
    pub workspace_uid: Option<String>,
    /// Of a clone of a project's base: the project's source at that time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<ProjectSource>,
    /// Of a clone of a base that was fetched from git, the commit of the tree; of a fork, that of the tree which it is a fork of. Commits are pulled and
    /// pushed on top of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub enum OriginKind {
    /// A new, empty tree.
    Empty,
    /// The folder of the node that `spec.source.host` names, as it is when the tree is made.
    Host,
    /// A clone of a sealed base on the same node.
    Base,
    /// A clone of a tree that may be in use, on the same node.
    Fork,
    /// Of another version.
    #[schemars(skip)]
    Unknown,
}
open_enum!(OriginKind: Empty, Host, Base, Fork);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SelectedProvider {
    pub selected: ProviderName,
    pub reason: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolumeStatus {
    /// Of a base, once sealed: BLAKE3 over the sorted list of path, size and mtime.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manifest_digest: Option<String>,
    /// Of a base, once sealed: git HEAD.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// Bytes of all files. Written at most once a minute, and for a change of more than 5 %.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logical_bytes: Option<i64>,
    /// Bytes on the disk that are freed when this tree goes. Written together with `logicalBytes`; a base's are not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exclusive_bytes: Option<i64>,
    /// Of a base, once sealed: number of files, folders and links.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entries: Option<i64>,
}
