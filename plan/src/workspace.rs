//! AgentWorkspace: which node makes the tree from what, who may mount it, and when it may go.

pub mod claim;
mod loan_states;
pub mod populate;
pub mod populate_pod;
pub(crate) mod populate_report;
pub mod prepare;
mod schedule;
mod workspace_input;
mod workspace_teardown;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use yoi_crds::condition::{ConditionStatus, ConditionValue, find};
use yoi_crds::name::finalizer;
use yoi_crds::reason::{self, condition};
use yoi_crds::source::{GitSource, HostSource, ProjectSource};
use yoi_crds::{AgentWorkspace, AgentWorkspaceStatus, YoiPod, YoiProject};

use crate::conditions::{self, ConditionSet};
use crate::names;
use crate::network::with_network_policies;
use crate::nodes::Nodes;
use crate::observed_pod::ObservedPod;
use crate::settings::Settings;
use crate::step::Plan;
use crate::tree::base_set::tree_source;
use schedule::Schedule;
use workspace_input::{Consumer, Source, WorkspaceInput};

/// Everything that the decision about a workspace reads, gathered once.
#[derive(Clone, Debug)]
pub struct Observed {
    /// The object that the plan is about.
    pub workspace: Arc<AgentWorkspace>,
    /// The namespace is being deleted: nothing can be made in it.
    pub terminating: bool,
    /// The one that `source.project` names; for a base, the one that it is a base of, or that its parent names.
    pub project: Option<Arc<YoiProject>>,
    /// The one that `source.workspace` names; for a base of a workspace, that one.
    pub parent: Option<Arc<AgentWorkspace>>,
    /// Bases of the project, or of this workspace; for a base, all bases of its parent.
    pub bases: Vec<Arc<AgentWorkspace>>,
    /// YoiPods that name this workspace, or were the reason to make it.
    pub users: Vec<Arc<YoiPod>>,
    /// Pods of those YoiPods: of agents, and readers.
    pub agents: Vec<Arc<ObservedPod>>,
    /// Pods that fill this base.
    pub populators: Vec<Arc<ObservedPod>>,
    /// The claim of this workspace's name; absent where the spec asks for none.
    pub claim: Option<Arc<PersistentVolumeClaim>>,
    /// The volume of this workspace's UID; absent where the spec asks for no claim.
    pub volume: Option<Arc<PersistentVolume>>,
    /// All nodes of the cluster.
    pub nodes: Arc<Nodes>,
    /// Those of the namespace.
    pub network_policies: Vec<Arc<NetworkPolicy>>,
}

/// What to make and delete for a workspace, and its conditions. An object that no API server has stored gets an empty plan.
#[must_use]
pub fn plan(seen: &Observed, settings: &Settings, now: jiff::Timestamp) -> Plan<AgentWorkspaceStatus> {
    let Some(input) = WorkspaceInput::new(seen) else { return Plan::nothing() };
    let workspace = input.workspace;
    // First, and however the workspace itself is: a child that is being deleted waits for it.
    let recheck = match loan_states::plan(&input, seen, now) {
        Ok(plan) => return plan,
        Err(recheck) => recheck,
    };
    if workspace.is_deleting() {
        return workspace_teardown::plan(&input, now);
    }
    if seen.terminating {
        return workspace_teardown::goes_with_its_namespace(&input, now);
    }
    if let Some(step) = workspace.add_finalizers(&[finalizer::OPERATOR, finalizer::NODE_DATA]) {
        return Plan::only(vec![step]);
    }
    let expires = workspace_teardown::expires_at(workspace.get());
    if expires.is_some_and(|at| at <= now) {
        return Plan::only(workspace.delete().into_iter().collect());
    }
    let plan = reconcile(&input, settings, now);
    let steps = with_network_policies(plan.steps, workspace.namespace(), settings.network.as_ref(), &seen.network_policies);
    let expires_in = expires.map(|at| Duration::try_from(at.duration_since(now)).unwrap_or(Duration::ZERO));
    Plan { steps, status: plan.status, requeue_after: [plan.requeue_after, expires_in, recheck].into_iter().flatten().min() }
}

