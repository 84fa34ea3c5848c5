//! Project quotas of XFS and ext4: the file system counts the blocks of all files that bear a project id.
//!
//! # Project ids
//! A tree that is made gets an id, and everything in it inherits that. The id is taken by making the link `projects/<id>`, which one caller
//! can do, with the UID of the tree as its text. The search for a free id begins at one that is computed from the UID and the name of the data
//! root, and passes over ids that are taken here or that the file system counts something for. No agent sees that name: else one could give
//! its files all the ids that another tree may have, and that tree could not be made. The link is made before the first file that bears the id, and removed
//! after the last: journals of these file systems keep that order over a power cut. A crash between finds the link by its text.
//!
//! # Caveats
//! - The owner of a file may give it another project id, outside of user namespaces: this stops mistakes and not an attacker.
//! - ext4 lets whoever has CAP_SYS_RESOURCE go over every limit. An overlay does not have it.

use std::io;
use std::mem::offset_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Mode};
use rustix::io::Errno;

use crate::btrfs::ioctl;
use crate::error::StepContext;
use crate::{Quota, QuotaState, SysError, Uid, dir};

const PROJECTS: &str = "projects";
/// Ours are 0x59000000 to 0x59ffffff.
const FIRST_ID: u32 = 0x5900_0000;
const ID_MASK: u32 = 0x00ff_ffff;
/// How many ids are tried for a tree.
const WINDOW: u32 = 64;

/// Whether a data root counts by project.
pub(crate) struct Projects {
    why_not: Option<String>,
    /// The name of the data root.
    name: Uid,
}

impl Projects {
    /// Asks the file system, once for all trees of the data root of this name.
    pub fn of(root: BorrowedFd, name: Uid) -> Self {
        Self { why_not: Self::why_not_at(root), name }
    }

    fn why_not_at(root: BorrowedFd) -> Option<String> {
        match enforces(root) {
            _ if ioctl::is_btrfs(root).unwrap_or(false) => {
                Some("plain folders on Btrfs have no quota; trees of provider Btrfs can".to_owned())
            }
            Ok(true) => None,
            Ok(false) => Some("the file system of the data root is mounted without enforced project quotas (prjquota)".to_owned()),
            Err(e) if matches!(e.raw_os_error(), Some(libc::ENOSYS | libc::EOPNOTSUPP | libc::EINVAL | libc::ESRCH)) => Some(
                "the file system of the data root has no project quotas: it is mounted without prjquota, or the node's kernel lacks them"
                    .to_owned(),
            ),
            Err(e) => Some(format!("the file system of the data root does not say whether it has project quotas: {e}")),
        }
    }

    /// Why nothing is counted; None if it is.
    pub fn why_not(&self) -> Option<&str> {
        self.why_not.as_deref()
    }

    /// Whether quotas of trees that are folders are enforced.
    pub fn state(&self) -> QuotaState {
        self.why_not().map_or(QuotaState::Enforced, QuotaState::unsupported)
    }

    /// Gives the new entry of a tree a project id, for everything that is made in it. False if nothing is counted here.
    pub fn begin(&self, root: BorrowedFd, uid: Uid, entry: BorrowedFd) -> Result<bool, SysError> {
        if self.why_not.is_some() {
            return Ok(false);
        }
        let id = match self.find(root, uid)? {
            Some(id) => id,
            None => self.take(root, uid)?,
        };
        set_project(entry, id, true)?;
        Ok(true)
    }

    /// Why nothing is counted now: whoever keeps the node may have turned quotas off since the data root was opened.
    fn why_not_now(&self, root: BorrowedFd) -> Option<String> {
        self.why_not.clone().or_else(|| Self::why_not_at(root))
    }

    /// Limits the tree, or ends that.
    pub fn set_quota(&self, root: BorrowedFd, uid: Uid, quota: Option<Quota>) -> Result<QuotaState, SysError> {
        match (self.why_not_now(root), quota) {
            (Some(_), None) => return Ok(QuotaState::Enforced),
            (Some(reason), Some(_)) => return Ok(QuotaState::unsupported(reason)),
            (None, _) => {}
        }
        let Some(id) = self.find(root, uid)? else {
            return Ok(match quota {
                None => QuotaState::Enforced,
                Some(_) => QuotaState::unsupported("the tree was made when its file system did not count by project"),
            });
        };
        set_limit(root, id, quota.map_or(0, Quota::kernel_limit)).step("limit the project")?;
        Ok(QuotaState::Enforced)
    }

