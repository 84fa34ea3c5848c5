//! The sizes of all files of a subvolume, without a visit of any file. What is not committed yet may be missing.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::AsFd;

use super::MAX_CHANGED_INODES;
use super::ioctl::ROOT_INODE;
use super::search::{self, Inode};
use crate::sealed_sizes::TreeSizes;

/// The part of one inode. An unlinked file that somebody has open has no part.
fn of(inode: &Inode) -> TreeSizes {
    let logical_bytes = if inode.is_file() && inode.links > 0 { inode.size } else { 0 };
    let entries = if inode.number == ROOT_INODE { 0 } else { u64::from(inode.links) };
    TreeSizes { logical_bytes, entries }
}

/// Reads every inode of the subvolume that contains `tree`.
pub(super) fn of_subvolume(tree: impl AsFd) -> io::Result<TreeSizes> {
    let mut sizes = TreeSizes::default();
    search::inodes_since(tree, 0, |inode| {
        sizes.add(of(&inode));
        true
    })?;
    Ok(sizes)
}

/// Takes the sizes of `base` and reads only what differs in `tree`, a snapshot of it that can differ from transaction `first` on. None if so
/// much differs that [`of_subvolume`] takes no longer.
///
/// A file that is gone left a directory that changed or is gone, too. So the files that are gone are found below the directories that
/// changed.
pub(super) fn of_snapshot(tree: impl AsFd, (base, of_base): (impl AsFd, TreeSizes), first: u64) -> io::Result<Option<TreeSizes>> {
    let most = MAX_CHANGED_INODES.min((of_base.entries / 4) as usize);
    let mut changed = HashMap::new();
    search::inodes_since(&tree, first, |inode| {
        changed.insert(inode.number, inode);
        changed.len() <= most
    })?;
    if changed.len() > most {
        return Ok(None);
    }
    let (mut added, mut removed, mut dirs) = (TreeSizes::default(), TreeSizes::default(), Vec::new());
    for inode in changed.values() {
        added.add(of(inode));
        if inode.created_transid >= first {
            continue;
        }
        if let Some(before) = search::inode(&base, inode.number)? {
            removed.add(of(&before));
        }
        if inode.is_dir() {
            dirs.push(inode.number);
        }
    }
    let mut looked_for = HashSet::new();
    while let Some(dir) = dirs.pop() {
        let mut lost = HashSet::new();
        search::names_in(&base, dir, |inode| {
            lost.insert(inode);
            lost.len() <= MAX_CHANGED_INODES
        })?;
        if lost.len() > MAX_CHANGED_INODES {
            return Ok(None);
        }
        search::names_in(&tree, dir, |inode| {
            lost.remove(&inode);
            true
        })?;
        for number in lost.into_iter().filter(|number| !changed.contains_key(number)) {
            // It has a name elsewhere, or was looked for under another name.
            if !looked_for.insert(number) || search::inode(&tree, number)?.is_some() {
                continue;
            }
            let Some(before) = search::inode(&base, number)? else { continue };
            removed.add(of(&before));
            if before.is_dir() {
                dirs.push(number);
            }
        }
        if looked_for.len() > most {
            return Ok(None);
        }
    }
    Ok(Some(of_base.with(added, removed)))
}
