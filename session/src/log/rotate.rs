//! Beginning a new segment.

use std::{sync::Arc, time::SystemTime};

use uuid::Uuid;
use yoi_wire::entry::{AgentConfig, Body, Carried, Entry, FORMAT, SegmentLink, SegmentReason, SegmentStarted};

use super::{Encoded, Log, scan::digest};
use crate::{
    Error, Result, current,
    disk::{DiskFile, OpenMode, read_range, write_all},
    layout,
    lock::CommittedEnd,
};

impl Log {
    /// Begins a new segment: its head, which is linked to the last entry of this one, and what it carries. Returns these entries once they
    /// are durable and `current.json` names the segment. Before that rename the session ends with the old segment, after it with the new
    /// one, whatever crashes. `carried` begins with [`crate::LogState::carried`]; each becomes one line. `at` is the time
    /// of the entries; `ids` returns a new UUIDv7 for the segment and for each entry.
    ///
    /// The old file keeps its entries, and what another writer has appended to it.
    ///
    /// # Errors
    /// [`Error::SegmentTooLarge`], [`Error::StateNotCarried`], [`Error::EmptySegment`] and [`Error::NotCurrent`] leave the log as it was. After any
    /// other error the log fails with [`Error::Poisoned`] until the session is opened again, which finds the old end or the new segment.
    pub fn rotate(
        &mut self,
        reason: SegmentReason,
        config: AgentConfig,
        carried: Vec<Carried>,
        at: SystemTime,
        ids: &mut dyn FnMut() -> Uuid,
    ) -> Result<Vec<Entry>> {
        if self.poisoned {
            return Err(Error::Poisoned { file: self.path.clone() });
        }
        let rotated = self.begin_segment(reason, config, carried, at, ids);
        if let Err(error) = &rotated {
            // The disk failed, and nobody can tell which segment the next start will find.
            self.poisoned = !matches!(
                error,
                Error::SegmentTooLarge { .. } | Error::StateNotCarried { .. } | Error::EmptySegment { .. } | Error::NotCurrent { .. }
            );
        }
        rotated
    }

    fn begin_segment(
        &mut self,
        reason: SegmentReason,
        config: AgentConfig,
        carried: Vec<Carried>,
        at: SystemTime,
        ids: &mut dyn FnMut() -> Uuid,
    ) -> Result<Vec<Entry>> {
        if carried.first().is_none_or(|first| first.state.is_none()) {
            return Err(Error::StateNotCarried { file: self.path.clone() });
        }
        if self.committed == 0 {
            return Err(Error::EmptySegment { file: self.path.clone() });
        }
        let session = self.guard.session();
        if let Some(pointer) = current::pointer(&**self.lock.disk(), self.lock.root())?
            && pointer.session != session
        {
            return Err(Error::NotCurrent { session, current: pointer.session });
        }
        let link = self.link()?;
        let head = SegmentStarted { number: self.chain.number() + 1, format: FORMAT, previous: Some(link.clone()), reason, config };
        let bodies: Vec<Body> = std::iter::once(Body::SegmentStarted(head)).chain(carried.into_iter().map(Body::Carried)).collect();
        let segment = ids();
        let Encoded { entries, lines, last_line } = self.encode(&bodies, at, ids).map_err(|error| match error {
            Error::TooLarge { kind, bytes, limit } => Error::SegmentTooLarge { kind, bytes, limit },
            other => other,
        })?;
        let file = self.commit_segment(segment, &lines)?;

        self.trim_closed();
        self.chain = Arc::new(self.chain.with_next(segment, link));
        self.path = layout::segment(self.lock.root(), session, segment);
        self.file = file;
        self.last_line = last_line as u64;
        self.committed = lines.len() as u64;
        self.file_end = self.committed;
        self.last_seq += entries.len() as u64;
        self.guard.set_committed(CommittedEnd { chain: self.chain.clone(), offset: self.committed });
        Ok(entries)
    }

    fn link(&self) -> Result<SegmentLink> {
        let line = read_range(&*self.file, self.last_line, self.committed - 1).map_err(Error::disk("read", &self.path))?;
        Ok(SegmentLink { segment: self.chain.last().to_string(), last_seq: self.last_seq, digest: digest(&line) })
    }

    /// Writes the new file, and makes it the last segment.
    fn commit_segment(&self, segment: Uuid, lines: &[u8]) -> Result<Box<dyn DiskFile>> {
        let (disk, session) = (self.lock.disk(), self.guard.session());
        let dir = layout::session(self.lock.root(), session);
        let path = layout::segment(self.lock.root(), session, segment);
        let file = disk.open(&path, OpenMode::CreateNew).map_err(Error::disk("make", &path))?;
        let written = write_all(&*file, lines, 0).map_err(Error::disk("write", &path));
        let written = written.and_then(|()| file.fsync().map_err(Error::disk("sync", &path)));
        if let Err(error) = written.and_then(|()| disk.fsync_dir(&dir).map_err(Error::disk("sync", &dir))) {
            // No pointer names it yet, and it takes the room that the next try needs. Otherwise the next opening removes it.
            drop(file);
            let _ = disk.remove_file(&path);
            return Err(error);
        }
        current::write(&self.lock, session, segment)?;
        Ok(file)
    }

    /// Trims the zeros of the segment that has ended. They do no harm, so a failure is none.
    fn trim_closed(&self) {
        if let Ok(false) = self.has_foreign_bytes(u64::MAX) {
            let _ = self.file.truncate(self.committed);
        }
    }
}
