//! Creating a session, and opening an existing one.

use std::{io::ErrorKind, path::Path, sync::Arc};

use uuid::Uuid;
use yoi_wire::entry::{Body, Entry, FORMAT};

use super::{
    Log, Preallocate, Replay, TornTail,
    scan::{Expected, Scanned, Scanner},
};
use crate::{
    Damage, Error, Lock, LogState, Result,
    disk::{DiskFile, OpenMode, read_range, write_all},
    fold, layout,
    lock::{CommittedEnd, SessionGuard},
};

/// Where a log writes its next entry.
struct AppendPosition {
    last_seq: u64,
    committed: u64,
    file_end: u64,
}

/// The result of reading one segment to its end.
struct SegmentScan {
    /// Offset at which the last valid line ends.
    committed: u64,
    /// Offset at which the last append begins that has a valid line.
    last_batch: u64,
    /// Bytes of an unfinished append after `committed`.
    torn: u64,
    next_line: u64,
    expected: Expected,
}

impl SegmentScan {
    fn read(file: &dyn DiskFile, path: &Path, expected: Expected, replay: &mut Replay) -> Result<Self> {
        let len = file.len().map_err(Error::disk("measure", path))?;
        let mut scanner = Scanner::new(file, path, (0, len), 1, expected);
        let (mut committed, mut last_batch) = (0, 0);
        loop {
            match scanner.next()? {
                Scanned::Line(line) => {
                    if let Some(kind) = unsupported_version(&line.entry) {
                        return Err(Error::LogNewer { file: path.to_owned(), line: scanner.line_number() - 1, kind });
                    }
                    if line.batch == line.entry.seq {
                        last_batch = line.at;
                    }
                    committed = line.end;
                    replay.state = fold::apply(std::mem::take(&mut replay.state), &line.entry);
                    replay.entries.push(line.entry);
                }
                Scanned::End { torn } => {
                    return Ok(Self { committed, last_batch, torn, next_line: scanner.line_number(), expected: scanner.expected() });
                }
            }
        }
    }
}

/// Returns, in words, what of an entry this version does not know and must not pass over.
fn unsupported_version(entry: &Entry) -> Option<String> {
    match &entry.body {
        Body::Unknown { kind, optional: false, .. } => Some(format!("an entry of kind {kind}")),
        Body::SessionStarted(start) if start.format > FORMAT => Some(format!("format {}", start.format)),
        Body::Unknown { optional: true, .. }
        | Body::SessionStarted(_)
        | Body::RuntimeStarted(_)
        | Body::Input(_)
        | Body::PeerMessage(_)
        | Body::RunStarted(_)
        | Body::Assistant(_)
        | Body::ToolStarted(_)
        | Body::ToolEnded(_)
        | Body::RunEnded(_)
        | Body::Notice(_)
        | Body::SegmentStarted(_)
        | Body::Carried(_)
        | Body::ConfigChanged(_)
        | Body::SystemItem(_)
        | Body::Paused(_)
        | Body::Resumed(_)
        | Body::Abandoned(_)
        | Body::RolledBack(_)
        | Body::Rewound(_)
        | Body::Usage(_)
        | Body::CompactionStarted(_)
        | Body::CompactionEnded(_)
        | Body::Extension(_) => None,
    }
}

impl Log {
    /// Creates an empty session with one segment. It becomes the agent's only by [`crate::current::write`]; a crash before that leaves a
    /// folder that nothing names.
    ///
    /// # Errors
    /// [`Error::SessionExists`], or the disk's.
    pub fn create(lock: &Arc<Lock>, session: Uuid, segment: Uuid, preallocate: Preallocate) -> Result<Self> {
        let guard = lock.reserve(session)?;
        let (disk, root) = (lock.disk(), lock.root());
        let (sessions, dir, inbox) = (layout::sessions(root), layout::session(root, session), layout::inbox(root, session));
        for (dir, parent) in [(&sessions, root), (&dir, &*sessions), (&inbox, &*dir)] {
            disk.create_dir(dir).map_err(Error::disk("make", dir))?;
            disk.fsync_dir(parent).map_err(Error::disk("sync", parent))?;
        }
        if !layout::segments(&disk.list(&dir).map_err(Error::disk("list", &dir))?).is_empty() {
            return Err(Error::SessionExists { session });
        }
        let path = layout::segment(root, session, segment);
        let file = disk.open(&path, OpenMode::CreateNew).map_err(Error::disk("make", &path))?;
        file.fsync().map_err(Error::disk("sync", &path))?;
        disk.fsync_dir(&dir).map_err(Error::disk("sync", &dir))?;
        Ok(Self::from_parts(lock, guard, segment, file, preallocate, AppendPosition { last_seq: 0, committed: 0, file_end: 0 }))
    }

