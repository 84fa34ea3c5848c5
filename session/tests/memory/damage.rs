//! Every byte cut, every byte changed, lines moved: the log loads what was complete, or says what is wrong, and never invents.

use yoi_session::{Damage, Error, disk::MemoryDisk};
use yoi_wire::entry::Entry;

use crate::bed::*;

/// Where each line begins, and the end.
fn starts(bytes: &[u8]) -> Vec<usize> {
    let newlines = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1);
    std::iter::once(0).chain(newlines).collect()
}

/// Loads damaged bytes: the entries, or the line that is wrong.
fn load(disk: &MemoryDisk, bytes: &[u8]) -> Result<Vec<Entry>, (u64, Damage)> {
    disk.set_bytes(&segment_path(), bytes);
    match open(disk) {
        Ok((_, replay)) => Ok(replay.entries),
        Err(Error::Damaged { line, what, file }) => {
            assert_eq!(file, segment_path());
            Err((line, what))
        }
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn the_last_sixteen_records_may_be_cut_at_every_byte() {
    let (disk, entries) = written(&[1, 2, 1, 3, 10, 1, 1, 4, 1, 1, 1, 2, 3, 1, 5, 1, 1, 1]);
    assert_eq!(entries.len(), 40);
    let whole = disk.bytes(&segment_path()).unwrap();
    let starts = starts(&whole);
    for cut in starts[24]..=whole.len() {
        let complete = starts.iter().rposition(|start| *start <= cut).unwrap();
        let mut bytes = whole[..cut].to_vec();
        // Every other one in a segment with zeros ahead.
        if cut % 2 == 0 {
            bytes.resize(whole.len() + 600, 0);
        }
        disk.set_bytes(&segment_path(), &bytes);
        let (mut log, replay) = open(&disk).unwrap();
        assert_eq!(replay.entries, entries[..complete], "cut at {cut}");
        assert_eq!(replay.cut_bytes(), (cut - starts[complete]) as u64, "cut at {cut}");
        if cut % 5 == 0 || cut + 1 == whole.len() {
            let new = log.append(&[notice(99)], at(), &mut counter()).unwrap();
            drop(log);
            let (_, replay) = open(&disk).unwrap();
            assert_eq!(replay.cut, None);
            assert_eq!(replay.entries, [&entries[..complete], &new].concat(), "cut at {cut}");
        }
    }
}

#[test]
fn every_changed_byte_is_found_in_its_line() {
    let (disk, entries) = written(&[1, 1, 3, 1, 5, 1, 2, 1, 1, 4]);
    assert_eq!(entries.len(), 20);
    let whole = disk.bytes(&segment_path()).unwrap();
    let starts = starts(&whole);
    for at in 0..whole.len() {
        let line = starts.iter().rposition(|start| *start <= at).unwrap() as u64 + 1;
        // One flip for each byte, all eight bits and some more over neighbours.
        let flips = [1 << (at % 8), 0x20, 0xff, whole[at] ^ b'\n'];
        for flip in &flips[..if at % 16 == 0 { 4 } else { 1 }] {
            if *flip == 0 {
                continue;
            }
            let mut bytes = whole.clone();
            bytes[at] ^= flip;
            match load(&disk, &bytes) {
                Err((found, _)) => assert_eq!(found, line, "byte {at} flipped by {flip:#x}"),
                Ok(_) => panic!("byte {at} flipped by {flip:#x} went unnoticed"),
            }
        }
    }
}

#[test]
fn a_zeroed_byte_is_damage_but_for_the_last_newline() {
    let (disk, entries) = written(&[1, 1, 3, 1]);
    let whole = disk.bytes(&segment_path()).unwrap();
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] = 0;
        match load(&disk, &bytes) {
            Ok(loaded) => {
                // The commit mark never came; or the byte is the last of a sector and the first of the last append.
                let of_last_append = at >= starts(&whole)[5] && at % 512 == 511;
                assert!(at + 1 == whole.len() || of_last_append, "byte {at}");
                assert_eq!(loaded, entries[..5]);
            }
            Err((line, _)) => assert_eq!(line, whole[..at].iter().filter(|byte| **byte == b'\n').count() as u64 + 1),
        }
    }
}

