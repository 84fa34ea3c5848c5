//! A disk in memory, for tests. It records each operation, injects faults and simulates power cuts.
//!
//! It is stricter than any real disk. A name survives a power cut only after its folder was synced, and content only after its file was.
//! What a failed sync did not write stays readable, but the next sync does not write it either, as on Linux.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rustix::io::Errno;

use super::{Disk, DiskFile, OpenMode};
use inode::Inode;

mod inode;

/// How an operation fails. The names are those of errno.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskFault {
    /// Input or output error.
    Eio,
    /// No space is left.
    Enospc,
    /// The quota is used up.
    Edquot,
    /// The file system is read-only.
    Erofs,
    /// A read or write handles half of the bytes and returns their number. Other operations succeed.
    Short,
}

impl DiskFault {
    fn error(self) -> Option<io::Error> {
        let errno = match self {
            Self::Eio => Errno::IO,
            Self::Enospc => Errno::NOSPC,
            Self::Edquot => Errno::DQUOT,
            Self::Erofs => Errno::ROFS,
            Self::Short => return None,
        };
        Some(errno.into())
    }
}

/// What a power cut leaves on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retained {
    /// Only what was synced.
    Synced,
    /// All that was written.
    Written,
    /// What was synced, and at random some names, some lengths and some sectors of the rest.
    Random {
        /// The same seed leaves the same.
        seed: u64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Node {
    Dir,
    File(usize),
}

#[derive(Debug, Default)]
struct DiskState {
    /// Number of power cuts. A file that was opened before the last one is stale.
    power_cuts: u64,
    handles: u64,
    names: BTreeMap<PathBuf, Node>,
    durable_names: BTreeMap<PathBuf, Node>,
    inodes: Vec<Inode>,
    locks: BTreeMap<usize, u64>,
    operations: Vec<(&'static str, PathBuf)>,
    fault: Option<(usize, DiskFault, bool)>,
}

/// A disk in memory. Clones are the same disk.
#[derive(Clone, Debug, Default)]
pub struct MemoryDisk(Arc<Mutex<DiskState>>);

impl MemoryDisk {
    /// Returns an empty disk with the folder `root`.
    #[must_use]
    pub fn new(root: &Path) -> Self {
        let disk = Self::default();
        let mut state = disk.state();
        for dir in root.ancestors() {
            state.names.insert(dir.to_owned(), Node::Dir);
        }
        state.durable_names = state.names.clone();
        drop(state);
        disk
    }

    fn state(&self) -> MutexGuard<'_, DiskState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the `nth` operation from now fail, counted from 1. When `lasting`, all later ones fail too.
    pub fn fail(&self, nth: usize, fault: DiskFault, lasting: bool) {
        let mut state = self.state();
        state.fault = Some((state.operations.len() + nth, fault, lasting));
    }

    /// Ends the faults of [`MemoryDisk::fail`].
    pub fn clear_fault(&self) {
        self.state().fault = None;
    }

    /// Returns the name and the path of each operation so far, failed ones included.
    #[must_use]
    pub fn operations(&self) -> Vec<(&'static str, PathBuf)> {
        self.state().operations.clone()
    }

    /// Cuts the power and turns it on again. Open files become stale, locks and faults end.
    pub fn crash(&self, retained: Retained) {
        let mut state = self.state();
        let state = &mut *state;
        state.power_cuts += 1;
        state.locks.clear();
        state.fault = None;
        let mut rng = inode::Rng::new(retained);
        for inode in &mut state.inodes {
            inode.crash(retained, &mut rng);
        }
        let names = match retained {
            Retained::Synced => state.durable_names.clone(),
            Retained::Written => state.names.clone(),
            Retained::Random { .. } => {
                let dirs: Vec<PathBuf> = state.names.iter().filter(|(_, node)| **node == Node::Dir).map(|(dir, _)| dir.clone()).collect();
                for dir in dirs {
                    if rng.below(2) == 0 && state.durable_names.contains_key(&dir) {
                        state.sync_names(&dir);
                    }
                }
                state.durable_names.clone()
            }
        };
        // A name is lost with its folder.
        state.names =
            names.iter().filter(|(path, _)| path.ancestors().all(|dir| names.contains_key(dir))).map(|(p, n)| (p.clone(), *n)).collect();
        state.durable_names = state.names.clone();
    }

    /// Returns the content of a file, or `None` when there is no such file. It is not recorded as an operation.
    #[must_use]
    pub fn bytes(&self, path: &Path) -> Option<Vec<u8>> {
        let state = self.state();
        match state.names.get(path) {
            Some(Node::File(inode)) => Some(state.inodes[*inode].content.clone()),
            Some(Node::Dir) | None => None,
        }
    }

    /// Replaces the content of a file, durably. It is not recorded as an operation.
    ///
    /// # Panics
    /// When there is no such file.
    pub fn set_bytes(&self, path: &Path, bytes: &[u8]) {
        let mut state = self.state();
        let Some(Node::File(inode)) = state.names.get(path).copied() else { panic!("no file {}", path.display()) };
        state.inodes[inode] = Inode::with_durable(bytes);
    }
}

impl DiskState {
    /// Records an operation and returns the fault that it has to have.
    fn record(&mut self, operation: &'static str, path: &Path) -> Option<DiskFault> {
        self.operations.push((operation, path.to_owned()));
        let now = self.operations.len();
        self.fault.filter(|(at, _, lasting)| now == *at || (*lasting && now > *at)).map(|(_, fault, _)| fault)
    }

    fn record_or_fail(&mut self, operation: &'static str, path: &Path) -> io::Result<()> {
        self.record(operation, path).and_then(DiskFault::error).map_or(Ok(()), Err)
    }

    fn expect_dir(&self, path: Option<&Path>) -> io::Result<()> {
        match path.and_then(|path| self.names.get(path)) {
            Some(Node::Dir) => Ok(()),
            Some(Node::File(_)) => Err(ErrorKind::NotADirectory.into()),
            None => Err(ErrorKind::NotFound.into()),
        }
    }

    fn sync_names(&mut self, dir: &Path) {
        self.durable_names.retain(|path, _| path.parent() != Some(dir) || self.names.contains_key(path));
        let now: Vec<_> = self.names.iter().filter(|(path, _)| path.parent() == Some(dir)).map(|(p, n)| (p.clone(), *n)).collect();
        self.durable_names.extend(now);
    }
}

impl Disk for MemoryDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.state();
        state.record_or_fail("open", path)?;
        state.expect_dir(path.parent())?;
        let inode = match (state.names.get(path), mode) {
            (Some(Node::Dir), _) => return Err(ErrorKind::IsADirectory.into()),
            (Some(Node::File(_)), OpenMode::CreateNew) => return Err(ErrorKind::AlreadyExists.into()),
            (Some(Node::File(inode)), OpenMode::Read | OpenMode::Write | OpenMode::Create) => *inode,
            (None, OpenMode::Read | OpenMode::Write) => return Err(ErrorKind::NotFound.into()),
            (None, OpenMode::CreateNew | OpenMode::Create) => {
                state.inodes.push(Inode::default());
                let inode = state.inodes.len() - 1;
                state.names.insert(path.to_owned(), Node::File(inode));
                inode
            }
        };
        state.handles += 1;
        let (power_cuts, handle) = (state.power_cuts, state.handles);
        drop(state);
        Ok(Box::new(MemoryFile { disk: self.clone(), path: path.to_owned(), inode, power_cuts, handle, can_write: mode != OpenMode::Read }))
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.record_or_fail("create_dir", path)?;
        state.expect_dir(path.parent())?;
        state.names.entry(path.to_owned()).or_insert(Node::Dir);
        state.expect_dir(Some(path))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<OsString>> {
        let mut state = self.state();
        state.record_or_fail("list", dir)?;
        state.expect_dir(Some(dir))?;
        let here = state.names.keys().filter(|path| path.parent() == Some(dir));
        Ok(here.filter_map(|path| path.file_name().map(OsString::from)).collect())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.record_or_fail("rename", to)?;
        state.expect_dir(to.parent())?;
        let node = state.names.remove(from).ok_or(ErrorKind::NotFound)?;
        state.names.insert(to.to_owned(), node);
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.record_or_fail("remove_file", path)?;
        state.names.remove(path).map(drop).ok_or_else(|| ErrorKind::NotFound.into())
    }

    fn fsync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.record_or_fail("fsync_dir", dir)?;
        state.expect_dir(Some(dir))?;
        state.sync_names(dir);
        Ok(())
    }
}

