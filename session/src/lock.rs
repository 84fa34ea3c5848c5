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
    disk::{Disk, DiskFile, Mode, read_range, write_all},
    frame, layout,
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
    live: Mutex<HashMap<Uuid, Arc<Live>>>,
}

/// What this process knows of a session that it writes. It outlives the log, so that a reader goes on when a log is opened again.
#[derive(Debug)]
pub(crate) struct Live {
    open: AtomicBool,
    mark: Mutex<Mark>,
}

/// How far the last segment is acknowledged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    pub segment: Uuid,
    pub committed: u64,
}

impl Live {
    pub(crate) fn mark(&self) -> Mark {
        *self.mark.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One log's claim to a session, within this process.
#[derive(Debug)]
pub(crate) struct Claim {
    session: Uuid,
    live: Arc<Live>,
}

impl Claim {
    pub(crate) fn session(&self) -> Uuid {
        self.session
    }

    pub(crate) fn live(&self) -> &Arc<Live> {
        &self.live
    }

    pub(crate) fn set_mark(&self, mark: Mark) {
        *self.live.mark.lock().unwrap_or_else(PoisonError::into_inner) = mark;
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.live.open.store(false, Ordering::Release);
    }
}

impl Lock {
    /// Takes the volume at `root` without waiting, and records durably who took it.
    ///
    /// # Errors
    /// [`Error::Locked`] when a living process has it; [`Error::LowerGeneration`] when a later Pod has had it.
    pub fn take(disk: Arc<dyn Disk>, root: &Path, holder: Holder) -> Result<Arc<Self>> {
        let path = layout::lock(root);
        let file = disk.open(&path, Mode::Create).map_err(Error::disk("open", &path))?;
        if !file.try_lock().map_err(Error::disk("lock", &path))? {
            // Only a word for people: a holder that is just recording itself is not seen yet.
            let (seen, _) = holders(&*file, &path)?;
            return Err(Error::Locked { path, holder: seen.into_iter().last() });
        }
        let (seen, end) = holders(&*file, &path)?;
        if let Some(highest) = seen.iter().map(|seen| seen.run_generation).max()
            && highest > holder.run_generation
        {
            return Err(Error::LowerGeneration { ours: holder.run_generation, seen: highest });
        }
        if seen.last() != Some(&holder) {
            file.truncate(end).map_err(Error::disk("cut the unfinished end of", &path))?;
            let mut line = Vec::new();
            frame::seal(&holder, &mut line).map_err(|source| Error::Encode { file: path.clone(), source })?;
            write_all(&*file, &line, end).map_err(Error::disk("record the holder in", &path))?;
        }
        // Also for a line that is there already: the process that wrote it may have died before its own sync.
        file.fsync().map_err(Error::disk("sync", &path))?;
        disk.fsync_dir(root).map_err(Error::disk("sync", root))?;
        Ok(Arc::new(Self { disk, root: root.to_owned(), holder, _file: file, live: Mutex::default() }))
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

    /// Claims a session for one log in this process. The mark of an earlier log stays until the new one has read the session.
    pub(crate) fn claim(&self, session: Uuid) -> Result<Claim> {
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = live.entry(session).or_insert_with(|| {
            Arc::new(Live { open: AtomicBool::new(false), mark: Mutex::new(Mark { segment: Uuid::nil(), committed: 0 }) })
        });
        if entry.open.swap(true, Ordering::AcqRel) {
            return Err(Error::AlreadyOpen { session });
        }
        Ok(Claim { session, live: entry.clone() })
    }
}

/// The holders on record, and where the last complete line ends.
fn holders(file: &dyn DiskFile, path: &Path) -> Result<(Vec<Holder>, u64)> {
    let read = |len| read_range(file, 0, len);
    let bytes = file.len().and_then(read).map_err(Error::disk("read", path))?;
    let mut holders = Vec::new();
    let mut end = 0;
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        let Some(line) = line.strip_suffix(b"\n") else { break };
        let holder = frame::unseal(line);
        let number = holders.len() as u64 + 1;
        holders.push(holder.map_err(|what| Error::Damaged { file: path.to_owned(), line: number, what })?);
        end += line.len() as u64 + 1;
    }
    Ok((holders, end))
}
