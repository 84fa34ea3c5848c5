//! What the providers have in common whose trees are plain folders.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{Gid, Mode, Stat, Uid as UserId};

use crate::btrfs::{commit, ioctl};
use crate::change_list::ChangeCollector;
use crate::error::StepContext;
use crate::faults::Faults;
use crate::layout::TREE;
use crate::tree_copy::{Data, TreeCopy, set_metadata};
use crate::trees::{self, LiveTree};
use crate::{ChangeLimits, DiskUsage, Owner, PlantedFault, SysError, TreeOrigin, compare, dir, extents, remove};

pub(crate) fn make_empty(entry: BorrowedFd, owner: Owner) -> Result<(), SysError> {
    rustix::fs::mkdirat(entry, TREE, Mode::from_raw_mode(0o755)).step("make the tree")?;
    set_root_owner(entry, owner)?;
    // A tree that is reported as made must survive a power cut.
    rustix::fs::syncfs(entry).step("flush the tree")
}

/// Sets owner and mode of a new tree's root.
pub(crate) fn set_root_owner(entry: BorrowedFd, owner: Owner) -> Result<(), SysError> {
    own_root(dir::open(entry, TREE).step("open the tree")?.as_fd(), owner)
}

/// Sets owner and mode of the root directory of a tree.
pub(crate) fn own_root(tree: BorrowedFd, owner: Owner) -> Result<(), SysError> {
    rustix::fs::fchown(tree, Some(UserId::from_raw(owner.uid)), Some(Gid::from_raw(owner.gid))).step("own the tree")?;
    rustix::fs::fchmod(tree, Mode::from_raw_mode(0o755)).step("set the mode of the tree")
}

/// Makes the tree of a new entry, with all that is in the source.
pub(crate) fn copy(source: &LiveTree, entry: BorrowedFd, data: Data) -> Result<(), SysError> {
    let source = dir::open(&source.entry, TREE).step("open the tree")?;
    rustix::fs::mkdirat(entry, TREE, Mode::from_raw_mode(0o700)).step("make the tree")?;
    let target = dir::open(entry, TREE).step("open the tree")?;
    let stat = rustix::fs::fstat(&source).step("stat the source")?;
    let mut copy = TreeCopy::new(target.as_fd(), source.as_fd(), stat.st_dev, data);
    copy.copy_dir(source.as_fd(), target.as_fd(), &stat, 0)?;
    copy.finish()?;
    set_metadata(target.as_fd(), &stat)?;
    // After a power cut there must not be the final name without the data.
    rustix::fs::syncfs(&target).step("flush the copy")
}

pub(crate) fn has_nested_volume(tree: BorrowedFd) -> Result<bool, SysError> {
    let device = rustix::fs::fstat(tree).step("stat the tree")?.st_dev;
    let mut nested = false;
    dir::walk(tree, &mut |entry| {
        nested |= entry.stat.st_dev != device;
        Ok(())
    })?;
    Ok(nested)
}

pub(crate) fn flush(tree: BorrowedFd) -> Result<Option<u64>, SysError> {
    rustix::fs::syncfs(tree).step("flush the tree")?;
    Ok(None)
}

pub(crate) fn remove(entry: BorrowedFd) -> Result<(), SysError> {
    remove::remove_layers(entry)?;
    remove::remove_tree(entry, c"tree")
}

pub(crate) fn commit_removals(root: BorrowedFd) -> Result<(), SysError> {
    if ioctl::is_btrfs(root).step("ask for the file system")? {
        return commit::commit(root).step("commit the removal");
    }
    // The journal of the file system keeps the order, so this flush includes all earlier changes.
    let trash = dir::open(root, "trash").step("open the trash")?;
    rustix::fs::fsync(&trash).step("flush the removal")
}

/// The file system may have shared blocks between a file and its copy, whoever made it, so it is asked.
pub(crate) fn usage(tree: BorrowedFd, faults: &dyn Faults) -> Result<DiskUsage, SysError> {
    let shares = can_share_blocks(tree)? && !faults.has(PlantedFault::SharedCountedAsExclusive);
    trees::measure(tree, |parent, name, stat| exclusive_bytes(shares, parent, name, stat))
}

/// The bytes of a file that no other tree shares. `shares` is what [`can_share_blocks`] says.
pub(crate) fn exclusive_bytes(shares: bool, parent: BorrowedFd, name: &CStr, stat: &Stat) -> Result<u64, SysError> {
    match shares {
        true => extents::exclusive_bytes_at(parent, name, stat),
        false => Ok(stat.st_blocks as u64 * 512),
    }
}

/// True if two files of this file system may share blocks, so that only a map of its extents tells what a file has for itself.
pub(crate) fn can_share_blocks(dir: BorrowedFd) -> Result<bool, SysError> {
    const BTRFS: u64 = 0x9123_683e;
    const XFS: u64 = 0x5846_5342;
    const OCFS2: u64 = 0x7461_636f;
    const BCACHEFS: u64 = 0xca45_1a4e;
    let magic = rustix::fs::fstatfs(dir).step("ask for the file system")?.f_type as u64;
    Ok([BTRFS, XFS, OCFS2, BCACHEFS].contains(&magic))
}

/// A copy has new inodes and ctimes. A change after the clone's commit point gives a file a ctime from then or later, and no agent can
/// set a ctime back. Files with such a ctime are compared by content, the others by size and mtime. If the tree is not a direct clone
/// of `since`, every file is compared by content.
pub(crate) fn changes(
    (tree, opened): (&LiveTree, BorrowedFd),
    (since, base): (&LiveTree, BorrowedFd),
    limits: &ChangeLimits,
    out: &mut ChangeCollector,
) -> Result<(), SysError> {
    let is_direct = matches!(tree.marker.origin, TreeOrigin::Clone { from, .. } if from == since.marker.uid);
    // The rename at the commit point set the ctime of the entry. The marker of a seal sets it again, so a sealed tree is compared in full.
    let committed = match is_direct && tree.marker.sealed.is_none() {
        true => dir::ctime(&rustix::fs::fstat(&tree.entry).step("stat the entry")?),
        false => (i64::MIN, 0),
    };
    let same = |pair: &compare::Pair| {
        Ok(compare::same_metadata(pair.base.1, pair.tree.1) && (dir::ctime(pair.tree.1) < committed || compare::same_data(pair, limits)?))
    };
    compare::compare_all(base, opened, &same, out)
}
