//! Mounts that show nothing. An empty folder of the data root could be found and filled; these are in no file system that anybody else sees.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, OpenTreeFlags};
use rustix::thread::UnshareFlags;

use super::HIDDEN_SOURCE;
use crate::error::StepContext;
use crate::{SysError, host};

const FILE: &str = "empty";

/// An empty read-only folder, attached nowhere.
pub(super) fn folder() -> Result<OwnedFd, SysError> {
    let mount = tmpfs()?;
    host::harden_mount(&mount, true, false).step("set the attributes of a cover")?;
    Ok(mount)
}

/// An empty read-only file, attached nowhere.
pub(super) fn file() -> Result<OwnedFd, SysError> {
    // Before Linux 6.15 only what is attached somewhere can be cloned, and namespaces belong to threads.
    std::thread::scope(|scope| {
        let worker = std::thread::Builder::new().name("cover".into()).spawn_scoped(scope, file_on_this_thread).step("start a thread")?;
        worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Leaves this thread in a mount namespace of its own, which ends with it.
fn file_on_this_thread() -> Result<OwnedFd, SysError> {
    // SAFETY: this thread was started for this function; nothing else relies on its directories or mounts.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::FS | UnshareFlags::NEWNS) }.step("make a mount namespace")?;
    let change = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", change).step("make the mount namespace private")?;
    let top = tmpfs()?;
    let mode = Mode::RUSR | Mode::RGRP | Mode::ROTH;
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    let made = rustix::fs::openat(&top, FILE, flags, mode).step("make an empty file")?;
    rustix::fs::fchmod(&made, mode).step("set the mode of an empty file")?;
    drop(made);
    // Any folder will do, and this one is everywhere.
    super::super::attach_at(&top, std::path::Path::new("/proc"))?;
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let mount = rustix::mount::open_tree(&top, FILE, flags).step("clone an empty file")?;
    host::harden_mount(&mount, true, false).step("set the attributes of a cover")?;
    Ok(mount)
}

fn tmpfs() -> Result<OwnedFd, SysError> {
    let context = rustix::mount::fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC).step("open the file system type tmpfs")?;
    for (name, value) in [("source", HIDDEN_SOURCE), ("mode", "0555"), ("size", "4096"), ("nr_inodes", "16")] {
        rustix::mount::fsconfig_set_string(context.as_fd(), name, value).step("set a mount option")?;
    }
    rustix::mount::fsconfig_create(context.as_fd()).step("make a tmpfs")?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    rustix::mount::fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes).step("mount a tmpfs")
}
