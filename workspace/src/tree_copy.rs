//! Copies a folder with all that is in it: data, holes, hard links, attributes, owners, modes and times.

use std::ffi::{CStr, OsStr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, SeekFrom, Stat, Timespec, Timestamps, Uid as UserId, XattrFlags};
use rustix::io::Errno;

use crate::error::StepContext;
use crate::{NodeKind, SysError, dir};

/// How the data of a file gets into its copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Data {
    /// By copy_file_range: the file system may share the blocks.
    Copied,
    /// All blocks are shared, or it is an error.
    Shared,
    /// All blocks are shared if that is possible.
    SharedOrCopied,
}

/// One copy of one or several folders, between which hard links are kept.
///
/// A file with several names is found again by one more name of its copy: its own inode number, in a folder that goes with [`TreeCopy::finish`].
/// In memory they would have no bound.
pub(crate) struct TreeCopy<'a> {
    links: Option<LinksFolder>,
    root: BorrowedFd<'a>,
    source: BorrowedFd<'a>,
    device: u64,
    data: Data,
    /// How many files that are not empty share all their blocks with their source.
    pub shared: u64,
    /// How many do not, as far as this copy knows.
    pub copied: u64,
    /// Why the first of those that were to share their blocks does not.
    pub why_copied: Option<SysError>,
    /// A fault for a test to find.
    pub forgets_whiteouts: bool,
}

/// Where the copies of files have one more name.
struct LinksFolder {
    opened: OwnedFd,
    name: String,
}

impl<'a> TreeCopy<'a> {
    /// Everything that is copied is on `device`. For a while there is one more folder in `root`, to which the copies can have links; it has
    /// the name of nothing in `source`, which may be copied to `root`.
    pub fn new(root: BorrowedFd<'a>, source: BorrowedFd<'a>, device: u64, data: Data) -> Self {
        Self { links: None, root, source, device, data, shared: 0, copied: 0, why_copied: None, forgets_whiteouts: false }
    }

    /// Removes what was made for the copy alone from `root`, whose times change.
    pub fn finish(&mut self) -> Result<(), SysError> {
        let Some(LinksFolder { opened, name }) = self.links.take() else { return Ok(()) };
        loop {
            // Names are left of files that have others outside of what was copied.
            let mut are_left = false;
            dir::for_each_name(&opened, "read the links of a copy", |name| {
                are_left = true;
                rustix::fs::unlinkat(&opened, name, AtFlags::empty()).step("remove a link of a copy")
            })?;
            match rustix::fs::unlinkat(self.root, &*name, AtFlags::REMOVEDIR) {
                Err(Errno::NOTEMPTY | Errno::EXIST) if are_left => {}
                done => return done.step("remove the links of a copy"),
            }
        }
    }

    /// Fills `to`. `stat` is that of `from`.
    pub fn copy_dir(&mut self, from: BorrowedFd, to: BorrowedFd, stat: &Stat, depth: usize) -> Result<(), SysError> {
        if depth > dir::MAX_DEPTH {
            return Err(dir::too_deep()).step("copy a directory");
        }
        dir::for_each_name(from, "read a directory", |name| {
            let stat = dir::stat(from, name).step("stat an entry")?;
            if dir::kind(&stat) != NodeKind::Dir {
                return self.copy_entry(from, to, name, &stat);
            }
            let source = dir::open(from, name).step("open a directory")?;
            if stat.st_dev != self.device {
                return Err(std::io::Error::from(Errno::XDEV)).step("copy a nested volume");
            }
            rustix::fs::mkdirat(to, name, Mode::from_raw_mode(0o700)).step("make a directory")?;
            let target = dir::open(to, name).step("open a directory")?;
            self.copy_dir(source.as_fd(), target.as_fd(), &stat, depth + 1)
        })?;
        copy_xattrs(from, to)?;
        set_metadata(to, stat)
    }

    /// Copies one name that is no directory.
    pub fn copy_entry(&mut self, from: BorrowedFd, to: BorrowedFd, name: &CStr, stat: &Stat) -> Result<(), SysError> {
        if self.forgets_whiteouts && is_whiteout(stat) {
            return Ok(());
        }
        if dir::links(stat) <= 1 {
            return self.copy_file(from, to, name, stat);
        }
        if self.link(to, name, stat)? {
            return Ok(());
        }
        self.copy_file(from, to, name, stat)?;
        rustix::fs::linkat(to, name, self.links()?, number_of(stat), AtFlags::empty()).step("link a copy")
    }

    /// Gives the copy of a file one more name. Returns false if there is none of this file.
    fn link(&self, to: BorrowedFd, name: &CStr, stat: &Stat) -> Result<bool, SysError> {
        let Some(links) = &self.links else { return Ok(false) };
        let (links, number) = (&links.opened, number_of(stat));
        match rustix::fs::statat(links, &*number, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => Ok(false),
            // This is its last name: a file that has as many as there may be has no room for one more.
            Ok(copy) if copy.st_nlink >= stat.st_nlink => rustix::fs::renameat(links, number, to, name).step("link a file").map(|()| true),
            Ok(_) => rustix::fs::linkat(links, number, to, name, AtFlags::empty()).step("link a file").map(|()| true),
            Err(e) => Err(e).step("look for the copy of a file"),
        }
    }

