//! Change lists of overlays.
//!
//! Since its base, an overlay differs where its upper layer has a name, and where a file of the base that has several names was written
//! under another of them. So only the upper layer is visited, and what it moved.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::Stat;

use super::merged::{Layers, MergedDir, Shown, is_same_dir, open_dir_opt};
use crate::change_list::ChangeCollector;
use crate::compare::{self, stat_opt};
use crate::error::StepContext;
use crate::faults::Faults;
use crate::{ChangeKind, ChangeLimits, NodeKind, PlantedFault, SysError, dir};

/// Lists what differs between an overlay and its base. Returns false, and has listed nothing, if more than `most` files with several names were
/// written: what the overlay shows has to be compared then.
pub(super) fn since_base(
    (entry, base): (&OwnedFd, &OwnedFd),
    most: usize,
    limits: &ChangeLimits,
    faults: &dyn Faults,
    out: &mut ChangeCollector,
) -> Result<bool, SysError> {
    let Some(mut layers) = Layers::open(entry, base, most)? else { return Ok(false) };
    layers.ignores_redirects = faults.has(PlantedFault::RedirectIgnored);
    let mut comparison = Comparison { layers: &layers, limits, path: Vec::new(), out };
    comparison.compare_dirs(&layers.root(), Some(&layers.lower), 0)?;
    comparison.compare_indexed()?;
    Ok(true)
}

/// Lists what differs between any two trees, of which at least one is an overlay. A file that both have from one base has the same inode
/// number and ctime in both.
pub(super) fn between(tree: BorrowedFd, base: BorrowedFd, limits: &ChangeLimits, out: &mut ChangeCollector) -> Result<(), SysError> {
    let same = |pair: &compare::Pair| {
        let (old, new) = (pair.base.1, pair.tree.1);
        let is_one_file = old.st_ino == new.st_ino && dir::ctime(old) == dir::ctime(new);
        Ok(compare::same_metadata(old, new) && (is_one_file || compare::same_data(pair, limits)?))
    };
    compare::compare_all(base, tree, &same, out)
}

struct Comparison<'a, 'b> {
    layers: &'a Layers,
    limits: &'a ChangeLimits<'a>,
    path: Vec<u8>,
    out: &'a mut ChangeCollector<'b>,
}

impl Comparison<'_, '_> {
    fn push(&mut self, kind: ChangeKind, stat: &Stat) {
        self.out.push(&self.path, kind, dir::kind(stat));
    }

    /// Calls `act` with the path of `name`.
    fn below<T>(&mut self, name: &CStr, act: impl FnOnce(&mut Self) -> Result<T, SysError>) -> Result<T, SysError> {
        self.out.visit()?;
        let before = dir::push_component(&mut self.path, name);
        let result = act(self);
        self.path.truncate(before);
        result
    }

    /// True at the greatest depth, where a directory is named and not entered.
    fn is_too_deep(&mut self, depth: usize) -> bool {
        if depth > dir::MAX_DEPTH {
            self.out.push_too_deep(&self.path);
        }
        depth > dir::MAX_DEPTH
    }

    /// Compares a directory of the overlay with the one of the base at the same path.
    fn compare_dirs(&mut self, tree: &MergedDir, base: Option<&Arc<OwnedFd>>, depth: usize) -> Result<(), SysError> {
        if self.is_too_deep(depth) {
            return Ok(());
        }
        if is_same_dir(tree.lower.as_ref(), base)? {
            // Whatever the upper directory does not name is as it was.
            let Some(upper) = tree.upper.clone() else { return Ok(()) };
            return dir::for_each_name(&*upper, "read a directory", |name| {
                self.below(name, |walk| walk.compare_name(tree, base, name, depth))
            });
        }
        tree.for_each_name(self.layers, |name| self.below(name, |walk| walk.compare_name(tree, base, name, depth)))?;
        let Some(base) = base else { return Ok(()) };
        dir::for_each_name(&**base, "read a directory", |name| {
            self.below(name, |walk| match walk.layers.get(tree, name)? {
                Some(_) => Ok(()),
                None => walk.push_deleted(base, name, depth),
            })
        })
    }

