//! Damages the chain of a session: segments and links are removed, doubled and altered, also with checksums that fit. Opening names both
//! files and changes nothing.

use std::{collections::BTreeMap, path::PathBuf};

use serde_json::json;
use uuid::Uuid;
use yoi_session::{
    ChainDamage, Damage, Error, Token, current,
    disk::{Disk, MemoryDisk},
};
use yoi_wire::entry::SegmentReason;

use crate::{chain_fixture::*, fixture::*};

fn files(disk: &MemoryDisk) -> BTreeMap<PathBuf, Vec<u8>> {
    let dir = path_of(SEGMENT).parent().unwrap().to_owned();
    let paths = disk.list(&dir).unwrap().into_iter().map(|name| dir.join(name));
    paths.filter_map(|path| disk.bytes(&path).map(|bytes| (path, bytes))).collect()
}

/// A session of four closed segments.
fn session() -> Session {
    let mut session = Session::of(4, 2);
    session.log.take().unwrap().close().unwrap();
    session
}

fn assert_damaged(session: &mut Session, file: PathBuf, other: PathBuf, what: &ChainDamage) {
    let before = files(&session.disk);
    match session.reopen().map(drop) {
        Err(Error::ChainDamaged { file: f, other: o, what: w }) => assert_eq!((f, o, &w), (file, other, what)),
        other => panic!("{other:?}, not {what:?}"),
    }
    assert_eq!(files(&session.disk), before, "a damaged session is left as it is");
}

/// Replaces the first line of the `n`th segment by one with another link and the checksum that fits it.
fn alter_head(session: &Session, n: usize, change: impl FnOnce(&mut serde_json::Value)) {
    let bytes = session.bytes(n);
    let (head, rest) = split_first_line(&bytes);
    session.disk.set_bytes(&session.path(n), &[altered(head, |entry| change(&mut entry["body"])), rest.to_vec()].concat());
}

fn without_last_line(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes[..bytes.len() - 1].iter().rposition(|byte| *byte == b'\n').unwrap() + 1]
}

#[test]
fn a_missing_segment_is_named_together_with_the_file_that_is_linked_to_it() {
    for n in 0..4 {
        let mut session = session();
        session.disk.remove_file(&session.path(n)).unwrap();
        let file = if n == 3 { PathBuf::from("/volume/current.json") } else { session.path(n + 1) };
        let other = session.path(n);
        assert_damaged(&mut session, file, other, &ChainDamage::Missing);
    }
}

#[test]
fn a_doubled_segment_is_named_together_with_the_one_in_its_place() {
    for n in 0..4 {
        for name in [Uuid::from_u128(1), Uuid::max()] {
            let mut session = session();
            let copy = session.add(name, &session.bytes(n));
            let other = session.path(n);
            assert_damaged(&mut session, copy, other, &ChainDamage::Doubled { number: n as u64 + 1 });
        }
    }
}

#[test]
fn an_altered_link_is_found_although_its_checksum_fits() {
    let seq = |session: &Session| session.entries_of(2).last().unwrap().seq;
    let mut session = self::session();
    let (last, before) = (session.path(3), session.path(2));
    alter_head(&session, 3, |head| head["previous"]["digest"] = json!("00"));
    let what = ChainDamage::Digest { seq: seq(&session) };
    assert_damaged(&mut session, last.clone(), before.clone(), &what);

    for n in 1..4 {
        let mut session = self::session();
        alter_head(&session, n, |head| head["previous"]["lastSeq"] = json!(2));
        let (file, other) = (session.path(n), session.path(n - 1));
        assert_damaged(&mut session, file, other, &ChainDamage::Head(Damage::Head));

        let mut session = self::session();
        alter_head(&session, n, |head| head["previous"]["segment"] = json!(Uuid::from_u128(5)));
        let (file, other) = (session.path(n), path_of(Uuid::from_u128(5)));
        assert_damaged(&mut session, file, other, &ChainDamage::Missing);
    }
    // Segment 2 skipped.
    let mut session = self::session();
    let first = session.segments[0];
    alter_head(&session, 2, |head| head["previous"]["segment"] = json!(first));
    let (file, other) = (session.path(2), session.path(0));
    assert_damaged(&mut session, file, other, &ChainDamage::Number { expected: 2, found: 1 });
    // Another number, of the last segment and of one before it.
    let mut session = self::session();
    alter_head(&session, 3, |head| head["number"] = json!(5));
    assert_damaged(&mut session, last, before, &ChainDamage::Number { expected: 4, found: 3 });
    let mut session = self::session();
    alter_head(&session, 1, |head| head["number"] = json!(7));
    let (file, other) = (session.path(2), session.path(1));
    assert_damaged(&mut session, file, other, &ChainDamage::Number { expected: 2, found: 7 });
}

