//! Compares two trees, name by name. A directory is read entry by entry and never held whole: an agent decides how many names it has.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{SeekFrom, Stat};
use rustix::io::Errno;

use crate::change_list::ChangeCollector;
use crate::error::StepContext;
use crate::{ChangeKind, ChangeLimits, NodeKind, SysError, dir};

/// A path that is in both trees with the same type, and not a directory.
pub(crate) struct Pair<'a> {
    /// Parent directory and `stat` in the base.
    pub base: (BorrowedFd<'a>, &'a Stat),
    pub tree: (BorrowedFd<'a>, &'a Stat),
    pub name: &'a CStr,
}

/// Decides whether the two are the same.
pub(crate) type IsSame<'a> = &'a dyn Fn(&Pair) -> Result<bool, SysError>;

/// True if mode, owner, device number, size and mtime agree.
pub(crate) fn same_metadata(a: &Stat, b: &Stat) -> bool {
    let metadata = |s: &Stat| (s.st_mode, s.st_uid, s.st_gid, s.st_rdev, s.st_size, dir::mtime(s));
    metadata(a) == metadata(b)
}

/// True if two files with the same metadata have the same content.
pub(crate) fn same_data(pair: &Pair, limits: &ChangeLimits) -> Result<bool, SysError> {
    same_data_of((pair.base.0, pair.name), (pair.tree.0, pair.name), dir::kind(pair.tree.1), limits)
}

/// The same for two files of one type, each in its own directory.
pub(crate) fn same_data_of(
    base: (BorrowedFd, &CStr),
    tree: (BorrowedFd, &CStr),
    kind: NodeKind,
    limits: &ChangeLimits,
) -> Result<bool, SysError> {
    match kind {
        NodeKind::File => {
            let open = |(at, name): (BorrowedFd, &CStr)| dir::open_file(at, name).step("open a file");
            same_content(&open(base)?, &open(tree)?, limits)
        }
        NodeKind::Symlink => {
            let read = |(at, name): (BorrowedFd, &CStr)| rustix::fs::readlinkat(at, name, Vec::new()).step("read a link");
            Ok(read(base)? == read(tree)?)
        }
        NodeKind::Dir | NodeKind::Special => Ok(true),
    }
}

/// Compares data and skips what is a hole in both: an agent decides how large a hole is.
pub(crate) fn same_content(a: &OwnedFd, b: &OwnedFd, limits: &ChangeLimits) -> Result<bool, SysError> {
    let next_data = |file: &OwnedFd, at| match rustix::fs::seek(file, SeekFrom::Data(at)) {
        Ok(start) => Ok(Some(start)),
        Err(Errno::NXIO) => Ok(None),
        // The file system knows no holes.
        Err(Errno::INVAL) => Ok(Some(at)),
        Err(e) => Err(e).step("find data in a file"),
    };
    let size = |file: &OwnedFd| Ok::<_, SysError>(rustix::fs::fstat(file).step("stat a file")?.st_size);
    if size(a)? != size(b)? {
        return Ok(false);
    }
    let (mut left, mut right, mut at) = (vec![0; 128 << 10], vec![0; 128 << 10], 0);
    loop {
        // A file may be large, and slow to read.
        limits.check()?;
        at = match (next_data(a, at)?, next_data(b, at)?) {
            (None, None) => return Ok(true),
            (Some(one), Some(other)) => one.min(other),
            (one, other) => one.or(other).unwrap_or(at),
        };
        let n = read_at(a, &mut left, at)?;
        if n != read_at(b, &mut right, at)? || left[..n] != right[..n] {
            return Ok(false);
        }
        if n == 0 {
            return Ok(true);
        }
        at += n as u64;
    }
}

/// Reads as much as there is, up to the size of the buffer.
fn read_at(file: &OwnedFd, buffer: &mut [u8], at: u64) -> Result<usize, SysError> {
    let mut done = 0;
    while done < buffer.len() {
        match rustix::io::pread(file, &mut buffer[done..], at + done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(Errno::INTR) => {}
            Err(e) => return Err(e).step("read a file"),
        }
    }
    Ok(done)
}

