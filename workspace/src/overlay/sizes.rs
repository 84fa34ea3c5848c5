//! The sizes of all files of an overlay, from those of its base and a visit of its upper layer.

use std::collections::HashMap;
use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::Stat;

use super::merged::{Layers, MergedDir, is_same_dir, open_dir_opt};
use crate::compare::stat_opt;
use crate::error::StepContext;
use crate::linked_files::LinkedFiles;
use crate::sealed_sizes::TreeSizes;
use crate::tree_copy::is_whiteout;
use crate::{NodeKind, SysError, dir};

/// Takes the sizes of the base and changes them by what the layers in `entry` hide, move and add. None if more than `most` files with several
/// names are among that: a visit of the whole tree needs not remember them.
pub(super) fn of_overlay(entry: &OwnedFd, (base, of_base): (&OwnedFd, TreeSizes), most: usize) -> Result<Option<TreeSizes>, SysError> {
    let Some(layers) = Layers::open(entry, base, most)? else { return Ok(None) };
    let mut difference = Difference::new(&layers, most);
    difference.visit(&layers.root(), 0)?;
    difference.count_links()?;
    Ok((!difference.has_too_many_links()).then(|| of_base.with(difference.added, difference.removed)))
}

/// A file of the base that has several names.
struct Linked {
    size: u64,
    /// How many of its names show.
    names: i64,
}

struct Difference<'a> {
    layers: &'a Layers,
    added: TreeSizes,
    removed: TreeSizes,
    /// Files of the base with several names of which some are hidden or moved, by inode number.
    lower_links: HashMap<u64, Linked>,
    /// Files of the upper layer with several names.
    upper_links: LinkedFiles,
    /// The most of each of both.
    most: usize,
}

impl<'a> Difference<'a> {
    fn new(layers: &'a Layers, most: usize) -> Self {
        let (added, removed) = (TreeSizes::default(), TreeSizes::default());
        Self { layers, added, removed, lower_links: HashMap::new(), upper_links: LinkedFiles::of_at_most(most), most }
    }

    /// True once the sums are no longer right. Nothing more need be visited then.
    fn has_too_many_links(&self) -> bool {
        self.lower_links.len() >= self.most || self.upper_links.is_full()
    }

    /// Visits a directory of which everything in the lower one is counted.
    fn visit(&mut self, tree: &MergedDir, depth: usize) -> Result<(), SysError> {
        if depth > dir::MAX_DEPTH {
            return Err(dir::too_deep()).step("read a directory");
        }
        let Some(upper) = tree.upper.clone() else { return Ok(()) };
        dir::for_each_name(&*upper, "read a directory", |name| {
            if self.has_too_many_links() {
                return Ok(());
            }
            let Some(new) = stat_opt(upper.as_fd(), name)? else { return Ok(()) };
            let old = match &tree.lower {
                Some(lower) => stat_opt(lower.as_fd(), name)?.map(|stat| (lower.as_fd(), stat)),
                None => None,
            };
            if dir::kind(&new) == NodeKind::Dir {
                let shown = self.layers.open_dir(tree, name)?;
                let below = match &old {
                    Some((lower, _)) => open_dir_opt(*lower, name)?.map(Arc::new),
                    None => None,
                };
                if !is_same_dir(shown.lower.as_ref(), below.as_ref())? {
                    self.hide(old, name, depth)?;
                    self.added.entries += 1;
                    if let Some(moved) = &shown.lower {
                        self.count_content(moved.as_fd(), Shows::Yes, depth + 1)?;
                    }
                }
                return self.visit(&shown, depth + 1);
            }
            self.hide(old, name, depth)?;
            if !is_whiteout(&new) {
                self.added.entries += 1;
                self.add_upper(&new);
            }
            Ok(())
        })
    }

    fn hide(&mut self, old: Option<(BorrowedFd, Stat)>, name: &CStr, depth: usize) -> Result<(), SysError> {
        match old {
            Some((lower, stat)) => self.count(lower, name, &stat, Shows::No, depth),
            None => Ok(()),
        }
    }

    /// Counts a name of the base that now shows at another place or no longer at its own, with everything below it.
    fn count(&mut self, lower: BorrowedFd, name: &CStr, stat: &Stat, shows: Shows, depth: usize) -> Result<(), SysError> {
        let sizes = match shows {
            Shows::Yes => &mut self.added,
            Shows::No => &mut self.removed,
        };
        sizes.entries += 1;
        match dir::kind(stat) {
            NodeKind::File if stat.st_nlink == 1 => sizes.logical_bytes += stat.st_size as u64,
            NodeKind::File => {
                let all = || Linked { size: stat.st_size as u64, names: stat.st_nlink as i64 };
                self.lower_links.entry(stat.st_ino).or_insert_with(all).names += if shows == Shows::Yes { 1 } else { -1 };
            }
            NodeKind::Dir => {
                if let Some(dir) = open_dir_opt(lower, name)? {
                    self.count_content(dir.as_fd(), shows, depth + 1)?;
                }
            }
            NodeKind::Symlink | NodeKind::Special => {}
        }
        Ok(())
    }

    fn count_content(&mut self, lower: BorrowedFd, shows: Shows, depth: usize) -> Result<(), SysError> {
        if depth > dir::MAX_DEPTH {
            return Err(dir::too_deep()).step("read a directory");
        }
        dir::for_each_name(lower, "read a directory", |name| match stat_opt(lower, name)? {
            Some(stat) if !self.has_too_many_links() => self.count(lower, name, &stat, shows, depth),
            Some(_) | None => Ok(()),
        })
    }

    fn add_upper(&mut self, new: &Stat) {
        if dir::kind(new) == NodeKind::File
            && let Some(parts) = self.upper_links.parts(new)
        {
            self.added.logical_bytes += new.st_size as u64 / parts;
        }
    }

    /// Counts the files of the base with several names. One that was written shows as the file in the index under all names that are left.
    fn count_links(&mut self) -> Result<(), SysError> {
        if self.has_too_many_links() {
            return Ok(());
        }
        for (inode, linked) in std::mem::take(&mut self.lower_links) {
            let written = self.layers.indexed_file(inode)?;
            if written.is_some() || linked.names <= 0 {
                self.removed.logical_bytes += linked.size;
            }
            if let Some(written) = written.filter(|_| linked.names > 0) {
                self.add_upper(&written);
            }
        }
        Ok(())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shows {
    Yes,
    No,
}
