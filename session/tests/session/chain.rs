//! A session that goes on in several segments: order, readers, foreign appends.

use std::{path::Path, sync::Arc};

use serde_json::json;
use uuid::Uuid;
use yoi_session::{
    Error, ErrorReason, Log, MAX_LINE, Preallocate, Reader, Token, current,
    disk::{Disk, DiskFault},
    fold::{self, MAX_DELIVERED, OpenCall},
};
use yoi_wire::entry::{Body, Carried, CarriedTask, Entry, Extension, InputFrom, SegmentReason, ToolCall};
use yoi_wire::hub::TaskState;

use crate::{chain_fixture::*, fixture::*};

fn outside(session: &Session) -> Reader {
    let disk: Arc<dyn Disk> = Arc::new(session.disk.clone());
    Reader::new(disk, Path::new(ROOT), SESSION)
}

fn all(reader: &mut Reader, mut token: Token, max: usize) -> Vec<Entry> {
    let mut entries = Vec::new();
    loop {
        let (more, next) = reader.read(token, max).unwrap();
        if more.is_empty() {
            return entries;
        }
        entries.extend(more.into_iter().map(|stored| stored.entry));
        token = next;
    }
}

#[test]
fn the_last_entries_of_a_long_session_are_found_without_reading_what_stands_before_them() {
    let mut session = Session::of(4, 30);
    let total = session.entries.len();
    for count in [0, 1, 7, 31, 40, total, total + 1] {
        let mut reader = outside(&session);
        let before = session.disk.operations().len();
        let token = reader.tail(Token::Start, count, None).unwrap();
        let (some, _) = reader.read_bytes(token, 5, u64::MAX).unwrap();
        let operations = session.disk.operations();
        let from = total.saturating_sub(count);
        let expected: Vec<Entry> = session.entries[from..].iter().take(5).cloned().collect();
        assert_eq!(some.into_iter().map(|stored| stored.entry).collect::<Vec<_>>(), expected, "{count}");
        let opened = |n: usize| operations[before..].iter().filter(|(name, path)| *name == "open" && *path == session.path(n)).count();
        // Of an earlier segment no more than its head is read, by which the chain is followed.
        assert!(count > 31 || (0..3).all(|n| opened(n) <= 1), "{count}: {:?}", (0..4).map(opened).collect::<Vec<_>>());
        assert_eq!(all(&mut session.log().reader(), token, 9), session.entries[from..]);
    }
}

/// A line of a writer that goes on from the same state.
fn foreign_line(seq: u64) -> Vec<u8> {
    line(seq, 1, "Notice", false)
}

#[test]
fn opening_reads_the_last_segment_alone_and_knows_all_messages() {
    let mut session = Session::of(3, 4);
    let replay = session.reopen().unwrap();
    assert_eq!(replay.entries, session.entries_of(2));
    assert_eq!(replay.state, fold::fold(&session.entries), "the last segment alone gives the state of the whole session");
    assert_eq!(replay.state.delivered.to_map().into_keys().collect::<Vec<_>>(), ["m0", "m1", "m2"]);
    assert_eq!(replay.state.last_seq, session.entries.len() as u64);
    assert_eq!(session.log().segment(), session.segments[2]);
    assert_eq!(session.log().segment_bytes(), session.bytes(2).len() as u64);
    // The first of three segments may even be unreadable but for its first line.
    let whole = session.bytes(0);
    session.disk.set_bytes(&session.path(0), split_first_line(&whole).0);
    session.reopen().unwrap();
    session.append(&[notice(99)]);
    assert_eq!(session.entries.last().unwrap().seq, session.entries.len() as u64);
}

