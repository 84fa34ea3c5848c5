//! YoiProject: one sealed generation of its source, on as many nodes as need it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use yoi_crds::condition::{ConditionValue, find, is_true};
use yoi_crds::project::SealedGeneration;
use yoi_crds::reason::{self, condition};
use yoi_crds::{AgentWorkspace, YoiProject, YoiProjectStatus};

use crate::conditions::{self, ConditionSet};
use crate::meta::{deleting, name, target, uid};
use crate::nodes::Nodes;
use crate::step::{Kind, Plan, Step};
use crate::workspace::base::{BaseSet, base_node, is_sealed};

#[derive(Clone, Debug)]
pub struct Observed {
    pub project: Arc<YoiProject>,
    pub terminating: bool,
    /// Every base that this project controls, of every generation.
    pub bases: Vec<Arc<AgentWorkspace>>,
    /// UIDs that the origins of workspaces name.
    pub origins: BTreeSet<String>,
    pub nodes: Arc<Nodes>,
}

/// A node that went without a word makes nothing, and its WorkspaceNode still says what it offered: after so long another one gets its turn.
const PATIENCE: Duration = Duration::from_secs(60);

#[must_use]
pub fn plan(seen: &Observed, now: jiff::Timestamp) -> Plan<YoiProjectStatus> {
    let meta = &seen.project.metadata;
    // Bases go by owner reference; there is nothing of ours to wait for.
    if deleting(meta) || seen.terminating {
        return Plan::nothing();
    }
    let before = seen.project.status.clone().unwrap_or_default();
    if let Some(field) = seen.project.spec.unknown_field() {
        let mut saying = ConditionSet::new(&before.conditions, meta.generation, now);
        saying.say(condition::SOURCE_READY, conditions::not_understood(field));
        saying.ready(&[condition::SOURCE_READY], "");
        let status = YoiProjectStatus { observed_generation: meta.generation, generation: before.generation, conditions: saying.done() };
        return Plan { steps: Vec::new(), status: Some(status), requeue_after: None };
    }
    let lineage = BaseSet::of_project(&seen.project);
    let current: Vec<&Arc<AgentWorkspace>> = lineage.living(&seen.bases, &seen.nodes).collect();
    let sealed: Vec<&Arc<AgentWorkspace>> = current.iter().copied().filter(|b| is_sealed(b)).collect();
    let mut steps = lineage.lost(&seen.bases, &seen.nodes);
    let mut saying = ConditionSet::new(&before.conditions, meta.generation, now);

    let eligible = seen.nodes.eligible(lineage.provider);
    if current.is_empty() {
        steps.extend(eligible.iter().find(|node| !lineage.taken(node, &seen.bases)).map(|node| lineage.ensure_on(node)));
    }
    let mut requeue_after = None;
    if sealed.is_empty() {
        match idle_for(&current, now) {
            Some(idle) if idle < PATIENCE => requeue_after = Some(PATIENCE - idle),
            Some(_) => {
                let next = eligible.iter().find(|node| !lineage.taken(node, &seen.bases));
                steps.extend(next.map(|node| lineage.ensure_on(node)));
            }
            None => {}
        }
    } else {
        steps.extend(retired(seen, &current));
    }
    saying.say(condition::SOURCE_READY, source_ready(&current));
    saying.say(
        condition::SEALED,
        match (sealed.len(), current.first()) {
            (0, None) if eligible.is_empty() => ConditionValue::no(reason::NO_ELIGIBLE_NODE, seen.nodes.none_eligible(lineage.provider)),
            (0, None) => ConditionValue::no(reason::CREATING, "the first base is being made"),
            (0, Some(base)) => waiting(base),
            (n, _) => ConditionValue::yes(reason::SEALED, format!("sealed on {n} node{}", if n == 1 { "" } else { "s" })),
        },
    );
    // Without a node nothing can be fetched either; the sentence that helps is the other one.
    if current.is_empty() && eligible.is_empty() {
        saying.say(condition::SOURCE_READY, ConditionValue::no(reason::NO_ELIGIBLE_NODE, seen.nodes.none_eligible(lineage.provider)));
    }
    saying.ready(&[condition::SOURCE_READY, condition::SEALED], "workspaces can be made from this project");
    let status =
        YoiProjectStatus { observed_generation: meta.generation, generation: generation(&lineage, &sealed), conditions: saying.done() };
    Plan { steps, status: Some(status), requeue_after }
}

/// How long nothing has been made of any of these bases, since the last of them was asked for. `None`: there are none, or one has its tree.
fn idle_for(current: &[&Arc<AgentWorkspace>], now: jiff::Timestamp) -> Option<Duration> {
    if current.iter().any(|b| is_true(conditions(b), condition::PROVISIONED)) {
        return None;
    }
    let last = current.iter().map(|b| b.metadata.creation_timestamp.as_ref().map_or(now, |t| t.0)).max()?;
    Some(Duration::try_from(now.duration_since(last)).unwrap_or(Duration::ZERO))
}

/// Bases of former generations that no tree was made from.
fn retired(seen: &Observed, current: &[&Arc<AgentWorkspace>]) -> Vec<Step> {
    let kept = |b: &AgentWorkspace| current.iter().any(|c| uid(&c.metadata) == uid(&b.metadata)) || seen.origins.contains(uid(&b.metadata));
    seen.bases.iter().filter(|b| !deleting(&b.metadata) && !kept(b)).map(|b| Step::Delete(target(Kind::Workspace, &b.metadata))).collect()
}

fn conditions(base: &AgentWorkspace) -> &[yoi_crds::Condition] {
    base.status.as_ref().map(|s| s.conditions.as_slice()).unwrap_or_default()
}

fn source_ready(current: &[&Arc<AgentWorkspace>]) -> ConditionValue {
    if current.iter().any(|b| is_true(conditions(b), condition::POPULATED)) {
        return ConditionValue::yes(reason::FILLED, "the source was fetched");
    }
    let failed = current.iter().find_map(|b| find(conditions(b), condition::POPULATED).filter(|c| c.reason == reason::POPULATE_FAILED));
    match failed {
        Some(c) => ConditionValue::no(reason::POPULATE_FAILED, c.message.clone()),
        None => ConditionValue::no(reason::POPULATING, "the source is being fetched"),
    }
}

fn waiting(base: &AgentWorkspace) -> ConditionValue {
    let title = name(&base.metadata);
    match find(conditions(base), condition::READY) {
        Some(c) => ConditionValue::no(reason::POPULATING, format!("base {title}: {}", c.message)),
        None => ConditionValue::no(reason::POPULATING, format!("base {title} is being made")),
    }
}

fn generation(lineage: &BaseSet, sealed: &[&Arc<AgentWorkspace>]) -> Option<SealedGeneration> {
    let first = sealed.iter().min_by_key(|b| name(&b.metadata))?;
    let volume = first.status.as_ref()?.volume.as_ref();
    let mut nodes: Vec<String> = sealed.iter().filter_map(|b| base_node(b)).collect();
    nodes.sort();
    Some(SealedGeneration {
        name: lineage.generation(),
        revision: volume.and_then(|v| v.revision.clone()),
        manifest_digest: volume.and_then(|v| v.manifest_digest.clone()),
        nodes,
    })
}
