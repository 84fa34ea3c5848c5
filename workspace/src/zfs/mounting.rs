//! Mounts of datasets, attached nowhere.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, UnmountFlags};

use super::command::Expected;
use super::parse::Refusal;
use super::{MOUNT_TYPES, Zfs};
use crate::error::StepContext;
use crate::trees::TreeDir;
use crate::{ErrorReason, SysError, Uid, mount, mountinfo};

/// The folder of the data root in which `zfs mount` attaches datasets.
const MOUNTED: &str = "mounted";

const MOUNT: &str = "mount the dataset";

/// Mounts that somebody in this process uses.
#[derive(Default)]
pub(super) struct Mounts(Mutex<HashMap<Uid, Weak<OwnedFd>>>);

impl Mounts {
    fn get(&self, uid: Uid) -> Option<Arc<OwnedFd>> {
        let mut mounts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        mounts.retain(|_, mount| mount.strong_count() > 0);
        mounts.get(&uid).and_then(Weak::upgrade)
    }

    /// Keeps a mount for others, unless there is one already.
    fn insert(&self, uid: Uid, made: OwnedFd) -> Arc<OwnedFd> {
        let mut mounts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(there) = mounts.get(&uid).and_then(Weak::upgrade) {
            return there;
        }
        let made = Arc::new(made);
        mounts.insert(uid, Arc::downgrade(&made));
        made
    }
}

/// The file system type of the kernel; None if it has none, so that a daemon mounts datasets.
fn kernel_type() -> Result<Option<OwnedFd>, SysError> {
    match rustix::mount::fsopen("zfs", FsOpenFlags::FSOPEN_CLOEXEC) {
        Ok(context) => Ok(Some(context)),
        Err(Errno::NODEV) => Ok(None),
        Err(e) => Err(e).step("open the file system type zfs"),
    }
}

impl Zfs {
    /// The value of the property `mountpoint` of a new tree. Nobody but us mounts it; a daemon needs a path for that.
    pub(super) fn mountpoint(&self, uid: Uid) -> Result<String, SysError> {
        match kernel_type()? {
            Some(_) => Ok("legacy".to_owned()),
            None => {
                let path = self.mounted_path(uid)?;
                path.into_os_string()
                    .into_string()
                    .map_err(|path| std::io::Error::other(format!("{path:?} is not UTF-8")))
                    .step("name a mount point")
            }
        }
    }

    /// Whether a daemon mounts datasets, not the kernel.
    pub(super) fn is_by_daemon(&self) -> Result<bool, SysError> {
        Ok(kernel_type()?.is_none())
    }

    fn mounted_path(&self, uid: Uid) -> Result<PathBuf, SysError> {
        Ok(mountinfo::path_of(self.layout.root())?.join(MOUNTED).join(uid.to_string()))
    }

    /// A mount of a tree. The kernel shows one super block in all mounts of a dataset.
    pub(super) fn mounted(&self, uid: Uid) -> Result<Arc<OwnedFd>, SysError> {
        if let Some(there) = self.mounts.get(uid) {
            return Ok(there);
        }
        let made = match kernel_type()? {
            Some(context) => self.mount_by_kernel(uid, context)?,
            None => self.mount_by_daemon(uid)?,
        };
        Ok(self.mounts.insert(uid, made))
    }

    fn mount_by_kernel(&self, uid: Uid, context: OwnedFd) -> Result<OwnedFd, SysError> {
        let create = |context: BorrowedFd, is_read_only: bool| -> Result<(), SysError> {
            rustix::mount::fsconfig_set_string(context, "source", self.commands.tree(uid)).step("name the dataset")?;
            if is_read_only {
                rustix::mount::fsconfig_set_flag(context, "ro").step("mount the dataset read-only")?;
            }
            rustix::mount::fsconfig_create(context).step(MOUNT)
        };
        let mut made = context;
        if let Err(error) = create(made.as_fd(), false) {
            // A read-only dataset that is mounted elsewhere is busy for whoever wants to write it.
            let again = if error.reason() == ErrorReason::Busy && self.commands.is_read_only(uid)? { kernel_type()? } else { None };
            made = again.ok_or(error)?;
            create(made.as_fd(), true)?;
        }
        let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
        rustix::mount::fsmount(made.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes).step(MOUNT)
    }

    /// The daemon mounts a dataset once, so its mount stays attached in the data root while there is the tree.
    fn mount_by_daemon(&self, uid: Uid) -> Result<OwnedFd, SysError> {
        if let Some(there) = self.clone_of_attached(uid)? {
            return Ok(there);
        }
        self.commands.mount(uid).unless(&[Refusal::AlreadyMounted])?;
        let missing = || std::io::Error::other("it is in no mount table of this process");
        self.clone_of_attached(uid)?.ok_or_else(missing).step("find the mount of the dataset")
    }

    fn clone_of_attached(&self, uid: Uid) -> Result<Option<OwnedFd>, SysError> {
        let source = self.commands.tree(uid);
        let is_it = |m: &&mountinfo::Mount| MOUNT_TYPES.contains(&&*m.fs_type) && mountinfo::is_whole_mount_of(m, &source);
        for mount in mountinfo::read()?.iter().rev().filter(is_it) {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let Ok(at) = rustix::fs::open(&mount.mount_point, flags, Mode::empty()) else { continue };
            // Another mount may have been put on top of it.
            let found = rustix::fs::statx(&at, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID).step("find the mount of a directory")?;
            if found.stx_mnt_id == mount.id {
                return mount::clone_mount(at.as_fd()).map(Some);
            }
        }
        Ok(None)
    }

    pub(super) fn open_dataset(&self, uid: Uid) -> Result<TreeDir, SysError> {
        let mount = self.mounted(uid)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::openat(&*mount, ".", flags, Mode::empty()).step("open the root of the dataset")?;
        Ok(TreeDir { dir, _mount: Some(mount) })
    }

    /// Detaches what a daemon attached, and removes the folder.
    pub(super) fn unmount_attached(&self, uid: Uid) -> Result<(), SysError> {
        let path = self.mounted_path(uid)?;
        for _ in 0..mountinfo::read()?.iter().filter(|m| m.mount_point == path).count() {
            match rustix::mount::unmount(&path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
                Ok(()) | Err(Errno::INVAL | Errno::NOENT) => {}
                Err(e) => return Err(e).step("unmount the dataset"),
            }
        }
        Ok(())
    }

    pub(super) fn remove_mount_point(&self, uid: Uid) -> Result<(), SysError> {
        match rustix::fs::unlinkat(self.layout.root(), format!("{MOUNTED}/{uid}"), AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(e) => Err(e).step("remove a mount point"),
        }
    }
}
