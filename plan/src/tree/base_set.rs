//! Bases: one sealed tree per generation and node, from which workspaces are cloned.
//!
//! The first base is made on the best node where its populator can start. While none is sealed and none makes [`Progress`], the next such node gets one:
//! so there is at most one base per node, and none of them is deleted before another is sealed. A base on a further node follows a consumer: the Pod or
//! the session volume that is on that node.

mod folder;
mod revision;

pub(crate) use revision::{first_generation, refresh_status, synced, tree_source};

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Toleration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use yoi_crds::condition::ConditionValue;
use yoi_crds::name::{finalizer, label};
use yoi_crds::pod::PodSettings;
use yoi_crds::prepare::Prepare;
use yoi_crds::reason::{self, condition};
use yoi_crds::source::{ProviderName, TreeOwner, WorkspaceSource};
use yoi_crds::workspace::{BaseRef, Binding, BundleRef};
use yoi_crds::{AgentWorkspace, AgentWorkspaceSpec, Condition, YoiProject, condition as conditions};

use super::progress::Progress;
use crate::nodes::{Nodes, join_sentences};
use crate::step::Step;
use crate::stored::{Object as _, Stored, Uid, delete_all};
use crate::{meta, names};

/// Annotation of a base on a node that its consumer was on already. Its populator tolerates every taint there, and it stays while it is stuck: the
/// consumer waits for it.
pub const FOLLOWS_CONSUMER: &str = "yoi.dev/follows-consumer";

/// UID of the YoiProject or AgentWorkspace whose base this is; `None` for a workspace that is no base, or not one as [`BaseSet`] makes them. Whether
/// the parent is in the same namespace is for the caller to check.
#[must_use]
pub fn base_parent_uid(base: &AgentWorkspace) -> Option<&str> {
    let BaseRef { generation, node, prepare: _, revision: _, bundle: _ } = base.spec.base.as_ref()?;
    let parent = meta::controller(&base.metadata)?;
    let is_a_parent = [YoiProject::KIND, AgentWorkspace::KIND].contains(&parent.kind.as_str()) && parent.api_version == meta::API_VERSION;
    (is_a_parent && meta::name(&base.metadata) == names::base(generation, node)).then_some(parent.uid.as_str())
}

impl<'a> Stored<'a, AgentWorkspace> {
    pub(crate) fn conditions(self) -> &'a [Condition] {
        self.get().status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default()
    }

    pub(crate) fn is_true(self, type_: &str) -> bool {
        conditions::is_true(self.conditions(), type_)
    }

    /// The node that makes and holds the tree.
    pub(crate) fn node_name(self) -> Option<&'a str> {
        self.get().status.as_ref()?.node_name.as_deref()
    }

    /// The node of a tree that is made.
    pub(crate) fn provisioned_on(self) -> Option<&'a str> {
        self.node_name().filter(|_| self.is_true(condition::PROVISIONED))
    }
}

/// A workspace that is a base.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ObservedBase<'a> {
    pub workspace: Stored<'a, AgentWorkspace>,
    pub generation: &'a str,
    pub node: &'a str,
    /// What runs in it before it is sealed.
    pub prepare: Option<&'a Prepare>,
}

impl<'a> ObservedBase<'a> {
    /// The bases among `workspaces`.
    pub(crate) fn all(workspaces: &'a [Arc<AgentWorkspace>]) -> Vec<Self> {
        Stored::all(workspaces).into_iter().filter_map(Self::new).collect()
    }

    /// `None` for a workspace that is no base.
    pub(crate) fn new(workspace: Stored<'a, AgentWorkspace>) -> Option<Self> {
        let BaseRef { generation, node, prepare, revision: _, bundle: _ } = workspace.get().spec.base.as_ref()?;
        Some(ObservedBase { workspace, generation, node, prepare: prepare.as_deref() })
    }

    /// Trees can be cloned from it.
    pub(crate) fn is_sealed(self) -> bool {
        !self.workspace.is_deleting() && !self.has_lost_its_tree() && self.workspace.is_true(condition::SEALED)
    }

    /// See [`FOLLOWS_CONSUMER`].
    pub(crate) fn follows_consumer(self) -> bool {
        meta::annotation(self.workspace.meta(), FOLLOWS_CONSUMER).is_some()
    }

    /// Its node came back with an empty disk. What the base held can be fetched again.
    fn has_lost_its_tree(self) -> bool {
        conditions::find(self.workspace.conditions(), condition::PROVISIONED).is_some_and(|c| c.reason == *reason::TREE_LOST)
    }

