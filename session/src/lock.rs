//! One writer for a session volume.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{
    Error, Result,
    disk::{Disk, DiskFile, OpenMode, read_range, write_all},
    frame, layout,
    log::scan::only_sectors_are_missing,
};

/// Who writes to the volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Holder {
    pub run_generation: u64,
    pub pod_uid: String,
}

/// The right to write to a session volume. Held until the last `Arc` is gone; logs and inboxes keep one.
#[derive(Debug)]
pub struct Lock {
    disk: Arc<dyn Disk>,
    root: PathBuf,
    holder: Holder,
    /// Holds the `flock`.
    _file: Box<dyn DiskFile>,
    sessions: Mutex<HashMap<Uuid, Arc<SessionProgress>>>,
}

/// What this process knows of a session that it writes. It outlives the log, so that a reader goes on when a log is opened again.
#[derive(Debug)]
pub(crate) struct SessionProgress {
    open: AtomicBool,
    committed_end: Mutex<CommittedEnd>,
}

/// How far the last segment is acknowledged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CommittedEnd {
    pub segment: Uuid,
    pub offset: u64,
}

impl SessionProgress {
    pub(crate) fn committed_end(&self) -> CommittedEnd {
        *self.committed_end.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps a session reserved for one log, within this process.
#[derive(Debug)]
pub(crate) struct SessionGuard {
    session: Uuid,
    progress: Arc<SessionProgress>,
}

impl SessionGuard {
    pub(crate) fn session(&self) -> Uuid {
        self.session
    }

    pub(crate) fn progress(&self) -> &Arc<SessionProgress> {
        &self.progress
    }

    pub(crate) fn set_committed(&self, end: CommittedEnd) {
        *self.progress.committed_end.lock().unwrap_or_else(PoisonError::into_inner) = end;
    }
}

impl Drop for SessionGuard {
    fn drop(&mut self) {
        self.progress.open.store(false, Ordering::Release);
    }
}

impl Lock {
    /// Takes the volume at `root` without waiting, and records durably who took it.
    ///
    /// # Errors
    /// [`Error::Locked`] when a living process has it; [`Error::LowerGeneration`] when a later Pod has had it.
    pub fn take(disk: Arc<dyn Disk>, root: &Path, holder: Holder) -> Result<Arc<Self>> {
        let path = layout::lock(root);
        let file = disk.open(&path, OpenMode::Create).map_err(Error::disk("open", &path))?;
        if !file.try_lock().map_err(Error::disk("lock", &path))? {
            // Only a word for people, and the holder may be at it just now: what cannot be read is left out.
            let holder = read_holders(&*file, &path).ok().and_then(|(mut seen, _)| seen.pop());
            return Err(Error::Locked { path, holder });
        }
        let (seen, mut lines) = read_holders(&*file, &path)?;
        if let Some(highest) = seen.iter().map(|seen| seen.run_generation).max()
            && highest > holder.run_generation
        {
            return Err(Error::LowerGeneration { ours: holder.run_generation, seen: highest });
        }
        if seen.last() != Some(&holder) {
            frame::encode(&holder, &mut lines).map_err(|source| Error::Encode { file: path.clone(), source })?;
        }
        // All of it, not only one's own line: those who wrote the others may have died of the sync that made them durable.
        write_all(&*file, &lines, 0).map_err(Error::disk("record the holder in", &path))?;
        file.truncate(lines.len() as u64).map_err(Error::disk("cut the unfinished end of", &path))?;
        file.fsync().map_err(Error::disk("sync", &path))?;
        disk.fsync_dir(root).map_err(Error::disk("sync", root))?;
        Ok(Arc::new(Self { disk, root: root.to_owned(), holder, _file: file, sessions: Mutex::default() }))
    }

    #[must_use]
    pub fn holder(&self) -> &Holder {
        &self.holder
    }

    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    #[must_use]
    pub fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    /// Claims a session for one log in this process. The committed end of an earlier log stays until the new one has read the session.
    pub(crate) fn reserve(&self, session: Uuid) -> Result<SessionGuard> {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        let progress = sessions.entry(session).or_insert_with(|| {
            Arc::new(SessionProgress {
                open: AtomicBool::new(false),
                committed_end: Mutex::new(CommittedEnd { segment: Uuid::nil(), offset: 0 }),
            })
        });
        if progress.open.swap(true, Ordering::AcqRel) {
            return Err(Error::AlreadyOpen { session });
        }
        Ok(SessionGuard { session, progress: progress.clone() })
    }
}

/// The holders on record, and their lines.
fn read_holders(file: &dyn DiskFile, path: &Path) -> Result<(Vec<Holder>, Vec<u8>)> {
    let read = |len| read_range(file, 0, len);
    let mut bytes = file.len().and_then(read).map_err(Error::disk("read", path))?;
    let mut holders = Vec::new();
    let mut end = 0;
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        let Some(text) = line.strip_suffix(b"\n") else { break };
        match frame::decode(text) {
            Ok(holder) => holders.push(holder),
            // Whoever took the lock made all lines durable: with a sector missing, nobody has since.
            Err(_) if only_sectors_are_missing(end as u64, text) => break,
            Err(what) => return Err(Error::Damaged { file: path.to_owned(), line: holders.len() as u64 + 1, what }),
        }
        end += line.len();
    }
    bytes.truncate(end);
    Ok((holders, bytes))
}
