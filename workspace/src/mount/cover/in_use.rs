//! Covers of a tree whose Pod runs: paths of it are closed and opened again while its processes work there.
//!
//! # Order
//! [`cover_in_use`] only closes, and [`uncover_in_use`] only opens, so whoever changes a view calls them in this order, each with the whole view as it is to be. At
//! no time a path is open that both views close. Where that cannot be had, the one refuses and the other leaves a path closed.

use std::collections::BTreeSet;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use serde::{Deserialize, Serialize};

use super::{Cover, CoverError, PublishedTree, Shown, is_cover, is_hidden, is_root, open_beneath};
use crate::SysError;
use crate::error::StepContext;
use crate::mount::TargetRoot;
use crate::mountinfo::{self, Location, Mount};

/// A cover as it lies over a tree.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LaidCover {
    /// Relative to the tree.
    pub path: PathBuf,
    /// What is seen there.
    pub shown: Shown,
}

/// The covers over the tree that is mounted at `target`, an absolute path, by the mount table: at each path the one on top, sorted by path.
#[must_use]
pub fn laid_covers(table: &[Mount], target: &Path) -> Vec<LaidCover> {
    let Some(mount) = table.iter().rfind(|mount| mount.mount_point == target) else { return Vec::new() };
    let tree = Location { device: mount.device.clone(), root: mount.root.clone(), path: target.to_owned() };
    let mut found: Vec<LaidCover> = Vec::new();
    for (mount, path) in covers_in(table, &tree) {
        found.retain(|other| other.path != path);
        found.push(LaidCover { path: path.to_owned(), shown: shown_by(mount) });
    }
    found.sort();
    found
}

/// Closes what this view closes and is open yet, the outer first. What it opens stays closed; see [`uncover_in_use`]. What it shows writable is covered so, where
/// nothing is: that keeps a folder from being renamed. With `check_names` a file with names on both sides of a cover is refused, after the covers are laid.
///
/// # Errors
/// A path cannot be covered, or the view asks for what cannot be changed while the Pod runs. Some covers may have been laid: say [`uncover_in_use`] with the former
/// view.
pub fn cover_in_use(root: &TargetRoot, target: &Path, read_only: bool, covers: &[Cover], check_names: bool) -> Result<(), CoverError> {
    let tree = PublishedTree::open(root, target)?;
    let wanted = tree.mounts_of(read_only, covers)?;
    if wanted.iter().any(|(path, shown)| is_root(path) && *shown != Shown::Writable) && !tree.is_read_only()? {
        return Err(CoverError::WholeTreeInUse);
    }
    let below_root = || wanted.iter().filter(|(path, _)| !is_root(path));
    for (path, shown) in below_root() {
        if !tree.is_closed_by(path, *shown)? {
            tree.check_below(path, *shown, &wanted)?;
            let table = tree.table(path)?;
            tree.attach(&tree.open_path(path)?, path, *shown, &table)?;
        }
    }
    // Between a look at a path and its cover, somebody in the Pod may rename a folder above it; afterwards nobody can.
    for (path, shown) in below_root() {
        if !tree.is_closed_by(path, *shown)? {
            return Err(CoverError::Moved { path: path.clone() });
        }
    }
    // Not before: a file gets no other name under a cover.
    if check_names { tree.check_names(&wanted) } else { Ok(()) }
}

/// Opens what this view does not close, the inner first, and lazily: who reads through a cover keeps it from going otherwise. A cover stays where a path that the
/// view closes would be open without it.
///
/// # Errors
/// The view is none, or the kernel refuses.
pub fn uncover_in_use(root: &TargetRoot, target: &Path, read_only: bool, covers: &[Cover]) -> Result<(), CoverError> {
    let tree = PublishedTree::open(root, target)?;
    let wanted = tree.mounts_of(read_only, covers)?;
    loop {
        let table = tree.table(Path::new("."))?;
        let paths: BTreeSet<PathBuf> = covers_in(&table, &tree.location).map(|(_, path)| path.to_owned()).collect();
        let mut went = false;
        // What is in a folder comes after the folder.
        for path in paths.iter().rev() {
            if tree.goes(path, &wanted, &table)? {
                tree.detach(path)?;
                went = true;
                break;
            }
        }
        if !went {
            return Ok(());
        }
    }
}

