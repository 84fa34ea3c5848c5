//! The log of one session, as its one writer has it.

use std::{path::PathBuf, sync::Arc, time::SystemTime};

use serde::Serialize;
use uuid::Uuid;
use yoi_wire::entry::{Body, Entry};

use crate::{
    Error, Lock, LogState, Reader, Result,
    disk::{DiskFile, write_all},
    frame,
    lock::{CommittedEnd, SessionGuard},
    timestamp::rfc3339_millis,
};

mod open;
pub(crate) mod scan;

/// The longest line that is written, newline included. A tool's output is cut far below it.
pub const MAX_LINE: usize = 16 << 20;

/// Whether segments are filled with zeros ahead of the entries, which spares the file system a change of length at every append and so
/// about half of its cost. A reader never takes the zeros for entries, and [`Log::close`] trims them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preallocate {
    /// In steps of so many bytes.
    Ahead(u64),
    Off,
}

impl Default for Preallocate {
    fn default() -> Self {
        Self::Ahead(1 << 20)
    }
}

/// The bytes after the last acknowledged entry that were cut when the log was opened: the last append was under way when its writer died.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TornTail {
    pub file: PathBuf,
    /// The line that was not finished, counted from 1.
    pub line: u64,
    pub bytes: u64,
}

/// What was in the log.
#[derive(Clone, Debug, PartialEq)]
pub struct Replay {
    pub entries: Vec<Entry>,
    /// The sum of `entries`.
    pub state: LogState,
    pub cut: Option<TornTail>,
}

impl Replay {
    /// For [`yoi_wire::entry::RuntimeStarted`].
    #[must_use]
    pub fn cut_bytes(&self) -> u64 {
        self.cut.as_ref().map_or(0, |cut| cut.bytes)
    }
}

/// An open session log. Dropping it leaves the zeros of [`Preallocate::Ahead`] in position, which the next one uses.
#[derive(Debug)]
pub struct Log {
    lock: Arc<Lock>,
    guard: SessionGuard,
    segment: Uuid,
    path: PathBuf,
    file: Box<dyn DiskFile>,
    fill: Preallocate,
    last_seq: u64,
    /// Where the last acknowledged line ends.
    committed: u64,
    /// Where the file ends; zeros from `committed` on.
    filled: u64,
    poisoned: bool,
}

#[derive(Serialize)]
struct Line<'a> {
    /// The seq of the first entry of the append that wrote this line. Appends are made durable one after the other, so a line of a later
    /// append proves that this one was acknowledged: what is damaged before it is not merely torn.
    batch: u64,
    #[serde(flatten)]
    entry: &'a Entry,
}

impl Log {
    /// Appends one entry for each body, in one write, and makes them durable before it returns them. `ids` gives UUIDv7s.
    ///
    /// # Errors
    /// The disk's: then nothing is acknowledged, no reader of this process sees any of it, and every later append fails with
    /// [`Error::Poisoned`] until the session is opened again, which may find some of these entries or none.
    /// [`Error::TooLarge`] and [`Error::UnknownKind`] leave the log as it was.
    pub fn append(&mut self, bodies: &[Body], at: SystemTime, ids: &mut dyn FnMut() -> Uuid) -> Result<Vec<Entry>> {
        if self.poisoned {
            return Err(Error::Poisoned { file: self.path.clone() });
        }
        if bodies.is_empty() {
            return Ok(Vec::new());
        }
        let (entries, lines) = self.encode(bodies, at, ids)?;
        if let Err(error) = self.commit(&lines) {
            self.poisoned = true;
            // What was not acknowledged should not be seen by other processes either. If this fails too, opening decides.
            let _ = self.file.truncate(self.committed);
            return Err(error);
        }
        self.committed += lines.len() as u64;
        self.last_seq += entries.len() as u64;
        self.guard.set_committed(CommittedEnd { segment: self.segment, offset: self.committed });
        Ok(entries)
    }

    fn encode(&self, bodies: &[Body], at: SystemTime, ids: &mut dyn FnMut() -> Uuid) -> Result<(Vec<Entry>, Vec<u8>)> {
        let batch = self.last_seq + 1;
        let at = rfc3339_millis(at);
        let mut entries = Vec::with_capacity(bodies.len());
        let mut lines = Vec::new();
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
        }
        Ok((entries, lines))
    }

    fn commit(&mut self, lines: &[u8]) -> Result<()> {
        let end = self.committed + lines.len() as u64;
        if let Preallocate::Ahead(step) = self.fill
            && end > self.filled
        {
            // The zeros are made durable by the same sync as the lines: a hole in a new segment reads as zeros either way.
            let to = end.next_multiple_of(step.max(1));
            let zeros = vec![0; usize::try_from(to - self.filled).unwrap_or(usize::MAX)];
            write_all(&*self.file, &zeros, self.filled).map_err(Error::disk("make room in", &self.path))?;
            self.filled = to;
        }
        write_all(&*self.file, lines, self.committed).map_err(Error::disk("append to", &self.path))?;
        self.filled = self.filled.max(end);
        self.file.fdatasync().map_err(Error::disk("sync", &self.path))
    }

    /// Trims the zeros. Nothing is lost when it is not called, or fails.
    ///
    /// # Errors
    /// The disk's.
    pub fn close(self) -> Result<()> {
        if self.poisoned {
            return Ok(());
        }
        self.file.truncate(self.committed).map_err(Error::disk("trim", &self.path))?;
        self.file.fsync().map_err(Error::disk("sync", &self.path))
    }

    /// A reader that sees what this log has acknowledged, and goes on when the session is opened again in this process.
    #[must_use]
    pub fn reader(&self) -> Reader {
        Reader::for_open_log(&self.lock, self.guard.session(), self.guard.progress().clone())
    }

    #[must_use]
    pub fn session(&self) -> Uuid {
        self.guard.session()
    }

    /// The segment that is being written.
    #[must_use]
    pub fn segment(&self) -> Uuid {
        self.segment
    }
}