    /// The bytes that the file system counts for the tree.
    pub fn charged(&self, root: BorrowedFd, uid: Uid) -> Result<Option<u64>, SysError> {
        if self.why_not_now(root).is_some() {
            return Ok(None);
        }
        let Some(id) = self.find(root, uid)? else { return Ok(None) };
        Ok(Some(counted(root, id).step("read the counter of the project")?.space))
    }

    /// Gives the project id of a tree back. Nothing of the tree is left.
    pub fn release(&self, root: BorrowedFd, uid: Uid) -> Result<(), SysError> {
        if self.why_not.is_some() {
            return Ok(());
        }
        let Some(id) = self.find(root, uid)? else { return Ok(()) };
        // The next tree with this id begins without a limit.
        set_limit(root, id, 0).step("end the limit of the project")?;
        match rustix::fs::unlinkat(open(root)?, name(id), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(e) => Err(e).step("give back a project id"),
        }
    }

    /// The id of a tree. Looks at all candidates: those before it may have been given back.
    fn find(&self, root: BorrowedFd, uid: Uid) -> Result<Option<u32>, SysError> {
        let (projects, text) = (open(root)?, uid.to_string());
        for id in candidates(self.name, uid).chain(former_candidates(uid)) {
            match rustix::fs::readlinkat(&projects, name(id), Vec::new()) {
                Ok(found) if found.to_bytes() == text.as_bytes() => return Ok(Some(id)),
                Ok(_) | Err(Errno::NOENT | Errno::INVAL) => {}
                Err(e) => return Err(e).step("read a project id"),
            }
        }
        Ok(None)
    }

    fn take(&self, root: BorrowedFd, uid: Uid) -> Result<u32, SysError> {
        let (projects, text) = (open(root)?, uid.to_string());
        for id in candidates(self.name, uid) {
            // Somebody else uses this id, or files of a tree that is gone are still open.
            if counted(root, id).step("read the counter of a project")?.is_used() {
                continue;
            }
            match rustix::fs::symlinkat(&*text, &projects, name(id)) {
                Ok(()) => return Ok(id),
                Err(Errno::EXIST) => {}
                Err(e) => return Err(e).step("take a project id"),
            }
        }
        Err(io::Error::other("all that this tree may have are taken")).step("take a project id")
    }
}

/// Takes an entry itself out of the project of its tree: a tree that is full must not keep its marker from being replaced.
pub(crate) fn end(entry: BorrowedFd) -> Result<(), SysError> {
    set_project(entry, 0, false)
}

fn name(id: u32) -> String {
    format!("{id:08x}")
}

/// The ids that a tree may have, in the order in which they are tried. An agent sees the UID and the id of its own tree, so the hash tells nothing of
/// the name.
fn candidates(root_name: Uid, uid: Uid) -> impl Iterator<Item = u32> {
    let hash = blake3::hash(format!("{root_name} {uid}").as_bytes());
    let first = hash.as_bytes().iter().take(4).fold(0, |first, byte| first << 8 | u32::from(*byte));
    ids_from(first)
}

/// The ids that an earlier version took for a tree.
fn former_candidates(uid: Uid) -> impl Iterator<Item = u32> {
    // FNV-1a.
    ids_from(uid.to_string().bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)))
}

fn ids_from(first: u32) -> impl Iterator<Item = u32> {
    (0..WINDOW).map(move |n| FIRST_ID | (first.wrapping_add(n) & ID_MASK))
}

fn open(root: BorrowedFd) -> Result<OwnedFd, SysError> {
    match rustix::fs::mkdirat(root, PROJECTS, Mode::from_raw_mode(0o700)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(e) => return Err(e).step("make the directory of project ids"),
    }
    dir::open(root, PROJECTS).step("open the directory of project ids")
}

/// `struct fsxattr`.
#[repr(C)]
#[derive(Default)]
struct FileAttributes {
    flags: u32,
    extent_size: u32,
    extents: u32,
    project: u32,
    cow_extent_size: u32,
    pad: [u8; 8],
}