fn covers_in<'a>(table: &'a [Mount], tree: &'a Location) -> impl Iterator<Item = (&'a Mount, &'a Path)> {
    let below = table.iter().filter_map(|mount| Some((mount, mount.mount_point.strip_prefix(&tree.path).ok()?)));
    below.filter(|(mount, path)| !is_root(path) && is_cover(mount, tree, path))
}

fn shown_by(mount: &Mount) -> Shown {
    match (is_hidden(mount), mount.read_only) {
        (true, _) => Shown::Hidden,
        (false, true) => Shown::ReadOnly,
        (false, false) => Shown::Writable,
    }
}

fn is_below(path: &Path, folder: &Path) -> bool {
    path != folder && path.starts_with(folder)
}

impl PublishedTree {
    fn table(&self, path: &Path) -> Result<Vec<Mount>, CoverError> {
        mountinfo::read().map_err(|source| CoverError::Mount { path: path.to_owned(), source })
    }

    fn is_read_only(&self) -> Result<bool, CoverError> {
        let table = self.table(Path::new("."))?;
        let wrap = |source| CoverError::Mount { path: PathBuf::from("."), source };
        Ok(mountinfo::mount_of(&self.dir, &table).map_err(wrap)?.read_only)
    }

    /// The mount that a process comes to at `path`, if it lies over that path itself.
    fn seen_mount<'a>(&self, path: &Path, table: &'a [Mount]) -> Result<Option<&'a Mount>, CoverError> {
        let wrap = |source: SysError| CoverError::Mount { path: path.to_owned(), source };
        let mount = mountinfo::mount_of(self.open_path(path)?, table).map_err(wrap)?;
        Ok(Some(mount).filter(|mount| mount.mount_point == self.location.path.join(path)))
    }

    /// Whether a cover lies at `path` that shows no more than `shown`.
    fn is_closed_by(&self, path: &Path, shown: Shown) -> Result<bool, CoverError> {
        let table = self.table(path)?;
        match self.seen_mount(path, &table)? {
            Some(mount) if !is_cover(mount, &self.location, path) => Err(CoverError::Foreign { path: path.to_owned() }),
            Some(mount) => Ok(shown_by(mount) >= shown),
            None => Ok(false),
        }
    }

    /// Fails if a new cover at `path` would hide covers below it, and these cannot be laid on it anew without a moment in which something is open.
    fn check_below(&self, path: &Path, shown: Shown, wanted: &[(PathBuf, Shown)]) -> Result<(), CoverError> {
        let table = self.table(path)?;
        let mut mounts = table.iter().filter_map(|mount| Some((mount, mount.mount_point.strip_prefix(&self.location.path).ok()?)));
        if let Some((_, foreign)) = mounts.find(|(mount, other)| is_below(other, path) && !is_cover(mount, &self.location, other)) {
            return Err(CoverError::Foreign { path: foreign.to_owned() });
        }
        let Some((_, below)) = covers_in(&table, &self.location).find(|(_, other)| is_below(other, path)) else { return Ok(()) };
        let anew: Vec<&(PathBuf, Shown)> = wanted.iter().filter(|(other, _)| is_below(other, path)).collect();
        // What is closed at once is opened afterwards, in places that have no closed place in them.
        let closed = anew.iter().find(|(other, shown)| *shown != Shown::Writable || anew.iter().any(|(inner, _)| is_below(inner, other)));
        match closed {
            None if shown != Shown::Writable => Ok(()),
            Some((below, _)) => Err(CoverError::Below { path: path.to_owned(), below: below.clone() }),
            None => Err(CoverError::Below { path: path.to_owned(), below: below.to_owned() }),
        }
    }

    /// Whether the cover that is seen at `path` is to go, and may.
    fn goes(&self, path: &Path, wanted: &[(PathBuf, Shown)], table: &[Mount]) -> Result<bool, CoverError> {
        let seen = match self.seen_mount(path, table) {
            Ok(seen) => seen.filter(|mount| is_cover(mount, &self.location, path)),
            // What another cover hides is seen when that one has gone.
            Err(CoverError::Missing { .. } | CoverError::Link { .. }) => None,
            Err(error) => return Err(error),
        };
        let Some(top) = seen else { return Ok(false) };
        let is_wanted = wanted.iter().any(|(other, shown)| other == path && *shown == shown_by(top));
        Ok(!is_wanted && self.holds_without(top, path, wanted, table))
    }

    /// Whether every path below `path` that is to be closed stays so without the mount `top`: by mounts on what is seen there then.
    fn holds_without(&self, top: &Mount, path: &Path, wanted: &[(PathBuf, Shown)], table: &[Mount]) -> bool {
        let mut seen: Vec<(&Path, u64)> = vec![(path, top.parent)];
        let mut below: Vec<&(PathBuf, Shown)> = wanted.iter().filter(|(other, _)| is_below(other, path)).collect();
        below.sort();
        below.into_iter().all(|(other, shown)| {
            let on = seen.iter().rev().find(|(folder, _)| is_below(other, folder)).map(|(_, id)| *id);
            let at = self.location.path.join(other);
            let found = table.iter().rfind(|mount| mount.mount_point == at && Some(mount.parent) == on);
            let found = found.filter(|mount| is_cover(mount, &self.location, other) && shown_by(mount) >= *shown);
            if let Some(mount) = found {
                seen.push((other, mount.id));
            }
            found.is_some()
        })
    }

    /// Takes off the cover that is seen at `path`.
    fn detach(&self, path: &Path) -> Result<(), CoverError> {
        let wrap = |source| CoverError::Mount { path: path.to_owned(), source };
        let (above, Some(name)) = (path.parent().unwrap_or(Path::new("")), path.file_name()) else { return Ok(()) };
        // Opened without following a link: what is in the tree, its Pod has made.
        let above = open_beneath(&self.dir, above).step("open the folder above a cover").map_err(wrap)?;
        let by_fd = Path::new("/proc/self/fd").join(above.as_raw_fd().to_string()).join(name);
        match rustix::mount::unmount(&by_fd, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH) {
            Ok(()) | Err(Errno::INVAL | Errno::NOENT) => Ok(()),
            Err(e) => Err(e).step("take off a cover").map_err(wrap),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_covers_of_a_tree_are_told_from_what_else_is_mounted_in_it() {
        let mount = |id: u64, at: &str, root: &str, fs_type: &str, source: &str, read_only: bool| Mount {
            id,
            parent: 1,
            device: if fs_type == "btrfs" { "0:42" } else { "0:9" }.into(),
            root: root.into(),
            mount_point: at.into(),
            read_only,
            options: String::new(),
            shared: true,
            fs_type: fs_type.into(),
            source: source.into(),
        };
        let table = [
            mount(1, "/pods/a/mount", "/trees/u/tree", "btrfs", "/dev/loop0", false),
            mount(2, "/pods/a/mount/src", "/trees/u/tree/src", "btrfs", "/dev/loop0", false),
            mount(3, "/pods/a/mount/src", "/trees/u/tree/src", "btrfs", "/dev/loop0", true),
            mount(4, "/pods/a/mount/conf", "/", "tmpfs", "yoi:hidden", true),
            mount(5, "/pods/a/mount/docs", "/trees/u/tree/other", "btrfs", "/dev/loop0", true),
            mount(6, "/pods/a/mount/tmp", "/", "tmpfs", "tmpfs", false),
            mount(7, "/pods/b/mount/src", "/trees/u/tree/src", "btrfs", "/dev/loop0", true),
        ];
        let laid = |path: &str, shown| LaidCover { path: path.into(), shown };
        assert_eq!(laid_covers(&table, Path::new("/pods/a/mount")), [laid("conf", Shown::Hidden), laid("src", Shown::ReadOnly)]);
        assert_eq!(laid_covers(&table, Path::new("/pods/b/mount")), []);
    }
}
