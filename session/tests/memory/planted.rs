//! Disks that lie. A harness that does not find them out finds nothing.

use std::{ffi::OsString, io, path::Path, sync::Arc};

use yoi_session::disk::{Disk, DiskFile, Mode};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    None,
    /// Says of an append "synced" and has not: what an acknowledgement before the sync is.
    NoSync,
    /// Says "synced" of folders and has not.
    NoDirSync,
    /// Takes a failed sync for a good one.
    SwallowedSync,
    /// Leaves out a write of what can be read there already: what opening without writing the last append again is.
    SameAgain,
}

#[derive(Debug)]
pub struct Liar {
    pub disk: Arc<dyn Disk>,
    pub lie: Lie,
}

impl Disk for Liar {
    fn open(&self, path: &Path, mode: Mode) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(LiarFile { file: self.disk.open(path, mode)?, lie: self.lie }))
    }
    fn make_dir(&self, path: &Path) -> io::Result<()> {
        self.disk.make_dir(path)
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<OsString>> {
        self.disk.list(dir)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }
    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.disk.remove_file(path)
    }
    fn fsync_dir(&self, dir: &Path) -> io::Result<()> {
        if self.lie == Lie::NoDirSync { Ok(()) } else { self.disk.fsync_dir(dir) }
    }
}

#[derive(Debug)]
struct LiarFile {
    file: Box<dyn DiskFile>,
    lie: Lie,
}

impl LiarFile {
    fn sync(&self, sync: impl FnOnce(&dyn DiskFile) -> io::Result<()>) -> io::Result<()> {
        match self.lie {
            Lie::SwallowedSync => sync(&*self.file).or(Ok(())),
            Lie::NoSync | Lie::None | Lie::NoDirSync | Lie::SameAgain => sync(&*self.file),
        }
    }
}

impl DiskFile for LiarFile {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        self.file.read_at(buffer, at)
    }
    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<usize> {
        if self.lie == Lie::SameAgain {
            let mut there = vec![0; bytes.len()];
            if self.file.read_at(&mut there, at)? == bytes.len() && there == bytes {
                return Ok(bytes.len());
            }
        }
        self.file.write_at(bytes, at)
    }
    fn truncate(&self, len: u64) -> io::Result<()> {
        self.file.truncate(len)
    }
    fn fdatasync(&self) -> io::Result<()> {
        if self.lie == Lie::NoSync { Ok(()) } else { self.sync(|file| file.fdatasync()) }
    }
    fn fsync(&self) -> io::Result<()> {
        self.sync(|file| file.fsync())
    }
    fn try_lock(&self) -> io::Result<bool> {
        self.file.try_lock()
    }
}
