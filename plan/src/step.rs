//! Steps: everything that a plan asks of the API server.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use yoi_crds::workspace::Claim;
use yoi_crds::{AgentWorkspace, Condition};

/// What to do, and the status to write afterwards.
#[derive(Clone, Debug)]
pub struct Plan<S> {
    /// To be carried out in this order. When one fails, the rest is left to the next round.
    pub steps: Vec<Step>,
    /// All fields that the operator owns. `None` leaves the status as it is: the object is about to go, or gets its finalizers first.
    pub status: Option<S>,
    /// Plan again after so long, even if nothing changes.
    pub requeue_after: Option<Duration>,
}

impl<S> Plan<S> {
    /// No step, and no write of the status.
    #[must_use]
    pub fn nothing() -> Self {
        Plan { steps: Vec::new(), status: None, requeue_after: None }
    }

    /// These steps, and no write of the status.
    #[must_use]
    pub fn only(steps: Vec<Step>) -> Self {
        Plan { steps, status: None, requeue_after: None }
    }
}

/// One request to the API server. Each can be repeated.
///
/// "Ensure" creates. An object of that name with the same controller is success; one with another controller is an error.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Sets the finalizers. Fails when the object has changed since it was observed, so that nobody else's finalizer is lost.
    AddFinalizers {
        /// The object.
        of: Target,
        /// The resource version that was observed.
        resource_version: String,
        /// All finalizers, those that were there among them.
        all: Vec<String>,
    },
    /// Sets the finalizers, on the same condition as [`Step::AddFinalizers`].
    RemoveFinalizer {
        /// The object.
        of: Target,
        /// The resource version that was observed.
        resource_version: String,
        /// The finalizer that goes.
        finalizer: &'static str,
        /// The finalizers that stay.
        left: Vec<String>,
    },
    /// Creates an AgentWorkspace.
    EnsureWorkspace(Box<AgentWorkspace>),
    /// Creates a PersistentVolumeClaim.
    EnsureClaim(Box<PersistentVolumeClaim>),
    /// Creates a PersistentVolume.
    EnsureVolume(Box<PersistentVolume>),
    /// Creates a ConfigMap.
    EnsureConfigMap(Box<ConfigMap>),
    /// Creates a Pod.
    EnsurePod(Box<Pod>),
    /// Applies a NetworkPolicy, because its content follows the operator's settings.
    EnsureNetworkPolicy(Box<NetworkPolicy>),
    /// Sets the claim's owner references to exactly these.
    OwnClaim {
        /// The claim.
        claim: Target,
        /// Empty for a claim that the garbage collector must not delete.
        owners: Vec<OwnerReference>,
    },
    /// Creates a warm session claim for the project that controls it. Refused or not, the project's other steps go on: agents start without it.
    MakeWarmClaim(Box<PersistentVolumeClaim>),
    /// Makes a warm session claim that of a YoiPod. Fails when it has changed since it was observed, so that only one takes it.
    TakeWarmClaim {
        /// The claim.
        claim: Target,
        /// The resource version that was observed.
        resource_version: String,
        /// Name of the YoiPod.
        yoipod: String,
        /// Its UID.
        made_for: String,
        /// As in [`Step::OwnClaim`].
        owners: Vec<OwnerReference>,
    },
    /// Removes the scheduler's choice of node from a claim, so that it chooses again. That is the provisioner's task, and the operator provisions
    /// these claims.
    UnselectNode {
        /// The claim.
        claim: Target,
        /// Value of an annotation: how often this was done to the claim, from 1.
        times: u32,
    },
    /// Changes an annotation of a claim that is being deleted, so that Kubernetes looks at the claim again.
    NudgeClaim {
        /// The claim.
        claim: Target,
        /// Value of the annotation: which write this is, from 1. Repeating a step changes nothing.
        times: u32,
    },
    /// Changes the annotation of an agent's Pod that holds its limit of tokens, which the runtime sees in a file.
    SetTokens {
        /// The Pod.
        pod: Target,
        /// The annotation's value: a decimal number, or empty for no limit.
        tokens: String,
    },
    /// Changes the annotation of an agent's Pod that says after how long it rests, which the runtime sees in a file.
    SetRest {
        /// The Pod.
        pod: Target,
        /// The annotation's value: seconds, or empty for never.
        after: String,
    },
    /// Changes the annotation of an agent's Pod that says what calls of tools may do, which the runtime sees in a file.
    SetPolicy {
        /// The Pod.
        pod: Target,
        /// The annotation's value: JSON of a [`yoi_wire::policy::ToolPolicy`].
        policy: String,
    },
    /// Gives a container that ends before the agent starts another image, because its own is not pulled, and sets the annotation that says so.
    LeaveOutSet {
        /// The Pod.
        pod: Target,
        /// Name of the container.
        container: String,
        /// The image that it gets.
        image: String,
        /// The annotation's value: JSON of all such containers, with the reasons.
        left_out: String,
    },
    /// Sets a volume's reclaim policy to Retain, so that the data outlives its claim.
    RetainVolume {
        /// The volume.
        volume: Target,
    },
    /// Asks the API server itself, before a finalizer goes: what was observed may be too old to show what was made a moment ago. When the object is
    /// there and was made for `of`, the round ends, and the next one observes it.
    ConfirmGone {
        /// Kind of the object.
        kind: Kind,
        /// Empty for cluster-scoped kinds.
        namespace: String,
        /// Name of the object.
        name: String,
        /// UID of the object that it was made for.
        of: String,
    },
    /// Sets one condition of a WorkspaceNode, whose other conditions its shim sets. Fails when the object has changed since it was observed.
    SetNodeCondition {
        /// The WorkspaceNode.
        of: Target,
        /// The resource version that was observed.
        resource_version: String,
        /// The condition.
        condition: Box<Condition>,
    },
    /// Sets `status.claims` of a workspace, which the gateway writes, too. Fails when the object has changed since it was observed.
    SetClaims {
        /// The workspace.
        of: Target,
        /// The resource version that was observed.
        resource_version: String,
        /// All of them.
        claims: Vec<Claim>,
    },
    /// Deletes an object, with its UID as precondition.
    Delete(Target),
    /// Deletes an object unless it has changed since it was observed.
    DeleteUnchanged {
        /// The object.
        of: Target,
        /// The resource version that was observed.
        resource_version: String,
    },
}

