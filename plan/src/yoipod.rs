//! YoiPod: one agent, its tree, its session volume, and the Pod that runs it now.

mod acceptance;
pub mod assets;
mod create;
mod ending;
mod loan;
pub(crate) mod lost_node;
mod lost_tree;
pub mod manifest;
mod manifest_current;
mod model_endpoint;
mod placement;
mod pod_settings;
pub mod pod_spec;
mod policy_valid;
mod program;
pub mod push;
mod reader;
mod reader_spec;
pub(crate) mod rest;
mod run;
mod scope_enforced;
mod session;
mod waiting_container;
mod wanted;
mod warm_session;
mod yoipod_conditions;
mod yoipod_input;
mod yoipod_teardown;

use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use yoi_crds::name::finalizer;
use yoi_crds::pod::{ManifestRef, ParentRef, ReaderStatus, WorkspaceRef};
use yoi_crds::{AgentWorkspace, YoiPod, YoiPodStatus, YoiProject};

use crate::meta::name;
use crate::names;
use crate::network::with_network_policies;
use crate::nodes::Nodes;
use crate::observed_pod::ObservedPod;
pub use crate::observed_pod::run_generation;
use crate::settings::Settings;
use crate::step::{Plan, Step};
use crate::stored::delete_all;
use crate::warm;
pub use ending::lifetime_is_over;
pub use loan::loan_is_over;
pub use rest::{is_resting, may_be_woken};
pub use session::MADE_FOR;
pub(crate) use wanted::{has_ended, is_stopped_for_good};
pub use wanted::{is_finished, is_stopped, keep_command};
use yoipod_conditions::OtherConditions;
use yoipod_input::YoiPodInput;

/// Everything that the decision about a YoiPod reads, gathered once.
#[derive(Clone, Debug)]
pub struct Observed {
    /// The object that the plan is about.
    pub yoipod: Arc<YoiPod>,
    /// The namespace is being deleted.
    pub terminating: bool,
    /// The one that `projectRef` names.
    pub project: Option<Arc<YoiProject>>,
    /// The one called [`workspace_name`].
    pub workspace: Option<Arc<AgentWorkspace>>,
    /// All YoiPods that name that workspace, this one among them.
    pub users: Vec<Arc<YoiPod>>,
    /// Bases of the project and of that workspace.
    pub bases: Vec<Arc<AgentWorkspace>>,
    /// The workspace that the tree is a fork of, or will be.
    pub parent: Option<Arc<AgentWorkspace>>,
    /// The YoiPod that has started this one, by the UID in `spec.spawnedBy`, while it is there.
    pub spawner: Option<Arc<YoiPod>>,
    /// How many YoiPods name this one in `spec.spawnedBy`.
    pub children: usize,
    /// Pods with this YoiPod's name as label: of agents, readers and pushers.
    pub pods: Vec<Arc<ObservedPod>>,
    /// The one called [`session_claim_name`]. While the status names none and there is no such claim: a claim with the label of this YoiPod that was warm.
    pub session_claim: Option<Arc<PersistentVolumeClaim>>,
    /// The volume that this claim is bound to.
    pub session_volume: Option<Arc<PersistentVolume>>,
    /// Warm session claims that it may take.
    pub warm: warm::Candidates,
    /// ConfigMaps with this YoiPod's name as label.
    pub manifests: Vec<Arc<ConfigMap>>,
    /// All nodes of the cluster.
    pub nodes: Arc<Nodes>,
    /// The NetworkPolicies of its namespace.
    pub network_policies: Vec<Arc<NetworkPolicy>>,
}

/// Name of the workspace that a YoiPod works in: the one that it names, else one of its own name.
#[must_use]
pub fn workspace_name(yoipod: &YoiPod) -> &str {
    let named = yoipod.spec.workspace.as_ref().and_then(|w| w.ref_.as_ref());
    named.map_or_else(|| name(&yoipod.metadata), |r| r.name.as_str())
}

/// Name of the claim that holds a YoiPod's session: the one that its spec names, else the warm one that it has chosen, else one derived from its own name.
#[must_use]
pub fn session_claim_name(yoipod: &YoiPod) -> String {
    let warm = || yoipod.status.as_ref()?.session_claim_name.clone().filter(|name| names::is_warm_claim(name));
    let named = yoipod.spec.session.claim_name.clone();
    named.or_else(warm).unwrap_or_else(|| names::session_claim(name(&yoipod.metadata)))
}