/// Lists everything that differs between `base` and `tree`.
pub(crate) fn compare_all(base: BorrowedFd, tree: BorrowedFd, same: IsSame, out: &mut ChangeCollector) -> Result<(), SysError> {
    Comparison { same, enter: Enter::All, path: Vec::new(), out }.compare_dirs(base, tree, 0)
}

/// Lists everything in `tree` as added.
pub(crate) fn list_all(tree: BorrowedFd, out: &mut ChangeCollector) -> Result<(), SysError> {
    Comparison { same: &|_| Ok(true), enter: Enter::All, path: Vec::new(), out }.push_content(tree, ChangeKind::Added, 0)
}

/// Paths from the root of a tree at which something changed.
#[derive(Debug, Default)]
pub(crate) struct Paths {
    /// Directories of which the entries, or mode and owner, changed. The empty path is the root.
    pub dirs: BTreeSet<Vec<u8>>,
    pub files: BTreeSet<Vec<u8>>,
}

/// Lists everything that differs, given the paths in `tree` of every inode that changed. A file must have the same inode number in both
/// trees, and no other file that number. Some differences are listed twice.
pub(crate) fn compare_paths(
    base: BorrowedFd,
    tree: BorrowedFd,
    changed: &Paths,
    same: IsSame,
    out: &mut ChangeCollector,
) -> Result<(), SysError> {
    let mut walk = Comparison { same, enter: Enter::Replaced, path: Vec::new(), out };
    for path in &changed.dirs {
        if let Some((old, new)) = open_both(base, tree, path)? {
            walk.path.clone_from(path);
            walk.compare_dirs(old.as_fd(), new.as_fd(), 0)?;
        }
    }
    let split = |path: &Vec<u8>| match path.iter().rposition(|b| *b == b'/') {
        Some(slash) => (path[..slash].to_vec(), path[slash + 1..].to_vec()),
        None => (Vec::new(), path.clone()),
    };
    let mut by_parent: BTreeMap<Vec<u8>, Vec<Vec<u8>>> = BTreeMap::new();
    for (parent, name) in changed.files.iter().chain(&changed.dirs).filter(|p| !p.is_empty()).map(split) {
        by_parent.entry(parent).or_default().push(name);
    }
    for (parent, names) in by_parent {
        // If the parent is new or gone, the comparison of a directory above it has listed everything.
        let Some((old, new)) = open_both(base, tree, &parent)? else { continue };
        walk.path = parent;
        for name in names {
            let name = CString::new(name).map_err(std::io::Error::other).step("read a name")?;
            let before = dir::push_component(&mut walk.path, &name);
            walk.compare_name(old.as_fd(), new.as_fd(), &name, 0)?;
            walk.path.truncate(before);
        }
    }
    Ok(())
}

/// `path` from the folder `below`, if it lies there: a tree may be one folder of its volume.
pub(crate) fn path_below(below: &[u8], path: Vec<u8>) -> Option<Vec<u8>> {
    if below.is_empty() {
        return Some(path);
    }
    match path.strip_prefix(below)? {
        [] => Some(Vec::new()),
        [b'/', rest @ ..] => Some(rest.to_vec()),
        // A sibling whose name begins alike.
        _ => None,
    }
}

/// Opens the directory `path` in both trees; `None` if it is not a directory in both.
fn open_both(base: BorrowedFd, tree: BorrowedFd, path: &[u8]) -> Result<Option<(OwnedFd, OwnedFd)>, SysError> {
    let path = if path.is_empty() { b"." } else { path };
    let open = |at| match dir::open(at, path) {
        Ok(fd) => Ok(Some(fd)),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
        Err(e) => Err(e).step("open a directory"),
    };
    Ok(open(base)?.zip(open(tree)?))
}

/// Which of the directories that are in both trees are compared.
#[derive(Clone, Copy, PartialEq)]
enum Enter {
    All,
    /// Only those with another inode number: what changed in the others is known.
    Replaced,
}

struct Comparison<'a, 'b> {
    same: IsSame<'a>,
    enter: Enter,
    path: Vec<u8>,
    out: &'a mut ChangeCollector<'b>,
}

