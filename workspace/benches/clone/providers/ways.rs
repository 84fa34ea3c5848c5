//! The ways to a tree, and the file system that each is tried on.

use yoi_workspace::ProviderKind;

use crate::loop_disk::FileSystem;
use crate::pool::kernel_has_zfs;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Btrfs,
    Overlay,
    Reflink,
    Copy,
    Zfs,
    CpReflink,
    Cp,
    Worktree,
    CloneLocal,
}

impl Way {
    const ALL: [Way; 9] =
        [Way::Btrfs, Way::Overlay, Way::Reflink, Way::Copy, Way::Zfs, Way::CpReflink, Way::Cp, Way::Worktree, Way::CloneLocal];

    /// Those that this kernel has.
    pub fn here() -> Vec<Way> {
        Self::ALL.into_iter().filter(|way| *way != Way::Zfs || kernel_has_zfs()).collect()
    }

    pub fn name(self) -> &'static str {
        match self {
            Way::Btrfs => "Btrfs",
            Way::Overlay => "Overlay on ext4",
            Way::Reflink => "Reflink on XFS",
            Way::Copy => "Copy on ext4",
            Way::Zfs => "ZFS",
            Way::CpReflink => "`cp -a --reflink=always`, XFS",
            Way::Cp => "`cp -a`, ext4",
            Way::Worktree => "`git worktree add`, ext4",
            Way::CloneLocal => "`git clone --local`, ext4",
        }
    }

    pub fn file_system(self) -> FileSystem {
        match self {
            Way::Btrfs => FileSystem::Btrfs,
            Way::Zfs => FileSystem::Zfs,
            Way::Reflink | Way::CpReflink => FileSystem::Xfs,
            Way::Overlay | Way::Copy | Way::Cp | Way::Worktree | Way::CloneLocal => FileSystem::Ext4,
        }
    }

    /// The provider, if it is one of Yoi's.
    pub fn provider(self) -> Option<ProviderKind> {
        match self {
            Way::Btrfs => Some(ProviderKind::Btrfs),
            Way::Overlay => Some(ProviderKind::Overlay),
            Way::Reflink => Some(ProviderKind::Reflink),
            Way::Copy => Some(ProviderKind::Copy),
            Way::Zfs => Some(ProviderKind::Zfs),
            Way::CpReflink | Way::Cp | Way::Worktree | Way::CloneLocal => None,
        }
    }
}
