//! YoiProject: one sealed generation of its source, on as many nodes as need it; and the next one, when its branch has moved.

pub mod look_pod;
mod project_teardown;
mod refresh;
mod sync;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::networking::v1::NetworkPolicy;
use yoi_crds::condition::{ConditionValue, find};
use yoi_crds::name::finalizer;
use yoi_crds::project::SealedGeneration;
use yoi_crds::reason::{self, condition};
use yoi_crds::{AgentWorkspace, YoiPod, YoiProject, YoiProjectStatus};

use crate::conditions::{self, ConditionSet};
use crate::network;
use crate::nodes::Nodes;
use crate::observed_pod::ObservedPod;
use crate::policy;
use crate::settings::Settings;
use crate::step::{Plan, Step};
use crate::stored::{Stored, delete_all};
use crate::tree::base_set::{BaseSet, ObservedBase};
use crate::tree::progress::Progress;
use crate::warm;

/// Everything that the decision about a project reads, gathered once.
#[derive(Clone, Debug)]
pub struct Observed {
    /// The object that the plan is about.
    pub project: Arc<YoiProject>,
    /// The namespace is being deleted.
    pub terminating: bool,
    /// Every base that this project controls, of every generation.
    pub bases: Vec<Arc<AgentWorkspace>>,
    /// UIDs of the bases that trees were made from. Another base is no such tree: it may have begun as a clone of a former one, and does without it.
    pub origins: BTreeSet<String>,
    /// YoiPods that name this project; read only while it is being deleted.
    pub agents: Vec<Arc<YoiPod>>,
    /// Workspaces that name this project as their source; read only while it is being deleted.
    pub trees: Vec<Arc<AgentWorkspace>>,
    /// Pods of this project that look at its git repository.
    pub looks: Vec<Arc<ObservedPod>>,
    /// Its warm session claims.
    pub warm: warm::Observed,
    /// All nodes of the cluster.
    pub nodes: Arc<Nodes>,
    /// Those of the namespace.
    pub network_policies: Vec<Arc<NetworkPolicy>>,
}

/// An [`Observed`] whose objects are all stored.
struct ProjectInput<'a> {
    project: Stored<'a, YoiProject>,
    status: YoiProjectStatus,
    bases: Vec<ObservedBase<'a>>,
    origins: &'a BTreeSet<String>,
    looks: Vec<Stored<'a, ObservedPod>>,
    warm: &'a warm::Observed,
    nodes: &'a Nodes,
}

/// Which bases and network policies to make, which bases to delete, and what is true of the source. An object that no API server has stored gets an empty plan.
#[must_use]
pub fn plan(seen: &Observed, settings: &Settings, now: jiff::Timestamp) -> Plan<YoiProjectStatus> {
    let Some(project) = Stored::new(&*seen.project) else { return Plan::nothing() };
    if project.is_deleting() {
        return project_teardown::plan(project, seen, now);
    }
    if seen.terminating {
        let then = "no base can be made in it, and the project goes with it";
        return project_teardown::with_ready(project, conditions::namespace_terminating(project.namespace(), then), now);
    }
    if let Some(step) = project.add_finalizers(&[finalizer::OPERATOR]) {
        return Plan::only(vec![step]);
    }
    let status = project.status.clone().unwrap_or_default();
    let input = ProjectInput {
        project,
        status,
        bases: ObservedBase::all(&seen.bases),
        origins: &seen.origins,
        looks: Stored::all(&seen.looks).into_iter().filter(|pod| pod.is_controlled_by(project.uid())).collect(),
        warm: &seen.warm,
        nodes: &seen.nodes,
    };
    let plan = match project.spec.unknown_field() {
        Some(field) => unknown_field_plan(&input, field, now),
        None => reconcile(&input, settings, now),
    };
    // A namespace with a project is a namespace with agents: its policies are there before the first of them.
    let policies = settings.network.as_ref().map(|network| {
        let mut steps = network::ensure(project.namespace(), network, &seen.network_policies);
        if project.spec.prepare.is_some() {
            steps.extend(network::ensure_prepare(project.namespace(), network, &seen.network_policies));
        }
        steps
    });
    Plan { steps: policies.into_iter().flatten().chain(plan.steps).collect(), ..plan }
}

fn unknown_field_plan(input: &ProjectInput<'_>, field: &str, now: jiff::Timestamp) -> Plan<YoiProjectStatus> {
    let mut conditions = input.condition_set(now);
    conditions.set(condition::SOURCE_READY, conditions::unknown_field(field));
    conditions.set_ready(&[condition::SOURCE_READY], "");
    let YoiProjectStatus { generation, path, refresh, sync, warm, .. } = input.status.clone();
    let sync = sync::own_fields(sync);
    input.plan(Vec::new(), YoiProjectStatus { generation, path, refresh, sync, warm, ..YoiProjectStatus::default() }, conditions, None)
}

