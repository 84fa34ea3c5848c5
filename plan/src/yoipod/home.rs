//! Nodes that an agent's Pod may go to: where its tree is, or can be cloned, and where its session volume can be reached.

use k8s_openapi::api::core::v1::PersistentVolume;
use yoi_crds::AgentWorkspace;
use yoi_crds::condition::{ConditionValue, find, is_true};
use yoi_crds::reason::{self, condition};

use super::Observed;
use crate::meta::{deleting, name};
use crate::step::Step;
use crate::workspace::base::{BaseSet, is_sealed};

pub(super) struct Home<'a> {
    seen: &'a Observed,
    workspace: &'a AgentWorkspace,
    lineage: Option<BaseSet>,
}

impl<'a> Home<'a> {
    pub(super) fn new(seen: &'a Observed, workspace: &'a AgentWorkspace) -> Self {
        let lineage = match &workspace.spec.source.project {
            Some(project) => {
                let fits = |p: &&yoi_crds::YoiProject| name(&p.metadata) == project.name && p.spec.unknown_field().is_none();
                seen.project.as_deref().filter(fits).map(BaseSet::of_project)
            }
            None => BaseSet::of_workspace(workspace),
        };
        Home { seen, workspace, lineage }
    }

    /// At least one node, or why there is none.
    pub(super) fn nodes(&self) -> Result<Vec<String>, ConditionValue> {
        let holding = self.holding()?;
        let Some(volume) = self.seen.session_volume.as_deref() else { return Ok(holding) };
        let reached: Vec<String> = holding.iter().filter(|n| self.seen.nodes.reaches(n, volume)).cloned().collect();
        if reached.is_empty() { Err(self.conflict(&holding, volume)) } else { Ok(reached) }
    }

    /// Nodes that hold the tree, or the base that it is cloned from.
    fn holding(&self) -> Result<Vec<String>, ConditionValue> {
        let nodes = &self.seen.nodes;
        if let Some(node) = self.workspace.status.as_ref().and_then(|s| s.node_name.clone()) {
            if nodes.exists(&node) {
                return Ok(vec![node]);
            }
            return Err(ConditionValue::no(reason::NODE_LOST, format!("node {node} no longer exists, and the tree was on it")));
        }
        if let Some(parent) = &self.workspace.spec.source.workspace {
            let status = self.seen.parent.as_ref().and_then(|p| p.status.as_ref());
            let made = status.filter(|s| is_true(&s.conditions, condition::PROVISIONED));
            return made.and_then(|s| s.node_name.clone()).filter(|n| nodes.exists(n)).map(|n| vec![n]).ok_or_else(|| {
                ConditionValue::no(reason::SOURCE_NOT_SEALED, format!("AgentWorkspace {} has no tree to fork yet", parent.name))
            });
        }
        let provider = self.lineage.as_ref().map_or(self.workspace.spec.provider, |l| l.provider);
        let eligible = nodes.eligible(provider);
        if eligible.is_empty() {
            return Err(ConditionValue::no(reason::NO_ELIGIBLE_NODE, nodes.none_eligible(provider)));
        }
        let Some(lineage) = &self.lineage else { return Ok(eligible.into_iter().map(str::to_owned).collect()) };
        let mut sealed = lineage.sealed_nodes(&self.seen.bases);
        sealed.retain(|n| eligible.contains(&n.as_str()));
        if sealed.is_empty() { Err(self.not_sealed()) } else { Ok(sealed) }
    }

    fn not_sealed(&self) -> ConditionValue {
        match (&self.workspace.spec.source.project, &self.seen.project) {
            (Some(named), Some(project)) if deleting(&project.metadata) => {
                ConditionValue::no(reason::PROJECT_NOT_READY, format!("YoiProject {} is being deleted", named.name))
            }
            (Some(named), Some(project)) => {
                let conditions = project.status.as_ref().map(|s| s.conditions.as_slice()).unwrap_or_default();
                let why = find(conditions, condition::READY).map_or("its source is not sealed on any node yet", |c| c.message.as_str());
                ConditionValue::no(reason::PROJECT_NOT_READY, format!("YoiProject {}: {why}", named.name))
            }
            _ => ConditionValue::no(
                reason::POPULATING,
                format!("the source of AgentWorkspace {} is being fetched", name(&self.workspace.metadata)),
            ),
        }
    }

    fn conflict(&self, holding: &[String], volume: &PersistentVolume) -> ConditionValue {
        let on = holding.join(", ");
        ConditionValue::no(
            reason::SESSION_TOPOLOGY_CONFLICT,
            format!(
                "the tree is or can be made on {on}, and volume {} of the session cannot be reached from there",
                name(&volume.metadata)
            ),
        )
    }

    /// The tree is not made yet and the session volume is elsewhere: the base goes to where the volume is.
    pub(super) fn base_for_session(&self) -> Option<Step> {
        let volume = self.seen.session_volume.as_deref()?;
        self.holding().ok()?;
        self.base_where(|node| self.seen.nodes.reaches(node, volume))
    }

    /// One more node with the base, of those that the Pod may go to, while none is on its way.
    pub(super) fn another_base(&self, allowed: impl Fn(&str) -> bool) -> Option<Step> {
        self.base_where(|node| allowed(node) && self.seen.session_volume.as_deref().is_none_or(|v| self.seen.nodes.reaches(node, v)))
    }

    fn base_where(&self, fits: impl Fn(&str) -> bool) -> Option<Step> {
        let lineage = self.lineage.as_ref()?;
        if self.workspace.status.as_ref().is_some_and(|s| s.node_name.is_some())
            || lineage.living(&self.seen.bases, &self.seen.nodes).any(|b| !is_sealed(b))
        {
            return None;
        }
        let eligible = self.seen.nodes.eligible(lineage.provider);
        let node = eligible.into_iter().find(|n| fits(n) && !lineage.taken(n, &self.seen.bases))?;
        Some(lineage.ensure_on(node))
    }
}
