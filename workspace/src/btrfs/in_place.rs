//! A folder of the host as a snapshot of the subvolume that it is, or lies in.

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::{handle, ioctl, search};
use crate::capture::{CapturePlan, Volume};
use crate::error::StepContext;
use crate::tree_copy::Data;
use crate::{HostFolder, KernelFacts, SysError};

/// A longer path of a folder in its subvolume does not fit into a marker, if each of its bytes takes four in JSON.
const MAX_BELOW: usize = 512;
/// From here on the kernel takes snapshots of whole subvolumes only. Before, whoever owns a folder can take one of the subvolume that it lies in, and an
/// agent that is shown only the folder would read all of it.
const REFUSES_SNAPSHOTS_OF_FOLDERS: (u32, u32) = (6, 7);

/// Says how the folder becomes a tree of the data root with this root directory.
///
/// A snapshot keeps all that is in its subvolume. The file system's top level, and the subvolume of the data root, hold more than the
/// folder's owner put there, so a folder that lies in one of them is a plain folder.
pub(super) fn plan(data_root: BorrowedFd, source: &HostFolder) -> Result<CapturePlan, SysError> {
    let seed = |why: &str| Ok(CapturePlan::Seed { data: Data::SharedOrCopied, why: why.to_owned() });
    if !ioctl::is_btrfs(&source.dir).step("ask for the file system of the source")? {
        return seed("the source is not on Btrfs");
    }
    let fsid = |dir: BorrowedFd| ioctl::fsid(dir).step("ask for the file system");
    if fsid(source.dir.as_fd())? != fsid(data_root)? {
        return seed("the source is on another file system than the data root");
    }
    let id = |dir: BorrowedFd| Ok::<_, SysError>(ioctl::subvolume(dir).step("ask about a subvolume")?.id);
    let subvolume = id(source.dir.as_fd())?;
    if subvolume == ioctl::TOP_LEVEL {
        return seed("the source lies in no subvolume");
    }
    if subvolume == id(data_root)? {
        return seed("the source lies in the subvolume of the data root");
    }
    let Some(below) = path_in_volume(source.dir.as_fd())? else { return seed("the source has no path in its subvolume") };
    if below.as_os_str().len() > MAX_BELOW {
        return seed("the path of the source in its subvolume is too long for a snapshot");
    }
    if !below.as_os_str().is_empty() && version(&KernelFacts::read()?.release) < Some(REFUSES_SNAPSHOTS_OF_FOLDERS) {
        return seed("the source lies in a subvolume, and before Linux 6.7 the owner of a folder can read all of a snapshot");
    }
    let volume = root_of(source.dir.as_fd())?;
    let what = if below.as_os_str().is_empty() { "is" } else { "lies in" };
    Ok(CapturePlan::Snapshot {
        volume: Volume::Subvolume(volume),
        below,
        why: format!("the source {what} a subvolume of the data root's file system"),
    })
}

/// The first two numbers of a kernel's release, such as `6.1.0-56-amd64`.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// Opens the root of the subvolume that a directory lies in.
pub(super) fn root_of(dir: BorrowedFd) -> Result<OwnedFd, SysError> {
    let id = ioctl::subvolume(dir).step("ask about a subvolume")?.id;
    handle::open_inode(dir, id, ioctl::ROOT_INODE).step("open a subvolume")
}

/// The path of a directory in its subvolume; empty for the subvolume's root, None for a directory that is gone.
pub(super) fn path_in_volume(dir: BorrowedFd) -> Result<Option<PathBuf>, SysError> {
    match rustix::fs::fstat(dir).step("stat a directory")?.st_ino {
        ioctl::ROOT_INODE => Ok(Some(PathBuf::new())),
        inode => Ok(search::path_of_dir(dir, inode).step("find the path of a directory")?.map(|path| path_of(&path))),
    }
}

/// The path, from `dir`, of the first subvolume below it.
pub(super) fn first_nested(dir: BorrowedFd) -> Result<Option<PathBuf>, SysError> {
    let children = ioctl::all_children(dir).step("list nested subvolumes")?;
    if children.is_empty() {
        return Ok(None);
    }
    let Some(root) = path_in_volume(dir)? else { return Ok(None) };
    let mut found: Option<PathBuf> = None;
    for child in children {
        let holder = match child.dir {
            ioctl::ROOT_INODE => Some(PathBuf::new()),
            inode => search::path_of_dir(dir, inode).step("find the path of a directory")?.map(|path| path_of(&path)),
        };
        // One that went meanwhile is no longer there to be shown empty.
        if let Some(below) = holder.as_ref().and_then(|holder| holder.strip_prefix(&root).ok()) {
            let inner = handle::open_inode(dir, child.id, ioctl::ROOT_INODE).and_then(ioctl::subvolume_name);
            let path = below.join(path_of(&inner.unwrap_or_default()));
            found = Some(found.map_or(path.clone(), |first| first.min(path)));
        }
    }
    Ok(found)
}

fn path_of(path: &[u8]) -> PathBuf {
    Path::new(OsStr::from_bytes(path)).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_compared_by_their_numbers() {
        let table = [("6.1.0-56-amd64", Some((6, 1))), ("6.18.44", Some((6, 18))), ("6.7-rc7", Some((6, 7))), ("next", None), ("", None)];
        for (release, expected) in table {
            assert_eq!(version(release), expected, "{release}");
        }
        assert!(version("6.18.44") >= Some(REFUSES_SNAPSHOTS_OF_FOLDERS) && version("next") < Some(REFUSES_SNAPSHOTS_OF_FOLDERS));
    }
}
