//! The HOME of a program: the files that are seeded anew before each run, and the user's credentials.
//!
//! The program writes there, too, and may have left symbolic links. None of them is followed: what stands in the way of a file of ours is
//! removed.

use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, chmodat, fchmod, mkdirat, openat, renameat, unlinkat};
use rustix::io::Errno;
use uuid::Uuid;

/// Bytes of a credential.
const MAX_CREDENTIAL_BYTES: u64 = 1 << 20;

/// An open HOME.
#[derive(Debug)]
pub struct ProgramHome(OwnedFd);

fn open_directory(parent: impl AsFd, name: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::RDONLY;
    Ok(openat(parent, name, flags, Mode::empty())?)
}

/// Opens a directory of the parent, and makes it. Another thing of that name is removed.
fn make_directory(parent: impl AsFd, name: &Path) -> io::Result<OwnedFd> {
    match mkdirat(&parent, name, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    match open_directory(&parent, name) {
        Ok(directory) => Ok(directory),
        Err(_) => {
            unlinkat(&parent, name, AtFlags::empty())?;
            mkdirat(&parent, name, Mode::RWXU)?;
            open_directory(&parent, name)
        }
    }
}

impl ProgramHome {
    /// Opens `home`, and makes it below its parent, which only this process writes.
    ///
    /// # Errors
    /// The system's.
    pub fn open(home: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(home)?;
        Ok(Self(open_directory(CWD, home)?))
    }

    /// Writes a file at a path below HOME.
    ///
    /// # Errors
    /// The path leads elsewhere, or the system's.
    pub fn write(&self, path: &str, content: &[u8]) -> io::Result<()> {
        let (folder, name) = self.folder_of(path)?;
        let new = format!(".{}", Uuid::new_v4());
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let mut file = File::from(openat(&folder, new.as_str(), flags, Mode::RUSR | Mode::WUSR)?);
        let written = file.write_all(content).and_then(|()| Ok(renameat(&folder, new.as_str(), &folder, name.as_str())?));
        if written.is_err() {
            let _ = unlinkat(&folder, new.as_str(), AtFlags::empty());
        }
        written
    }

    /// Copies a file to a path below HOME, unless something is there.
    ///
    /// # Errors
    /// As [`Self::write`], or the file cannot be read or is too long.
    pub fn write_once(&self, path: &str, from: &Path) -> io::Result<()> {
        let (folder, name) = self.folder_of(path)?;
        if rustix::fs::statat(&folder, name.as_str(), AtFlags::SYMLINK_NOFOLLOW).is_ok() {
            return Ok(());
        }
        let mut content = Vec::new();
        File::open(from)?.take(MAX_CREDENTIAL_BYTES + 1).read_to_end(&mut content)?;
        if content.len() as u64 > MAX_CREDENTIAL_BYTES {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "a credential has at most 1 MiB"));
        }
        self.write(path, &content)
    }

    /// Removes all that is in it. HOME itself stays: it is what the frame of the agent's processes opens. No process of the program may run.
    ///
    /// # Errors
    /// The system's.
    pub fn clear(&self) -> io::Result<()> {
        fchmod(&self.0, Mode::RWXU)?;
        loop {
            let mut is_empty = true;
            for entry in Dir::read_from(&self.0)? {
                let entry = entry?;
                let name = entry.file_name();
                if name != c"." && name != c".." {
                    is_empty = false;
                    remove_level(&self.0, name)?;
                }
            }
            if is_empty {
                return Ok(());
            }
        }
    }

    /// The content of a file at a path below HOME; `None` where there is none, or one that no credential is.
    pub fn read(&self, path: &str) -> Option<Vec<u8>> {
        let (folder, name) = self.folder_of(path).ok()?;
        let file = openat(&folder, name.as_str(), OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::RDONLY, Mode::empty());
        let mut content = Vec::new();
        File::from(file.ok()?).take(MAX_CREDENTIAL_BYTES + 1).read_to_end(&mut content).ok()?;
        (content.len() as u64 <= MAX_CREDENTIAL_BYTES).then_some(content)
    }

    fn folder_of(&self, path: &str) -> io::Result<(OwnedFd, String)> {
        let outside = || io::Error::new(io::ErrorKind::InvalidInput, format!("the path {path:?} is none below HOME"));
        let mut names = Vec::new();
        for component in Path::new(path).components() {
            match component {
                Component::Normal(name) => names.push(name.to_str().ok_or_else(outside)?),
                Component::CurDir => {}
                Component::ParentDir | Component::RootDir | Component::Prefix(_) => return Err(outside()),
            }
        }
        let name = names.pop().ok_or_else(outside)?;
        let mut folder = self.0.try_clone()?;
        for part in names {
            folder = make_directory(&folder, Path::new(part))?;
        }
        Ok((folder, name.to_owned()))
    }
}

