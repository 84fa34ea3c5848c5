use std::{path::Path, sync::Arc};

use uuid::Uuid;
use yoi_session::{
    Damage, Error, Log, Preallocate, Reader, Token,
    disk::{Disk, DiskFault, MemoryDisk},
};
use yoi_wire::entry::Entry;

use crate::fixture::*;

fn outside(disk: &MemoryDisk) -> Reader {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    Reader::new(disk, Path::new(ROOT), SESSION)
}

fn all(reader: &mut Reader, mut token: Token, max: usize) -> Vec<Entry> {
    let mut entries = Vec::new();
    loop {
        let (more, next) = reader.read(token, max).unwrap();
        if more.is_empty() {
            assert_eq!(next, token);
            return entries;
        }
        assert!(more.len() <= max);
        entries.extend(more.into_iter().map(|raw| raw.entry));
        token = next;
    }
}

#[test]
fn a_reader_goes_on_from_every_token_also_as_text_and_also_a_new_one() {
    let (disk, entries) = written(&[1, 3, 2, 5, 1]);
    let mut reader = outside(&disk);
    for max in [1, 2, 5, 99] {
        assert_eq!(all(&mut reader, Token::Start, max), entries);
    }
    for raw in outside(&disk).read(Token::Start, 99).unwrap().0 {
        let token: Token = raw.token.to_string().parse().unwrap();
        let rest = &entries[usize::try_from(raw.entry.seq).unwrap()..];
        assert_eq!(all(&mut reader, token, 4), rest);
        assert_eq!(all(&mut outside(&disk), token, 4), rest);
        assert_eq!(serde_json::from_str::<Token>(&serde_json::to_string(&token).unwrap()).unwrap(), token);
    }
    assert_eq!("start".parse::<Token>().unwrap(), Token::Start);
    for bad in ["", "start.", "5", "x.5", &format!("{SEGMENT}.x")] {
        assert!(bad.parse::<Token>().is_err());
    }
    let strange = Token::After { segment: Uuid::from_u128(5), seq: 1 };
    assert!(matches!(reader.read(strange, 1), Err(Error::UnknownToken { .. })));
}

#[test]
fn the_last_entries_are_found_from_the_end_and_a_read_is_bounded_by_bytes() {
    let (disk, entries) = written(&[1, 3, 2, 5, 1]);
    let tail = |reader: &mut Reader, after, count, up_to| {
        let token = reader.tail(after, count, up_to).unwrap();
        all(reader, token, 3)
    };
    let (mut torn, tokens) = (disk.bytes(&segment_path()).unwrap(), outside(&disk).read(Token::Start, 99).unwrap().0);
    torn.extend(b"{\"crc\":\"");
    for bytes in [disk.bytes(&segment_path()).unwrap(), torn] {
        disk.set_bytes(&segment_path(), &bytes);
        for count in (0..=entries.len() + 1).chain([usize::MAX]) {
            let from = entries.len().saturating_sub(count);
            assert_eq!(tail(&mut outside(&disk), Token::Start, count, None), entries[from..], "{count}");
            let earlier = entries.len() - 2;
            assert_eq!(
                tail(&mut outside(&disk), Token::Start, count, Some(earlier as u64)),
                entries[earlier.saturating_sub(count)..],
                "{count}"
            );
            assert_eq!(tail(&mut outside(&disk), tokens[5].token, count, None), entries[from.max(6)..], "{count}");
        }
    }
    let strange = Token::After { segment: Uuid::from_u128(5), seq: 1 };
    assert!(matches!(outside(&disk).tail(strange, 1, None), Err(Error::UnknownToken { .. })));
    for max_bytes in [1, 300, 2000] {
        let (some, _) = outside(&disk).read_bytes(Token::Start, 99, max_bytes).unwrap();
        let line = |entry: &Entry| serde_json::to_string(entry).unwrap().len() as u64;
        let but_the_last: u64 = some[..some.len() - 1].iter().map(|stored| line(&stored.entry)).sum();
        assert!(!some.is_empty() && but_the_last < max_bytes, "{max_bytes}: {}", some.len());
    }
    assert_eq!(outside(&disk).read_bytes(Token::Start, 99, 1).unwrap().0.len(), 1);
}

#[test]
fn reading_on_does_not_read_from_the_start() {
    let (disk, _) = written(&[40]);
    let (mut log, _) = open(&disk).unwrap();
    let mut reader = log.reader();
    let (_, token) = reader.read(Token::Start, 99).unwrap();
    // A reader that looks at the start again finds it damaged.
    let mut bytes = disk.bytes(&segment_path()).unwrap();
    bytes[30] ^= 1;
    let path = segment_path();
    let file = disk.open(&path, yoi_session::disk::OpenMode::Write).unwrap();
    file.write_at(&bytes, 0).unwrap();
    log.append(&[notice(1)], at(), &mut counter()).unwrap();
    assert_eq!(reader.read(token, 9).unwrap().0.len(), 1);
    assert!(reader.read(Token::Start, 9).is_err());
}

