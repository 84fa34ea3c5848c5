//! Trees whose objects a whole list of this node's workspaces does not show.

use yoi_crds::AgentWorkspace;
use yoi_workspace::{Record, RecordState};

/// What the journal keeps of the object that a tree is made for, so that it can be asked for when nobody else remembers it. None for a base:
/// it is born with its finalizers, so it goes by them or not at all, and trees are compared with it.
pub fn remembered(ws: &AgentWorkspace) -> Option<String> {
    let meta = &ws.metadata;
    let (namespace, name) = (meta.namespace.as_deref()?, meta.name.as_deref()?);
    ws.spec.base.is_none().then(|| format!("{namespace}/{name}"))
}

#[derive(Debug, PartialEq, Eq)]
pub enum Stray<'a> {
    /// Only the API server knows whether its object is gone.
    Ask { namespace: &'a str, name: &'a str },
    /// Left alone, and why.
    Keep(&'static str),
}

pub fn stray(record: &Record) -> Stray<'_> {
    match record.state {
        RecordState::Sealing | RecordState::Sealed => return Stray::Keep("it is a base"),
        RecordState::Creating | RecordState::Ready | RecordState::Destroying => {}
    }
    match record.object.as_deref().and_then(|of| of.split_once('/')) {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() => Stray::Ask { namespace, name },
        // An object is also missing where a cluster was set back to an older state: what somebody may have worked in goes by a person's word only.
        Some(_) | None => Stray::Keep("somebody may have worked in it, or its record is of an older version"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{record, workspace};
    use serde_json::json;
    use yoi_workspace::ProviderKind::Copy;

    #[test]
    fn only_a_tree_that_is_no_base_and_whose_object_has_a_name_is_asked_for() {
        for state in [RecordState::Creating, RecordState::Ready, RecordState::Destroying] {
            assert_eq!(stray(&record(1, Copy, state)), Stray::Ask { namespace: "team", name: "ws-1" });
        }
        for state in [RecordState::Sealing, RecordState::Sealed] {
            assert_eq!(stray(&record(1, Copy, state)), Stray::Keep("it is a base"));
        }
        for of in [None, Some(""), Some("/"), Some("team"), Some("team/"), Some("/ws")] {
            let nameless = Record { object: of.map(str::to_owned), ..record(1, Copy, RecordState::Ready) };
            assert!(matches!(stray(&nameless), Stray::Keep(_)), "{of:?}");
        }
    }

    #[test]
    fn a_base_is_not_remembered_by_name() {
        assert_eq!(remembered(&workspace(1, json!({}))).as_deref(), Some("team/ws-1"));
        assert_eq!(remembered(&workspace(1, json!({ "spec": { "base": { "generation": "g", "node": "n" } } }))), None);
    }
}
