//! Looks at the working tree, and single steps in it, each of which leaves it as it was or does all of it.

use std::fs::Metadata;
use std::io::{self, ErrorKind};
use std::path::Path;

use super::plan::There;
use crate::capture::path_of;

/// Files of a folder that are looked at: a folder that the other side has replaced by a file.
const MAX_FILES: usize = 10_000;

/// By which a file is the same as before: git knows it by these, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    length: u64,
    modified: Option<std::time::SystemTime>,
    /// Its device, its number there and its mode.
    of_system: (u64, u64, u32),
}

impl Identity {
    fn of(found: &Metadata) -> Self {
        Identity { length: found.len(), modified: found.modified().ok(), of_system: of_system(found) }
    }

    /// That of the file at a path; `None` where there is none.
    pub(super) fn at(path: &Path) -> Option<Self> {
        std::fs::symlink_metadata(path).ok().as_ref().map(Identity::of)
    }
}

#[cfg(unix)]
fn of_system(found: &Metadata) -> (u64, u64, u32) {
    use std::os::unix::fs::MetadataExt;
    (found.dev(), found.ino(), found.mode())
}

#[cfg(not(unix))]
fn of_system(found: &Metadata) -> (u64, u64, u32) {
    (0, 0, u32::from(found.permissions().readonly()))
}

/// What is at a path of git below `root`. No link is followed below it.
pub(super) fn look(root: &Path, path: &[u8]) -> io::Result<There> {
    for end in (0..path.len()).filter(|end| path.get(*end) == Some(&b'/')) {
        let above = path.get(..end).unwrap_or_default();
        match found_at(&root.join(path_of(above)))? {
            None => return Ok(There::Nothing),
            Some(found) if !found.is_dir() => return Ok(There::Below(above.to_vec())),
            Some(_) if is_repository(&root.join(path_of(above)))? => return Ok(There::Inside(above.to_vec())),
            Some(_) => {}
        }
    }
    let full = root.join(path_of(path));
    match found_at(&full)? {
        None => Ok(There::Nothing),
        Some(found) if found.is_dir() && is_repository(&full)? => Ok(There::Inside(path.to_vec())),
        Some(found) if found.is_dir() => Ok(There::Folder(files_of(&full, path)?)),
        Some(found) if found.is_file() || found.is_symlink() => Ok(There::File),
        Some(_) => Ok(There::Special),
    }
}

fn found_at(path: &Path) -> io::Result<Option<Metadata>> {
    match std::fs::symlink_metadata(path) {
        Ok(found) => Ok(Some(found)),
        Err(error) if [ErrorKind::NotFound, ErrorKind::NotADirectory].contains(&error.kind()) => Ok(None),
        Err(error) => Err(error),
    }
}

fn is_repository(folder: &Path) -> io::Result<bool> {
    Ok(found_at(&folder.join(".git"))?.is_some())
}

/// The files and the empty folders below a folder, as paths of git; `None` where they are too many.
fn files_of(folder: &Path, path: &[u8]) -> io::Result<Option<Vec<Vec<u8>>>> {
    let (mut files, mut folders, mut seen) = (Vec::new(), vec![(folder.to_owned(), path.to_vec())], 0);
    while let Some((folder, path)) = folders.pop() {
        let mut is_empty = true;
        for entry in std::fs::read_dir(&folder)? {
            let entry = entry?;
            is_empty = false;
            seen += 1;
            if seen > MAX_FILES {
                return Ok(None);
            }
            let inner = [&path[..], b"/", &bytes_of(&entry.file_name())].concat();
            if entry.file_type()?.is_dir() { folders.push((entry.path(), inner)) } else { files.push(inner) }
        }
        if is_empty {
            files.push(path);
        }
    }
    Ok(Some(files))
}

#[cfg(unix)]
fn bytes_of(name: &std::ffi::OsStr) -> Vec<u8> {
    std::os::unix::ffi::OsStrExt::as_bytes(name).to_vec()
}

#[cfg(not(unix))]
fn bytes_of(name: &std::ffi::OsStr) -> Vec<u8> {
    name.to_string_lossy().into_owned().into_bytes()
}

/// Moves a file to where nothing is, and never over something.
pub(super) fn move_to_free(from: &Path, to: &Path) -> io::Result<()> {
    match rename_to_free(from, to) {
        Err(error) if error.kind() == ErrorKind::Unsupported || error.kind() == ErrorKind::InvalidInput => {
            // Such a disk has no way to say so in one step.
            match found_at(to)? {
                Some(_) => Err(ErrorKind::AlreadyExists.into()),
                None => std::fs::rename(from, to),
            }
        }
        done => done,
    }
}

#[cfg(any(target_os = "linux", target_os = "macos"))]
fn rename_to_free(from: &Path, to: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    Ok(renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE)?)
}

