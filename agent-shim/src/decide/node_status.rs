//! The status of the WorkspaceNode.

use yoi_crds::condition::{self, ConditionValue};
use yoi_crds::node::{Capacity, OfferedHostSource, OfferedProvider, UnclaimedTrees, WorkspaceNodeStatus};
use yoi_crds::reason::{self, Reason, condition as type_};
use yoi_crds::source::ProviderName;
use yoi_workspace::{Probe, ProviderKind};

use crate::host_sources::{HostSource, HostSourceName, HostSources};
use crate::runtime_digest::RuntimeDigest;

/// Why the node's data root does not work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataRootFailure {
    /// Reason of the conditions.
    pub reason: Reason,
    /// Message of the conditions.
    pub message: String,
}

const READY_WITH_SELINUX: &str = "trees can be made on this node. Its SELinux is on: a container runtime that uses it labels every file of a tree when a Pod \
                                  starts, and a tree of provider Overlay then takes the room of its base";

/// The status to write, or None if the present one is close enough. `failure` says why the data root does not work, and `damaged` has one
/// sentence for each record that cannot be read.
pub fn status(
    before: Option<&WorkspaceNodeStatus>,
    offers: &Probe,
    failure: Option<&DataRootFailure>,
    digests: &[RuntimeDigest],
    damaged: &[String],
    generation: i64,
    now: &str,
) -> Option<WorkspaceNodeStatus> {
    let empty = WorkspaceNodeStatus::default();
    let before = before.unwrap_or(&empty);
    let mut providers: Vec<_> = offers
        .offers
        .iter()
        .map(|o| OfferedProvider { name: provider_name(o.provider), available: o.available && failure.is_none(), reason: o.reason.clone() })
        .collect();
    // Auto takes the first that is available, and people see it first.
    providers.sort_by_key(|p| p.name);
    let value = if let Some(DataRootFailure { reason, message }) = failure {
        ConditionValue::no(*reason, message)
    } else if providers.iter().any(|p| p.available) {
        ConditionValue::yes(reason::ALL_MET, if offers.selinux { READY_WITH_SELINUX } else { "trees can be made on this node" })
    } else {
        ConditionValue::no(reason::PROVIDER_UNAVAILABLE, "no provider works on this node's data root")
    };
    let after = WorkspaceNodeStatus {
        providers,
        // What does not work may not say how large it is.
        capacity: if failure.is_some() { before.capacity.clone() } else { Some(capacity(before.capacity.as_ref(), offers)) },
        kernel: Some(offers.kernel.release.clone()),
        runtime_digests: digests.iter().map(|d| d.as_str().to_owned()).collect(),
        host_sources: before.host_sources.clone(),
        unclaimed: before.unclaimed.clone(),
        conditions: vec![
            condition::condition(&before.conditions, type_::JOURNAL_READABLE, journal_value(damaged), generation, now),
            condition::condition(&before.conditions, type_::READY, value, generation, now),
        ],
    };
    (after != *before).then_some(after)
}

/// The same with these folders of the host, of which `available` are there. `after` is the status to write otherwise.
pub fn with_host_sources(
    before: Option<&WorkspaceNodeStatus>,
    after: Option<WorkspaceNodeStatus>,
    listed: &HostSources,
    available: &[HostSourceName],
) -> Option<WorkspaceNodeStatus> {
    let offered = |source: &HostSource| OfferedHostSource {
        name: source.name.as_str().to_owned(),
        path: source.path.display().to_string(),
        namespaces: source.namespaces.clone(),
        available: available.contains(&source.name),
    };
    let mut host_sources: Vec<_> = listed.0.iter().map(offered).collect();
    host_sources.sort_by(|a, b| a.name.cmp(&b.name));
    if before.is_some_and(|before| before.host_sources == host_sources) {
        return after;
    }
    let changed = after.or_else(|| before.cloned())?;
    Some(WorkspaceNodeStatus { host_sources, ..changed })
}

/// The same with the trees that no object claims. `unclaimed` is None while nobody has looked: then the status keeps what it says of them.
pub fn with_unclaimed(
    before: Option<&WorkspaceNodeStatus>,
    after: Option<WorkspaceNodeStatus>,
    unclaimed: Option<Option<UnclaimedTrees>>,
) -> Option<WorkspaceNodeStatus> {
    let Some(unclaimed) = unclaimed.filter(|unclaimed| before.and_then(|before| before.unclaimed.as_ref()) != unclaimed.as_ref()) else {
        return after;
    };
    let changed = after.or_else(|| before.cloned())?;
    Some(WorkspaceNodeStatus { unclaimed, ..changed })
}

