use std::{sync::Arc, time::SystemTime};

use uuid::{NoContext, Timestamp, Uuid};
use yoi_session::{
    Error, ErrorReason, Inbox, InboxMessage, Lock, Log, LogState, PutOutcome, Sender, Wake,
    disk::{Disk, DiskFault, MemoryDisk, Retained},
    fold::{self, MAX_DELIVERED},
    inbox::{MAX_ID, MAX_MESSAGES, MAX_TEXT},
};
use yoi_wire::entry::Body;

use crate::fixture::*;

fn message(id: &str) -> InboxMessage {
    InboxMessage { id: id.into(), from: Sender::Agent(agent("bob")), text: format!("text of {id}"), wake: Wake::Run }
}

fn set_up() -> (MemoryDisk, Arc<Lock>, Inbox) {
    let disk = disk();
    let lock = take(&disk, 1).unwrap();
    let inbox = Inbox::open(&lock, SESSION, &LogState::default()).unwrap();
    (disk, lock, inbox)
}

fn ids(inbox: &Inbox) -> Vec<String> {
    inbox.pending().map(|message| message.id.clone()).collect()
}

#[test]
fn g5_p37_a_full_inbox_refuses_the_sender() {
    let (_, _, mut inbox) = set_up();
    for n in 0..MAX_MESSAGES {
        assert_eq!(inbox.put(message(&n.to_string()), at()).unwrap(), PutOutcome::Accepted);
    }
    assert_eq!(inbox.put(message("one more"), at()).unwrap(), PutOutcome::Full { limit: MAX_MESSAGES });
    assert_eq!(inbox.put(message("7"), at()).unwrap(), PutOutcome::Duplicate);
    inbox.mark_delivered("0").unwrap();
    assert_eq!(inbox.put(message("one more"), at()).unwrap(), PutOutcome::Accepted);
}

#[test]
fn an_id_that_may_be_a_forgotten_one_is_refused_by_its_age() {
    let made = |seconds_ago: u64| {
        let seconds = at().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() - seconds_ago;
        message(&Uuid::new_v7(Timestamp::from_unix(NoContext, seconds, 0)).to_string())
    };
    let disk = disk();
    let lock = take(&disk, 1).unwrap();
    let (old, remembered) = (made(2 * 3600), made(3 * 3600));
    let mut replayed = LogState::default();
    replayed.delivered.insert(&remembered.id, MAX_DELIVERED as u64);
    for n in 1..MAX_DELIVERED as u64 {
        // As long as no id was forgotten, each counts as new whatever it says.
        if n == MAX_DELIVERED as u64 - 1 {
            let mut inbox = Inbox::open(&lock, SESSION, &replayed).unwrap();
            assert_eq!(inbox.put(made(2 * 3600), at()).unwrap(), PutOutcome::Accepted);
        }
        replayed.delivered.insert(&n.to_string(), n);
    }
    let mut inbox = Inbox::open(&lock, SESSION, &replayed).unwrap();
    let rows = [
        (old, PutOutcome::TooOld),
        (remembered, PutOutcome::Duplicate),
        (made(60), PutOutcome::Accepted),
        (message("7d2c9c1e-6f0b-4f3e-9a57-0d0b3c1f2a44"), PutOutcome::Accepted),
        (message("no-uuid"), PutOutcome::Accepted),
    ];
    for (message, outcome) in rows {
        assert_eq!(inbox.put(message, at()).unwrap(), outcome);
    }
}

#[test]
fn g6_an_accepted_message_survives_a_crash_and_is_delivered_once() {
    let (disk, _, mut inbox) = set_up();
    assert_eq!(inbox.put(message("m1"), at()).unwrap(), PutOutcome::Accepted);
    assert_eq!(inbox.put(message("m2"), at()).unwrap(), PutOutcome::Accepted);
    disk.crash(Retained::Synced);

    // The next Pod delivers the first message and dies before it removes it from the inbox.
    let lock = take(&disk, 2).unwrap();
    let (mut log, replay) = Log::open(&lock, SESSION, SMALL).unwrap();
    let inbox = Inbox::open(&lock, SESSION, &replay.state).unwrap();
    assert_eq!(ids(&inbox), ["m1", "m2"]);
    let body = inbox.pending().next().unwrap().body();
    assert!(matches!(&body, Body::PeerMessage(peer) if peer.text == "text of m1" && peer.from == agent("bob")));
    log.append(&[body], at(), &mut counter()).unwrap();
    disk.crash(Retained::Written);

    let lock = take(&disk, 3).unwrap();
    let (_log, replay) = Log::open(&lock, SESSION, SMALL).unwrap();
    let mut inbox = Inbox::open(&lock, SESSION, &replay.state).unwrap();
    assert_eq!(ids(&inbox), ["m2"]);
    assert_eq!(inbox.put(message("m1"), at()).unwrap(), PutOutcome::Duplicate);
    assert_eq!(replay.state.unanswered, ["m1"]);
}

