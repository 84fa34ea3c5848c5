//! Finds out by trying which providers work on a data root.

use std::os::fd::BorrowedFd;

use rustix::fs::AtFlags;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::btrfs::ioctl;
use crate::error::StepContext;
use crate::{ErrorReason, ProviderKind, ProviderOffer, SysError, host};

/// What [`crate::DataRoot::probe`] found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Probe {
    /// One for every provider of this crate, offered or not.
    pub offers: Vec<ProviderOffer>,
    /// Size of the file system.
    pub total_bytes: u64,
    /// What an unprivileged process can still write.
    pub free_bytes: u64,
    /// The running kernel.
    pub kernel: KernelFacts,
    /// Why the data root does not work at all at present. A full one works: its trees can be used and destroyed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<RootFailure>,
}

/// Why a data root does not work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RootFailure {
    /// `ReadOnlyFilesystem`, or the class of what failed when providers were tried.
    pub reason: ErrorReason,
    /// One sentence.
    pub message: String,
}

/// Facts of the running kernel that decide what this node can do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KernelFacts {
    /// As `uname -r` has it.
    pub release: String,
    /// The system calls that trees and mounts need and this kernel lacks.
    pub missing: Vec<String>,
}

impl KernelFacts {
    /// Asks the running kernel. Makes nothing and opens no data root.
    pub fn read() -> Result<Self, SysError> {
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").step("ask for the kernel's release")?;
        Ok(KernelFacts { release: release.trim().to_owned(), missing: host::missing_calls() })
    }

    /// Why no tree can be mounted with this kernel, and which one is needed; None if it will do.
    pub fn shortfall(&self) -> Option<String> {
        let (release, missing) = (&self.release, self.missing.join(", "));
        (!missing.is_empty()).then(|| format!("the node's kernel {release} lacks {missing}: Linux {} or later is needed", host::MIN_KERNEL))
    }
}

const NAME: &std::ffi::CStr = c".probe";
const SNAPSHOT: &std::ffi::CStr = c".probe.snapshot";

pub(crate) fn probe(root: BorrowedFd, on_btrfs: bool) -> Result<Probe, SysError> {
    let space = rustix::fs::fstatvfs(root).step("ask for free space")?;
    let (btrfs, failure) = offer_btrfs(root, on_btrfs);
    let failure = match is_read_only(root)? {
        true => Some(RootFailure { reason: ErrorReason::ReadOnlyFilesystem, message: "the file system is read-only".to_owned() }),
        false => failure,
    };
    Ok(Probe {
        offers: vec![btrfs, offer_copy(root)],
        total_bytes: space.f_blocks * space.f_frsize,
        free_bytes: space.f_bavail * space.f_frsize,
        kernel: KernelFacts::read()?,
        failure,
    })
}

/// Whether the file system, or its mount, is read-only. Btrfs and ext4 become read-only by themselves after an error of the device.
pub(crate) fn is_read_only(root: BorrowedFd) -> Result<bool, SysError> {
    let flags = rustix::fs::fstatvfs(root).step("ask whether the file system is read-only")?.f_flag;
    Ok(flags.contains(rustix::fs::StatVfsMountFlags::RDONLY))
}

/// The offer, and why it does not work at present.
///
/// On Btrfs it stays available whatever fails, unless the kernel or the mount does not have the calls: a new tree waits for the disk. A base
/// made by Copy meanwhile would make all trees of its project copies for good, and live forks impossible.
fn offer_btrfs(root: BorrowedFd, on_btrfs: bool) -> (ProviderOffer, Option<RootFailure>) {
    let offer = |available, reason: String| ProviderOffer { provider: ProviderKind::Btrfs, available, reason };
    if !on_btrfs {
        return (offer(false, "the data root is not on Btrfs".into()), None);
    }
    let attempt = || -> Result<(), SysError> {
        remove_probes(root)?;
        ioctl::create(root, NAME).step("make a subvolume")?;
        let made = crate::dir::open(root, NAME).step("open a subvolume")?;
        ioctl::snapshot(&made, root, SNAPSHOT, false).step("make a snapshot")?;
        drop(made);
        remove_probes(root)
    };
    let Err(error) = attempt() else { return (offer(true, "instant snapshots on the data root".into()), None) };
    let message = format!("{error}: {}", error.source);
    match (error.reason(), error.source.raw_os_error()) {
        (ErrorReason::OutOfSpace, _) => (offer(true, "instant snapshots on the data root, which is full".into()), None),
        (_, Some(libc::EPERM | libc::EACCES | libc::ENOTTY | libc::EOPNOTSUPP | libc::ENOSYS)) => (offer(false, message), None),
        (reason, _) => {
            let failing = offer(true, format!("instant snapshots on the data root, which fails at present: {message}"));
            (failing, Some(RootFailure { reason, message }))
        }
    }
}

/// Removes what a probe leaves. rmdir removes an empty subvolume and nothing that has content.
fn remove_probes(root: BorrowedFd) -> Result<(), SysError> {
    for name in [NAME, SNAPSHOT] {
        match rustix::fs::unlinkat(root, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(e) => return Err(e).step("remove a probe"),
        }
    }
    Ok(())
}

fn offer_copy(root: BorrowedFd) -> ProviderOffer {
    let (available, reason) = match is_read_only(root) {
        Ok(false) => (true, "full copies, slow in the size of the tree".to_owned()),
        Ok(true) => (false, "the data root is read-only".to_owned()),
        Err(e) => (false, format!("the data root cannot be asked: {e}")),
    };
    ProviderOffer { provider: ProviderKind::Copy, available, reason }
}
