//! What each provider does in its own way.

use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::Mode;

use crate::capture::{CapturePlan, Volume};
use crate::change_list::ChangeCollector;
use crate::error::StepContext;
use crate::layout::{Layout, TREE};
use crate::linked_files::{LinkedFiles, MOST_LINKED};
use crate::mount::TreeMount;
use crate::tree_copy::Data;
use crate::{
    ChangeLimits, CloneAccess, DiskUsage, EntryLocation, Error, HostFolder, Marker, NodeKind, Owner, ProviderKind, Quota, QuotaState,
    SysError, Uid, dir, folder,
};

/// What differs between providers. What a provider leaves out is done as with plain folders.
pub(crate) trait Backend: Send + Sync {
    const KIND: ProviderKind;
    /// Whether a tree can be cloned while it is written.
    const FORKS_LIVE: bool;

    /// Whether a tree has one name of the provider's own, wherever its entry is. Then what is left of a tree in the trash goes before another
    /// is made with its UID.
    const HAS_ONE_NAME: bool = false;
    /// The file system types of mounts with [`Backend::mount_source`]. The source alone proves nothing: whoever mounts chooses it.
    const MOUNT_TYPES: &'static [&'static str] = &[];

    fn make_empty(&self, _uid: Uid, entry: BorrowedFd, owner: Owner) -> Result<(), SysError> {
        folder::make_empty(entry, owner)
    }
    fn clone_into(&self, source: &LiveTree, uid: Uid, entry: BorrowedFd, access: CloneAccess) -> Result<(), SysError>;
    /// How a folder of the host becomes a tree of this provider.
    fn plan_capture(&self, _source: &HostFolder) -> Result<CapturePlan, SysError> {
        Ok(CapturePlan::Seed { data: Data::SharedOrCopied, why: "this provider makes no snapshots".to_owned() })
    }
    /// Makes the tree as a snapshot of this volume, and opens its root directory. Called only if [`Backend::plan_capture`] says so.
    fn snapshot_volume(&self, _uid: Uid, _volume: &Volume, _entry: BorrowedFd) -> Result<TreeDir, SysError> {
        Err(std::io::Error::from(std::io::ErrorKind::Unsupported)).step("make a snapshot")
    }
    /// The path of a volume inside the folder `dir` of the host, relative to it: a snapshot would show it empty.
    fn nested_volume(&self, _dir: BorrowedFd) -> Result<Option<PathBuf>, SysError> {
        Ok(None)
    }
    /// Makes a tree that will be filled, and opens its root directory.
    fn make_root(&self, _uid: Uid, entry: BorrowedFd) -> Result<TreeDir, SysError> {
        rustix::fs::mkdirat(entry, TREE, Mode::RWXU).step("make the tree")?;
        TreeDir::in_entry(entry)
    }
    /// Makes durable what was filled into a tree, if that is not in the file system of its entry.
    fn flush_filled(&self, _tree: BorrowedFd) -> Result<(), SysError> {
        Ok(())
    }
    /// [`Marker::lower`] of a clone of `source`.
    fn lower_of_clone(&self, _source: &Marker) -> Option<Uid> {
        None
    }
    /// The dataset below which the provider makes its trees, if they are datasets.
    fn parent_dataset(&self) -> Option<String> {
        None
    }
    /// Keeps a source that is not sealed as it is while the result lives. Called with the only lock on the source, and only if the provider
    /// forks no live trees. Errors: `SourceNotSealed`.
    fn hold_still(&self, source: &LiveTree) -> Result<Option<TreeDir>, Error> {
        Err(Error::SourceNotSealed { from: source.marker.uid, provider: Self::KIND })
    }
    /// Opens the root directory of the tree, as its users see it.
    fn open(&self, live: &LiveTree) -> Result<TreeDir, Error> {
        live.open_folder()
    }
    /// A mount of the tree that is attached nowhere yet.
    fn open_for_mount(&self, live: &LiveTree) -> Result<TreeMount, Error> {
        Ok(TreeMount::of_folder(live.open_folder()?))
    }
    /// The source that the mount table names for mounts of this tree, if the provider gives each tree a file system of its own.
    fn mount_source(&self, _uid: Uid) -> Option<String> {
        None
    }
    /// Fails with `Busy` if the kernel uses the tree elsewhere, where this process's mount table does not show it.
    fn refuse_used(&self, _live: &LiveTree) -> Result<(), Error> {
        Ok(())
    }
    /// Fails with `DependentForks` if other trees cannot live without this one.
    fn refuse_needed(&self, _live: &LiveTree) -> Result<(), Error> {
        Ok(())
    }
    /// True if a clone of this tree would have an empty directory where the source has content.
    fn has_nested_volume(&self, _live: &LiveTree, tree: BorrowedFd) -> Result<bool, SysError> {
        folder::has_nested_volume(tree)
    }
    /// The same of the source of a clone, if the provider forks live trees.
    fn live_has_nested_volume(&self, live: &LiveTree) -> Result<bool, Error> {
        let tree = self.open(live)?;
        self.has_nested_volume(live, tree.as_fd()).map_err(|source| Error::Open { uid: live.marker.uid, source })
    }
    /// Fails if a clone of this tree would show something else than the tree does.
    fn check_sealable(&self, _live: &LiveTree, _tree: BorrowedFd) -> Result<(), Error> {
        Ok(())
    }
    /// Makes the tree durable, and read-only if the file system can. Returns [`Seal::transid`].
    fn freeze(&self, _live: &LiveTree, tree: BorrowedFd) -> Result<Option<u64>, SysError> {
        folder::flush(tree)
    }
    fn remove(&self, _uid: Uid, entry: BorrowedFd, _location: EntryLocation) -> Result<(), SysError> {
        folder::remove(entry)
    }
    /// Makes earlier removals durable: the caller forgets a destroyed tree, so a power cut must not bring it back.
    fn commit_removals(&self, root: BorrowedFd) -> Result<(), SysError> {
        folder::commit_removals(root)
    }
    /// Visits every file.
    fn measure(&self, layout: &Layout, live: &LiveTree) -> Result<DiskUsage, Error> {
        let tree = self.open(live)?;
        folder::usage(tree.as_fd(), &*layout.faults).map_err(|source| Error::Measure { uid: live.marker.uid, source })
    }
    /// The bytes of the file system that trees are in.
    fn total_bytes(&self, layout: &Layout) -> Result<u64, SysError> {
        let space = rustix::fs::fstatvfs(layout.root()).step("ask for the size of the data root")?;
        Ok(space.f_blocks * space.f_frsize)
    }
    fn set_quota(&self, layout: &Layout, live: &LiveTree, quota: Option<Quota>) -> Result<QuotaState, SysError> {
        layout.projects.set_quota(layout.root(), live.marker.uid, quota)
    }
    /// The bytes that a quota of this tree is compared with, if the file system counts them.
    fn charged(&self, layout: &Layout, live: &LiveTree) -> Result<Option<u64>, SysError> {
        layout.projects.charged(layout.root(), live.marker.uid)
    }
    /// The usage of a tree to which the file system charges so many bytes, if it counts them.
    fn usage(&self, layout: &Layout, live: &LiveTree, charged: Option<u64>) -> Result<DiskUsage, Error> {
        Ok(DiskUsage { charged_bytes: charged, ..self.measure(layout, live)? })
    }
    /// Tells `out` of each change, in any order and some twice.
    fn changes(&self, tree: &LiveTree, since: &LiveTree, limits: &ChangeLimits, out: &mut ChangeCollector) -> Result<(), Error> {
        let (opened, base) = (self.open(tree)?, self.open(since)?);
        folder::changes((tree, opened.as_fd()), (since, base.as_fd()), limits, out)
            .map_err(|source| Error::Compare { uid: tree.marker.uid, source })
    }
}

