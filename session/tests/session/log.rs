use serde_json::Value;
use yoi_session::{
    Error, ErrorReason, Log, MAX_LINE, Preallocate,
    disk::{DiskFault, Retained},
    fold,
};
use yoi_wire::entry::{Body, InputFrom, Notice, ToolOutcome};

use crate::fixture::{self, *};

#[test]
fn f1_all_complete_lines_load_when_the_last_is_torn() {
    let (disk, entries) = written(&[1; 5]);
    let whole = disk.bytes(&segment_path()).unwrap();
    let character = whole.windows(3).rposition(|three| three == "水".as_bytes()).unwrap();
    for cut in [whole.len() - 9, character + 1, character + 2] {
        disk.set_bytes(&segment_path(), &whole[..cut]);
        let (_, replay) = open(&disk).unwrap();
        assert_eq!(replay.entries, entries[..4]);
        let cut = replay.cut.unwrap();
        assert_eq!((cut.file, cut.line), (segment_path(), 5));
    }
}

#[test]
fn f2_a_torn_tail_is_cut_before_the_next_entry() {
    let (disk, entries) = written(&[1; 5]);
    let whole = disk.bytes(&segment_path()).unwrap();
    disk.set_bytes(&segment_path(), &whole[..whole.len() - 9]);
    let (mut log, replay) = open(&disk).unwrap();
    let cut = replay.cut_bytes();
    let kept = usize::try_from(whole.len() as u64 - 9 - cut).unwrap();
    assert_eq!(disk.bytes(&segment_path()).unwrap(), whole[..kept]);
    let new = log.append(&[notice(77)], at(), &mut counter()).unwrap();
    drop(log);
    let (_, replay) = open(&disk).unwrap();
    assert_eq!(replay.entries, [&entries[..4], &new].concat());
    assert_eq!(replay.cut, None);
}

#[test]
fn f3_a_damaged_complete_line_is_named_and_nothing_is_skipped() {
    let (disk, _) = written(&[1; 5]);
    let mut bytes = disk.bytes(&segment_path()).unwrap();
    let third = bytes.windows(2).position(|two| two == b"n2").unwrap();
    bytes[third + 1] = b'3';
    disk.set_bytes(&segment_path(), &bytes);
    let error = open(&disk).unwrap_err();
    let path = segment_path();
    assert_eq!(error.to_string(), format!("failed to read {} line 3: its checksum is wrong", path.display()));
    assert_eq!(error.reason(), ErrorReason::ReplayFailed);
    assert_eq!(disk.bytes(&path).unwrap(), bytes, "a damaged log is left as it is");
}

#[test]
fn f4_a_tool_call_without_its_end_is_interrupted_and_not_run_again() {
    let disk = disk();
    let (mut log, _) = open(&disk).unwrap();
    let mut ids = counter();
    let before = [started(), input("t1", InputFrom::Task), run_started("r1"), asks(&["a", "b", "c"]), tool_started("a"), tool_ended("a")];
    log.append(&before, at(), &mut ids).unwrap();
    log.append(&[tool_started("b")], at(), &mut ids).unwrap();
    disk.crash(Retained::Synced);

    let (mut log, replay) = open(&disk).unwrap();
    assert_eq!(
        replay.state.open_calls.iter().map(|call| (&*call.call_id, call.started)).collect::<Vec<_>>(),
        [("b", Some(7)), ("c", None)]
    );
    assert!(replay.state.tasks.contains_key("t1"));
    let recovery = replay.state.recovery();
    let outcomes: Vec<_> = recovery
        .iter()
        .map(|body| match body {
            Body::ToolEnded(end) => (end.call_id.clone(), Some(end.outcome)),
            Body::RunEnded(end) => (end.run_id.clone(), None),
            other => panic!("{other:?}"),
        })
        .collect();
    let expected = [("b", Some(ToolOutcome::Unknown)), ("c", Some(ToolOutcome::Refused)), ("r1", None)];
    assert_eq!(outcomes, expected.map(|(id, outcome)| (id.to_owned(), outcome)));
    let recovered = log.append(&recovery, at(), &mut ids).unwrap().iter().fold(replay.state, fold::apply);
    assert_eq!(recovered.recovery(), []);
    assert_eq!(recovered.open_run, None);
}

#[test]
fn f5_what_a_full_disk_refuses_is_not_shown_and_not_in_history() {
    for fault in [DiskFault::Enospc, DiskFault::Edquot] {
        // The first operation looks for foreign lines, the second is the write, the third its sync.
        for nth in 2..=3 {
            let (disk, entries) = written(&[2]);
            let (mut log, _) = open(&disk).unwrap();
            disk.fail(nth, fault, false);
            let error = log.append(&[tool_started("a")], at(), &mut counter()).unwrap_err();
            assert_eq!(error.reason(), ErrorReason::DiskFull);
            let shown = log.reader().read(yoi_session::Token::Start, 99).unwrap().0;
            assert_eq!(shown.into_iter().map(|raw| raw.entry).collect::<Vec<_>>(), entries);
            let error = log.append(&[notice(1)], at(), &mut counter()).unwrap_err();
            assert!(matches!(error, Error::Poisoned { .. }));
            drop(log);
            let (mut log, replay) = open(&disk).unwrap();
            assert_eq!(replay.entries, entries);
            assert_eq!(log.append(&[notice(1)], at(), &mut counter()).unwrap()[0].seq, 3);
        }
    }
}

