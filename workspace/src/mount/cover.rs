//! Covers: mounts over paths of a tree that is published, which show a Pod what its agent may do there. Decision 0011 says what they hold.
//!
//! A cover is a mount strictly below the target of a tree. It shows the same path of the same tree, or nothing. The mount table is its record: it is true
//! whatever process ends, and ends with the node.
//!
//! # Assumptions
//! No process of the Pod runs while [`lay_covers`] and [`take_off_covers`] are at work. [`cover_in_use`] and [`uncover_in_use`] are for a Pod that runs. What
//! somebody has opened below a path before stays as it was opened, or below a folder above it that is covered too: whoever counts on a cover ends them.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::{CStr, OsString};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mount::{MoveMountFlags, UnmountFlags};
use serde::{Deserialize, Serialize};

use super::{BindOutcome, MountError, TargetRoot, clone_mount};
use crate::error::StepContext;
use crate::linked_files::MOST_LINKED;
use crate::mountinfo::{self, Location, Mount};
use crate::{ErrorReason, NodeKind, SysError, dir, host};

mod hidden;
mod in_use;

pub use in_use::{LaidCover, cover_in_use, laid_covers, uncover_in_use};

/// The most covers of one view.
pub const MAX_COVERS: usize = 512;
/// What a mount that hides a path says of itself in the mount table.
pub const HIDDEN_SOURCE: &str = "yoi:hidden";

/// One cover.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cover {
    /// Relative to the tree, of plain names; `.` is its root.
    pub path: PathBuf,
    /// What is seen there and below, until another cover.
    pub shown: Shown,
    /// What is seen there instead if the path is no folder. None: the same.
    pub shown_file: Option<Shown>,
    /// What is seen instead in each folder directly below that has no cover of its own. None: the same.
    pub folders: Option<Shown>,
}

/// What a cover shows, in the order of how much it closes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Shown {
    /// The path as it is, to be written.
    Writable,
    /// The path as it is, to be read.
    ReadOnly,
    /// Nothing: an empty folder, or an empty file.
    Hidden,
}

/// Why a view is not as it should be. Each names a path of the tree.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the message of a variant says what it is")]
pub enum CoverError {
    #[error("failed to cover {}: it is no path of plain names below the tree", .path.display())]
    NoPath { path: PathBuf },
    #[error("failed to cover {}: it is not in the tree", .path.display())]
    Missing { path: PathBuf },
    #[error("failed to cover {}: it is a symbolic link, or lies behind one; name what the link leads to", .path.display())]
    Link { path: PathBuf },
    #[error("failed to cover the whole tree so that it is hidden")]
    WholeTree,
    #[error("failed to cover {}: it would be the cover number {}, and at most {MAX_COVERS} are laid; let fewer folders have rules", .path.display(), MAX_COVERS + 1)]
    TooMany { path: PathBuf },
    #[error("failed to cover {}: it is the same file as {}, which would stay open to it; remove one of the two names", .path.display(), .other.display())]
    OtherName { path: PathBuf, other: PathBuf },
    #[error("failed to cover {}: more than {MOST_LINKED} files of the tree have several names", .path.display())]
    ManyNames { path: PathBuf },
    #[error("failed to cover {}: something else is mounted there", .path.display())]
    Foreign { path: PathBuf },
    #[error("failed to close the whole tree of a Pod that runs; name folders of it")]
    WholeTreeInUse,
    #[error("failed to cover {} while its Pod runs: {} below it is closed on its own, and would be open for a moment; name paths beside that one", .path.display(), .below.display())]
    Below { path: PathBuf, below: PathBuf },
    #[error("failed to cover {}: a folder on the way was renamed meanwhile", .path.display())]
    Moved { path: PathBuf },
    #[error("failed to cover {}", .path.display())]
    Mount { path: PathBuf, source: SysError },
    /// The tree is not mounted there, or cannot be opened.
    #[error("failed to open the tree at {target}")]
    Target { target: PathBuf, source: SysError },
}

impl CoverError {
    /// Whether another rule or another tree is needed: trying again changes nothing.
    #[must_use]
    pub fn is_of_the_rules(&self) -> bool {
        match self {
            CoverError::NoPath { .. } | CoverError::Missing { .. } | CoverError::Link { .. } => true,
            CoverError::WholeTree | CoverError::TooMany { .. } | CoverError::OtherName { .. } | CoverError::ManyNames { .. } => true,
            CoverError::WholeTreeInUse | CoverError::Below { .. } => true,
            CoverError::Mount { source, .. } => source.reason() == ErrorReason::TreeTooDeep,
            CoverError::Foreign { .. } | CoverError::Moved { .. } | CoverError::Target { .. } => false,
        }
    }
}