#[test]
fn lines_cannot_be_moved_doubled_dropped_or_joined() {
    let (disk, _) = written(&[1, 1, 3, 1, 1]);
    let whole = disk.bytes(&segment_path()).unwrap();
    let lines: Vec<&[u8]> = whole.split_inclusive(|byte| *byte == b'\n').collect();
    let mut found = 0;
    for a in 0..lines.len() {
        let mut without = lines.clone();
        without.remove(a);
        if a + 1 < lines.len() {
            assert_eq!(load(&disk, &without.concat()).unwrap_err().0, a as u64 + 1);
        }
        for b in 0..=lines.len() {
            let mut doubled = lines.clone();
            doubled.insert(b, lines[a]);
            assert!(matches!(load(&disk, &doubled.concat()), Err((_, Damage::Sequence { .. }))));
            if b < lines.len() && b != a {
                let mut swapped = lines.clone();
                swapped.swap(a, b);
                assert_eq!(load(&disk, &swapped.concat()).unwrap_err().0, a.min(b) as u64 + 1);
                let mut joined = lines.clone();
                let (front, back) = (&lines[a][..lines[a].len() / 2], &lines[b][lines[b].len() / 2..]);
                let both = [front, back].concat();
                joined[a] = &both;
                assert_eq!(load(&disk, &joined.concat()).unwrap_err().0, a as u64 + 1);
            }
            found += 1;
        }
    }
    assert!(found > 50);
    for stranger in [b"\n".as_slice(), b"{}\n", b"\0\n", b"\xff\xfe\n", b"{\"crc\":\"00000000\",}\n"] {
        let mut bytes = whole.clone();
        bytes.extend_from_slice(stranger);
        assert_eq!(load(&disk, &bytes).unwrap_err().0, 8, "{stranger:?}");
    }
}

#[test]
fn a_run_generation_never_goes_back() {
    let disk = disk();
    let bytes = [line(1, 1, "Notice", false), line(2, 1, "Notice", false), line(3, 0, "Notice", false)].concat();
    assert_eq!(load(&disk, &bytes).unwrap_err(), (3, Damage::Generation { before: 1, found: 0 }));
    let bytes = [line(1, 1, "Notice", false), line(2, 7, "Notice", false)].concat();
    disk.set_bytes(&segment_path(), &bytes);
    assert!(matches!(open(&disk), Err(Error::LowerGeneration { ours: 1, seen: 7 })));
    assert_eq!(disk.bytes(&segment_path()).unwrap(), bytes);
}

#[test]
fn sectors_missing_from_the_last_append_are_torn_and_from_an_earlier_one_damage() {
    let (disk, entries) = written(&[2, 20, 2, 20]);
    let whole = disk.bytes(&segment_path()).unwrap();
    let starts = starts(&whole);
    let (early, last) = (starts[2]..starts[22], starts[24]..whole.len());
    for sector in 0..=whole.len() / 512 {
        for (reach, of) in [(512, &last), (4096, &last), (512, &early), (4096, &early)] {
            let (from, to) = ((sector * 512).max(of.start), (sector * 512 + reach).min(of.end));
            if from >= to {
                continue;
            }
            let mut bytes = whole.clone();
            bytes[from..to].fill(0);
            let first = starts.iter().rposition(|start| *start <= from).unwrap();
            match load(&disk, &bytes) {
                Ok(loaded) => {
                    assert_eq!(of, &last, "an acknowledged append was dropped: {from}..{to}");
                    assert_eq!(loaded, entries[..first]);
                }
                Err((line, _)) => {
                    assert_eq!(of, &early, "an unfinished append kept the log from opening: {from}..{to}");
                    assert_eq!(line, first as u64 + 1);
                }
            }
        }
    }
}
