//! Nodes that an agent's Pod may go to: where its tree is, or can be cloned, and where its session volume can be reached.
//!
//! The first Pod must go to a node that holds the tree or the base. When none of them has room, one Pod follows that may go to every node that can make the
//! tree, also to one that an autoscaler adds, and the base follows it there. No base is made in advance: a Pod that fits nowhere would spread the
//! source for nothing.

use std::time::Duration;

use k8s_openapi::api::core::v1::{PersistentVolume, Toleration};
use yoi_crds::AgentWorkspace;
use yoi_crds::condition::{ConditionValue, find};
use yoi_crds::pod::PodSettings;
use yoi_crds::reason::{self, condition};
use yoi_crds::source::ProviderName;

use super::lost_node;
use super::yoipod_input::YoiPodInput;
use crate::nodes::join_sentences;
use crate::step::Step;
use crate::stored::Stored;
use crate::tree::TreeSource;
use crate::tree::base_set::BaseSet;
use crate::tree::progress::Progress;

pub(super) struct Placement<'a> {
    input: &'a YoiPodInput<'a>,
    workspace: Stored<'a, AgentWorkspace>,
    source: TreeSource<'a>,
    base_set: Option<BaseSet<'a>>,
    /// The settings of the agent's Pod; `None` once it has one, because then the scheduler judges.
    agent: Option<&'a PodSettings>,
    now: jiff::Timestamp,
}

impl<'a> Placement<'a> {
    pub(super) fn new(
        input: &'a YoiPodInput<'a>,
        workspace: Stored<'a, AgentWorkspace>,
        agent: Option<&'a PodSettings>,
        now: jiff::Timestamp,
    ) -> Self {
        let source = TreeSource::new(&workspace.get().spec.source);
        let base_set = match source {
            TreeSource::Project { name, revision } => {
                let project = input.project.filter(|p| p.name() == name && p.spec.unknown_field().is_none());
                project.and_then(|project| match revision {
                    None => Some(BaseSet::of_project(project, &input.bases, input.nodes)),
                    Some(revision) => BaseSet::of_revision(workspace, project, revision, &input.bases, input.nodes),
                })
            }
            TreeSource::Git(_) | TreeSource::Host(_) if workspace.spec.base.is_none() => {
                Some(BaseSet::of_workspace(workspace, &input.bases, input.nodes))
            }
            TreeSource::Git(_) | TreeSource::Host(_) | TreeSource::Fork(_) | TreeSource::Empty => None,
        };
        Placement { input, workspace, source, base_set, agent, now }
    }

