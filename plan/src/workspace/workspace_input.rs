//! The validated input of a workspace's plan.

use yoi_crds::condition::find;
use yoi_crds::pod::PodSettings;
use yoi_crds::quota::quota_bytes;
use yoi_crds::reason::{self, condition};
use yoi_crds::source::{DEFAULT_PATH, GitSource, HostSource, TreeOwner};
use yoi_crds::workspace::{Origin, OriginKind};
use yoi_crds::{AgentWorkspace, YoiProject};

use super::Observed;
use super::claim::ObservedClaim;
use crate::nodes::Nodes;
use crate::observed_pod::ObservedPod;
use crate::stored::Stored;
use crate::tree::base_set::{BaseSet, ObservedBase, base_parent_uid};
use crate::tree::{TreeSource, holder};

/// What the tree is made from: the spec's source, and the object that it names.
pub(super) enum Source<'a> {
    /// `revision`: of this commit, and not of the project's current generation.
    Project {
        name: &'a str,
        project: Option<Stored<'a, YoiProject>>,
        revision: Option<&'a str>,
    },
    Fork {
        name: &'a str,
        parent: Option<Stored<'a, AgentWorkspace>>,
    },
    Git(&'a GitSource),
    Host(&'a HostSource),
    Empty,
}

/// Who mounts the tree.
pub(super) enum Consumer<'a> {
    /// Any Pod that uses the workspace's claim.
    Claim(ObservedClaim<'a>),
    /// The Pod of one YoiPod, while there is one that was made for this tree.
    Agent(Option<Stored<'a, ObservedPod>>),
}

/// An [`Observed`] whose objects are all stored, and whose unions are enums.
pub(super) struct WorkspaceInput<'a> {
    pub workspace: Stored<'a, AgentWorkspace>,
    pub source: Source<'a>,
    pub consumer: Consumer<'a>,
    /// The Pod that reads this tree of a stopped agent.
    pub reader: Option<Stored<'a, ObservedPod>>,
    /// The workspace itself, if it is a base.
    pub base: Option<ObservedBase<'a>>,
    /// The project whose base the workspace is, or that of the workspace whose base it is.
    pub project_of_base: Option<Stored<'a, YoiProject>>,
    /// The node that an earlier round has chosen.
    pub node_name: Option<&'a str>,
    /// What an earlier round has told that node to make the tree from.
    pub origin: Option<&'a Origin>,
    pub bases: Vec<ObservedBase<'a>>,
    pub populators: Vec<Stored<'a, ObservedPod>>,
    pub nodes: &'a Nodes,
}

impl<'a> WorkspaceInput<'a> {
    /// `None` for a workspace that no API server has stored. Other objects that are not stored are left out.
    pub(super) fn new(seen: &'a Observed) -> Option<Self> {
        let workspace = Stored::new(&*seen.workspace)?;
        let source = match TreeSource::new(&seen.workspace.spec.source) {
            TreeSource::Project { name, revision } => Source::Project { name, project: Stored::of(&seen.project), revision },
            TreeSource::Fork(name) => Source::Fork { name, parent: Stored::of(&seen.parent) },
            TreeSource::Git(git) => Source::Git(git),
            TreeSource::Host(host) => Source::Host(host),
            TreeSource::Empty => Source::Empty,
        };
        let consumer = if seen.workspace.spec.claim {
            Consumer::Claim(ObservedClaim::new(workspace, Stored::of(&seen.claim), Stored::of(&seen.volume)))
        } else {
            Consumer::Agent(agent_pod(workspace, seen))
        };
        let status = seen.workspace.status.as_ref();
        Some(WorkspaceInput {
            workspace,
            source,
            consumer,
            reader: pods_of_holder(workspace, seen).into_iter().find(|pod| pod.is_reader()),
            base: ObservedBase::new(workspace),
            project_of_base: project_of_base(workspace, seen),
            node_name: workspace.node_name(),
            origin: status.and_then(|status| status.origin.as_ref()),
            bases: ObservedBase::all(&seen.bases),
            populators: Stored::all(&seen.populators),
            nodes: &seen.nodes,
        })
    }

    /// The settings of the agents of a base's project; `None` for another tree.
    pub(super) fn project_pods(&self) -> Option<&'a PodSettings> {
        self.project_of_base.and_then(|project| project.get().spec.defaults.pod.as_ref())
    }

    /// The bases that the tree can be cloned from; `None` when it is made without one.
    pub(super) fn base_set(&self) -> Option<BaseSet<'_>> {
        match &self.source {
            Source::Project { project, revision: None, .. } => project.map(|project| BaseSet::of_project(project, &self.bases, self.nodes)),
            Source::Project { project, revision: Some(revision), .. } => {
                project.and_then(|project| BaseSet::of_revision(self.workspace, project, revision, &self.bases, self.nodes))
            }
            Source::Git(_) | Source::Host(_) if self.base.is_none() => Some(BaseSet::of_workspace(self.workspace, &self.bases, self.nodes)),
            Source::Git(_) | Source::Host(_) | Source::Fork { .. } | Source::Empty => None,
        }
    }

    /// Bytes of the quota: the workspace's own, else that of the project, or for a fork the parent's. What was resolved before stays while the object
    /// that it came from is gone. A base has none.
    pub(super) fn quota_bytes(&self) -> Option<i64> {
        if self.base.is_some() {
            return None;
        }
        let workspace = self.workspace.get();
        let reported = workspace.status.as_ref().and_then(|status| status.quota_bytes);
        if let Some(own) = &workspace.spec.quota {
            return quota_bytes(own);
        }
        match &self.source {
            Source::Project { project: Some(project), .. } => project.spec.defaults.quota.as_deref().and_then(quota_bytes),
            Source::Fork { parent: Some(parent), .. } => parent.get().status.as_ref().and_then(|status| status.quota_bytes),
            Source::Project { project: None, .. } | Source::Fork { parent: None, .. } => reported,
            Source::Git(_) | Source::Host(_) | Source::Empty => None,
        }
    }

    /// What the node makes, or has made, the tree from; `None` while there is no such assignment, or its base was deleted before the tree was made. A base
    /// can be filled without the former one, so a node that cannot clone that is not asked again.
    pub(super) fn settled_origin(&self) -> Option<&'a Origin> {
        let provisioned = find(self.workspace.conditions(), condition::PROVISIONED);
        let is_refused = || self.base.is_some() && provisioned.is_some_and(|c| c.reason != *reason::CREATING);
        let exists = |origin: &Origin| {
            let base = origin.workspace_uid.as_deref();
            origin.kind != OriginKind::Base || !is_refused() && self.bases.iter().any(|b| Some(b.workspace.uid().as_str()) == base)
        };
        self.origin.filter(|origin| self.workspace.is_true(condition::PROVISIONED) || exists(origin))
    }

    /// Where the tree shows: the spec's path, else that of its source. What was resolved before stays once a node is told to make the tree, and while
    /// the object that it came from is gone. `None` until a folder of a node is taken.
    pub(super) fn tree_path(&self) -> Option<String> {
        let workspace = self.workspace.get();
        let reported = workspace.tree_path();
        let of_source = match &self.source {
            // A base that a user made may name no path.
            Source::Host(host) if let Some(base) = self.base => {
                self.nodes.host_source_path(base.node, &host.name, self.workspace.namespace()).map(str::to_owned)
            }
            Source::Project { .. } | Source::Host(_) => self.base_set().and_then(|base_set| base_set.tree_path().map(str::to_owned)),
            Source::Fork { parent, .. } => parent.and_then(|parent| parent.get().tree_path().map(str::to_owned)),
            Source::Git(_) | Source::Empty => Some(DEFAULT_PATH.to_owned()),
        };
        let is_settled = workspace.spec.path.is_some() || self.settled_origin().is_some();
        let settled = reported.filter(|_| is_settled).map(str::to_owned);
        settled.or(of_source).or_else(|| reported.map(str::to_owned))
    }

    /// TreeOwner of the tree's files. A clone has the owner of what it was made from, whatever its own spec says.
    pub(super) fn owner(&self) -> TreeOwner {
        let reported = self.workspace.get().status.as_ref().and_then(|status| status.owner);
        let of_source = match &self.source {
            Source::Project { project, .. } => project.map(|project| project.spec.owner),
            Source::Fork { parent, .. } => parent.and_then(|parent| parent.get().status.as_ref()?.owner),
            Source::Git(_) | Source::Host(_) | Source::Empty => None,
        };
        reported.filter(|_| self.origin.is_some()).or(of_source).or(self.workspace.spec.owner).or(reported).unwrap_or_default()
    }
}

