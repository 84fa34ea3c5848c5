use std::path::PathBuf;

use super::*;
use crate::{CaptureMethod, Captured, CloneAccess, Owner, Seal, TreeManifest, TreeOrigin};

const UID: Uid = Uid::from_bytes([7; 16]);

fn offer(provider: ProviderKind, available: bool) -> ProviderOffer {
    ProviderOffer { provider, available, reason: if available { "works" } else { "no ioctl" }.into() }
}

#[test]
fn w13_w14_a_named_provider_never_falls_back_and_auto_never_works_in_place() {
    for (kind, only) in [
        (ProviderKind::Zfs, ProviderRequest::Zfs),
        (ProviderKind::Btrfs, ProviderRequest::Btrfs),
        (ProviderKind::Overlay, ProviderRequest::Overlay),
        (ProviderKind::Reflink, ProviderRequest::Reflink),
        (ProviderKind::Copy, ProviderRequest::Copy),
    ] {
        // Whatever else the node has.
        for others in [true, false] {
            let offers = |this| ProviderKind::ALL.map(|other| offer(other, if other == kind { this } else { others }));
            assert_eq!(select(only, &offers(true)).unwrap().provider, kind);
            assert_eq!(select(only, &offers(false)).unwrap_err().reason, format!("{kind}: no ioctl"));
        }
        assert_eq!(select(only, &[]).unwrap_err().reason, format!("{kind}: not offered by this node"));
    }
    let none = ProviderKind::ALL.map(|kind| offer(kind, false));
    let reason = select(ProviderRequest::Auto, &none).unwrap_err().reason;
    assert_eq!(reason, "Zfs: no ioctl; Btrfs: no ioctl; Overlay: no ioctl; Reflink: no ioctl; Copy: no ioctl");
    assert_eq!(select(ProviderRequest::Auto, &[]).unwrap_err().reason, "this node offers no provider");
}

#[test]
fn w11_w12_auto_takes_the_best_that_works_and_says_why_the_better_ones_do_not() {
    use ProviderKind::{Btrfs, Copy, Overlay, Reflink, Zfs};
    let chosen = |available: &[ProviderKind]| {
        // The order of the offers does not matter.
        let offers = [Copy, Overlay, Btrfs, Zfs, Reflink].map(|kind| offer(kind, available.contains(&kind)));
        select(ProviderRequest::Auto, &offers).unwrap()
    };
    assert_eq!(chosen(&[Btrfs, Zfs, Overlay, Reflink, Copy]).reason, "Zfs: works");
    assert_eq!(chosen(&[Btrfs, Overlay, Reflink, Copy]).reason, "Btrfs: works (Zfs: no ioctl)");
    assert_eq!(chosen(&[Copy, Reflink, Overlay]).reason, "Overlay: works (Zfs: no ioctl; Btrfs: no ioctl)");
    assert_eq!(chosen(&[Copy, Reflink]).reason, "Reflink: works (Zfs: no ioctl; Btrfs: no ioctl; Overlay: no ioctl)");
    assert_eq!(chosen(&[Copy]).reason, "Copy: works (Zfs: no ioctl; Btrfs: no ioctl; Overlay: no ioctl; Reflink: no ioctl)");
    // An older mounter does not offer all of them.
    let some = select(ProviderRequest::Auto, &[offer(Btrfs, false), offer(Copy, true)]).unwrap();
    assert_eq!(some.reason, "Copy: works (Btrfs: no ioctl)");
}

/// What disk and journal hold of one tree; steps change it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct OneTree {
    record: Option<RecordState>,
    /// Marked or not.
    building: Option<bool>,
    /// Sealed or not.
    live: Option<bool>,
    trash: Option<bool>,
    /// In the record; in the live tree's marker.
    quotas: (Option<Quota>, Option<Quota>),
}

fn quota(mib: u64) -> Option<Quota> {
    Some(Quota::new(mib << 20).unwrap())
}

impl OneTree {
    fn all() -> impl Iterator<Item = OneTree> {
        let records =
            [RecordState::Creating, RecordState::Ready, RecordState::Sealing, RecordState::Sealed, RecordState::Destroying].map(Some);
        let records: Vec<_> = [None].into_iter().chain(records).collect();
        let three = [None, Some(false), Some(true)];
        let quotas = [(None, None), (quota(1), None), (quota(1), quota(2)), (None, quota(2))];
        records.into_iter().flat_map(move |record| {
            three.into_iter().flat_map(move |building| {
                three.into_iter().flat_map(move |live| {
                    let trees = move |trash| quotas.map(|quotas| OneTree { record, building, live, trash, quotas });
                    three.into_iter().flat_map(trees)
                })
            })
        })
    }

