//! What differs between two datasets: a clone keeps inode numbers and ctimes, and any change to a file moves its ctime.
//!
//! A ctime moves in steps: ticks in the kernel, whole seconds in zfs-fuse. So a file that changed just before a snapshot and again just after
//! it has one ctime in two states. Where that can be, the content is compared.

use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use super::Zfs;
use super::parse::Difference;
use crate::change_list::ChangeCollector;
use crate::compare::Paths;
use crate::error::StepContext;
use crate::trees::LiveTree;
use crate::{ChangeLimits, Error, NodeKind, SysError, Uid, compare, dir};

type Opened<'a> = (&'a LiveTree, BorrowedFd<'a>);

/// No system call takes a longer path than 4095 bytes.
const MAX_PATH: usize = 4000;

/// Whether the file at a path has other names, too.
fn has_more_names(root: BorrowedFd, path: &[u8]) -> Result<bool, SysError> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // A last component that is a link is the file itself.
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
    match rustix::fs::openat2(root, path, flags, Mode::empty(), resolve) {
        Ok(file) => {
            let stat = rustix::fs::fstat(&file).step("stat an entry")?;
            Ok(dir::kind(&stat) != NodeKind::Dir && stat.st_nlink > 1)
        }
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => Ok(false),
        Err(e) => Err(e).step("open an entry"),
    }
}

/// A dataset, and the last second before which all in it is what a tree began with; None for the tree's own.
type Ancestor = (String, Option<i64>);

/// How many seconds the clock of ctimes may be behind the one of the folder that [`super::command::Commands::snapshot`] is told of: it ticks.
const CLOCK_LAG: i64 = 1;

impl Zfs {
    pub(super) fn list_changes(
        &self,
        tree: &LiveTree,
        since: &LiveTree,
        limits: &ChangeLimits,
        out: &mut ChangeCollector,
    ) -> Result<(), Error> {
        let uid = tree.marker.uid;
        let wrap = |source| Error::Compare { uid, source };
        let (opened, base) = (self.open_root(tree), self.open_root(since));
        let (opened, base) = (opened.map_err(wrap)?, base.map_err(wrap)?);
        let parted = self.parted(uid, since.marker.uid).map_err(wrap)?;
        let same = |pair: &compare::Pair| {
            let (a, b) = (pair.base.1, pair.tree.1);
            if identity(a) != identity(b) || !compare::same_metadata(a, b) {
                return Ok(false);
            }
            match parted {
                Some(second) if dir::ctime(a).0 < second - CLOCK_LAG => Ok(true),
                _ => compare::same_data(pair, limits),
            }
        };
        match self.changed_paths((tree, opened.as_fd()), (since, base.as_fd()), limits).map_err(wrap)? {
            Some(paths) => compare::compare_paths(base.as_fd(), opened.as_fd(), &paths, &same, out).map_err(wrap),
            None => compare::compare_all(base.as_fd(), opened.as_fd(), &same, out).map_err(wrap),
        }
    }

    /// The paths in `tree` of all that changed, by `zfs diff`. None if every file is to be visited.
    ///
    /// It leaves out a file whose ctime is the same in both states. So it is asked only of a tree that began as a base that nobody could write any
    /// more: two commands lie between the last write to that and the first to the tree, and a ctime moves in less than one takes.
    fn changed_paths(&self, (tree, opened): Opened, (since, base): Opened, limits: &ChangeLimits) -> Result<Option<Paths>, SysError> {
        let (uid, from) = (tree.marker.uid, since.marker.uid);
        let (name, snapshot) = (self.commands.tree(uid), self.commands.snapshot_name(from, uid));
        let is_clone = || Ok::<_, SysError>(self.commands.get(&name)?.is_some_and(|d| d.origin() == Some(&*snapshot)));
        let of_frozen = || Ok::<_, SysError>(self.commands.get(&snapshot)?.is_some_and(|s| self.commands.is_of_frozen(&s)));
        // The programs of zfs-fuse have no such command.
        if self.is_by_daemon()? || !is_clone()? || !of_frozen()? {
            return Ok(None);
        }
        limits.check()?;
        let (mount, base_mount) = (self.mount_anew(uid)?, self.mount_anew(from)?);
        let found = match self.commands.diff(&snapshot, (&name, mount.as_fd()), base_mount.as_fd()) {
            Ok(found) => found,
            Err(error) => {
                let text = format!("every file of {name} is visited to list its changes: {error}: {}", error.source);
                (self.commands.options.on_detour)(&text);
                return Ok(None);
            }
        };
        let (below, mut paths) = (tree.marker.below.as_os_str().as_bytes(), Paths::default());
        for Difference { is_dir, path, renamed_to, links_changed } in found {
            limits.check()?;
            for path in [Some(path), renamed_to].into_iter().flatten().filter_map(|path| compare::path_below(below, path)) {
                // Only one of its names is told.
                if path.len() > MAX_PATH || links_changed || (!is_dir && (has_more_names(opened, &path)? || has_more_names(base, &path)?)) {
                    return Ok(None);
                }
                if is_dir {
                    paths.dirs.insert(path)
                } else {
                    paths.files.insert(path)
                };
            }
        }
        Ok(Some(paths))
    }

    /// The last second before which two trees were one; None if they never were, or nobody knows.
    fn parted(&self, a: Uid, b: Uid) -> Result<Option<i64>, SysError> {
        let (one, other) = (self.ancestors(a)?, self.ancestors(b)?);
        let common = |(name, left): &Ancestor| other.iter().find(|(n, _)| n == name).map(|(_, left_too)| earlier(*left, *left_too));
        Ok(one.iter().find_map(common).flatten())
    }

    /// The dataset of a tree, and those that it was cloned from, the nearest first. They end where a snapshot is not one of ours.
    fn ancestors(&self, uid: Uid) -> Result<Vec<Ancestor>, SysError> {
        let mut found: Vec<Ancestor> = vec![(self.commands.tree(uid), None)];
        loop {
            let name = &found[found.len() - 1].0;
            let Some(snapshot) = self.commands.get(name)?.and_then(|d| d.origin().map(str::to_owned)) else { return Ok(found) };
            let begun = self.commands.get(&snapshot)?.and_then(|s| self.commands.begun(&s));
            let (Some(begun), Some((of, _))) = (begun, snapshot.split_once('@')) else { return Ok(found) };
            found.push((of.to_owned(), Some(begun)));
        }
    }
}

fn identity(stat: &Stat) -> (u64, (i64, u64)) {
    (stat.st_ino, dir::ctime(stat))
}

/// The earlier of two seconds; None is later than all of them.
fn earlier(a: Option<i64>, b: Option<i64>) -> Option<i64> {
    a.into_iter().chain(b).min()
}

#[cfg(test)]
mod tests {
    use super::earlier;

    #[test]
    fn a_tree_that_still_is_an_ancestor_parts_when_the_other_one_left_it() {
        assert_eq!(earlier(None, Some(7)), Some(7));
        assert_eq!(earlier(Some(3), Some(7)), Some(3));
        assert_eq!(earlier(None, None), None);
    }
}
