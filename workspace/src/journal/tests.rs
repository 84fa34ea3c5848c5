use super::*;
use crate::Owner;

const UID: Uid = Uid::from_bytes([9; 16]);
const EMPTY: TreeOrigin = TreeOrigin::Empty { owner: Owner { uid: 1000, gid: 1000 } };

fn journal() -> (tempfile::TempDir, Journal) {
    let dir = tempfile::tempdir().unwrap();
    let journal = Journal::open(&dir.path().join("journal")).unwrap();
    (dir, journal)
}

#[test]
fn a_record_only_moves_forwards() {
    let (_dir, journal) = journal();
    assert_eq!(journal.begin_create(UID, ProviderKind::Copy, EMPTY).unwrap(), RecordState::Creating);
    assert!(matches!(journal.begin_seal(UID), Err(JournalError::Transition { from: RecordState::Creating, .. })));
    for _ in 0..2 {
        journal.record_created(UID).unwrap();
    }
    assert_eq!(journal.begin_create(UID, ProviderKind::Copy, EMPTY).unwrap(), RecordState::Ready);
    let other = journal.begin_create(UID, ProviderKind::Btrfs, EMPTY);
    assert!(matches!(other, Err(JournalError::Conflict { .. })));
    journal.begin_seal(UID).unwrap();
    journal.record_sealed(UID).unwrap();
    // Calls that are repeated late change nothing.
    journal.record_created(UID).unwrap();
    journal.begin_seal(UID).unwrap();
    assert_eq!(journal.get(UID).unwrap().unwrap().state, RecordState::Sealed);
    assert!(matches!(journal.record_destroyed(UID), Err(JournalError::Transition { .. })));
    journal.begin_destroy(UID).unwrap();
    assert!(matches!(journal.begin_create(UID, ProviderKind::Copy, EMPTY), Err(JournalError::Transition { .. })));
    assert!(matches!(journal.record_created(UID), Err(JournalError::Transition { .. })));
    for _ in 0..2 {
        journal.record_destroyed(UID).unwrap();
        journal.begin_destroy(UID).unwrap();
    }
    assert_eq!(journal.read_and_clean().unwrap(), JournalContents::default());
    assert!(matches!(journal.record_created(UID), Err(JournalError::NotFound { .. })));
}

#[test]
fn half_written_records_are_removed_and_damaged_ones_are_named() {
    let (dir, journal) = journal();
    let at = dir.path().join("journal");
    journal.begin_create(UID, ProviderKind::Copy, EMPTY).unwrap();
    std::fs::write(at.join(format!("{}.json.tmp", Uid::from_bytes([8; 16]))), "{\"uid\":").unwrap();
    std::fs::write(at.join("notes.txt"), "not ours").unwrap();
    assert_eq!(journal.read_and_clean().unwrap().records.len(), 1);
    let mut names: Vec<_> = std::fs::read_dir(&at).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names, [format!("{UID}.json"), "notes.txt".to_owned()]);
    let reopened = Journal::open(&at).unwrap();
    assert_eq!(reopened.read_and_clean().unwrap(), journal.read_and_clean().unwrap());

    std::fs::write(at.join(format!("{UID}.json")), "{}").unwrap();
    let found = journal.read_and_clean().unwrap();
    let path = at.join(format!("{UID}.json"));
    assert_eq!((found.records.len(), found.damaged.len()), (0, 1));
    assert!(found.damaged[0].why.contains(path.to_str().unwrap()), "{found:?}");
    let other = Uid::from_bytes([8; 16]);
    let record = Record {
        uid: UID,
        provider: ProviderKind::Copy,
        origin: EMPTY,
        state: RecordState::Ready,
        since: ChangeBase::Nothing,
        quota: None,
        object: None,
        label: None,
    };
    std::fs::write(at.join(format!("{other}.json")), serde_json::to_string(&record).unwrap()).unwrap();
    assert!(matches!(journal.get(other), Err(JournalError::Parse { .. })));
}

#[test]
fn a_damaged_record_hides_no_other_and_goes_with_its_tree() {
    let (dir, journal) = journal();
    let (other, path) = (Uid::from_bytes([8; 16]), dir.path().join("journal").join(format!("{UID}.json")));
    for uid in [UID, other] {
        journal.begin_create(uid, ProviderKind::Copy, EMPTY).unwrap();
    }
    let whole = std::fs::read(&path).unwrap();
    let mut damages = 0;
    let damage = (0..whole.len()).flat_map(|at| {
        let flipped = [&whole[..at], &[whole[at] ^ 0x80], &whole[at + 1..]].concat();
        [whole[..at].to_vec(), flipped, [&whole[..at], &vec![0; whole.len() - at][..]].concat()]
    });
    for text in damage {
        std::fs::write(&path, text).unwrap();
        let found = journal.read_and_clean().unwrap();
        assert_eq!((found.records.len(), found.damaged.len(), found.records[0].uid), (1, 1, other));
        assert!(journal.begin_create(UID, ProviderKind::Copy, EMPTY).unwrap_err().damage().is_some(), "never taken for a new one");
        assert!(journal.record_created(UID).is_err());
        damages += 1;
    }
    assert!(damages > 300, "only {damages}");
    journal.begin_destroy(UID).unwrap();
    journal.record_destroyed(UID).unwrap();
    assert!(!path.exists());
}

