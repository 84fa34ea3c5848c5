//! Trees whose objects a complete listing of this node's workspaces does not show.

use yoi_crds::AgentWorkspace;
use yoi_workspace::{Record, RecordState, TreeLabel};

/// The name of the object that the journal records for a tree, as `namespace/name`, so that the API server can be asked about it later.
///
/// None for a base. It has its finalizers from the start, so it is only destroyed through them, and other trees are compared with it.
pub fn journaled_name(ws: &AgentWorkspace) -> Option<String> {
    let meta = &ws.metadata;
    let (namespace, name) = (meta.namespace.as_deref()?, meta.name.as_deref()?);
    ws.spec.base.is_none().then(|| format!("{namespace}/{name}"))
}

/// What the journal calls a tree or a base for as long as it has a record, so that people can be told whose it was.
pub fn label(ws: &AgentWorkspace) -> Option<TreeLabel> {
    let meta = &ws.metadata;
    let object = format!("{}/{}", meta.namespace.as_deref()?, meta.name.as_deref()?);
    Some(TreeLabel { object, generation: ws.spec.base.as_ref().map(|base| base.generation.clone()) })
}

/// How to find out whether a tree is an orphan.
#[derive(Debug, PartialEq, Eq)]
pub enum OrphanCheck<'a> {
    /// Ask the API server for its object.
    AskApiServer {
        /// Namespace of the object.
        namespace: &'a str,
        /// Name of the object.
        name: &'a str,
    },
    /// Do not: the tree is kept, and why.
    Keep(&'static str),
}

/// What to do about a tree whose object is not listed.
pub fn check_orphan(record: &Record) -> OrphanCheck<'_> {
    match record.state {
        RecordState::Sealing | RecordState::Sealed => return OrphanCheck::Keep("it is a base"),
        RecordState::Creating | RecordState::Ready | RecordState::Destroying => {}
    }
    match record.object.as_deref().and_then(|of| of.split_once('/')) {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() => OrphanCheck::AskApiServer { namespace, name },
        // An object is also missing after the cluster was restored to an older state. A tree that somebody may have worked in is only destroyed by
        // a person.
        Some(_) | None => OrphanCheck::Keep("somebody may have worked in it, or its record is of an older version"),
    }
}