    fn links(&mut self) -> Result<&OwnedFd, SysError> {
        let links = match self.links.take() {
            Some(links) => links,
            None => self.make_links()?,
        };
        Ok(&self.links.insert(links).opened)
    }

    fn make_links(&self) -> Result<LinksFolder, SysError> {
        const STEP: &str = "make a folder for the links of a copy";
        let mut number = 0u64;
        loop {
            let name = format!(".links.{number}");
            number += 1;
            match rustix::fs::statat(self.source, &*name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(_) => continue,
                Err(Errno::NOENT) => {}
                Err(e) => return Err(e).step(STEP),
            }
            match rustix::fs::mkdirat(self.root, &*name, Mode::RWXU) {
                Ok(()) => return Ok(LinksFolder { opened: dir::open(self.root, &*name).step(STEP)?, name }),
                Err(Errno::EXIST) => {}
                Err(e) => return Err(e).step(STEP),
            }
        }
    }

    fn copy_file(&mut self, from: BorrowedFd, to: BorrowedFd, name: &CStr, stat: &Stat) -> Result<(), SysError> {
        match dir::kind(stat) {
            NodeKind::File => {
                let source = dir::open_file(from, name).step("open a file")?;
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let target = rustix::fs::openat(to, name, flags, Mode::from_raw_mode(0o600)).step("make a file")?;
                self.fill(&source, &target, stat.st_size as u64)?;
                copy_xattrs(source.as_fd(), target.as_fd())?;
                set_metadata(target.as_fd(), stat)
            }
            NodeKind::Symlink => {
                let text = rustix::fs::readlinkat(from, name, Vec::new()).step("read a link")?;
                rustix::fs::symlinkat(&*text, to, name).step("make a link")?;
                copy_xattrs_at(from, to, name)?;
                set_metadata_at(to, name, stat, false)
            }
            NodeKind::Special => {
                let kind = FileType::from_raw_mode(stat.st_mode);
                rustix::fs::mknodat(to, name, kind, Mode::from_raw_mode(0o600), stat.st_rdev).step("make a special file")?;
                copy_xattrs_at(from, to, name)?;
                set_metadata_at(to, name, stat, true)
            }
            NodeKind::Dir => Ok(()),
        }
    }

    fn fill(&mut self, from: &OwnedFd, to: &OwnedFd, size: u64) -> Result<(), SysError> {
        // Inline data of some file systems cannot be shared, and here there is none.
        if size == 0 {
            return Ok(());
        }
        let share = || rustix::fs::ioctl_ficlone(to, from).step("share the blocks of a file");
        let failed = match self.data {
            Data::Copied => None,
            Data::Shared | Data::SharedOrCopied => match share() {
                Ok(()) => {
                    self.shared += 1;
                    return Ok(());
                }
                Err(e) if self.data == Data::Shared => return Err(e),
                Err(e) => Some(e),
            },
        };
        self.copied += 1;
        self.why_copied = self.why_copied.take().or(failed);
        copy_data(from, to, size)
    }
}

/// The name in the folder of links.
fn number_of(stat: &Stat) -> String {
    format!("{:x}", stat.st_ino)
}

/// True for what an overlay leaves in its upper layer where a name of the lower layer was deleted.
pub(crate) fn is_whiteout(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice && stat.st_rdev == 0
}

/// Copies data and keeps holes.
fn copy_data(from: &OwnedFd, to: &OwnedFd, size: u64) -> Result<(), SysError> {
    rustix::fs::ftruncate(to, size).step("size a file")?;
    let mut at = 0;
    while at < size {
        let start = match rustix::fs::seek(from, SeekFrom::Data(at)) {
            Ok(start) => start,
            Err(Errno::NXIO) => return Ok(()),
            Err(Errno::INVAL) => at,
            Err(e) => return Err(e).step("find data in a file"),
        };
        let end = rustix::fs::seek(from, SeekFrom::Hole(start)).unwrap_or(size).min(size);
        let (mut source, mut target) = (start, start);
        while source < end {
            let room = usize::try_from(end - source).unwrap_or(usize::MAX);
            let n = match rustix::fs::copy_file_range(from, Some(&mut source), to, Some(&mut target), room) {
                // The two are on file systems of different types, or one of them cannot do it.
                Err(Errno::XDEV | Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS) => {
                    let n = copy_block(from, to, source, end)?;
                    (source, target) = (source + n as u64, target + n as u64);
                    n
                }
                done => done.step("copy a file")?,
            };
            if n == 0 {
                return Ok(());
            }
        }
        at = end;
    }
    Ok(())
}