#[test]
fn what_a_fork_is_compared_with_is_known_when_its_parent_is_gone() {
    let (_dir, journal) = journal();
    let uid = |n| Uid::from_bytes([n; 16]);
    let make = |n, origin| {
        journal.begin_create(uid(n), ProviderKind::Btrfs, origin).unwrap();
        journal.record_created(uid(n)).unwrap();
        journal.get(uid(n)).unwrap().unwrap().since
    };
    let clone_of = |n| TreeOrigin::Clone { from: uid(n), access: crate::CloneAccess::ReadWrite };
    assert_eq!(make(1, EMPTY), ChangeBase::Nothing);
    assert_eq!(make(2, clone_of(1)), ChangeBase::Nothing, "a fork of a tree that began empty");
    journal.begin_seal(uid(1)).unwrap();
    journal.record_sealed(uid(1)).unwrap();
    assert_eq!(make(3, clone_of(1)), ChangeBase::Tree(uid(1)));
    assert_eq!(make(4, clone_of(3)), ChangeBase::Tree(uid(1)));
    journal.begin_destroy(uid(3)).unwrap();
    journal.record_destroyed(uid(3)).unwrap();
    assert_eq!(journal.get(uid(4)).unwrap().unwrap().since, ChangeBase::Tree(uid(1)));
    assert_eq!(make(5, clone_of(4)), ChangeBase::Tree(uid(1)), "a fork of a fork whose parent is gone");
    assert_eq!(make(6, clone_of(9)), ChangeBase::Unknown);
    let old = r#"{"uid":"07070707-0707-0707-0707-070707070707","provider":"Copy","making":{"Empty":{"owner":{"uid":0,"gid":0}}},"state":"Ready"}"#;
    let old = serde_json::from_str::<Record>(old).unwrap();
    assert_eq!((old.since, old.quota, old.object), (ChangeBase::Unknown, None, None), "written by an earlier version");
}

#[test]
fn the_quota_of_a_tree_is_recorded_before_it_is_set_and_outlives_every_state() {
    let (_dir, journal) = journal();
    let quota = |mib: u64| Some(Quota::new(mib << 20).unwrap());
    assert!(matches!(journal.begin_set_quota(UID, quota(1)), Err(JournalError::NotFound { .. })));
    journal.begin_create_for(UID, ProviderKind::Copy, EMPTY, RecordDetails { quota: quota(10), ..RecordDetails::default() }).unwrap();
    assert_eq!(journal.get(UID).unwrap().unwrap().quota, quota(10));
    journal.record_created(UID).unwrap();
    journal.begin_set_quota(UID, quota(20)).unwrap();
    journal.begin_seal(UID).unwrap();
    assert_eq!(journal.get(UID).unwrap().unwrap().quota, quota(20));
    journal.begin_set_quota(UID, None).unwrap();
    assert_eq!(journal.get(UID).unwrap().unwrap().quota, None);
}

#[test]
fn the_object_of_a_tree_stays_in_its_record() {
    let (dir, journal) = journal();
    let label = TreeLabel { object: "team/ws".into(), generation: Some("g".into()) };
    let details = RecordDetails { object: Some("team/ws".into()), label: Some(label.clone()), ..RecordDetails::default() };
    journal.begin_create_for(UID, ProviderKind::Copy, EMPTY, details).unwrap();
    journal.record_created(UID).unwrap();
    journal.begin_create(UID, ProviderKind::Copy, EMPTY).unwrap();
    journal.begin_destroy(UID).unwrap();
    assert_eq!(journal.get(UID).unwrap().unwrap().object.as_deref(), Some("team/ws"));
    let text = std::fs::read_to_string(dir.path().join("journal").join(format!("{UID}.json"))).unwrap();
    assert!(text.contains(r#""of":"team/ws""#) && text.contains(r#""making":"#), "the spelling on disk: {text}");
    // What people call it stays when the record may no longer be a reason to destroy the tree.
    journal.forget_object(UID).unwrap();
    let record = journal.get(UID).unwrap().unwrap();
    assert_eq!((record.object, record.label), (None, Some(label)));

    // Another writer is writing at this moment.
    let half = dir.path().join("journal").join(format!("{}.json.tmp", Uid::from_bytes([8; 16])));
    std::fs::write(&half, "{\"uid\":").unwrap();
    assert_eq!(journal.read().unwrap().records.len(), 1);
    assert!(half.exists());
}
