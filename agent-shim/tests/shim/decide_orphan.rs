//! Which trees without a listed object may be orphans.

use crate::fixtures::{record, workspace};
use serde_json::json;
use yoi_agent_shim::decide::orphan::{OrphanCheck, check_orphan, journaled_name, label};
use yoi_workspace::ProviderKind::Copy;
use yoi_workspace::{Record, RecordState, TreeLabel};

#[test]
fn the_api_server_is_asked_about_trees_that_are_no_base_and_whose_object_is_named() {
    for state in [RecordState::Creating, RecordState::Ready, RecordState::Destroying] {
        assert_eq!(check_orphan(&record(1, Copy, state)), OrphanCheck::AskApiServer { namespace: "team", name: "ws-1" });
    }
    for state in [RecordState::Sealing, RecordState::Sealed] {
        assert_eq!(check_orphan(&record(1, Copy, state)), OrphanCheck::Keep("it is a base"));
    }
    for of in [None, Some(""), Some("/"), Some("team"), Some("team/"), Some("/ws")] {
        let nameless = Record { object: of.map(str::to_owned), ..record(1, Copy, RecordState::Ready) };
        assert!(matches!(check_orphan(&nameless), OrphanCheck::Keep(_)), "{of:?}");
    }
}

#[test]
fn the_name_of_a_base_is_not_recorded() {
    assert_eq!(journaled_name(&workspace(1, json!({}))).as_deref(), Some("team/ws-1"));
    let base = workspace(1, json!({ "spec": { "base": { "generation": "g", "node": "n" } } }));
    assert_eq!(journaled_name(&base), None);
    // What people are told has the name of either.
    for (ws, generation) in [(&workspace(1, json!({})), None), (&base, Some("g".to_owned()))] {
        assert_eq!(label(ws), Some(TreeLabel { object: "team/ws-1".into(), generation }));
    }
}