/// Removes a file, or a folder's content but for the folders in it, which come into `home`: so the depth costs no descriptors. The program may have
/// closed folders to its own user.
fn remove_level(home: &OwnedFd, name: &CStr) -> io::Result<()> {
    if !unlink_unless_folder(home, name)? {
        return Ok(());
    }
    let folder = open_directory(home, Path::new(OsStr::from_bytes(name.to_bytes())))?;
    for entry in Dir::read_from(&folder)? {
        let entry = entry?;
        let inner = entry.file_name();
        if inner != c"." && inner != c".." && unlink_unless_folder(&folder, inner)? {
            renameat(&folder, inner, home, format!(".{}", Uuid::new_v4()))?;
        }
    }
    Ok(unlinkat(home, name, AtFlags::REMOVEDIR)?)
}

/// Removes what is no folder. Returns whether it is one, which is open to this user then.
fn unlink_unless_folder(parent: &OwnedFd, name: &CStr) -> io::Result<bool> {
    match unlinkat(parent, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(false),
        Err(Errno::ISDIR | Errno::PERM) => {
            chmodat(parent, name, Mode::RWXU, AtFlags::empty())?;
            Ok(true)
        }
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_seeded_file_replaces_what_the_program_made_of_it_and_follows_no_link() {
        let dir = tempfile::tempdir().unwrap();
        let (home, secret) = (dir.path().join("home"), dir.path().join("log"));
        std::fs::write(&secret, "log").unwrap();
        std::fs::create_dir(dir.path().join("elsewhere")).unwrap();
        let open = ProgramHome::open(&home).unwrap();
        open.write(".claude/settings.json", b"ours").unwrap();
        std::fs::remove_file(home.join(".claude/settings.json")).unwrap();
        symlink(&secret, home.join(".claude/settings.json")).unwrap();
        symlink(dir.path().join("elsewhere"), home.join(".codex")).unwrap();
        open.write(".claude/settings.json", b"ours").unwrap();
        open.write(".codex/config.toml", b"ours").unwrap();
        assert_eq!(std::fs::read_to_string(&secret).unwrap(), "log");
        assert_eq!(std::fs::read_dir(dir.path().join("elsewhere")).unwrap().count(), 0);
        for path in [".claude/settings.json", ".codex/config.toml"] {
            assert_eq!(std::fs::read_to_string(home.join(path)).unwrap(), "ours");
        }
        for path in ["../x", "/x", "", "a/../../x"] {
            assert!(open.write(path, b"x").is_err(), "{path}");
        }
    }

    #[test]
    fn a_home_is_cleared_whole_and_nothing_outside_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let (home, outside) = (dir.path().join("home"), dir.path().join("outside"));
        std::fs::create_dir_all(home.join("a/b/c")).unwrap();
        std::fs::create_dir(&outside).unwrap();
        std::fs::write(outside.join("log"), "log").unwrap();
        for file in [".hidden", "a/x", "a/b/c/y"] {
            std::fs::write(home.join(file), "x").unwrap();
        }
        symlink(&outside, home.join("a/link")).unwrap();
        std::fs::set_permissions(home.join("a/b"), std::os::unix::fs::PermissionsExt::from_mode(0o000)).unwrap();
        let open = ProgramHome::open(&home).unwrap();
        open.clear().unwrap();
        assert_eq!(std::fs::read_dir(&home).unwrap().count(), 0);
        assert_eq!(std::fs::read_to_string(outside.join("log")).unwrap(), "log");
        open.write(".claude/settings.json", b"ours").unwrap();
    }

    #[test]
    fn what_is_read_for_a_credential_is_a_file_of_home_and_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().join("home");
        std::fs::write(dir.path().join("log"), "log").unwrap();
        let open = ProgramHome::open(&home).unwrap();
        open.write("a/auth.json", b"renewed").unwrap();
        symlink(dir.path().join("log"), home.join("link")).unwrap();
        std::fs::write(home.join("large"), vec![b'x'; 1 << 20 | 1]).unwrap();
        assert_eq!(open.read("a/auth.json").as_deref(), Some(&b"renewed"[..]));
        for path in ["link", "large", "a", "none", "../log"] {
            assert_eq!(open.read(path), None, "{path}");
        }
    }

    #[test]
    fn a_home_deeper_than_there_are_descriptors_is_cleared() {
        let dir = tempfile::tempdir().unwrap();
        let open = ProgramHome::open(&dir.path().join("home")).unwrap();
        let mut at = open.0.try_clone().unwrap();
        for _ in 0..3000 {
            at = make_directory(&at, Path::new("d")).unwrap();
        }
        drop(at);
        open.clear().unwrap();
        assert_eq!(std::fs::read_dir(dir.path().join("home")).unwrap().count(), 0);
    }

    #[test]
    fn a_credential_is_copied_once_because_the_program_may_renew_it() {
        let dir = tempfile::tempdir().unwrap();
        let (home, key) = (dir.path().join("home"), dir.path().join("key"));
        std::fs::write(&key, "first").unwrap();
        let open = ProgramHome::open(&home).unwrap();
        open.write_once("auth.json", &key).unwrap();
        std::fs::write(home.join("auth.json"), "renewed").unwrap();
        open.write_once("auth.json", &key).unwrap();
        assert_eq!(std::fs::read_to_string(home.join("auth.json")).unwrap(), "renewed");
    }
}
