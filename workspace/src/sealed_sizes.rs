//! The sizes of all files of a tree together, remembered for trees that never change again.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::{Seal, Uid};

/// What the files of a tree have together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct TreeSizes {
    /// [`crate::DiskUsage::logical_bytes`].
    pub logical_bytes: u64,
    /// [`crate::DiskUsage::entries`].
    pub entries: u64,
}

impl TreeSizes {
    pub fn add(&mut self, other: TreeSizes) {
        self.logical_bytes += other.logical_bytes;
        self.entries += other.entries;
    }

    /// What is left when `removed` has gone and `added` has come. While the tree is written, both are only almost right.
    pub fn with(self, added: TreeSizes, removed: TreeSizes) -> TreeSizes {
        TreeSizes {
            logical_bytes: (self.logical_bytes + added.logical_bytes).saturating_sub(removed.logical_bytes),
            entries: (self.entries + added.entries).saturating_sub(removed.entries),
        }
    }
}

/// The sizes of sealed trees, by their UID and the digest of what they hold.
#[derive(Default)]
pub(crate) struct SealedSizes(Mutex<HashMap<(Uid, String), TreeSizes>>);

impl SealedSizes {
    /// The sizes of the tree `uid`. `find_out` is called if nobody has asked before.
    pub fn get<E>(&self, (uid, seal): (Uid, &Seal), find_out: impl FnOnce() -> Result<TreeSizes, E>) -> Result<TreeSizes, E> {
        let key = (uid, seal.manifest.digest.clone());
        if let Some(sizes) = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return Ok(*sizes);
        }
        let sizes = find_out()?;
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(key, sizes);
        Ok(sizes)
    }

    /// Called when the tree is removed.
    pub fn forget(&self, uid: Uid) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|(of, _), _| *of != uid);
    }
}
