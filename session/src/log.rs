//! The log of one session, as its only writer has it.

use std::{path::PathBuf, sync::Arc, time::SystemTime};

use serde::Serialize;
use uuid::Uuid;
use yoi_wire::entry::{Body, Entry};

use crate::{
    Error, Lock, LogState, Reader, Result,
    disk::{DiskFile, read_range, write_all},
    frame,
    lock::{CommittedEnd, SessionGuard},
    log::chain::Chain,
    timestamp::rfc3339_millis,
};

pub(crate) mod backwards;
pub(crate) mod chain;
mod head;
mod leftover;
mod link;
mod open;
mod rotate;
pub(crate) mod scan;

/// Bytes of the longest line, newline included. A tool's output is cut far below it.
pub const MAX_LINE: usize = 16 << 20;

/// Whether the log fills its segment with zeros ahead of the entries. The file system then need not change the file's length at every
/// append, which saves about half of its cost. Readers never take the zeros for entries, and [`Log::close`] trims them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preallocate {
    /// It does, in steps of this many bytes.
    Ahead(u64),
    /// It does not.
    Off,
}

impl Default for Preallocate {
    fn default() -> Self {
        Self::Ahead(1 << 20)
    }
}

/// Bytes after the end of the log that an append looks at, at least.
const LOOK_AHEAD: u64 = 512;

/// The bytes after the last acknowledged entry that [`Log::open`] cut. They belong to an append that its writer did not finish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TornTail {
    /// The segment: one file of the session's log.
    pub file: PathBuf,
    /// The line that was not finished, counted from 1.
    pub line: u64,
    /// How many bytes were cut.
    pub bytes: u64,
}

/// What [`Log::open`] found in the session.
#[derive(Clone, Debug, PartialEq)]
pub struct Replay {
    /// All acknowledged entries of the last segment, in order, and perhaps some of a last append that was not acknowledged. Of a session of
    /// format 1, the entries of all segments.
    pub entries: Vec<Entry>,
    /// The state of the session after `entries`.
    pub state: LogState,
    /// The unfinished append; `None` when the log ended cleanly.
    pub cut: Option<TornTail>,
}

impl Replay {
    /// Returns how many bytes were cut, as [`yoi_wire::entry::RuntimeStarted`] reports it.
    #[must_use]
    pub fn cut_bytes(&self) -> u64 {
        self.cut.as_ref().map_or(0, |cut| cut.bytes)
    }
}

/// An open session log. A log that is dropped leaves the zeros of [`Preallocate::Ahead`] in place, and the next one uses them.
#[derive(Debug)]
pub struct Log {
    lock: Arc<Lock>,
    guard: SessionGuard,
    chain: Arc<Chain>,
    /// Of the last segment, which is `file`.
    path: PathBuf,
    file: Box<dyn DiskFile>,
    preallocate: Preallocate,
    last_seq: u64,
    /// Offset at which the last acknowledged line begins.
    last_line: u64,
    /// Offset at which the last acknowledged line ends.
    committed: u64,
    /// Offset at which the file ends. From `committed` on it holds zeros.
    file_end: u64,
    poisoned: bool,
}

/// Entries and their lines.
struct Encoded {
    entries: Vec<Entry>,
    lines: Vec<u8>,
    /// Where in `lines` the last one begins.
    last_line: usize,
}

#[derive(Serialize)]
struct Line<'a> {
    /// Sequence number of the first entry of the append that wrote this line. Appends become durable one after the other. So a line of a
    /// later append proves that this one was acknowledged, and that what is wrong in it is damage and not a torn end.
    batch: u64,
    #[serde(flatten)]
    entry: &'a Entry,
}

impl Log {
    /// Appends one entry for each body in one write, and returns the entries once they are durable. `at` is their time, and `ids` returns
    /// a new UUIDv7 for each.
    ///
    /// # Errors
    /// The disk's: nothing is acknowledged then, and no reader of this process sees any of it. Every later append fails with
    /// [`Error::Poisoned`] until the session is opened again, which finds some of these entries or none.
    /// [`Error::ForeignAppend`] when another writer has appended to the segment; [`Log::rotate`] then goes on in another.
    /// That, [`Error::TooLarge`] and [`Error::UnknownKind`] leave the log as it was.
    pub fn append(&mut self, bodies: &[Body], at: SystemTime, ids: &mut dyn FnMut() -> Uuid) -> Result<Vec<Entry>> {
        if self.poisoned {
            return Err(Error::Poisoned { file: self.path.clone() });
        }
        if bodies.is_empty() {
            return Ok(Vec::new());
        }
        let Encoded { entries, lines, last_line } = self.encode(bodies, at, ids)?;
        match self.has_foreign_bytes(lines.len() as u64) {
            Ok(false) => {}
            Ok(true) => return Err(Error::ForeignAppend { file: self.path.clone() }),
            Err(error) => {
                self.poisoned = true;
                return Err(error);
            }
        }
        if let Err(error) = self.commit(&lines) {
            self.poisoned = true;
            // Other processes should not see what was not acknowledged. If this fails too, the next `open` cuts it or keeps it.
            let _ = self.file.truncate(self.committed);
            return Err(error);
        }
        self.last_line = self.committed + last_line as u64;
        self.committed += lines.len() as u64;
        self.last_seq += entries.len() as u64;
        self.guard.set_committed(CommittedEnd { chain: self.chain.clone(), offset: self.committed });
        Ok(entries)
    }

