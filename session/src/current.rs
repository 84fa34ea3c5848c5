//! Which session the agent has: `current.json`.

use std::path::Path;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{
    Damage, Error, Lock, Result,
    disk::{Disk, OpenMode, read_range, write_all},
    frame,
};

#[derive(Serialize, Deserialize)]
struct Current {
    session: Uuid,
}

/// The session of the agent whose volume this is; `None` on a new volume. Needs no lock: the file is replaced whole.
///
/// # Errors
/// The disk's, or [`Error::Damaged`].
pub fn read(disk: &dyn Disk, root: &Path) -> Result<Option<Uuid>> {
    let path = root.join("current.json");
    let file = match disk.open(&path, OpenMode::Read) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::disk("open", &path)(error)),
    };
    let bytes = file.len().and_then(|len| read_range(&*file, 0, len)).map_err(Error::disk("read", &path))?;
    match only_line(&bytes).and_then(frame::decode::<Current>) {
        Ok(current) => Ok(Some(current.session)),
        Err(what) => Err(Error::Damaged { file: path, line: 1, what }),
    }
}

/// Makes `session` the agent's, durably. Its log has to be there: whoever reads the name opens the log.
///
/// # Errors
/// The disk's. The old name or the new one stands, never half of one.
pub fn write(lock: &Lock, session: Uuid) -> Result<()> {
    replace(&**lock.disk(), lock.root(), "current.json", &Current { session })
}

/// Puts one framed record at `dir/name`, whole and durable, or leaves what was there.
pub(crate) fn replace<T: Serialize>(disk: &dyn Disk, dir: &Path, name: &str, record: &T) -> Result<()> {
    let (path, new) = (dir.join(name), dir.join(format!("{name}.tmp")));
    let mut line = Vec::new();
    frame::encode(record, &mut line).map_err(|source| Error::Encode { file: path.clone(), source })?;
    let file = disk.open(&new, OpenMode::Create).map_err(Error::disk("open", &new))?;
    file.truncate(0).map_err(Error::disk("empty", &new))?;
    write_all(&*file, &line, 0).map_err(Error::disk("write", &new))?;
    file.fsync().map_err(Error::disk("sync", &new))?;
    disk.rename(&new, &path).map_err(Error::disk("put in place", &path))?;
    disk.fsync_dir(dir).map_err(Error::disk("sync", dir))
}

/// The one line of a file that [`replace`] wrote.
pub(crate) fn only_line(bytes: &[u8]) -> Result<&[u8], Damage> {
    let line = bytes.strip_suffix(b"\n").ok_or(Damage::Frame)?;
    if line.contains(&b'\n') { Err(Damage::Trailing) } else { Ok(line) }
}