/// Whether these covers show the root of the tree read-only: then it is published so.
#[must_use]
pub fn root_is_read_only(covers: &[Cover]) -> bool {
    covers.iter().any(|cover| is_root(&cover.path) && cover.shown != Shown::Writable)
}

/// Lays covers over the tree that is mounted at `target`, in their order. One that is there already is left alone. `read_only`: nothing can be written,
/// whatever a cover says.
///
/// # Errors
/// A path cannot be covered, or a file has names on both sides of a cover. Of the covers before the one that fails, some may stay.
pub fn lay_covers(root: &TargetRoot, target: &Path, read_only: bool, covers: &[Cover]) -> Result<(), CoverError> {
    let tree = PublishedTree::open(root, target)?;
    let wanted = tree.mounts_of(read_only, covers)?;
    let table = mountinfo::read().map_err(|source| CoverError::Target { target: root.path.join(target), source })?;
    let of_root = |path: &Path| is_root(path);
    if wanted.iter().all(|(path, shown)| of_root(path) || tree.top_mount(&table, path).is_some_and(|top| tree.shows(top, path, *shown))) {
        return Ok(());
    }
    tree.check_names(&wanted)?;
    // The tree itself is mounted as its root is to be seen.
    wanted.iter().filter(|(path, _)| !of_root(path)).try_for_each(|(path, shown)| tree.lay(path, *shown).map(drop))
}

/// Takes all covers off the tree that is mounted at `target`, the inner first. A target without a tree, or without covers, is a success.
/// Errors: `Target`, `Busy`, `Unmount`.
pub fn take_off_covers(root: &TargetRoot, target: &Path) -> Result<(), MountError> {
    let full = || root.path.join(target);
    let wrap = |source| MountError::Unmount { target: full(), source };
    let Some(dir) = root.open_target(target).map_err(|source| MountError::Target { target: full(), source })? else { return Ok(()) };
    let table = mountinfo::read().map_err(wrap)?;
    let tree = mountinfo::locate(&dir, &table).map_err(wrap)?;
    let covers = table.iter().filter_map(|mount| Some((mount, mount.mount_point.strip_prefix(&tree.path).ok()?)));
    let mut covers: Vec<&Path> =
        covers.filter(|(mount, path)| !is_root(path) && is_cover(mount, &tree, path)).map(|(_, path)| path).collect();
    // A mount that lies on another one, or in it, is later in the table.
    covers.reverse();
    for path in covers {
        let (above, Some(name)) = (path.parent().unwrap_or(Path::new("")), path.file_name()) else { continue };
        // Opened without following a link: what is in the tree, its Pod has made.
        let above = open_beneath(&dir, above).step("open the folder above a cover").map_err(wrap)?;
        let by_fd = Path::new("/proc/self/fd").join(above.as_raw_fd().to_string()).join(name);
        match rustix::mount::unmount(&by_fd, UnmountFlags::NOFOLLOW) {
            Ok(()) | Err(Errno::INVAL | Errno::NOENT) => {}
            Err(Errno::BUSY) => return Err(MountError::Busy { target: full().join(path) }),
            Err(e) => return Err(e).step("take off a cover").map_err(wrap),
        }
    }
    Ok(())
}

fn is_root(path: &Path) -> bool {
    path.as_os_str().is_empty() || path == Path::new(".")
}

/// Whether a mount at `path` below the tree is a cover.
fn is_cover(mount: &Mount, tree: &Location, path: &Path) -> bool {
    is_hidden(mount) || (mount.device == tree.device && mount.root == tree.root.join(path))
}

fn is_hidden(mount: &Mount) -> bool {
    mount.fs_type == "tmpfs" && mount.source == Path::new(HIDDEN_SOURCE)
}

fn open_beneath(dir: &OwnedFd, path: &Path) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let path = if is_root(path) { Path::new(".") } else { path };
    rustix::fs::openat2(dir, path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty(), resolve)
}

/// A tree that is mounted at a target.
struct PublishedTree {
    /// The root of the topmost mount.
    dir: OwnedFd,
    location: Location,
}

