//! The ways to a tree, and the file system that each is tried on.

use yoi_workspace::ProviderKind;

use crate::loop_disk::FileSystem;

/// Zfs is not among them: the kernel of the machine that measures has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Btrfs,
    Overlay,
    Reflink,
    Copy,
    CpReflink,
    Cp,
    Worktree,
    CloneLocal,
}

impl Way {
    pub const ALL: [Way; 8] = [Way::Btrfs, Way::Overlay, Way::Reflink, Way::Copy, Way::CpReflink, Way::Cp, Way::Worktree, Way::CloneLocal];

    pub fn name(self) -> &'static str {
        match self {
            Way::Btrfs => "Btrfs",
            Way::Overlay => "Overlay on ext4",
            Way::Reflink => "Reflink on XFS",
            Way::Copy => "Copy on ext4",
            Way::CpReflink => "`cp -a --reflink=always`, XFS",
            Way::Cp => "`cp -a`, ext4",
            Way::Worktree => "`git worktree add`, ext4",
            Way::CloneLocal => "`git clone --local`, ext4",
        }
    }

    pub fn file_system(self) -> FileSystem {
        match self {
            Way::Btrfs => FileSystem::Btrfs,
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
            Way::CpReflink | Way::Cp | Way::Worktree | Way::CloneLocal => None,
        }
    }
}
