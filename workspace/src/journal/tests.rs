use super::*;
use crate::Owner;

const UID: Uid = Uid::from_bytes([9; 16]);
const EMPTY: Making = Making::Empty { owner: Owner { uid: 1000, gid: 1000 } };

fn journal() -> (tempfile::TempDir, Journal) {
    let dir = tempfile::tempdir().unwrap();
    let journal = Journal::open(&dir.path().join("journal")).unwrap();
    (dir, journal)
}

#[test]
fn a_life_is_told_forwards_only() {
    let (_dir, journal) = journal();
    assert_eq!(journal.begin_create(UID, ProviderKind::Copy, EMPTY).unwrap(), State::Creating);
    assert!(matches!(journal.begin_seal(UID), Err(JournalError::Transition { from: State::Creating, .. })));
    for _ in 0..2 {
        journal.created(UID).unwrap();
    }
    assert_eq!(journal.begin_create(UID, ProviderKind::Copy, EMPTY).unwrap(), State::Ready);
    let other = journal.begin_create(UID, ProviderKind::Btrfs, EMPTY);
    assert!(matches!(other, Err(JournalError::Conflict { .. })));
    journal.begin_seal(UID).unwrap();
    journal.sealed(UID).unwrap();
    // Late echoes change nothing.
    journal.created(UID).unwrap();
    journal.begin_seal(UID).unwrap();
    assert_eq!(journal.get(UID).unwrap().unwrap().state, State::Sealed);
    assert!(matches!(journal.destroyed(UID), Err(JournalError::Transition { .. })));
    journal.begin_destroy(UID).unwrap();
    assert!(matches!(journal.begin_create(UID, ProviderKind::Copy, EMPTY), Err(JournalError::Transition { .. })));
    assert!(matches!(journal.created(UID), Err(JournalError::Transition { .. })));
    for _ in 0..2 {
        journal.destroyed(UID).unwrap();
        journal.begin_destroy(UID).unwrap();
    }
    assert_eq!(journal.all().unwrap(), []);
    assert!(matches!(journal.created(UID), Err(JournalError::NotFound { .. })));
}

#[test]
fn half_records_are_swept_and_damaged_ones_are_named() {
    let (dir, journal) = journal();
    let at = dir.path().join("journal");
    journal.begin_create(UID, ProviderKind::Copy, EMPTY).unwrap();
    std::fs::write(at.join(format!("{}.json.tmp", Uid::from_bytes([8; 16]))), "{\"uid\":").unwrap();
    std::fs::write(at.join("notes.txt"), "a stranger's").unwrap();
    assert_eq!(journal.all().unwrap().len(), 1);
    let mut names: Vec<_> = std::fs::read_dir(&at).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names, [format!("{UID}.json"), "notes.txt".to_owned()]);
    let reopened = Journal::open(&at).unwrap();
    assert_eq!(reopened.all().unwrap(), journal.all().unwrap());

    std::fs::write(at.join(format!("{UID}.json")), "{}").unwrap();
    let error = journal.all().unwrap_err();
    assert!(error.to_string().contains(&UID.to_string()), "{error}");
    let other = Uid::from_bytes([8; 16]);
    let record = Record { uid: UID, provider: ProviderKind::Copy, making: EMPTY, state: State::Ready };
    std::fs::write(at.join(format!("{other}.json")), serde_json::to_string(&record).unwrap()).unwrap();
    assert!(matches!(journal.get(other), Err(JournalError::Parse { .. })));
}
