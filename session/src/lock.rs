//! The lock of a session volume, which lets one process write to it.

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
    log::{chain::Chain, scan::only_sectors_are_missing},
};

/// The Pod that writes to the volume, as the lock file records it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Holder {
    /// Run generation of the agent in this Pod. It grows with each Pod.
    pub run_generation: u64,
    /// UID of the Kubernetes Pod.
    pub pod_uid: String,
}

/// The right to write to a session volume. It ends when the last `Arc` is dropped; logs and inboxes keep one.
#[derive(Debug)]
pub struct Lock {
    disk: Arc<dyn Disk>,
    root: PathBuf,
    holder: Holder,
    _held: Held,
    sessions: Mutex<HashMap<Uuid, Arc<SessionProgress>>>,
}

/// What keeps other processes out.
#[derive(Debug)]
enum Held {
    /// The lock file, open for the `flock` on it.
    File { _file: Box<dyn DiskFile> },
    /// The lock of the volume that the folder is on.
    Volume { _lock: Arc<Lock> },
}

/// How far this process has written a session. It outlives the log, so that a reader goes on when the session is opened again.
#[derive(Debug)]
pub(crate) struct SessionProgress {
    open: AtomicBool,
    /// `None` before the first log of this process has read the session.
    committed_end: Mutex<Option<CommittedEnd>>,
}

/// Where the acknowledged entries of a session end.
#[derive(Clone, Debug)]
pub(crate) struct CommittedEnd {
    pub chain: Arc<Chain>,
    /// Offset in bytes in the last segment.
    pub offset: u64,
}

impl SessionProgress {
    pub(crate) fn committed_end(&self) -> Option<CommittedEnd> {
        self.committed_end.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Reserves a session for one log of this process until it is dropped.
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
        *self.progress.committed_end.lock().unwrap_or_else(PoisonError::into_inner) = Some(end);
    }
}

impl Drop for SessionGuard {
    fn drop(&mut self) {
        self.progress.open.store(false, Ordering::Release);
    }
}

impl Lock {
    /// Takes the lock of the volume at `root` without waiting, and durably records the holder.
    ///
    /// # Errors
    /// [`Error::Locked`] when another process has the lock; [`Error::LowerGeneration`] when a later Pod has held it;
    /// [`Error::Damaged`] when the lock file is; or the disk's.
    pub fn take(disk: Arc<dyn Disk>, root: &Path, holder: Holder) -> Result<Arc<Self>> {
        let path = layout::lock(root);
        let file = disk.open(&path, OpenMode::Create).map_err(Error::disk("open", &path))?;
        if !file.try_lock().map_err(Error::disk("lock", &path))? {
            // The holder is only for people, and it may be writing its record just now, so an error here is no error.
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
        // All lines are written again, because an earlier holder may have died before its line was synced.
        write_all(&*file, &lines, 0).map_err(Error::disk("record the holder in", &path))?;
        file.truncate(lines.len() as u64).map_err(Error::disk("cut the unfinished end of", &path))?;
        file.fsync().map_err(Error::disk("sync", &path))?;
        disk.fsync_dir(root).map_err(Error::disk("sync", root))?;
        Ok(Arc::new(Self { disk, root: root.to_owned(), holder, _held: Held::File { _file: file }, sessions: Mutex::default() }))
    }

    /// The right to write to a folder of the volume as to a volume of its own. This lock lasts as long as that one.
    pub(crate) fn of_folder(self: &Arc<Self>, folder: PathBuf) -> Arc<Self> {
        let (disk, holder) = (self.disk.clone(), self.holder.clone());
        Arc::new(Self { disk, root: folder, holder, _held: Held::Volume { _lock: self.clone() }, sessions: Mutex::default() })
    }

    /// Returns the Pods that have recorded themselves as holders of the volume at `root`, the last one last. Nothing is locked or changed.
    ///
    /// # Errors
    /// [`Error::Damaged`] when the lock file is; or the disk's, also when no Pod has ever held it.
    pub fn holders(disk: &dyn Disk, root: &Path) -> Result<Vec<Holder>> {
        let path = layout::lock(root);
        let file = disk.open(&path, OpenMode::Read).map_err(Error::disk("open", &path))?;
        Ok(read_holders(&*file, &path)?.0)
    }

    /// Returns who this process is to the volume.
    #[must_use]
    pub fn holder(&self) -> &Holder {
        &self.holder
    }

    /// Returns the folder of the volume.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the disk that the volume is on.
    #[must_use]
    pub fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    /// Reserves a session for one log of this process. Readers see the committed end of an earlier log until the new one has read the session.
    pub(crate) fn reserve(&self, session: Uuid) -> Result<SessionGuard> {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        let progress = sessions
            .entry(session)
            .or_insert_with(|| Arc::new(SessionProgress { open: AtomicBool::new(false), committed_end: Mutex::new(None) }));
        if progress.open.swap(true, Ordering::AcqRel) {
            return Err(Error::AlreadyOpen { session });
        }
        Ok(SessionGuard { session, progress: progress.clone() })
    }
}

/// Returns the recorded holders, and their lines. An unfinished line at the end is left out.
fn read_holders(file: &dyn DiskFile, path: &Path) -> Result<(Vec<Holder>, Vec<u8>)> {
    let read = |len| read_range(file, 0, len);
    let mut bytes = file.len().and_then(read).map_err(Error::disk("read", path))?;
    let mut holders = Vec::new();
    let mut end = 0;
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        let Some(text) = line.strip_suffix(b"\n") else { break };
        match frame::decode(text) {
            Ok(holder) => holders.push(holder),
            // A holder syncs all lines before it goes on. So where a sector is missing, no holder has come after this line.
            Err(_) if only_sectors_are_missing(end as u64, text) => break,
            Err(what) => return Err(Error::Damaged { file: path.to_owned(), line: holders.len() as u64 + 1, what }),
        }
        end += line.len();
    }
    bytes.truncate(end);
    Ok((holders, bytes))
}
