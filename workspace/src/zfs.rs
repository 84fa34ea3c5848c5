//! Provider Zfs: every tree is a dataset, every clone a clone of a snapshot, made in constant time.
//!
//! # Names
//! A tree is the dataset `PARENT/UID`. A clone is made of a snapshot that is named after it, `PARENT/SOURCE@CLONE`. No other snapshot is made,
//! so no two have one name, and a fork can be promoted: with it go the snapshots of its source. Datasets and snapshots have two properties of
//! their own: `dev.yoi:uid`, the tree that they were made for, and `dev.yoi:root`, the name of the data root. Nothing without both is ever
//! destroyed, and nothing is destroyed together with what depends on it: a fork that needs a snapshot of a tree is promoted before the tree goes.
//!
//! A folder of the host that is, or lies in, a dataset of the same pool becomes a clone of that: of a snapshot `DATASET@UID`, which goes with the last
//! tree that needs it. The trees show that folder only, and no quota is set on them: it would count all of the dataset.
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
//! - A dataset of the host that trees are clones of cannot be destroyed before them.

mod attempt;
mod changes;
mod command;
mod mounting;
mod name;
mod parse;
mod removal;
mod source;

use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use command::ZfsOptions;
pub use name::{DatasetName, ParseDatasetNameError};
pub use source::DatasetFolder;

use self::command::{AVAILABLE, CAN_MOUNT, Commands, EXCLUSIVE, Expected, MOUNT_POINT, REFERENCED, REFQUOTA, USED};
use self::mounting::Mounts;
use self::parse::{Dataset, Refusal};
use crate::capture::{CapturePlan, Volume};
use crate::change_list::ChangeCollector;
use crate::error::{ProgramError, StepContext};
use crate::host::Stuck;
use crate::layout::{self, Layout};
use crate::mount::TreeMount;
use crate::mountinfo::Mount;
use crate::probe::Space;
use crate::tree_copy::Data;
use crate::trees::{self, Backend, LiveTree, TreeDir};
use crate::{
    ChangeLimits, CloneAccess, DiskUsage, EntryLocation, Error, ErrorReason, HostFolder, Owner, ProviderKind, Quota, QuotaState, SysError,
    Uid, folder,
};

/// File system types of a mounted dataset: of the kernel, and of zfs-fuse.
pub(crate) const MOUNT_TYPES: &[&str] = &["zfs", "fuse.zfs"];

pub(crate) struct Zfs {
    layout: Arc<Layout>,
    commands: Commands,
    mounts: Mounts,
}

