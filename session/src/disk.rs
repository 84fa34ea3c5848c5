//! The seam to the disk: everything that this crate does to one goes through here.

use std::{ffi::OsString, fmt, io, path::Path};

mod memory;
mod real;

pub use memory::{DiskFault, MemoryDisk, Retained};
pub use real::RealDisk;

/// How a file is opened. All but `Read` may read and write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// It has to exist.
    Read,
    /// It has to exist.
    Write,
    /// It must not exist.
    CreateNew,
    /// It may exist, and keeps its content.
    Create,
}

pub trait Disk: fmt::Debug + Send + Sync {
    /// # Errors
    /// As the system says; so for all of these.
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn DiskFile>>;
    /// One level; a folder that is there already is well.
    fn create_dir(&self, path: &Path) -> io::Result<()>;
    /// Names in a folder, in no order.
    fn list(&self, dir: &Path) -> io::Result<Vec<OsString>>;
    /// Replaces what stood at `to`.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    fn remove_file(&self, path: &Path) -> io::Result<()>;
    /// Makes the names in a folder durable.
    fn fsync_dir(&self, dir: &Path) -> io::Result<()>;
}

#[expect(clippy::len_without_is_empty, reason = "a length on the disk, not a collection")]
pub trait DiskFile: fmt::Debug + Send + Sync {
    /// # Errors
    /// As the system says; so for all of these.
    fn len(&self) -> io::Result<u64>;
    /// May read less than asked for; 0 at the end.
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize>;
    /// May write less than asked for.
    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<usize>;
    fn truncate(&self, len: u64) -> io::Result<()>;
    /// Content and length are durable on return.
    fn fdatasync(&self) -> io::Result<()>;
    /// All of the file is durable on return, but its name.
    fn fsync(&self) -> io::Result<()>;
    /// Exclusive, without waiting; `false` when someone else holds it. Held until the file is closed.
    fn try_lock(&self) -> io::Result<bool>;
}

pub(crate) fn write_all(file: &dyn DiskFile, mut bytes: &[u8], mut at: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.write_at(bytes, at) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                bytes = &bytes[written..];
                at += written as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads `from..to`, or less when the file ends before.
pub(crate) fn read_range(file: &dyn DiskFile, from: u64, to: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(to.saturating_sub(from)).map_err(io::Error::other)?];
    let mut done = 0;
    while done < bytes.len() {
        match file.read_at(&mut bytes[done..], from + done as u64) {
            Ok(0) => break,
            Ok(read) => done += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(done);
    Ok(bytes)
}
