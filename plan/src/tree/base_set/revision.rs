//! Which commit the bases of a source are of: that of the ref when it was fetched first, one that the ref has moved to, one that was synced, or one that a
//! workspace names. An empty source has none before the first one was synced.

use yoi_crds::prepare::Prepare;
use yoi_crds::project::RefreshStatus;
use yoi_crds::source::{EmptySource, GitSource, ProjectSource, ProviderName, WorkspaceSource, is_commit_id};
use yoi_crds::sync::{SyncedTree, part_prefix};
use yoi_crds::workspace::BundleRef;
use yoi_crds::{AgentWorkspace, AgentWorkspaceSpec, YoiProject};

use super::{BaseSet, ObservedBase, base_parent_uid};
use crate::names;
use crate::nodes::Nodes;
use crate::step::Step;
use crate::stored::{Stored, Uid, delete_all};

/// The source without what says how often it is looked at, and whether it is synced: that changes no tree.
pub(crate) fn tree_source(source: &ProjectSource) -> ProjectSource {
    let git = source.git.as_ref().map(|git| Box::new(GitSource { refresh: None, sync: None, ..(**git).clone() }));
    let empty = source.empty.as_ref().map(|_| EmptySource::default());
    ProjectSource { git, empty, ..source.clone() }
}

/// Name of the generation of a project that is fetched first.
pub(crate) fn first_generation(project: Stored<'_, YoiProject>) -> String {
    let spec = &project.get().spec;
    let ProjectSource { git, host, empty } = tree_source(&spec.source);
    let source = WorkspaceSource { git, host, empty, ..WorkspaceSource::default() };
    prepared(names::generation(project.uid().as_str(), &source, spec.owner, spec.path.as_deref(), spec.provider), spec.prepare.as_deref())
}

/// The name of a generation whose bases are prepared by `prepare`, if there is one.
fn prepared(generation: String, prepare: Option<&Prepare>) -> String {
    match prepare {
        Some(prepare) => names::prepared_generation(&generation, prepare),
        None => generation,
    }
}

/// What the looks at the project's source have found; `None` for looks at a former source.
pub(crate) fn refresh_status<'a>(project: Stored<'a, YoiProject>) -> Option<&'a RefreshStatus> {
    let refresh = project.get().status.as_ref()?.refresh.as_deref()?;
    (refresh.source == first_generation(project)).then_some(refresh)
}

/// The working tree that trees are to be made from; `None` for a project that takes none, and before the first one came.
pub(crate) fn synced<'a>(project: Stored<'a, YoiProject>) -> Option<&'a SyncedTree> {
    let takes_trees = project.get().spec.source.takes_trees();
    project.get().status.as_ref().filter(|_| takes_trees)?.sync.as_deref()?.last.as_ref()
}

/// The commit that the source is at by now: what was synced last, else what the last look at the branch has found.
fn wanted<'a>(project: Stored<'a, YoiProject>) -> Option<&'a str> {
    let found = || refresh_status(project)?.revision.as_deref();
    synced(project).map(|tree| tree.commit.as_str()).or_else(found)
}

/// Where what the repository lacks of `commit` is. Whoever may write the status could name any ConfigMap, so only those count that are made for this.
fn bundle_of(project: Stored<'_, YoiProject>, commit: &str) -> Option<BundleRef> {
    let bundles = &project.get().status.as_ref()?.sync.as_deref()?.bundles;
    let stored = bundles.iter().find(|bundle| bundle.commit == commit)?;
    let prefix = part_prefix(project.name());
    let parts: Vec<String> = stored.parts.iter().map(|part| part.name.clone()).filter(|name| name.starts_with(&prefix)).collect();
    (parts.len() == stored.parts.len() && !parts.is_empty()).then(|| BundleRef { sha256: stored.sha256.clone(), parts })
}