    /// At least one node, or why there is none.
    pub(super) fn nodes(&self) -> Result<Vec<&'a str>, ConditionValue> {
        let holding = self.nodes_with_tree()?;
        let Some(volume) = self.input.session_volume else { return Ok(holding) };
        let reached: Vec<&str> = holding.iter().copied().filter(|node| self.input.nodes.reaches(node, volume.get())).collect();
        if reached.is_empty() { Err(self.session_elsewhere(&holding, volume)) } else { Ok(reached) }
    }

    /// Why no node that holds the tree or a base reaches the session volume: one that does gets a base first, or none of those can, each for its reason.
    fn session_elsewhere(&self, holding: &[&str], volume: Stored<'_, PersistentVolume>) -> ConditionValue {
        let title = volume.name();
        let reaching: Vec<&str> = self.input.nodes.reaching(volume.get());
        let conflict = |message: String| ConditionValue::no(reason::SESSION_TOPOLOGY_CONFLICT, message);
        if reaching.is_empty() {
            return conflict(format!("volume {title} of the session can be used on no node of the cluster"));
        }
        if !self.is_open() {
            let (on, reaching) = (holding.join(", "), reaching.join(", "));
            return conflict(format!("the tree is on node {on}, and volume {title} of the session can only be used on: {reaching}"));
        }
        let lacks: Vec<(&str, Option<String>)> = reaching.into_iter().map(|node| (node, self.lacks_for_base(node))).collect();
        if let Some((node, _)) = lacks.iter().find(|(_, lacks)| lacks.is_none()) {
            let message = format!("volume {title} of the session is used on node {node}, which gets the source first");
            return ConditionValue::no(reason::POPULATING, message);
        }
        let named = lacks.into_iter().filter_map(|(node, lacks)| Some(format!("node {node} {}", lacks?)));
        conflict(format!("volume {title} of the session cannot be used where the tree can be made: {}", join_sentences(named)))
    }

    /// What keeps a base and the agent from `node`, as the end of a sentence about it.
    fn lacks_for_base(&self, node: &str) -> Option<String> {
        let nodes = self.input.nodes;
        if let Some(Progress::Stuck(why)) = self.progress_on(node) {
            return Some(format!("does not get on with the source: {why}"));
        }
        if let Some(taken_on) = self.base_set.as_ref().and_then(BaseSet::taken_on).filter(|taken_on| *taken_on != node) {
            return Some(format!("does not hold the source, which was taken on node {taken_on}"));
        }
        if !nodes.is_eligible(node, self.provider()) {
            return Some("offers no fitting provider".to_owned());
        }
        if !self.is_selected(node) {
            return Some("is not one that the agent's node selector and affinity allow".to_owned());
        }
        nodes.0.get(node)?.refusal(self.tolerations())
    }

    /// Whether the agent's node selector and affinity allow the node.
    pub(super) fn is_selected(&self, node: &str) -> bool {
        self.agent.is_none_or(|agent| self.input.nodes.is_allowed_by(node, agent))
    }

    /// Whether the scheduler may send the agent's Pod to the node, as far as is known here: its room is not.
    pub(super) fn lets_in(&self, node: &str) -> bool {
        self.is_selected(node) && self.input.nodes.0.get(node).is_some_and(|node| node.refusal(self.tolerations()).is_none())
    }

    fn tolerations(&self) -> &'a [Toleration] {
        self.agent.map(|agent| agent.tolerations.as_slice()).unwrap_or_default()
    }

    /// Nodes that hold the tree, or the base that it is cloned from.
    fn nodes_with_tree(&self) -> Result<Vec<&'a str>, ConditionValue> {
        let nodes = self.input.nodes;
        if let Some(node) = self.workspace.node_name() {
            if nodes.exists(node) {
                return Ok(vec![node]);
            }
            return Err(lost_node::own_gone(self.input, node));
        }
        if let TreeSource::Fork(parent) = self.source {
            if let Some(gone) = lost_node::gone(self.input) {
                return Err(gone);
            }
            let node = self.input.parent.and_then(|parent| parent.provisioned_on());
            let why = || ConditionValue::no(reason::SOURCE_NOT_SEALED, format!("AgentWorkspace {parent} has no tree to fork yet"));
            return node.map(|node| vec![node]).ok_or_else(why);
        }
        let provider = self.provider();
        let mut eligible = nodes.eligible(provider);
        if eligible.is_empty() {
            return Err(ConditionValue::no(reason::NO_ELIGIBLE_NODE, nodes.none_eligible(provider)));
        }
        if let Some(base_set) = &self.base_set {
            eligible.retain(|node| base_set.may_be_on(node));
        }
        let Some(base_set) = &self.base_set else { return Ok(eligible) };
        let sealed = base_set.sealed_nodes();
        if sealed.is_empty() {
            return Err(self.not_sealed());
        }
        let able: Vec<&str> = sealed.into_iter().filter(|node| eligible.contains(node)).collect();
        // When no node with the base can make trees now, another one gets the base once the Pod is there.
        Ok(if able.is_empty() { eligible } else { able })
    }

    fn provider(&self) -> ProviderName {
        self.base_set.as_ref().map_or(self.workspace.spec.provider, |base_set| base_set.provider)
    }

    /// Whether the tree can still be made on any node: it has none yet, and is no fork of another tree.
    pub(super) fn is_open(&self) -> bool {
        self.workspace.node_name().is_none() && !matches!(self.source, TreeSource::Fork(_))
    }

    /// Whether the tree can be made on `node`, and the agent can run there: provider, runtime, and no base that is stuck.
    pub(super) fn can_make(&self, node: &str, runtime_digest: &str) -> bool {
        let nodes = self.input.nodes;
        let has_runtime = nodes.0.get(node).is_some_and(|node| node.has_runtime(runtime_digest));
        let may_be_there = self.base_set.as_ref().is_none_or(|base_set| base_set.may_be_on(node));
        has_runtime && may_be_there && nodes.is_eligible(node, self.provider()) && !self.is_stuck_on(node)
    }

    /// Whether there is a base on `node` that does not get on.
    pub(super) fn is_stuck_on(&self, node: &str) -> bool {
        matches!(self.progress_on(node), Some(Progress::Stuck(_)))
    }

    /// When the base on `node` may be stuck, even if nothing changes until then.
    pub(super) fn recheck(&self, node: &str) -> Option<Duration> {
        match self.progress_on(node)? {
            Progress::UnderWay(after) => after,
            Progress::Sealed | Progress::Stuck(_) => None,
        }
    }

    fn progress_on(&self, node: &str) -> Option<Progress> {
        let base_set = self.base_set.as_ref()?;
        Some(base_set.progress(base_set.on(node)?, self.now))
    }

    fn not_sealed(&self) -> ConditionValue {
        match (self.source, self.input.project) {
            (TreeSource::Project { name: title, .. }, Some(project)) if project.is_deleting() => {
                ConditionValue::no(reason::PROJECT_DELETING, format!("YoiProject {title} is being deleted, and nothing new begins from it"))
            }
            // A base of its own says why it is not there.
            _ if let Some(base_set) = self.base_set.as_ref().filter(|base_set| base_set.is_of(self.workspace.uid())) => {
                base_set.not_populated(self.now)
            }
            (TreeSource::Project { name: title, .. }, Some(project)) => {
                let conditions = project.get().status.as_ref().map(|s| s.conditions.as_slice()).unwrap_or_default();
                let why = find(conditions, condition::READY).map_or("its source is not sealed on any node yet", |c| c.message.as_str());
                ConditionValue::no(reason::PROJECT_NOT_READY, format!("YoiProject {title}: {why}"))
            }
            _ if let Some(base_set) = &self.base_set => base_set.not_populated(self.now),
            _ => ConditionValue::no(reason::POPULATING, "the source is being fetched"),
        }
    }

    /// A base on a node that reaches the session volume and that the agent may go to, while the tree is not made and the nodes with a base do not reach
    /// that volume.
    pub(super) fn base_for_session(&self) -> Option<Step> {
        let volume = self.input.session_volume?;
        let base_set = self.base_set.as_ref().filter(|_| self.is_open())?;
        self.nodes_with_tree().ok()?;
        let nodes = self.input.nodes;
        base_set.make_for_consumer(self.tolerations(), |node| nodes.reaches(node, volume.get()) && self.is_selected(node), self.now)
    }
}