fn reconcile(input: &WorkspaceInput<'_>, settings: &Settings, now: jiff::Timestamp) -> Plan<AgentWorkspaceStatus> {
    let workspace = input.workspace;
    let generation = workspace.meta().generation;
    let mut status = AgentWorkspaceStatus { observed_generation: generation, ..AgentWorkspaceStatus::default() };
    let mut conditions = ConditionSet::new(workspace.conditions(), generation, now);
    let mut needed = vec![condition::ACCEPTED, condition::SCHEDULED, condition::PROVISIONED];

    // The shim reports it only once the data root has failed. A tree that is full can be mounted: its files must be removed somehow.
    if find(workspace.conditions(), condition::HEALTHY).is_some_and(|healthy| healthy.reason != reason::QUOTA_EXCEEDED) {
        needed.push(condition::HEALTHY);
    }

    let accepted = accepted_condition(input);
    let is_accepted = accepted.status == ConditionStatus::True;
    conditions.set(condition::ACCEPTED, accepted);

    // A tree that has a node keeps it, whatever became of the spec's references: without it the node would forget the tree, and another node would
    // make a new one.
    let has_node = input.node_name.is_some();
    let schedule = if is_accepted || has_node { schedule::schedule(input, now) } else { Schedule::none() };
    let mut steps = schedule.steps;
    let node = schedule.assignment.as_ref().ok().map(|assignment| assignment.node.as_str());
    let is_scheduled = node.is_some();
    let provisioned_on = node.filter(|_| conditions.is_true(condition::PROVISIONED)).map(str::to_owned);
    if is_accepted || has_node {
        status.owner = Some(input.owner());
        status.path = input.tree_path();
        status.quota_bytes = input.quota_bytes();
        conditions.set(condition::SCHEDULED, schedule::scheduled_condition(input, &schedule.assignment));
        match schedule.assignment {
            Ok(assignment) => {
                status.node_name = Some(assignment.node);
                status.origin = Some(assignment.origin);
            }
            Err(_) => status.node_name = input.node_name.filter(|node| input.nodes.exists(node)).map(str::to_owned),
        }
    }

    let mut requeue_after = schedule.requeue_after;
    if let Some(base) = input.base {
        needed.extend([condition::POPULATED, condition::SEALED]);
        if provisioned_on.is_some() {
            let populate = populate::plan(input, base, settings, now);
            steps.extend(populate.steps);
            conditions.set(condition::POPULATED, populate.populated);
            status.pod_uid = populate.pod_uid;
            requeue_after = populate.requeue_after;
        }
    }
    match &input.consumer {
        Consumer::Claim(claim) if is_accepted => {
            let claimed = claim::plan(workspace, claim, provisioned_on.as_deref());
            steps.extend(claimed.steps);
            if !has_node && !is_scheduled {
                steps.extend(claim.unselect_missing_node(input.nodes));
            }
            status.claim_name = Some(workspace.name().to_owned());
            conditions.set(condition::BOUND, claimed.bound);
            needed.push(condition::BOUND);
        }
        Consumer::Agent(pod) if is_scheduled && input.base.is_none() => {
            // A Pod that is to go mounts no tree that does not stand yet. Without its name here the node's shim stops to wait for the tree, and the
            // kubelet, which waits for the shim, lets the Pod go.
            let named = pod.filter(|pod| !pod.is_deleting() || provisioned_on.is_some() || !has_node);
            status.pod_uid = named.map(|pod| pod.uid().as_str().to_owned());
            status.reader_pod_uid = input.reader.map(|pod| pod.uid().as_str().to_owned());
        }
        Consumer::Claim(_) | Consumer::Agent(_) => {}
    }
    conditions.set_ready(&needed, "the tree is ready");
    if let Some(former) = former_source(input)
        && conditions.is_true(condition::READY)
    {
        conditions.set(condition::READY, former);
    }
    status.conditions = conditions.into_conditions();
    Plan { steps, status: Some(status), requeue_after }
}

