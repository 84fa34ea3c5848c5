//! The shim's part of a workspace's status.

use crate::fixtures::{manifest, workspace};
use serde_json::json;
use yoi_agent_shim::decide::workspace_status::{
    StatusUpdate, changed_status, event_is_warning, not_provisioned, provisioned_status, sealed_status,
};
use yoi_crds::AgentWorkspace;
use yoi_crds::condition::{self, ConditionStatus, ConditionValue};
use yoi_crds::reason::{self, condition as type_};
use yoi_workspace::ProviderKind;

fn after(ws: &AgentWorkspace, update: StatusUpdate) -> AgentWorkspace {
    let Some(part) = changed_status(ws, update, "2026-11-21T00:00:00Z") else { return ws.clone() };
    let (applied, mut next) = (part.to_patch(), serde_json::to_value(ws).unwrap());
    for (key, value) in applied.as_object().unwrap() {
        next["status"][key] = value.clone();
    }
    serde_json::from_value(next).unwrap()
}

#[test]
fn the_same_update_twice_writes_nothing() {
    let ws = workspace(1, json!({}));
    let update = || provisioned_status(&ws, ProviderKind::Btrfs, Some("Btrfs: works"), Some(reason::CLONE_CREATED), 0);
    let reported = after(&ws, update());
    assert_eq!(changed_status(&reported, update(), "later"), None);
    assert_eq!(
        changed_status(&reported, provisioned_status(&reported, ProviderKind::Btrfs, None, None, 0), "later"),
        None,
        "a restart finds it reported"
    );
    assert_eq!(
        changed_status(&reported, provisioned_status(&reported, ProviderKind::Btrfs, None, None, 1), "later")
            .unwrap()
            .changed_conditions(&reported)
            .count(),
        1
    );
}

#[test]
fn a_released_tree_differs_from_one_that_was_never_published() {
    let reason = |ws: &AgentWorkspace| condition::find(&ws.status.as_ref().unwrap().conditions, "InUse").unwrap().reason.clone();
    let mounts = |ws: &AgentWorkspace, n: usize| after(ws, provisioned_status(ws, ProviderKind::Btrfs, None, None, n));
    let made = workspace(1, json!({}));
    let new = mounts(&made, 0);
    assert_eq!(reason(&new), "NotPublished");
    let taken = mounts(&new, 1);
    // Within the same second: only the reason can tell.
    let free = mounts(&taken, 0);
    assert_eq!((reason(&taken).as_str(), reason(&free).as_str()), ("Published", "Released"));
    assert_eq!(reason(&mounts(&free, 0)), "Released", "a restart does not forget it");
}

#[test]
fn a_stop_is_a_normal_event_and_a_failure_a_warning() {
    let event = |type_: &str, value: ConditionValue| event_is_warning(&condition::condition(&[], type_, value, 1, "t"));
    assert_eq!(event(type_::IN_USE, ConditionValue::no(reason::RELEASED, "the last Pod let the tree go")), Some(false));
    assert_eq!(event(type_::IN_USE, ConditionValue::yes(reason::PUBLISHED, "a Pod has the tree mounted")), None);
    assert_eq!(event(type_::IN_USE, ConditionValue::no(reason::NOT_PUBLISHED, "no Pod has the tree mounted")), None);
    assert_eq!(event(type_::PROVISIONED, ConditionValue::yes(reason::CLONE_CREATED, "the tree stands on its node")), Some(false));
    assert_eq!(event(type_::PROVISIONED, ConditionValue::no(reason::OUT_OF_SPACE, "full")), Some(true));
    assert_eq!(event(type_::CLEANED_UP, ConditionValue::no(reason::BUSY, "busy")), Some(true));
}

#[test]
fn a_tree_that_is_found_after_a_restart_and_was_never_reported_is_adopted() {
    let ws = workspace(1, json!({}));
    let reported = after(&ws, provisioned_status(&ws, ProviderKind::Copy, None, None, 0));
    let provisioned = condition::find(&reported.status.as_ref().unwrap().conditions, "Provisioned").unwrap().clone();
    assert_eq!((provisioned.status, &*provisioned.reason), (ConditionStatus::True, "Adopted"));
}

#[test]
fn conditions_of_others_are_neither_written_nor_compared() {
    let other = json!({ "type": "Ready", "status": "True", "reason": "AllMet", "message": "", "lastTransitionTime": "" });
    let ws = workspace(1, json!({ "status": { "conditions": [other] } }));
    let (volume, value) = sealed_status(&manifest());
    let update = StatusUpdate { volume: Some(volume), ..StatusUpdate::default().with(type_::SEALED, value) };
    let applied = changed_status(&ws, update, "now").unwrap().to_patch();
    assert_eq!(applied["conditions"].as_array().unwrap().len(), 1);
    assert_eq!(applied["volume"]["entries"], 4);
    assert_eq!(applied.get("nodeName"), None);
}

#[test]
fn a_refused_provider_is_in_both_conditions() {
    let update = not_provisioned(None, reason::PROVIDER_UNAVAILABLE, "no Btrfs");
    assert_eq!(
        update.conditions.iter().map(|(t, v)| (*t, v.reason.as_str())).collect::<Vec<_>>(),
        [("Provisioned", "ProviderUnavailable"), ("ProviderSelected", "ProviderUnavailable")]
    );
}
