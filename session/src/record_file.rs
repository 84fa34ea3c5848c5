//! Files that hold one framed record and are replaced whole.

use std::path::Path;

use serde::{Serialize, de::DeserializeOwned};

use crate::{
    Damage, Error, Result,
    disk::{Disk, DiskFile, OpenMode, read_range, write_all},
    frame,
};

/// Puts one framed record at `dir/name`. The record is durable on return; after an error the file holds the old record or the new one, and
/// what was written beside it is removed, so that it takes no room of a full volume.
pub(crate) fn write<T: Serialize>(disk: &dyn Disk, dir: &Path, name: &str, record: &T) -> Result<()> {
    let (path, new) = (dir.join(name), dir.join(format!("{name}.tmp")));
    let mut line = Vec::new();
    frame::encode(record, &mut line).map_err(|source| Error::Encode { file: path.clone(), source })?;
    if let Err(error) = put(disk, &new, &path, &line) {
        // A volume that refuses this too is cleared at the next start.
        let _ = disk.remove_file(&new);
        return Err(error);
    }
    disk.fsync_dir(dir).map_err(Error::disk("sync", dir))
}

fn put(disk: &dyn Disk, new: &Path, path: &Path, line: &[u8]) -> Result<()> {
    let file = disk.open(new, OpenMode::Create).map_err(Error::disk("open", new))?;
    file.truncate(0).map_err(Error::disk("empty", new))?;
    write_all(&*file, line, 0).map_err(Error::disk("write", new))?;
    file.fsync().map_err(Error::disk("sync", new))?;
    disk.rename(new, path).map_err(Error::disk("put in place", path))
}

/// Reads the record of a file that [`write`] wrote. `path` is for errors.
pub(crate) fn read<T: DeserializeOwned>(file: &dyn DiskFile, path: &Path) -> Result<T> {
    let bytes = file.len().and_then(|len| read_range(file, 0, len)).map_err(Error::disk("read", path))?;
    decode(&bytes).map_err(|what| Error::Damaged { file: path.to_owned(), line: 1, what })
}

fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Damage> {
    let line = bytes.strip_suffix(b"\n").ok_or(Damage::Frame)?;
    if line.contains(&b'\n') { Err(Damage::Trailing) } else { frame::decode(line) }
}