/// What to make and delete for an agent, and its conditions. An object that no API server has stored gets an empty plan.
#[must_use]
pub fn plan(seen: &Observed, settings: &Settings, now: jiff::Timestamp) -> Plan<YoiPodStatus> {
    let Some(input) = YoiPodInput::new(seen) else { return Plan::nothing() };
    if input.yoipod.is_deleting() {
        return yoipod_teardown::plan(&input);
    }
    if seen.terminating {
        return goes_with_its_namespace(&input, settings, now);
    }
    if let Some(step) = input.yoipod.add_finalizers(&[finalizer::OPERATOR]) {
        return Plan::only(vec![step]);
    }
    let plan = reconcile(&input, settings, now);
    let steps = with_network_policies(plan.steps, input.yoipod.namespace(), settings.network.as_ref(), &seen.network_policies);
    Plan { steps, ..plan }
}

/// Nothing can be made in a namespace that is being deleted, and something may hold it for long. Until the object is gone, its conditions follow its Pods,
/// and an agent that is to stop is stopped.
fn goes_with_its_namespace(input: &YoiPodInput<'_>, settings: &Settings, now: jiff::Timestamp) -> Plan<YoiPodStatus> {
    let plan = reconcile(input, settings, now);
    let steps = plan.steps.into_iter().filter(|step| matches!(step, Step::Delete(_))).collect();
    Plan { steps, ..plan }
}

fn reconcile(input: &YoiPodInput<'_>, settings: &Settings, now: jiff::Timestamp) -> Plan<YoiPodStatus> {
    let accepted = acceptance::accept(input, settings);
    let run = run::plan(input, accepted.as_ref(), settings, now);
    let reader = reader::plan(input, &run, settings, now);
    let push = push::plan(input, settings, now);
    let ending = ending::plan(input, push.pushed.as_ref(), now);
    let others = OtherConditions { reader_ready: reader.ready, pushed: push.pushed, ending: ending.condition };
    let conditions = yoipod_conditions::conditions(input, accepted.as_ref().err(), &run, others, now);
    let session_claim_name = run.session_claim_name.clone();
    // Unused manifests go first: a later step may be refused for long, and each change of the spec would leave one more of them.
    // So do pushers that have ended: a push ends although the agent's own Pod cannot be made.
    let mut steps = delete_unused_manifests(input, [&run.record.manifest, &run.next_manifest]);
    let (ended_pushers, push_steps): (Vec<_>, Vec<_>) = push.steps.into_iter().partition(|step| matches!(step, Step::Delete(_)));
    steps.extend(ended_pushers);
    steps.extend(run.steps);
    steps.extend(reader.steps);
    steps.extend(push_steps);
    // Its finalizer has the rest done in order.
    steps.extend(ending.deletion);
    // The fields that the operator owns. The gateway's fields keep their values because they are not applied.
    let status = YoiPodStatus {
        observed_generation: input.yoipod.meta().generation,
        run_generation: run.record.run_generation,
        manifest: run.record.manifest,
        policy: policy_valid::record(input),
        pod: run.record.pod,
        workspace: Some(WorkspaceRef {
            name: input.workspace_name.to_owned(),
            uid: lost_tree::record(input, accepted.is_ok()),
            node_name: input.workspace.and_then(|workspace| workspace.node_name()).map(str::to_owned),
        }),
        loan: loan::record(input, now).map(Box::new),
        session_claim_name,
        reader: reader.pod.map(|pod| ReaderStatus { requested_at: None, pod: Some(pod) }),
        push: push.status.map(Box::new),
        ended: ending.ended.map(Box::new),
        // A child starts no others, so nobody hangs under a grandparent.
        parent: input
            .spawner
            .map(|spawner| Box::new(ParentRef { name: spawner.name().to_owned(), uid: spawner.uid().as_str().to_owned() })),
        children: i32::try_from(input.children).ok().filter(|children| *children > 0),
        conditions,
        ..YoiPodStatus::default()
    };
    Plan {
        steps,
        status: Some(status),
        requeue_after: [run.requeue_after, reader.requeue_after, push.requeue_after, ending.requeue_after].into_iter().flatten().min(),
    }
}

/// Steps that delete the manifests that no Pod of this name mounts and that are none of `kept`.
fn delete_unused_manifests(input: &YoiPodInput<'_>, kept: [&Option<ManifestRef>; 2]) -> Vec<Step> {
    let is_used = |manifest: &str| {
        kept.into_iter().flatten().any(|m| m.name == manifest) || input.pods.iter().any(|pod| pod.manifest.as_deref() == Some(manifest))
    };
    let own = input.manifests.iter().copied().filter(|map| map.is_controlled_by(input.yoipod.uid()));
    delete_all(own.filter(|map| !is_used(map.name())))
}