#[test]
fn a_clock_an_hour_back_changes_no_order() {
    let hour = 3_600_000_u128 << 80;
    let (mut ids, mut back) = (counter(), 0);
    // Each id is an hour older than the one before.
    let mut session = Session::create(move || {
        back += 1;
        Uuid::from_u128(ids().as_u128() - back * hour / 1000)
    });
    for n in 0..3 {
        session.append(&[notice(n)]);
        session.rotate(SegmentReason::Full).unwrap();
    }
    let mut by_name = session.segments.clone();
    by_name.sort_unstable();
    assert_ne!(by_name, session.segments);
    let replay = session.reopen().unwrap();
    assert_eq!(replay.entries, session.entries_of(3));
    session.append(&[notice(9)]);
    assert_eq!(all(&mut outside(&session), Token::Start, 3), session.entries);
    assert_eq!(all(&mut session.log().reader(), Token::Start, 99), session.entries);
}

#[test]
fn f16_a_session_that_no_pointer_names_is_read_and_opened_by_its_links() {
    let mut session = Session::of(3, 2);
    session.disk.remove_file(Path::new("/volume/current.json")).unwrap();
    assert_eq!(all(&mut outside(&session), Token::Start, 99), session.entries);
    assert_eq!(session.reopen().unwrap().entries, session.entries_of(2));
    // Another session is the agent's: this one can be read, and does not take its place.
    current::write(&session.lock, Uuid::from_u128(7), Uuid::from_u128(8)).unwrap();
    assert_eq!(all(&mut outside(&session), Token::Start, 99), session.entries);
    session.reopen().unwrap();
    let error = session.rotate(SegmentReason::Full).unwrap_err();
    assert!(matches!(error, Error::NotCurrent { session: SESSION, .. }), "{error}");
    session.append(&[notice(1)]);
}

#[test]
fn f6_a_foreign_append_is_noticed_stays_and_a_new_segment_goes_on_from_the_last_own_entry() {
    for preallocate in [SMALL, Preallocate::Off] {
        for at_committed_end in [true, false] {
            let mut session = Session::of(2, 3);
            drop(session.log.take());
            session.log = Some(Log::open(&session.lock, SESSION, preallocate).unwrap().0);
            session.append(&[notice(1)]);
            let own = session.log().segment_bytes();
            let last = session.entries.len() as u64;
            let foreign = [foreign_line(last + 1), foreign_line(last + 2)].concat();
            if at_committed_end {
                // A second log that has read the same entries writes where this one would.
                let file = session.disk.open(&session.path(1), yoi_session::disk::OpenMode::Write).unwrap();
                file.write_at(&foreign, own).unwrap();
            } else {
                session.append_foreign(1, &foreign);
            }
            let with_foreign = session.bytes(1);
            for _ in 0..2 {
                let error = session.log().append(&[notice(2)], at(), &mut counter()).unwrap_err();
                assert!(matches!(&error, Error::ForeignAppend { file } if *file == session.path(1)), "{error}");
                assert_eq!(error.reason(), ErrorReason::LogPoisoned);
            }
            let mut reader = session.log().reader();
            assert_eq!(all(&mut reader, Token::Start, 99), session.entries, "no reader of this log sees foreign lines");
            session.rotate(SegmentReason::ForeignAppend).unwrap();
            session.append(&[notice(3)]);
            assert_eq!(session.bytes(1), with_foreign, "what the other wrote stays");
            assert_eq!(session.entries.iter().map(|entry| entry.seq).collect::<Vec<_>>(), (1..=last + 5).collect::<Vec<_>>());
            assert_eq!(all(&mut reader, Token::Start, 2), session.entries);
            assert_eq!(all(&mut outside(&session), Token::Start, 99), session.entries);
            let replay = session.reopen().unwrap();
            assert_eq!(replay.entries, session.entries_of(2));
            assert_eq!(replay.state, fold::fold(&session.entries));
            // Somebody had read the foreign lines before they were known as such, and goes on with the session after them.
            let after_foreign = Token::After { segment: session.segments[1], seq: last + 2 };
            assert_eq!(all(&mut outside(&session), after_foreign, 99), session.entries_of(2));
        }
    }
}

