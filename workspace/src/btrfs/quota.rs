//! Simple quotas of Btrfs: the kernel charges each block to the subvolume that wrote it, once, and never recounts.
//!
//! # Groups
//! Every subvolume is a group `0/<id>` from its first block on. A tree with a quota is also in a group of its own, [`LEVEL`]`/<id>`, and
//! that has the limit: the kernel puts each subvolume that is made inside a tree into the groups of the tree, so a nested subvolume is no way
//! around the quota.
//!
//! # Caveats
//! The counters are written with each commit, so they may be 30 s old. Turning simple quotas on makes the file system unreadable for
//! kernels before Linux 6.7.

use std::io;
use std::os::fd::BorrowedFd;

use super::ioctl::{self, READ, WRITE, raw_ioctl, request_code};
use super::search::{Keys, search};
use crate::error::StepContext;
use crate::{Quota, QuotaState, SysError};

/// The level of the groups that are ours: "Y".
const LEVEL: u64 = 0x59;
const LEVEL_SHIFT: u32 = 48;

const ROOT_TREE: u64 = 1;
const QUOTA_TREE: u64 = 8;
const ROOT_ITEM: u32 = 132;
const STATUS_ITEM: u32 = 240;
const GROUP_ITEM: u32 = 242;
const FIRST_SUBVOLUME: u64 = 256;

const STATUS_ON: u64 = 1;
const STATUS_SIMPLE: u64 = 1 << 3;

/// How a Btrfs counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Off,
    /// Groups that are recounted whenever a reference changes: 512 deleted snapshots kept a processor busy for minutes.
    Classic,
    /// What was written before the transaction `enabled_in` is not counted.
    Simple {
        enabled_in: u64,
    },
}

/// How the file system counts at present.
pub fn mode(any: BorrowedFd) -> io::Result<Mode> {
    let mut found = Mode::Off;
    let only = Keys { tree: QUOTA_TREE, first: (0, STATUS_ITEM, 0), last: (0, STATUS_ITEM, 0), min_transid: 0 };
    let searched = search(any, only, |item| {
        let (flags, enabled_in) = (item.u64_at(16)?, item.u64_at(32));
        found = match (flags & STATUS_ON != 0, flags & STATUS_SIMPLE != 0) {
            (false, _) => Mode::Off,
            (true, false) => Mode::Classic,
            (true, true) => Mode::Simple { enabled_in: enabled_in? },
        };
        Ok(true)
    });
    match searched {
        Ok(()) => Ok(found),
        // There is no tree of quotas.
        Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(Mode::Off),
        Err(e) => Err(e),
    }
}

/// Turns simple quotas on where no quotas are. Does nothing where quotas of either kind are on.
pub fn set_up(any: BorrowedFd) -> Result<QuotaState, SysError> {
    match mode(any).step("ask for the quotas of Btrfs")? {
        Mode::Simple { .. } => {
            sweep(any)?;
            return Ok(QuotaState::Enforced);
        }
        Mode::Classic => return Ok(QuotaState::unsupported(CLASSIC)),
        Mode::Off => {}
    }
    match enable(any) {
        Ok(()) => Ok(QuotaState::Enforced),
        Err(e) if matches!(e.raw_os_error(), Some(libc::EINVAL | libc::ENOTTY | libc::EOPNOTSUPP)) => {
            Ok(QuotaState::unsupported("the node's kernel has no simple quotas of Btrfs: Linux 6.7 or later is needed"))
        }
        Err(e) => Err(e).step("turn on simple quotas"),
    }
}

const CLASSIC: &str = "classic quota groups are on in this Btrfs; Yoi does not use them, because they slow down every deletion";
const OFF: &str = "simple quotas are off in this Btrfs; the chart value shim.btrfs.simpleQuota turns them on";

/// What a tree's subvolume is called here, and whether its quota can be enforced.
pub fn support(tree: BorrowedFd) -> Result<Result<u64, QuotaState>, SysError> {
    let enabled_in = match mode(tree).step("ask for the quotas of Btrfs")? {
        Mode::Off => return Ok(Err(QuotaState::unsupported(OFF))),
        Mode::Classic => return Ok(Err(QuotaState::unsupported(CLASSIC))),
        Mode::Simple { enabled_in } => enabled_in,
    };
    let subvolume = ioctl::subvolume(tree).step("ask about the subvolume")?;
    if subvolume.created_transid < enabled_in {
        return Ok(Err(QuotaState::unsupported(
            "the tree is older than the simple quotas of this Btrfs, which do not count what it holds",
        )));
    }
    Ok(Ok(subvolume.id))
}

/// Sets, changes or ends the limit of a subvolume. `outside` is no part of it: the kernel charges such a call to the subvolume of its
/// descriptor, and refuses it there when that is full.
pub fn limit(outside: BorrowedFd, id: u64, quota: Option<Quota>) -> Result<(), SysError> {
    match quota {
        None => {
            // Subvolumes in the tree stay in its group, which is no limit then.
            lift(outside, id)?;
            forget(outside, id, id)
        }
        Some(quota) => {
            let set = || {
                let group = group_of(id);
                ignoring(libc::EEXIST, create(outside, group, true))?;
                ignoring(libc::EEXIST, assign(outside, id, group, true))?;
                set_limit(outside, group, quota.kernel_limit())
            };
            set().step("limit the subvolume")
        }
    }
}

