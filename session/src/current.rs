//! Which session the agent has, and which segment is its last: `current.json`. Its rename is what makes a new segment count.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{
    Error, Lock, Result,
    disk::{Disk, OpenMode},
    record_file,
};

const FILE: &str = "current.json";

/// What `current.json` names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pointer {
    /// The session of the agent.
    pub session: Uuid,
    /// Its last segment; absent in what a runtime of format 1 wrote, whose segments are in the order of their names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segment: Option<Uuid>,
}

/// Returns the session of the agent whose volume this is, or `None` on a new volume. It needs no lock, because the file is replaced whole.
///
/// # Errors
/// The disk's, or [`Error::Damaged`].
pub fn read(disk: &dyn Disk, root: &Path) -> Result<Option<Uuid>> {
    Ok(pointer(disk, root)?.map(|pointer| pointer.session))
}

/// Returns all that the file names, as [`read`] does.
///
/// # Errors
/// The disk's, or [`Error::Damaged`].
pub fn pointer(disk: &dyn Disk, root: &Path) -> Result<Option<Pointer>> {
    let path = path(root);
    match disk.open(&path, OpenMode::Read) {
        Ok(file) => Ok(Some(record_file::read(&*file, &path)?)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::disk("open", &path)(error)),
    }
}

/// Makes `session` the agent's and `segment` its last one, durably. The caller creates its log first: whoever reads the name opens the log.
///
/// # Errors
/// The disk's. The file then names what it named before, or the new ones.
pub fn write(lock: &Lock, session: Uuid, segment: Uuid) -> Result<()> {
    record_file::write(&**lock.disk(), lock.root(), FILE, &Pointer { session, segment: Some(segment) })
}

pub(crate) fn path(root: &Path) -> PathBuf {
    root.join(FILE)
}
