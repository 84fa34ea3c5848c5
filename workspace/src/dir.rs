//! Directories by descriptor. Nothing here follows a link or leaves the directory that it was given.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use rustix::path::Arg;

use crate::error::{ProgramError, StepContext};
use crate::{ErrorReason, NodeKind, SysError};

/// Nothing deeper is read, because each level takes descriptors and a stack frame.
pub(crate) const MAX_DEPTH: usize = 256;

/// Opens a directory below `at`, through no link and into no other mount.
pub(crate) fn open(at: impl AsFd, path: impl Arg) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
    rustix::fs::openat2(at, path, flags, Mode::empty(), resolve)
}

/// Opens a regular file below `at` for reading, through no link and into no other mount.
pub(crate) fn open_file(at: impl AsFd, path: impl Arg) -> rustix::io::Result<OwnedFd> {
    // With NONBLOCK a FIFO in the place of the file does not block the call.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
    rustix::fs::openat2(at, path, flags, Mode::empty(), resolve)
}

/// Like [`open`]; `None` if it is missing.
pub(crate) fn open_opt(at: impl AsFd, path: impl Arg) -> rustix::io::Result<Option<OwnedFd>> {
    match open(at, path) {
        Ok(fd) => Ok(Some(fd)),
        Err(Errno::NOENT) => Ok(None),
        Err(e) => Err(e),
    }
}

/// So many bytes of names are read at once.
const PORTION: usize = 32 << 10;

/// Calls `each` for every name in a directory without the dots, in no order. `failed` makes the error of a directory that cannot be read.
///
/// An agent decides how many names there are, so a portion of them is in memory at a time. A folder whose names fit into one is closed before
/// the first of them is visited: of a deep tree, few folders are open twice. Of names that come or go meanwhile some may be missed.
pub(crate) fn visit_names<E>(dir: impl AsFd, failed: impl Fn(Errno) -> E, mut each: impl FnMut(&CStr) -> Result<(), E>) -> Result<(), E> {
    let mut stream = Some(Dir::read_from(dir).map_err(&failed)?);
    while let Some(mut open) = stream.take() {
        let mut portion = Vec::new();
        while portion.len() < PORTION {
            let Some(entry) = open.read() else { break };
            let entry = entry.map_err(&failed)?;
            if entry.file_name() != c"." && entry.file_name() != c".." {
                portion.extend_from_slice(entry.file_name().to_bytes_with_nul());
            }
        }
        stream = (portion.len() >= PORTION).then_some(open);
        let mut names = portion.split_inclusive(|b| *b == 0).filter_map(|name| CStr::from_bytes_with_nul(name).ok());
        names.try_for_each(&mut each)?;
    }
    Ok(())
}

/// [`visit_names`]; an error of the directory names `step`.
pub(crate) fn for_each_name(dir: impl AsFd, step: &'static str, each: impl FnMut(&CStr) -> Result<(), SysError>) -> Result<(), SysError> {
    visit_names(dir, |error| SysError { step, source: error.into() }, each)
}

pub(crate) fn stat(at: impl AsFd, name: &CStr) -> rustix::io::Result<Stat> {
    rustix::fs::statat(at, name, AtFlags::SYMLINK_NOFOLLOW)
}

pub(crate) fn kind(stat: &Stat) -> NodeKind {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => NodeKind::File,
        FileType::Directory => NodeKind::Dir,
        FileType::Symlink => NodeKind::Symlink,
        _ => NodeKind::Special,
    }
}

/// Seconds and nanoseconds.
pub(crate) fn mtime(stat: &Stat) -> (i64, u64) {
    #[allow(clippy::unnecessary_cast)] // The fields' types differ by target.
    (stat.st_mtime as i64, stat.st_mtime_nsec as u64)
}

/// Seconds and nanoseconds.
pub(crate) fn ctime(stat: &Stat) -> (i64, u64) {
    #[allow(clippy::unnecessary_cast)] // The fields' types differ by target.
    (stat.st_ctime as i64, stat.st_ctime_nsec as u64)
}

/// How many names a file has.
#[allow(clippy::unnecessary_cast)] // The field's type differs by target.
pub(crate) fn links(stat: &Stat) -> u64 {
    stat.st_nlink as u64
}

pub(crate) fn too_deep() -> io::Error {
    refuse_depth(format!("the tree is deeper than {MAX_DEPTH} levels"))
}

fn refuse_depth(text: String) -> io::Error {
    io::Error::other(ProgramError { reason: ErrorReason::TreeTooDeep, text })
}

/// Fails if [`walk`] would, and names a folder in which the levels are. `step` is what the caller is about to do.
pub(crate) fn refuse_too_deep(root: BorrowedFd, step: &'static str) -> Result<(), SysError> {
    walk(root, &mut |entry| {
        let mut parts = entry.path.split(|b| *b == b'/');
        if entry.kind != NodeKind::Dir || parts.clone().count() <= MAX_DEPTH {
            return Ok(());
        }
        let top = String::from_utf8_lossy(parts.next().unwrap_or_default());
        Err(refuse_depth(format!("the tree is deeper than {MAX_DEPTH} levels in its folder {top:?}"))).step(step)
    })
}

/// One entry that [`walk`] visits.
pub(crate) struct WalkEntry<'a> {
    pub parent: BorrowedFd<'a>,
    pub name: &'a CStr,
    /// Relative to the root of the walk.
    pub path: &'a [u8],
    pub stat: Stat,
    pub kind: NodeKind,
}

/// Visits everything below `root`, depth first, a directory before its content, siblings in no order. Errors: [`too_deep`].
pub(crate) fn walk(root: BorrowedFd, visit: &mut dyn FnMut(&WalkEntry) -> Result<(), SysError>) -> Result<(), SysError> {
    descend(root, &mut Vec::new(), 0, visit)
}

fn descend(
    dir: BorrowedFd,
    path: &mut Vec<u8>,
    depth: usize,
    visit: &mut dyn FnMut(&WalkEntry) -> Result<(), SysError>,
) -> Result<(), SysError> {
    if depth > MAX_DEPTH {
        return Err(too_deep()).step("read a directory");
    }
    for_each_name(dir, "read a directory", |name| {
        let stat = match stat(dir, name) {
            Ok(stat) => stat,
            // Somebody removed it after the directory was read.
            Err(Errno::NOENT) => return Ok(()),
            Err(e) => return Err(e).step("stat an entry"),
        };
        let kind = kind(&stat);
        let before = push_component(path, name);
        visit(&WalkEntry { parent: dir, name, path, stat, kind })?;
        if kind == NodeKind::Dir {
            match open(dir, name) {
                Ok(child) => descend(child.as_fd(), path, depth + 1, visit)?,
                Err(Errno::NOENT) => {}
                Err(e) => return Err(e).step("open a directory"),
            }
        }
        path.truncate(before);
        Ok(())
    })
}

/// Appends a component and returns the length to truncate to afterwards.
pub(crate) fn push_component(path: &mut Vec<u8>, name: &CStr) -> usize {
    let before = path.len();
    if before > 0 {
        path.push(b'/');
    }
    path.extend_from_slice(name.to_bytes());
    before
}
