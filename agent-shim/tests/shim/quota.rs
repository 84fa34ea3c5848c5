//! Quotas of workspaces, and what is reported of the space that trees take.

use kube::runtime::watcher::Event;
use serde_json::{Value, json};
use tonic::Code;
use yoi_agent_shim::decide::workspace_status::{self, StatusUpdate};
use yoi_agent_shim::mounter::protocol::Request;
use yoi_agent_shim::proto::csi::NodeGetVolumeStatsRequest;
use yoi_agent_shim::shim::provisioning::{Next, ProvisionOutcome, provision};
use yoi_agent_shim::shim::recovery;
use yoi_agent_shim::shim::usage::measure;
use yoi_crds::AgentWorkspace;
use yoi_crds::condition::ConditionStatus;
use yoi_workspace::plan::DiskStep;
use yoi_workspace::{DiskUsage, ErrorReason, ProviderKind, Quota, QuotaState, RecordState};

use crate::fixtures::{offers, uid, workspace};
use crate::test_shim::TestShim;

const MIB: u64 = 1 << 20;

fn condition(update: &StatusUpdate, type_: &str) -> Option<(ConditionStatus, String, String)> {
    let (_, value) = update.conditions.iter().find(|(t, _)| *t == type_)?;
    Some((value.status, value.reason.to_string(), value.message.clone()))
}

/// A workspace whose quota the operator has resolved, after these conditions were reported.
fn limited(mib: Option<u64>, conditions: &[(&str, &str, &str)]) -> Value {
    let condition = |(type_, status, reason): &(&str, &str, &str)| json!({ "type": type_, "status": status, "reason": reason, "message": enforced(mib), "lastTransitionTime": "" });
    json!({ "status": { "quotaBytes": mib.map(|mib| mib * MIB), "conditions": conditions.iter().map(condition).collect::<Vec<_>>() } })
}

/// The message of QuotaEnforced, once that quota is set.
fn enforced(mib: Option<u64>) -> String {
    mib.map_or_else(|| "the workspace has no quota any more".to_owned(), |mib| format!("the file system refuses what is over {mib}Mi"))
}

async fn look(shim: &TestShim, over: Value) -> ProvisionOutcome {
    *shim.state.offers.write().unwrap() = offers(&[ProviderKind::Copy]);
    provision(&shim.state, &workspace(1, over), uid(1)).await.unwrap()
}

fn quota(mib: u64) -> Option<Quota> {
    Some(Quota::new(mib * MIB).unwrap())
}

fn usage(logical: u64, exclusive: u64, charged: Option<u64>) -> DiskUsage {
    DiskUsage { logical_bytes: logical, exclusive_bytes: exclusive, entries: 1, charged_bytes: charged }
}

#[tokio::test]
async fn a_tree_has_its_quota_before_it_is_reported_as_made() {
    let shim = TestShim::new();
    let made = look(&shim, limited(Some(10), &[])).await;
    let sent = shim.mounter.take_requests();
    assert!(matches!(&sent[..], [Request::CreateEmpty { .. }, Request::SetQuota { quota: set, .. }] if *set == quota(10)), "{sent:?}");
    let (status, reason, message) = condition(&made.update, "QuotaEnforced").unwrap();
    assert_eq!((status, &*reason, &*message), (ConditionStatus::True, "Enforced", "the file system refuses what is over 10Mi"));
    let record = shim.state.journal.get(uid(1)).unwrap().unwrap();
    assert_eq!((record.state, record.quota), (RecordState::Ready, quota(10)));
    // A tree without a quota is asked nothing and told nothing.
    let other = TestShim::new();
    let made = look(&other, json!({})).await;
    assert_eq!((other.mounter.take_requests().len(), condition(&made.update, "QuotaEnforced")), (1, None));
}

#[tokio::test]
async fn a_quota_is_changed_and_ended_and_not_set_again() {
    let shim = TestShim::new();
    look(&shim, limited(Some(10), &[])).await;
    shim.mounter.take_requests();
    let told: &[_] = &[("QuotaEnforced", "True", "Enforced"), ("Provisioned", "True", "TreeCreated")];
    look(&shim, limited(Some(10), told)).await;
    assert_eq!(shim.mounter.take_requests(), []);
    for wanted in [Some(20), Some(5), None] {
        let changed = look(&shim, limited(wanted, told)).await;
        let set = wanted.and_then(quota);
        assert_eq!(shim.mounter.take_requests(), [Request::SetQuota { uid: uid(1), quota: set }]);
        assert_eq!(shim.state.journal.get(uid(1)).unwrap().unwrap().quota, set);
        assert_eq!(condition(&changed.update, "QuotaEnforced").unwrap().0, ConditionStatus::True);
        look(&shim, limited(wanted, told)).await;
        assert_eq!(shim.mounter.take_requests(), []);
    }
}

