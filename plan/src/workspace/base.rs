//! Bases: one sealed tree per generation and node, from which workspaces are cloned.

use std::sync::Arc;

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use yoi_crds::name::{finalizer, label};
use yoi_crds::reason::{self, condition};
use yoi_crds::source::{ProviderName, TreeOwner, WorkspaceSource};
use yoi_crds::workspace::{BaseRef, Binding};
use yoi_crds::{AgentWorkspace, AgentWorkspaceSpec, YoiProject, condition as conditions};

use crate::meta::{controlled_by, deleting, name, namespace, owner_reference, target, uid};
use crate::names;
use crate::nodes::Nodes;
use crate::step::{Kind, Step};

/// What all bases of one content have in common: of a project, or of one workspace with a direct source.
#[derive(Clone, Debug)]
pub struct BaseSet {
    namespace: String,
    parent: OwnerReference,
    project: Option<String>,
    source: WorkspaceSource,
    path: String,
    pub owner: TreeOwner,
    pub provider: ProviderName,
}

impl BaseSet {
    #[must_use]
    pub fn of_project(project: &YoiProject) -> Self {
        let spec = &project.spec;
        BaseSet {
            namespace: namespace(&project.metadata).to_owned(),
            parent: owner_reference("YoiProject", &project.metadata),
            project: Some(name(&project.metadata).to_owned()),
            source: WorkspaceSource { git: spec.source.git.clone(), empty: spec.source.empty.clone(), ..WorkspaceSource::default() },
            path: spec.path.clone(),
            owner: spec.owner,
            provider: spec.provider,
        }
    }

    /// Of a workspace with a direct git source; `None` for every other one.
    #[must_use]
    pub fn of_workspace(workspace: &AgentWorkspace) -> Option<Self> {
        let spec = &workspace.spec;
        if spec.base.is_some() || spec.source.git.is_none() {
            return None;
        }
        Some(BaseSet {
            namespace: namespace(&workspace.metadata).to_owned(),
            parent: owner_reference("AgentWorkspace", &workspace.metadata),
            project: None,
            source: spec.source.clone(),
            path: spec.path.clone(),
            owner: spec.owner.unwrap_or_default(),
            provider: spec.provider,
        })
    }

    #[must_use]
    pub fn generation(&self) -> String {
        names::generation(&self.parent.uid, &self.source, self.owner, &self.path, self.provider)
    }

