//! The source tree, and paths beneath its root.
//!
//! A path is first resolved to a path without links: every link on the way is read and its target checked. Then the kernel opens that path
//! beneath the root without following any link (`openat2`: `BENEATH`, `NO_SYMLINKS`, `NO_MAGICLINKS`). If a component is exchanged for a
//! link in between, the open fails; it never opens a file elsewhere.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, fstat, mkdirat, openat, openat2, readlinkat, renameat, statat, unlinkat};
use rustix::io::Errno;
use uuid::Uuid;
use yoi_wire::entry::RefusalClass;

/// The most links in one path, as in the kernel.
const MAX_LINKS: usize = 40;
/// How often a path is resolved when it changes meanwhile.
const MAX_WALKS: usize = 3;

/// Why a path cannot be used. The text is for the model.
#[derive(Debug, thiserror::Error)]
pub enum PathError {
    #[error("sandbox_violation: {given:?} leads out of the tree")]
    Outside { given: String },
    #[error("invalid_path: {given:?} is a loop of links")]
    Loop { given: String },
    #[error("invalid_path: {given:?} is not a path")]
    NotAPath { given: String },
    #[error("sandbox_violation: {given:?} changed while it was used")]
    Changed { given: String },
    #[error("{given:?}: {source}")]
    Io { given: String, source: io::Error },
}

impl PathError {
    /// The class of a refusal; `None` for a failure of the system.
    pub fn class(&self) -> Option<RefusalClass> {
        match self {
            Self::Outside { .. } | Self::Changed { .. } => Some(RefusalClass::SandboxViolation),
            Self::Loop { .. } | Self::NotAPath { .. } => Some(RefusalClass::InvalidPath),
            Self::Io { .. } => None,
        }
    }
}

/// An open root folder.
#[derive(Debug)]
pub struct Tree {
    root: OwnedFd,
    path: PathBuf,
}

/// Where a path leads, relative to the root, without links.
#[derive(Debug, PartialEq, Eq)]
struct ResolvedPath {
    names: Vec<OsString>,
}

impl ResolvedPath {
    fn path(&self) -> PathBuf {
        if self.names.is_empty() { PathBuf::from(".") } else { self.names.iter().collect() }
    }
}