#[test]
fn f6_a_foreign_append_is_not_cut_when_the_log_is_closed() {
    let mut session = Session::of(1, 3);
    session.append_foreign(0, b"another program wrote this\n");
    let before = session.bytes(0);
    let error = session.log.take().unwrap().close().unwrap_err();
    assert!(matches!(error, Error::ForeignAppend { .. }), "{error}");
    assert_eq!(session.bytes(0), before);
}

#[test]
fn a_new_segment_changes_no_segment_before_it() {
    let mut session = Session::of(3, 3);
    let before: Vec<Vec<u8>> = (0..2).map(|n| session.bytes(n)).collect();
    session.rotate(SegmentReason::Full).unwrap();
    session.append(&[notice(1)]);
    session.reopen().unwrap();
    assert_eq!((0..2).map(|n| session.bytes(n)).collect::<Vec<_>>(), before);
}

#[test]
fn f9_a_reader_is_never_cut_off_by_new_segments_and_restarts() {
    let mut session = Session::of(1, 2);
    let (mut beside, mut other) = (session.log().reader(), outside(&session));
    let mut tokens: Vec<(usize, Token)> = vec![(0, Token::Start)];
    for n in 0..30 {
        match n % 5 {
            1 => session.rotate(SegmentReason::Compacted).unwrap(),
            3 => drop(session.reopen().unwrap()),
            _ => session.append(&vec![notice(n); n % 4 + 1]),
        }
        for reader in [&mut beside, &mut other] {
            let &(seen, token) = tokens.last().unwrap();
            let (new, next) = reader.read(token, 99).unwrap();
            assert_eq!(new.iter().map(|stored| &stored.entry).collect::<Vec<_>>(), session.entries[seen..].iter().collect::<Vec<_>>());
            if reader.read(next, 99).unwrap().0.is_empty() && n % 2 == 0 {
                tokens.push((session.entries.len(), next));
            }
        }
    }
    assert!(session.segments.len() > 6);
    // Every token that was ever given leads on, as text too, in a new process too.
    for (seen, token) in tokens {
        let token: Token = token.to_string().parse().unwrap();
        for max in [1, 7, 999] {
            assert_eq!(all(&mut outside(&session), token, max), session.entries[seen..]);
        }
    }
}

#[test]
fn f10_compaction_keeps_session_and_old_file_and_readers_see_the_new_segment_begin() {
    let mut session = Session::of(1, 3);
    session.log.take().unwrap().close().unwrap();
    session.reopen().unwrap();
    let before = session.bytes(0);
    let token = session.log().reader().read(Token::Start, 99).unwrap().1;
    session.rotate(SegmentReason::Compacted).unwrap();
    assert_eq!((session.log().session(), session.bytes(0)), (SESSION, before));
    let (new, next) = session.log().reader().read(token, 99).unwrap();
    let Body::SegmentStarted(head) = &new[0].entry.body else { panic!("{:?}", new[0]) };
    assert_eq!((head.number, head.reason), (2, SegmentReason::Compacted));
    assert!(new[1..].iter().all(|stored| matches!(stored.entry.body, Body::Carried(_))));
    assert_eq!(next, Token::After { segment: session.segments[1], seq: session.entries.len() as u64 });
}

#[test]
fn f11_an_extension_and_an_optional_unknown_kind_are_kept_and_passed_over() {
    let mut session = Session::of(2, 1);
    session.append(&[Body::Extension(Extension { name: "acme/seen".into(), data: serde_json::json!({ "n": [1, null] }) })]);
    let mut bytes = session.bytes(1);
    bytes.truncate(usize::try_from(session.log().segment_bytes()).unwrap());
    bytes.extend(line(session.entries.len() as u64 + 1, 1, "Hologram", true));
    drop(session.log.take());
    session.disk.set_bytes(&session.path(1), &bytes);
    let state = fold::fold(&session.entries);
    let replay = session.reopen().unwrap();
    let kinds: Vec<&str> = replay.entries.iter().rev().take(2).map(|entry| entry.body.kind()).collect();
    assert_eq!(kinds, ["Hologram", "Extension"]);
    assert_eq!(fold::LogState { last_seq: state.last_seq, ..replay.state }, state);
    assert_eq!(all(&mut outside(&session), Token::Start, 99)[..session.entries.len()], session.entries);
}