#[cfg(not(any(target_os = "linux", target_os = "macos")))]
fn rename_to_free(_from: &Path, _to: &Path) -> io::Result<()> {
    Err(ErrorKind::Unsupported.into())
}

/// Puts the file `new` in the place of the one at `old`, which must be as `known` says. Where the system can exchange two files, the replaced one is at
/// `new` afterwards.
///
/// # Errors
/// [`ErrorKind::ResourceBusy`] when another file is at `old`, which then stays there.
pub(super) fn replace(new: &Path, old: &Path, known: Identity) -> io::Result<()> {
    if Identity::at(old) != Some(known) {
        return Err(ErrorKind::ResourceBusy.into());
    }
    match exchange(new, old) {
        Ok(()) if Identity::at(new) == Some(known) => Ok(()),
        // It was written in this very moment.
        Ok(()) => exchange(new, old).and(Err(ErrorKind::ResourceBusy.into())),
        Err(error) if error.kind() == ErrorKind::Unsupported || error.kind() == ErrorKind::InvalidInput => std::fs::rename(new, old),
        Err(error) => Err(error),
    }
}

#[cfg(any(target_os = "linux", target_os = "macos"))]
fn exchange(one: &Path, other: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    Ok(renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE)?)
}

#[cfg(not(any(target_os = "linux", target_os = "macos")))]
fn exchange(_one: &Path, _other: &Path) -> io::Result<()> {
    Err(ErrorKind::Unsupported.into())
}

/// Takes the file at `old` away to `to`, when it is as `known` says.
///
/// # Errors
/// [`ErrorKind::ResourceBusy`] when another file is there, which then stays there.
pub(super) fn take_away(old: &Path, to: &Path, known: Identity) -> io::Result<()> {
    if Identity::at(old) != Some(known) {
        return Err(ErrorKind::ResourceBusy.into());
    }
    move_to_free(old, to)?;
    if Identity::at(to) == Some(known) {
        return Ok(());
    }
    move_to_free(to, old).and(Err(ErrorKind::ResourceBusy.into()))
}

/// Removes the folders above a path that have become empty, up to `root`, and none that `here` is in.
pub(super) fn remove_empty_folders(root: &Path, path: &Path, here: &Path) {
    let mut above = path.parent();
    while let Some(folder) = above.filter(|folder| *folder != root && folder.starts_with(root) && !here.starts_with(folder)) {
        if std::fs::remove_dir(folder).is_err() {
            return;
        }
        above = folder.parent();
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn nothing_is_replaced_or_taken_away_that_is_not_as_it_was_seen() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("new"), "new").unwrap();
        fs::write(at("old"), "old").unwrap();
        let seen = Identity::at(&at("old")).unwrap();
        fs::write(at("old"), "of the person").unwrap();
        assert_eq!(replace(&at("new"), &at("old"), seen).unwrap_err().kind(), ErrorKind::ResourceBusy);
        assert_eq!(take_away(&at("old"), &at("gone"), seen).unwrap_err().kind(), ErrorKind::ResourceBusy);
        assert_eq!(move_to_free(&at("new"), &at("old")).unwrap_err().kind(), ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(at("old")).unwrap(), "of the person");
        let seen = Identity::at(&at("old")).unwrap();
        replace(&at("new"), &at("old"), seen).unwrap();
        assert_eq!(fs::read_to_string(at("old")).unwrap(), "new");
        let seen = Identity::at(&at("old")).unwrap();
        take_away(&at("old"), &at("gone"), seen).unwrap();
        assert!(!at("old").exists() && at("gone").exists());
    }

    #[test]
    fn a_look_follows_no_link_and_enters_no_other_repository() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("full/deep/empty")).unwrap();
        fs::create_dir_all(at("inner/.git")).unwrap();
        fs::write(at("full/deep/file"), "").unwrap();
        std::os::unix::fs::symlink("full", at("link")).unwrap();
        let path = |text: &str| text.as_bytes().to_vec();
        for (name, wanted) in [
            ("none/x", There::Nothing),
            ("full/deep/file", There::File),
            ("full/deep/file/x", There::Below(path("full/deep/file"))),
            ("link", There::File),
            ("link/deep", There::Below(path("link"))),
            ("inner/x", There::Inside(path("inner"))),
            ("inner", There::Inside(path("inner"))),
        ] {
            assert_eq!(look(folder.path(), name.as_bytes()).unwrap(), wanted, "{name}");
        }
        let There::Folder(Some(mut files)) = look(folder.path(), b"full").unwrap() else { panic!("no folder") };
        files.sort();
        assert_eq!(files, [path("full/deep/empty"), path("full/deep/file")]);
        remove_empty_folders(folder.path(), &at("full/deep/empty/x"), &at("full/deep/empty"));
        assert!(at("full/deep/empty").exists(), "somebody is there");
        remove_empty_folders(folder.path(), &at("full/deep/empty/x"), folder.path());
        assert!(at("full/deep").exists() && !at("full/deep/empty").exists());
    }
}
