//! YoiProject: one sealed generation of its source, on as many nodes as need it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::networking::v1::NetworkPolicy;
use yoi_crds::condition::{ConditionValue, find};
use yoi_crds::project::SealedGeneration;
use yoi_crds::reason::{self, condition};
use yoi_crds::{AgentWorkspace, YoiProject, YoiProjectStatus};

use crate::conditions::{self, ConditionSet};
use crate::network;
use crate::nodes::Nodes;
use crate::settings::Settings;
use crate::step::{Plan, Step};
use crate::stored::{Stored, delete_all};
use crate::tree::base_set::{BaseSet, ObservedBase};

/// Everything that the decision about a project reads, gathered once.
#[derive(Clone, Debug)]
pub struct Observed {
    /// The object that the plan is about.
    pub project: Arc<YoiProject>,
    /// The namespace is being deleted.
    pub terminating: bool,
    /// Every base that this project controls, of every generation.
    pub bases: Vec<Arc<AgentWorkspace>>,
    /// UIDs of the bases that trees were made from.
    pub origins: BTreeSet<String>,
    /// All nodes of the cluster.
    pub nodes: Arc<Nodes>,
    /// Those of the namespace.
    pub network_policies: Vec<Arc<NetworkPolicy>>,
}

/// A node that stopped without a report makes nothing, and its WorkspaceNode still offers its providers: after so long another node gets a base.
const PATIENCE: Duration = Duration::from_secs(60);

/// An [`Observed`] whose objects are all stored.
struct ProjectInput<'a> {
    project: Stored<'a, YoiProject>,
    status: YoiProjectStatus,
    bases: Vec<ObservedBase<'a>>,
    origins: &'a BTreeSet<String>,
    nodes: &'a Nodes,
}

/// Which bases and network policies to make, which bases to delete, and what is true of the source. An object that no API server has stored gets an empty plan.
#[must_use]
pub fn plan(seen: &Observed, settings: &Settings, now: jiff::Timestamp) -> Plan<YoiProjectStatus> {
    let Some(project) = Stored::new(&*seen.project) else { return Plan::nothing() };
    // The garbage collector deletes the bases of a project, and nothing else of it needs an order.
    if project.is_deleting() || seen.terminating {
        return Plan::nothing();
    }
    let status = project.status.clone().unwrap_or_default();
    let input = ProjectInput { project, status, bases: ObservedBase::all(&seen.bases), origins: &seen.origins, nodes: &seen.nodes };
    let plan = match project.spec.unknown_field() {
        Some(field) => unknown_field_plan(&input, field, now),
        None => reconcile(&input, now),
    };
    // A namespace with a project is a namespace with agents: its policies are there before the first of them.
    let policies = settings.network.as_ref().map(|network| network::ensure(project.namespace(), network, &seen.network_policies));
    Plan { steps: policies.into_iter().flatten().chain(plan.steps).collect(), ..plan }
}

fn unknown_field_plan(input: &ProjectInput<'_>, field: &str, now: jiff::Timestamp) -> Plan<YoiProjectStatus> {
    let mut conditions = input.condition_set(now);
    conditions.set(condition::SOURCE_READY, conditions::unknown_field(field));
    conditions.set_ready(&[condition::SOURCE_READY], "");
    input.plan(Vec::new(), input.status.generation.clone(), conditions, None)
}

fn reconcile(input: &ProjectInput<'_>, now: jiff::Timestamp) -> Plan<YoiProjectStatus> {
    let base_set = BaseSet::of_project(input.project, &input.bases, input.nodes);
    let living: Vec<ObservedBase<'_>> = base_set.living().collect();
    let sealed: Vec<ObservedBase<'_>> = living.iter().copied().filter(|base| base.is_sealed()).collect();
    let mut steps = base_set.delete_lost();
    if living.is_empty() {
        steps.extend(base_set.make_next(|_| true));
    }
    let mut requeue_after = None;
    if sealed.is_empty() {
        match idle_for(&living, now) {
            Some(idle) if idle < PATIENCE => requeue_after = Some(PATIENCE - idle),
            Some(_) => steps.extend(base_set.make_next(|_| true)),
            None => {}
        }
    } else {
        steps.extend(input.delete_unused(&living));
    }

    let no_node = input
        .nodes
        .eligible(base_set.provider)
        .is_empty()
        .then(|| ConditionValue::no(reason::NO_ELIGIBLE_NODE, input.nodes.none_eligible(base_set.provider)));
    let sealed_condition = match (sealed.len(), living.first(), &no_node) {
        (0, None, Some(no_node)) => no_node.clone(),
        (0, None, None) => ConditionValue::no(reason::CREATING, "the first base is being made"),
        (0, Some(base), _) => not_sealed_yet(*base),
        (n, _, _) => ConditionValue::yes(reason::SEALED, format!("sealed on {n} node{}", if n == 1 { "" } else { "s" })),
    };
    // Without a node nothing can be fetched either, and that sentence helps more.
    let source_condition = no_node.filter(|_| living.is_empty()).unwrap_or_else(|| source_ready(&living));
    let mut conditions = input.condition_set(now);
    conditions.set(condition::SOURCE_READY, source_condition);
    conditions.set(condition::SEALED, sealed_condition);
    conditions.set_ready(&[condition::SOURCE_READY, condition::SEALED], "workspaces can be made from this project");
    input.plan(steps, generation(&base_set, &sealed), conditions, requeue_after)
}

