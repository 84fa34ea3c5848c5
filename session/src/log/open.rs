//! Creating a session, and opening an existing one.

use std::{path::Path, sync::Arc};

use uuid::Uuid;
use yoi_wire::entry::{Body, Entry, FORMAT};

use super::{
    Log, Preallocate, Replay, TornTail,
    chain::{Chain, SessionFolder},
    leftover, link,
    scan::{Expected, Scanned, Scanner},
};
use crate::{
    Damage, Error, Lock, LogState, Result,
    disk::{DiskFile, OpenMode, read_range, write_all},
    fold, layout,
    lock::{CommittedEnd, SessionGuard},
};

/// Where a log writes its next entry.
#[derive(Default)]
struct AppendPosition {
    last_seq: u64,
    last_line: u64,
    committed: u64,
    file_end: u64,
}

/// The result of reading one segment to its end.
struct SegmentScan {
    /// Offset at which the last valid line begins.
    last_line: u64,
    /// Offset at which it ends.
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
        let (mut last_line, mut committed, mut last_batch) = (0, 0, 0);
        loop {
            match scanner.next()? {
                Scanned::Line(line) => {
                    if let Some(kind) = unsupported_version(&line.entry) {
                        return Err(Error::LogNewer { file: path.to_owned(), line: scanner.line_number() - 1, kind });
                    }
                    if line.batch == line.entry.seq {
                        last_batch = line.at;
                    }
                    (last_line, committed) = (line.at, line.end);
                    replay.state = fold::apply(std::mem::take(&mut replay.state), &line.entry);
                    replay.entries.push(line.entry);
                }
                Scanned::End { torn } => {
                    let (next_line, expected) = (scanner.line_number(), scanner.expected());
                    return Ok(Self { last_line, committed, last_batch, torn, next_line, expected });
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
        Body::SegmentStarted(head) if head.format > FORMAT => Some(format!("format {}", head.format)),
        Body::Unknown { optional: true, .. }
        | Body::SessionStarted(_)
        | Body::RuntimeStarted(_)
        | Body::Input(_)
        | Body::PeerMessage(_)
        | Body::RunStarted(_)
        | Body::Assistant(_)
        | Body::ToolRequested(_)
        | Body::ToolAsked(_)
        | Body::ToolAnswered(_)
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
        | Body::ModeSwitched(_)
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
        Ok(Self::from_parts(lock, guard, Chain::first(segment), file, preallocate, AppendPosition::default()))
    }

    /// Reads the last segment and checks every line of it, the heads of all others, and that the segment before ends as it did. Then it
    /// cuts what an append that was never acknowledged left behind, removes what an unfinished [`Log::rotate`] left, and makes the rest
    /// durable. It changes nothing before all of this is read and understood. Of a session of format 1 it reads all segments.
    ///
    /// # Errors
    /// [`Error::Damaged`] with file and line; [`Error::ChainDamaged`] with two files; [`Error::LogNewer`] for an entry that this version
    /// does not know and that does not call itself optional; [`Error::LowerGeneration`]; [`Error::NoSession`]; or the disk's.
    pub fn open(lock: &Arc<Lock>, session: Uuid, preallocate: Preallocate) -> Result<(Self, Replay)> {
        let guard = lock.reserve(session)?;
        let disk = lock.disk();
        let folder = SessionFolder { disk: &**disk, root: lock.root(), session };
        let heads = folder.heads(&folder.names()?)?;
        let chain = match folder.pointer()? {
            Some(Some(last)) => folder.chain(last, &heads)?,
            Some(None) => folder.discover(&heads, false)?,
            None => folder.discover(&heads, true)?,
        };

        let mut replay = Replay { entries: Vec::new(), state: LogState::default(), cut: None };
        let from = chain.replay_from();
        let mut expected = chain.expected(from).unwrap_or(Expected::FIRST);
        let mut closed = &chain.segments()[from..];
        while let [segment, rest @ ..] = closed
            && !rest.is_empty()
        {
            let path = folder.path(segment.id);
            let file = disk.open(&path, OpenMode::Read).map_err(Error::disk("open", &path))?;
            let read = SegmentScan::read(&*file, &path, expected, &mut replay)?;
            if read.torn > 0 {
                return Err(Error::Damaged { file: path, line: read.next_line, what: Damage::Unfinished });
            }
            (expected, closed) = (read.expected, rest);
        }
        let path = folder.path(chain.last());
        let file = disk.open(&path, OpenMode::Write).map_err(Error::disk("open", &path))?;
        let read = SegmentScan::read(&*file, &path, expected, &mut replay)?;
        check_segment_before(&folder, &chain)?;
        let leftovers = leftover::find(&folder, &chain, &heads)?;
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
        folder.remove(&leftovers)?;
        let end = AppendPosition { last_seq: replay.state.last_seq, last_line: read.last_line, committed: read.committed, file_end };
        Ok((Self::from_parts(lock, guard, chain, file, preallocate, end), replay))
    }

    fn from_parts(
        lock: &Arc<Lock>,
        guard: SessionGuard,
        chain: Chain,
        file: Box<dyn DiskFile>,
        preallocate: Preallocate,
        end: AppendPosition,
    ) -> Self {
        let AppendPosition { last_seq, last_line, committed, file_end } = end;
        let chain = Arc::new(chain);
        guard.set_committed(CommittedEnd { chain: chain.clone(), offset: committed });
        let path = layout::segment(lock.root(), guard.session(), chain.last());
        Self { lock: lock.clone(), guard, chain, path, file, preallocate, last_seq, last_line, committed, file_end, poisoned: false }
    }
}

/// Checks that the segment before the last one still ends with the entry to which the last one is linked.
fn check_segment_before(folder: &SessionFolder<'_>, chain: &Chain) -> Result<()> {
    let [.., before, last] = chain.segments() else { return Ok(()) };
    let Some(link) = &last.previous else { return Ok(()) };
    let path = folder.path(before.id);
    let file = folder.disk.open(&path, OpenMode::Read).map_err(Error::disk("open", &path))?;
    match link::check(&*file, &path, link)? {
        Some(what) => Err(folder.damaged(last.id, before.id, what)),
        None => Ok(()),
    }
}