#[test]
fn a_token_of_another_session_or_segment_is_refused() {
    let mut session = Session::of(3, 2);
    let first_of_third = session.entries_of(2)[0].seq;
    for (segment, seq) in [(Uuid::from_u128(9), 1), (SESSION, 1), (session.segments[2], first_of_third - 1), (session.segments[1], 1)] {
        for mut reader in [outside(&session), session.log().reader()] {
            let error = reader.read(Token::After { segment, seq }, 9).unwrap_err();
            assert!(matches!(error, Error::UnknownToken { .. }), "{error}");
        }
    }
}

#[test]
fn reading_on_looks_at_no_segment_that_has_been_read() {
    let mut session = Session::of(6, 2);
    let mut reader = outside(&session);
    let (_, token) = reader.read(Token::Start, 999).unwrap();
    session.append(&[notice(1)]);
    let before = session.disk.operations().len();
    assert_eq!(reader.read(token, 9).unwrap().0.len(), 1);
    let operations = session.disk.operations();
    let opened: Vec<_> = operations[before..].iter().filter(|(operation, _)| *operation == "open").map(|(_, path)| path.clone()).collect();
    assert_eq!(opened, [Path::new("/volume/current.json").to_owned(), session.path(5)]);
    // A reader beside the log need not even look at the pointer, and a new one begins in the segment of its token.
    let mut beside = session.log().reader();
    let before = session.disk.operations().len();
    beside.read(token, 9).unwrap();
    let operations = session.disk.operations();
    assert!(operations[before..].iter().all(|(_, path)| *path == session.path(5)));
}

#[test]
fn what_cannot_begin_a_segment_is_refused_and_the_log_goes_on() {
    let mut session = Session::of(1, 1);
    let state = fold::fold(&session.entries);
    let (files, mut ids) = (session.disk.list(session.path(0).parent().unwrap()).unwrap(), counter());
    let no_state = vec![Carried::default()];
    let mut huge = carried(&state, 0);
    huge[0].state.as_mut().unwrap().unanswered.push("x".repeat(MAX_LINE));
    let refused = [
        (Vec::new(), "state", ErrorReason::EntryRefused),
        (no_state, "state", ErrorReason::EntryRefused),
        (huge, "begin a segment: its line of kind Carried has", ErrorReason::SegmentTooLarge),
    ];
    for (carried, words, reason) in refused {
        let error = session.log().rotate(SegmentReason::Full, config(), carried, at(), &mut ids).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
        assert_eq!(error.reason(), reason);
    }
    session.append(&[notice(1)]);
    assert_eq!(session.disk.list(session.path(0).parent().unwrap()).unwrap(), files);
    let disk = crate::fixture::disk();
    let (mut log, _) = open(&disk).unwrap();
    let error = log.rotate(SegmentReason::Full, config(), carried(&state, 0), at(), &mut ids).unwrap_err();
    assert!(matches!(error, Error::EmptySegment { .. }), "{error}");
}

#[test]
fn a_session_goes_on_however_many_messages_tasks_and_open_calls_it_had() {
    let mut session = Session::of(1, 1);
    let mut state = fold::fold(&session.entries);
    let id = |n: u64| format!("{n:0128}");
    let total = MAX_DELIVERED as u64 + 7;
    for n in 0..total {
        state.delivered.insert(&id(n), 10 + n);
    }
    for n in 0..9_000 {
        state.tasks.insert(id(n), CarriedTask { state: TaskState::Failed, reason: Some("x".repeat(1000)) });
    }
    state.open_calls = (0..20)
        .map(|n| {
            let call = ToolCall { call_id: format!("c{n}"), tool: "Shell".into(), args: json!({ "command": "x".repeat(1 << 20) }) };
            OpenCall {
                call_id: call.call_id.clone(),
                tool: call.tool.clone(),
                request: Some(call),
                started: (n % 2 == 0).then_some(n),
                question: None,
            }
        })
        .collect();
    session.log().rotate(SegmentReason::Full, config(), state.carried(), at(), &mut counter()).unwrap();
    let restored = session.reopen().unwrap().state;
    assert_eq!((restored.delivered.len(), restored.delivered.contains(&id(6))), (MAX_DELIVERED, false));
    assert_eq!((restored.delivered.get(&id(7)), restored.delivered.get(&id(total - 1))), (Some(17), Some(9 + total)));
    assert!(restored.tasks == state.tasks && restored.open_calls == state.open_calls && restored.delivered == state.delivered);
}

