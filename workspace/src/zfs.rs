//! Provider Zfs: every tree is a dataset, every clone a clone of a snapshot, made in constant time.
//!
//! # Names
//! A tree is the dataset `PARENT/UID`. A clone is made of a snapshot that is named after it, `PARENT/SOURCE@CLONE`. No other snapshot is made,
//! so no two have one name, and a fork can be promoted: with it go the snapshots of its source. Datasets and snapshots have two properties of
//! their own: `dev.yoi:uid`, the tree that they were made for, and `dev.yoi:root`, the name of the data root. Nothing without both is ever
//! destroyed, and nothing is destroyed together with what depends on it: a fork that needs a snapshot of a tree is promoted before the tree goes.
//!
//! # Order
//! The entry in the data root is on its disk before there is a dataset, and goes after it. So each dataset has an entry.
//!
//! # Mounts
//! A tree is mounted when it is first shown or read, attached nowhere. Only where the kernel has no ZFS (zfs-fuse), `zfs mount` attaches it
//! in the data root, in `mounted`.
//!
//! # Caveats
//! - A command of `zfs` is a process. Each has a deadline; a pool that hangs costs one deadline and no more.
//! - Blocks that a tree and its forks share count as used by the one that has the snapshot: the base, or the fork that was promoted.
//! - A snapshot of a tree that somebody else made keeps it from being destroyed.

mod attempt;
mod changes;
mod command;
mod mounting;
mod name;
mod parse;
mod removal;
mod source;

use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::Arc;

pub use command::ZfsOptions;
pub use name::{DatasetName, ParseDatasetNameError};
pub use source::DatasetFolder;

use self::command::{AVAILABLE, Commands, EXCLUSIVE, Expected, REFERENCED, USED};
use self::mounting::Mounts;
use self::parse::{Dataset, Refusal};
use crate::capture::CapturePlan;
use crate::change_list::ChangeCollector;
use crate::error::{ProgramError, StepContext};
use crate::layout::{self, Layout};
use crate::mount::TreeMount;
use crate::mountinfo::Mount;
use crate::probe::Space;
use crate::tree_copy::Data;
use crate::trees::{self, Backend, LiveTree, TreeDir};
use crate::{
    ChangeLimits, CloneAccess, DiskUsage, EntryLocation, Error, ErrorReason, HostFolder, Owner, ProviderKind, Quota, QuotaState, SysError,
    TreeOrigin, Uid, folder,
};

/// File system types of a mounted dataset: of the kernel, and of zfs-fuse.
pub(crate) const MOUNT_TYPES: &[&str] = &["zfs", "fuse.zfs"];

pub(crate) struct Zfs {
    layout: Arc<Layout>,
    commands: Commands,
    mounts: Mounts,
}

/// How often a tree that grows is limited to what it takes.
const MAX_LIMITS: usize = 5;

fn property(name: &str, bytes: Option<u64>) -> String {
    format!("{name}={}", bytes.map_or("none".to_owned(), |n| n.to_string()))
}

/// Something that has one of our names, and is not ours.
fn foreign(name: &str) -> SysError {
    let text = format!("{name} was not made by this data root");
    SysError { step: "use the dataset", source: std::io::Error::other(ProgramError { reason: ErrorReason::Foreign, text }) }
}

impl Zfs {
    pub fn new(layout: Arc<Layout>, options: ZfsOptions) -> Self {
        let commands = Commands { options, root: layout.name, faults: layout.faults.clone() };
        Self { layout, commands, mounts: Mounts::default() }
    }

    /// The parent of all trees.
    pub fn parent(&self) -> &DatasetName {
        &self.commands.options.dataset
    }

    /// That of the pool, as far as the parent of all trees may use it.
    pub fn space(&self) -> Result<Space, SysError> {
        let parent = self.find(self.parent().as_str())?;
        let free = parent.bytes(AVAILABLE)?;
        Ok(Space { total: parent.bytes(USED)?.saturating_add(free), free })
    }

