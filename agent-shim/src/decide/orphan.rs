//! Trees whose objects a whole list of this node's workspaces does not show.

use yoi_crds::AgentWorkspace;
use yoi_workspace::{Record, RecordState};

/// What the journal keeps of the object that a tree is made for, so that it can be asked for when nobody else remembers it. None for a base:
/// it is born with its finalizers, so it goes by them or not at all, and trees are compared with it.
pub fn journaled_name(ws: &AgentWorkspace) -> Option<String> {
    let meta = &ws.metadata;
    let (namespace, name) = (meta.namespace.as_deref()?, meta.name.as_deref()?);
    ws.spec.base.is_none().then(|| format!("{namespace}/{name}"))
}

#[derive(Debug, PartialEq, Eq)]
pub enum OrphanCheck<'a> {
    /// Only the API server knows whether its object is gone.
    AskApiServer { namespace: &'a str, name: &'a str },
    /// Left alone, and why.
    Keep(&'static str),
}

pub fn check_orphan(record: &Record) -> OrphanCheck<'_> {
    match record.state {
        RecordState::Sealing | RecordState::Sealed => return OrphanCheck::Keep("it is a base"),
        RecordState::Creating | RecordState::Ready | RecordState::Destroying => {}
    }
    match record.of.as_deref().and_then(|of| of.split_once('/')) {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() => OrphanCheck::AskApiServer { namespace, name },
        // An object is also missing where a cluster was set back to an older state: what somebody may have worked in goes by a person's word only.
        Some(_) | None => OrphanCheck::Keep("somebody may have worked in it, or its record is of an older version"),
    }
}