#[test]
fn a_reader_beside_the_log_sees_what_is_acknowledged_and_nothing_else() {
    let disk = disk();
    let lock = take(&disk, 1).unwrap();
    let (mut log, _) = Log::open(&lock, SESSION, SMALL).unwrap();
    let (mut ids, mut reader, mut acked, mut token) = (counter(), log.reader(), Vec::new(), Token::Start);
    for n in 0..20 {
        acked.extend(log.append(&vec![notice(n); n % 4 + 1], at(), &mut ids).unwrap());
        token = reader.read(token, 3).unwrap().1;
    }
    // The sync fails and the cut after it too, so the lines stay in the file.
    disk.fail(4, DiskFault::Eio, true);
    log.append(&[notice(1)], at(), &mut ids).unwrap_err();
    disk.clear_fault();
    assert_eq!(all(&mut outside(&disk), Token::Start, 9).len(), acked.len() + 1);
    assert_eq!(all(&mut reader, Token::Start, 9), acked);
    drop(log);
    // The log opens again, and the same reader goes on.
    let (mut log, replay) = Log::open(&lock, SESSION, SMALL).unwrap();
    assert_eq!(replay.entries.len(), acked.len() + 1);
    assert_eq!(all(&mut reader, Token::Start, 9), replay.entries);
    acked = replay.entries;
    acked.extend(log.append(&[notice(2)], at(), &mut ids).unwrap());
    assert_eq!(all(&mut reader, Token::Start, 9), acked);
    assert_eq!(all(&mut reader, token, 9), acked[acked.iter().position(|e| token == after(e)).unwrap() + 1..]);
}

fn after(entry: &Entry) -> Token {
    Token::After { segment: SEGMENT, seq: entry.seq }
}

#[test]
fn entries_before_damage_are_read_and_then_the_damage_is_an_error() {
    let (disk, entries) = written(&[1; 6]);
    let mut bytes = disk.bytes(&segment_path()).unwrap();
    let third = bytes.windows(2).position(|two| two == b"n2").unwrap();
    bytes[third] = b'm';
    disk.set_bytes(&segment_path(), &bytes);
    let mut reader = outside(&disk);
    let (seen, token) = reader.read(Token::Start, 99).unwrap();
    assert_eq!(seen.into_iter().map(|raw| raw.entry).collect::<Vec<_>>(), entries[..2]);
    assert!(matches!(reader.read(token, 99), Err(Error::Damaged { line: 3, what: Damage::Checksum, .. })));
}

#[test]
fn an_unfinished_line_is_not_seen() {
    let (disk, entries) = written(&[1; 3]);
    let whole = disk.bytes(&segment_path()).unwrap();
    disk.set_bytes(&segment_path(), &[&whole[..whole.len() - 1], &[0; 100]].concat());
    assert_eq!(all(&mut outside(&disk), Token::Start, 9), entries[..2]);
}

#[test]
fn a_session_of_several_segments_is_one_sequence() {
    let (disk, entries) = written(&[1, 2, 3]);
    let whole = disk.bytes(&segment_path()).unwrap();
    let second = Uuid::from_u128(SEGMENT.as_u128() + 5);
    let path = segment_path().with_file_name(format!("{second}.jsonl"));
    // The last append is in a second segment, as after a compaction.
    let split = whole.iter().enumerate().filter(|(_, byte)| **byte == b'\n').nth(2).unwrap().0 + 1;
    disk.open(&path, yoi_session::disk::OpenMode::CreateNew).unwrap();
    disk.set_bytes(&path, &whole[split..]);
    disk.set_bytes(&segment_path(), &whole[..split]);
    for max in [1, 2, 99] {
        assert_eq!(all(&mut outside(&disk), Token::Start, max), entries);
        assert_eq!(all(&mut outside(&disk), after(&entries[1]), max), entries[2..]);
        assert_eq!(all(&mut outside(&disk), Token::After { segment: second, seq: 5 }, max), entries[5..]);
    }
    let (mut log, replay) = open(&disk).unwrap();
    assert_eq!((replay.entries, log.segment()), (entries.clone(), second));
    log.append(&[notice(9)], at(), &mut counter()).unwrap();
    assert_eq!(all(&mut log.reader(), Token::Start, 99).len(), 7);
    drop(log);
    disk.set_bytes(&segment_path(), &whole[..split - 1]);
    assert!(matches!(open(&disk), Err(Error::Damaged { line: 3, what: Damage::Unfinished, .. })));
}

#[test]
fn a_missing_session_is_an_error() {
    let disk = MemoryDisk::new(Path::new(ROOT));
    assert!(matches!(outside(&disk).read(Token::Start, 1), Err(Error::NoSession { .. })));
    assert!(matches!(Log::open(&take(&disk, 1).unwrap(), SESSION, Preallocate::Off), Err(Error::NoSession { .. })));
}
