//! Disks with planted faults, which the harness of the fault tests has to find.

use std::{
    ffi::OsString,
    io,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use yoi_session::disk::{Disk, DiskFile, OpenMode};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlantedFault {
    None,
    /// A sync of file content does nothing, as if an append were acknowledged before its sync.
    NoSync,
    /// A sync of a folder does nothing.
    NoDirSync,
    /// A sync of the inbox's folder does nothing, as if a message were accepted before that sync.
    NoInboxSync,
    /// A failed write to a log is tried again at the end of the file, without cutting what it left.
    RetriedWrite,
    /// A failed sync is tried again, and the second result counts.
    RetriedSync,
    /// A failed sync returns success.
    SwallowedSync,
    /// A write of bytes that can be read there already is skipped, as if opening did not write the last append again.
    SameAgain,
}

#[derive(Debug)]
pub struct PlantedDisk {
    pub disk: Arc<dyn Disk>,
    pub planted: PlantedFault,
}

impl Disk for PlantedDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn DiskFile>> {
        let planted = if self.planted == PlantedFault::RetriedWrite && path.extension() != Some("jsonl".as_ref()) {
            PlantedFault::None
        } else {
            self.planted
        };
        Ok(Box::new(PlantedFile { file: self.disk.open(path, mode)?, planted, shift: AtomicU64::new(0) }))
    }
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.disk.create_dir(path)
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
        let skipped = self.planted == PlantedFault::NoDirSync || (self.planted == PlantedFault::NoInboxSync && dir.ends_with("inbox"));
        if skipped { Ok(()) } else { self.disk.fsync_dir(dir) }
    }
}

#[derive(Debug)]
struct PlantedFile {
    file: Box<dyn DiskFile>,
    planted: PlantedFault,
    /// By how many bytes writes are shifted since one was tried again.
    shift: AtomicU64,
}

impl PlantedFile {
    fn sync(&self, sync: impl Fn(&dyn DiskFile) -> io::Result<()>) -> io::Result<()> {
        match self.planted {
            PlantedFault::SwallowedSync => sync(&*self.file).or(Ok(())),
            PlantedFault::RetriedSync => sync(&*self.file).or_else(|_| sync(&*self.file)),
            PlantedFault::NoSync
            | PlantedFault::None
            | PlantedFault::NoDirSync
            | PlantedFault::NoInboxSync
            | PlantedFault::RetriedWrite
            | PlantedFault::SameAgain => sync(&*self.file),
        }
    }
}

impl DiskFile for PlantedFile {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        self.file.read_at(buffer, at)
    }
    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<usize> {
        if self.planted == PlantedFault::SameAgain {
            let mut there = vec![0; bytes.len()];
            if self.file.read_at(&mut there, at)? == bytes.len() && there == bytes {
                return Ok(bytes.len());
            }
        }
        let shifted = at + self.shift.load(Ordering::Relaxed);
        match self.file.write_at(bytes, shifted) {
            Err(_) if self.planted == PlantedFault::RetriedWrite => {
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
        if self.planted == PlantedFault::NoSync { Ok(()) } else { self.sync(|file| file.fdatasync()) }
    }
    fn fsync(&self) -> io::Result<()> {
        self.sync(|file| file.fsync())
    }
    fn try_lock(&self) -> io::Result<bool> {
        self.file.try_lock()
    }
}