impl<'a> ObservedBase<'a> {
    /// The commit that a sealed base holds.
    pub(crate) fn sealed_revision(self) -> Option<&'a str> {
        self.workspace.get().status.as_ref()?.volume.as_ref()?.revision.as_deref().filter(|_| self.is_sealed())
    }

    /// The base that this one may begin from as a clone, among `observed`: that of another commit of the same source, on the same node. `None` where a
    /// fresh clone is to be made, or takes no longer.
    pub(crate) fn to_begin_from(self, observed: &[Self], nodes: &Nodes) -> Option<Self> {
        let AgentWorkspaceSpec { source, provider, path, owner, base, .. } = &self.workspace.get().spec;
        // What prepare has written to .git is not trusted beside credentials. A shallow history is fetched in a moment.
        let is_plain = source.git.as_ref().is_some_and(|git| git.depth.is_none()) && self.prepare.is_none();
        base.as_ref()?.revision.as_ref().filter(|_| is_plain)?;
        let is_same = |other: &&Self| {
            let spec = &other.workspace.get().spec;
            let same_source = spec.source == *source && spec.provider == *provider && spec.path == *path && spec.owner == *owner;
            let same_parent = base_parent_uid(self.workspace.get()).is_some_and(|uid| base_parent_uid(other.workspace.get()) == Some(uid));
            other.node == self.node && other.prepare.is_none() && same_source && same_parent && other.generation != self.generation
        };
        let is_cloned = |other: &&Self| other.sealed_revision().is_some() && other.is_fit_to_clone(nodes);
        let created = |other: &&Self| (other.workspace.meta().creation_timestamp.as_ref().map(|t| t.0), other.workspace.name());
        observed.iter().filter(is_same).filter(is_cloned).max_by_key(created).copied()
    }

    /// Whether a clone of it is a snapshot that is whole without it, of the provider that its node would take today.
    fn is_fit_to_clone(self, nodes: &Nodes) -> bool {
        let Some(status) = &self.workspace.get().status else { return false };
        let Some(made_by) = status.provider.as_ref().map(|provider| provider.selected) else { return false };
        let is_best = nodes.best_provider(self.node).is_some_and(|best| best >= made_by);
        match made_by {
            ProviderName::Zfs | ProviderName::Btrfs => is_best || self.workspace.get().spec.provider != ProviderName::Auto,
            // To copy every file, and to read it once more as its inode is new to git, takes longer than to fetch it.
            ProviderName::Reflink | ProviderName::Copy => false,
            // A clone would have the former base as its lower layer, and a base must have none.
            ProviderName::Overlay | ProviderName::Auto | ProviderName::Unknown => false,
        }
    }

    /// The commit that it is to be filled with.
    pub(crate) fn wanted_revision(self) -> Option<String> {
        self.workspace.get().spec.base.as_ref()?.revision.clone()
    }
}

impl<'a> BaseSet<'a> {
    /// The bases that trees of a project are made from now. `observed` are all bases that it controls.
    pub(crate) fn of_project(project: Stored<'a, YoiProject>, observed: &'a [ObservedBase<'a>], nodes: &'a Nodes) -> Self {
        let in_use = refresh_status(project).and_then(|refresh| refresh.in_use.clone());
        Self::of_project_at(project, in_use, observed, nodes)
    }

    fn of_project_at(
        project: Stored<'a, YoiProject>,
        revision: Option<String>,
        observed: &'a [ObservedBase<'a>],
        nodes: &'a Nodes,
    ) -> Self {
        let spec = &project.get().spec;
        let ProjectSource { git, host, empty } = tree_source(&spec.source);
        let first = first_generation(project);
        // While nobody has synced anything, there is nothing that could be prepared.
        let is_nothing_yet = empty.is_some() && spec.source.takes_trees() && revision.is_none();
        BaseSet {
            parent: project.owner_reference(),
            parent_uid: project.uid(),
            namespace: project.namespace(),
            project: Some(project.name()),
            source: WorkspaceSource { git, host, empty, ..WorkspaceSource::default() },
            path: spec.path.as_deref(),
            owner: spec.owner,
            provider: spec.provider,
            prepare: spec.prepare.as_deref().filter(|_| !is_nothing_yet),
            bundle: revision.as_deref().and_then(|commit| bundle_of(project, commit)),
            generation: revision.as_ref().map_or_else(|| first.clone(), |commit| names::refreshed_generation(&first, commit)),
            revision,
            former: None,
            agents: spec.defaults.pod.as_ref(),
            observed,
            nodes,
        }
    }

