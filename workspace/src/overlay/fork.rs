//! The layers of an overlay: made, copied, measured.

use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use rustix::fs::Mode;

use crate::btrfs::{commit, ioctl};
use crate::error::StepContext;
use crate::faults::Faults;
use crate::layout::{UPPER, WORK};
use crate::linked_files::{LinkedFiles, MOST_LINKED};
use crate::tree_copy::{Data, TreeCopy, copy_xattrs, each_xattr, is_whiteout, path_through, set_metadata};
use crate::trees::LiveTree;
use crate::{NodeKind, PlantedFault, SysError, dir, folder};

/// In the work folder: a hard link to each upper file whose original in the base has several names.
pub(super) const INDEX: &str = "index";

/// Makes the layers of a clone of a base. The root of an overlay is that of its upper layer, so it gets the attributes of the base's.
pub(super) fn of_base(base: &OwnedFd, entry: BorrowedFd) -> Result<(), SysError> {
    let stat = rustix::fs::fstat(base).step("stat the base")?;
    let upper = make_dir(entry, UPPER)?;
    copy_xattrs(base.as_fd(), upper.as_fd())?;
    set_metadata(upper.as_fd(), &stat)?;
    make_dir(entry, WORK)?;
    flush_names(entry)
}

/// Makes the layers of a clone of an overlay that nobody writes: a copy of both. Hard links stay links, also those between upper layer and
/// index. A tree that is too deep is refused before anything is copied.
pub(super) fn of_overlay(source: &LiveTree, entry: BorrowedFd, faults: &dyn Faults) -> Result<(), SysError> {
    let from = dir::open(&source.entry, UPPER).step("open the upper layer")?;
    let stat = rustix::fs::fstat(&from).step("stat the upper layer")?;
    dir::refuse_too_deep(from.as_fd(), "fork the tree")?;
    let (upper, work) = (make_dir(entry, UPPER)?, make_dir(entry, WORK)?);
    let mut copy = TreeCopy::new(work.as_fd(), from.as_fd(), stat.st_dev, Data::SharedOrCopied);
    copy.forgets_whiteouts = faults.has(PlantedFault::WhiteoutForgotten);
    copy.copy_dir(from.as_fd(), upper.as_fd(), &stat, 0)?;
    let index = dir::open_opt(&source.entry, format!("{WORK}/{INDEX}")).step("open the index")?;
    if let Some(index) = index {
        // Its attribute `trusted.overlay.upper` names the upper layer that it belongs to, by a file handle. The kernel sets it anew.
        let target = make_dir(work.as_fd(), INDEX)?;
        if faults.has(PlantedFault::IndexTiedToItsSource) {
            copy_xattrs(index.as_fd(), target.as_fd())?;
        }
        dir::for_each_name(&index, "read the index", |name| {
            let stat = dir::stat(&index, name).step("stat an entry of the index")?;
            copy.copy_entry(index.as_fd(), target.as_fd(), name, &stat)
        })?;
    }
    copy.finish()?;
    // After a power cut there must not be the final name without the data.
    rustix::fs::syncfs(&upper).step("flush the copy")
}

fn make_dir(at: BorrowedFd, name: &str) -> Result<OwnedFd, SysError> {
    rustix::fs::mkdirat(at, name, Mode::RWXU).step("make a layer")?;
    dir::open(at, name).step("open a layer")
}

/// Makes the names and attributes in a new entry durable, and leaves the data of others alone where the file system can do that.
fn flush_names(entry: BorrowedFd) -> Result<(), SysError> {
    const EXT4: u64 = 0xef53;
    const XFS: u64 = 0x5846_5342;
    if ioctl::is_btrfs(entry).step("ask for the file system")? {
        return commit::commit(entry).step("commit the layers");
    }
    match rustix::fs::fstatfs(entry).step("ask for the file system")?.f_type as u64 {
        // Their journals keep the order, and the entry was changed last, so its flush includes everything before.
        EXT4 | XFS => rustix::fs::fsync(entry).step("flush the layers"),
        _ => rustix::fs::syncfs(entry).step("flush the layers"),
    }
}

/// The bytes on disk of the upper layer and the index that no other tree shares.
pub(super) fn usage_of_layers(entry: &OwnedFd, faults: &dyn Faults) -> Result<u64, SysError> {
    let shares = folder::can_share_blocks(entry.as_fd())? && !faults.has(PlantedFault::SharedCountedAsExclusive);
    let (mut bytes, mut linked) = (0, LinkedFiles::of_at_most(MOST_LINKED));
    for layer in [UPPER.to_owned(), format!("{WORK}/{INDEX}")] {
        let Some(layer) = dir::open_opt(entry, layer).step("open a layer")? else { continue };
        dir::walk(layer.as_fd(), &mut |entry| {
            if entry.kind == NodeKind::File
                && let Some(parts) = linked.parts(&entry.stat)
            {
                bytes += folder::exclusive_bytes(shares, entry.parent, entry.name, &entry.stat)? / parts;
            }
            Ok(())
        })?;
    }
    Ok(bytes)
}

/// A path that an overlay would not show as it is in a lower layer, and why.
pub(super) fn unfit_for_a_lower(tree: BorrowedFd) -> Result<Option<(PathBuf, &'static str)>, SysError> {
    let mut found: Option<(Vec<u8>, &str)> = None;
    if has_overlay_attribute(|buffer| rustix::fs::flistxattr(tree, buffer))? {
        found = Some((b".".to_vec(), OVERLAY_ATTRIBUTE));
    }
    dir::walk(tree, &mut |entry| {
        if found.is_some() {
            return Ok(());
        }
        let path = path_through(entry.parent, entry.name);
        if is_whiteout(&entry.stat) {
            found = Some((entry.path.to_vec(), "a character device 0:0 hides its name"));
        } else if has_overlay_attribute(|buffer| rustix::fs::llistxattr(&path, buffer))? {
            found = Some((entry.path.to_vec(), OVERLAY_ATTRIBUTE));
        }
        Ok(())
    })?;
    Ok(found.map(|(path, what)| (PathBuf::from(OsString::from_vec(path)), what)))
}

const OVERLAY_ATTRIBUTE: &str = "it has an attribute trusted.overlay, which an overlay obeys";

fn has_overlay_attribute(list: impl Fn(&mut [u8]) -> rustix::io::Result<usize>) -> Result<bool, SysError> {
    let mut found = false;
    each_xattr(list, |name| {
        found |= name.to_bytes().starts_with(b"trusted.overlay.");
        Ok(())
    })?;
    Ok(found)
}
