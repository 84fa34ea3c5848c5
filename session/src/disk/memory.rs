//! A disk that remembers what was asked of it, fails when told to, and can lose power.
//!
//! It is stricter than any real one: names last only after their folder was synced, content only after the file was, and what a failed
//! sync leaves unwritten stays readable but is not written by the next sync either, as on Linux.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rustix::io::Errno;

use super::{Disk, DiskFile, Mode};
use inode::Inode;

mod inode;

/// How an operation fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskFault {
    Eio,
    Enospc,
    Edquot,
    Erofs,
    /// A read or write does half of what was asked and says so. Other operations do not fail.
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

/// What is left after a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survive {
    /// What was synced, and nothing else.
    Synced,
    /// All that was written.
    Written,
    /// What was synced, and of the rest some names, some lengths and some sectors, drawn from the seed.
    Some { seed: u64 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Node {
    Dir,
    File(usize),
}

#[derive(Debug, Default)]
struct World {
    /// Power cuts so far: handles from before one are dead.
    age: u64,
    handles: u64,
    names: BTreeMap<PathBuf, Node>,
    durable_names: BTreeMap<PathBuf, Node>,
    inodes: Vec<Inode>,
    locks: BTreeMap<usize, u64>,
    done: Vec<(&'static str, PathBuf)>,
    fault: Option<(usize, DiskFault, bool)>,
}

/// Clones are the same disk.
#[derive(Clone, Debug, Default)]
pub struct MemoryDisk(Arc<Mutex<World>>);

impl MemoryDisk {
    /// An empty disk with one folder.
    #[must_use]
    pub fn new(root: &Path) -> Self {
        let disk = Self::default();
        let mut world = disk.world();
        for dir in root.ancestors() {
            world.names.insert(dir.to_owned(), Node::Dir);
        }
        world.durable_names = world.names.clone();
        drop(world);
        disk
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fails the `nth` operation from now, counted from 1; every one from there on when `lasting`.
    pub fn fail(&self, nth: usize, fault: DiskFault, lasting: bool) {
        let mut world = self.world();
        world.fault = Some((world.done.len() + nth, fault, lasting));
    }

    pub fn heal(&self) {
        self.world().fault = None;
    }

    /// Every operation so far, those that failed included.
    #[must_use]
    pub fn done(&self) -> Vec<(&'static str, PathBuf)> {
        self.world().done.clone()
    }

    /// Cuts the power and turns it on again. Files that are open stay dead, locks are gone, faults are over.
    pub fn crash(&self, survive: Survive) {
        let mut world = self.world();
        let world = &mut *world;
        world.age += 1;
        world.locks.clear();
        world.fault = None;
        let mut dice = inode::Dice::new(survive);
        for inode in &mut world.inodes {
            inode.crash(survive, &mut dice);
        }
        let names = match survive {
            Survive::Synced => world.durable_names.clone(),
            Survive::Written => world.names.clone(),
            Survive::Some { .. } => {
                let dirs: Vec<PathBuf> = world.names.iter().filter(|(_, node)| **node == Node::Dir).map(|(dir, _)| dir.clone()).collect();
                for dir in dirs {
                    if dice.roll(2) == 0 && world.durable_names.contains_key(&dir) {
                        world.sync_names(&dir);
                    }
                }
                world.durable_names.clone()
            }
        };
        // A name in a folder that is gone is gone.
        world.names =
            names.iter().filter(|(path, _)| path.ancestors().all(|dir| names.contains_key(dir))).map(|(p, n)| (p.clone(), *n)).collect();
        world.durable_names = world.names.clone();
    }

    /// What a file holds.
    #[must_use]
    pub fn bytes(&self, path: &Path) -> Option<Vec<u8>> {
        let world = self.world();
        match world.names.get(path) {
            Some(Node::File(inode)) => Some(world.inodes[*inode].seen.clone()),
            Some(Node::Dir) | None => None,
        }
    }

    /// Puts `bytes` into a file behind everyone's back, durably.
    ///
    /// # Panics
    /// There is no such file.
    pub fn set_bytes(&self, path: &Path, bytes: &[u8]) {
        let mut world = self.world();
        let Some(Node::File(inode)) = world.names.get(path).copied() else { panic!("no file {}", path.display()) };
        world.inodes[inode] = Inode::holding(bytes);
    }
}

impl World {
    /// Remembers an operation; gives the fault that it shall have.
    fn did(&mut self, deed: &'static str, path: &Path) -> Option<DiskFault> {
        self.done.push((deed, path.to_owned()));
        let now = self.done.len();
        self.fault.filter(|(at, _, lasting)| now == *at || (*lasting && now > *at)).map(|(_, fault, _)| fault)
    }

    fn simple(&mut self, deed: &'static str, path: &Path) -> io::Result<()> {
        self.did(deed, path).and_then(DiskFault::error).map_or(Ok(()), Err)
    }

    fn dir(&self, path: Option<&Path>) -> io::Result<()> {
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
    fn open(&self, path: &Path, mode: Mode) -> io::Result<Box<dyn DiskFile>> {
        let mut world = self.world();
        world.simple("open", path)?;
        world.dir(path.parent())?;
        let inode = match (world.names.get(path), mode) {
            (Some(Node::Dir), _) => return Err(ErrorKind::IsADirectory.into()),
            (Some(Node::File(_)), Mode::CreateNew) => return Err(ErrorKind::AlreadyExists.into()),
            (Some(Node::File(inode)), Mode::Read | Mode::Write | Mode::Create) => *inode,
            (None, Mode::Read | Mode::Write) => return Err(ErrorKind::NotFound.into()),
            (None, Mode::CreateNew | Mode::Create) => {
                world.inodes.push(Inode::default());
                let inode = world.inodes.len() - 1;
                world.names.insert(path.to_owned(), Node::File(inode));
                inode
            }
        };
        world.handles += 1;
        let (age, handle) = (world.age, world.handles);
        drop(world);
        Ok(Box::new(MemoryFile { disk: self.clone(), path: path.to_owned(), inode, age, handle, writes: mode != Mode::Read }))
    }

    fn make_dir(&self, path: &Path) -> io::Result<()> {
        let mut world = self.world();
        world.simple("make_dir", path)?;
        world.dir(path.parent())?;
        world.names.entry(path.to_owned()).or_insert(Node::Dir);
        world.dir(Some(path))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<OsString>> {
        let mut world = self.world();
        world.simple("list", dir)?;
        world.dir(Some(dir))?;
        let here = world.names.keys().filter(|path| path.parent() == Some(dir));
        Ok(here.filter_map(|path| path.file_name().map(OsString::from)).collect())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut world = self.world();
        world.simple("rename", to)?;
        world.dir(to.parent())?;
        let node = world.names.remove(from).ok_or(ErrorKind::NotFound)?;
        world.names.insert(to.to_owned(), node);
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let mut world = self.world();
        world.simple("remove_file", path)?;
        world.names.remove(path).map(drop).ok_or_else(|| ErrorKind::NotFound.into())
    }

    fn fsync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut world = self.world();
        world.simple("fsync_dir", dir)?;
        world.dir(Some(dir))?;
        world.sync_names(dir);
        Ok(())
    }
}

#[derive(Debug)]
struct MemoryFile {
    disk: MemoryDisk,
    path: PathBuf,
    inode: usize,
    age: u64,
    handle: u64,
    writes: bool,
}

impl MemoryFile {
    fn world(&self) -> io::Result<MutexGuard<'_, World>> {
        let world = self.disk.world();
        if world.age == self.age { Ok(world) } else { Err(Errno::STALE.into()) }
    }

    fn writable(&self) -> io::Result<()> {
        if self.writes { Ok(()) } else { Err(Errno::BADF.into()) }
    }

    fn sync(&self, deed: &'static str) -> io::Result<()> {
        let mut world = self.world()?;
        let fault = world.did(deed, &self.path).and_then(DiskFault::error);
        let inode = &mut world.inodes[self.inode];
        match fault {
            Some(error) => {
                inode.lose();
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
        let mut world = self.world()?;
        world.simple("len", &self.path)?;
        Ok(world.inodes[self.inode].seen.len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        let mut world = self.world()?;
        let fault = world.did("read_at", &self.path);
        if let Some(error) = fault.and_then(DiskFault::error) {
            return Err(error);
        }
        let seen = &world.inodes[self.inode].seen;
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
        let mut world = self.world()?;
        let fault = world.did("write_at", &self.path);
        // Also a write that fails may have got half way.
        let count = if fault.is_some() { bytes.len().div_ceil(2) } else { bytes.len() };
        world.inodes[self.inode].write(usize::try_from(at).map_err(io::Error::other)?, &bytes[..count]);
        fault.and_then(DiskFault::error).map_or(Ok(count), Err)
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.writable()?;
        let mut world = self.world()?;
        world.simple("truncate", &self.path)?;
        world.inodes[self.inode].truncate(usize::try_from(len).map_err(io::Error::other)?);
        Ok(())
    }

    fn fdatasync(&self) -> io::Result<()> {
        self.sync("fdatasync")
    }

    fn fsync(&self) -> io::Result<()> {
        self.sync("fsync")
    }

    fn try_lock(&self) -> io::Result<bool> {
        let mut world = self.world()?;
        world.simple("try_lock", &self.path)?;
        Ok(*world.locks.entry(self.inode).or_insert(self.handle) == self.handle)
    }
}

impl Drop for MemoryFile {
    fn drop(&mut self) {
        let mut world = self.disk.world();
        if world.age == self.age && world.locks.get(&self.inode) == Some(&self.handle) {
            world.locks.remove(&self.inode);
        }
    }
}
