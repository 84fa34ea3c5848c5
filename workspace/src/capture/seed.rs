//! Copies a folder that somebody may be writing to, and notices it.

use std::collections::HashMap;
use std::ffi::{CStr, OsStr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::Stat;
use rustix::io::Errno;

use crate::error::StepContext;
use crate::faults::{FaultPoint, Faults};
use crate::set_digest::SetDigest;
use crate::tree_copy::{Data, TreeCopy, copy_xattrs, set_metadata};
use crate::{CaptureMethod, Captured, ChangeLimits, HostFolder, NodeKind, PlantedFault, SysError, compare, dir};

/// Before Linux 6.13 two writes within one tick of the kernel give a file the same ctime. A tick is at most so long, in nanoseconds.
const TICK: i128 = 10_000_000;
/// What a file system without parts of a second gives as its tick, in nanoseconds; FAT and some servers of NFS have two seconds.
const WHOLE_SECONDS: i128 = 2_000_000_000;

/// Why a copy was given up.
pub(super) enum Stop {
    /// This path changed meanwhile.
    Changed(PathBuf),
    /// At this path is another volume.
    Nested(PathBuf),
    Failed(SysError),
}

impl From<SysError> for Stop {
    fn from(error: SysError) -> Self {
        Stop::Failed(error)
    }
}

/// A complete copy.
pub(super) struct Seeded {
    shared: u64,
    copied: u64,
    why_copied: Option<SysError>,
}

impl Seeded {
    /// What the marker says of it; `why` there is no snapshot.
    pub fn describe(self, why: &str) -> Captured {
        let Seeded { shared, copied, why_copied } = self;
        let how = if copied == 0 { CaptureMethod::Reflinked } else { CaptureMethod::Copied };
        let rest = match why_copied {
            None => String::new(),
            Some(error) if shared == 0 => format!("; no file could share its blocks: {}", error.source),
            Some(error) => format!("; {copied} of {} files could not share their blocks: {}", copied + shared, error.source),
        };
        Captured { how, why: format!("{why}{rest}") }
    }
}

/// Fills the empty folder `tree` with all that is in `source`.
pub(super) fn fill(source: &HostFolder, tree: BorrowedFd, data: Data, faults: &dyn Faults) -> Result<Seeded, Stop> {
    let root = source.stat()?;
    // The clock that ctimes are made of.
    let begun = dir::ctime(&rustix::fs::fstat(tree).step("stat the tree")?);
    let copy = TreeCopy::new(tree, source.dir.as_fd(), root.st_dev, data);
    let (folders, late) = (Folders::default(), LateFiles::default());
    let mut pass = Pass { copy, root: tree, device: root.st_dev, begun, folders, late, faults };
    pass.copy_folder(source.dir.as_fd(), tree, &root, &mut Vec::new(), 0)?;
    pass.copy.finish()?;
    set_metadata(tree, &root)?;
    if !faults.has(PlantedFault::TornFileKept) {
        pass.look_again(source, &root)?;
    }
    let TreeCopy { shared, copied, why_copied, .. } = pass.copy;
    Ok(Seeded { shared, copied, why_copied })
}

/// So many folders are remembered by their paths, in some 7 MB. That one of the others changed is noticed, but not which.
const MAX_NAMED_FOLDERS: usize = 50_000;

/// What was found in each folder.
#[derive(Default)]
struct Folders {
    all: SetDigest,
    /// By the hash of its path.
    named: HashMap<blake3::Hash, SetDigest>,
}

impl Folders {
    fn add(&mut self, path: &[u8], found: SetDigest) {
        let path = blake3::hash(path);
        self.all.add(of_folder(path, found));
        if self.named.len() < MAX_NAMED_FOLDERS {
            self.named.insert(path, found);
        }
    }

    /// Whether this is another content than was found in the folder of this path.
    fn differs(&self, path: &[u8], found: SetDigest) -> bool {
        match self.named.get(&blake3::hash(path)) {
            Some(before) => *before != found,
            // It is new, or one too many to be remembered.
            None => self.named.len() < MAX_NAMED_FOLDERS,
        }
    }
}

fn of_folder(path: blake3::Hash, found: SetDigest) -> blake3::Hash {
    let mut hash = blake3::Hasher::new();
    hash.update(path.as_bytes()).update(found.hash().as_bytes());
    hash.finalize()
}

/// Files that were written when the pass began, or later. A ctime does not tell whether they were written again.
#[derive(Default)]
struct LateFiles {
    paths: Vec<PathBuf>,
    bytes: usize,
}

/// More bytes of paths of such files are not remembered: then the folder is being written.
const MAX_LATE_BYTES: usize = 512 << 10;

impl LateFiles {
    fn add(&mut self, path: &[u8]) -> Result<(), Stop> {
        self.bytes += size_of::<PathBuf>() + path.len();
        if self.bytes > MAX_LATE_BYTES {
            return Err(Stop::Changed(path_of(path)));
        }
        self.paths.push(path_of(path));
        Ok(())
    }
}

struct Pass<'a> {
    copy: TreeCopy<'a>,
    root: BorrowedFd<'a>,
    device: u64,
    begun: (i64, u64),
    folders: Folders,
    late: LateFiles,
    faults: &'a dyn Faults,
}