/// The opened entry of a UID.
pub(crate) struct LiveTree {
    pub marker: Marker,
    pub entry: OwnedFd,
}

impl LiveTree {
    /// Opens the folder `tree` of the entry, or the folder in it that is the root of the tree.
    pub fn open_folder(&self) -> Result<TreeDir, Error> {
        let open = dir::open(&self.entry, Path::new(TREE).join(&self.marker.below));
        let tree = open.step("open the tree").map_err(|source| Error::Open { uid: self.marker.uid, source })?;
        Ok(TreeDir { dir: tree, _mount: None })
    }
}

/// The opened root directory of a tree. A tree that is a mount stays mounted while this lives.
#[derive(Debug)]
pub struct TreeDir {
    pub(crate) dir: OwnedFd,
    pub(crate) _mount: Option<Arc<OwnedFd>>,
}

impl TreeDir {
    /// Opens the folder or subvolume `tree` of an entry.
    pub(crate) fn in_entry(entry: BorrowedFd) -> Result<Self, SysError> {
        Ok(Self { dir: dir::open(entry, TREE).step("open the tree")?, _mount: None })
    }
}

impl AsFd for TreeDir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }
}

impl AsRawFd for TreeDir {
    fn as_raw_fd(&self) -> RawFd {
        self.dir.as_raw_fd()
    }
}

/// Measures a tree; `exclusive` measures one file of it.
pub(crate) fn measure(
    tree: BorrowedFd,
    mut exclusive: impl FnMut(BorrowedFd, &CStr, &rustix::fs::Stat) -> Result<u64, SysError>,
) -> Result<DiskUsage, SysError> {
    let mut usage = DiskUsage { logical_bytes: 0, exclusive_bytes: 0, entries: 0, charged_bytes: None };
    let mut linked = LinkedFiles::of_at_most(MOST_LINKED);
    dir::walk(tree, &mut |entry| {
        usage.entries += 1;
        if entry.kind == NodeKind::File
            && let Some(parts) = linked.parts(&entry.stat)
        {
            usage.logical_bytes += entry.stat.st_size as u64 / parts;
            usage.exclusive_bytes += exclusive(entry.parent, entry.name, &entry.stat)? / parts;
        }
        Ok(())
    })?;
    Ok(usage)
}