    /// Returns whether another writer has made the file longer, or has written where the next `len` bytes belong.
    fn has_foreign_bytes(&self, len: u64) -> Result<bool> {
        let there = self.file.len().map_err(Error::disk("measure", &self.path))?;
        if there > self.file_end {
            return Ok(true);
        }
        let until = there.min(self.committed.saturating_add(len.max(LOOK_AHEAD)));
        let bytes = read_range(&*self.file, self.committed, until).map_err(Error::disk("read", &self.path))?;
        Ok(bytes.iter().any(|byte| *byte != 0))
    }

    fn encode(&self, bodies: &[Body], at: SystemTime, ids: &mut dyn FnMut() -> Uuid) -> Result<Encoded> {
        let batch = self.last_seq + 1;
        let at = rfc3339_millis(at);
        let mut entries = Vec::with_capacity(bodies.len());
        let (mut lines, mut last_line) = (Vec::new(), 0);
        for (seq, body) in (batch..).zip(bodies) {
            if let Body::Unknown { kind, optional: false, .. } = body {
                return Err(Error::UnknownKind { kind: kind.clone() });
            }
            let entry = Entry { id: ids().to_string(), seq, run: self.lock.holder().run_generation, at: at.clone(), body: body.clone() };
            let start = lines.len();
            frame::encode(&Line { batch, entry: &entry }, &mut lines)
                .map_err(|source| Error::Encode { file: self.path.clone(), source })?;
            let bytes = lines.len() - start;
            if bytes > MAX_LINE {
                return Err(Error::TooLarge { kind: body.kind().to_owned(), bytes, limit: MAX_LINE });
            }
            entries.push(entry);
            last_line = start;
        }
        Ok(Encoded { entries, lines, last_line })
    }

    fn commit(&mut self, lines: &[u8]) -> Result<()> {
        let end = self.committed + lines.len() as u64;
        if let Preallocate::Ahead(step) = self.preallocate
            && end > self.file_end
        {
            // The sync of the lines makes the zeros durable too. Where a power cut leaves a hole instead, it reads as zeros as well.
            let to = end.next_multiple_of(step.max(1));
            let zeros = vec![0; usize::try_from(to - self.file_end).unwrap_or(usize::MAX)];
            write_all(&*self.file, &zeros, self.file_end).map_err(Error::disk("make room in", &self.path))?;
            self.file_end = to;
        }
        write_all(&*self.file, lines, self.committed).map_err(Error::disk("append to", &self.path))?;
        self.file_end = self.file_end.max(end);
        self.file.fdatasync().map_err(Error::disk("sync", &self.path))
    }

    /// Trims the zeros of [`Preallocate::Ahead`]. No entry is lost when it fails or is not called.
    ///
    /// # Errors
    /// [`Error::ForeignAppend`], and the file is left as it is; or the disk's.
    pub fn close(self) -> Result<()> {
        if self.poisoned {
            return Ok(());
        }
        if self.has_foreign_bytes(u64::MAX)? {
            return Err(Error::ForeignAppend { file: self.path });
        }
        self.file.truncate(self.committed).map_err(Error::disk("trim", &self.path))?;
        self.file.fsync().map_err(Error::disk("sync", &self.path))
    }

    /// Returns a reader that sees what this log has acknowledged. It stays valid when this process opens the session again.
    #[must_use]
    pub fn reader(&self) -> Reader {
        Reader::for_open_log(&self.lock, self.guard.session(), self.guard.progress().clone())
    }

    /// Returns the session of this log.
    #[must_use]
    pub fn session(&self) -> Uuid {
        self.guard.session()
    }

    /// Returns the segment that the log writes.
    #[must_use]
    pub fn segment(&self) -> Uuid {
        self.chain.last()
    }

    /// Returns how many bytes of entries that segment holds.
    #[must_use]
    pub fn segment_bytes(&self) -> u64 {
        self.committed
    }
}