/// What the tree was made from, when its project has another source now: the spec was changed, or another project bears the name.
fn former_source(input: &WorkspaceInput<'_>) -> Option<ConditionValue> {
    let Source::Project { name, project: Some(project), .. } = &input.source else { return None };
    let made_from = input.origin?.source.as_ref()?;
    if tree_source(&project.spec.source) == *made_from {
        return None;
    }
    let now = source_text(&project.spec.source);
    let message = format!("the tree is ready; it is of {}, and YoiProject {name} is {now} now", source_text(made_from));
    Some(ConditionValue::yes(reason::FORMER_SOURCE, message))
}

fn source_text(source: &ProjectSource) -> String {
    let ProjectSource { git, host, empty: _ } = source;
    match (git, host) {
        (Some(git), _) => git_text(git),
        (None, Some(HostSource { name, take: Some(take) })) => format!("the host source {name} as of {take}"),
        (None, Some(HostSource { name, take: None })) => format!("the host source {name}"),
        (None, None) => "empty".to_owned(),
    }
}

/// The depth too, and what is skipped: they say how much of the source is there.
fn git_text(git: &GitSource) -> String {
    let of_ref = git.ref_.as_ref().map(|ref_| format!(" at {ref_}")).unwrap_or_default();
    let of_depth = git.depth.map(|depth| format!(" with a history of depth {depth}")).unwrap_or_default();
    let skipped = git.skipped().map(|what| format!(" without {what}")).unwrap_or_default();
    format!("{}{of_ref}{of_depth}{skipped}", populate_report::without_user(&git.url))
}

fn accepted_condition(input: &WorkspaceInput<'_>) -> ConditionValue {
    let workspace = input.workspace;
    if let Some(field) = workspace.spec.unknown_field() {
        return conditions::unknown_field(field);
    }
    if let Consumer::Claim(claim) = &input.consumer
        && let Some(foreign) = claim.foreign
    {
        let title = foreign.name();
        return ConditionValue::no(
            reason::INVALID_SPEC,
            format!("PersistentVolumeClaim {title} exists and is not of this workspace; delete it or name the workspace otherwise"),
        );
    }
    // One that has its claim already goes on with it.
    if let Consumer::Claim(claim) = &input.consumer
        && claim.own.is_none()
        && names::is_session_claim(workspace.name())
    {
        let message =
            "its claim would have its name, and claims whose names end in -session are kept for the sessions of agents: name it otherwise";
        return ConditionValue::no(reason::INVALID_SPEC, message);
    }
    let missing = |kind: &str, title: &str| {
        ConditionValue::no(reason::SOURCE_NOT_FOUND, format!("{kind} {title} does not exist in namespace {}", workspace.namespace()))
    };
    match &input.source {
        // A tree that is made no longer needs what it was made from.
        _ if input.origin.is_some() => {}
        Source::Project { name, project: None, .. } => return missing("YoiProject", name),
        Source::Project { name, project: Some(project), .. } if project.is_deleting() => {
            return ConditionValue::no(
                reason::PROJECT_DELETING,
                format!("YoiProject {name} is being deleted, and nothing new begins from it; it goes once nothing names it"),
            );
        }
        Source::Project { name, project: Some(project), revision: Some(revision) } if project.spec.source.git.is_none() => {
            let message =
                format!("YoiProject {name} has no git source, so there is no revision {revision}: leave out source.project.revision");
            return ConditionValue::no(reason::INVALID_SPEC, message);
        }
        Source::Fork { name, .. } if *name == workspace.name() => {
            return ConditionValue::no(reason::INVALID_SPEC, "a workspace cannot be a fork of itself");
        }
        Source::Fork { name, parent } if parent.is_none_or(|parent| parent.is_deleting()) => return missing("AgentWorkspace", name),
        // Of a base its parent says it.
        Source::Host(host) if input.base.is_none() => {
            if let Some(forbidden) = input.nodes.host_source_forbidden(&host.name, workspace.namespace()) {
                return forbidden;
            }
        }
        Source::Project { .. } | Source::Fork { .. } | Source::Git(_) | Source::Host(_) | Source::Empty => {}
    }
    ConditionValue::yes(reason::VALID, "the spec makes sense and what it names exists")
}
