//! Which action a workspace needs.

use crate::fixtures::{NODE, offers, record, uid, workspace};
use serde_json::{Value, json};
use yoi_agent_shim::decide::provision::{Action, ObservedTree, decide};
use yoi_workspace::ProviderKind::{Btrfs, Copy};
use yoi_workspace::{CloneAccess, Owner, ProviderOffer, Record, RecordState, TreeOrigin};

struct Case {
    over: Value,
    record: Option<Record>,
    origin: Option<Record>,
    offers: Vec<ProviderOffer>,
    mounts: usize,
    lost: bool,
    unknown: Option<&'static str>,
}

fn case(over: Value) -> Case {
    Case { over, record: None, origin: None, offers: offers(&[Btrfs, Copy]), mounts: 0, lost: false, unknown: None }
}

impl Case {
    fn action(&self) -> Action {
        let (record, origin) = (self.record.as_ref(), self.origin.as_ref());
        let seen =
            ObservedTree { node: NODE, record, origin, offers: &self.offers, mounts: self.mounts, lost: self.lost, unknown: self.unknown };
        decide(&workspace(1, self.over.clone()), &seen)
    }
    fn refusal_reason(&self) -> &'static str {
        match self.action() {
            Action::Refuse { reason, .. } => reason.as_str(),
            other => panic!("{other:?}"),
        }
    }
}

fn base() -> Value {
    json!({ "spec": { "source": { "empty": null, "project": { "name": "p" } } }, "status": { "origin": { "kind": "Base", "workspaceUID": uid(2) } } })
}

#[test]
fn a_workspace_of_another_node_or_without_an_origin_is_ignored() {
    assert_eq!(case(json!({ "status": { "nodeName": "node-2" } })).action(), Action::Ignore);
    assert_eq!(case(json!({ "status": { "origin": null } })).action(), Action::Ignore);
}

#[test]
fn an_empty_tree_belongs_to_its_owner_and_is_made_by_the_best_provider() {
    for (available, provider) in [(vec![Btrfs, Copy], Btrfs), (vec![Copy], Copy)] {
        let case = Case { offers: offers(&available), ..case(json!({ "status": { "owner": { "uid": 5, "gid": 6 } } })) };
        let Action::Create { provider: chosen, making, .. } = case.action() else { panic!("{:?}", case.action()) };
        assert_eq!((chosen, making), (provider, TreeOrigin::Empty { owner: Owner { uid: 5, gid: 6 } }));
    }
}

#[test]
fn a_named_provider_never_falls_back() {
    let case = Case { offers: offers(&[Copy]), ..case(json!({ "spec": { "provider": "Btrfs" } })) };
    assert_eq!(case.refusal_reason(), "ProviderUnavailable");
    let mut over = base();
    over["spec"]["provider"] = json!("Copy");
    let case = Case { origin: Some(record(2, Btrfs, RecordState::Sealed)), ..self::case(over) };
    assert_eq!(case.refusal_reason(), "ProviderUnavailable");
}

#[test]
fn a_base_must_be_sealed_and_a_parent_need_not() {
    for (kind, state, makes) in [
        ("Base", RecordState::Ready, false),
        ("Base", RecordState::Sealing, false),
        ("Base", RecordState::Sealed, true),
        ("Fork", RecordState::Ready, true),
        ("Fork", RecordState::Creating, false),
        ("Fork", RecordState::Destroying, false),
    ] {
        let mut over = base();
        over["status"]["origin"]["kind"] = json!(kind);
        let case = Case { origin: Some(record(2, Btrfs, state)), ..case(over) };
        match makes {
            true => {
                let wanted = TreeOrigin::Clone { from: uid(2), access: CloneAccess::ReadWrite };
                assert!(matches!(case.action(), Action::Create { making, provider: Btrfs, .. } if making == wanted), "{kind} {state:?}");
            }
            false => assert_eq!(case.refusal_reason(), "SourceNotSealed", "{kind} {state:?}"),
        }
    }
    assert_eq!(case(base()).refusal_reason(), "SourceNotSealed", "its base is not here");
}

