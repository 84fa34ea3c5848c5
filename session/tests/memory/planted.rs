//! Disks that lie. A harness that does not find them out finds nothing.

use std::{
    ffi::OsString,
    io,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use yoi_session::disk::{Disk, DiskFile, Mode};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    None,
    /// Says of an append "synced" and has not: what an acknowledgement before the sync is.
    NoSync,
    /// Says "synced" of folders and has not.
    NoDirSync,
    /// Says "synced" of the inbox's folder and has not: what an acceptance before that sync is.
    NoInboxSync,
    /// Writes to a log once more, at its end, what failed to be written, without cutting what is there of it.
    RetriedWrite,
    /// Syncs once more when a sync has failed, and believes that one.
    RetriedSync,
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
        let lie = if self.lie == Lie::RetriedWrite && path.extension() != Some("jsonl".as_ref()) { Lie::None } else { self.lie };
        Ok(Box::new(LiarFile { file: self.disk.open(path, mode)?, lie, shift: AtomicU64::new(0) }))
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
        let left_out = self.lie == Lie::NoDirSync || (self.lie == Lie::NoInboxSync && dir.ends_with("inbox"));
        if left_out { Ok(()) } else { self.disk.fsync_dir(dir) }
    }
}

#[derive(Debug)]
struct LiarFile {
    file: Box<dyn DiskFile>,
    lie: Lie,
    /// By how much all writes come later, since one was retried.
    shift: AtomicU64,
}

impl LiarFile {
    fn sync(&self, sync: impl Fn(&dyn DiskFile) -> io::Result<()>) -> io::Result<()> {
        match self.lie {
            Lie::SwallowedSync => sync(&*self.file).or(Ok(())),
            Lie::RetriedSync => sync(&*self.file).or_else(|_| sync(&*self.file)),
            Lie::NoSync | Lie::None | Lie::NoDirSync | Lie::NoInboxSync | Lie::RetriedWrite | Lie::SameAgain => sync(&*self.file),
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
        let shifted = at + self.shift.load(Ordering::Relaxed);
        match self.file.write_at(bytes, shifted) {
            Err(_) if self.lie == Lie::RetriedWrite => {
                let end = self.file.len()?;
                self.shift.store(end - at, Ordering::Relaxed);
                self.file.write_at(bytes, end)
            }
            done => done,
        }
    }
    fn truncate(&self, len: u64) -> io::Result<()> {
        self.file.truncate(len + self.shift.load(Ordering::Relaxed))
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
