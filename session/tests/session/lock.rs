//! Tests of the lock and of `current.json`.

use std::{path::Path, sync::Arc};

use uuid::Uuid;
use yoi_session::{
    Damage, Error, ErrorReason, Lock, Log, Preallocate,
    current::{self, Pointer},
    disk::{DiskFault, MemoryDisk, Retained},
};

use crate::fixture::*;

fn new() -> MemoryDisk {
    MemoryDisk::new(Path::new(ROOT))
}

#[test]
fn b10_f6_a_second_writer_is_refused_and_told_who_holds_the_lock() {
    let disk = new();
    let lock = take(&disk, 3).unwrap();
    let error = take(&disk, 4).unwrap_err();
    assert_eq!(error.to_string(), "failed to take the lock /volume/lock: it is held by Pod pod-3 of run generation 3");
    assert_eq!(error.reason(), ErrorReason::SessionLocked);
    drop(lock);
    take(&disk, 4).unwrap();
}

#[test]
fn f6_an_earlier_pod_cannot_take_the_lock_again() {
    let disk = new();
    drop(take(&disk, 3).unwrap());
    drop(take(&disk, 5).unwrap());
    disk.crash(Retained::Synced);
    let error = take(&disk, 4).unwrap_err();
    assert!(matches!(error, Error::LowerGeneration { ours: 4, seen: 5 }));
    // The container starts again in the same Pod.
    drop(take(&disk, 5).unwrap());
    assert_eq!(disk.bytes(Path::new("/volume/lock")).unwrap().split(|byte| *byte == b'\n').count(), 3, "one line a Pod");
}

#[test]
fn a_holder_that_died_while_it_recorded_itself_does_not_block_the_next() {
    let disk = new();
    drop(take(&disk, 3).unwrap());
    let path = Path::new("/volume/lock");
    let mut bytes = disk.bytes(path).unwrap();
    bytes.extend_from_slice(b"{\"crc\":\"00");
    disk.set_bytes(path, &bytes);
    drop(take(&disk, 4).unwrap());
    drop(take(&disk, 4).unwrap());
    let mut bytes = disk.bytes(path).unwrap();
    bytes[20] ^= 1;
    disk.set_bytes(path, &bytes);
    assert!(matches!(take(&disk, 9), Err(Error::Damaged { line: 1, what: Damage::Checksum, .. })));
}

#[test]
fn a_lock_that_failed_is_not_held() {
    for nth in 1.. {
        let disk = new();
        disk.fail(nth, DiskFault::Eio, false);
        let taken = take(&disk, 1);
        if disk.operations().len() < nth {
            assert!(nth > 5);
            return;
        }
        assert!(taken.is_err());
        take(&disk, 1).unwrap();
    }
}

#[test]
fn a_session_is_created_once_and_opened_once_at_a_time() {
    let disk = new();
    let lock = take(&disk, 1).unwrap();
    assert!(matches!(Log::open(&lock, SESSION, Preallocate::Off), Err(Error::NoSession { .. })));
    let log = Log::create(&lock, SESSION, SEGMENT, Preallocate::Off).unwrap();
    assert!(matches!(Log::open(&lock, SESSION, Preallocate::Off), Err(Error::AlreadyOpen { .. })));
    drop(log);
    assert!(matches!(Log::create(&lock, SESSION, Uuid::from_u128(9), Preallocate::Off), Err(Error::SessionExists { .. })));
    let (mut log, replay) = Log::open(&lock, SESSION, Preallocate::Off).unwrap();
    assert_eq!((replay.state.last_seq, replay.entries), (0, Vec::new()));
    assert_eq!(log.append(&[notice(1)], at(), &mut counter()).unwrap()[0].seq, 1);
    drop(lock);
    assert!(matches!(take(&disk, 1), Err(Error::Locked { .. })), "an open log keeps the lock");
}

#[test]
fn the_current_session_is_the_old_one_or_the_new_one() {
    let (old, new_one) = (Uuid::from_u128(1), Uuid::from_u128(2));
    let (old_segment, new_segment) = (Uuid::from_u128(3), Uuid::from_u128(4));
    for retained in [Retained::Synced, Retained::Written].into_iter().chain((0..20).map(|seed| Retained::Random { seed })) {
        for nth in 1.. {
            let disk = new();
            let lock = take(&disk, 1).unwrap();
            assert_eq!(current::read(&disk, Path::new(ROOT)).unwrap(), None);
            current::write(&lock, old, old_segment).unwrap();
            let before = disk.operations().len();
            disk.fail(nth, DiskFault::Eio, true);
            let wrote = current::write(&lock, new_one, new_segment);
            let done = disk.operations().len() < before + nth;
            disk.crash(retained);
            let Pointer { session, segment } = current::pointer(&disk, Path::new(ROOT)).unwrap().unwrap();
            let (is_new, is_old) = ((session, segment) == (new_one, Some(new_segment)), (session, segment) == (old, Some(old_segment)));
            assert!(is_new || (is_old && wrote.is_err()), "{retained:?} {nth}");
            if done {
                break;
            }
        }
    }
}

#[test]
fn a_damaged_name_of_the_session_is_an_error() {
    let disk = new();
    let lock: Arc<Lock> = take(&disk, 1).unwrap();
    current::write(&lock, SESSION, SEGMENT).unwrap();
    let path = Path::new("/volume/current.json");
    let whole = disk.bytes(path).unwrap();
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        disk.set_bytes(path, &bytes);
        assert!(matches!(current::read(&disk, Path::new(ROOT)), Err(Error::Damaged { line: 1, .. })), "byte {at}");
    }
}
