//! The volumes that a runtime of format 1 wrote, as far as this crate reads them. Their meaning is tested by the runtime.
#![expect(clippy::disallowed_methods, clippy::disallowed_macros, reason = "reads the recorded volumes, which are files of the repository")]

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;
use yoi_session::{
    Inbox, Lock, Log, Preallocate, Reader, Token, current,
    disk::{Disk, RealDisk},
};
use yoi_wire::entry::SegmentReason;

use crate::{
    chain_fixture::{carried, config},
    fixture::*,
};

fn recorded() -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../runtime/tests/recorded-logs/format-1");
    fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect()
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let (from, to) = (entry.as_ref().unwrap().path(), to.join(entry.as_ref().unwrap().file_name()));
        if from.is_dir() {
            copy(&from, &to);
        } else {
            fs::copy(from, to).unwrap();
        }
    }
}

#[test]
fn f15_every_recorded_volume_of_format_1_opens_as_it_did_and_goes_on_in_a_linked_segment() {
    let (mut opened, mut refused) = (0, 0);
    for recorded in recorded() {
        let dir = tempfile::tempdir().unwrap();
        copy(&recorded.join("volume"), dir.path());
        let expected: Value = serde_json::from_slice(&fs::read(recorded.join("expected.json")).unwrap()).unwrap();
        let disk: std::sync::Arc<dyn Disk> = std::sync::Arc::new(RealDisk);
        let lock = Lock::take(disk.clone(), dir.path(), holder(1000)).unwrap();
        let found = current::read(&*disk, dir.path()).and_then(|session| {
            let (log, replay) = Log::open(&lock, session.unwrap(), Preallocate::default())?;
            fs::create_dir_all(dir.path().join(format!("sessions/{}/inbox", session.unwrap()))).unwrap();
            Inbox::open(&lock, session.unwrap(), &replay.state)?;
            Ok((log, replay))
        });
        let replayed = &expected["opened"]["replayed"];
        let Ok((mut log, replay)) = found else {
            assert_eq!(expected["opened"]["refused"]["reason"], found.unwrap_err().reason().as_str(), "{}", recorded.display());
            refused += 1;
            continue;
        };
        assert_eq!(replay.entries.len() as u64, replayed["entries"], "{}", recorded.display());
        assert_eq!(replay.cut_bytes(), replayed["cutBytes"]);
        assert_eq!(serde_json::to_value(replay.state.delivered.to_map()).unwrap(), replayed["state"]["delivered"]);
        for (id, task) in &replay.state.tasks {
            assert_eq!(task.state.as_str(), replayed["tasks"][id], "{}", recorded.display());
        }
        opened += 1;
        // An empty one is begun like a new one.
        if replay.entries.is_empty() {
            continue;
        }
        let mut ids = counter();
        let new = log.rotate(SegmentReason::Upgraded, config(), carried(&replay.state, 1), at(), &mut ids).unwrap();
        let session = log.session();
        log.close().unwrap();
        let (_log, again) = Log::open(&lock, session, Preallocate::default()).unwrap();
        assert_eq!(again.entries, new);
        assert_eq!((again.state.delivered, again.state.open_run), (replay.state.delivered, replay.state.open_run));
        let seen = Reader::new(disk, dir.path(), session).read(Token::Start, usize::MAX).unwrap().0;
        assert_eq!(seen.into_iter().map(|stored| stored.entry).collect::<Vec<_>>(), [replay.entries, new].concat());
    }
    assert!(opened >= 15 && refused >= 5, "{opened} opened, {refused} refused");
}