    /// The mount points outside of the data root of all its trees.
    pub fn mounts_elsewhere(&self, data_root: &std::path::Path, table: &[Mount]) -> Vec<PathBuf> {
        let is_tree = |m: &&Mount| {
            let parent = m.source.parent().is_some_and(|parent| parent == std::path::Path::new(self.parent().as_str()));
            parent && m.source.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.parse::<Uid>().is_ok())
        };
        let ours = table.iter().filter(|m| MOUNT_TYPES.contains(&&*m.fs_type)).filter(is_tree);
        ours.filter(|m| !m.mount_point.starts_with(data_root)).map(|m| m.mount_point.clone()).collect()
    }

    /// Keeps room for a tree in the pool; None gives it back.
    pub fn set_refreservation(&self, uid: Uid, bytes: Option<u64>) -> Result<(), SysError> {
        let name = self.commands.tree(uid);
        self.require_ours(&name, uid)?;
        Ok(self.commands.set("reserve room", &property("refreservation", bytes), &name)?)
    }

    /// Fails unless a dataset or snapshot was made by this data root for `uid`.
    fn require_ours(&self, name: &str, uid: Uid) -> Result<(), SysError> {
        match self.find(name)? {
            found if self.commands.owner(&found) == Some(uid) => Ok(()),
            _ => Err(foreign(name)),
        }
    }

    fn find(&self, name: &str) -> Result<Dataset, SysError> {
        let missing = || std::io::Error::other(format!("there is no dataset {name}"));
        self.commands.get(name)?.ok_or_else(missing).step("find the dataset")
    }

    /// Limits a tree. `zfs` refuses a limit below what is used: then what is used is the limit, so the next write fails.
    fn set_refquota(&self, uid: Uid, bytes: Option<u64>) -> Result<(), SysError> {
        const STEP: &str = "set the quota";
        let name = self.commands.tree(uid);
        self.require_ours(&name, uid)?;
        let set = |bytes: Option<u64>| self.commands.set(STEP, &property("refquota", bytes), &name).unless(&[Refusal::BelowUsed]);
        if set(bytes)?.is_some() {
            return Ok(());
        }
        for _ in 0..MAX_LIMITS {
            // It grows while it is written to.
            if set(Some(self.find(&name)?.bytes(REFERENCED)?))?.is_some() {
                return Ok(());
            }
        }
        Err(std::io::Error::other("the tree grows faster than it can be limited")).step(STEP)
    }

    /// Makes a tree from a snapshot of another. None if a snapshot or dataset of that name is there. `entry` was made before.
    fn try_to_clone(&self, from: Uid, uid: Uid, entry: BorrowedFd, is_read_only: bool) -> Result<Option<()>, SysError> {
        let snapshot = self.commands.snapshot_name(from, uid);
        let begun = rustix::fs::fstat(entry).step("stat the entry")?.st_mtime;
        match self.commands.snapshot(&snapshot, uid, begun).unless(&[Refusal::Exists])? {
            None => Ok(None),
            Some(()) => self.commands.clone_snapshot(&snapshot, uid, &self.mountpoint(uid)?, is_read_only).unless(&[Refusal::Exists]),
        }
    }

    fn make(&self, uid: Uid) -> Result<(), SysError> {
        let mountpoint = self.mountpoint(uid)?;
        if self.commands.create(uid, &mountpoint).unless(&[Refusal::Exists])?.is_none() {
            // An earlier attempt left it, and it has no entry any more.
            self.remove_dataset(uid, None)?;
            self.commands.create(uid, &mountpoint)?;
        }
        Ok(())
    }
}