#[test]
fn f11_a_newer_kind_is_shown_but_no_runtime_goes_on_from_it() {
    let (disk, _) = written(&[2]);
    let whole = disk.bytes(&segment_path()).unwrap();
    for (kind, optional) in [("Hologram", false), ("Hologram", true), ("Assistant", false)] {
        let mut bytes = whole.clone();
        bytes.extend(line(3, 1, kind, optional));
        disk.set_bytes(&segment_path(), &bytes);
        let seen =
            yoi_session::Reader::new(std::sync::Arc::new(disk.clone()), ROOT.as_ref(), SESSION).read(Default::default(), 9).unwrap().0;
        assert_eq!(seen[2].entry.body.kind(), kind);
        assert!(serde_json::to_string(&seen[2].entry).unwrap().contains(kind));
        match open(&disk) {
            Ok((mut log, replay)) => {
                assert!(optional);
                assert_eq!(replay.entries.len(), 3);
                assert_eq!(log.append(&[notice(1)], at(), &mut counter()).unwrap()[0].seq, 4);
            }
            Err(error) => {
                assert!(!optional);
                assert!(matches!(&error, Error::LogNewer { line: 3, .. }), "{error}");
                assert_eq!(error.reason(), ErrorReason::LogNewer);
                assert_eq!(disk.bytes(&segment_path()).unwrap(), bytes);
            }
        }
    }
}

#[test]
fn a_session_of_a_newer_format_is_refused() {
    let disk = disk();
    let mut bytes = Vec::new();
    let Body::SessionStarted(mut first) = started() else { unreachable!() };
    first.format += 1;
    let line = serde_json::json!({ "batch": 1, "id": "x", "seq": 1, "run": 1, "at": "", "kind": "SessionStarted", "body": first });
    yoi_session::frame::encode(&line, &mut bytes).unwrap();
    disk.set_bytes(&segment_path(), &bytes);
    assert!(matches!(open(&disk), Err(Error::LogNewer { line: 1, .. })));
}

#[test]
fn an_append_is_one_write_and_one_sync() {
    let (disk, _) = written(&[1]);
    let (mut log, _) = open(&disk).unwrap();
    let before = disk.operations().len();
    log.append(&[notice(1), notice(2), notice(3)], at(), &mut counter()).unwrap();
    let operations: Vec<_> = disk.operations()[before..].iter().map(|(operation, _)| *operation).collect();
    // One look for foreign lines, which are in the page cache if there are any.
    assert_eq!(operations, ["len", "write_at", "fdatasync"]);
    assert_eq!(log.append(&[], at(), &mut counter()).unwrap(), []);
    assert_eq!(disk.operations().len(), before + 3, "nothing to append is nothing to do");
}

#[test]
fn any_json_tool_reads_a_line_and_anyone_can_check_it() {
    let (disk, entries) = written(&[3]);
    let bytes = disk.bytes(&segment_path()).unwrap();
    for (line, entry) in bytes.split_inclusive(|byte| *byte == b'\n').zip(&entries) {
        let value: Value = serde_json::from_slice(line).unwrap();
        assert_eq!(value["seq"], entry.seq);
        assert_eq!(value["kind"], "Notice");
        assert_eq!(value["body"]["reason"], "Seen");
        assert_eq!(value["crc"], format!("{:08x}", crc32c::crc32c(&line[18..line.len() - 1])));
    }
}

#[test]
fn zeros_ahead_are_no_entries_and_are_trimmed_on_close() {
    let disk = fixture::disk();
    let lock = take(&disk, 1).unwrap();
    let mut ids = counter();
    let mut written = Vec::new();
    for round in 0..4 {
        let (mut log, replay) = Log::open(&lock, SESSION, SMALL).unwrap();
        assert_eq!((replay.entries, replay.cut), (written.clone(), None));
        for n in 0..9 {
            written.extend(log.append(&vec![notice(n); n % 3 + 1], at(), &mut ids).unwrap());
            assert_eq!(disk.bytes(&segment_path()).unwrap().len() % 2048, 0);
        }
        if round % 2 == 1 {
            log.close().unwrap();
            assert_eq!(disk.bytes(&segment_path()).unwrap().last(), Some(&b'\n'));
        }
    }
    let (log, _) = Log::open(&lock, SESSION, Preallocate::default()).unwrap();
    drop(log);
    let (mut log, replay) = Log::open(&lock, SESSION, Preallocate::Off).unwrap();
    let last = written.len() as u64;
    assert_eq!((replay.entries, replay.state.last_seq), (written, last));
    assert_eq!(disk.bytes(&segment_path()).unwrap().last(), Some(&b'\n'));
    assert_eq!(log.append(&[notice(1)], at(), &mut ids).unwrap()[0].seq, last + 1);
}

#[test]
fn what_cannot_be_written_is_refused_and_the_log_goes_on() {
    let (disk, _) = written(&[1]);
    let (mut log, _) = open(&disk).unwrap();
    let huge = Body::Notice(Notice { reason: "Huge".into(), message: "x".repeat(MAX_LINE) });
    let strange = Body::Unknown { kind: "Hologram".into(), optional: false, fields: Value::Null };
    assert!(matches!(log.append(&[notice(1), huge], at(), &mut counter()), Err(Error::TooLarge { .. })));
    assert!(matches!(log.append(&[notice(1), strange], at(), &mut counter()), Err(Error::UnknownKind { .. })));
    assert_eq!(log.append(&[notice(1)], at(), &mut counter()).unwrap()[0].seq, 2);
}

#[test]
fn an_entry_of_a_newer_kind_may_have_no_body() {
    let disk = disk();
    let mut bytes = Vec::new();
    let line = serde_json::json!({ "batch": 1, "id": "x", "seq": 1, "run": 1, "at": "", "kind": "Hush", "optional": true, "more": [1] });
    yoi_session::frame::encode(&line, &mut bytes).unwrap();
    disk.set_bytes(&segment_path(), &bytes);
    assert_eq!(open(&disk).unwrap().1.entries[0].body.kind(), "Hush");
}