#[test]
fn a_failed_rotation_refuses_all_until_the_session_is_opened_again() {
    for nth in 1.. {
        let mut session = Session::of(1, 3);
        session.disk.fail(nth, DiskFault::Enospc, true);
        let rotated = session.rotate(SegmentReason::Full);
        session.disk.clear_fault();
        if rotated.is_ok() {
            assert!(nth > 8, "{nth}");
            break;
        }
        let error = session.log().append(&[notice(1)], at(), &mut counter()).unwrap_err();
        assert!(matches!(error, Error::Poisoned { .. }), "{error}");
        let rotated = session.rotate(SegmentReason::Full);
        assert!(matches!(rotated, Err(Error::Poisoned { .. })));
        let before = session.entries.len();
        let replay = session.reopen().unwrap();
        let last = replay.entries.last().unwrap().seq;
        let is_new = session.log().segment() != session.segments[0];
        assert!(replay.entries == session.entries || (last as usize == before + 4 && is_new), "{nth}");
        // Whatever the rotation left is gone, so another one succeeds.
        session.entries = all(&mut outside(&session), Token::Start, 99);
        session.segments.truncate(1);
        session.rotate(SegmentReason::Full).unwrap();
        let files = session.disk.list(session.path(0).parent().unwrap()).unwrap();
        let segments = files.iter().filter(|name| name.to_string_lossy().ends_with(".jsonl")).count();
        assert_eq!((segments, session.log().segment()), (2 + usize::from(is_new), session.segments[1]), "{nth}");
    }
}

#[test]
fn f15_a_session_of_format_1_is_continued_in_a_linked_segment() {
    let (disk, entries) = written(&[1, 2, 1]);
    let mut pointer = Vec::new();
    yoi_session::frame::encode(&serde_json::json!({ "session": SESSION }), &mut pointer).unwrap();
    disk.open(Path::new("/volume/current.json"), yoi_session::disk::OpenMode::CreateNew).unwrap();
    disk.set_bytes(Path::new("/volume/current.json"), &pointer);
    let whole = disk.bytes(&segment_path()).unwrap();
    let lock = take(&disk, 1).unwrap();
    let (mut log, replay) = Log::open(&lock, SESSION, Preallocate::Off).unwrap();
    assert_eq!((replay.entries, log.reader().replay_token().unwrap()), (entries.clone(), Token::Start));
    let mut ids = counter();
    let mut new = log.rotate(SegmentReason::Upgraded, config(), carried(&replay.state, 1), at(), &mut ids).unwrap();
    new.extend(log.append(&[input("m1", InputFrom::Person)], at(), &mut ids).unwrap());
    let segment = log.segment();
    drop(log);
    assert_eq!(disk.bytes(&segment_path()).unwrap(), whole, "the old file is as it was");
    let (log, replay) = Log::open(&lock, SESSION, Preallocate::Off).unwrap();
    assert_eq!((replay.entries, log.segment()), (new.clone(), segment));
    let mut reader = log.reader();
    let token = reader.replay_token().unwrap();
    assert_eq!(all(&mut reader, token, 2), new, "a reader finds the entries that an opening replays");
    assert_eq!(all(&mut log.reader(), Token::Start, 2), [entries, new].concat());
}
