//! Removes trees, whatever modes, flags, depth and mounts an agent left in them.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{AtFlags, IFlags, Mode, OFlags};
use rustix::io::{Errno, Result};
use rustix::mount::UnmountFlags;

use crate::btrfs::ioctl;
use crate::error::StepContext;
use crate::{SysError, dir, mountinfo};

/// Deeper directories are moved up first, so that neither descriptors nor stack run out.
const MAX_DEPTH_IN_PLACE: usize = 64;
const MOVED_PREFIX: &str = "deep.";

/// Detaches every mount at or below `entry` in this process's view.
pub(crate) fn detach_mounts(entry: impl AsFd) -> std::result::Result<(), SysError> {
    let path = mountinfo::path_of(&entry)?;
    for mount in mountinfo::read()?.iter().rev().filter(|m| m.mount_point.starts_with(&path) && m.mount_point != path) {
        match rustix::mount::unmount(&mount.mount_point, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
            // It went with the mount that it was on.
            Ok(()) | Err(Errno::INVAL | Errno::NOENT) => {}
            Err(e) => return Err(e).step("detach a mount inside the tree"),
        }
    }
    Ok(())
}

/// Removes the layers of an overlay. Without any it is a success.
pub(crate) fn remove_layers(entry: BorrowedFd) -> std::result::Result<(), SysError> {
    remove_tree(entry, c"idle")?;
    remove_tree(entry, c"upper")?;
    remove_tree(entry, c"work")
}

/// Removes `name` in `entry` and all below it. Moves deep directories to `entry`, which nobody else uses. Missing is a success.
pub(crate) fn remove_tree(entry: BorrowedFd, name: &CStr) -> std::result::Result<(), SysError> {
    let mut remover = TreeRemover { entry, moved: 0 };
    remover.remove(entry, name, 0).step("remove the tree")?;
    loop {
        let mut went = false;
        dir::for_each_name(entry, "read the entry", |name| {
            if !name.to_bytes().starts_with(MOVED_PREFIX.as_bytes()) {
                return Ok(());
            }
            went |= remover.remove(entry, name, 0).step("remove the tree")?;
            Ok(())
        })?;
        if !went {
            return Ok(());
        }
    }
}

struct TreeRemover<'a> {
    entry: BorrowedFd<'a>,
    moved: u64,
}

impl TreeRemover<'_> {
    /// Returns false if there was nothing of this name.
    fn remove(&mut self, parent: BorrowedFd, name: &CStr, depth: usize) -> Result<bool> {
        let stat = match dir::stat(parent, name) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Ok(false),
            Err(e) => return Err(e),
        };
        if dir::kind(&stat) != crate::NodeKind::Dir {
            return retry_unprotected(parent, name, || rustix::fs::unlinkat(parent, name, AtFlags::empty())).map(|()| true);
        }
        if depth > MAX_DEPTH_IN_PLACE {
            return self.move_up(parent, name).map(|()| true);
        }
        let child = match dir::open(parent, name) {
            Err(Errno::ACCESS) => {
                // Without root, a directory of our own that has no permissions.
                rustix::fs::chmodat(parent, name, Mode::RWXU, AtFlags::empty())?;
                dir::open(parent, name)?
            }
            other => other?,
        };
        if stat.st_ino == ioctl::ROOT_INODE {
            // Flags of files in a read-only subvolume cannot be changed.
            clear_protection(child.as_fd());
        }
        loop {
            let went = match self.empty(child.as_fd(), depth) {
                Err(Errno::ACCESS) => {
                    rustix::fs::fchmod(&child, Mode::RWXU)?;
                    self.empty(child.as_fd(), depth)?
                }
                other => other?,
            };
            match retry_unprotected(parent, name, || rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR)) {
                // A file system may leave out names of a folder that loses others while it is read.
                Err(Errno::NOTEMPTY | Errno::EXIST) if went => {}
                other => return other.map(|()| true),
            }
        }
    }

    /// Removes what is in a directory. Returns whether anything was there.
    fn empty(&mut self, folder: BorrowedFd, depth: usize) -> Result<bool> {
        let mut went = false;
        dir::visit_names(
            folder,
            |error| error,
            |name| {
                went |= self.remove(folder, name, depth + 1)?;
                Ok(())
            },
        )?;
        Ok(went)
    }

    fn move_up(&mut self, parent: BorrowedFd, name: &CStr) -> Result<()> {
        loop {
            let to = format!("{MOVED_PREFIX}{}", self.moved);
            self.moved += 1;
            let rename = || rustix::fs::renameat_with(parent, name, self.entry, &*to, rustix::fs::RenameFlags::NOREPLACE);
            match retry_unprotected(parent, name, rename) {
                Err(Errno::EXIST) => {}
                other => return other,
            }
        }
    }
}

/// Calls `act`. If flags or a read-only subvolume forbid it, clears the protection of the parent and the object and calls `act` again.
fn retry_unprotected(parent: BorrowedFd, name: &CStr, act: impl Fn() -> Result<()>) -> Result<()> {
    match act() {
        Err(Errno::PERM | Errno::ROFS) => {
            clear_protection(parent);
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            if let Ok(object) = rustix::fs::openat(parent, name, flags, Mode::empty()) {
                clear_protection(object.as_fd());
            }
            ignore_not_found(act())
        }
        other => ignore_not_found(other),
    }
}

fn ignore_not_found(result: Result<()>) -> Result<()> {
    match result {
        Err(Errno::NOENT) => Ok(()),
        other => other,
    }
}

/// Makes a subvolume writable and clears the flags immutable and append-only. Errors are ignored: the caller's next attempt reports them.
pub(crate) fn clear_protection(object: BorrowedFd) {
    if ioctl::is_subvolume(object) {
        let _ = ioctl::set_read_only(object, false);
    }
    if let Ok(flags) = rustix::fs::ioctl_getflags(object)
        && flags.intersects(IFlags::IMMUTABLE | IFlags::APPEND)
    {
        let _ = rustix::fs::ioctl_setflags(object, flags - (IFlags::IMMUTABLE | IFlags::APPEND));
    }
}