/// The project that says how a base is filled and prepared: its parent, or the one that its parent has a commit of.
fn project_of_base<'a>(base: Stored<'a, AgentWorkspace>, seen: &'a Observed) -> Option<Stored<'a, YoiProject>> {
    let parent_uid = base_parent_uid(base.get())?;
    let project = Stored::of(&seen.project)?;
    let parent = Stored::of(&seen.parent).filter(|parent| parent.uid().as_str() == parent_uid);
    let is_named = parent.and_then(|parent| parent.get().spec.source.project.as_ref()).is_some_and(|named| named.name == project.name());
    (project.uid().as_str() == parent_uid || is_named).then_some(project)
}

/// The one Pod that may mount the tree. While a former Pod of the holder still exists, it is that one: there is one writer. A Pod that was made for a
/// former tree of this name mounts another UID.
fn agent_pod<'a>(workspace: Stored<'a, AgentWorkspace>, seen: &'a Observed) -> Option<Stored<'a, ObservedPod>> {
    pods_of_holder(workspace, seen).into_iter().filter(|pod| pod.is_run()).min_by_key(|pod| pod.run_generation)
}

/// Pods of the YoiPod that the tree is for, which were made for this tree.
fn pods_of_holder<'a>(workspace: Stored<'a, AgentWorkspace>, seen: &'a Observed) -> Vec<Stored<'a, ObservedPod>> {
    let Some(holder) = holder(workspace, &Stored::all(&seen.users)) else { return Vec::new() };
    let pods = Stored::all(&seen.agents).into_iter().filter(|pod| pod.is_controlled_by(holder.uid()));
    pods.filter(|pod| pod.tree() == Some(workspace.uid())).collect()
}