/// Ends the limit of a tree that is about to go: what is full cannot be emptied. `outside` as in [`limit`].
pub fn lift(outside: BorrowedFd, tree: u64) -> Result<(), SysError> {
    /// No limit, in the kernel's words.
    const NONE: u64 = u64::MAX;
    present(set_limit(outside, group_of(tree), NONE)).step("lift the limit of the subvolume")
}

/// Takes a subvolume out of the group of a tree, and removes the group if nothing else is in it. `outside` as in [`limit`].
pub fn forget(outside: BorrowedFd, member: u64, tree: u64) -> Result<(), SysError> {
    let group = group_of(tree);
    // An earlier call may have stopped between the two.
    let ended = present(assign(outside, member, group, false)).and_then(|()| present(create(outside, group, false)));
    ended.step("end the limit of the subvolume")
}

/// It is no failure if there is no such group or member, quotas are off, or others are still in the group.
fn present(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(e) if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::EINVAL | libc::ENOTCONN | libc::EBUSY)) => Ok(()),
        other => other,
    }
}

/// The bytes that are charged to a tree, with the subvolumes in it if it has a quota. None if nothing counts them.
pub fn charged(tree: BorrowedFd) -> Result<Option<u64>, SysError> {
    let Ok(id) = support(tree)? else { return Ok(None) };
    for group in [group_of(id), id] {
        let mut found = None;
        let only = Keys { tree: QUOTA_TREE, first: (0, GROUP_ITEM, group), last: (0, GROUP_ITEM, group), min_transid: 0 };
        let searched = search(tree, only, |item| {
            found = Some(item.u64_at(24)?);
            Ok(true)
        });
        searched.step("read the counter of the subvolume")?;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// Removes the groups that a crash or a deletion left behind: ours whose tree is gone, and empty ones of subvolumes that are gone. What was
/// written by a subvolume that is gone and is in use elsewhere stays counted.
fn sweep(any: BorrowedFd) -> Result<(), SysError> {
    let mut groups = Vec::new();
    let all = Keys { tree: QUOTA_TREE, first: (0, GROUP_ITEM, 0), last: (0, GROUP_ITEM, u64::MAX), min_transid: 0 };
    search(any, all, |item| {
        if item.kind == GROUP_ITEM {
            groups.push((item.offset, item.u64_at(24)?));
        }
        Ok(true)
    })
    .step("list the quota groups")?;
    for (group, bytes) in groups {
        let (level, id) = (group >> LEVEL_SHIFT, group & ((1 << LEVEL_SHIFT) - 1));
        let may_go = level == LEVEL || (level == 0 && bytes == 0 && id >= FIRST_SUBVOLUME);
        if may_go && !is_there(any, id).step("look for a subvolume")? {
            // The kernel refuses what it still needs.
            let _ = create(any, group, false);
        }
    }
    Ok(())
}

fn is_there(any: BorrowedFd, subvolume: u64) -> io::Result<bool> {
    let mut found = false;
    let only = Keys { tree: ROOT_TREE, first: (subvolume, ROOT_ITEM, 0), last: (subvolume, ROOT_ITEM, u64::MAX), min_transid: 0 };
    search(any, only, |_| {
        found = true;
        Ok(false)
    })?;
    Ok(found)
}

fn group_of(subvolume: u64) -> u64 {
    LEVEL << LEVEL_SHIFT | subvolume
}

fn ignoring(errno: i32, done: io::Result<()>) -> io::Result<()> {
    done.or_else(|e| if e.raw_os_error() == Some(errno) { Ok(()) } else { Err(e) })
}

fn enable(any: BorrowedFd) -> io::Result<()> {
    const ENABLE_SIMPLE: u64 = 4;
    let mut args = [ENABLE_SIMPLE, 0];
    // SAFETY: QUOTA_CTL reads and writes a quota_ctl_args: a command and a status.
    unsafe { raw_ioctl(any, request_code(READ | WRITE, 40, size_of_val(&args)), &mut args) }
}

fn create(any: BorrowedFd, group: u64, is_made: bool) -> io::Result<()> {
    let mut args = [u64::from(is_made), group];
    // SAFETY: QGROUP_CREATE reads a qgroup_create_args: whether to create, and the group.
    unsafe { raw_ioctl(any, request_code(WRITE, 42, size_of_val(&args)), &mut args) }
}

fn assign(any: BorrowedFd, member: u64, group: u64, is_member: bool) -> io::Result<()> {
    let mut args = [u64::from(is_member), member, group];
    // SAFETY: QGROUP_ASSIGN reads a qgroup_assign_args: whether to assign, the member, the group.
    unsafe { raw_ioctl(any, request_code(WRITE, 41, size_of_val(&args)), &mut args) }
}

fn set_limit(any: BorrowedFd, group: u64, bytes: u64) -> io::Result<()> {
    const MAX_REFERENCED: u64 = 1;
    let mut args = [group, MAX_REFERENCED, bytes, 0, 0, 0];
    // SAFETY: QGROUP_LIMIT reads a qgroup_limit_args: the group, the limits that are given, and the four limits.
    unsafe { raw_ioctl(any, request_code(READ, 43, size_of_val(&args)), &mut args) }
}
