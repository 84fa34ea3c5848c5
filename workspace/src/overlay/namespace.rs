//! A mount namespace of our own, in which overlays are made and never stay.
//!
//! An overlay takes its layers by path, and a kernel before 6.15 only from mounts of the caller's namespace. In this namespace the data root
//! stands twice: at `/rw` for upper layers and at `/ro`, read-only, for lower layers. Its paths are ours, so no character of the node's own
//! paths needs an escape. Nothing of it is in the mount table of the node.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags, UnmountFlags};
use rustix::thread::{LinkNameSpaceType, UnshareFlags};

use crate::error::StepContext;
use crate::layout::UPPER;
use crate::{SysError, host, mount};

const READ_WRITE: &str = "/rw";
const READ_ONLY: &str = "/ro";

/// The namespace, and the data root as it is at `/ro`.
pub(super) struct MountNamespace {
    namespace: OwnedFd,
    /// Everything that is opened from here is read-only, to this process, too.
    pub read_only: OwnedFd,
}

/// What an overlay is made of, by paths below the data root.
pub(super) struct Layers<'a> {
    /// The name in the mount table.
    pub source: &'a str,
    pub lower: &'a str,
    /// The folder that holds the upper layer and the work folder.
    pub entry: &'a str,
    /// The name of the work folder.
    pub work: &'a str,
    /// Nothing is flushed when it is unmounted: only for what is removed afterwards. Leaves a mark in the work folder that forbids another
    /// mount with it.
    pub is_volatile: bool,
    /// Whether the kernel refuses a second overlay with the same upper layer. False only for a test that must notice it.
    pub is_only: bool,
}

impl MountNamespace {
    pub fn new(root: BorrowedFd) -> Result<Self, SysError> {
        let rw = mount::clone_mount(root)?;
        let ro = mount::clone_mount(root)?;
        for (mount, read_only) in [(&rw, false), (&ro, true)] {
            host::harden_mount(mount, read_only, false).step("set the attributes of a mount")?;
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let read_only = rustix::fs::openat(&ro, ".", flags, Mode::empty()).step("open the data root read-only")?;
        let namespace = on_own_thread(|| enter_new(&rw, &ro))?;
        Ok(Self { namespace, read_only })
    }

    /// Makes an overlay. The mount is attached nowhere. Fails with EBUSY while another overlay has this upper layer, and with ESTALE if the
    /// upper layer belongs to another lower layer.
    pub fn mount(&self, layers: &Layers) -> Result<OwnedFd, SysError> {
        on_own_thread(|| {
            // SAFETY: this thread was started for this closure; nothing else relies on its working directory.
            unsafe { rustix::thread::unshare_unsafe(UnshareFlags::FS) }.step("leave the process's directories")?;
            let kind = Some(LinkNameSpaceType::Mount);
            rustix::thread::move_into_link_name_space(self.namespace.as_fd(), kind).step("enter the mount namespace")?;
            make(layers)
        })
    }
}

/// Namespaces belong to threads, so the calling thread must not change its own.
fn on_own_thread<T: Send>(act: impl FnOnce() -> Result<T, SysError> + Send) -> Result<T, SysError> {
    std::thread::scope(|scope| {
        let worker = std::thread::Builder::new().name("overlay".into()).spawn_scoped(scope, act).step("start a thread")?;
        worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Leaves this thread in a new namespace that holds a tmpfs and the two mounts, and nothing else: a copy of another mount would keep its file
/// system from being unmounted.
fn enter_new(rw: &OwnedFd, ro: &OwnedFd) -> Result<OwnedFd, SysError> {
    // SAFETY: this thread was started for this function; nothing else relies on its directories or mounts.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::FS | UnshareFlags::NEWNS) }.step("make a mount namespace")?;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let namespace = rustix::fs::open("/proc/thread-self/ns/mnt", flags, Mode::empty()).step("open the mount namespace")?;
    let change = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", change).step("make the mount namespace private")?;
    let context = rustix::mount::fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC).step("open the file system type tmpfs")?;
    rustix::mount::fsconfig_set_string(context.as_fd(), "mode", "0700").step("set a mount option")?;
    rustix::mount::fsconfig_create(context.as_fd()).step("make a tmpfs")?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    let top = rustix::mount::fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes).step("mount a tmpfs")?;
    // Any folder will do, and this one is everywhere.
    attach(&top, "/proc")?;
    rustix::process::fchdir(&top).step("enter the tmpfs")?;
    host::pivot_root_here().step("make the tmpfs the root")?;
    rustix::mount::unmount(".", UnmountFlags::DETACH).step("detach the other mounts")?;
    rustix::process::chdir("/").step("enter the root")?;
    for (mount, at) in [(rw, READ_WRITE), (ro, READ_ONLY)] {
        rustix::fs::mkdir(at, Mode::RWXU).step("make a directory")?;
        attach(mount, at)?;
    }
    Ok(namespace)
}

fn attach(mount: &OwnedFd, at: &str) -> Result<(), SysError> {
    rustix::mount::move_mount(mount, c"", CWD, at, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH).step("attach a mount")
}

fn make(layers: &Layers) -> Result<OwnedFd, SysError> {
    let Layers { source, lower, entry, work, is_volatile, is_only } = layers;
    let context = rustix::mount::fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC).step("open the file system type overlay")?;
    let fd = context.as_fd();
    let only = if *is_only { "on" } else { "off" };
    let options = [
        ("source", (*source).to_owned()),
        ("lowerdir", format!("{READ_ONLY}/{lower}")),
        ("upperdir", format!("{READ_WRITE}/{entry}/{UPPER}")),
        ("workdir", format!("{READ_WRITE}/{entry}/{work}")),
        ("index", only.to_owned()),
        ("redirect_dir", "on".to_owned()),
        ("metacopy", "off".to_owned()),
        // The index would then hold folders, too, which a fork does not copy.
        ("nfs_export", "off".to_owned()),
    ];
    for (name, value) in &options {
        rustix::mount::fsconfig_set_string(fd, *name, value.as_str()).step("set an option of the overlay")?;
    }
    if *is_volatile {
        rustix::mount::fsconfig_set_flag(fd, "volatile").step("set an option of the overlay")?;
    }
    rustix::mount::fsconfig_create(fd).step("make the overlay")?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    rustix::mount::fsmount(fd, FsMountFlags::FSMOUNT_CLOEXEC, attributes).step("mount the overlay")
}