/// Copies up to 1 MiB that begins at `at` and ends before `end`. Returns its length, 0 at the end of `from`.
fn copy_block(from: &OwnedFd, to: &OwnedFd, at: u64, end: u64) -> Result<usize, SysError> {
    let mut block = vec![0; usize::try_from(end - at).unwrap_or(usize::MAX).min(1 << 20)];
    let n = rustix::io::pread(from, &mut block, at).step("read a file")?;
    let mut done = 0;
    while done < n {
        done += rustix::io::pwrite(to, &block[done..n], at + done as u64).step("write a file")?;
    }
    Ok(n)
}

/// Copies the extended attributes of an open file or directory.
pub(crate) fn copy_xattrs(from: BorrowedFd, to: BorrowedFd) -> Result<(), SysError> {
    let list = |buffer: &mut [u8]| rustix::fs::flistxattr(from, buffer);
    each_xattr(list, |name| {
        let mut value = vec![0u8; MAX_XATTR];
        let len = match rustix::fs::fgetxattr(from, name, &mut value) {
            Ok(len) => len,
            Err(Errno::NODATA) => return Ok(()),
            Err(e) => return Err(e).step("read an extended attribute"),
        };
        rustix::fs::fsetxattr(to, name, &value[..len], XattrFlags::empty()).step("write an extended attribute")
    })
}

/// The same for a name that cannot be opened: a link or a special file.
fn copy_xattrs_at(from: BorrowedFd, to: BorrowedFd, name: &CStr) -> Result<(), SysError> {
    let (from, to) = (path_through(from, name), path_through(to, name));
    let list = |buffer: &mut [u8]| rustix::fs::llistxattr(&from, buffer);
    each_xattr(list, |name| {
        let mut value = vec![0u8; MAX_XATTR];
        let len = match rustix::fs::lgetxattr(&from, name, &mut value) {
            Ok(len) => len,
            Err(Errno::NODATA) => return Ok(()),
            Err(e) => return Err(e).step("read an extended attribute"),
        };
        rustix::fs::lsetxattr(&to, name, &value[..len], XattrFlags::empty()).step("write an extended attribute")
    })
}

/// The longest value, and the longest list of names, that the kernel gives.
const MAX_XATTR: usize = 64 << 10;

/// Calls `act` with each name that `list` writes.
pub(crate) fn each_xattr(
    list: impl Fn(&mut [u8]) -> rustix::io::Result<usize>,
    mut act: impl FnMut(&CStr) -> Result<(), SysError>,
) -> Result<(), SysError> {
    let mut names = vec![0u8; MAX_XATTR];
    let len = match list(&mut names) {
        Ok(len) => len,
        Err(Errno::OPNOTSUPP) => return Ok(()),
        Err(e) => return Err(e).step("list extended attributes"),
    };
    for name in names[..len].split_inclusive(|b| *b == 0) {
        act(CStr::from_bytes_with_nul(name).map_err(std::io::Error::other).step("read extended attributes")?)?;
    }
    Ok(())
}

/// A path to `name` in an open directory, for system calls that take no descriptor and do not follow the last component.
pub(crate) fn path_through(dir: BorrowedFd, name: &CStr) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", dir.as_raw_fd())).join(OsStr::from_bytes(name.to_bytes()))
}

/// Sets the owner, then the mode (chown clears set-user-id), then the times.
pub(crate) fn set_metadata(target: BorrowedFd, stat: &Stat) -> Result<(), SysError> {
    rustix::fs::fchown(target, Some(UserId::from_raw(stat.st_uid)), Some(Gid::from_raw(stat.st_gid))).step("set an owner")?;
    rustix::fs::fchmod(target, Mode::from_raw_mode(stat.st_mode)).step("set a mode")?;
    rustix::fs::futimens(target, &times(stat)).step("set times")
}

fn set_metadata_at(at: BorrowedFd, name: &CStr, stat: &Stat, has_mode: bool) -> Result<(), SysError> {
    let (owner, group) = (UserId::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
    rustix::fs::chownat(at, name, Some(owner), Some(group), AtFlags::SYMLINK_NOFOLLOW).step("set an owner")?;
    if has_mode {
        rustix::fs::chmodat(at, name, Mode::from_raw_mode(stat.st_mode), AtFlags::empty()).step("set a mode")?;
    }
    rustix::fs::utimensat(at, name, &times(stat), AtFlags::SYMLINK_NOFOLLOW).step("set times")
}

#[allow(clippy::unnecessary_cast)] // The fields' types differ by target.
fn times(stat: &Stat) -> Timestamps {
    let time = |seconds, nanos| Timespec { tv_sec: seconds, tv_nsec: nanos };
    Timestamps {
        last_access: time(stat.st_atime as i64, stat.st_atime_nsec as _),
        last_modification: time(stat.st_mtime as i64, stat.st_mtime_nsec as _),
    }
}