#[tokio::test]
async fn a_status_that_names_a_former_quota_is_corrected() {
    let shim = TestShim::new();
    look(&shim, limited(Some(10), &[])).await;
    // The shim died after it had recorded the new quota and before it reported it.
    shim.state.journal.begin_set_quota(uid(1), quota(20)).unwrap();
    let mut former = limited(Some(10), &[("QuotaEnforced", "True", "Enforced"), ("Provisioned", "True", "TreeCreated")]);
    former["status"]["quotaBytes"] = json!(20 * MIB);
    let corrected = look(&shim, former).await;
    assert_eq!(condition(&corrected.update, "QuotaEnforced").unwrap().2, enforced(Some(20)));
    assert_eq!(shim.mounter.trees.lock().unwrap()[&uid(1)].quota, quota(20));
}

#[tokio::test]
async fn w37_a_node_that_cannot_enforce_a_quota_says_why_and_the_tree_works() {
    let shim = TestShim::new();
    *shim.mounter.quota_state.lock().unwrap() = Some(QuotaState::Unsupported { reason: "it has none".into() });
    let made = look(&shim, limited(Some(10), &[])).await;
    assert_eq!(made.next, Next::AwaitChange);
    assert_eq!(condition(&made.update, "Provisioned").unwrap().0, ConditionStatus::True);
    let expected = (ConditionStatus::False, "Unsupported".to_owned(), "it has none".to_owned());
    assert_eq!(condition(&made.update, "QuotaEnforced"), Some(expected));
}

#[tokio::test]
async fn a_tree_whose_quota_is_refused_is_not_ready_and_takes_the_next_one() {
    let shim = TestShim::new();
    look(&shim, json!({})).await;
    *shim.mounter.refuse.lock().unwrap() = Some(ErrorReason::OutOfSpace);
    let refused = look(&shim, limited(Some(10), &[("Provisioned", "True", "TreeCreated")])).await;
    assert_eq!(refused.next, Next::Retry);
    let (status, reason, _) = condition(&refused.update, "QuotaEnforced").unwrap();
    assert_eq!((status, &*reason), (ConditionStatus::False, "OutOfSpace"));
    // The disk is asked again: it may have been enlarged.
    let told: &[_] = &[("QuotaEnforced", "False", "OutOfSpace"), ("Provisioned", "True", "TreeCreated")];
    let mut again = limited(Some(10), told);
    again["status"]["conditions"][0]["message"] = json!("the data root has 5Mi");
    assert_eq!(look(&shim, again.clone()).await.next, Next::Retry);
    *shim.mounter.refuse.lock().unwrap() = None;
    let enlarged = look(&shim, again).await;
    assert_eq!(condition(&enlarged.update, "QuotaEnforced").unwrap().0, ConditionStatus::True);
    let taken = look(&shim, limited(Some(5), &[("QuotaEnforced", "False", "OutOfSpace")])).await;
    assert_eq!(condition(&taken.update, "QuotaEnforced").unwrap().0, ConditionStatus::True);
    assert_eq!(shim.mounter.trees.lock().unwrap()[&uid(1)].quota, quota(5));
}

#[tokio::test]
async fn after_the_data_root_was_mounted_anew_a_quota_that_is_refused_holds_up_no_other_tree() {
    let shim = TestShim::new();
    *shim.state.offers.write().unwrap() = offers(&[ProviderKind::Copy]);
    for n in [1, 2] {
        provision(&shim.state, &workspace(n, json!({})), uid(n)).await.unwrap();
        shim.state.journal.begin_set_quota(uid(n), quota(10)).unwrap();
    }
    shim.mounter.take_requests();
    *shim.mounter.refuse.lock().unwrap() = Some(ErrorReason::OutOfSpace);
    recovery::recover_mounted_anew(&shim.state).await.unwrap();
    let tried = shim.mounter.take_requests().into_iter().filter_map(|request| match request {
        Request::Recover { step: DiskStep::SetQuota { uid, .. } } => Some(uid),
        _ => None,
    });
    assert_eq!(tried.collect::<Vec<_>>(), [uid(1), uid(2)]);
}

#[test]
fn a_tree_over_its_quota_is_not_healthy_until_it_is_measured_below_it() {
    let health = |ws: &AgentWorkspace, usage: Option<DiskUsage>| {
        let value = workspace_status::health(ws, None, usage.as_ref());
        value.map(|v| (v.status, v.reason.to_string(), v.message))
    };
    let ws = workspace(1, limited(Some(10), &[]));
    assert_eq!(health(&ws, Some(usage(9, 9 * MIB, None))), None);
    let exceeded = (ConditionStatus::False, "QuotaExceeded".to_owned(), "the tree takes 12Mi, and its quota is 10Mi".to_owned());
    assert_eq!(health(&ws, Some(usage(9, 12 * MIB, None))), Some(exceeded.clone()), "also where nothing enforces it");
    assert_eq!(health(&ws, Some(usage(9, 1, Some(12 * MIB)))), Some(exceeded), "what is charged decides");
    let over = workspace(1, limited(Some(10), &[("Healthy", "False", "QuotaExceeded")]));
    assert_eq!(health(&over, None), None, "not measured since a restart");
    assert_eq!(health(&over, Some(usage(9, MIB, None))).unwrap().1, "AllMet");
    assert_eq!(health(&workspace(1, limited(None, &[("Healthy", "False", "QuotaExceeded")])), None).unwrap().1, "AllMet");
}

