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

use yoi_session::{
    disk::{Disk, DiskFile, OpenMode},
    frame,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlantedFault {
    None,
    /// A sync of file content does nothing, as if an append were acknowledged before its sync.
    NoSync,
    /// A sync of a folder does nothing.
    NoDirSync,
    /// A sync of the inbox's folder does nothing, as if a message were accepted before that sync.
    NoInboxSync,
    /// Neither a new segment nor its name is synced before the pointer names it.
    PointerFirst,
    /// The last segment is the one with the greatest name.
    OrderByName,
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
    /// How many segments were made.
    pub made: AtomicU64,
}

impl PlantedDisk {
    /// Puts the greatest name into the pointer.
    fn point_to_greatest(&self, path: &Path) -> io::Result<()> {
        let file = self.disk.open(path, OpenMode::Write)?;
        let mut line = vec![0; usize::try_from(file.len()?).unwrap()];
        file.read_at(&mut line, 0)?;
        let mut pointer: serde_json::Value = serde_json::from_slice(&line)?;
        let dir = path.with_file_name("sessions").join(pointer["session"].as_str().unwrap());
        let names = self.disk.list(&dir)?.into_iter().filter_map(|name| Some(name.to_str()?.strip_suffix(".jsonl")?.to_owned()));
        pointer["segment"] = names.max().into();
        pointer.as_object_mut().unwrap().remove("crc");
        line.clear();
        frame::encode(&pointer, &mut line)?;
        file.write_at(&line, 0).map(drop)
    }
}

impl Disk for PlantedDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn DiskFile>> {
        if self.planted == PlantedFault::OrderByName && mode == OpenMode::Read && path.ends_with("current.json") {
            let _ = self.point_to_greatest(path);
        }
        let is_segment = path.extension() == Some("jsonl".as_ref());
        if is_segment && mode == OpenMode::CreateNew && self.made.fetch_add(1, Ordering::Relaxed) > 0 {
            let file = self.disk.open(path, mode)?;
            return Ok(Box::new(PlantedFile { file, planted: self.planted, shift: AtomicU64::new(0) }));
        }
        let planted = if self.planted == PlantedFault::RetriedWrite && path.extension() != Some("jsonl".as_ref()) {
            PlantedFault::None
        } else if self.planted == PlantedFault::PointerFirst {
            // The fault is in the making of a segment.
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
        let is_session = dir.parent().is_some_and(|parent| parent.ends_with("sessions"));
        let skipped = skipped || (self.planted == PlantedFault::PointerFirst && is_session && self.made.load(Ordering::Relaxed) > 1);
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
            | PlantedFault::PointerFirst
            | PlantedFault::OrderByName
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
        if self.planted == PlantedFault::PointerFirst { Ok(()) } else { self.sync(|file| file.fsync()) }
    }
    fn try_lock(&self) -> io::Result<bool> {
        self.file.try_lock()
    }
}