    /// The commit that the first sealed base of the same content holds, among `observed`. A later base takes the same, though the branch has moved on.
    pub(crate) fn pinned_revision(self, observed: &[Self]) -> Option<String> {
        observed
            .iter()
            .filter(|other| other.workspace.uid() != self.workspace.uid() && other.is_sealed() && other.generation == self.generation)
            .min_by_key(|other| other.workspace.name())
            .and_then(|other| other.workspace.get().status.as_ref()?.volume.as_ref()?.revision.clone())
    }
}

/// All bases of one content: the current source of a project, or of one workspace with a direct git source.
#[derive(Clone, Debug)]
pub(crate) struct BaseSet<'a> {
    parent: OwnerReference,
    parent_uid: Uid<'a>,
    namespace: &'a str,
    /// Name of the YoiProject; absent for a workspace's own bases.
    project: Option<&'a str>,
    source: WorkspaceSource,
    /// Of the spec.
    path: Option<&'a str>,
    owner: TreeOwner,
    pub provider: ProviderName,
    prepare: Option<&'a Prepare>,
    pub generation: String,
    /// The commit that its bases are filled with; that of the source's ref when absent.
    revision: Option<String>,
    /// Where what the source lacks of that commit is.
    bundle: Option<BundleRef>,
    /// The generation that this one follows after: its nodes are preferred.
    former: Option<String>,
    /// The settings of the agents that have none of their own. The nodes that these select get the base first, and those that these tolerate get one too.
    agents: Option<&'a PodSettings>,
    /// Bases of the parent, of every generation.
    observed: &'a [ObservedBase<'a>],
    nodes: &'a Nodes,
}

impl<'a> BaseSet<'a> {
    /// The bases of a workspace with a direct git source.
    pub(crate) fn of_workspace(workspace: Stored<'a, AgentWorkspace>, observed: &'a [ObservedBase<'a>], nodes: &'a Nodes) -> Self {
        let spec = &workspace.get().spec;
        let owner = spec.owner.unwrap_or_default();
        BaseSet {
            parent: workspace.owner_reference(),
            parent_uid: workspace.uid(),
            namespace: workspace.namespace(),
            project: None,
            source: spec.source.clone(),
            path: spec.path.as_deref(),
            owner,
            provider: spec.provider,
            prepare: None,
            generation: names::generation(workspace.uid().as_str(), &spec.source, owner, spec.path.as_deref(), spec.provider),
            revision: None,
            bundle: None,
            former: None,
            agents: None,
            observed,
            nodes,
        }
    }

    /// Taints that the project's agents tolerate, and so do the Pods that fill its bases.
    pub(crate) fn tolerations(&self) -> &'a [Toleration] {
        self.agents.map(|agents| agents.tolerations.as_slice()).unwrap_or_default()
    }

