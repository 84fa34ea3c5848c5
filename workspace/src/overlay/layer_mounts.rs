//! Making overlays, of which nothing is in the mount table of the node.
//!
//! Since Linux 6.15 an overlay takes its layers as descriptors, also of a mount that is attached nowhere. An older kernel takes paths, and only
//! of mounts of the caller's namespace, so for it there is a mount namespace of our own. A thread has to enter it, and on a busy node a new
//! thread waits for its turn, so it is the second choice. In this namespace the data root
//! stands twice: at `/rw` for upper layers and at `/ro`, read-only, for lower layers. Its paths are ours, so no character of the node's own
//! paths needs an escape.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags, UnmountFlags};
use rustix::thread::{LinkNameSpaceType, UnshareFlags};

use crate::error::StepContext;
use crate::layout::UPPER;
use crate::{SysError, dir, host, mount};

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
const READ_WRITE: &str = "/rw";
const READ_ONLY: &str = "/ro";

/// The data root, for the layers of overlays.
pub(super) struct LayerMounts {
    namespace: OnceLock<OwnedFd>,
    read_write: OwnedFd,
    /// Everything that is opened from here is read-only, to this process, too.
    pub read_only: OwnedFd,
    /// Keeps it a mount.
    _mount: OwnedFd,
    /// Whether the kernel takes descriptors, as far as is known.
    takes_descriptors: AtomicBool,
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

impl LayerMounts {
    /// `takes_descriptors` is false for a test of what an older kernel does.
    pub fn new(root: BorrowedFd, takes_descriptors: bool) -> Result<Self, SysError> {
        let mount = mount::clone_mount(root)?;
        host::harden_mount(&mount, true, false).step("set the attributes of a mount")?;
        let read_only = rustix::fs::openat(&mount, ".", FOLDER, Mode::empty()).step("open the data root read-only")?;
        let read_write = root.try_clone_to_owned().step("copy a descriptor")?;
        let takes_descriptors = AtomicBool::new(takes_descriptors);
        Ok(Self { namespace: OnceLock::new(), read_write, read_only, _mount: mount, takes_descriptors })
    }

    /// Makes an overlay. The mount is attached nowhere. Fails with EBUSY while another overlay has this upper layer, and with ESTALE if the
    /// upper layer belongs to another lower layer.
    pub fn mount(&self, layers: &Layers) -> Result<OwnedFd, SysError> {
        if self.takes_descriptors.load(Ordering::Relaxed) {
            match self.mount_by_descriptors(layers) {
                // EOPNOTSUPP is the answer before Linux 6.5, whose overlays know the new mount API only by way of the old one.
                Err(e) if matches!(e.source.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP)) => {}
                other => return other,
            }
            let made = self.mount_by_paths(layers)?;
            self.takes_descriptors.store(false, Ordering::Relaxed);
            return Ok(made);
        }
        self.mount_by_paths(layers)
    }

    fn mount_by_descriptors(&self, layers: &Layers) -> Result<OwnedFd, SysError> {
        let entry = dir::open(&self.read_write, layers.entry).step("open the entry")?;
        let lower = dir::open(&self.read_only, layers.lower).step("open the lower layer")?;
        let upper = dir::open(&entry, UPPER).step("open the upper layer")?;
        let work = dir::open(&entry, layers.work).step("open the work folder")?;
        make(layers, |context| {
            for (name, layer) in [("lowerdir+", &lower), ("upperdir", &upper), ("workdir", &work)] {
                rustix::mount::fsconfig_set_fd(context, name, layer.as_fd()).step("name a layer of the overlay")?;
            }
            Ok(())
        })
    }

    fn mount_by_paths(&self, layers: &Layers) -> Result<OwnedFd, SysError> {
        let namespace = match self.namespace.get() {
            Some(there) => there,
            None => {
                let (rw, ro) = (mount::clone_mount(self.read_write.as_fd())?, mount::clone_mount(self.read_write.as_fd())?);
                for (mount, read_only) in [(&rw, false), (&ro, true)] {
                    host::harden_mount(mount, read_only, false).step("set the attributes of a mount")?;
                }
                let made = on_own_thread(|| enter_new(&rw, &ro))?;
                // Another call may have made one, too: one of them is closed again.
                self.namespace.get_or_init(|| made)
            }
        };
        on_own_thread(|| {
            // SAFETY: this thread was started for this closure; nothing else relies on its working directory.
            unsafe { rustix::thread::unshare_unsafe(UnshareFlags::FS) }.step("leave the process's directories")?;
            let kind = Some(LinkNameSpaceType::Mount);
            rustix::thread::move_into_link_name_space(namespace.as_fd(), kind).step("enter the mount namespace")?;
            make(layers, |context| {
                let Layers { lower, entry, work, .. } = layers;
                let paths = [
                    ("lowerdir", format!("{READ_ONLY}/{lower}")),
                    ("upperdir", format!("{READ_WRITE}/{entry}/{UPPER}")),
                    ("workdir", format!("{READ_WRITE}/{entry}/{work}")),
                ];
                for (name, path) in &paths {
                    rustix::mount::fsconfig_set_string(context, *name, path.as_str()).step("name a layer of the overlay")?;
                }
                Ok(())
            })
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

fn make(layers: &Layers, name_layers: impl FnOnce(BorrowedFd) -> Result<(), SysError>) -> Result<OwnedFd, SysError> {
    let context = rustix::mount::fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC).step("open the file system type overlay")?;
    let fd = context.as_fd();
    name_layers(fd)?;
    let options = [
        ("source", layers.source),
        ("index", if layers.is_only { "on" } else { "off" }),
        ("redirect_dir", "on"),
        ("metacopy", "off"),
        // The index would then hold folders, too, which a fork does not copy.
        ("nfs_export", "off"),
    ];
    for (name, value) in options {
        rustix::mount::fsconfig_set_string(fd, name, value).step("set an option of the overlay")?;
    }
    if layers.is_volatile {
        rustix::mount::fsconfig_set_flag(fd, "volatile").step("set an option of the overlay")?;
    }
    rustix::mount::fsconfig_create(fd).step("make the overlay")?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    rustix::mount::fsmount(fd, FsMountFlags::FSMOUNT_CLOEXEC, attributes).step("mount the overlay")
}