impl Pass<'_> {
    /// Copies what is in `from`; `stat` is that of `from`, `path` its path from the root.
    fn copy_folder(&mut self, from: BorrowedFd, to: BorrowedFd, stat: &Stat, path: &mut Vec<u8>, depth: usize) -> Result<(), Stop> {
        if depth > dir::MAX_DEPTH {
            return Err(failed(dir::too_deep(), "copy a directory"));
        }
        let mut found = SetDigest::default();
        dir::visit_names(from, unreadable, |name| {
            let before = dir::push_component(path, name);
            let stat = stat_of(from, name, path)?;
            found.add(facts_of(name, &stat));
            match dir::kind(&stat) {
                NodeKind::Dir => {
                    let source = self.open_folder(from, name, &stat, path)?;
                    rustix::fs::mkdirat(to, name, rustix::fs::Mode::RWXU).step("make a directory")?;
                    let target = dir::open(to, name).step("open a directory")?;
                    self.copy_folder(source.as_fd(), target.as_fd(), &stat, path, depth + 1)?;
                }
                NodeKind::File | NodeKind::Symlink | NodeKind::Special => self.copy_file(from, to, name, &stat, path)?,
            }
            path.truncate(before);
            Ok(())
        })?;
        self.folders.add(path, found);
        copy_xattrs(from, to)?;
        Ok(set_metadata(to, stat)?)
    }

    fn open_folder(&self, from: BorrowedFd, name: &CStr, stat: &Stat, path: &[u8]) -> Result<OwnedFd, Stop> {
        if stat.st_dev != self.device {
            return Err(Stop::Nested(path_of(path)));
        }
        match dir::open(from, name) {
            Ok(source) => Ok(source),
            Err(Errno::XDEV) => Err(Stop::Nested(path_of(path))),
            Err(Errno::NOENT | Errno::LOOP | Errno::NOTDIR) => Err(Stop::Changed(path_of(path))),
            Err(e) => Err(failed(e, "open a directory")),
        }
    }

    fn copy_file(&mut self, from: BorrowedFd, to: BorrowedFd, name: &CStr, stat: &Stat, path: &[u8]) -> Result<(), Stop> {
        let done = self.copy.copy_entry(from, to, name, stat);
        self.faults.on_point(FaultPoint::HostFileCopied);
        if self.faults.has(PlantedFault::TornFileKept) {
            return Ok(done?);
        }
        // First: what was exchanged or is gone fails to be copied in many ways.
        if facts(&stat_of(from, name, path)?) != facts(stat) {
            return Err(Stop::Changed(path_of(path)));
        }
        done?;
        if dir::kind(stat) == NodeKind::File && is_late(dir::ctime(stat), self.begun) {
            self.late.add(path)?;
        }
        Ok(())
    }

    /// Looks at everything again. Errors: `Changed` if anything differs from what was copied.
    fn look_again(&self, source: &HostFolder, root: &Stat) -> Result<(), Stop> {
        for path in &self.late.paths {
            let changed = || Stop::Changed(path.clone());
            let copied = dir::open_file(self.root, path).step("open a file")?;
            let now = dir::open_file(&source.dir, path).map_err(|_| changed())?;
            if !compare::same_content(&now, &copied, &ChangeLimits::NONE)? {
                return Err(changed());
            }
        }
        let mut again = SetDigest::default();
        self.look_again_in(source.dir.as_fd(), &mut again, &mut Vec::new())?;
        match facts(&source.stat()?) == facts(root) && again == self.folders.all {
            true => Ok(()),
            false => Err(Stop::Changed(".".into())),
        }
    }

    /// Adds what is found in a folder, and in those below it, to `again`.
    fn look_again_in(&self, folder: BorrowedFd, again: &mut SetDigest, path: &mut Vec<u8>) -> Result<(), Stop> {
        let mut found = SetDigest::default();
        dir::visit_names(folder, unreadable, |name| {
            let stat = stat_of(folder, name, path)?;
            found.add(facts_of(name, &stat));
            if dir::kind(&stat) == NodeKind::Dir {
                let before = dir::push_component(path, name);
                let child = dir::open(folder, name).map_err(|_| Stop::Changed(path_of(path)))?;
                self.look_again_in(child.as_fd(), again, path)?;
                path.truncate(before);
            }
            Ok(())
        })?;
        if self.folders.differs(path, found) {
            return Err(Stop::Changed(path_of(if path.is_empty() { b"." } else { path })));
        }
        again.add(of_folder(blake3::hash(path), found));
        Ok(())
    }
}

