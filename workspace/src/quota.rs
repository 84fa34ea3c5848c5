//! How much a tree may take on the disk.

use serde::{Deserialize, Serialize};

/// The bytes that a tree may take on the disk, at least [`Quota::MIN`].
///
/// What counts is what the file system charges to the tree: with Btrfs and Overlay what was written to it after it was made, metadata
/// included; with Zfs, Reflink and Copy every block of every file, shared or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct Quota(u64);

/// The quota is too small.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("failed to accept a quota of {bytes} bytes: the least is 1 MiB")]
pub struct QuotaTooSmall {
    /// What was asked for.
    pub bytes: u64,
}

impl Quota {
    /// 1 MiB. The metadata of an empty tree and one write under way take almost half of that.
    pub const MIN: u64 = 1 << 20;

    /// Errors: less than [`Quota::MIN`].
    pub fn new(bytes: u64) -> Result<Self, QuotaTooSmall> {
        if bytes < Self::MIN { Err(QuotaTooSmall { bytes }) } else { Ok(Self(bytes)) }
    }

    /// The bytes, as the user wrote them.
    pub fn bytes(self) -> u64 {
        self.0
    }

    /// The limit for the kernel. It counts metadata of a tree, and on Btrfs what a write under way may need at most; without room for these
    /// the last half MiB of the quota would be refused.
    pub(crate) fn kernel_limit(self) -> u64 {
        self.0.saturating_add(512 << 10)
    }
}

impl TryFrom<u64> for Quota {
    type Error = QuotaTooSmall;

    fn try_from(bytes: u64) -> Result<Self, QuotaTooSmall> {
        Self::new(bytes)
    }
}

impl From<Quota> for u64 {
    fn from(quota: Quota) -> u64 {
        quota.0
    }
}

/// Whether the kernel refuses what is over a quota.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum QuotaState {
    /// It does, or there is no quota to enforce.
    Enforced,
    /// It does not.
    Unsupported {
        /// Why, for people.
        reason: String,
    },
}

impl QuotaState {
    pub(crate) fn unsupported(reason: impl Into<String>) -> Self {
        QuotaState::Unsupported { reason: reason.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_below_1_mib_is_refused_also_when_it_is_read() {
        assert_eq!(Quota::new((1 << 20) - 1).unwrap_err(), QuotaTooSmall { bytes: (1 << 20) - 1 });
        assert_eq!(serde_json::from_str::<Quota>("1048576").unwrap().bytes(), 1 << 20);
        assert!(serde_json::from_str::<Quota>("0").unwrap_err().to_string().contains("the least is 1 MiB"));
        assert_eq!(Quota::new(u64::MAX).unwrap().kernel_limit(), u64::MAX);
    }
}
