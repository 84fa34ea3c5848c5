//! Bind mounts of trees at targets that the kubelet names.

mod cover;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mount::{MoveMountFlags, OpenTreeFlags, UnmountFlags};

use crate::error::StepContext;
use crate::mountinfo::{self, Location, Mount};
use crate::trees::TreeDir;
use crate::{SysError, host};

pub use cover::{
    Cover, CoverError, HIDDEN_SOURCE, LaidCover, MAX_COVERS, Shown, cover_in_use, laid_covers, lay_covers, root_is_read_only,
    take_off_covers, uncover_in_use,
};

/// Why a mount was not made or not removed.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the message of a variant says what it is")]
pub enum MountError {
    #[error("failed to open the target root {path}")]
    OpenRoot { path: PathBuf, source: SysError },
    #[error("failed to open the target {target}")]
    Target { target: PathBuf, source: SysError },
    #[error("failed to mount at {target}: something else is mounted there")]
    Occupied { target: PathBuf },
    #[error("failed to mount at {target}")]
    Mount { target: PathBuf, source: SysError },
    /// A process still uses it; try again later.
    #[error("failed to unmount {target}: it is in use")]
    Busy { target: PathBuf },
    #[error("failed to unmount {target}")]
    Unmount { target: PathBuf, source: SysError },
    /// We never empty it: what is in it may be the only copy.
    #[error("failed to remove {target}: it is not empty")]
    NotEmpty { target: PathBuf },
}

/// What [`bind`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BindOutcome {
    /// The tree is mounted now.
    Mounted,
    /// The same tree was mounted already, in the same way.
    AlreadyMounted,
}

/// The directory that contains all targets (the kubelet's). Targets are opened beneath it, through no symbolic link.
pub struct TargetRoot {
    dir: OwnedFd,
    path: PathBuf,
}

impl TargetRoot {
    /// Opens `path`, which may be a symbolic link.
    pub fn open(path: &Path) -> Result<Self, MountError> {
        let open = || -> Result<Self, SysError> {
            let dir =
                rustix::fs::open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).step("open the directory")?;
            let path = mountinfo::path_of(&dir)?;
            Ok(Self { dir, path })
        };
        open().map_err(|source| MountError::OpenRoot { path: path.to_owned(), source })
    }

    /// Opens the topmost mount or directory at `target`; `None` if it is missing.
    fn open_target(&self, target: &Path) -> Result<Option<OwnedFd>, SysError> {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::openat2(&self.dir, target, flags, Mode::empty(), resolve) {
            Ok(fd) => Ok(Some(fd)),
            Err(Errno::NOENT) => Ok(None),
            Err(e) => Err(e).step("open the directory"),
        }
    }

    /// Opens what is mounted at `target` for reading; `None` if it is missing.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn open_mounted(&self, target: &Path) -> Result<Option<OwnedFd>, SysError> {
        let Some(at) = self.open_target(target)? else { return Ok(None) };
        Ok(Some(crate::dir::open(at, c".").step("open the mount")?))
    }

    /// Opens the parent of `target`, and returns it with the last component; `None` if the parent is missing.
    fn open_parent<'a>(&self, target: &'a Path) -> Result<Option<(OwnedFd, &'a std::ffi::OsStr)>, SysError> {
        let bad = || std::io::Error::new(std::io::ErrorKind::InvalidInput, "a target is a relative path of plain names");
        let plain = target.components().all(|c| matches!(c, std::path::Component::Normal(_)));
        let name = target.file_name().filter(|_| plain).ok_or_else(bad).step("read the path of the target")?;
        let parent = target.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Ok(self.open_target(parent)?.map(|fd| (fd, name)))
    }
}

/// A tree that is ready to be mounted, see [`crate::Provider::open_for_mount`].
#[derive(Debug)]
pub struct TreeMount(Content);

#[derive(Debug)]
enum Content {
    /// A folder of a mount that this process sees: the new mount is a clone of that one.
    Folder(TreeDir),
    /// A mount of a file system of its own, or of this folder of it, attached nowhere yet.
    Detached(Arc<OwnedFd>, PathBuf),
}

impl TreeMount {
    pub(crate) fn of_folder(tree: TreeDir) -> Self {
        Self(Content::Folder(tree))
    }

    pub(crate) fn detached(mount: Arc<OwnedFd>) -> Self {
        Self(Content::Detached(mount, PathBuf::new()))
    }

    /// `mount` shows the folder `below` of its file system.
    pub(crate) fn detached_folder(mount: OwnedFd, below: PathBuf) -> Self {
        Self(Content::Detached(Arc::new(mount), below))
    }

    fn location(&self, table: &[Mount]) -> Result<Location, SysError> {
        match &self.0 {
            Content::Folder(tree) => mountinfo::locate(tree, table),
            Content::Detached(mount, below) => mountinfo::locate_detached(mount, below),
        }
    }

    /// Attaches the tree. A mount that is shared with another user of this process stays as it is: a clone is attached.
    fn attach(self, target_dir: &OwnedFd, read_only: bool) -> Result<(), SysError> {
        let (mount, may_clear) = match self.0 {
            Content::Folder(tree) => (Arc::new(clone_mount(tree.as_fd())?), false),
            Content::Detached(mount, _) if Arc::strong_count(&mount) > 1 => (Arc::new(clone_mount(mount.as_fd())?), true),
            Content::Detached(mount, _) => (mount, true),
        };
        host::harden_mount(&mount, read_only, may_clear).step("set the attributes of the mount")?;
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        rustix::mount::move_mount(mount.as_fd(), c"", target_dir.as_fd(), c"", flags).step("attach the mount")
    }
}