impl Tree {
    /// Opens the root.
    ///
    /// # Errors
    /// The system's.
    pub fn open(path: &Path) -> io::Result<Self> {
        let root = rustix::fs::open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Self { root, path: path.to_owned() })
    }

    /// Checks that a path lies beneath the root. It need not exist.
    ///
    /// # Errors
    /// It leads out of the tree or is not a path. A path that cannot be resolved for another reason passes, and fails when it is used.
    pub fn check(&self, given: &str) -> Result<(), PathError> {
        match self.resolve(given) {
            Ok(_) | Err(PathError::Io { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Opens a regular file for reading.
    ///
    /// # Errors
    /// It leads out of the tree, is not there, or is no regular file.
    pub fn read(&self, given: &str) -> Result<File, PathError> {
        let fd = self.retry_on_change(given, |resolved| {
            // Without NONBLOCK, opening a FIFO would wait for its writer.
            self.openat2(&resolved.path(), OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)
        })?;
        let kind = fstat(&fd).map(|stat| FileType::from_raw_mode(stat.st_mode)).map_err(|error| io_error(given, error))?;
        match kind {
            FileType::RegularFile => Ok(File::from(fd)),
            FileType::Directory => Err(io_kind_error(given, io::ErrorKind::IsADirectory)),
            _ => Err(PathError::Io { given: given.to_owned(), source: io::Error::other("it is not a regular file") }),
        }
    }

    /// The path of a file or folder relative to the root, without links: `.` for the root itself. It need not exist.
    ///
    /// # Errors
    /// It leads out of the tree, or cannot be resolved.
    pub fn locate(&self, given: &str) -> Result<PathBuf, PathError> {
        Ok(self.resolve(given)?.path())
    }

    /// The names of a path that cannot be resolved, such as one below a folder that may not be entered; `None` when they are not beneath the root.
    #[must_use]
    pub fn names_of(&self, given: &str) -> Option<PathBuf> {
        let names = self.names_beneath(Path::new(given))?;
        names.iter().all(|name| name != "..").then(|| names.iter().collect())
    }

    /// Opens a regular file by a path that holds no link, such as [`Tree::locate`] returns.
    ///
    /// # Errors
    /// A link has come into the path, or it is no regular file, or the system's.
    pub fn open_located(&self, located: &Path) -> io::Result<File> {
        let fd = self.openat2(located, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)?;
        match FileType::from_raw_mode(fstat(&fd)?.st_mode) {
            FileType::RegularFile => Ok(File::from(fd)),
            _ => Err(io::Error::other("it is not a regular file")),
        }
    }

    /// Opens a folder for listing.
    ///
    /// # Errors
    /// It leads out of the tree, is not there, or is no folder.
    pub fn open_folder(&self, given: &str) -> Result<OwnedFd, PathError> {
        self.retry_on_change(given, |resolved| self.openat2(&resolved.path(), OFlags::RDONLY | OFlags::DIRECTORY))
    }

    /// What stands at a path, links followed.
    ///
    /// # Errors
    /// It leads out of the tree, or is not there.
    pub fn kind(&self, given: &str) -> Result<FileType, PathError> {
        self.retry_on_change(given, |resolved| {
            let fd = self.openat2(&resolved.path(), OFlags::PATH)?;
            Ok(FileType::from_raw_mode(fstat(&fd)?.st_mode))
        })
    }

    /// The root as an absolute path.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.path
    }

    /// Replaces a file atomically, and makes the folders that it needs. Content and name are durable on return. A link is kept, and the
    /// file that it leads to is replaced.
    ///
    /// # Errors
    /// The path leads out of the tree or is a folder, or the system's.
    pub fn replace(&self, given: &str, content: &[u8]) -> Result<(), PathError> {
        self.retry_on_change(given, |resolved| {
            let (name, parents) = resolved.names.split_last().ok_or(Errno::ISDIR)?;
            let parent = self.create_dirs(parents)?;
            self.write_file(&parent, name, content)
        })
    }

    fn write_file(&self, parent: &OwnedFd, name: &OsStr, content: &[u8]) -> Result<(), Errno> {
        let mode = match statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory => return Err(Errno::ISDIR),
                // The link was not there when the path was resolved.
                FileType::Symlink => return Err(Errno::LOOP),
                _ => Some(Mode::from_raw_mode(stat.st_mode) & (Mode::RWXU | Mode::RWXG | Mode::RWXO)),
            },
            Err(Errno::NOENT) => None,
            Err(error) => return Err(error),
        };
        let new = format!(".yoi-{}.tmp", Uuid::new_v4());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(openat(parent, &new, flags, Mode::from_raw_mode(0o666))?);
        let written = (|| {
            if let Some(mode) = mode {
                rustix::fs::fchmod(&file, mode)?;
            }
            file.write_all(content)?;
            // The session's log will say that the file was written, so it has to survive a power loss.
            file.sync_data()?;
            renameat(parent, &new, parent, name)?;
            sync_dir(parent)?;
            Ok::<(), io::Error>(())
        })();
        written.map_err(|error| {
            let _ = unlinkat(parent, &new, AtFlags::empty());
            Errno::from_io_error(&error).unwrap_or(Errno::IO)
        })
    }

    /// Opens a folder and makes the ones that are missing.
    fn create_dirs(&self, names: &[OsString]) -> Result<OwnedFd, Errno> {
        let mut folder = self.openat2(Path::new("."), OFlags::PATH | OFlags::DIRECTORY)?;
        for name in names {
            let next = || {
                openat2(&folder, name, OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty(), RESOLVE_FLAGS)
            };
            folder = match next() {
                Err(Errno::NOENT) => {
                    match mkdirat(&folder, name, Mode::from_raw_mode(0o777)) {
                        Ok(()) => sync_dir(&folder)?,
                        Err(Errno::EXIST) => {}
                        Err(error) => return Err(error),
                    }
                    next()?
                }
                found => found?,
            };
        }
        Ok(folder)
    }

    fn openat2(&self, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
        loop {
            match openat2(self.root.as_fd(), path, flags | OFlags::CLOEXEC, Mode::empty(), RESOLVE_FLAGS) {
                // A rename happened during the lookup.
                Err(Errno::AGAIN | Errno::INTR) => {}
                done => return done,
            }
        }
    }

    /// Resolves the path and runs `operation` on the result. Starts again when a link has appeared in between (`ELOOP`).
    fn retry_on_change<T>(&self, given: &str, operation: impl Fn(&ResolvedPath) -> Result<T, Errno>) -> Result<T, PathError> {
        for _ in 0..MAX_WALKS {
            match operation(&self.resolve(given)?) {
                Err(Errno::LOOP) => {}
                Err(Errno::XDEV) => return Err(PathError::Outside { given: given.to_owned() }),
                done => return done.map_err(|error| io_error(given, error)),
            }
        }
        Err(PathError::Changed { given: given.to_owned() })
    }

    fn resolve(&self, given: &str) -> Result<ResolvedPath, PathError> {
        let outside = || PathError::Outside { given: given.to_owned() };
        if given.is_empty() || given.contains('\0') {
            return Err(PathError::NotAPath { given: given.to_owned() });
        }
        let mut rest: VecDeque<OsString> = self.names_beneath(Path::new(given)).ok_or_else(outside)?;
        let mut names: Vec<OsString> = Vec::new();
        let mut links = 0;
        while let Some(name) = rest.pop_front() {
            if name == ".." {
                names.pop().ok_or_else(outside)?;
                continue;
            }
            names.push(name);
            let so_far: PathBuf = names.iter().collect();
            let fd = match self.openat2(&so_far, OFlags::PATH | OFlags::NOFOLLOW) {
                Ok(fd) => fd,
                // Nothing is there, so no further component is a link, and `..` only removes names.
                Err(Errno::NOENT) => continue,
                // A folder was exchanged for a link. The final open refuses it.
                Err(Errno::LOOP) => continue,
                Err(error) => return Err(io_error(given, error)),
            };
            let kind = fstat(&fd).map(|stat| FileType::from_raw_mode(stat.st_mode)).map_err(|error| io_error(given, error))?;
            if kind != FileType::Symlink {
                continue;
            }
            links += 1;
            if links > MAX_LINKS {
                return Err(PathError::Loop { given: given.to_owned() });
            }
            let target = readlinkat(&fd, "", Vec::new()).map_err(|error| io_error(given, error))?;
            let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
            names.pop();
            if target.is_absolute() {
                names.clear();
            }
            let target = self.names_beneath(&target).ok_or_else(outside)?;
            for name in target.into_iter().rev() {
                rest.push_front(name);
            }
        }
        Ok(ResolvedPath { names })
    }

    /// The names of a path; for an absolute path, those below the root. `None` when it is not below the root.
    fn names_beneath(&self, path: &Path) -> Option<VecDeque<OsString>> {
        let path = if path.is_absolute() { path.strip_prefix(&self.path).ok()? } else { path };
        path.components()
            .filter(|component| !matches!(component, Component::CurDir))
            .map(|component| match component {
                Component::Normal(name) => Some(name.to_owned()),
                Component::ParentDir => Some(OsString::from("..")),
                Component::RootDir | Component::Prefix(_) | Component::CurDir => None,
            })
            .collect()
    }
}

/// Makes the names in a folder durable.
fn sync_dir(folder: &OwnedFd) -> Result<(), Errno> {
    // `folder` is an O_PATH descriptor, which cannot be synced.
    rustix::fs::fsync(openat(folder, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

const RESOLVE_FLAGS: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);

fn io_error(given: &str, error: Errno) -> PathError {
    PathError::Io { given: given.to_owned(), source: error.into() }
}

fn io_kind_error(given: &str, kind: io::ErrorKind) -> PathError {
    PathError::Io { given: given.to_owned(), source: kind.into() }
}

#[cfg(test)]
mod tests;
