//! Two trees side by side, name by name.

use std::cmp::Ordering;
use std::ffi::{CStr, OsString};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use rustix::fs::Stat;

use crate::error::Step;
use crate::{Change, ChangeKind, NodeKind, SysError, dir};

/// The order in which change lists are told: by the bytes of the path, a deletion before an addition in its place.
pub(crate) fn by_path(a: &Change, b: &Change) -> Ordering {
    let rank = |c: &Change| match c.kind {
        ChangeKind::Deleted => 0,
        ChangeKind::Modified => 1,
        ChangeKind::Added => 2,
    };
    a.path.as_os_str().as_bytes().cmp(b.path.as_os_str().as_bytes()).then(rank(a).cmp(&rank(b)))
}

/// One name that stands in both trees, as the same kind of thing, no directory.
pub(crate) struct Pair<'a> {
    pub base: (BorrowedFd<'a>, &'a Stat),
    pub tree: (BorrowedFd<'a>, &'a Stat),
    pub name: &'a CStr,
}

/// Decides whether the two are the same.
pub(crate) type Same<'a> = &'a dyn Fn(&Pair) -> Result<bool, SysError>;

/// What `stat` can tell: true if mode, owner, size and mtime agree.
pub(crate) fn looks_same(a: &Stat, b: &Stat) -> bool {
    let sight = |s: &Stat| (s.st_mode, s.st_uid, s.st_gid, s.st_rdev, s.st_size, dir::mtime(s));
    sight(a) == sight(b)
}

/// Everything that differs between `base` and `tree`.
pub(crate) fn walk(base: BorrowedFd, tree: BorrowedFd, same: Same) -> Result<Vec<Change>, SysError> {
    let mut walk = Walk { same, path: Vec::new(), out: Vec::new() };
    walk.both(base, tree, 0)?;
    Ok(walk.out)
}

struct Walk<'a> {
    same: Same<'a>,
    path: Vec<u8>,
    out: Vec<Change>,
}

impl Walk<'_> {
    fn tell(&mut self, kind: ChangeKind, node: NodeKind) {
        self.out.push(Change { path: PathBuf::from(OsString::from_vec(self.path.clone())), kind, node });
    }

    fn both(&mut self, base: BorrowedFd, tree: BorrowedFd, depth: usize) -> Result<(), SysError> {
        if depth > dir::MAX_DEPTH {
            return Err(dir::too_deep()).step("read a directory");
        }
        let mut names = dir::names(base).step("read a directory")?;
        names.extend(dir::names(tree).step("read a directory")?);
        names.sort();
        names.dedup();
        for name in names {
            let before = dir::push(&mut self.path, &name);
            self.one(base, tree, &name, depth)?;
            self.path.truncate(before);
        }
        Ok(())
    }

    /// The path to `name` is already in `self.path`.
    fn one(&mut self, base: BorrowedFd, tree: BorrowedFd, name: &CStr, depth: usize) -> Result<(), SysError> {
        let (old, new) = (stat_opt(base, name)?, stat_opt(tree, name)?);
        match (old, new) {
            (None, None) => {}
            (Some(old), None) => self.alone(base, name, ChangeKind::Deleted, &old, depth)?,
            (None, Some(new)) => self.alone(tree, name, ChangeKind::Added, &new, depth)?,
            (Some(old), Some(new)) if dir::kind(&old) != dir::kind(&new) => {
                self.alone(base, name, ChangeKind::Deleted, &old, depth)?;
                self.alone(tree, name, ChangeKind::Added, &new, depth)?;
            }
            (Some(old), Some(new)) if dir::kind(&new) == NodeKind::Dir => {
                if (old.st_mode, old.st_uid, old.st_gid) != (new.st_mode, new.st_uid, new.st_gid) {
                    self.tell(ChangeKind::Modified, NodeKind::Dir);
                }
                let open = |at| dir::open(at, name).step("open a directory");
                let (old, new) = (open(base)?, open(tree)?);
                self.both(old.as_fd(), new.as_fd(), depth + 1)?;
            }
            (Some(old), Some(new)) => {
                if !(self.same)(&Pair { base: (base, &old), tree: (tree, &new), name })? {
                    self.tell(ChangeKind::Modified, dir::kind(&new));
                }
            }
        }
        Ok(())
    }

    fn alone(&mut self, at: BorrowedFd, name: &CStr, kind: ChangeKind, stat: &Stat, depth: usize) -> Result<(), SysError> {
        let node = dir::kind(stat);
        self.tell(kind, node);
        if node != NodeKind::Dir {
            return Ok(());
        }
        if depth > dir::MAX_DEPTH {
            return Err(dir::too_deep()).step("read a directory");
        }
        let Some(child) = dir::open_opt(at, name).step("open a directory")? else { return Ok(()) };
        for name in dir::names(&child).step("read a directory")? {
            let before = dir::push(&mut self.path, &name);
            if let Some(stat) = stat_opt(child.as_fd(), &name)? {
                self.alone(child.as_fd(), &name, kind, &stat, depth + 1)?;
            }
            self.path.truncate(before);
        }
        Ok(())
    }
}

pub(crate) fn stat_opt(at: BorrowedFd, name: &CStr) -> Result<Option<Stat>, SysError> {
    match dir::stat(at, name) {
        Ok(stat) => Ok(Some(stat)),
        Err(rustix::io::Errno::NOENT) => Ok(None),
        Err(e) => Err(e).step("stat an entry"),
    }
}