impl PublishedTree {
    fn open(root: &TargetRoot, target: &Path) -> Result<Self, CoverError> {
        let wrap = |source| CoverError::Target { target: root.path.join(target), source };
        let missing = || Err(std::io::Error::from(std::io::ErrorKind::NotFound)).step("open the directory");
        let dir = root.open_target(target).and_then(|dir| dir.map_or_else(missing, Ok)).map_err(wrap)?;
        let location = mountinfo::locate(&dir, &mountinfo::read().map_err(wrap)?).map_err(wrap)?;
        Ok(Self { dir, location })
    }

    /// Opens a path through the covers that lie on its way, and through no link.
    fn open_path(&self, path: &Path) -> Result<OwnedFd, CoverError> {
        let is_plain = is_root(path) || path.components().all(|part| matches!(part, Component::Normal(_)));
        let error = match open_beneath(&self.dir, path) {
            _ if !is_plain => return Err(CoverError::NoPath { path: path.to_owned() }),
            Ok(opened) if is_link(&opened) => Errno::LOOP,
            Ok(opened) => return Ok(opened),
            Err(error) => error,
        };
        let path = path.to_owned();
        match error {
            Errno::NOENT | Errno::NOTDIR => Err(CoverError::Missing { path }),
            Errno::LOOP => Err(CoverError::Link { path }),
            Errno::NAMETOOLONG | Errno::INVAL => Err(CoverError::NoPath { path }),
            error => Err(error).step("open a path of the tree").map_err(|source| CoverError::Mount { path, source }),
        }
    }

    /// Every mount of a view, the outer first, and what it shows.
    fn mounts_of(&self, read_only: bool, covers: &[Cover]) -> Result<Vec<(PathBuf, Shown)>, CoverError> {
        let mut found = Vec::new();
        let mut add = |path: PathBuf, shown: Shown| {
            if found.len() >= MAX_COVERS {
                return Err(CoverError::TooMany { path });
            }
            found.push((path, if read_only && shown == Shown::Writable { Shown::ReadOnly } else { shown }));
            Ok(())
        };
        for Cover { path, shown, shown_file, folders } in covers {
            let is_folder = self.is_folder(path)?;
            let shown = if is_folder { *shown } else { shown_file.unwrap_or(*shown) };
            if is_root(path) && shown == Shown::Hidden {
                return Err(CoverError::WholeTree);
            }
            add(if is_root(path) { PathBuf::new() } else { path.clone() }, shown)?;
            let Some(of_folders) = folders.filter(|_| is_folder && shown != Shown::Hidden) else { continue };
            for name in self.folders_in(path)? {
                let below = if is_root(path) { PathBuf::from(name) } else { path.join(name) };
                if !covers.iter().any(|other| other.path == below) {
                    add(below, of_folders)?;
                }
            }
        }
        Ok(found)
    }

    /// Refuses a file with two names that show different: what is closed by one of them would be open by the other.
    fn check_names(&self, mounts: &[(PathBuf, Shown)]) -> Result<(), CoverError> {
        let shown_at = |path: &Path| {
            let nearest = path.ancestors().find_map(|above| mounts.iter().rfind(|(of, _)| of == above));
            nearest.map_or(Shown::Writable, |(_, shown)| *shown)
        };
        // Without what is mounted in it.
        let wrap = |source| CoverError::Mount { path: PathBuf::from("."), source };
        let tree = clone_mount(self.dir.as_fd()).map_err(wrap)?;
        let tree = dir::open(&tree, ".").step("open the tree").map_err(wrap)?;
        let (mut met, mut refused) = (HashMap::<(u64, u64), (PathBuf, Shown)>::new(), None);
        let walked = dir::walk(tree.as_fd(), &mut |entry| {
            if entry.kind == NodeKind::Dir || dir::links(&entry.stat) <= 1 {
                return Ok(());
            }
            let path = PathBuf::from(OsString::from_vec(entry.path.to_vec()));
            let shown = shown_at(&path);
            let number = met.len();
            match met.entry((entry.stat.st_dev, entry.stat.st_ino)) {
                Entry::Occupied(other) if other.get().1 != shown => {
                    refused = Some(CoverError::OtherName { path, other: other.get().0.clone() });
                    Err(std::io::Error::from(std::io::ErrorKind::Unsupported)).step("compare the names of a file")
                }
                Entry::Vacant(_) if number >= MOST_LINKED => {
                    refused = Some(CoverError::ManyNames { path });
                    Err(std::io::Error::from(std::io::ErrorKind::Unsupported)).step("compare the names of a file")
                }
                Entry::Vacant(vacant) => {
                    vacant.insert((path, shown));
                    Ok(())
                }
                Entry::Occupied(_) => Ok(()),
            }
        });
        match (refused, walked) {
            (Some(refused), _) => Err(refused),
            (None, walked) => walked.map_err(wrap),
        }
    }