    /// The bases of this content among `all`, those on their way out left aside.
    pub fn mine<'a>(&self, all: &'a [Arc<AgentWorkspace>]) -> impl Iterator<Item = &'a Arc<AgentWorkspace>> {
        let (parent, generation) = (self.parent.uid.clone(), self.generation());
        all.iter().filter(move |b| {
            controlled_by(&b.metadata, &parent)
                && !deleting(&b.metadata)
                && b.spec.base.as_ref().is_some_and(|base| base.generation == generation)
        })
    }

    /// Like [`Self::mine`], those left aside that nothing can be cloned from ever again: their node no longer exists, or has lost the tree.
    pub fn living<'a>(&self, all: &'a [Arc<AgentWorkspace>], nodes: &'a Nodes) -> impl Iterator<Item = &'a Arc<AgentWorkspace>> {
        self.mine(all).filter(|b| !is_lost(b, nodes))
    }

    /// Removes the bases that nothing can be cloned from ever again; they would stand in the way of new ones.
    #[must_use]
    pub fn lost(&self, all: &[Arc<AgentWorkspace>], nodes: &Nodes) -> Vec<Step> {
        self.mine(all).filter(|b| is_lost(b, nodes)).map(|b| Step::Delete(target(Kind::Workspace, &b.metadata))).collect()
    }

    /// Names of the nodes that hold this content sealed, sorted.
    #[must_use]
    pub fn sealed_nodes(&self, all: &[Arc<AgentWorkspace>]) -> Vec<String> {
        let mut nodes: Vec<String> = self.mine(all).filter(|b| is_sealed(b)).filter_map(|b| base_node(b)).collect();
        nodes.sort();
        nodes
    }

    /// The base on `node`, sealed or not.
    #[must_use]
    pub fn on<'a>(&self, node: &str, all: &'a [Arc<AgentWorkspace>]) -> Option<&'a Arc<AgentWorkspace>> {
        self.mine(all).find(|b| !has_lost_its_tree(b) && b.spec.base.as_ref().is_some_and(|base| base.node == node))
    }

    /// Whether a base of this content stands on `node`, or stood there and is not gone yet: until then its name cannot be had.
    #[must_use]
    pub fn taken(&self, node: &str, all: &[Arc<AgentWorkspace>]) -> bool {
        let title = names::base(&self.generation(), node);
        all.iter().any(|b| name(&b.metadata) == title)
    }

    /// Makes the base on `node`. Born with its finalizers, so that no crash leaves a tree without an owner.
    #[must_use]
    pub fn ensure_on(&self, node: &str) -> Step {
        let generation = self.generation();
        let mut labels = BTreeMap::new();
        if let Some(project) = &self.project {
            labels.insert(label::PROJECT.to_owned(), project.clone());
        }
        let spec = AgentWorkspaceSpec {
            source: self.source.clone(),
            provider: self.provider,
            path: self.path.clone(),
            owner: Some(self.owner),
            claim: false,
            binding: Binding::default(),
            read_only: false,
            ttl_after_release: None,
            base: Some(BaseRef { generation: generation.clone(), node: node.to_owned() }),
        };
        let mut base = AgentWorkspace::new(&names::base(&generation, node), spec);
        base.metadata = ObjectMeta {
            name: base.metadata.name,
            namespace: Some(self.namespace.clone()),
            labels: (!labels.is_empty()).then_some(labels),
            owner_references: Some(vec![self.parent.clone()]),
            finalizers: Some(vec![finalizer::OPERATOR.to_owned(), finalizer::NODE_DATA.to_owned()]),
            ..ObjectMeta::default()
        };
        Step::EnsureWorkspace(Box::new(base))
    }
}

/// UID of the YoiProject or AgentWorkspace whose base this is.
#[must_use]
pub fn lineage_of(base: &AgentWorkspace) -> Option<&str> {
    base.spec.base.as_ref()?;
    crate::meta::controller(&base.metadata).map(|o| o.uid.as_str())
}

fn is_lost(base: &AgentWorkspace, nodes: &Nodes) -> bool {
    has_lost_its_tree(base) || base_node(base).is_none_or(|node| !nodes.exists(&node))
}

/// A node that came back with an empty disk: what the base held can be fetched again.
fn has_lost_its_tree(base: &AgentWorkspace) -> bool {
    let said = base.status.as_ref().and_then(|s| conditions::find(&s.conditions, condition::PROVISIONED));
    said.is_some_and(|c| c.reason == *reason::TREE_LOST)
}

#[must_use]
pub fn is_sealed(base: &AgentWorkspace) -> bool {
    !deleting(&base.metadata)
        && !has_lost_its_tree(base)
        && base.status.as_ref().is_some_and(|s| conditions::is_true(&s.conditions, condition::SEALED))
}

#[must_use]
pub fn base_node(base: &AgentWorkspace) -> Option<String> {
    base.spec.base.as_ref().map(|b| b.node.clone())
}

/// The commit that the first sealed base of the same content holds: later ones take the same, though the branch has moved on.
#[must_use]
pub fn pinned_revision(base: &AgentWorkspace, siblings: &[Arc<AgentWorkspace>]) -> Option<String> {
    let mine = base.spec.base.as_ref()?;
    siblings
        .iter()
        .filter(|b| uid(&b.metadata) != uid(&base.metadata) && is_sealed(b))
        .filter(|b| b.spec.base.as_ref().is_some_and(|other| other.generation == mine.generation))
        .min_by_key(|b| name(&b.metadata))
        .and_then(|b| b.status.as_ref()?.volume.as_ref()?.revision.clone())
}
