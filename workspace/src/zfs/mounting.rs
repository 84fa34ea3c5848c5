//! Mounts of datasets, attached nowhere.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, UnmountFlags};
use rustix::thread::UnshareFlags;

use super::command::{Expected, LEGACY};
use super::parse::Refusal;
use super::{MOUNT_TYPES, Zfs};
use crate::error::StepContext;
use crate::trees::{LiveTree, TreeDir};
use crate::{ErrorReason, SysError, Uid, dir, mount, mountinfo};

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

/// A mount of the folder `below` of a mount that is attached nowhere. Before Linux 6.15 only what is attached can be cloned, so it is attached for a
/// moment in a mount namespace of its own.
pub(super) fn mount_of_folder(whole: &OwnedFd, below: &Path) -> Result<OwnedFd, SysError> {
    let clone = || -> Result<OwnedFd, SysError> {
        // SAFETY: this thread was started for this closure; nothing else relies on its directories or mounts.
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::FS | UnshareFlags::NEWNS) }.step("make a mount namespace")?;
        let change = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
        rustix::mount::mount_change("/", change).step("keep the mount namespace to itself")?;
        // Any folder will do, and this one is everywhere.
        let at = Path::new("/proc");
        mount::attach_at(whole, at)?;
        let opened = dir::open(whole, below).step("open the folder of the dataset");
        let made = opened.and_then(|folder| mount::clone_mount(folder.as_fd()));
        // The namespace ends some time after this thread.
        rustix::mount::unmount(at, UnmountFlags::DETACH).step("detach a mount")?;
        made
    };
    std::thread::scope(|scope| {
        let worker = std::thread::Builder::new().name("dataset".into()).spawn_scoped(scope, clone).step("start a thread")?;
        worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

impl Zfs {
    /// The value of the property `mountpoint` of a new tree. Nobody but us mounts it; a daemon needs a path for that.
    pub(super) fn mountpoint(&self, uid: Uid) -> Result<String, SysError> {
        match kernel_type()? {
            Some(_) => Ok(LEGACY.to_owned()),
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
        Ok(self.mounts.insert(uid, self.mount_anew(uid)?))
    }

    /// A mount of a tree that nobody else in this process has.
    pub(super) fn mount_anew(&self, uid: Uid) -> Result<OwnedFd, SysError> {
        match kernel_type()? {
            Some(context) => self.mount_by_kernel(uid, context),
            None => self.mount_by_daemon(uid),
        }
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

    /// Opens the root directory of a tree, which may be a folder of its dataset.
    pub(super) fn open_root(&self, live: &LiveTree) -> Result<TreeDir, SysError> {
        let dataset = self.open_dataset(live.marker.uid)?;
        match &live.marker.below {
            below if below.as_os_str().is_empty() => Ok(dataset),
            below => Ok(TreeDir { dir: dir::open(&dataset, below).step("open the folder of the dataset")?, ..dataset }),
        }
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
