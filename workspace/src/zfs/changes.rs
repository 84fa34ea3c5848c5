//! What differs between two datasets: a clone keeps inode numbers and ctimes, and any change to a file moves its ctime.
//!
//! A ctime moves in steps: ticks in the kernel, whole seconds in zfs-fuse. So a file that changed just before a snapshot and again just after
//! it has one ctime in two states. Where that can be, the content is compared.

use std::os::fd::AsFd;

use rustix::fs::Stat;

use super::Zfs;
use crate::change_list::ChangeCollector;
use crate::trees::LiveTree;
use crate::{ChangeLimits, Error, SysError, Uid, compare, dir};

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
        let (opened, base) = (self.open_dataset(uid), self.open_dataset(since.marker.uid));
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
        compare::compare_all(base.as_fd(), opened.as_fd(), &same, out).map_err(wrap)
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
