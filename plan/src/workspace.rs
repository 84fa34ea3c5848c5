//! AgentWorkspace: which node makes the tree from what, who may mount it, and when it may go.

pub mod base;
pub mod claim;
mod going;
mod place;
pub mod populate;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use yoi_crds::condition::{ConditionStatus, ConditionValue};
use yoi_crds::name::finalizer;
use yoi_crds::reason::{self, condition};
use yoi_crds::source::{TreeOwner, WorkspaceSource};
use yoi_crds::{AgentWorkspace, AgentWorkspaceStatus, YoiPod, YoiProject};

use crate::conditions::{self, ConditionSet};
use crate::meta::{self, controlled_by, deleting, name, namespace, target, uid};
use crate::nodes::Nodes;
use crate::settings::Settings;
use crate::step::{Kind, Plan, Step};
use crate::yoipod;

/// Everything that the decision looks at, gathered once.
#[derive(Clone, Debug)]
pub struct Observed {
    pub workspace: Arc<AgentWorkspace>,
    /// The namespace is being deleted: nothing can be made in it.
    pub terminating: bool,
    /// Of `source.project`.
    pub project: Option<Arc<YoiProject>>,
    /// Of `source.workspace`.
    pub parent: Option<Arc<AgentWorkspace>>,
    /// Bases of the project, or of this workspace; for a base, all of its lineage.
    pub bases: Vec<Arc<AgentWorkspace>>,
    /// YoiPods that name this workspace, or were the reason to make it.
    pub users: Vec<Arc<YoiPod>>,
    /// Agent Pods of those YoiPods.
    pub agents: Vec<Arc<Pod>>,
    /// Pods that fill this base.
    pub populators: Vec<Arc<Pod>>,
    pub claim: Option<Arc<PersistentVolumeClaim>>,
    pub volume: Option<Arc<PersistentVolume>>,
    pub nodes: Arc<Nodes>,
}

/// The one YoiPod whose Pod may mount this workspace: the one that it was made for, else the oldest that names it.
#[must_use]
pub fn holder<'a>(workspace: &AgentWorkspace, users: &'a [Arc<YoiPod>]) -> Option<&'a Arc<YoiPod>> {
    match meta::controller(&workspace.metadata).filter(|o| o.kind == "YoiPod") {
        Some(owner) => users.iter().find(|u| uid(&u.metadata) == owner.uid),
        None => users.iter().min_by_key(|u| (u.metadata.creation_timestamp.as_ref().map(|t| t.0), name(&u.metadata).to_owned())),
    }
}

#[must_use]
pub fn plan(seen: &Observed, settings: &Settings, now: jiff::Timestamp) -> Plan<AgentWorkspaceStatus> {
    let meta = &seen.workspace.metadata;
    if deleting(meta) {
        return going::going(seen, now);
    }
    if seen.terminating {
        return Plan::nothing();
    }
    if let Some(step) = meta::missing_finalizers(Kind::Workspace, meta, &[finalizer::OPERATOR, finalizer::NODE_DATA]) {
        return Plan::only(vec![step]);
    }
    if let Some(plan) = going::expired(seen, now) {
        return plan;
    }
    Round::new(seen, settings, now).plan()
}

struct Round<'a> {
    seen: &'a Observed,
    settings: &'a Settings,
    now: jiff::Timestamp,
    before: AgentWorkspaceStatus,
    steps: Vec<Step>,
    requeue_after: Option<Duration>,
}

impl<'a> Round<'a> {
    fn new(seen: &'a Observed, settings: &'a Settings, now: jiff::Timestamp) -> Self {
        let before = seen.workspace.status.clone().unwrap_or_default();
        Round { seen, settings, now, before, steps: Vec::new(), requeue_after: None }
    }