impl ProjectInput<'_> {
    fn condition_set(&self, now: jiff::Timestamp) -> ConditionSet<'_> {
        ConditionSet::new(&self.status.conditions, self.project.meta().generation, now)
    }

    fn plan(
        &self,
        steps: Vec<Step>,
        generation: Option<SealedGeneration>,
        conditions: ConditionSet<'_>,
        requeue_after: Option<Duration>,
    ) -> Plan<YoiProjectStatus> {
        let observed_generation = self.project.meta().generation;
        let status = YoiProjectStatus { observed_generation, generation, conditions: conditions.into_conditions() };
        Plan { steps, status: Some(status), requeue_after }
    }

    /// Steps that delete bases of former generations that no tree was made from.
    fn delete_unused(&self, living: &[ObservedBase<'_>]) -> Vec<Step> {
        let is_current = |base: &ObservedBase<'_>| living.iter().any(|other| other.workspace.uid() == base.workspace.uid());
        let is_used = |base: &ObservedBase<'_>| self.origins.contains(base.workspace.uid().as_str());
        delete_all(self.bases.iter().filter(|base| !is_current(base) && !is_used(base)).map(|base| base.workspace))
    }
}

/// How long ago the last of these bases was created, while none of them has a tree. `None` when there are none, or one has its tree.
fn idle_for(bases: &[ObservedBase<'_>], now: jiff::Timestamp) -> Option<Duration> {
    if bases.iter().any(|base| base.workspace.is_true(condition::PROVISIONED)) {
        return None;
    }
    let last = bases.iter().map(|base| base.workspace.meta().creation_timestamp.as_ref().map_or(now, |t| t.0)).max()?;
    Some(Duration::try_from(now.duration_since(last)).unwrap_or(Duration::ZERO))
}

fn source_ready(bases: &[ObservedBase<'_>]) -> ConditionValue {
    if bases.iter().any(|base| base.workspace.is_true(condition::POPULATED)) {
        return ConditionValue::yes(reason::FILLED, "the source was fetched");
    }
    let populated = bases.iter().filter_map(|base| find(base.workspace.conditions(), condition::POPULATED));
    match populated.into_iter().find(|c| c.reason == reason::POPULATE_FAILED) {
        Some(failed) => ConditionValue::no(reason::POPULATE_FAILED, failed.message.clone()),
        None => ConditionValue::no(reason::POPULATING, "the source is being fetched"),
    }
}

fn not_sealed_yet(base: ObservedBase<'_>) -> ConditionValue {
    let title = base.workspace.name();
    match find(base.workspace.conditions(), condition::READY) {
        Some(ready) => ConditionValue::no(reason::POPULATING, format!("base {title}: {}", ready.message)),
        None => ConditionValue::no(reason::POPULATING, format!("base {title} is being made")),
    }
}

fn generation(base_set: &BaseSet<'_>, sealed: &[ObservedBase<'_>]) -> Option<SealedGeneration> {
    let first = sealed.iter().min_by_key(|base| base.workspace.name())?;
    let volume = first.workspace.get().status.as_ref()?.volume.as_ref();
    let mut nodes: Vec<String> = sealed.iter().map(|base| base.node.to_owned()).collect();
    nodes.sort();
    Some(SealedGeneration {
        name: base_set.generation.clone(),
        revision: volume.and_then(|v| v.revision.clone()),
        manifest_digest: volume.and_then(|v| v.manifest_digest.clone()),
        nodes,
    })
}
