//! Names of field managers, finalizers, labels, annotations and classes.

/// Field managers of server-side apply. Each owns its own fields of a status.
pub mod field_manager {
    /// The operator.
    pub const OPERATOR: &str = "yoi-operator";
    /// The gateway.
    pub const GATEWAY: &str = "yoi-gateway";
    /// The shim of a node.
    pub const SHIM: &str = "yoi-agent-shim";
    /// The kubectl plugin, for a person.
    pub const PLUGIN: &str = "kubectl-yoi";
}

/// Finalizers. Each is removed by the process that adds it.
pub mod finalizer {
    /// Of the operator, until everything that the object owns in the cluster is gone. Of a YoiProject, until nothing names it.
    pub const OPERATOR: &str = "yoi.dev/operator";
    /// Of the shim, until everything that the workspace has on the node is gone.
    pub const NODE_DATA: &str = "yoi.dev/node-data";
}

/// Labels.
pub mod label {
    /// Name of the YoiPod that a Pod, claim, ConfigMap or workspace was made for.
    pub const YOIPOD: &str = "yoi.dev/yoipod";
    /// Name of the YoiProject.
    pub const PROJECT: &str = "yoi.dev/project";
    /// Name of the AgentWorkspace.
    pub const WORKSPACE: &str = "yoi.dev/workspace";
    /// With its value, what selects the Pods of shims.
    pub const SHIM: &str = "app.kubernetes.io/name=yoi-agent-shim";
    /// Of a session claim that was made before an agent needs it: name of the YoiProject. An agent that takes it removes this label.
    pub const WARM: &str = "yoi.dev/warm";
    /// `agent`, `populator`, `prepare`, `reader` or `pusher`: what network policies select.
    pub const ROLE: &str = "yoi.dev/role";
    /// Role of the Pod of an agent.
    pub const ROLE_AGENT: &str = "agent";
    /// Role of the Pod that fills a base.
    pub const ROLE_POPULATOR: &str = "populator";
    /// Role of the Pod that runs a project's `prepare` in a base.
    pub const ROLE_PREPARE: &str = "prepare";
    /// What a Pod of that role may reach: the value of `spec.prepare.egress`.
    pub const EGRESS: &str = "yoi.dev/egress";
    /// Role of the Pod that reads the session and the tree of a stopped agent.
    pub const ROLE_READER: &str = "reader";
    /// Role of the Pod that pushes what an agent has committed.
    pub const ROLE_PUSHER: &str = "pusher";
    /// Of a Node, set by an administrator: the name of what enforces NetworkPolicies there, where no DaemonSet does.
    pub const POLICIES_ENFORCED_BY: &str = "yoi.dev/network-policies-enforced-by";
}

/// Annotations.
pub mod annotation {
    /// Run generation that a Pod was made for.
    pub const RUN_GENERATION: &str = "yoi.dev/run-generation";
    /// Digest of the settings that an agent's Pod was made from.
    pub const SETTINGS_DIGEST: &str = "yoi.dev/settings-digest";
    /// Of a YoiPod, set by a person: UID of the workspace that held its tree and was deleted. The agent may go on with its session in a new tree.
    pub const NEW_TREE: &str = "yoi.dev/new-tree";
    /// Of a manifest: model and Pod settings of the agent, with the project's defaults filled in, as JSON. For a start without the project.
    pub const RESOLVED: &str = "yoi.dev/resolved";
    /// Of a manifest: digest of those fields of the YoiPod that it was made from, and of [`REFRESH`]. While they are the same, it holds.
    pub const MADE_FROM: &str = "yoi.dev/made-from";
    /// Of a YoiPod, set by a person: any text. When it changes, the next start takes the project as it is then.
    pub const REFRESH: &str = "yoi.dev/refresh";
    /// Of a YoiProject, set by `kubectl yoi refresh`: any text. When it changes, its git repository is looked at once. Of the Pod that looks: that text.
    pub const LOOK: &str = "yoi.dev/look";
    /// Of a Pod that looks at a git repository or pushes to it: digest of the source.
    pub const LOOKS_AT: &str = "yoi.dev/looks-at";
    /// Of an agent's Pod: `spec.limits.tokens` of its YoiPod, a decimal number, or empty. The runtime sees it in a file, and a change of it at once.
    pub const TOKENS: &str = "yoi.dev/tokens";
    /// Of an agent's Pod: after how many seconds without anything to do the agent rests, a decimal number, or empty: never. The runtime sees it in a file, and
    /// a change of it at once.
    pub const REST: &str = "yoi.dev/rest";
    /// Of an agent's Pod: what calls of tools may do, JSON. The runtime sees it in a file, and a change of it at once.
    pub const POLICY: &str = "yoi.dev/policy";
    /// Of an agent's Pod: containers that would have copied skills and commands of an image that is not pulled, and why, a JSON object.
    pub const LEFT_OUT: &str = "yoi.dev/left-out";
    /// Of a pusher's Pod: id of the push.
    pub const PUSH: &str = "yoi.dev/push";
    /// The scheduler's choice of node for a late-bound claim.
    pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
    /// How often the scheduler was made to choose another node for a late-bound claim.
    pub const GIVEN_BACK: &str = "yoi.dev/given-back";
    /// How often Kubernetes was made to look again at a claim that is being deleted.
    pub const REMINDED: &str = "yoi.dev/reminded";
    /// The provisioner of a volume, as Kubernetes writes it.
    pub const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
}

/// Topology key of our volumes: the driver reports the node's name under it.
pub const TOPOLOGY_NODE: &str = "topology.yoi.dev/node";
/// Topology key that every node with the driver has, with the value `true`. The class of late-bound claims allows no other node, so the scheduler
/// chooses none without a shim.
pub const TOPOLOGY_TREES: &str = "topology.yoi.dev/trees";
/// StorageClass for claims that bind when a Pod is scheduled.
pub const CLASS_LATE: &str = "yoi";
/// StorageClass for claims that bind at once.
pub const CLASS_IMMEDIATE: &str = "yoi-immediate";