/// One object, by its identity and not only by its name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Target {
    /// Kind of the object.
    pub kind: Kind,
    /// Empty for cluster-scoped kinds.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
    /// Its UID; never empty.
    pub uid: String,
}

/// Kinds whose objects steps change by identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the variants are Kubernetes' names for the kinds, or parts of them")]
pub enum Kind {
    Project,
    YoiPod,
    Workspace,
    Claim,
    Volume,
    ConfigMap,
    Pod,
    WorkspaceNode,
}

impl Kind {
    /// The kind's name in the API, e.g. `PersistentVolumeClaim`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Project => "YoiProject",
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
    /// What the step does, for errors and logs: `create Pod a-1`.
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
            Step::MakeWarmClaim(c) => named("create warm", Kind::Claim, &c.metadata.name),
            Step::TakeWarmClaim { claim, yoipod, .. } => format!("give {claim} to YoiPod {yoipod}"),
            Step::UnselectNode { claim, times: _ } => format!("let the scheduler choose another node for {claim}"),
            Step::NudgeClaim { claim, .. } => format!("have Kubernetes look again at {claim}"),
            Step::SetTokens { pod, .. } => format!("set the limit of tokens of {pod}"),
            Step::SetRest { pod, .. } => format!("set when {pod} rests"),
            Step::SetPolicy { pod, .. } => format!("set the policy of {pod}"),
            Step::LeaveOutSet { pod, container, .. } => format!("let {pod} start without what its container {container} would copy"),
            Step::RetainVolume { volume } => format!("keep the data of {volume}"),
            Step::ConfirmGone { kind, name, .. } => format!("see that {} {name} is gone", kind.as_str()),
            Step::SetNodeCondition { of, condition, .. } => format!("set {}={:?} of {of}", condition.type_, condition.status),
            Step::SetClaims { of, .. } => format!("set the claims on {of}"),
            Step::Delete(target) | Step::DeleteUnchanged { of: target, .. } => format!("delete {target}"),
        }
    }
}
