//! Which action a workspace needs.

use crate::fixtures::{NODE, offers, record, uid, workspace};
use serde_json::{Value, json};
use yoi_agent_shim::decide::provision::{Action, ObservedTree, decide};
use yoi_workspace::ProviderKind::{Btrfs, Copy, Overlay, Reflink, Zfs};
use yoi_workspace::{CloneAccess, Owner, ProviderKind, ProviderOffer, Record, RecordState, TreeOrigin};

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
    for (available, provider) in [
        (vec![Btrfs, Overlay, Reflink, Copy], Btrfs),
        (vec![Copy, Reflink, Overlay], Overlay),
        (vec![Copy, Reflink], Reflink),
        (vec![Copy], Copy),
    ] {
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
fn w13_a_provider_that_the_node_lacks_is_refused_with_its_reason_and_nothing_is_made() {
    for (name, why) in [
        ("Zfs", "Zfs: as the test says"),
        ("Btrfs", "Btrfs: as the test says"),
        ("Overlay", "Overlay: as the test says"),
        ("Reflink", "Reflink: as the test says"),
    ] {
        let case = Case { offers: offers(&[Copy]), ..case(json!({ "spec": { "provider": name } })) };
        let Action::Refuse { provider: None, reason, message } = case.action() else { panic!("{name}: {:?}", case.action()) };
        assert_eq!((reason.as_str(), &*message), ("ProviderUnavailable", why));
    }
    let all = offers(&[Copy, Reflink, Overlay, Btrfs, Zfs]);
    for (name, provider) in [("Zfs", Zfs), ("Btrfs", Btrfs), ("Overlay", Overlay), ("Reflink", Reflink), ("Copy", Copy)] {
        let case = Case { offers: all.clone(), ..case(json!({ "spec": { "provider": name } })) };
        assert!(matches!(case.action(), Action::Create { provider: chosen, .. } if chosen == provider), "{name}");
    }
}

#[test]
fn w11_w14_auto_names_what_it_passed_over_and_without_any_provider_it_makes_nothing() {
    let Action::Create { because, .. } = (Case { offers: offers(&[Reflink, Copy]), ..case(json!({})) }).action() else { panic!() };
    assert_eq!(because, "Reflink: as the test says (Zfs: as the test says; Btrfs: as the test says; Overlay: as the test says)");
    assert_eq!(Case { offers: offers(&[]), ..case(json!({})) }.refusal_reason(), "ProviderUnavailable");
}

#[test]
fn w11_a_clone_has_the_provider_of_its_base_and_says_so_when_auto_would_take_a_better_one_by_now() {
    let made = |provider, available: &[ProviderKind], asked: &str| {
        let mut over = base();
        over["spec"]["provider"] = json!(asked);
        let origin = Some(record(2, provider, RecordState::Sealed));
        match (Case { origin, offers: offers(available), ..case(over) }).action() {
            Action::Create { provider: chosen, because, .. } => {
                assert_eq!(chosen, provider);
                Ok(because)
            }
            Action::Refuse { reason, message, .. } => Err((reason.as_str(), message)),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(made(Overlay, &[Overlay, Reflink, Copy], "Auto").unwrap(), "Overlay: as its base");
    assert_eq!(made(Btrfs, &[Copy], "Auto").unwrap(), "Btrfs: as its base", "a worse offer is no reason to change");
    let kept = made(Copy, &[Overlay, Copy], "Auto").unwrap();
    assert!(kept.starts_with("Copy: as its base. By now this node offers Overlay;") && kept.contains("next generation"), "{kept}");
    assert_eq!(made(Copy, &[Overlay, Copy], "Copy").unwrap(), "Copy: as its base", "who names a provider gets it");
    for asked in ["Zfs", "Btrfs", "Reflink", "Copy"] {
        let (reason, message) = made(Overlay, &[Btrfs, Overlay, Reflink, Copy], asked).unwrap_err();
        assert_eq!(reason, "ProviderUnavailable");
        assert!(message.contains(asked) && message.contains("made by Overlay"), "{message}");
    }
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