/// What differs once a file, or the names in a folder, were written, exchanged or given to somebody else.
fn facts(stat: &Stat) -> [u64; 10] {
    let ((mtime, mtime_nanos), (ctime, ctime_nanos)) = (dir::mtime(stat), dir::ctime(stat));
    let size = if dir::kind(stat) == NodeKind::Dir { 0 } else { stat.st_size as u64 };
    let owner = u64::from(stat.st_uid) << 32 | u64::from(stat.st_gid);
    [stat.st_dev, stat.st_ino, stat.st_mode.into(), owner, size, mtime as u64, mtime_nanos, ctime as u64, ctime_nanos, stat.st_rdev]
}

fn facts_of(name: &CStr, stat: &Stat) -> blake3::Hash {
    let mut hash = blake3::Hasher::new();
    hash.update(name.to_bytes_with_nul());
    facts(stat).iter().for_each(|fact| _ = hash.update(&fact.to_le_bytes()));
    hash.finalize()
}

fn unreadable(error: Errno) -> Stop {
    failed(error, "read a directory")
}

fn stat_of(folder: BorrowedFd, name: &CStr, path: &[u8]) -> Result<Stat, Stop> {
    match dir::stat(folder, name) {
        Ok(stat) => Ok(stat),
        Err(Errno::NOENT) => Err(Stop::Changed(path_of(path))),
        Err(e) => Err(failed(e, "stat an entry")),
    }
}

fn failed(error: impl Into<std::io::Error>, step: &'static str) -> Stop {
    Stop::Failed(SysError { step, source: error.into() })
}

fn is_late(ctime: (i64, u64), begun: (i64, u64)) -> bool {
    let nanos = |(seconds, nanos): (i64, u64)| i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
    let tick = if ctime.1 == 0 { WHOLE_SECONDS } else { TICK };
    nanos(ctime) + tick >= nanos(begun)
}

fn path_of(path: &[u8]) -> PathBuf {
    Path::new(OsStr::from_bytes(path)).to_owned()
}
