//! Finds out by trying which providers work on a data root.

use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, StatVfsMountFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::btrfs::ioctl;
use crate::error::StepContext;
use crate::layout::Layout;
use crate::overlay::{self, Overlay};
use crate::zfs::Zfs;
use crate::{ErrorReason, ProviderKind, ProviderOffer, SysError, folder, host, reflink};

/// What [`crate::DataRoot::probe`] found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Probe {
    /// One for every provider of this crate, offered or not.
    pub offers: Vec<ProviderOffer>,
    /// Size of the pool that datasets are made in, if provider Zfs is offered; else of the data root's file system. 0 if it does not work and does not
    /// say.
    pub total_bytes: u64,
    /// What can still be written there, by an unprivileged process. 0 if the file system does not say.
    pub free_bytes: u64,
    /// The running kernel.
    pub kernel: KernelFacts,
    /// Whether its SELinux is on: then a container runtime may label every file of a tree.
    #[serde(default)]
    pub selinux: bool,
    /// Why the data root does not work at all at present. A full one works: its trees can be used and destroyed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<RootFailure>,
}

/// Bytes of a file system or pool.
#[derive(Default)]
pub(crate) struct Space {
    pub total: u64,
    pub free: u64,
}

/// Why a data root does not work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RootFailure {
    /// `ReadOnlyFilesystem` if nothing can be written until it is mounted anew, else the class of what failed when providers were tried.
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

pub(crate) fn probe(layout: &Layout, on_btrfs: bool, overlays: &Overlay, zfs: Option<&Zfs>) -> Result<Probe, SysError> {
    let (kernel, root) = (KernelFacts::read()?, layout.root());
    let mut failure = None;
    let mut offers = Vec::new();
    for provider in ProviderKind::ALL {
        let (available, reason) = match provider {
            ProviderKind::Zfs => offer_zfs(zfs),
            ProviderKind::Btrfs if !on_btrfs => (false, "the data root is not on Btrfs".to_owned()),
            ProviderKind::Btrfs => verdict(on_btrfs, try_btrfs(root), "instant snapshots on the data root", &mut failure),
            ProviderKind::Overlay => {
                verdict(on_btrfs, overlay::try_here(root, overlays), "instant overlays on the data root", &mut failure)
            }
            ProviderKind::Reflink => {
                verdict(on_btrfs, reflink::try_here(root), "copies that share all blocks, slow in the number of files", &mut failure)
            }
            ProviderKind::Copy => offer_copy(root),
        };
        offers.push(ProviderOffer { provider, available, reason });
    }
    let space = match rustix::fs::fstatvfs(root) {
        Ok(space) => space,
        // A Btrfs that has given up does not even say how large it is.
        Err(_) if failure.is_some() => {
            return Ok(Probe { offers, total_bytes: 0, free_bytes: 0, kernel, selinux: selinux_is_on(), failure });
        }
        Err(e) => return Err(e).step("ask for free space"),
    };
    if space.f_flag.contains(StatVfsMountFlags::RDONLY) {
        let message = "the file system is read-only".to_owned();
        failure = Some(RootFailure { reason: ErrorReason::ReadOnlyFilesystem, message });
    }
    let offers_zfs = offers.iter().any(|offer| offer.provider == ProviderKind::Zfs && offer.available);
    // Auto takes Zfs before all others, so that is where new trees need space.
    let Space { total, free } = match zfs.filter(|_| offers_zfs) {
        // A pool that has just begun to hang says nothing, and the next probe does not offer it.
        Some(zfs) => zfs.space().unwrap_or_default(),
        None => Space { total: space.f_blocks * space.f_frsize, free: space.f_bavail * space.f_frsize },
    };
    Ok(Probe { offers, total_bytes: total, free_bytes: free, kernel, selinux: selinux_is_on(), failure })
}

fn try_btrfs(root: BorrowedFd) -> Result<(), SysError> {
    remove_probes(root)?;
    ioctl::create(root, NAME).step("make a subvolume")?;
    let made = crate::dir::open(root, NAME).step("open a subvolume")?;
    ioctl::snapshot(&made, root, SNAPSHOT, false).step("make a snapshot")?;
    drop(made);
    remove_probes(root)
}

/// Whether a provider is offered, and why; sets the first failure of the data root.
///
/// It stays available whatever fails, unless the kernel or the file system does not have the calls: a new tree waits for the disk. A base
/// made by a worse provider meanwhile would make all trees of its project the same for good.
fn verdict(on_btrfs: bool, tried: Result<(), SysError>, good: &str, failure: &mut Option<RootFailure>) -> (bool, String) {
    let Err(error) = tried else { return (true, good.to_owned()) };
    let message = format!("failed to {}: {}", error.step, error.source);
    match (error.reason(), error.source.raw_os_error()) {
        (ErrorReason::OutOfSpace, _) => (true, format!("{good}, which is full")),
        (
            _,
            None
            | Some(libc::EPERM | libc::EACCES | libc::ENOTTY | libc::EOPNOTSUPP | libc::ENOSYS | libc::EINVAL | libc::ENODEV | libc::EXDEV),
        ) => (false, message),
        (reason, errno) => {
            // Since Linux 6.18 a Btrfs that has given up answers EIO to everything, and does not say that it is read-only.
            let reason = if on_btrfs && errno == Some(libc::EIO) { ErrorReason::ReadOnlyFilesystem } else { reason };
            let text = format!("{good}, which fails at present: {message}");
            failure.get_or_insert(RootFailure { reason, message });
            (true, text)
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

/// Why a data root without a dataset makes no trees of provider Zfs.
const NO_DATASET: &str = "no dataset is named for trees; the chart value shim.zfs.dataset names one";

/// A pool of its own says nothing of the data root.
fn offer_zfs(zfs: Option<&Zfs>) -> (bool, String) {
    let Some(zfs) = zfs else { return (false, NO_DATASET.to_owned()) };
    let good = format!("instant snapshots in datasets below {}", zfs.parent());
    match zfs.try_here() {
        Ok(()) => (true, good),
        Err(error) if error.reason() == ErrorReason::OutOfSpace => (true, format!("{good}, whose pool is full")),
        Err(error) => (false, format!("failed to {}: {}", error.step, error.source)),
    }
}

fn offer_copy(root: BorrowedFd) -> (bool, String) {
    // ext4, and Btrfs before Linux 6.18, become read-only by themselves after an error of the device.
    let read_only = rustix::fs::fstatvfs(root).map(|space| space.f_flag.contains(StatVfsMountFlags::RDONLY));
    match read_only {
        Ok(false) if folder::can_share_blocks(root).unwrap_or(false) => {
            (true, "copies of every file, slow in the size of the tree; the file system may share their blocks".to_owned())
        }
        Ok(false) => (true, "full copies, slow in the size of the tree".to_owned()),
        Ok(true) => (false, "the data root is read-only".to_owned()),
        Err(e) => (false, format!("the data root cannot be asked: {e}")),
    }
}

fn selinux_is_on() -> bool {
    std::fs::read_to_string("/proc/filesystems").is_ok_and(|text| names_selinuxfs(&text))
}

/// Whether the kernel has SELinux's own file system, which it registers when SELinux is on.
fn names_selinuxfs(filesystems: &str) -> bool {
    filesystems.lines().any(|line| line.split_whitespace().last() == Some("selinuxfs"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selinux_is_on_where_its_file_system_is_known() {
        assert!(names_selinuxfs("nodev\tsysfs\nnodev\tselinuxfs\n\txfs\n"));
        assert!(!names_selinuxfs("nodev\tsysfs\nnodev\tsecurityfs\n\text4\n"));
    }
}