/// So many bytes of the name of a dataset and of a path in it fit into a marker.
const MAX_NAMED: usize = 150;
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
        let commands = Commands { options, root: layout.name, faults: layout.faults.clone(), stuck: Stuck::default() };
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

    /// Makes a tree from a new snapshot, whose dataset cannot be written any more if `is_frozen`. `entry` was made before.
    fn clone_of(&self, snapshot: &str, is_frozen: bool, (uid, entry): (Uid, BorrowedFd), access: CloneAccess) -> Result<(), SysError> {
        rustix::fs::syncfs(entry).step("flush the entry")?;
        let begun = rustix::fs::fstat(entry).step("stat the entry")?.st_mtime;
        let attempt = || -> Result<Option<()>, SysError> {
            match self.commands.snapshot(snapshot, uid, begun, is_frozen).unless(&[Refusal::Exists])? {
                None => Ok(None),
                Some(()) => {
                    let (mountpoint, is_read_only) = (self.mountpoint(uid)?, access == CloneAccess::ReadOnly);
                    self.commands.clone_snapshot(snapshot, uid, &mountpoint, is_read_only).unless(&[Refusal::Exists])
                }
            }
        };
        if attempt()?.is_some() {
            return Ok(());
        }
        // An earlier attempt left it, and it has no entry any more. It may be of an earlier moment, so it is not used.
        self.remove_dataset(uid, Some(snapshot))?;
        self.remove_snapshot_of_origin(uid, Some(snapshot))?;
        attempt()?.ok_or_else(|| foreign(snapshot))
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
        let snapshot = self.commands.snapshot_name(source.marker.uid, uid);
        self.clone_of(&snapshot, source.marker.is_frozen(), (uid, entry), access)
    }

    fn plan_capture(&self, source: &HostFolder) -> Result<CapturePlan, SysError> {
        let seed = |why: &str| Ok(CapturePlan::Seed { data: Data::SharedOrCopied, why: why.to_owned() });
        let Some(folder) = DatasetFolder::of(&source.dir)? else { return seed("the source lies in no dataset") };
        if folder.pool() != self.parent().pool() {
            return seed("the source is in another pool than the trees");
        }
        if folder.len() > MAX_NAMED {
            return seed("the dataset of the source and the path in it are too long to be noted");
        }
        if self.commands.get(&folder.dataset)?.is_some_and(|found| self.commands.owner(&found).is_some()) {
            return seed("the source lies in another tree");
        }
        let what = if folder.below.as_os_str().is_empty() { "is" } else { "lies in" };
        let why = format!("the source {what} a dataset of the trees' pool");
        Ok(CapturePlan::Snapshot { volume: Volume::Dataset(folder.dataset), below: folder.below, why })
    }

    fn snapshot_volume(&self, uid: Uid, volume: &Volume, entry: BorrowedFd) -> Result<TreeDir, SysError> {
        match volume {
            Volume::Dataset(name) => self.clone_of(&format!("{name}@{uid}"), false, (uid, entry), CloneAccess::ReadWrite)?,
            Volume::Subvolume(_) => return Err(std::io::Error::from(std::io::ErrorKind::Unsupported)).step("make the snapshot"),
        }
        self.open_dataset(uid)
    }

    /// What is mounted in the folder was refused before. The trees' parent is empty, and mounted by nobody but us. Another child that is not mounted where this process sees it is found by the place that it has.
    fn nested_volume(&self, dir: BorrowedFd) -> Result<Option<PathBuf>, SysError> {
        let Some(DatasetFolder { dataset, below }) = DatasetFolder::of(dir)? else { return Ok(None) };
        let Some(whole) = self.commands.get(&dataset)? else { return Ok(None) };
        let Some(folder) = whole.get(MOUNT_POINT).filter(|at| at.starts_with('/')).map(|at| Path::new(at).join(below)) else {
            return Ok(None);
        };
        let place = |child: &Dataset| {
            let at = child.get(MOUNT_POINT).filter(|_| child.get(CAN_MOUNT) == Some("on"))?;
            Path::new(at).strip_prefix(&folder).ok().map(Path::to_owned).filter(|path| !path.as_os_str().is_empty())
        };
        let children = self.commands.children(&dataset, self.is_by_daemon()?)?;
        Ok(children.iter().filter(|child| child.name != self.parent().as_str()).filter_map(place).min())
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
        self.open_root(live).map_err(|source| Error::Open { uid: live.marker.uid, source })
    }

    fn open_for_mount(&self, live: &LiveTree) -> Result<TreeMount, Error> {
        let (uid, below) = (live.marker.uid, &live.marker.below);
        let mount = || -> Result<TreeMount, SysError> {
            // Not one that is shared with others here: an older kernel clones only what is attached.
            let whole = self.mount_anew(uid)?;
            match below.as_os_str().is_empty() {
                true => Ok(TreeMount::detached(Arc::new(whole))),
                false => Ok(TreeMount::detached_folder(mounting::mount_of_folder(&whole, below)?, below.clone())),
            }
        };
        mount().map_err(|source| Error::Open { uid, source })
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
        let origin = layout::read_marker(entry, uid)?.and_then(|marker| self.origin_of(&marker));
        let origin = origin.as_deref();
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
        if !live.marker.below.as_os_str().is_empty() && quota.is_some() {
            return Ok(QuotaState::unsupported("the tree is one folder of a dataset, and a quota would count all of the dataset"));
        }
        self.set_refquota(live.marker.uid, quota.map(Quota::kernel_limit)).map(|()| QuotaState::Enforced)
    }

    /// A quota below what is used stands at what was used then, so it is set again as far as the tree has become smaller.
    fn charged(&self, _: &Layout, live: &LiveTree) -> Result<Option<u64>, SysError> {
        if !live.marker.below.as_os_str().is_empty() {
            return Ok(None);
        }
        let found = self.find(&self.commands.tree(live.marker.uid))?;
        if let Some(limit) = live.marker.quota.map(Quota::kernel_limit)
            && found.bytes(REFQUOTA)? > limit.max(found.bytes(REFERENCED)?)
        {
            self.set_refquota(live.marker.uid, Some(limit))?;
        }
        found.bytes(REFERENCED).map(Some)
    }

    fn changes(&self, tree: &LiveTree, since: &LiveTree, limits: &ChangeLimits, out: &mut ChangeCollector) -> Result<(), Error> {
        self.list_changes(tree, since, limits, out)
    }
}
