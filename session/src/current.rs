//! Which session the agent has: `current.json`.

use std::path::Path;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{
    Error, Lock, Result,
    disk::{Disk, OpenMode},
    record_file,
};

const FILE: &str = "current.json";

#[derive(Serialize, Deserialize)]
struct Current {
    session: Uuid,
}

/// Returns the session of the agent whose volume this is, or `None` on a new volume. It needs no lock, because the file is replaced whole.
///
/// # Errors
/// The disk's, or [`Error::Damaged`].
pub fn read(disk: &dyn Disk, root: &Path) -> Result<Option<Uuid>> {
    let path = root.join(FILE);
    match disk.open(&path, OpenMode::Read) {
        Ok(file) => Ok(Some(record_file::read::<Current>(&*file, &path)?.session)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::disk("open", &path)(error)),
    }
}

/// Makes `session` the agent's, durably. The caller creates its log first: whoever reads the name opens the log.
///
/// # Errors
/// The disk's. The file then names the old session or the new one.
pub fn write(lock: &Lock, session: Uuid) -> Result<()> {
    record_file::write(&**lock.disk(), lock.root(), FILE, &Current { session })
}
