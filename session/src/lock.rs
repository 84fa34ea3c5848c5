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
    log::walk::only_sectors_are_missing,
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
            // Only a word for people, and the holder may be at it just now: what cannot be read is left out.
            let holder = holders(&*file, &path).ok().and_then(|(mut seen, _)| seen.pop());
            return Err(Error::Locked { path, holder });
        }
        let (seen, mut lines) = holders(&*file, &path)?;
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

/// The holders on record, and their lines.
fn holders(file: &dyn DiskFile, path: &Path) -> Result<(Vec<Holder>, Vec<u8>)> {
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