#[derive(Debug)]
struct MemoryFile {
    disk: MemoryDisk,
    path: PathBuf,
    inode: usize,
    power_cuts: u64,
    handle: u64,
    can_write: bool,
}

impl MemoryFile {
    fn state(&self) -> io::Result<MutexGuard<'_, DiskState>> {
        let state = self.disk.state();
        if state.power_cuts == self.power_cuts { Ok(state) } else { Err(Errno::STALE.into()) }
    }

    fn writable(&self) -> io::Result<()> {
        if self.can_write { Ok(()) } else { Err(Errno::BADF.into()) }
    }

    fn sync(&self, operation: &'static str) -> io::Result<()> {
        let mut state = self.state()?;
        let fault = state.record(operation, &self.path).and_then(DiskFault::error);
        let inode = &mut state.inodes[self.inode];
        match fault {
            Some(error) => {
                inode.fail_sync();
                Err(error)
            }
            None => {
                inode.sync();
                Ok(())
            }
        }
    }
}

impl DiskFile for MemoryFile {
    fn len(&self) -> io::Result<u64> {
        let mut state = self.state()?;
        state.record_or_fail("len", &self.path)?;
        Ok(state.inodes[self.inode].content.len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        let mut state = self.state()?;
        let fault = state.record("read_at", &self.path);
        if let Some(error) = fault.and_then(DiskFault::error) {
            return Err(error);
        }
        let seen = &state.inodes[self.inode].content;
        let from = usize::try_from(at).unwrap_or(usize::MAX).min(seen.len());
        let mut count = buffer.len().min(seen.len() - from);
        if fault.is_some() {
            count = count.div_ceil(2);
        }
        buffer[..count].copy_from_slice(&seen[from..from + count]);
        Ok(count)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<usize> {
        self.writable()?;
        let mut state = self.state()?;
        let fault = state.record("write_at", &self.path);
        // A write that fails may have written half of the bytes.
        let count = if fault.is_some() { bytes.len().div_ceil(2) } else { bytes.len() };
        state.inodes[self.inode].write(usize::try_from(at).map_err(io::Error::other)?, &bytes[..count]);
        fault.and_then(DiskFault::error).map_or(Ok(count), Err)
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.writable()?;
        let mut state = self.state()?;
        state.record_or_fail("truncate", &self.path)?;
        state.inodes[self.inode].truncate(usize::try_from(len).map_err(io::Error::other)?);
        Ok(())
    }

    fn fdatasync(&self) -> io::Result<()> {
        self.sync("fdatasync")
    }

    fn fsync(&self) -> io::Result<()> {
        self.sync("fsync")
    }

    fn try_lock(&self) -> io::Result<bool> {
        let mut state = self.state()?;
        state.record_or_fail("try_lock", &self.path)?;
        Ok(*state.locks.entry(self.inode).or_insert(self.handle) == self.handle)
    }
}

impl Drop for MemoryFile {
    fn drop(&mut self) {
        let mut state = self.disk.state();
        if state.power_cuts == self.power_cuts && state.locks.get(&self.inode) == Some(&self.handle) {
            state.locks.remove(&self.inode);
        }
    }
}