fn reconcile(input: &ProjectInput<'_>, settings: &Settings, now: jiff::Timestamp) -> Plan<YoiProjectStatus> {
    let base_set = BaseSet::of_project(input.project, &input.bases, input.nodes);
    let living: Vec<ObservedBase<'_>> = base_set.living().collect();
    let sealed: Vec<ObservedBase<'_>> = living.iter().copied().filter(|base| base.is_sealed()).collect();
    let (mut steps, mut requeue_after) = base_set.first_base(now);
    if !sealed.is_empty() {
        steps.extend(base_set.delete_stuck(input.origins, now));
    }
    let next = base_set.next(input.project);
    if let Some(next) = &next {
        let (first, after) = next.first_base(now);
        steps.extend(first);
        requeue_after = requeue_after.into_iter().chain(after).min();
    }
    steps.extend(input.delete_former(&base_set, next.as_ref(), !sealed.is_empty()));
    let refresh = refresh::plan(input.project, &input.looks, &base_set, next.as_ref(), settings, now);
    steps.extend(refresh.steps);
    let in_use = [base_set.revision(), refresh.status.as_ref().and_then(|status| status.in_use.clone())];
    let sync = sync::plan(input.project, in_use.iter().flatten());
    steps.extend(sync.steps);
    let requeue_after = requeue_after.into_iter().chain(refresh.requeue_after).min();

    let warm = warm::plan(input.project, input.status.warm.as_deref(), input.warm, &base_set, input.nodes, settings, now);
    steps.extend(warm.steps);
    let requeue_after = requeue_after.into_iter().chain(warm.requeue_after).min();

    let no_node = base_set.no_node();
    let sealed_condition = match (sealed.len(), living.is_empty(), &no_node) {
        (0, true, Some(no_node)) => no_node.clone(),
        (0, true, None) => ConditionValue::no(reason::CREATING, "the first base is being made"),
        (0, false, _) => ConditionValue::no(reason::POPULATING, not_sealed_yet(&base_set, now)),
        (n, _, _) => {
            let better = base_set.better_providers();
            let better = if better.is_empty() { better } else { format!("; {better}") };
            ConditionValue::yes(reason::SEALED, format!("sealed on {n} node{}{better}", if n == 1 { "" } else { "s" }))
        }
    };
    // Without a node nothing can be fetched either, and that sentence helps more.
    let source_condition = no_node.unwrap_or_else(|| source_ready(&base_set, now));
    let mut conditions = input.condition_set(now);
    conditions.set(condition::SOURCE_READY, source_condition);
    conditions.set(condition::SEALED, sealed_condition);
    if let Some(refreshed) = refresh.condition {
        conditions.set(condition::REFRESHED, refreshed);
    }
    if let Some(sessions_warm) = warm.condition {
        conditions.set(condition::SESSIONS_WARM, sessions_warm);
    }
    if let Some(policy) = &input.project.get().spec.policy {
        conditions.set(condition::POLICY_VALID, policy::condition(policy));
    }
    conditions.set_ready(&[condition::SOURCE_READY, condition::SEALED], "workspaces can be made from this project");
    let path = base_set.tree_path().map(str::to_owned);
    let generation = generation(&base_set, &sealed);
    input.plan(
        steps,
        YoiProjectStatus { generation, path, refresh: refresh.status, sync: sync.status, warm: warm.status, ..YoiProjectStatus::default() },
        conditions,
        requeue_after,
    )
}

impl ProjectInput<'_> {
    fn condition_set(&self, now: jiff::Timestamp) -> ConditionSet<'_> {
        ConditionSet::new(&self.status.conditions, self.project.meta().generation, now)
    }

    /// `status` says all but the conditions and what was observed.
    fn plan(
        &self,
        steps: Vec<Step>,
        status: YoiProjectStatus,
        conditions: ConditionSet<'_>,
        requeue_after: Option<Duration>,
    ) -> Plan<YoiProjectStatus> {
        let observed_generation = self.project.meta().generation;
        let status = YoiProjectStatus { observed_generation, conditions: conditions.into_conditions(), ..status };
        Plan { steps, status: Some(status), requeue_after }
    }

    /// Steps that delete bases of former generations that no tree was made from. While the current generation is not sealed, the last generation that was
    /// sealed stays: somebody may take the change back.
    fn delete_former(&self, base_set: &BaseSet<'_>, next: Option<&BaseSet<'_>>, is_sealed: bool) -> Vec<Step> {
        let is_next = |base: &ObservedBase<'_>| next.is_some_and(|next| base.generation == next.generation);
        let former = || self.bases.iter().filter(|base| base.generation != base_set.generation && !is_next(base));
        let is_used = |base: &ObservedBase<'_>| self.origins.contains(base.workspace.uid().as_str());
        let created = |base: &&ObservedBase<'_>| base.workspace.meta().creation_timestamp.as_ref().map(|t| t.0);
        let last = former().filter(|base| base.is_sealed()).max_by_key(created).map(|base| base.generation).filter(|_| !is_sealed);
        let is_kept = |base: &ObservedBase<'_>| is_used(base) || base.is_sealed() && Some(base.generation) == last;
        delete_all(former().filter(|base| !is_kept(base)).map(|base| base.workspace))
    }
}

/// Whether the source was fetched. When nothing gets on, each base says why.
fn source_ready(base_set: &BaseSet<'_>, now: jiff::Timestamp) -> ConditionValue {
    if base_set.living().any(|base| base.workspace.is_true(condition::POPULATED)) {
        return ConditionValue::yes(reason::FILLED, "the source was fetched");
    }
    base_set.not_populated(now)
}

/// What the base says that gets on; else why each does not.
fn not_sealed_yet(base_set: &BaseSet<'_>, now: jiff::Timestamp) -> String {
    if let Some(stuck) = base_set.all_stuck(now) {
        return stuck.message;
    }
    let under_way = base_set.living().find(|base| matches!(base_set.progress(*base, now), Progress::UnderWay(_)));
    let Some(base) = under_way else { return "the first base is being made".to_owned() };
    let title = base.workspace.name();
    match find(base.workspace.conditions(), condition::READY) {
        Some(ready) => format!("base {title}: {}", ready.message),
        None => format!("base {title} is being made"),
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