    /// The bases of the commit that was synced last, or that the last look has found, when trees are made from another one; `self` are those. While nothing
    /// is fetched yet there are none: the Pod that fetches takes the ref as it is.
    pub(crate) fn next(&self, project: Stored<'a, YoiProject>) -> Option<Self> {
        let found = wanted(project)?;
        let is_held = match refresh_status(project).and_then(|refresh| refresh.in_use.as_deref()) {
            Some(in_use) => in_use == found,
            None => {
                let mut sealed = self.members().filter(|base| base.is_sealed()).peekable();
                sealed.peek().is_none() || sealed.any(|base| base.sealed_revision() == Some(found))
            }
        };
        if is_held {
            return None;
        }
        let next = Self::of_project_at(project, Some(found.to_owned()), self.observed, self.nodes);
        Some(BaseSet { former: Some(self.generation.clone()), ..next })
    }

    /// The bases of the commit that a workspace names: those of the project that hold it already, else the workspace's own. `None` for a project without
    /// a git source.
    pub(crate) fn of_revision(
        workspace: Stored<'a, AgentWorkspace>,
        project: Stored<'a, YoiProject>,
        revision: &str,
        observed: &'a [ObservedBase<'a>],
        nodes: &'a Nodes,
    ) -> Option<Self> {
        let git = project.get().spec.source.git.as_deref()?;
        let of_project = Self::of_project(project, observed, nodes);
        let is_at = |base: ObservedBase<'_>| base.sealed_revision() == Some(revision);
        if is_commit_id(revision) && of_project.members().any(is_at) {
            return Some(of_project);
        }
        let git = GitSource { ref_: Some(revision.to_owned()), refresh: None, sync: None, ..git.clone() };
        let source = WorkspaceSource { git: Some(Box::new(git)), ..WorkspaceSource::default() };
        let BaseSet { path, owner, provider, prepare, .. } = of_project;
        Some(BaseSet {
            parent: workspace.owner_reference(),
            parent_uid: workspace.uid(),
            project: None,
            generation: prepared(names::generation(workspace.uid().as_str(), &source, owner, path, provider), prepare),
            source,
            revision: None,
            bundle: None,
            former: None,
            ..of_project
        })
    }

    /// Steps that delete the bases that `workspace` has of its own, and that are of another generation than this one, but for the one that its tree was
    /// made from: what the project says may have changed, or the project holds the commit itself by now.
    pub(crate) fn delete_former_of(&self, workspace: Stored<'_, AgentWorkspace>, origin: Option<&str>) -> Vec<Step> {
        let own = self.observed.iter().filter(|base| base_parent_uid(base.workspace.get()) == Some(workspace.uid().as_str()));
        let is_former = |base: &&ObservedBase<'_>| base.generation != self.generation && Some(base.workspace.uid().as_str()) != origin;
        delete_all(own.filter(is_former).map(|base| base.workspace))
    }

    /// The commit that its bases are filled with; `None` where that is told by the source's ref.
    pub(crate) fn revision(&self) -> Option<String> {
        self.revision.clone()
    }

    /// The commit that trees are made from.
    pub(crate) fn held_revision(&self) -> Option<&'a str> {
        self.members().find_map(ObservedBase::sealed_revision)
    }

    /// Whether they belong to the object of this UID.
    pub(crate) fn is_of(&self, parent: Uid<'_>) -> bool {
        self.parent_uid == parent
    }

    /// Whether `node` holds the generation that this one follows after.
    pub(super) fn holds_former(&self, node: &str) -> bool {
        self.observed.iter().any(|base| base.node == node && Some(base.generation) == self.former.as_deref() && base.is_sealed())
    }
}