impl Comparison<'_, '_> {
    fn push(&mut self, kind: ChangeKind, node: NodeKind) {
        self.out.push(&self.path, kind, node);
    }

    /// Compares two directories. `self.path` is their path.
    fn compare_dirs(&mut self, base: BorrowedFd, tree: BorrowedFd, depth: usize) -> Result<(), SysError> {
        if depth > dir::MAX_DEPTH {
            self.out.push_too_deep(&self.path);
            return Ok(());
        }
        dir::for_each_name(tree, "read a directory", |name| {
            let before = dir::push_component(&mut self.path, name);
            self.compare_name(base, tree, name, depth)?;
            self.path.truncate(before);
            Ok(())
        })?;
        dir::for_each_name(base, "read a directory", |name| {
            self.out.visit()?;
            if stat_opt(tree, name)?.is_none()
                && let Some(old) = stat_opt(base, name)?
            {
                let before = dir::push_component(&mut self.path, name);
                self.push_all(base, name, ChangeKind::Deleted, &old, depth)?;
                self.path.truncate(before);
            }
            Ok(())
        })
    }

    /// Compares one name. `self.path` is already its path.
    fn compare_name(&mut self, base: BorrowedFd, tree: BorrowedFd, name: &CStr, depth: usize) -> Result<(), SysError> {
        self.out.visit()?;
        let (old, new) = (stat_opt(base, name)?, stat_opt(tree, name)?);
        match (old, new) {
            (None, None) => {}
            (Some(old), None) => self.push_all(base, name, ChangeKind::Deleted, &old, depth)?,
            (None, Some(new)) => self.push_all(tree, name, ChangeKind::Added, &new, depth)?,
            (Some(old), Some(new)) if dir::kind(&old) != dir::kind(&new) => {
                self.push_all(base, name, ChangeKind::Deleted, &old, depth)?;
                self.push_all(tree, name, ChangeKind::Added, &new, depth)?;
            }
            (Some(old), Some(new)) if dir::kind(&new) == NodeKind::Dir => {
                if (old.st_mode, old.st_uid, old.st_gid) != (new.st_mode, new.st_uid, new.st_gid) {
                    self.push(ChangeKind::Modified, NodeKind::Dir);
                }
                if self.enter == Enter::Replaced && old.st_ino == new.st_ino {
                    return Ok(());
                }
                let open = |at| dir::open(at, name).step("open a directory");
                let (old, new) = (open(base)?, open(tree)?);
                self.compare_dirs(old.as_fd(), new.as_fd(), depth + 1)?;
            }
            (Some(old), Some(new)) => {
                if !(self.same)(&Pair { base: (base, &old), tree: (tree, &new), name })? {
                    self.push(ChangeKind::Modified, dir::kind(&new));
                }
            }
        }
        Ok(())
    }

    /// Adds a path that is in one tree only, and everything below it.
    fn push_all(&mut self, at: BorrowedFd, name: &CStr, kind: ChangeKind, stat: &Stat, depth: usize) -> Result<(), SysError> {
        let node = dir::kind(stat);
        self.push(kind, node);
        if node != NodeKind::Dir {
            return Ok(());
        }
        match dir::open_opt(at, name).step("open a directory")? {
            Some(child) => self.push_content(child.as_fd(), kind, depth + 1),
            None => Ok(()),
        }
    }

    /// Adds everything below a directory whose path is `self.path`.
    fn push_content(&mut self, at: BorrowedFd, kind: ChangeKind, depth: usize) -> Result<(), SysError> {
        if depth > dir::MAX_DEPTH {
            self.out.push_too_deep(&self.path);
            return Ok(());
        }
        dir::for_each_name(at, "read a directory", |name| {
            self.out.visit()?;
            let before = dir::push_component(&mut self.path, name);
            if let Some(stat) = stat_opt(at, name)? {
                self.push_all(at, name, kind, &stat, depth)?;
            }
            self.path.truncate(before);
            Ok(())
        })
    }
}

pub(crate) fn stat_opt(at: BorrowedFd, name: &CStr) -> Result<Option<Stat>, SysError> {
    match dir::stat(at, name) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(e) => Err(e).step("stat an entry"),
    }
}
