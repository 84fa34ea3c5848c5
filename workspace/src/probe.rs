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
}

/// Facts of the running kernel that decide what this node can do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KernelFacts {
    /// As `uname -r` has it.
    pub release: String,
    /// Whether `mount_setattr` works, which makes a mount read-only before it is attached.
    pub mount_setattr: bool,
}

const NAME: &std::ffi::CStr = c".probe";
const SNAPSHOT: &std::ffi::CStr = c".probe.snapshot";

pub(crate) fn probe(root: BorrowedFd) -> Result<Probe, SysError> {
    let space = rustix::fs::fstatvfs(root).step("ask for free space")?;
    Ok(Probe {
        offers: vec![offer_btrfs(root), offer_copy(root)],
        total_bytes: space.f_blocks * space.f_frsize,
        free_bytes: space.f_bavail * space.f_frsize,
        kernel: KernelFacts { release: release()?, mount_setattr: host::has_mount_setattr() },
    })
}

fn release() -> Result<String, SysError> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/osrelease").step("ask for the kernel's release")?.trim().to_owned())
}

fn offer_btrfs(root: BorrowedFd) -> ProviderOffer {
    let offer = |available, reason: String| ProviderOffer { provider: ProviderKind::Btrfs, available, reason };
    match ioctl::is_btrfs(root) {
        Ok(true) => {}
        Ok(false) => return offer(false, "the data root is not on Btrfs".into()),
        Err(e) => return offer(false, format!("the data root cannot be asked: {e}")),
    }
    let attempt = || -> Result<(), SysError> {
        remove_probes(root)?;
        ioctl::create(root, NAME).step("make a subvolume")?;
        let made = crate::dir::open(root, NAME).step("open a subvolume")?;
        ioctl::snapshot(&made, root, SNAPSHOT, false).step("make a snapshot")?;
        drop(made);
        remove_probes(root)
    };
    match attempt() {
        Ok(()) => offer(true, "instant snapshots on the data root".into()),
        // Btrfs stays available: a new tree waits for space. A base made by Copy meanwhile would make all its trees copies, and live forks
        // impossible.
        Err(e) if e.reason() == ErrorReason::OutOfSpace => offer(true, "instant snapshots on the data root, which is full".into()),
        Err(e) => offer(false, format!("{e}: {}", e.source)),
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
    let read_only = rustix::fs::fstatvfs(root).map(|v| v.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY));
    let (available, reason) = match read_only {
        Ok(false) => (true, "full copies, slow in the size of the tree".to_owned()),
        Ok(true) => (false, "the data root is read-only".to_owned()),
        Err(e) => (false, format!("the data root cannot be asked: {e}")),
    };
    ProviderOffer { provider: ProviderKind::Copy, available, reason }
}
