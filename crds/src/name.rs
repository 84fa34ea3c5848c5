//! Names that objects, controllers and people share.

/// Field managers of server-side apply. Disjoint owners of one status.
pub mod field_manager {
    pub const OPERATOR: &str = "yoi-operator";
    pub const GATEWAY: &str = "yoi-gateway";
    pub const SHIM: &str = "yoi-agent-shim";
    pub const PLUGIN: &str = "kubectl-yoi";
}

pub mod finalizer {
    /// The operator's: what the object owns in the cluster is gone.
    pub const OPERATOR: &str = "yoi.dev/operator";
    /// The shim's: what the workspace holds on the node is gone.
    pub const NODE_DATA: &str = "yoi.dev/node-data";
}

pub mod label {
    /// Name of the YoiPod that a Pod, claim, ConfigMap or workspace was made for.
    pub const YOIPOD: &str = "yoi.dev/yoipod";
    /// Name of the YoiProject.
    pub const PROJECT: &str = "yoi.dev/project";
    /// Name of the AgentWorkspace.
    pub const WORKSPACE: &str = "yoi.dev/workspace";
    /// `agent` or `populator`: what network policies select.
    pub const ROLE: &str = "yoi.dev/role";
    pub const ROLE_AGENT: &str = "agent";
    pub const ROLE_POPULATOR: &str = "populator";
}

pub mod annotation {
    /// Run generation that a Pod was made for.
    pub const RUN_GENERATION: &str = "yoi.dev/run-generation";
    /// The scheduler's choice of node for a late-bound claim.
    pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
    /// How often Kubernetes was made to look again at a claim that is being deleted.
    pub const REMINDED: &str = "yoi.dev/reminded";
    pub const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
}

/// Topology key of our volumes: the driver reports the node's name under it.
pub const TOPOLOGY_NODE: &str = "topology.yoi.dev/node";
/// StorageClass for claims that bind when a Pod is scheduled.
pub const CLASS_LATE: &str = "yoi";
/// StorageClass for claims that bind at once.
pub const CLASS_IMMEDIATE: &str = "yoi-immediate";
