//! Folders of the host that an administrator has listed, from which trees are captured.

mod repository;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use crate::error::StepContext;
use crate::mountinfo::{self, Mount};
use crate::{Error, Owner, SysError};

/// An opened folder of the host. It stays the same folder whatever its path names later.
#[derive(Debug)]
pub struct HostFolder {
    pub(crate) dir: OwnedFd,
    /// For people.
    path: PathBuf,
}

impl HostFolder {
    /// Opens `path` below `root`, through no link. It may be in another mount. `shown` is its path for people.
    /// Errors: `SourceVanished`; `SourceForbidden` if it is no folder, is reached by a link, or could lie outside of `root`.
    pub fn open(root: impl AsFd, path: &Path, shown: &Path) -> Result<Self, Error> {
        let forbidden = |why: &str| Err(Error::SourceForbidden { path: shown.to_owned(), why: why.to_owned() });
        let plain = path.components().next().is_some() && path.components().all(|c| matches!(c, Component::Normal(_)));
        if !plain {
            return forbidden("a source is a relative path of plain names");
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        match rustix::fs::openat2(root, path, flags, Mode::empty(), resolve) {
            Ok(dir) => Ok(Self { dir, path: shown.to_owned() }),
            // A component that is a link: with DIRECTORY the last one may be reported as no directory.
            Err(Errno::LOOP) => forbidden("a symbolic link leads to it"),
            Err(Errno::NOTDIR) => forbidden("it is no folder, or a symbolic link leads to it"),
            Err(Errno::XDEV | Errno::INVAL | Errno::NAMETOOLONG) => forbidden("its path leads elsewhere"),
            Err(e) => Err(e).step("open the folder").map_err(|source| Error::SourceVanished { path: shown.to_owned(), source }),
        }
    }

    /// The path for people.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn stat(&self) -> Result<Stat, SysError> {
        rustix::fs::fstat(&self.dir).step("stat the source")
    }

    /// Fails unless the folder is `owner`'s: owners stay as they are, and agents are never root.
    pub(crate) fn check_owner(&self, owner: Owner) -> Result<(), Error> {
        let path = self.path.clone();
        let stat = match self.stat() {
            Ok(stat) if stat.st_nlink > 0 => stat,
            Ok(_) => return Err(vanished(path, Errno::NOENT)),
            Err(source) => return Err(Error::SourceVanished { path, source }),
        };
        let (uid, gid) = (stat.st_uid, stat.st_gid);
        let why = match (uid, gid) {
            (0, _) => {
                let for_whom = if owner.uid == 0 { Owner { uid: 1000, gid: 1000 } } else { owner };
                let command = format!("chown -R {}:{} {}", for_whom.uid, for_whom.gid, shell_word(&path));
                format!("it belongs to root, and no agent is root; on the node, run: {command}")
            }
            _ if (uid, gid) == (owner.uid, owner.gid) => return Ok(()),
            _ => format!(
                "it belongs to {uid}:{gid}, and the tree would be {}:{}'s; set the owner to uid {uid} and gid {gid}",
                owner.uid, owner.gid
            ),
        };
        Err(Error::SourceForbidden { path, why })
    }

    /// Fails if something is mounted in the folder, or if it lies in the data root or the data root in it.
    pub(crate) fn check_place(&self, data_root: BorrowedFd) -> Result<(), Error> {
        let read = || -> Result<_, SysError> {
            let table = mountinfo::read()?;
            Ok((mountinfo::locate(&self.dir, &table)?, mountinfo::locate(data_root, &table)?, table))
        };
        let (here, root, table): (_, _, Vec<Mount>) = read().map_err(|source| Error::SourceVanished { path: self.path.clone(), source })?;
        let inside = table.iter().find_map(|m| m.mount_point.strip_prefix(&here.path).ok().filter(|p| !p.as_os_str().is_empty()));
        if let Some(path) = inside {
            return Err(Error::SourceNested { path: path.to_owned() });
        }
        if here.device == root.device && (here.root.starts_with(&root.root) || root.root.starts_with(&here.root)) {
            let why = "it is a part of the data root, or the data root is a part of it".to_owned();
            return Err(Error::SourceForbidden { path: self.path.clone(), why });
        }
        Ok(())
    }
}

fn vanished(path: PathBuf, errno: Errno) -> Error {
    Error::SourceVanished { path, source: SysError { step: "open the folder", source: errno.into() } }
}

/// The path as one word of a shell.
fn shell_word(path: &Path) -> String {
    let text = path.to_string_lossy();
    match text.bytes().all(|b| b.is_ascii_alphanumeric() || b"/._-+".contains(&b)) {
        true => text.into_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_in_a_command_is_one_word() {
        assert_eq!(shell_word(Path::new("/home/a/yoi-1.2")), "/home/a/yoi-1.2");
        assert_eq!(shell_word(Path::new("/home/a b/it's;x")), r"'/home/a b/it'\''s;x'");
    }
}