impl Backend for Zfs {
    const KIND: ProviderKind = ProviderKind::Zfs;
    const FORKS_LIVE: bool = true;
    const HAS_ONE_NAME: bool = true;
    const MOUNT_TYPES: &'static [&'static str] = MOUNT_TYPES;

    fn parent_dataset(&self) -> Option<String> {
        Some(self.parent().as_str().to_owned())
    }

    fn make_empty(&self, uid: Uid, entry: BorrowedFd, owner: Owner) -> Result<(), SysError> {
        rustix::fs::syncfs(entry).step("flush the entry")?;
        self.make(uid)?;
        let tree = self.open_dataset(uid)?;
        folder::own_root(tree.as_fd(), owner)?;
        self.flush_filled(tree.as_fd())
    }

    fn clone_into(&self, source: &LiveTree, uid: Uid, entry: BorrowedFd, access: CloneAccess) -> Result<(), SysError> {
        rustix::fs::syncfs(entry).step("flush the entry")?;
        let (from, is_read_only) = (source.marker.uid, access == CloneAccess::ReadOnly);
        if self.try_to_clone(from, uid, entry, is_read_only)?.is_some() {
            return Ok(());
        }
        // An earlier attempt left it, and it has no entry any more. It may be of an earlier moment, so it is not used.
        let origin = Some(TreeOrigin::Clone { from, access });
        self.remove_dataset(uid, origin)?;
        self.remove_snapshot_of_origin(uid, origin)?;
        self.try_to_clone(from, uid, entry, is_read_only)?.ok_or_else(|| foreign(&self.commands.snapshot_name(from, uid)))
    }

    fn plan_capture(&self, source: &HostFolder) -> Result<CapturePlan, SysError> {
        let why = match DatasetFolder::of(&source.dir)? {
            None => "the source lies in no dataset",
            Some(folder) if folder.pool() != self.parent().pool() => "the source is in another pool than the trees",
            Some(_) => "trees of Zfs are not yet made as clones of other datasets",
        };
        Ok(CapturePlan::Seed { data: Data::SharedOrCopied, why: why.to_owned() })
    }

    fn make_root(&self, uid: Uid, entry: BorrowedFd) -> Result<TreeDir, SysError> {
        rustix::fs::syncfs(entry).step("flush the entry")?;
        self.make(uid)?;
        self.open_dataset(uid)
    }

    fn flush_filled(&self, tree: BorrowedFd) -> Result<(), SysError> {
        rustix::fs::fsync(tree).step("flush the tree")?;
        rustix::fs::syncfs(tree).step("flush the tree")
    }

    fn open(&self, live: &LiveTree) -> Result<TreeDir, Error> {
        self.open_dataset(live.marker.uid).map_err(|source| Error::Open { uid: live.marker.uid, source })
    }

    fn open_for_mount(&self, live: &LiveTree) -> Result<TreeMount, Error> {
        let uid = live.marker.uid;
        self.mounted(uid).map(TreeMount::detached).map_err(|source| Error::Open { uid, source })
    }

    fn mount_source(&self, uid: Uid) -> Option<String> {
        Some(self.commands.tree(uid))
    }

    /// A clone lacks child datasets. They are told by name: in a mount of a tree there is none to be seen.
    fn has_nested_volume(&self, live: &LiveTree, _: BorrowedFd) -> Result<bool, SysError> {
        self.has_child_dataset(live.marker.uid)
    }

    fn live_has_nested_volume(&self, live: &LiveTree) -> Result<bool, Error> {
        let uid = live.marker.uid;
        // What is frozen was looked through when it was sealed, or is itself a clone.
        let nested = if live.marker.is_frozen() { Ok(false) } else { self.has_child_dataset(uid) };
        nested.map_err(|source| Error::Open { uid, source })
    }

    fn freeze(&self, live: &LiveTree, tree: BorrowedFd) -> Result<Option<u64>, SysError> {
        let uid = live.marker.uid;
        self.flush_filled(tree)?;
        self.commands.set("make the dataset read-only", "readonly=on", &self.commands.tree(uid))?;
        Ok(None)
    }

    fn remove(&self, uid: Uid, entry: BorrowedFd, location: EntryLocation) -> Result<(), SysError> {
        let origin = layout::read_marker(entry, uid)?.map(|m| m.origin);
        match (self.remove_dataset(uid, origin), location) {
            // It was in the way of a tree that was to be made, so it is none of ours, and the entry is.
            (Err(e), EntryLocation::Building) if e.reason() == ErrorReason::Foreign => self.remove_snapshot_of_origin(uid, origin)?,
            (done, EntryLocation::Building | EntryLocation::Live | EntryLocation::Trash) => done?,
        }
        // Where somebody had mounted the tree in its entry.
        match rustix::fs::unlinkat(entry, layout::TREE, rustix::fs::AtFlags::REMOVEDIR) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => Ok(()),
            Err(e) => Err(e).step("remove a mount point"),
        }
    }

    fn measure(&self, _: &Layout, live: &LiveTree) -> Result<DiskUsage, Error> {
        let uid = live.marker.uid;
        let tree = self.open(live)?;
        let measure = || -> Result<DiskUsage, SysError> {
            let whole = trees::measure(tree.as_fd(), |_, _, _| Ok(0))?;
            Ok(DiskUsage { exclusive_bytes: self.find(&self.commands.tree(uid))?.bytes(EXCLUSIVE)?, ..whole })
        };
        measure().map_err(|source| Error::Measure { uid, source })
    }

    fn total_bytes(&self, _: &Layout) -> Result<u64, SysError> {
        self.space().map(|space| space.total)
    }

    fn set_quota(&self, _: &Layout, live: &LiveTree, quota: Option<Quota>) -> Result<QuotaState, SysError> {
        self.set_refquota(live.marker.uid, quota.map(Quota::kernel_limit)).map(|()| QuotaState::Enforced)
    }

    fn charged(&self, _: &Layout, live: &LiveTree) -> Result<Option<u64>, SysError> {
        self.find(&self.commands.tree(live.marker.uid))?.bytes(REFERENCED).map(Some)
    }

    fn changes(&self, tree: &LiveTree, since: &LiveTree, limits: &ChangeLimits, out: &mut ChangeCollector) -> Result<(), Error> {
        self.list_changes(tree, since, limits, out)
    }
}