    /// Reads the whole session and checks every line. Then it cuts what an append that was never acknowledged left behind, and makes the rest
    /// durable. It changes nothing before all of the session is read and understood.
    ///
    /// # Errors
    /// [`Error::Damaged`] with file and line; [`Error::LogNewer`] for an entry that this version does not know and that does not call
    /// itself optional; [`Error::LowerGeneration`]; [`Error::NoSession`]; or the disk's.
    pub fn open(lock: &Arc<Lock>, session: Uuid, preallocate: Preallocate) -> Result<(Self, Replay)> {
        let guard = lock.reserve(session)?;
        let (disk, root) = (lock.disk(), lock.root());
        let dir = layout::session(root, session);
        let segments = match disk.list(&dir) {
            Ok(names) => layout::segments(&names),
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(Error::disk("list", &dir)(error)),
        };
        let Some((&last, closed)) = segments.split_last() else { return Err(Error::NoSession { session }) };

        let mut replay = Replay { entries: Vec::new(), state: LogState::default(), cut: None };
        let mut expected = Expected::FIRST;
        for &segment in closed {
            let path = layout::segment(root, session, segment);
            let file = disk.open(&path, OpenMode::Read).map_err(Error::disk("open", &path))?;
            let read = SegmentScan::read(&*file, &path, expected, &mut replay)?;
            if read.torn > 0 {
                return Err(Error::Damaged { file: path, line: read.next_line, what: Damage::Unfinished });
            }
            expected = read.expected;
        }
        let path = layout::segment(root, session, last);
        let file = disk.open(&path, OpenMode::Write).map_err(Error::disk("open", &path))?;
        let read = SegmentScan::read(&*file, &path, expected, &mut replay)?;
        let ours = lock.holder().run_generation;
        if replay.state.run_generation > ours {
            return Err(Error::LowerGeneration { ours, seen: replay.state.run_generation });
        }

        let mut file_end = file.len().map_err(Error::disk("measure", &path))?;
        if read.torn > 0 || preallocate == Preallocate::Off {
            file.truncate(read.committed).map_err(Error::disk("cut the unfinished end of", &path))?;
            file_end = read.committed;
        }
        if read.torn > 0 {
            replay.cut = Some(TornTail { file: path.clone(), line: read.next_line, bytes: read.torn });
        }
        // The last append may be in the page cache and not on the disk: after a failed sync Linux takes its pages for written. Writing
        // the append again makes the pages dirty, so that the sync below covers it.
        let again = read_range(&*file, read.last_batch, read.committed).map_err(Error::disk("read", &path))?;
        write_all(&*file, &again, read.last_batch).map_err(Error::disk("rewrite the last append of", &path))?;
        file.fsync().map_err(Error::disk("sync", &path))?;
        let end = AppendPosition { last_seq: replay.state.last_seq, committed: read.committed, file_end };
        Ok((Self::from_parts(lock, guard, last, file, preallocate, end), replay))
    }

    fn from_parts(
        lock: &Arc<Lock>,
        guard: SessionGuard,
        segment: Uuid,
        file: Box<dyn DiskFile>,
        preallocate: Preallocate,
        end: AppendPosition,
    ) -> Self {
        let AppendPosition { last_seq, committed, file_end } = end;
        guard.set_committed(CommittedEnd { segment, offset: committed });
        let path = layout::segment(lock.root(), guard.session(), segment);
        Self { lock: lock.clone(), guard, segment, path, file, preallocate, last_seq, committed, file_end, poisoned: false }
    }
}
