//! YoiPod: one agent under a name.

mod agent;
mod ended;
mod family;
mod limits;
mod model;
mod push;
mod rest;
mod scheduling;
mod scope;
mod security;
mod settings;
mod status;
mod volumes;

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::open_enum::open_enum;
use crate::policy::Policy;
use crate::quota::QUOTA_PATTERN;
use crate::source::{NamedRef, ProviderName, SUBDOMAIN, WorkspaceSource};
pub use agent::{Agent, BuiltinAgent, CliAgent, PresetSource, SUBAGENT_TOOLS, Subagent, SubagentMode};
pub use ended::{EndedBy, EndedStatus};
pub use family::{Delegation, LoanStatus, SpawnedBy};
pub use limits::{Compaction, Limits};
pub use model::{ConfigMapKeyRef, HeaderSource, Model, ModelApi, ModelEndpointSpec, ModelHeaderSpec, ModelProvider};
pub use push::{PushAttempts, PushOutcome, PushResult, PushSettings, PushStatus, RequestedPush};
pub use rest::{Rest, RestStatus, Wake};
use scope::{MAX_PATH, PATH_MESSAGE, PATH_RULE};
pub use scope::{Scope, ScopeAccess, ScopeRule};
pub use security::{Capabilities, SecuritySettings};
pub use settings::{EnvSource, EnvVar, FieldRef, ImagePullPolicy, KeyRef, PodSettings, Resources};
pub use status::{
    LastReport, LiveHint, MOST_RUNS, ManifestRef, ParentRef, PodRef, ReaderStatus, SessionRef, TaskStatus, WorkspaceRef, YoiPodStatus,
};

/// One agent: a name, a session, a desired state. A Pod is only what runs it today.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "yoi.dev",
    version = "v1alpha1",
    kind = "YoiPod",
    namespaced,
    status = "YoiPodStatus",
    derive = "PartialEq",
    shortname = "yp",
    category = "yoi",
    selectable = ".status.pod.uid",
    selectable = ".spec.spawnedBy.uid",
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].reason"),
    printcolumn(name = "Desired", type_ = "string", json_path = ".spec.desiredState"),
    printcolumn(name = "Task", type_ = "string", json_path = ".status.task.state"),
    printcolumn(name = "Activity", type_ = "string", json_path = ".status.live.activity"),
    printcolumn(name = "Project", type_ = "string", json_path = ".spec.projectRef.name"),
    printcolumn(name = "Node", type_ = "string", json_path = ".status.workspace.nodeName", priority = 1),
    printcolumn(name = "Parent", type_ = "string", json_path = ".spec.spawnedBy.name", priority = 1),
    printcolumn(name = "Session", type_ = "string", json_path = ".status.session.id", priority = 1),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].message", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = ("self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$') && size(self.metadata.name) <= 50",
        "the name must be a DNS label of at most 50 characters")
)]
#[x_kube(validation = ("self.projectRef == oldSelf.projectRef", "projectRef is immutable"))]
#[x_kube(validation = ("has(self.workspace) == has(oldSelf.workspace) && (!has(self.workspace) || self.workspace == oldSelf.workspace)",
    "workspace is immutable"))]
#[x_kube(validation = ("has(self.session.claimName) == has(oldSelf.session.claimName) \
    && (!has(self.session.claimName) || self.session.claimName == oldSelf.session.claimName)", "session.claimName is immutable"))]
#[x_kube(validation = ("self.completion != 'Stop' || has(self.task)", "completion Stop needs a task"))]
#[x_kube(validation = ("!has(self.push) || self.completion == 'Stop'", "push needs completion Stop; kubectl yoi push works for every agent"))]
#[x_kube(validation = ("has(self.task) == has(oldSelf.task) && (!has(self.task) || self.task == oldSelf.task)",
    "task is immutable: give more work by a message (kubectl yoi send), or make another YoiPod"))]
#[x_kube(validation = ("has(self.spawnedBy) == has(oldSelf.spawnedBy) && (!has(self.spawnedBy) || self.spawnedBy == oldSelf.spawnedBy)",
    "spawnedBy is immutable"))]
#[x_kube(validation = ("!has(self.spawnedBy) || !has(self.delegation)", "an agent that another one has started starts none: leave delegation out"))]
#[x_kube(validation = ("!has(self.spawnedBy) || !has(self.spawnedBy.rules) || (has(self.scope) && dyn(self.scope) == dyn(self.spawnedBy.rules))",
    "the scope of an agent that works in its parent's tree is what it was lent, and does not change"))]
#[x_kube(validation = ("!has(self.ttlAfterFinished) || self.completion == 'Stop' || has(self.limits.lifetime)",
    "ttlAfterFinished needs completion Stop or limits.lifetime: else the agent never ends by itself"))]