fn set_project(dir: BorrowedFd, id: u32, is_inherited: bool) -> Result<(), SysError> {
    const GET: u32 = 2 << 30 | (size_of::<FileAttributes>() as u32) << 16 | (b'X' as u32) << 8 | 31;
    const SET: u32 = 1 << 30 | (size_of::<FileAttributes>() as u32) << 16 | (b'X' as u32) << 8 | 32;
    const INHERITED: u32 = 0x200;
    let mut attributes = FileAttributes::default();
    // SAFETY: FSGETXATTR writes an fsxattr.
    if unsafe { libc::ioctl(dir.as_raw_fd(), GET as _, &mut attributes) } < 0 {
        return Err(io::Error::last_os_error()).step("read the project of a directory");
    }
    attributes.project = id;
    attributes.flags = if is_inherited { attributes.flags | INHERITED } else { attributes.flags & !INHERITED };
    // SAFETY: FSSETXATTR reads an fsxattr.
    if unsafe { libc::ioctl(dir.as_raw_fd(), SET as _, &mut attributes) } < 0 {
        return Err(io::Error::last_os_error()).step("set the project of a directory");
    }
    Ok(())
}

/// `struct if_dqblk`.
#[repr(C)]
#[derive(Default)]
struct Counted {
    /// In blocks of 1,024 bytes.
    hard_limit: u64,
    soft_limit: u64,
    space: u64,
    inode_hard_limit: u64,
    inode_soft_limit: u64,
    inodes: u64,
    block_time: u64,
    inode_time: u64,
    valid: u32,
}

impl Counted {
    fn is_used(&self) -> bool {
        self.space > 0 || self.inodes > 0 || self.hard_limit > 0 || self.soft_limit > 0 || self.inode_hard_limit > 0
    }
}

const BLOCK: u64 = 1024;
const GET_QUOTA: u32 = 0x80_0007;
const SET_QUOTA: u32 = 0x80_0008;
const GET_STATE: u32 = (b'X' as u32) << 8 | 8;

/// SAFETY: `arg` must be what the command reads and writes.
unsafe fn quotactl<T>(any: BorrowedFd, command: u32, id: u32, arg: &mut T) -> io::Result<()> {
    const PROJECT: u32 = 2;
    // SAFETY: the caller guarantees `arg`; the descriptor lives through the call.
    match unsafe { libc::syscall(libc::SYS_quotactl_fd, any.as_raw_fd(), command << 8 | PROJECT, id, std::ptr::from_mut(arg)) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn enforces(root: BorrowedFd) -> io::Result<bool> {
    const PROJECTS_ENFORCED: u16 = 1 << 5;
    /// The head of `struct fs_quota_statv`, with more room than it takes.
    #[repr(C)]
    struct State {
        version: i8,
        pad: u8,
        flags: u16,
        rest: [u64; 40],
    }
    let mut state = State { version: 1, pad: 0, flags: 0, rest: [0; 40] };
    // SAFETY: XGETQSTATV reads the version and writes an fs_quota_statv, which is smaller.
    unsafe { quotactl(root.as_fd(), GET_STATE, 0, &mut state)? };
    Ok(state.flags & PROJECTS_ENFORCED != 0)
}

fn counted(root: BorrowedFd, id: u32) -> io::Result<Counted> {
    let mut counted = Counted::default();
    // SAFETY: GETQUOTA writes an if_dqblk.
    match unsafe { quotactl(root, GET_QUOTA, id, &mut counted) } {
        Ok(()) => Ok(counted),
        // XFS has nothing of an id that was never used.
        Err(e) if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::ESRCH)) => Ok(Counted::default()),
        Err(e) => Err(e),
    }
}

/// 0 is no limit.
fn set_limit(root: BorrowedFd, id: u32, bytes: u64) -> io::Result<()> {
    const BLOCK_LIMITS: u32 = 1;
    let mut limit = Counted { hard_limit: bytes.div_ceil(BLOCK), valid: BLOCK_LIMITS, ..Counted::default() };
    // SAFETY: SETQUOTA reads an if_dqblk.
    unsafe { quotactl(root, SET_QUOTA, id, &mut limit) }
}

const _: () = assert!(size_of::<FileAttributes>() == 28 && size_of::<Counted>() == 72 && offset_of!(Counted, valid) == 64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tree_has_its_own_row_of_ids_and_all_are_in_our_range() {
        let of = |root: u8, n: u8| candidates(Uid::from_bytes([root; 16]), Uid::from_bytes([n; 16])).collect::<Vec<u32>>();
        assert_ne!(of(9, 1)[0], of(9, 2)[0]);
        // An agent that knows the UID of a tree does not know its ids.
        assert!(of(8, 1).iter().all(|id| !of(9, 1).contains(id)));
        for n in 0..=255 {
            let ids = of(9, n);
            assert_eq!(ids.len(), WINDOW as usize);
            assert!(ids.iter().all(|id| id & !ID_MASK == FIRST_ID));
        }
    }
}