#[test]
fn an_id_is_accepted_once_also_after_it_was_settled() {
    let (disk, lock, mut inbox) = set_up();
    let (mut log, replay) = Log::open(&lock, SESSION, SMALL).unwrap();
    inbox.put(message("m1"), at()).unwrap();
    assert_eq!(inbox.put(message("m1"), at()).unwrap(), PutOutcome::Duplicate);
    let entries = log.append(&[inbox.pending().next().unwrap().body()], at(), &mut counter()).unwrap();
    inbox.mark_delivered("m1").unwrap();
    inbox.mark_delivered("m1").unwrap();
    assert_eq!(inbox.put(message("m1"), at()).unwrap(), PutOutcome::Duplicate);
    let state = entries.iter().fold(replay.state, fold::apply);
    let mut inbox = Inbox::open(&lock, SESSION, &state).unwrap();
    assert_eq!(inbox.put(message("m1"), at()).unwrap(), PutOutcome::Duplicate);
    assert_eq!(inbox.pending().len(), 0);
    drop(disk);
}

#[test]
fn messages_keep_their_order_and_their_text() {
    let (_, lock, mut inbox) = set_up();
    let mut sent = Vec::new();
    for n in (0..30).rev() {
        let mut message = message(&format!("m{n}"));
        message.text = "line\nand \u{0} and 水".repeat(n);
        if n % 2 == 0 {
            message.from = Sender::Person { user: "grace".into() };
            message.wake = Wake::Wait;
        }
        inbox.put(message.clone(), at()).unwrap();
        sent.push(message);
    }
    let inbox = Inbox::open(&lock, SESSION, &LogState::default()).unwrap();
    assert_eq!(inbox.pending().cloned().collect::<Vec<_>>(), sent);
}

#[test]
fn too_long_a_message_is_refused() {
    let (disk, _, mut inbox) = set_up();
    let before = disk.operations().len();
    let mut long = message("m1");
    long.text = "x".repeat(MAX_TEXT + 1);
    assert_eq!(inbox.put(long.clone(), at()).unwrap(), PutOutcome::TooLong { limit: MAX_TEXT });
    assert_eq!(inbox.put(message(&"x".repeat(MAX_ID + 1)), at()).unwrap(), PutOutcome::TooLong { limit: MAX_ID });
    assert_eq!(disk.operations().len(), before);
    long.text.pop();
    assert_eq!(inbox.put(long, at()).unwrap(), PutOutcome::Accepted);
}

#[test]
fn a_failed_put_may_be_tried_again_and_comes_once() {
    for nth in 1.. {
        let (disk, _, mut inbox) = set_up();
        inbox.put(message("m0"), at()).unwrap();
        let before = disk.operations().len();
        disk.fail(nth, DiskFault::Enospc, false);
        let first = inbox.put(message("m1"), at());
        if disk.operations().len() < before + nth {
            assert!(nth > 4);
            return;
        }
        assert_eq!(first.unwrap_err().reason(), ErrorReason::DiskFull);
        assert_eq!(ids(&inbox), ["m0"]);
        // What a smaller message needs is not taken by the rest of this one.
        assert_eq!(disk.list(&segment_path().with_file_name("inbox")).unwrap(), ["00000000000000000001.json"], "{nth}");
        assert_eq!(inbox.put(message("m1"), at()).unwrap(), PutOutcome::Accepted);
        for retained in [Retained::Synced, Retained::Written] {
            disk.crash(retained);
            let lock = take(&disk, 1).unwrap();
            assert_eq!(ids(&Inbox::open(&lock, SESSION, &LogState::default()).unwrap()), ["m0", "m1"]);
        }
    }
}

#[test]
fn a_damaged_message_is_named() {
    let (disk, lock, mut inbox) = set_up();
    inbox.put(message("m1"), at()).unwrap();
    let path = segment_path().with_file_name("inbox").join("00000000000000000001.json");
    let mut bytes = disk.bytes(&path).unwrap();
    bytes[40] ^= 1;
    disk.set_bytes(&path, &bytes);
    let error = Inbox::open(&lock, SESSION, &LogState::default()).unwrap_err();
    assert!(matches!(error, Error::Damaged { file, line: 1, .. } if file == path));
}