    fn is_folder(&self, path: &Path) -> Result<bool, CoverError> {
        Ok(file_type(&self.open_path(path)?) == Some(FileType::Directory))
    }

    /// Names of the folders in a folder.
    fn folders_in(&self, path: &Path) -> Result<Vec<OsString>, CoverError> {
        let wrap = |source| CoverError::Mount { path: path.to_owned(), source };
        let opened = dir::open(&self.open_path(path)?, ".").step("open a folder of the tree").map_err(wrap)?;
        let mut found = Vec::new();
        let take = |name: &CStr| {
            let stat = match dir::stat(&opened, name) {
                Ok(stat) => stat,
                // Somebody removed it after the folder was read.
                Err(Errno::NOENT) => return Ok(()),
                Err(e) => return Err(e).step("stat an entry"),
            };
            if dir::kind(&stat) == NodeKind::Dir {
                found.push(OsString::from_vec(name.to_bytes().to_vec()));
            }
            Ok(())
        };
        dir::for_each_name(&opened, "list a folder of the tree", take).map_err(wrap)?;
        found.sort();
        Ok(found)
    }

    fn lay(&self, path: &Path, shown: Shown) -> Result<BindOutcome, CoverError> {
        let opened = self.open_path(path)?;
        let table = mountinfo::read().map_err(|source| CoverError::Mount { path: path.to_owned(), source })?;
        match self.top_mount(&table, path) {
            Some(top) if self.shows(top, path, shown) => Ok(BindOutcome::AlreadyMounted),
            Some(_) => Err(CoverError::Foreign { path: path.to_owned() }),
            None => self.attach(&opened, path, shown, &table).map(|()| BindOutcome::Mounted),
        }
    }

    /// Lays a cover over what is seen at `path`, which was opened.
    fn attach(&self, opened: &OwnedFd, path: &Path, shown: Shown, table: &[Mount]) -> Result<(), CoverError> {
        let foreign = || CoverError::Foreign { path: path.to_owned() };
        let wrap = |source| CoverError::Mount { path: path.to_owned(), source };
        // What is mounted on the way must show the same folder of the same tree.
        let here = mountinfo::locate(opened, table).map_err(wrap)?;
        if here.device != self.location.device || here.root != self.location.root.join(path) {
            return Err(foreign());
        }
        let mount = match shown {
            Shown::Hidden if file_type(opened) == Some(FileType::Directory) => hidden::folder().map_err(wrap)?,
            Shown::Hidden => hidden::file().map_err(wrap)?,
            Shown::Writable | Shown::ReadOnly => {
                let mount = clone_mount(opened.as_fd()).map_err(wrap)?;
                // While it is attached nowhere: a flag that is set later would not reach the Pods.
                host::harden_mount(&mount, shown == Shown::ReadOnly, true).step("set the attributes of a cover").map_err(wrap)?;
                mount
            }
        };
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        rustix::mount::move_mount(mount.as_fd(), c"", opened.as_fd(), c"", flags).step("attach a cover").map_err(wrap)
    }

    fn top_mount<'a>(&self, table: &'a [Mount], path: &Path) -> Option<&'a Mount> {
        let at = self.location.path.join(path);
        table.iter().rfind(|mount| mount.mount_point == at)
    }

    fn shows(&self, top: &Mount, path: &Path, shown: Shown) -> bool {
        let shows_tree =
            |read_only: bool| top.device == self.location.device && top.root == self.location.root.join(path) && top.read_only == read_only;
        match shown {
            Shown::Hidden => is_hidden(top),
            Shown::ReadOnly => shows_tree(true),
            Shown::Writable => shows_tree(false),
        }
    }
}

fn file_type(opened: &OwnedFd) -> Option<FileType> {
    let stat = rustix::fs::statat(opened, c"", AtFlags::EMPTY_PATH).ok()?;
    Some(FileType::from_raw_mode(stat.st_mode))
}

fn is_link(opened: &OwnedFd) -> bool {
    file_type(opened) == Some(FileType::Symlink)
}
