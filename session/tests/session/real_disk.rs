//! The main promises on the disk of this machine.
#![expect(clippy::disallowed_methods, reason = "looks at what really is on the disk, from two threads")]

use std::{path::Path, sync::Arc, thread};

use yoi_session::{
    Error, Inbox, InboxMessage, Lock, Log, Preallocate, PutOutcome, Reader, Sender, Token, Wake, current,
    disk::{Disk, RealDisk},
};

use crate::fixture::*;

fn take(root: &Path, run: u64) -> yoi_session::Result<Arc<Lock>> {
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    Lock::take(disk, root, holder(run))
}

#[test]
fn a_second_pod_finds_what_the_first_wrote() {
    let dir = tempfile::tempdir().unwrap();
    let lock = take(dir.path(), 1).unwrap();
    let other: Arc<dyn Disk> = Arc::new(RealDisk);
    assert!(matches!(take(dir.path(), 2), Err(Error::Locked { holder: Some(h), .. }) if h == holder(1)));
    let mut log = Log::create(&lock, SESSION, SEGMENT, Preallocate::default()).unwrap();
    let mut entries = log.append(&[started()], at(), &mut counter()).unwrap();
    current::write(&lock, SESSION, SEGMENT).unwrap();
    entries.extend(log.append(&[notice(1), notice(2)], at(), &mut counter()).unwrap());
    let path = dir.path().join(format!("sessions/{SESSION}/{SEGMENT}.jsonl"));
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 1 << 20);
    drop((log, lock));

    let lock = take(dir.path(), 2).unwrap();
    assert_eq!(current::read(&*other, dir.path()).unwrap(), Some(SESSION));
    let (mut log, replay) = Log::open(&lock, SESSION, Preallocate::default()).unwrap();
    assert_eq!((&replay.entries, &replay.cut), (&entries, &None));
    let mut inbox = Inbox::open(&lock, SESSION, &replay.state).unwrap();
    let message = InboxMessage { id: "m".into(), from: Sender::Person { user: "grace".into() }, text: "hi".into(), wake: Wake::Run };
    assert_eq!(inbox.put(message.clone(), at()).unwrap(), PutOutcome::Accepted);
    drop(inbox);
    let mut inbox = Inbox::open(&lock, SESSION, &replay.state).unwrap();
    assert_eq!(inbox.pending().collect::<Vec<_>>(), [&message]);
    entries.extend(log.append(&[message.body()], at(), &mut counter()).unwrap());
    inbox.mark_delivered("m").unwrap();
    log.close().unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(text.lines().count(), 4);
    assert!(text.ends_with("}\n"));
    let seen = Reader::new(other, dir.path(), SESSION).read(Token::Start, 99).unwrap().0;
    assert_eq!(seen.into_iter().map(|raw| raw.entry).collect::<Vec<_>>(), entries);
    drop((inbox, lock));
    assert!(matches!(take(dir.path(), 1), Err(Error::LowerGeneration { ours: 1, seen: 2 })));
}

#[test]
fn readers_in_other_processes_see_every_entry_once_while_it_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let lock = take(dir.path(), 1).unwrap();
    let mut log = Log::create(&lock, SESSION, SEGMENT, Preallocate::Ahead(64 << 10)).unwrap();
    const APPENDS: usize = 150;
    let total: usize = (0..APPENDS).map(|n| n % 60 + 1).sum();
    thread::scope(|scope| {
        for beside in [true, false, false] {
            let mut reader = if beside { log.reader() } else { Reader::new(lock.disk().clone(), dir.path(), SESSION) };
            scope.spawn(move || {
                let (mut seen, mut token) = (0, Token::Start);
                while seen < total {
                    let (entries, next) = reader.read(token, 100).unwrap();
                    for raw in entries {
                        seen += 1;
                        assert_eq!(raw.entry.seq, seen as u64);
                    }
                    token = next;
                    thread::yield_now();
                }
            });
        }
        let (mut ids, log) = (counter(), &mut log);
        for n in 0..APPENDS {
            log.append(&vec![notice(n); n % 60 + 1], at(), &mut ids).unwrap();
        }
    });
}
