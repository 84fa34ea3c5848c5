//! The interface to the disk. The crate reaches a disk in no other way.

use std::{ffi::OsString, fmt, io, path::Path};

mod memory;
mod real;

pub use memory::{DiskFault, MemoryDisk, Retained};
pub use real::RealDisk;

/// How a file is opened. All modes but `Read` may read and write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// The file has to exist. It is only read.
    Read,
    /// The file has to exist.
    Write,
    /// The file must not exist.
    CreateNew,
    /// The file may exist, and keeps its content.
    Create,
}

/// A file system as far as this crate needs one. Each operation fails as its system call does.
pub trait Disk: fmt::Debug + Send + Sync {
    /// Opens a file.
    ///
    /// # Errors
    /// The system's.
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn DiskFile>>;
    /// Creates one folder, unless it is there already. Its parent has to exist.
    ///
    /// # Errors
    /// The system's.
    fn create_dir(&self, path: &Path) -> io::Result<()>;
    /// Returns the names in a folder, in no order.
    ///
    /// # Errors
    /// The system's.
    fn list(&self, dir: &Path) -> io::Result<Vec<OsString>>;
    /// Renames a file. It replaces a file at `to`.
    ///
    /// # Errors
    /// The system's.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    ///
    /// # Errors
    /// The system's; `NotFound` when it is not there.
    fn remove_file(&self, path: &Path) -> io::Result<()>;
    /// Makes the names in a folder durable.
    ///
    /// # Errors
    /// The system's.
    fn fsync_dir(&self, dir: &Path) -> io::Result<()>;
}

/// An open file. Each operation fails as its system call does.
#[expect(clippy::len_without_is_empty, reason = "a length on the disk, not a collection")]
pub trait DiskFile: fmt::Debug + Send + Sync {
    /// Returns the length in bytes.
    ///
    /// # Errors
    /// The system's.
    fn len(&self) -> io::Result<u64>;
    /// Reads from offset `at` and returns how many bytes it read. They may be fewer than the buffer holds; 0 is the end of the file.
    ///
    /// # Errors
    /// The system's.
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize>;
    /// Writes at offset `at` and returns how many bytes it wrote. They may be fewer than given.
    ///
    /// # Errors
    /// The system's.
    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<usize>;
    /// Sets the length in bytes. A file that grows is filled with zeros.
    ///
    /// # Errors
    /// The system's.
    fn truncate(&self, len: u64) -> io::Result<()>;
    /// Makes content and length durable.
    ///
    /// # Errors
    /// The system's. The content may then be lost although it can still be read.
    fn fdatasync(&self) -> io::Result<()>;
    /// Makes all of the file durable, but not its name.
    ///
    /// # Errors
    /// As [`Self::fdatasync`].
    fn fsync(&self) -> io::Result<()>;
    /// Takes an exclusive lock without waiting, and returns whether it did. The lock ends when the file is closed.
    ///
    /// # Errors
    /// The system's.
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

/// Reads the bytes `from..to`, or fewer when the file ends before.
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
