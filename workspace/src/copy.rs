//! Provider Copy: directories, and clones that copy every byte. It works on every file system, is slow, and is the reference for the
//! others.

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, SeekFrom, Stat, Timespec, Timestamps, Uid as UserId, XattrFlags};
use rustix::io::Errno;

use crate::btrfs::{commit, ioctl};
use crate::change_list::ChangeCollector;
use crate::error::StepContext;
use crate::layout::TREE;
use crate::trees::{Backend, LiveTree};
use crate::{ChangeLimits, CloneAccess, NodeKind, Owner, ProviderKind, SysError, TreeOrigin, compare, dir, remove};

pub(crate) struct Copy;

impl Backend for Copy {
    const KIND: ProviderKind = ProviderKind::Copy;
    const FORKS_LIVE: bool = false;

    fn make_empty(&self, entry: BorrowedFd, owner: Owner) -> Result<(), SysError> {
        rustix::fs::mkdirat(entry, TREE, Mode::from_raw_mode(0o755)).step("make the tree")?;
        set_root_owner(entry, owner)?;
        // A tree that is reported as made must survive a power cut.
        rustix::fs::syncfs(entry).step("flush the tree")
    }

    fn clone_into(&self, source: BorrowedFd, entry: BorrowedFd, _: CloneAccess) -> Result<(), SysError> {
        rustix::fs::mkdirat(entry, TREE, Mode::from_raw_mode(0o700)).step("make the tree")?;
        let target = dir::open(entry, TREE).step("open the tree")?;
        let stat = rustix::fs::fstat(source).step("stat the source")?;
        TreeCopy { linked: HashMap::new(), device: stat.st_dev }.copy_dir(
            source,
            target.as_fd(),
            target.as_fd(),
            &stat,
            &mut Vec::new(),
            0,
        )?;
        // After a power cut there must not be the final name without the data.
        rustix::fs::syncfs(&target).step("flush the copy")
    }

    fn has_nested_volume(&self, tree: BorrowedFd) -> Result<bool, SysError> {
        let device = rustix::fs::fstat(tree).step("stat the tree")?.st_dev;
        let mut nested = false;
        dir::walk(tree, &mut |entry| {
            nested |= entry.stat.st_dev != device;
            Ok(())
        })?;
        Ok(nested)
    }

    fn freeze(&self, tree: BorrowedFd) -> Result<Option<u64>, SysError> {
        rustix::fs::syncfs(tree).step("flush the tree")?;
        Ok(None)
    }

    fn remove(&self, entry: BorrowedFd) -> Result<(), SysError> {
        remove::remove_tree(entry, c"tree")
    }

    fn commit_removals(&self, root: BorrowedFd) -> Result<(), SysError> {
        if ioctl::is_btrfs(root).step("ask for the file system")? {
            return commit::commit(root).step("commit the removal");
        }
        // The journal of the file system keeps the order, so this flush includes all earlier changes.
        let trash = dir::open(root, "trash").step("open the trash")?;
        rustix::fs::fsync(&trash).step("flush the removal")
    }

    fn exclusive_bytes(&self, _: BorrowedFd, _: &CStr, stat: &Stat) -> Result<u64, SysError> {
        Ok(stat.st_blocks as u64 * 512)
    }

    /// A copy has new inodes and ctimes. A change after the clone's commit point gives a file a ctime from then or later, and no agent can
    /// set a ctime back. Files with such a ctime are compared by content, the others by size and mtime. If the tree is not a direct clone
    /// of `since`, every file is compared by content.
    fn changes(&self, tree: &LiveTree, since: &LiveTree, limits: &ChangeLimits, out: &mut ChangeCollector) -> Result<(), SysError> {
        let is_direct = matches!(tree.marker.origin, TreeOrigin::Clone { from, .. } if from == since.marker.uid);
        // The rename at the commit point set the ctime of the entry. The marker of a seal sets it again, so a sealed tree is compared in
        // full.
        let committed = match is_direct && tree.marker.sealed.is_none() {
            true => dir::ctime(&rustix::fs::fstat(&tree.entry).step("stat the entry")?),
            false => (i64::MIN, 0),
        };
        let same = |pair: &compare::Pair| {
            if !compare::same_metadata(pair.base.1, pair.tree.1) {
                return Ok(false);
            }
            if dir::ctime(pair.tree.1) < committed {
                return Ok(true);
            }
            match dir::kind(pair.tree.1) {
                NodeKind::File => same_content(pair.base.0, pair.tree.0, pair.name, limits),
                NodeKind::Symlink => {
                    let read = |at| rustix::fs::readlinkat(at, pair.name, Vec::new()).step("read a link");
                    Ok(read(pair.base.0)? == read(pair.tree.0)?)
                }
                NodeKind::Dir | NodeKind::Special => Ok(true),
            }
        };
        compare::compare_all(since.tree.as_fd(), tree.tree.as_fd(), &same, out)
    }
}

/// Sets owner and mode of a new tree's root.
pub(crate) fn set_root_owner(entry: BorrowedFd, owner: Owner) -> Result<(), SysError> {
    let tree = dir::open(entry, TREE).step("open the tree")?;
    rustix::fs::fchown(&tree, Some(UserId::from_raw(owner.uid)), Some(Gid::from_raw(owner.gid))).step("own the tree")?;
    rustix::fs::fchmod(&tree, Mode::from_raw_mode(0o755)).step("set the mode of the tree")
}