/// A new mount of the directory that a descriptor refers to, attached nowhere.
pub(crate) fn clone_mount(dir: BorrowedFd) -> Result<OwnedFd, SysError> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    rustix::mount::open_tree(dir, c"", flags).step("clone the mount of the tree")
}

/// Mounts the directory `dir` at `target`, see [`bind_tree`].
pub fn bind(dir: BorrowedFd, root: &TargetRoot, target: &Path, read_only: bool) -> Result<BindOutcome, MountError> {
    let wrap = |source| MountError::Mount { target: root.path.join(target), source };
    let dir = dir.try_clone_to_owned().step("copy a descriptor").map_err(wrap)?;
    bind_tree(TreeMount::of_folder(TreeDir { dir, _mount: None }), root, target, read_only)
}

/// Mounts `tree` at `target` (relative to `root`), nosuid and nodev, and read-only if asked. Makes the last component of the target.
/// Mounts inside the tree are not included. If the same tree is mounted there already in the same way, nothing is done.
/// Errors: `Target`, `Occupied`, `Mount`.
pub fn bind_tree(tree: TreeMount, root: &TargetRoot, target: &Path, read_only: bool) -> Result<BindOutcome, MountError> {
    let wrap_target = |source| MountError::Target { target: root.path.join(target), source };
    let Some((parent, name)) = root.open_parent(target).map_err(wrap_target)? else {
        let source = std::io::Error::from_raw_os_error(libc::ENOENT);
        return Err(wrap_target(SysError { step: "open the parent of the target", source }));
    };
    match rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(0o750)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(e) => return Err(e).step("make the target").map_err(wrap_target),
    }
    let target_dir = root.open_target(target).map_err(wrap_target)?;
    let target_dir =
        target_dir.ok_or_else(|| std::io::Error::from_raw_os_error(libc::ENOENT)).step("open the target").map_err(wrap_target)?;

    let wrap = |source| MountError::Mount { target: root.path.join(target), source };
    let table = mountinfo::read().map_err(wrap)?;
    let wanted = tree.location(&table).map_err(wrap)?;
    let path = mountinfo::path_of(&parent).map_err(wrap)?.join(name);
    match top_mount(&table, &path) {
        Some(top) if shows_same_tree(top, &wanted, read_only) => return Ok(BindOutcome::AlreadyMounted),
        Some(_) => return Err(MountError::Occupied { target: root.path.join(target) }),
        None => {}
    }
    tree.attach(&target_dir, read_only).map_err(wrap)?;
    Ok(BindOutcome::Mounted)
}

/// Unmounts everything at `target` and removes the empty directory. A missing target is a success. Content is never deleted.
/// Errors: `Target`, `Busy`, `Unmount`, `NotEmpty`.
pub fn unbind(root: &TargetRoot, target: &Path) -> Result<(), MountError> {
    let full = || root.path.join(target);
    let Some((parent, name)) = root.open_parent(target).map_err(|source| MountError::Target { target: full(), source })? else {
        return Ok(());
    };
    let wrap = |source| MountError::Unmount { target: full(), source };
    // Through the parent's descriptor, because umount takes no directory descriptor and only the last component may be a mount.
    let path = mountinfo::path_of(&parent).map_err(wrap)?.join(name);
    for _ in 0..mountinfo::read().map_err(wrap)?.iter().filter(|m| m.mount_point == path).count() {
        use std::os::fd::AsRawFd;
        let by_fd = Path::new("/proc/self/fd").join(parent.as_raw_fd().to_string()).join(name);
        match rustix::mount::unmount(&by_fd, UnmountFlags::NOFOLLOW) {
            Ok(()) => {}
            Err(Errno::INVAL | Errno::NOENT) => break,
            Err(Errno::BUSY) => return Err(MountError::Busy { target: full() }),
            Err(e) => return Err(e).step("unmount").map_err(wrap),
        }
    }
    match rustix::fs::unlinkat(&parent, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(Errno::NOTEMPTY) => Err(MountError::NotEmpty { target: full() }),
        Err(Errno::BUSY) => Err(MountError::Busy { target: full() }),
        Err(e) => Err(e).step("remove the directory").map_err(wrap),
    }
}

/// Makes a mount, and all that is mounted below it, read-only. Device nodes and sockets in them can be used as before.
pub fn make_read_only(path: &Path) -> Result<(), SysError> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = rustix::fs::open(path, flags, Mode::empty()).step("open a mount")?;
    host::make_mounts_read_only(&dir).step("make mounts read-only")
}

fn top_mount<'a>(table: &'a [Mount], path: &Path) -> Option<&'a Mount> {
    table.iter().rfind(|m| m.mount_point == path)
}

fn shows_same_tree(mount: &Mount, wanted: &Location, read_only: bool) -> bool {
    mount.device == wanted.device && mount.root == wanted.root && mount.read_only == read_only
}

/// Attaches a new mount at `path`.
pub(crate) fn attach_at(mount: impl AsFd, path: &Path) -> Result<(), SysError> {
    rustix::mount::move_mount(mount, c"", CWD, path, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH).step("attach the mount")
}
