//! Nodes that an agent's Pod may go to: where its tree is, or can be cloned, and where its session volume can be reached.

use k8s_openapi::api::core::v1::PersistentVolume;
use yoi_crds::AgentWorkspace;
use yoi_crds::condition::{ConditionValue, find};
use yoi_crds::reason::{self, condition};

use super::yoipod_input::YoiPodInput;
use crate::step::Step;
use crate::stored::Stored;
use crate::tree::TreeSource;
use crate::tree::base_set::BaseSet;

pub(super) struct Placement<'a> {
    input: &'a YoiPodInput<'a>,
    workspace: Stored<'a, AgentWorkspace>,
    source: TreeSource<'a>,
    base_set: Option<BaseSet<'a>>,
}

impl<'a> Placement<'a> {
    pub(super) fn new(input: &'a YoiPodInput<'a>, workspace: Stored<'a, AgentWorkspace>) -> Self {
        let source = TreeSource::new(&workspace.get().spec.source);
        let base_set = match source {
            TreeSource::Project(title) => {
                let project = input.project.filter(|p| p.name() == title && p.spec.unknown_field().is_none());
                project.map(|project| BaseSet::of_project(project, &input.bases, input.nodes))
            }
            TreeSource::Git(_) if workspace.spec.base.is_none() => Some(BaseSet::of_workspace(workspace, &input.bases, input.nodes)),
            TreeSource::Git(_) | TreeSource::Fork(_) | TreeSource::Empty => None,
        };
        Placement { input, workspace, source, base_set }
    }

    /// At least one node, or why there is none.
    pub(super) fn nodes(&self) -> Result<Vec<&'a str>, ConditionValue> {
        let holding = self.nodes_with_tree()?;
        let Some(volume) = self.input.session_volume else { return Ok(holding) };
        let reached: Vec<&str> = holding.iter().copied().filter(|node| self.input.nodes.reaches(node, volume.get())).collect();
        if reached.is_empty() { Err(session_elsewhere(&holding, volume)) } else { Ok(reached) }
    }

    /// Nodes that hold the tree, or the base that it is cloned from.
    fn nodes_with_tree(&self) -> Result<Vec<&'a str>, ConditionValue> {
        let nodes = self.input.nodes;
        if let Some(node) = self.workspace.node_name() {
            if nodes.exists(node) {
                return Ok(vec![node]);
            }
            return Err(ConditionValue::no(reason::NODE_LOST, format!("node {node} no longer exists, and the tree was on it")));
        }
        if let TreeSource::Fork(parent) = self.source {
            let node = self.input.parent.and_then(|parent| parent.provisioned_on()).filter(|node| nodes.exists(node));
            let why = || ConditionValue::no(reason::SOURCE_NOT_SEALED, format!("AgentWorkspace {parent} has no tree to fork yet"));
            return node.map(|node| vec![node]).ok_or_else(why);
        }
        let provider = self.base_set.as_ref().map_or(self.workspace.spec.provider, |base_set| base_set.provider);
        let eligible = nodes.eligible(provider);
        if eligible.is_empty() {
            return Err(ConditionValue::no(reason::NO_ELIGIBLE_NODE, nodes.none_eligible(provider)));
        }
        let Some(base_set) = &self.base_set else { return Ok(eligible) };
        let mut sealed = base_set.sealed_nodes();
        sealed.retain(|node| eligible.contains(node));
        if sealed.is_empty() { Err(self.not_sealed()) } else { Ok(sealed) }
    }

    fn not_sealed(&self) -> ConditionValue {
        match (self.source, self.input.project) {
            (TreeSource::Project(title), Some(project)) if project.is_deleting() => {
                ConditionValue::no(reason::PROJECT_NOT_READY, format!("YoiProject {title} is being deleted"))
            }
            (TreeSource::Project(title), Some(project)) => {
                let conditions = project.get().status.as_ref().map(|s| s.conditions.as_slice()).unwrap_or_default();
                let why = find(conditions, condition::READY).map_or("its source is not sealed on any node yet", |c| c.message.as_str());
                ConditionValue::no(reason::PROJECT_NOT_READY, format!("YoiProject {title}: {why}"))
            }
            _ => ConditionValue::no(reason::POPULATING, format!("the source of AgentWorkspace {} is being fetched", self.workspace.name())),
        }
    }

    /// A base on a node that reaches the session volume, while the tree is not made and the nodes with a base do not reach it.
    pub(super) fn base_for_session(&self) -> Option<Step> {
        let volume = self.input.session_volume?;
        self.nodes_with_tree().ok()?;
        self.base_where(|node| self.input.nodes.reaches(node, volume.get()))
    }

    /// A base on one more of the nodes that `allowed` lets through and that reach the session volume, while no other base is being made.
    pub(super) fn another_base(&self, allowed: impl Fn(&str) -> bool) -> Option<Step> {
        let reaches = |node: &str| self.input.session_volume.is_none_or(|volume| self.input.nodes.reaches(node, volume.get()));
        self.base_where(|node| allowed(node) && reaches(node))
    }

    fn base_where(&self, fits: impl Fn(&str) -> bool) -> Option<Step> {
        let base_set = self.base_set.as_ref()?;
        if self.workspace.node_name().is_some() || base_set.living().any(|base| !base.is_sealed()) {
            return None;
        }
        base_set.make_next(fits)
    }
}

fn session_elsewhere(holding: &[&str], volume: Stored<'_, PersistentVolume>) -> ConditionValue {
    let on = holding.join(", ");
    let message = format!("the tree is or can be made on {on}, and volume {} of the session cannot be reached from there", volume.name());
    ConditionValue::no(reason::SESSION_TOPOLOGY_CONFLICT, message)
}