    fn observed(&self) -> (JournalContents, Inventory) {
        let origin = TreeOrigin::Empty { owner: Owner { uid: 0, gid: 0 } };
        let marker = |sealed: bool, quota: Option<Quota>| {
            let manifest = TreeManifest { files: 0, dirs: 0, bytes: 0, git_head: None, digest: String::new() };
            let sealed = sealed.then_some(Seal { manifest, transid: None });
            Marker { quota, sealed, ..Marker::new(UID, ProviderKind::Copy, origin) }
        };
        let entry = |location, marker| DataRootEntry { uid: UID, location, marker, created_seconds: None };
        let building = self.building.map(|marked| entry(EntryLocation::Building, marked.then(|| marker(false, None))));
        let live = self.live.map(|sealed| entry(EntryLocation::Live, Some(marker(sealed, self.quotas.1))));
        let trash = self.trash.map(|marked| entry(EntryLocation::Trash, marked.then(|| marker(false, None))));
        let entries = [building, live, trash].into_iter().flatten().collect();
        let records = self
            .record
            .iter()
            .map(|state| Record {
                uid: UID,
                provider: ProviderKind::Copy,
                origin,
                state: *state,
                since: crate::journal::ChangeBase::Unknown,
                quota: self.quotas.0,
                object: None,
                label: None,
            })
            .collect();
        (JournalContents { records, damaged: vec![] }, Inventory { entries, ..Inventory::default() })
    }

    fn plan(&self) -> Recovery {
        let (journal, found) = self.observed();
        recover(&journal, &found)
    }

    fn apply(&mut self, step: &RecoveryStep) {
        match step {
            RecoveryStep::Disk(DiskStep::Discard { .. }) => self.building = None,
            RecoveryStep::Disk(DiskStep::Purge { .. }) => self.trash = None,
            RecoveryStep::Disk(DiskStep::Commit { .. }) => {
                assert_eq!((self.building, self.live), (Some(true), None), "a commit over something, or of nothing of ours");
                (self.live, self.building, self.quotas.1) = (Some(false), None, None);
            }
            RecoveryStep::Disk(DiskStep::Destroy { .. }) => (self.building, self.live, self.trash) = (None, None, None),
            RecoveryStep::Disk(DiskStep::Seal { .. }) => self.live = Some(self.live.map(|_| true).expect("a seal of nothing")),
            RecoveryStep::Disk(DiskStep::SetQuota { quota, .. }) => {
                assert_eq!((self.live.is_some(), *quota), (true, self.quotas.0), "a quota of nothing, or another one");
                self.quotas.1 = *quota;
            }
            RecoveryStep::Journal(JournalStep::Ready { .. }) => {
                assert_eq!(self.quotas.0, self.quotas.1, "a tree would be ready without its quota");
                assert!(matches!(self.record, Some(RecordState::Creating | RecordState::Ready)));
                self.record = Some(RecordState::Ready);
            }
            RecoveryStep::Journal(JournalStep::Sealed { .. }) => {
                assert!(matches!(self.record, Some(RecordState::Sealing | RecordState::Sealed)));
                self.record = Some(RecordState::Sealed);
            }
            RecoveryStep::Journal(JournalStep::Forget { .. }) => {
                assert_eq!(self.live, None, "a tree would be forgotten");
                self.record = None;
            }
        }
    }
}

#[test]
fn from_any_state_and_after_a_crash_at_any_step_recovery_ends_and_stays_ended() {
    let mut states = 0;
    for start in OneTree::all() {
        for crash_after in 0..=start.plan().steps.len() {
            let mut tree = start;
            start.plan().steps.iter().take(crash_after).for_each(|step| tree.apply(step));
            tree.plan().steps.iter().for_each(|step| tree.apply(step));
            let rest = tree.plan();
            assert_eq!(rest.steps, [], "from {start:?}, crash after {crash_after}, at {tree:?}");
            assert_eq!((tree.building, tree.trash), (None, None), "from {start:?}");
            assert!(!matches!(tree.record, Some(RecordState::Creating | RecordState::Destroying)), "from {start:?}");
            if (tree.record, tree.live) == (Some(RecordState::Ready), Some(false)) {
                assert_eq!(tree.quotas.0, tree.quotas.1, "from {start:?}");
            }
            states += 1;
        }
    }
    assert!(states > 300, "only {states} states");
}