#[test]
fn the_segment_before_the_last_one_has_to_end_as_it_did() {
    let mut session = session();
    let (file, other, whole) = (session.path(3), session.path(2), session.bytes(2));
    let seq = session.entries_of(2).last().unwrap().seq;
    let kept = without_last_line(&whole);
    session.disk.set_bytes(&other, kept);
    assert_damaged(&mut session, file.clone(), other.clone(), &ChainDamage::LastEntry { seq });
    let line = altered(&whole[kept.len()..], |entry| entry["body"]["message"] = json!("another"));
    session.disk.set_bytes(&other, &[kept, &line].concat());
    assert_damaged(&mut session, file, other.clone(), &ChainDamage::Digest { seq });
    // Zeros ahead and foreign lines after it are no damage.
    for tail in [vec![0; 5000], b"not ours\n".to_vec(), [vec![0; 700], b"not ours\nnor this".to_vec()].concat()] {
        session.disk.set_bytes(&other, &[whole.clone(), tail].concat());
        session.reopen().unwrap();
    }
}

#[test]
fn a_damaged_head_is_named_together_with_the_segment_that_follows() {
    for n in 1..3 {
        let mut session = session();
        let (file, other, mut bytes) = (session.path(n + 1), session.path(n), session.bytes(n));
        bytes[40] ^= 1;
        session.disk.set_bytes(&other, &bytes);
        assert_damaged(&mut session, file.clone(), other.clone(), &ChainDamage::Head(Damage::Checksum));
        session.disk.set_bytes(&other, &[]);
        assert_damaged(&mut session, file, other, &ChainDamage::Head(Damage::Unfinished));
    }
    // The last one is scanned, so its line is named.
    let mut session = session();
    let mut bytes = session.bytes(3);
    bytes[40] ^= 1;
    session.disk.set_bytes(&session.path(3), &bytes);
    let error = session.reopen().unwrap_err();
    assert!(matches!(&error, Error::Damaged { file, line: 1, what: Damage::Checksum } if *file == session.path(3)), "{error}");
    session.disk.set_bytes(&session.path(3), &[]);
    assert!(matches!(session.reopen(), Err(Error::ChainDamaged { .. })), "an emptied segment is no new session");
}

#[test]
fn a_pointer_to_an_older_segment_is_damage_and_nothing_is_removed() {
    for n in 0..3 {
        let mut session = session();
        current::write(&session.lock, SESSION, session.segments[n]).unwrap();
        let (file, other) = (session.path(n + 1), session.path(n));
        assert_damaged(&mut session, file, other, &ChainDamage::Unlinked);
    }
}

#[test]
fn only_what_an_unfinished_rotation_left_is_removed() {
    let mut session = session();
    session.reopen().unwrap();
    session.rotate(SegmentReason::Full).unwrap();
    let (head_only, last) = (session.bytes(4), session.segments[3]);
    let next = session.path(4);
    session.append(&[notice(1)]);
    let with_entry = session.bytes(4);
    let first_line = split_first_line(&head_only).0.len();
    // The rename of the pointer did not happen.
    current::write(&session.lock, SESSION, last).unwrap();
    drop(session.log.take());
    let hole = [vec![0; 512], head_only[512..].to_vec()].concat();
    for left in [&head_only[..], &head_only[..first_line], &head_only[..first_line + 70], &head_only[..30], &[], &[0; 900], &hole] {
        session.disk.set_bytes(&next, left);
        session.reopen().unwrap();
        assert!(!files(&session.disk).contains_key(&next), "{} bytes", left.len());
        session.add(session.segments[4], &[]);
    }
    session.disk.set_bytes(&next, &with_entry);
    let other = session.path(3);
    assert_damaged(&mut session, next.clone(), other.clone(), &ChainDamage::Unlinked);
    let mut torn = head_only.clone();
    torn[first_line + 30] ^= 1;
    session.disk.set_bytes(&next, &torn);
    assert!(matches!(session.reopen(), Err(Error::Damaged { file, line: 2, .. }) if file == next));
    session.disk.set_bytes(&next, b"no line of a log\n");
    assert_damaged(&mut session, other, next, &ChainDamage::Head(Damage::Frame));
}

#[test]
fn a_reader_returns_what_stands_before_a_damaged_link_and_then_names_both_files() {
    for cut in [true, false] {
        let mut session = session();
        let (file, other, whole) = (session.path(1), session.path(0), session.bytes(0));
        let kept = without_last_line(&whole);
        let line = altered(&whole[kept.len()..], |entry| entry["body"]["message"] = json!("another"));
        session.disk.set_bytes(&other, &if cut { kept.to_vec() } else { [kept, &line].concat() });
        session.reopen().unwrap();
        let mut reader = session.log().reader();
        let (seen, token) = reader.read(Token::Start, 99).unwrap();
        let seq = session.entries_of(0).last().unwrap().seq;
        assert_eq!(seen.len() as u64, seq - 1);
        match reader.read(token, 99) {
            Err(Error::ChainDamaged { file: f, other: o, what }) => {
                assert_eq!((f, o), (file, other));
                assert_eq!(what, if cut { ChainDamage::LastEntry { seq } } else { ChainDamage::Digest { seq } });
            }
            other => panic!("{other:?}"),
        }
    }
}
