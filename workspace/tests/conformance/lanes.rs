//! The lanes: a provider on a file system in a file.

use std::fs;
use std::path::Path;
use std::process::Command;

use yoi_workspace::{ProviderKind, loopback};

use crate::fixture::{is_root, run};
use crate::zfs_pool;

/// True in the emulated machine of `cargo xtask guest`: Linux 6.1, where a process takes 40 to 70 times as long to start.
pub fn in_guest() -> bool {
    std::env::var_os("YOI_GUEST").is_some()
}

/// How often a case repeats what it does: less often in the guest, where every command takes 20 ms and more.
pub fn rounds(elsewhere: usize) -> usize {
    if in_guest() { elsewhere / 5 } else { elsewhere }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    /// Provider Copy on ext4, or without root in a temporary directory.
    Copy,
    CopyOnBtrfs,
    Btrfs,
    OverlayOnExt4,
    OverlayOnXfs,
    OverlayOnBtrfs,
    ReflinkOnXfs,
    ReflinkOnBtrfs,
    /// Trees in a pool of the kernel's ZFS, their entries on ext4.
    Zfs,
}

/// A file system in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskKind {
    Ext4,
    Xfs,
    Btrfs,
}

impl Lane {
    /// The lanes of a machine, which may have any kernel.
    pub const HERE: &[Lane] = &[
        Lane::Copy,
        Lane::CopyOnBtrfs,
        Lane::Btrfs,
        Lane::OverlayOnExt4,
        Lane::OverlayOnXfs,
        Lane::OverlayOnBtrfs,
        Lane::ReflinkOnXfs,
        Lane::ReflinkOnBtrfs,
    ];

    /// The lanes of the guest, whose kernel has project quotas and ZFS.
    const IN_GUEST: &[Lane] = &[
        Lane::Copy,
        Lane::Btrfs,
        Lane::OverlayOnExt4,
        Lane::OverlayOnXfs,
        Lane::OverlayOnBtrfs,
        Lane::ReflinkOnXfs,
        Lane::ReflinkOnBtrfs,
        Lane::Zfs,
    ];

    pub fn all() -> &'static [Lane] {
        if in_guest() { Self::IN_GUEST } else { Self::HERE }
    }

    pub fn kind(self) -> ProviderKind {
        match self {
            Lane::Copy | Lane::CopyOnBtrfs => ProviderKind::Copy,
            Lane::Btrfs => ProviderKind::Btrfs,
            Lane::OverlayOnExt4 | Lane::OverlayOnXfs | Lane::OverlayOnBtrfs => ProviderKind::Overlay,
            Lane::ReflinkOnXfs | Lane::ReflinkOnBtrfs => ProviderKind::Reflink,
            Lane::Zfs => ProviderKind::Zfs,
        }
    }

    /// The file system of the data root.
    pub fn disk(self) -> DiskKind {
        match self {
            Lane::Copy | Lane::OverlayOnExt4 | Lane::Zfs => DiskKind::Ext4,
            Lane::OverlayOnXfs | Lane::ReflinkOnXfs => DiskKind::Xfs,
            Lane::CopyOnBtrfs | Lane::Btrfs | Lane::OverlayOnBtrfs | Lane::ReflinkOnBtrfs => DiskKind::Btrfs,
        }
    }
}

impl Lane {
    /// Why this lane cannot run here; None if it can.
    pub fn lack(self) -> Option<&'static str> {
        self.disk().lack().or_else(|| match self {
            Lane::Zfs => zfs_pool::lack(),
            _ => None,
        })
    }
}

impl DiskKind {
    fn mkfs(self) -> &'static str {
        match self {
            DiskKind::Ext4 => "mkfs.ext4",
            DiskKind::Xfs => "mkfs.xfs",
            DiskKind::Btrfs => "mkfs.btrfs",
        }
    }

    /// Why this machine makes no such disk; None if it does.
    pub fn lack(self) -> Option<&'static str> {
        match self {
            _ if !is_root() => Some("needs root"),
            _ if !Path::new("/dev/loop-control").exists() => Some("needs loop devices"),
            _ if is_installed(self.mkfs()) => None,
            DiskKind::Ext4 => Some("needs mkfs.ext4"),
            DiskKind::Xfs => Some("needs mkfs.xfs"),
            DiskKind::Btrfs => Some("needs mkfs.btrfs"),
        }
    }

    /// Makes the file system in a new file and mounts it.
    pub fn make(self, image: &Path, size: u64, at: &Path) {
        match self {
            DiskKind::Ext4 | DiskKind::Xfs => {
                fs::File::create(image).unwrap().set_len(size).unwrap();
                fs::create_dir(at).unwrap();
                let force = if self == DiskKind::Ext4 { "-F" } else { "-f" };
                if self == DiskKind::Ext4 {
                    // A kernel without quotas mounts none that has this feature.
                    let counted = ["-q", force, "-O", "quota,project", "-E", "quotatype=prjquota"].map(Path::new);
                    run(self.mkfs(), &[&counted[..], &[image]].concat());
                    if self.try_mount("prjquota,", image, at) {
                        return;
                    }
                }
                run(self.mkfs(), &["-q".as_ref(), force.as_ref(), image]);
                self.mount(image, at);
            }
            DiskKind::Btrfs => _ = loopback::ensure_loop_btrfs(image, size, at).unwrap(),
        }
    }

    pub fn mount(self, image: &Path, at: &Path) {
        match self {
            DiskKind::Btrfs => _ = loopback::attach_loop_btrfs(image, at).unwrap(),
            // With project quotas where the kernel has them.
            DiskKind::Ext4 | DiskKind::Xfs => {
                assert!(self.try_mount("prjquota,", image, at) || self.try_mount("", image, at), "{image:?} cannot be mounted");
            }
        }
    }

    fn try_mount(self, more: &str, image: &Path, at: &Path) -> bool {
        let (kind, options) = match self {
            // The harness of power cuts relies on it that nothing is written back by itself within a few seconds, as ext4 does by default.
            DiskKind::Ext4 => ("ext4", "loop,commit=600"),
            DiskKind::Xfs => ("xfs", "loop"),
            DiskKind::Btrfs => ("btrfs", "loop"),
        };
        let mounted = Command::new("mount").args(["-t", kind, "-o", &format!("{more}{options}")]).args([image, at]).output().unwrap();
        mounted.status.success()
    }
}

pub fn is_installed(program: &str) -> bool {
    ["/usr/sbin", "/usr/bin", "/sbin", "/bin"].iter().any(|folder| Path::new(folder).join(program).exists())
}
