//! The dataset that a folder of the host is in.

use std::os::fd::AsFd;
use std::path::PathBuf;

use rustix::fs::{AtFlags, StatxFlags};

use super::MOUNT_TYPES;
use crate::error::StepContext;
use crate::{SysError, mountinfo};

/// A folder in a dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatasetFolder {
    /// The name of the dataset.
    pub dataset: String,
    /// The path of the folder from the root of the dataset; empty if it is the root.
    pub below: PathBuf,
}

impl DatasetFolder {
    /// How many bytes of a marker the name and the path take.
    pub(super) fn len(&self) -> usize {
        let is_plain = |text: &str| !text.contains(|c: char| c.is_control() || c == '"' || c == '\\');
        let path = self.below.as_os_str().len();
        self.dataset.len() + if self.below.to_str().is_some_and(is_plain) { path } else { 4 * path }
    }

    /// The pool. A clone is made in the pool of its origin only.
    pub fn pool(&self) -> &str {
        self.dataset.split_once('/').map_or(&self.dataset, |(pool, _)| pool)
    }

    /// Finds the dataset of an opened folder by the mount that it was opened through; None if that mount shows something else, or a
    /// snapshot. Neither the path of the folder nor what `statfs` says of it is looked at: zfs-fuse calls itself FUSE there.
    pub fn of(folder: impl AsFd) -> Result<Option<Self>, SysError> {
        let table = mountinfo::read()?;
        let found = rustix::fs::statx(&folder, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID).step("find the mount of a directory")?;
        let here = mountinfo::locate(&folder, &table)?;
        let mount = table.iter().find(|m| m.id == found.stx_mnt_id).filter(|m| MOUNT_TYPES.contains(&&*m.fs_type));
        let Some(dataset) = mount.and_then(|m| m.source.to_str()).filter(|name| !name.contains('@')) else { return Ok(None) };
        let below = here.root.strip_prefix("/").map_err(std::io::Error::other).step("place a directory below its mount")?;
        Ok(Some(Self { dataset: dataset.to_owned(), below: below.to_owned() }))
    }
}