#[tokio::test]
async fn a_quota_that_is_turned_off_on_the_node_is_no_longer_said_to_be_enforced() {
    let shim = TestShim::new();
    look(&shim, limited(Some(10), &[])).await;
    shim.assign_pod(1, 7);
    // In use, so that it is measured each time.
    shim.node().await.node_publish_volume(shim.tree(7, 1)).await.unwrap();
    let told: &[_] = &[("QuotaEnforced", "True", "Enforced"), ("Provisioned", "True", "TreeCreated")];
    shim.apply_event(Event::Apply(workspace(1, limited(Some(10), told))));
    let seen = async |charged| {
        shim.mounter.usages.lock().unwrap().insert(uid(1), usage(MIB, MIB, charged));
        shim.mounter.take_requests();
        let (_, update) = measure(&shim.state, uid(1)).await.unwrap();
        (shim.mounter.take_requests(), condition(&update, "QuotaEnforced"))
    };
    let asked = Request::Usage { uid: uid(1) };
    assert_eq!(seen(Some(MIB)).await, (vec![asked.clone()], None), "it counts");
    *shim.mounter.quota_state.lock().unwrap() = Some(QuotaState::Unsupported { reason: "quotas are off".into() });
    let (requests, said) = seen(None).await;
    assert_eq!(requests, [asked, Request::SetQuota { uid: uid(1), quota: quota(10) }]);
    assert_eq!(said, Some((ConditionStatus::False, "Unsupported".to_owned(), "quotas are off".to_owned())));
    // Said once, it is not asked again.
    shim.apply_event(Event::Apply(workspace(1, limited(Some(10), &[("QuotaEnforced", "False", "Unsupported"), told[1]]))));
    assert_eq!(seen(None).await.0.len(), 1);
}

#[test]
fn figures_are_written_for_a_change_of_more_than_5_percent() {
    let with = |logical: u64, exclusive: u64| {
        workspace(1, json!({ "status": { "volume": { "logicalBytes": logical, "exclusiveBytes": exclusive } } }))
    };
    let written = |ws: &AgentWorkspace, logical, exclusive| {
        workspace_status::measured_volume(ws, &usage(logical, exclusive, None))
            .map(|v| (v.logical_bytes.unwrap(), v.exclusive_bytes.unwrap()))
    };
    assert_eq!(written(&workspace(1, json!({})), 0, 0), Some((0, 0)), "never measured");
    assert_eq!(written(&with(1000, 100), 1050, 105), None);
    assert_eq!(written(&with(1000, 100), 1051, 100), Some((1051, 100)));
    assert_eq!(written(&with(1000, 100), 1000, 94), Some((1000, 94)));
    assert_eq!(written(&with(1000, 0), 1000, 1), Some((1000, 1)));
}

#[tokio::test]
async fn the_kubelet_gets_the_figures_of_the_status() {
    let shim = TestShim::new();
    look(&shim, json!({})).await;
    shim.assign_pod(1, 7);
    let mounted = shim.tree(7, 1);
    let path = mounted.target_path.clone();
    shim.node().await.node_publish_volume(mounted).await.unwrap();
    let request = || NodeGetVolumeStatsRequest { volume_id: "csi-0123".into(), volume_path: path.clone(), ..Default::default() };
    let early = shim.node().await.node_get_volume_stats(request()).await.unwrap_err();
    assert_eq!(early.code(), Code::Unavailable);
    let mut stands = limited(Some(10), &[("Provisioned", "True", "TreeCreated")]);
    stands["status"]["podUID"] = json!(uid(7));
    shim.apply_event(Event::Apply(workspace(1, stands)));
    shim.mounter.usages.lock().unwrap().insert(uid(1), usage(40 * MIB, 3 * MIB, None));
    let (_, update) = measure(&shim.state, uid(1)).await.expect("the tree is in use");
    assert_eq!(update.volume.as_ref().unwrap().exclusive_bytes, Some(3 << 20));
    let stats = shim.node().await.node_get_volume_stats(request()).await.unwrap().into_inner().usage;
    assert_eq!((stats[0].used, stats[0].total, stats[0].available), (3 << 20, 10 << 20, 7 << 20));
    assert_eq!(shim.state.usages.exclusive_bytes(), 3 * MIB);
}