#[test]
fn a_restart_finishes_what_the_journal_began_whatever_the_node_offers_now() {
    let case = Case { record: Some(record(1, Btrfs, RecordState::Creating)), offers: offers(&[Copy]), ..case(json!({})) };
    assert!(matches!(case.action(), Action::Create { provider: Btrfs, .. }));
}

#[test]
fn a_base_is_sealed_once_it_is_populated_and_its_digest_is_reported_until_the_status_has_it() {
    let populated = json!({ "type": "Populated", "status": "True", "reason": "Filled", "message": "", "lastTransitionTime": "" });
    let filled = json!({ "spec": { "base": { "generation": "g", "node": NODE } }, "status": { "conditions": [populated] } });
    let at = |over: &Value, state| Case { record: Some(record(1, Btrfs, state)), ..case(over.clone()) }.action();
    let unfilled = json!({ "spec": { "base": { "generation": "g", "node": NODE } } });
    assert_eq!(at(&unfilled, RecordState::Ready), Action::Keep { provider: Btrfs });
    assert_eq!(at(&filled, RecordState::Ready), Action::Seal { provider: Btrfs });
    assert_eq!(at(&filled, RecordState::Sealed), Action::Seal { provider: Btrfs });
    let mut reported = filled.clone();
    reported["status"]["volume"] = json!({ "manifestDigest": "d" });
    assert_eq!(at(&reported, RecordState::Sealed), Action::Keep { provider: Btrfs });
    let no_base = json!({ "status": filled["status"] });
    assert_eq!(at(&no_base, RecordState::Ready), Action::Keep { provider: Btrfs }, "only a base is sealed");
}

#[test]
fn a_deleted_workspace_waits_for_its_mounts_and_then_goes_even_if_it_was_never_made() {
    let deleted = json!({ "metadata": { "deletionTimestamp": "2026-11-21T00:00:00Z" } });
    assert_eq!(Case { mounts: 1, ..case(deleted.clone()) }.action(), Action::WaitForPods);
    assert_eq!(case(deleted.clone()).action(), Action::Destroy);
    let mut released = deleted;
    released["metadata"]["finalizers"] = json!(["yoi.dev/operator"]);
    assert_eq!(case(released).action(), Action::Ignore);
}

#[test]
fn a_lost_tree_is_reported_as_lost_and_never_made_anew() {
    let case = Case { record: Some(record(1, Btrfs, RecordState::Ready)), lost: true, ..case(json!({})) };
    assert_eq!(case.refusal_reason(), "TreeLost");
}

#[test]
fn a_tree_that_was_provisioned_and_has_no_record_is_looked_for_and_never_made_anew() {
    let with_provisioned = |status: &str, reason: &str| {
        let provisioned = json!({ "type": "Provisioned", "status": status, "reason": reason, "message": "", "lastTransitionTime": "" });
        json!({ "status": { "conditions": [provisioned] } })
    };
    for (status, reason) in [("True", "TreeCreated"), ("True", "Adopted"), ("False", "TreeLost"), ("False", "JournalDamaged")] {
        assert_eq!(case(with_provisioned(status, reason)).action(), Action::Adopt, "{status} {reason}");
    }
    for (status, reason) in [("False", "Creating"), ("False", "OutOfSpace")] {
        assert!(matches!(case(with_provisioned(status, reason)).action(), Action::Create { .. }), "{status} {reason}");
    }
}

#[test]
fn a_tree_with_an_unreadable_record_is_left_alone_until_its_workspace_is_deleted() {
    let unknown = Some("failed to understand the record /j/x.json: EOF");
    assert_eq!(Case { unknown, ..case(json!({})) }.refusal_reason(), "JournalDamaged");
    let Action::Refuse { message, .. } = (Case { unknown, ..case(json!({})) }).action() else { panic!() };
    assert!(message.contains("/j/x.json") && message.contains("delete this workspace"), "{message}");
    let deleted = json!({ "metadata": { "deletionTimestamp": "2026-11-21T00:00:00Z" } });
    assert_eq!(Case { unknown, ..case(deleted) }.action(), Action::Destroy);
}
