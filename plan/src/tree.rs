//! What the plans of YoiProjects, AgentWorkspaces and YoiPods share about trees: the bases that a tree is cloned from, and the YoiPod whose Pod may
//! mount it.

pub mod base_set;
pub(crate) mod progress;

use yoi_crds::source::{GitSource, HostSource, WorkspaceSource};
use yoi_crds::{AgentWorkspace, YoiPod};

use crate::meta;
use crate::stored::Stored;

/// The one YoiPod whose tree a workspace is: the one that it was made for, else the oldest of those that name it. `users` are those that name it. An agent to which
/// paths of it are lent is none of these.
pub(crate) fn holder<'a>(workspace: Stored<'_, AgentWorkspace>, users: &[Stored<'a, YoiPod>]) -> Option<Stored<'a, YoiPod>> {
    let users = users.iter().copied().filter(|user| loan(user.get()).is_none());
    match meta::controller(workspace.meta()).filter(|owner| owner.kind == "YoiPod") {
        Some(owner) => users.into_iter().find(|user| user.uid().as_str() == owner.uid),
        None => users.min_by_key(|user| (user.meta().creation_timestamp.as_ref().map(|t| t.0), user.name())),
    }
}

/// The loan by which a YoiPod works in another one's tree.
pub(crate) fn loan(yoipod: &YoiPod) -> Option<&str> {
    yoipod.spec.spawned_by.as_ref()?.loan.as_deref()
}

/// What the spec of a workspace says its tree is made from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TreeSource<'a> {
    /// The bases of the YoiProject of this name, or one of `revision`.
    Project {
        name: &'a str,
        revision: Option<&'a str>,
    },
    /// The tree of the AgentWorkspace of this name.
    Fork(&'a str),
    Git(&'a GitSource),
    /// A folder of a node.
    Host(&'a HostSource),
    /// Also for a source of another version, which is not accepted.
    Empty,
}

impl<'a> TreeSource<'a> {
    pub(crate) fn new(source: &'a WorkspaceSource) -> Self {
        let WorkspaceSource { project, workspace, git, host, empty: _ } = source;
        match (project, workspace, git, host) {
            (Some(project), _, _, _) => TreeSource::Project { name: &project.name, revision: project.revision.as_deref() },
            (None, Some(parent), _, _) => TreeSource::Fork(&parent.name),
            (None, None, Some(git), _) => TreeSource::Git(git),
            (None, None, None, Some(host)) => TreeSource::Host(host),
            (None, None, None, None) => TreeSource::Empty,
        }
    }
}