    fn plan(mut self) -> Plan<AgentWorkspaceStatus> {
        let workspace = &self.seen.workspace;
        let is_base = workspace.spec.base.is_some();
        let accepted = self.accepted();
        let mut saying_status =
            AgentWorkspaceStatus { observed_generation: workspace.metadata.generation, ..AgentWorkspaceStatus::default() };
        let before_conditions = self.before.conditions.clone();
        let mut saying = ConditionSet::new(&before_conditions, workspace.metadata.generation, self.now);
        let ok = accepted.status == ConditionStatus::True;
        saying.say(condition::ACCEPTED, accepted);

        // A tree that has a place keeps it, whatever came between: without it the node would forget the tree, and another would make a new one.
        let placed = self.before.node_name.is_some();
        let place = if ok || placed { self.place() } else { Err(ConditionValue::no(reason::INVALID_SPEC, "not accepted")) };
        let owner = self.owner();
        saying_status.owner = (ok || placed).then_some(owner);
        match &place {
            Ok((node, origin)) if !self.seen.nodes.exists(node) => {
                saying_status.node_name = Some(node.clone());
                saying_status.origin = Some(origin.clone());
                let gone = format!("node {node} no longer exists, and the tree was on it; delete the workspace to make a new one");
                saying.say(condition::SCHEDULED, ConditionValue::no(reason::NODE_LOST, gone));
            }
            Ok((node, origin)) => {
                saying_status.node_name = Some(node.clone());
                saying_status.origin = Some(origin.clone());
                saying.say(condition::SCHEDULED, ConditionValue::yes(reason::NODE_SELECTED, format!("on node {node}")));
            }
            Err(why) if ok || placed => {
                saying_status.node_name = self.before.node_name.clone().filter(|n| self.seen.nodes.exists(n));
                saying.say(condition::SCHEDULED, why.clone());
            }
            Err(_) => {}
        }
        let provisioned = saying.is_true(condition::PROVISIONED) && place.is_ok();
        let mut needed = vec![condition::ACCEPTED, condition::SCHEDULED];
        if is_base {
            if provisioned {
                self.fill(&mut saying, &mut saying_status, owner);
            }
            needed.extend([condition::PROVISIONED, condition::POPULATED, condition::SEALED]);
        } else {
            needed.push(condition::PROVISIONED);
        }
        if workspace.spec.claim && ok {
            let on = place.as_ref().ok().map(|(node, _)| node.as_str()).filter(|_| provisioned);
            let claimed = claim::plan(workspace, self.seen.claim.as_deref(), self.seen.volume.as_deref(), on);
            self.steps.extend(claimed.steps);
            let chosen = claim::selected_node(self.seen.claim.as_deref()).filter(|_| !placed && place.is_err());
            if let (Some(node), Some(claim)) = (chosen, &self.seen.claim)
                && !self.seen.nodes.exists(node)
                && !deleting(&claim.metadata)
            {
                self.steps.push(Step::UnselectNode { claim: target(Kind::Claim, &claim.metadata) });
            }
            saying_status.claim_name = Some(name(&workspace.metadata).to_owned());
            saying.say(condition::BOUND, claimed.bound);
            needed.push(condition::BOUND);
        }
        if !is_base && !workspace.spec.claim && place.is_ok() {
            saying_status.pod_uid = self.holders_pod().map(|p| uid(&p.metadata).to_owned());
        }
        if let Some(due) = going::released_until(workspace) {
            self.look_again(Duration::try_from(due.duration_since(self.now)).unwrap_or(Duration::ZERO));
        }
        saying.ready(&needed, "the tree is ready");
        saying_status.conditions = saying.done();
        Plan { steps: self.steps, status: Some(saying_status), requeue_after: self.requeue_after }
    }

    fn look_again(&mut self, after: Duration) {
        self.requeue_after = Some(self.requeue_after.map_or(after, |other| other.min(after)));
    }