#[serde(rename_all = "camelCase")]
pub struct YoiPodSpec {
    pub project_ref: NamedRef,
    /// A new workspace from the project when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<PodWorkspace>,
    pub agent: Agent,
    /// Given to the agent once, and immutable; the id of a task is made of this object's UID and the text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 65_536))]
    pub task: Option<String>,
    /// What happens when the task is done.
    #[serde(default)]
    pub completion: Completion,
    /// With completion Stop: once the task has succeeded and the agent has stopped, its commits are pushed to the project's git repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub push: Option<Box<PushSettings>>,
    /// When absent: the project's default for an agent that cannot do without a model, none for `command` and for `cli` with `credentialsSecretRef`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<Model>,
    #[serde(default)]
    pub pod: PodSettings,
    #[serde(default)]
    pub desired_state: DesiredState,
    /// When the agent goes to rest by itself. When absent: the project's default, and without one it never does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rest: Option<Box<Rest>>,
    /// So long after the agent has ended by itself, its task done or its lifetime over, this object is deleted, e.g. `1h`; with it goes the tree that was
    /// made for it, and the session's claim stays as `session.retain` says. Commits that `push` names are pushed first. Never when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16), regex(pattern = r"^[0-9]{1,8}(s|m|h)$"))]
    pub ttl_after_finished: Option<String>,
    #[serde(default)]
    pub session: SessionSettings,
    #[serde(default)]
    pub limits: Limits,
    #[serde(default, skip_serializing_if = "Compaction::is_empty")]
    pub compaction: Compaction,
    /// Narrows the policy of the project for this agent. A change counts from its next turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<Box<Policy>>,
    /// Which paths of its tree the agent may write. The whole tree when absent. A change counts from its next start. An agent that it starts has the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<Box<Scope>>,
    /// With it, also an empty one, the agent may start others, each in a fork of its tree, as many as limits.children. With rules it may lend them paths of its own
    /// tree instead, if it is a built-in agent. A change counts from its next start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delegation: Option<Box<Delegation>>,
    /// Of a built-in agent: the folder of its tree in which its commands start, relative to the tree, e.g. `docs`. It allows nothing. The root of the tree when
    /// absent, and when it is gone. A change counts from the next start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = MAX_PATH), regex(pattern = r"^[^\x00]+$"))]
    #[x_kube(validation = (PATH_RULE, PATH_MESSAGE))]
    pub working_dir: Option<String>,
    /// The agent that has started this one. Only the gateway sets it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spawned_by: Option<Box<SpawnedBy>>,
}

/// An existing workspace, or the form of a new one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[x_kube(validation = ("has(self.ref) != has(self.template)", "exactly one of ref and template must be set"))]
#[serde(rename_all = "camelCase")]
pub struct PodWorkspace {
    /// An AgentWorkspace without a claim.
    #[serde(default, rename = "ref", skip_serializing_if = "Option::is_none")]
    pub ref_: Option<NamedRef>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<Box<WorkspaceTemplate>>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceTemplate {
    /// The project when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<WorkspaceSource>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<ProviderName>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub enum Completion {
    /// The agent stays up and waits for messages.
    #[default]
    Keep,
    /// The agent stops.
    Stop,
    /// Of another version.
    #[schemars(skip)]
    Unknown,
}
open_enum!(Completion: Keep, Stop);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub enum DesiredState {
    #[default]
    Running,
    /// It rests whenever it has nothing to do, without a Pod; a message, a run or somebody who attaches wakes it.
    Suspended,
    /// Nothing wakes it.
    Stopped,
    /// Of another version.
    #[schemars(skip)]
    Unknown,
}
open_enum!(DesiredState: Running, Suspended, Stopped);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SecretKeyRef {
    #[schemars(length(min = 1, max = 253), regex(pattern = SUBDOMAIN))]
    pub name: String,
    #[serde(default = "default_key")]
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^(\.?[-_a-zA-Z0-9])[-._a-zA-Z0-9]*$"))]
    pub key: String,
}

fn default_key() -> String {
    "apiKey".to_owned()
}

/// A Secret of this namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct SecretRef {
    #[schemars(length(min = 1, max = 253), regex(pattern = SUBDOMAIN))]
    pub name: String,
}

/// The volume of the session log: an ordinary claim.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[x_kube(validation = ("!(has(self.claimName) && has(self.claimTemplate))", "at most one of claimName and claimTemplate may be set"))]
#[x_kube(validation = ("!has(self.claimName) || self.retain != 'Delete'",
    "retain Delete is for a claim that Yoi makes: the one that claimName names stays"))]
#[serde(rename_all = "camelCase")]
pub struct SessionSettings {
    /// An existing claim of this namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = SUBDOMAIN))]
    pub claim_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim_template: Option<ClaimTemplate>,
    /// What becomes of a claim that we made when the YoiPod is deleted.
    #[serde(default)]
    pub retain: SessionRetain,
    /// The size of a segment of the session's log after which the next one begins, e.g. `256Mi`; at least `1Mi`, and `64Mi` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32), regex(pattern = QUOTA_PATTERN))]
    #[x_kube(validation = ("quantity(self).compareTo(quantity('1Mi')) >= 0", "segmentSize must be at least 1Mi"))]
    pub segment_size: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub enum SessionRetain {
    #[default]
    Retain,
    Delete,
    /// Of another version.
    #[schemars(skip)]
    Unknown,
}
open_enum!(SessionRetain: Retain, Delete);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClaimTemplate {
    /// The cluster's default class when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = SUBDOMAIN))]
    pub storage_class_name: Option<String>,
    /// A quantity.
    #[serde(default = "default_size")]
    #[schemars(length(max = 32), regex(pattern = r"^[0-9]+(\.[0-9]+)?(Ki|Mi|Gi|Ti|k|M|G|T)?$"))]
    #[x_kube(validation = ("quantity(self).isGreaterThan(quantity('0'))", "size must be more than nothing"))]
    pub size: String,
}

fn default_size() -> String {
    "1Gi".to_owned()
}

impl Default for ClaimTemplate {
    fn default() -> Self {
        ClaimTemplate { storage_class_name: None, size: default_size() }
    }
}