    /// The bases of this content that are not being deleted.
    fn members(&self) -> impl Iterator<Item = ObservedBase<'a>> {
        self.observed.iter().copied().filter(|base| {
            base_parent_uid(base.workspace.get()) == Some(self.parent_uid.as_str())
                && base.workspace.namespace() == self.namespace
                && !base.workspace.is_deleting()
                && base.generation == self.generation
        })
    }

    /// Those that trees can be cloned from, now or once they are sealed: their node exists and has not lost the tree.
    pub(crate) fn living(&self) -> impl Iterator<Item = ObservedBase<'a>> {
        self.members().filter(|base| !self.is_lost(*base))
    }

    /// Nothing can be cloned from it ever again.
    fn is_lost(&self, base: ObservedBase<'_>) -> bool {
        base.has_lost_its_tree() || !self.nodes.exists(base.node)
    }

    /// Steps that delete the lost bases: their names are needed for new ones.
    pub(crate) fn delete_lost(&self) -> Vec<Step> {
        delete_all(self.members().filter(|base| self.is_lost(*base)).map(|base| base.workspace))
    }

    /// Names of the nodes that hold this content sealed, sorted.
    pub(crate) fn sealed_nodes(&self) -> Vec<&'a str> {
        let mut nodes: Vec<&str> = self.members().filter(|base| base.is_sealed()).map(|base| base.node).collect();
        nodes.sort_unstable();
        nodes
    }

    /// The base on `node`, sealed or not.
    pub(crate) fn on(&self, node: &str) -> Option<ObservedBase<'a>> {
        self.members().find(|base| !base.has_lost_its_tree() && base.node == node)
    }

    /// How far the base is.
    pub(crate) fn progress(&self, base: ObservedBase<'_>, now: jiff::Timestamp) -> Progress {
        Progress::new(base, self.nodes.0.get(base.node), now)
    }

    /// While no base is sealed: the steps that delete lost ones, and that make one on the next node when no other makes progress; and when to look again.
    pub(crate) fn first_base(&self, now: jiff::Timestamp) -> (Vec<Step>, Option<Duration>) {
        let mut steps = self.delete_lost();
        steps.extend(self.delete_not_taken());
        let mut recheck: Option<Duration> = None;
        let mut waits = false;
        for base in self.living() {
            match self.progress(base, now) {
                Progress::Sealed => return (steps, None),
                Progress::UnderWay(after) => {
                    waits = true;
                    recheck = recheck.into_iter().chain(after).min();
                }
                Progress::Stuck(_) => {}
            }
        }
        if !waits {
            steps.extend(self.make_next());
        }
        (steps, recheck)
    }

    /// The nodes where Auto would take a better provider by now than the one that made the base there, as a part of a sentence. All trees of a base have
    /// its provider, so only the next generation gets the better one.
    pub(crate) fn better_providers(&self) -> String {
        if self.provider != ProviderName::Auto {
            return String::new();
        }
        let better = self.living().filter_map(|base| {
            let made_by = base.workspace.get().status.as_ref()?.provider.as_ref()?.selected;
            let best = self.nodes.best_provider(base.node).filter(|best| *best < made_by && made_by != ProviderName::Unknown)?;
            Some(format!("node {} offers {best} by now, and keeps {made_by} until the project's generation changes", base.node))
        });
        join_sentences(better)
    }

    /// Why no base holds the source yet, while none does.
    pub(crate) fn not_populated(&self, now: jiff::Timestamp) -> ConditionValue {
        if let Some(why) = self.not_taken() {
            return why;
        }
        let mut populated = self.living().filter_map(|base| conditions::find(base.workspace.conditions(), condition::POPULATED));
        let failed = |c: &Condition| [reason::POPULATE_FAILED, reason::PREPARE_FAILED].into_iter().find(|reason| c.reason == *reason);
        if let Some((reason, message)) = populated.find_map(|c| Some((failed(c)?, &c.message))) {
            return ConditionValue::no(reason, message.clone());
        }
        if let Some(why) = self.all_stuck(now).or_else(|| self.no_node()) {
            return why;
        }
        let mut ready = self.living().filter_map(|base| Some((base, conditions::find(base.workspace.conditions(), condition::READY)?)));
        match ready.find(|(_, ready)| ready.reason == reason::APPLY_FAILED) {
            Some((base, ready)) => ConditionValue::no(reason::APPLY_FAILED, format!("base {}: {}", base.workspace.name(), ready.message)),
            None if let Some(preparing) = self.preparing() => preparing,
            None if self.source.host.is_some() => ConditionValue::no(reason::POPULATING, "the source is being taken on its node"),
            None => ConditionValue::no(reason::POPULATING, "the source is being fetched"),
        }
    }

    /// What a base says in which prepare is to run, or runs.
    fn preparing(&self) -> Option<ConditionValue> {
        let mut populated = self.living().filter_map(|base| conditions::find(base.workspace.conditions(), condition::POPULATED));
        let preparing = populated.find(|c| c.reason == reason::PREPARING)?;
        Some(ConditionValue::no(reason::PREPARING, preparing.message.clone()))
    }

    /// Why no base can be made; `None` while there is one, or a node for one.
    pub(crate) fn no_node(&self) -> Option<ConditionValue> {
        if self.living().next().is_some() {
            return None;
        }
        let eligible = self.nodes.eligible_for_pods(self.provider, self.tolerations());
        if eligible.iter().any(|node| self.may_be_on(node)) {
            return None;
        }
        let none_eligible = || {
            let why = self.nodes.none_eligible_for_pods(self.provider, self.tolerations());
            ConditionValue::no(reason::NO_ELIGIBLE_NODE, why)
        };
        Some(self.source.host.as_ref().map_or_else(none_eligible, |host| self.no_node_with(host, &eligible)))
    }

    /// Why no base gets on: each node with its reason. `None` while one does, or while there is none.
    pub(crate) fn all_stuck(&self, now: jiff::Timestamp) -> Option<ConditionValue> {
        let why_stuck = |base: ObservedBase<'_>| match self.progress(base, now) {
            Progress::Stuck(why) => Some(format!("node {}: {why}", base.node)),
            Progress::Sealed | Progress::UnderWay(_) => None,
        };
        let stuck: Vec<String> = self.living().map(why_stuck).collect::<Option<_>>()?;
        if stuck.is_empty() {
            return None;
        }
        let populated = self.living().filter_map(|base| conditions::find(base.workspace.conditions(), condition::POPULATED));
        let by_populator = populated.into_iter().any(|c| c.reason == reason::POPULATOR_NOT_RUNNING);
        let why = if by_populator { reason::POPULATOR_NOT_RUNNING } else { reason::POPULATING };
        Some(ConditionValue::no(why, format!("no node gets on with the source: {}", join_sentences(stuck.into_iter()))))
    }

    /// Once a base is sealed: the steps that delete those that are stuck, that no tree was made from, and that no consumer waits for. `origins` are the
    /// UIDs of the bases that trees were made from.
    pub(crate) fn delete_stuck(&self, origins: &BTreeSet<String>, now: jiff::Timestamp) -> Vec<Step> {
        let is_left = |base: &ObservedBase<'_>| {
            let is_used = origins.contains(base.workspace.uid().as_str()) || base.follows_consumer();
            !is_used && matches!(self.progress(*base, now), Progress::Stuck(_))
        };
        delete_all(self.living().filter(is_left).map(|base| base.workspace))
    }

    /// The step that makes a base on the best node where its populator can start; `None` when no such node is free for one.
    fn make_next(&self) -> Option<Step> {
        self.make_on_best(self.tolerations(), |_| true, false)
    }

    /// As [`Self::make_next`], on a node that `allowed` lets through, for Pods with these tolerations.
    fn make_on_best(&self, tolerations: &[Toleration], allowed: impl Fn(&str) -> bool, follows_consumer: bool) -> Option<Step> {
        let mut nodes = self.nodes.eligible_for_pods(self.provider, tolerations);
        let lacks_former = |node: &str| self.former.is_some() && !self.holds_former(node);
        nodes.sort_by_key(|node| (self.agents.is_some_and(|agents| !self.nodes.is_allowed_by(node, agents)), lacks_former(node)));
        nodes.into_iter().filter(|node| allowed(node)).find_map(|node| self.make_on(node, follows_consumer))
    }

    /// The step that makes a base on one of the nodes that `allowed` lets through, for a consumer that can only go there and has these tolerations. `None`
    /// while one of them has a base that gets on.
    pub(crate) fn make_for_consumer(
        &self,
        tolerations: &[Toleration],
        allowed: impl Fn(&str) -> bool,
        now: jiff::Timestamp,
    ) -> Option<Step> {
        let exists = self.living().any(|base| allowed(base.node) && !matches!(self.progress(base, now), Progress::Stuck(_)));
        if exists { None } else { self.make_on_best(tolerations, allowed, true) }
    }

    /// The step that makes the base on `node`, which a consumer is on; `None` while a base of its name exists, even one that is being deleted.
    pub(crate) fn make_where_consumer_is(&self, node: &str) -> Option<Step> {
        self.make_on(node, true)
    }

    /// `None` while a base of its name exists, even one that is being deleted.
    fn make_on(&self, node: &str, follows_consumer: bool) -> Option<Step> {
        if !self.may_be_on(node) {
            return None;
        }
        let title = names::base(&self.generation, node);
        if self.observed.iter().any(|base| base.workspace.name() == title) {
            return None;
        }
        let labels = self.project.map(|project| BTreeMap::from([(label::PROJECT.to_owned(), project.to_owned())]));
        let spec = AgentWorkspaceSpec {
            source: self.source.clone(),
            provider: self.provider,
            path: Some(self.path_on(node)?.to_owned()),
            owner: Some(self.owner),
            claim: false,
            binding: Binding::default(),
            read_only: false,
            ttl_after_release: None,
            quota: None,
            base: Some(BaseRef {
                generation: self.generation.clone(),
                node: node.to_owned(),
                prepare: self.prepare.cloned().map(Box::new),
                revision: self.revision.clone(),
                bundle: self.bundle.clone().map(Box::new),
            }),
        };
        let mut base = AgentWorkspace::new(&title, spec);
        base.metadata = ObjectMeta {
            name: base.metadata.name,
            namespace: Some(self.namespace.to_owned()),
            labels,
            annotations: follows_consumer.then(|| BTreeMap::from([(FOLLOWS_CONSUMER.to_owned(), "true".to_owned())])),
            owner_references: Some(vec![self.parent.clone()]),
            // From the first write on, so that no crash leaves a tree without anybody to clean it up.
            finalizers: Some(vec![finalizer::OPERATOR.to_owned(), finalizer::NODE_DATA.to_owned()]),
            ..ObjectMeta::default()
        };
        Some(Step::EnsureWorkspace(Box::new(base)))
    }
}