    fn accepted(&self) -> ConditionValue {
        let workspace = &self.seen.workspace;
        let spec = &workspace.spec;
        if let Some(field) = spec.unknown_field() {
            return conditions::not_understood(field);
        }
        if spec.claim && claim::foreign(workspace, self.seen.claim.as_deref()) {
            let title = name(&workspace.metadata);
            return ConditionValue::no(
                reason::INVALID_SPEC,
                format!("PersistentVolumeClaim {title} exists and is not of this workspace; delete it or name the workspace otherwise"),
            );
        }
        // A tree that is made no longer needs what it was made from.
        let made = self.before.origin.is_some();
        let missing = |kind: &str, title: &str| {
            ConditionValue::no(
                reason::SOURCE_NOT_FOUND,
                format!("{kind} {title} does not exist in namespace {}", namespace(&workspace.metadata)),
            )
        };
        if let Some(project) = spec.source.project.as_ref().filter(|_| !made && self.seen.project.is_none()) {
            return missing("YoiProject", &project.name);
        }
        if let Some(parent) = spec.source.workspace.as_ref().filter(|_| !made) {
            if parent.name == name(&workspace.metadata) {
                return ConditionValue::no(reason::INVALID_SPEC, "a workspace cannot be a fork of itself");
            }
            if self.seen.parent.as_ref().is_none_or(|p| deleting(&p.metadata)) {
                return missing("AgentWorkspace", &parent.name);
            }
        }
        ConditionValue::yes(reason::VALID, "the spec makes sense and what it names exists")
    }

    /// A clone has the owner of what it was made from, whatever its own spec says.
    fn owner(&self) -> TreeOwner {
        let own = self.seen.workspace.spec.owner;
        let said = self.before.owner.filter(|_| self.before.origin.is_some());
        said.or_else(|| self.sources_owner()).or(own).or(self.before.owner).unwrap_or_default()
    }

    fn sources_owner(&self) -> Option<TreeOwner> {
        let WorkspaceSource { project, workspace, git: _, empty: _ } = &self.seen.workspace.spec.source;
        match (project, workspace) {
            (Some(_), _) => self.seen.project.as_ref().map(|p| p.spec.owner),
            (None, Some(_)) => self.seen.parent.as_ref().and_then(|p| p.status.as_ref()?.owner),
            (None, None) => None,
        }
    }

    /// One writer: while a former Pod still exists, it and no other. A Pod that was made for a former tree of this name is none.
    fn holders_pod(&self) -> Option<&Pod> {
        let workspace = &self.seen.workspace;
        let holder = holder(workspace, &self.seen.users)?;
        let wants = |p: &Pod| yoipod::tree_of(p) == Some(uid(&workspace.metadata));
        let mine = self.seen.agents.iter().filter(|p| controlled_by(&p.metadata, uid(&holder.metadata)) && wants(p));
        mine.min_by_key(|p| yoipod::run_generation(p)).map(Arc::as_ref)
    }

    fn fill(&mut self, saying: &mut ConditionSet<'_>, status: &mut AgentWorkspaceStatus, owner: TreeOwner) {
        let workspace = &self.seen.workspace;
        let discard = |pods: &[Arc<Pod>]| {
            let idle = pods.iter().filter(|p| !deleting(&p.metadata));
            idle.map(|p| Step::Delete(target(Kind::Pod, &p.metadata))).collect::<Vec<_>>()
        };
        let Some(git) = &workspace.spec.source.git else {
            saying.say(condition::POPULATED, populate::filled());
            return;
        };
        if saying.is_true(condition::SEALED) {
            saying.say(condition::POPULATED, populate::filled());
            self.steps.extend(discard(&self.seen.populators));
            return;
        }
        let filling = populate::Filling {
            base: workspace,
            git,
            owner,
            hostname: self.before.node_name.as_deref().filter(|n| self.seen.nodes.exists(n)).map(|n| self.seen.nodes.hostname(n)),
            revision: base::pinned_revision(workspace, &self.seen.bases),
            settings: self.settings,
            now: self.now,
        };
        let populated = filling.plan(&self.seen.populators);
        self.steps.extend(populated.steps);
        status.pod_uid = populated.pod_uid;
        saying.say(condition::POPULATED, populated.populated);
        if let Some(after) = populated.requeue_after {
            self.look_again(after);
        }
    }
}