#[test]
fn a_live_tree_goes_only_if_its_destruction_was_meant() {
    for start in OneTree::all().filter(|w| w.live.is_some()) {
        let mut tree = start;
        start.plan().steps.iter().for_each(|step| tree.apply(step));
        assert_eq!(tree.live.is_none(), start.record == Some(RecordState::Destroying), "{start:?}");
        assert_eq!(start.plan().orphans.len(), usize::from(start.record.is_none()), "{start:?}");
    }
}

#[test]
fn a_promised_tree_that_is_nowhere_is_lost_and_its_record_stays() {
    for state in [RecordState::Ready, RecordState::Sealing, RecordState::Sealed] {
        let nowhere = OneTree { record: Some(state), building: None, live: None, trash: None, quotas: (quota(1), None) };
        assert_eq!(nowhere.plan(), Recovery { lost: vec![UID], ..Recovery::default() });
    }
}

#[test]
fn of_a_tree_whose_record_or_entry_cannot_be_read_nothing_is_touched_and_the_others_are_recovered() {
    let other = Uid::from_bytes([8; 16]);
    for start in OneTree::all() {
        for damaged in [true, false] {
            let (mut journal, mut found) = start.observed();
            if damaged {
                let why = "the file is no JSON".to_owned();
                (journal.records, journal.damaged) = (vec![], vec![crate::journal::DamagedRecord { uid: UID, why }]);
            } else {
                found.unreadable = vec![crate::UnreadableEntry { uid: UID, why: "input/output error".into() }];
            }
            found.entries.push(DataRootEntry { uid: other, location: EntryLocation::Building, marker: None, created_seconds: None });
            let plan = recover(&journal, &found);
            assert_eq!(plan.steps, [RecoveryStep::Disk(DiskStep::Discard { uid: other })], "{start:?}");
            assert_eq!((plan.orphans, plan.lost), (vec![], vec![]), "{start:?}");
            assert_eq!(plan.unknown.len(), 1);
        }
    }
}

#[test]
fn steps_and_markers_keep_their_spelling() {
    let step = RecoveryStep::Disk(DiskStep::Seal { uid: UID, provider: ProviderKind::Btrfs });
    let text = r#"{"Disk":{"Seal":{"uid":"07070707-0707-0707-0707-070707070707","provider":"Btrfs"}}}"#;
    assert_eq!(serde_json::to_string(&step).unwrap(), text);
    let marker = Marker {
        version: 1,
        uid: UID,
        provider: ProviderKind::Btrfs,
        origin: TreeOrigin::Clone { from: UID, access: CloneAccess::ReadOnly },
        parent_dataset: None,
        host_dataset: None,
        lower: Some(UID),
        quota: Some(Quota::new(u64::MAX).unwrap()),
        below: PathBuf::new(),
        captured: Some(Captured { how: CaptureMethod::Reflinked, why: "c".repeat(240) }),
        sealed: Some(Seal {
            manifest: TreeManifest {
                files: u64::MAX,
                dirs: u64::MAX,
                bytes: u64::MAX,
                git_head: Some("a".repeat(64)),
                digest: "b".repeat(64),
            },
            transid: Some(u64::MAX),
        }),
    };
    let text = serde_json::to_string(&marker).unwrap();
    assert!(text.contains(r#""making":{"Clone":{"from":"07070707-0707-0707-0707-070707070707","access":"ReadOnly"}}"#), "{text}");
    assert!(text.len() < 1000, "on XFS a link holds at most 1024 bytes");
    // With the tree's UID, a dataset has 255 bytes at most. It has no lower layer.
    let in_zfs = Marker { parent_dataset: Some("d".repeat(218)), lower: None, ..marker.clone() };
    assert!(serde_json::to_string(&in_zfs).unwrap().len() < 1024, "on XFS a link holds at most 1024 bytes");
    // As long as a snapshot of a dataset of the host lets it be.
    let captured = Captured { how: CaptureMethod::Snapshot, why: "c".repeat(80) };
    let of_host = Marker {
        parent_dataset: Some("d".repeat(180)),
        host_dataset: Some("h".repeat(75)),
        below: "b".repeat(75).into(),
        lower: None,
        captured: Some(captured),
        ..marker.clone()
    };
    assert!(serde_json::to_string(&of_host).unwrap().len() < 1024, "on XFS a link holds at most 1024 bytes");
    assert_eq!(serde_json::from_str::<Marker>(&text).unwrap(), marker);
    let entry = DataRootEntry { uid: UID, location: EntryLocation::Trash, marker: None, created_seconds: None };
    assert_eq!(serde_json::to_string(&entry).unwrap(), r#"{"uid":"07070707-0707-0707-0707-070707070707","place":"Trash","marker":null}"#);
}