fn journal_value(damaged: &[String]) -> ConditionValue {
    match damaged {
        [] => ConditionValue::yes(reason::ALL_MET, "every record can be read"),
        [first, rest @ ..] => {
            let more = if rest.is_empty() { String::new() } else { format!(" (and {} more)", rest.len()) };
            ConditionValue::no(reason::JOURNAL_DAMAGED, format!("{first}{more}"))
        }
    }
}

/// The status while the data root is not opened: no provider is available. None if it is so already.
pub fn without_data_root(
    before: Option<&WorkspaceNodeStatus>,
    failure: &DataRootFailure,
    generation: i64,
    now: &str,
) -> Option<WorkspaceNodeStatus> {
    let empty = WorkspaceNodeStatus::default();
    let before = before.unwrap_or(&empty);
    let gone = |p: &OfferedProvider| OfferedProvider { available: false, reason: "the data root is not open".into(), ..p.clone() };
    let mut conditions = before.conditions.clone();
    conditions.retain(|c| c.type_ != type_::READY);
    let value = ConditionValue::no(failure.reason, &failure.message);
    conditions.push(condition::condition(&before.conditions, type_::READY, value, generation, now));
    let after = WorkspaceNodeStatus { providers: before.providers.iter().map(gone).collect(), conditions, ..before.clone() };
    (after != *before).then_some(after)
}

/// The capacity, rounded to 1 %. It stays as it was until the free space has changed by 5 % of the total, so that a quiet node writes nothing.
fn capacity(before: Option<&Capacity>, offers: &Probe) -> Capacity {
    let total = i64::try_from(offers.total_bytes).unwrap_or(i64::MAX);
    let free = i64::try_from(offers.free_bytes).unwrap_or(i64::MAX);
    let step = (total / 100).max(1);
    match before {
        // A shim of an earlier version wrote no quantities.
        Some(b) if b.total_bytes == total && !b.free.is_empty() && (b.free_bytes - free).abs() < step.saturating_mul(5) => b.clone(),
        _ => Capacity::new(total, free / step * step),
    }
}