    fn compare_name(&mut self, tree: &MergedDir, base: Option<&Arc<OwnedFd>>, name: &CStr, depth: usize) -> Result<(), SysError> {
        let new = self.layers.get(tree, name)?;
        let old = match base {
            Some(base) => stat_opt(base.as_fd(), name)?.map(|stat| (base, stat)),
            None => None,
        };
        match (old, new) {
            (None, None) => Ok(()),
            (Some((base, _)), None) => self.push_deleted(base, name, depth),
            (None, Some(new)) => self.push_added(tree, name, &new, depth),
            (Some((base, old)), Some(new)) if dir::kind(&old) != dir::kind(&new.stat) => {
                self.push_deleted(base, name, depth)?;
                self.push_added(tree, name, &new, depth)
            }
            (Some((base, old)), Some(new)) if dir::kind(&old) == NodeKind::Dir => {
                if (old.st_mode, old.st_uid, old.st_gid) != (new.stat.st_mode, new.stat.st_uid, new.stat.st_gid) {
                    self.push(ChangeKind::Modified, &new.stat);
                }
                let (tree, base) = (self.layers.open_dir(tree, name)?, open_dir_opt(base.as_fd(), name)?.map(Arc::new));
                self.compare_dirs(&tree, base.as_ref(), depth + 1)
            }
            (Some((base, old)), Some(new)) => self.compare_files(base, name, &old, &new),
        }
    }

    fn compare_files(&mut self, base: &Arc<OwnedFd>, name: &CStr, old: &Stat, new: &Shown) -> Result<(), SysError> {
        if (old.st_dev, old.st_ino) == (new.stat.st_dev, new.stat.st_ino) {
            return Ok(());
        }
        let is_same = compare::same_metadata(old, &new.stat)
            && compare::same_data_of((base.as_fd(), name), (new.at.as_fd(), &new.name), dir::kind(old), self.limits)?;
        if !is_same {
            self.push(ChangeKind::Modified, &new.stat);
        }
        Ok(())
    }

    fn push_added(&mut self, tree: &MergedDir, name: &CStr, new: &Shown, depth: usize) -> Result<(), SysError> {
        self.push(ChangeKind::Added, &new.stat);
        if dir::kind(&new.stat) != NodeKind::Dir {
            return Ok(());
        }
        let tree = self.layers.open_dir(tree, name)?;
        if self.is_too_deep(depth + 1) {
            return Ok(());
        }
        tree.for_each_name(self.layers, |name| {
            self.below(name, |walk| match walk.layers.get(&tree, name)? {
                Some(new) => walk.push_added(&tree, name, &new, depth + 1),
                None => Ok(()),
            })
        })
    }

    fn push_deleted(&mut self, base: &Arc<OwnedFd>, name: &CStr, depth: usize) -> Result<(), SysError> {
        let Some(old) = stat_opt(base.as_fd(), name)? else { return Ok(()) };
        self.push(ChangeKind::Deleted, &old);
        if dir::kind(&old) != NodeKind::Dir {
            return Ok(());
        }
        let Some(base) = open_dir_opt(base.as_fd(), name)?.map(Arc::new) else { return Ok(()) };
        if self.is_too_deep(depth + 1) {
            return Ok(());
        }
        dir::for_each_name(&*base, "read a directory", |name| self.below(name, |walk| walk.push_deleted(&base, name, depth + 1)))
    }

    /// Compares the names that nobody wrote to, of files that were written under another name. Those in directories that the upper layer
    /// moved or replaced were compared already.
    fn compare_indexed(&mut self) -> Result<(), SysError> {
        let (layers, limits) = (self.layers, self.limits);
        layers.for_each_indexed_path(&|| limits.check(), |path| self.compare_indexed_path(path))
    }

    fn compare_indexed_path(&mut self, path: &[u8]) -> Result<(), SysError> {
        let parts: Vec<CString> =
            path.split(|b| *b == b'/').map(CString::new).collect::<Result<_, _>>().map_err(std::io::Error::other).step("read a path")?;
        let Some((name, parents)) = parts.split_last() else { return Ok(()) };
        let (mut tree, mut base) = (self.layers.root(), self.layers.lower.clone());
        for part in parents {
            match self.layers.get(&tree, part)? {
                Some(shown) if dir::kind(&shown.stat) == NodeKind::Dir => {}
                _ => return Ok(()),
            }
            tree = self.layers.open_dir(&tree, part)?;
            let Some(next) = open_dir_opt(base.as_fd(), &**part)? else { return Ok(()) };
            base = Arc::new(next);
            if !is_same_dir(tree.lower.as_ref(), Some(&base))? {
                return Ok(());
            }
        }
        self.path = path.to_vec();
        self.compare_name(&tree, Some(&base), name, 0)
    }
}
