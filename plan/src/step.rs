//! Steps: everything that a plan can ask of the API server.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use yoi_crds::AgentWorkspace;

/// What to do, in this order, and then what to say.
#[derive(Clone, Debug)]
pub struct Plan<S> {
    pub steps: Vec<Step>,
    /// The operator's whole share of the status; `None` leaves it alone (the object is about to go, or has only now got its finalizers).
    pub status: Option<S>,
    /// Look again after so long even if nothing happens.
    pub requeue_after: Option<Duration>,
}

impl<S> Plan<S> {
    #[must_use]
    pub fn nothing() -> Self {
        Plan { steps: Vec::new(), status: None, requeue_after: None }
    }

    #[must_use]
    pub fn only(steps: Vec<Step>) -> Self {
        Plan { steps, status: None, requeue_after: None }
    }
}

/// One deed. "Ensure" creates; an object of that name with the same controller is success, a foreign one is refused.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// With the resource version that was seen, so that nobody's finalizer is lost.
    AddFinalizers {
        of: Target,
        resource_version: String,
        all: Vec<String>,
    },
    /// Likewise; `left` is what stays.
    RemoveFinalizer {
        of: Target,
        resource_version: String,
        finalizer: &'static str,
        left: Vec<String>,
    },
    EnsureWorkspace(Box<AgentWorkspace>),
    EnsureClaim(Box<PersistentVolumeClaim>),
    EnsureVolume(Box<PersistentVolume>),
    EnsureConfigMap(Box<ConfigMap>),
    EnsurePod(Box<Pod>),
    /// Applied, not created: its content follows the operator's settings.
    EnsureNetworkPolicy(Box<NetworkPolicy>),
    /// Sets the claim's owner references to exactly these.
    OwnClaim {
        claim: Target,
        owners: Vec<OwnerReference>,
    },
    /// Takes the scheduler's choice of node off a claim, so that it chooses again: a provisioner's duty, and nobody else provisions our claims.
    UnselectNode {
        claim: Target,
    },
    /// Changes a claim that is being deleted, so that Kubernetes looks at it again. `times` is written there: said twice, it is one change.
    NudgeClaim {
        claim: Target,
        times: u32,
    },
    /// So that the data outlives its claim.
    RetainVolume {
        volume: Target,
    },
    /// Asked of the API server itself, before a finalizer goes: the view may be too young to show what was made a moment ago. What still is of `of`
    /// ends the round, and the next one sees it.
    ConfirmGone {
        kind: Kind,
        namespace: String,
        name: String,
        /// UID of the object that it was made for.
        of: String,
    },
    /// With the UID as precondition.
    Delete(Target),
}

/// One object, meant by its identity and not only by its name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Target {
    pub kind: Kind,
    /// Empty for cluster-scoped kinds.
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    YoiPod,
    Workspace,
    Claim,
    Volume,
    ConfigMap,
    Pod,
    WorkspaceNode,
}

impl Kind {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::YoiPod => "YoiPod",
            Kind::Workspace => "AgentWorkspace",
            Kind::Claim => "PersistentVolumeClaim",
            Kind::Volume => "PersistentVolume",
            Kind::ConfigMap => "ConfigMap",
            Kind::Pod => "Pod",
            Kind::WorkspaceNode => "WorkspaceNode",
        }
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.kind.as_str(), self.name)
    }
}

impl Step {
    /// The deed in words, for errors and logs: `create Pod a-1`.
    #[must_use]
    pub fn description(&self) -> String {
        let named = |verb: &str, kind: Kind, name: &Option<String>| format!("{verb} {} {}", kind.as_str(), name.as_deref().unwrap_or(""));
        match self {
            Step::AddFinalizers { of, .. } => format!("add finalizers to {of}"),
            Step::RemoveFinalizer { of, finalizer, .. } => format!("remove finalizer {finalizer} from {of}"),
            Step::EnsureWorkspace(w) => named("create", Kind::Workspace, &w.metadata.name),
            Step::EnsureClaim(c) => named("create", Kind::Claim, &c.metadata.name),
            Step::EnsureVolume(v) => named("create", Kind::Volume, &v.metadata.name),
            Step::EnsureConfigMap(c) => named("create", Kind::ConfigMap, &c.metadata.name),
            Step::EnsurePod(p) => named("create", Kind::Pod, &p.metadata.name),
            Step::EnsureNetworkPolicy(n) => format!("apply NetworkPolicy {}", n.metadata.name.as_deref().unwrap_or("")),
            Step::OwnClaim { claim, .. } => format!("set the owners of {claim}"),
            Step::UnselectNode { claim } => format!("let the scheduler choose another node for {claim}"),
            Step::NudgeClaim { claim, .. } => format!("have Kubernetes look again at {claim}"),
            Step::RetainVolume { volume } => format!("keep the data of {volume}"),
            Step::ConfirmGone { kind, name, .. } => format!("see that {} {name} is gone", kind.as_str()),
            Step::Delete(target) => format!("delete {target}"),
        }
    }
}
