//! Which trees without a listed object may be orphans.

use crate::fixtures::{record, workspace};
use serde_json::json;
use yoi_agent_shim::decide::orphan::{OrphanCheck, check_orphan, journaled_name};
use yoi_workspace::ProviderKind::Copy;
use yoi_workspace::{Record, RecordState};

#[test]
fn only_a_tree_that_is_no_base_and_whose_object_has_a_name_is_asked_for() {
    for state in [RecordState::Creating, RecordState::Ready, RecordState::Destroying] {
        assert_eq!(check_orphan(&record(1, Copy, state)), OrphanCheck::AskApiServer { namespace: "team", name: "ws-1" });
    }
    for state in [RecordState::Sealing, RecordState::Sealed] {
        assert_eq!(check_orphan(&record(1, Copy, state)), OrphanCheck::Keep("it is a base"));
    }
    for of in [None, Some(""), Some("/"), Some("team"), Some("team/"), Some("/ws")] {
        let nameless = Record { of: of.map(str::to_owned), ..record(1, Copy, RecordState::Ready) };
        assert!(matches!(check_orphan(&nameless), OrphanCheck::Keep(_)), "{of:?}");
    }
}

#[test]
fn a_base_is_not_remembered_by_name() {
    assert_eq!(journaled_name(&workspace(1, json!({}))).as_deref(), Some("team/ws-1"));
    assert_eq!(journaled_name(&workspace(1, json!({ "spec": { "base": { "generation": "g", "node": "n" } } }))), None);
}