fn same_content(base: BorrowedFd, tree: BorrowedFd, name: &CStr, limits: &ChangeLimits) -> Result<bool, SysError> {
    let open = |at| dir::open_file(at, name).map(File::from).step("open a file");
    let (mut a, mut b) = (open(base)?, open(tree)?);
    let (mut left, mut right) = (vec![0; 128 << 10], vec![0; 128 << 10]);
    loop {
        // A file may be large, and slow to read.
        limits.check()?;
        let n = a.read(&mut left).step("read a file")?;
        if n == 0 {
            return Ok(b.read(&mut right).step("read a file")? == 0);
        }
        match b.read_exact(&mut right[..n]) {
            Ok(()) if left[..n] == right[..n] => {}
            Ok(()) => return Ok(false),
            // The file became shorter while it was read.
            Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(false),
            Err(e) => return Err(e).step("read a file"),
        }
    }
}

struct TreeCopy {
    /// By inode number, the path of the first copy of a file with several links, relative to the new tree's root.
    linked: HashMap<u64, CString>,
    device: u64,
}

impl TreeCopy {
    /// Fills `to`; `path` is its path from `root`.
    fn copy_dir(
        &mut self,
        from: BorrowedFd,
        to: BorrowedFd,
        root: BorrowedFd,
        stat: &Stat,
        path: &mut Vec<u8>,
        depth: usize,
    ) -> Result<(), SysError> {
        if depth > dir::MAX_DEPTH {
            return Err(dir::too_deep()).step("copy a directory");
        }
        for name in dir::names(from).step("read a directory")? {
            let before = dir::push_component(path, &name);
            let stat = dir::stat(from, &name).step("stat an entry")?;
            if dir::kind(&stat) == NodeKind::Dir {
                let source = dir::open(from, &*name).step("open a directory")?;
                if stat.st_dev != self.device {
                    return Err(std::io::Error::from(Errno::XDEV)).step("copy a nested volume");
                }
                rustix::fs::mkdirat(to, &*name, Mode::from_raw_mode(0o700)).step("make a directory")?;
                let target = dir::open(to, &*name).step("open a directory")?;
                self.copy_dir(source.as_fd(), target.as_fd(), root, &stat, path, depth + 1)?;
            } else {
                self.copy_entry(from, to, root, &name, &stat, path)?;
            }
            path.truncate(before);
        }
        copy_xattrs(from, to)?;
        set_metadata(to, stat)
    }

    fn copy_entry(
        &mut self,
        from: BorrowedFd,
        to: BorrowedFd,
        root: BorrowedFd,
        name: &CStr,
        stat: &Stat,
        path: &[u8],
    ) -> Result<(), SysError> {
        if stat.st_nlink > 1 {
            if let Some(first) = self.linked.get(&stat.st_ino) {
                return rustix::fs::linkat(root, &**first, to, name, AtFlags::empty()).step("link a file");
            }
            let path = CString::new(path).map_err(std::io::Error::other).step("name a link")?;
            self.linked.insert(stat.st_ino, path);
        }
        match dir::kind(stat) {
            NodeKind::File => {
                let source = dir::open_file(from, name).step("open a file")?;
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let target = rustix::fs::openat(to, name, flags, Mode::from_raw_mode(0o600)).step("make a file")?;
                copy_data(&source, &target, stat.st_size as u64)?;
                copy_xattrs(source.as_fd(), target.as_fd())?;
                set_metadata(target.as_fd(), stat)
            }
            NodeKind::Symlink => {
                let text = rustix::fs::readlinkat(from, name, Vec::new()).step("read a link")?;
                rustix::fs::symlinkat(&*text, to, name).step("make a link")?;
                set_metadata_at(to, name, stat, false)
            }
            NodeKind::Special => {
                let kind = FileType::from_raw_mode(stat.st_mode);
                rustix::fs::mknodat(to, name, kind, Mode::from_raw_mode(0o600), stat.st_rdev).step("make a special file")?;
                set_metadata_at(to, name, stat, true)
            }
            NodeKind::Dir => Ok(()),
        }
    }
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
            match rustix::fs::copy_file_range(from, Some(&mut source), to, Some(&mut target), room).step("copy a file")? {
                0 => return Ok(()),
                _ => continue,
            }
        }
        at = end;
    }
    Ok(())
}

fn copy_xattrs(from: BorrowedFd, to: BorrowedFd) -> Result<(), SysError> {
    let mut list = vec![0u8; 64 << 10];
    let len = match rustix::fs::flistxattr(from, &mut list) {
        Ok(len) => len,
        Err(Errno::OPNOTSUPP) => return Ok(()),
        Err(e) => return Err(e).step("list extended attributes"),
    };
    for name in list[..len].split_inclusive(|b| *b == 0) {
        let name = CStr::from_bytes_with_nul(name).map_err(std::io::Error::other).step("read extended attributes")?;
        let mut value = vec![0u8; 64 << 10];
        let len = match rustix::fs::fgetxattr(from, name, &mut value) {
            Ok(len) => len,
            Err(Errno::NODATA) => continue,
            Err(e) => return Err(e).step("read an extended attribute"),
        };
        rustix::fs::fsetxattr(to, name, &value[..len], XattrFlags::empty()).step("write an extended attribute")?;
    }
    Ok(())
}

/// Sets the owner, then the mode (chown clears set-user-id), then the times.
fn set_metadata(target: BorrowedFd, stat: &Stat) -> Result<(), SysError> {
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