/// The provider as the API spells it.
pub fn provider_name(provider: ProviderKind) -> ProviderName {
    match provider {
        ProviderKind::Zfs => ProviderName::Zfs,
        ProviderKind::Btrfs => ProviderName::Btrfs,
        ProviderKind::Overlay => ProviderName::Overlay,
        ProviderKind::Reflink => ProviderName::Reflink,
        ProviderKind::Copy => ProviderName::Copy,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use yoi_workspace::{KernelFacts, ProviderOffer};

    fn probe(offers: Vec<ProviderOffer>, free_bytes: u64) -> Probe {
        let kernel = KernelFacts { release: "6.18".into(), missing: vec![] };
        Probe { offers, total_bytes: 1000, free_bytes, kernel, selinux: false, failure: None }
    }

    fn offers(free: u64) -> Probe {
        let providers = vec![ProviderOffer { provider: ProviderKind::Copy, available: true, reason: "works".into() }];
        probe(providers, free)
    }

    #[test]
    fn a_node_whose_selinux_is_on_says_what_that_does_to_trees_once() {
        let probe = Probe { selinux: true, ..offers(900) };
        let first = status(None, &probe, None, &[], &[], 1, "t0").unwrap();
        let ready = condition::find(&first.conditions, type_::READY).unwrap();
        assert!(ready.message.contains("labels every file") && condition::is_true(&first.conditions, type_::READY), "{}", ready.message);
        assert_eq!(status(Some(&first), &probe, None, &[], &[], 1, "t1"), None);
    }

    #[test]
    fn a_quiet_node_writes_nothing_and_a_filling_one_does() {
        let first = status(None, &offers(905), None, &[], &[], 1, "t0").unwrap();
        assert_eq!(first.capacity, Some(Capacity::new(1000, 900)));
        assert_eq!(status(Some(&first), &offers(860), None, &[], &[], 1, "t1"), None);
        let second = status(Some(&first), &offers(850), None, &[], &[], 1, "t1").unwrap();
        assert_eq!(second.capacity, Some(Capacity::new(1000, 850)));
        assert_eq!(second.conditions, first.conditions, "the transition time stays");
    }

    #[test]
    fn a_folder_of_the_host_is_listed_with_its_namespaces_and_written_once() {
        let list = crate::host_sources::parse(
            r#"[{"name":"there","path":"/home/me/a","namespaces":["team"]},{"name":"gone","path":"/home/me/b","namespaces":["*"]}]"#,
        )
        .unwrap();
        let there = [list.0[0].name.clone()];
        let first = status(None, &offers(905), None, &[], &[], 1, "t0");
        let first = with_host_sources(None, first, &list, &there).unwrap();
        let found: Vec<_> =
            first.host_sources.iter().map(|s| (&*s.name, &*s.path, s.available, s.is_for("team"), s.is_for("other"))).collect();
        assert_eq!(found, [("gone", "/home/me/b", false, true, true), ("there", "/home/me/a", true, true, false)]);
        let again = |available: &[HostSourceName]| {
            let next = status(Some(&first), &offers(905), None, &[], &[], 1, "t1");
            with_host_sources(Some(&first), next, &list, available)
        };
        assert_eq!(again(&there), None);
        assert!(again(&[]).unwrap().host_sources.iter().all(|s| !s.available));
    }

    #[test]
    fn trees_that_no_object_claims_are_written_once_and_stay_until_somebody_has_looked() {
        let found = |trees| Some(UnclaimedTrees { trees, ..UnclaimedTrees::default() });
        let with = |before: Option<&WorkspaceNodeStatus>, unclaimed| {
            with_unclaimed(before, status(before, &offers(905), None, &[], &[], 1, "t0"), unclaimed)
        };
        let first = with(None, Some(found(2))).unwrap();
        assert_eq!((first.unclaimed.clone(), first.providers.len()), (found(2), 1));
        for same in [None, Some(found(2))] {
            assert_eq!(with(Some(&first), same), None);
        }
        assert_eq!(with(Some(&first), Some(found(1))).unwrap().unclaimed, found(1));
        let none = with(Some(&first), Some(None)).unwrap();
        assert_eq!((&none.unclaimed, none.capacity.clone()), (&None, first.capacity));
        assert_eq!(with(Some(&none), Some(None)), None);
    }

    #[test]
    fn a_node_without_a_provider_is_not_ready() {
        let said = status(None, &probe(vec![], 1), None, &[], &[], 1, "t0").unwrap();
        assert_eq!(said.conditions[1].reason, "ProviderUnavailable");
    }

    #[test]
    fn a_node_without_its_data_root_offers_nothing_and_says_so_once() {
        let first = status(None, &offers(905), None, &[], &[], 1, "t0").unwrap();
        let missing = DataRootFailure { reason: reason::DATA_ROOT_MISSING, message: "it is not mounted".into() };
        let rootless_now = without_data_root(Some(&first), &missing, 1, "t1").unwrap();
        assert!(rootless_now.providers.iter().all(|p| !p.available));
        let ready = condition::find(&rootless_now.conditions, "Ready").unwrap();
        assert_eq!((&*ready.reason, &*ready.message), ("DataRootMissing", "it is not mounted"));
        assert_eq!(without_data_root(Some(&rootless_now), &missing, 1, "t2"), None);
        assert!(status(Some(&rootless_now), &offers(905), None, &[], &[], 1, "t3").unwrap().providers[0].available);
    }

    #[test]
    fn a_node_whose_data_root_is_read_only_is_not_ready_and_offers_nothing_until_it_is_mounted_anew() {
        let failure = DataRootFailure { reason: reason::READ_ONLY_FILESYSTEM, message: "delete these Pods".into() };
        let failed = status(None, &offers(905), Some(&failure), &[], &[], 1, "t0").unwrap();
        let ready = condition::find(&failed.conditions, "Ready").unwrap();
        assert_eq!((&*ready.reason, &*ready.message), ("ReadOnlyFilesystem", "delete these Pods"));
        assert!(failed.providers.iter().all(|p| !p.available));
        let well = status(Some(&failed), &offers(905), None, &[], &[], 1, "t1").unwrap();
        assert!(condition::is_true(&well.conditions, "Ready") && well.providers[0].available);
    }

    #[test]
    fn damaged_records_are_told_by_a_condition_that_names_the_file_and_trees_are_made_all_the_same() {
        let files = ["failed to understand the record /j/a.json: EOF".to_owned(), "failed to read the record /j/b.json".to_owned()];
        let said = status(None, &offers(905), None, &[], &files, 1, "t0").unwrap();
        let told = condition::find(&said.conditions, "JournalReadable").unwrap();
        assert_eq!(&*told.reason, "JournalDamaged");
        assert!(told.message.contains("/j/a.json") && told.message.contains("1 more"), "{}", told.message);
        assert!(condition::is_true(&said.conditions, "Ready"));
    }
}
