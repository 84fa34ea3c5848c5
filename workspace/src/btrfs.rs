//! Provider Btrfs: every tree is a subvolume, every clone a snapshot.

pub(crate) mod commit;
mod handle;
mod in_place;
pub(crate) mod ioctl;
pub(crate) mod quota;
mod search;
mod shared_sync;
mod sizes;

use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use rustix::fs::Stat;
use shared_sync::SharedSync;

use crate::capture::{CapturePlan, Volume};
use crate::change_list::ChangeCollector;
use crate::error::StepContext;
use crate::layout::{Layout, TREE};
use crate::sealed_sizes::{SealedSizes, TreeSizes};
use crate::trees::{self, Backend, LiveTree, TreeDir};
use crate::{
    ChangeLimits, CloneAccess, DiskUsage, EntryLocation, Error, HostFolder, Owner, ProviderKind, Quota, QuotaState, SysError, TreeOrigin,
    Uid, compare, dir, extents, folder, remove,
};

/// More changed inodes than this are not looked up one by one: every file is visited instead, which takes no memory.
const MAX_CHANGED_INODES: usize = 100_000;
/// The same for the bytes of their paths.
const MAX_CHANGED_PATH_BYTES: usize = 4 << 20;

pub(crate) struct Btrfs {
    layout: Arc<Layout>,
    sync: SharedSync,
    sealed_sizes: SealedSizes,
}

impl Btrfs {
    pub fn new(layout: Arc<Layout>) -> Self {
        Self { layout, sync: SharedSync::default(), sealed_sizes: SealedSizes::default() }
    }
}

impl Backend for Btrfs {
    const KIND: ProviderKind = ProviderKind::Btrfs;
    const FORKS_LIVE: bool = true;

    fn make_empty(&self, _: Uid, entry: BorrowedFd, owner: Owner) -> Result<(), SysError> {
        ioctl::create(entry, c"tree").step("make the subvolume")?;
        folder::set_root_owner(entry, owner)?;
        // Unlike a snapshot, an empty subvolume is made without a commit.
        ioctl::sync(entry).step("commit the subvolume")
    }

    fn clone_into(&self, source: &LiveTree, _: Uid, entry: BorrowedFd, access: CloneAccess) -> Result<(), SysError> {
        let tree = dir::open(&source.entry, TREE).step("open the tree")?;
        ioctl::snapshot(tree.as_fd(), entry, c"tree", access == CloneAccess::ReadOnly).step("make the snapshot")
    }

    fn plan_capture(&self, source: &HostFolder) -> Result<CapturePlan, SysError> {
        in_place::plan(self.layout.root(), source)
    }

    fn snapshot_volume(&self, _: Uid, volume: &Volume, entry: BorrowedFd) -> Result<TreeDir, SysError> {
        let root = match volume {
            Volume::Subvolume(root) => root,
            Volume::Dataset(_) => return Err(std::io::Error::from(std::io::ErrorKind::Unsupported)).step("make the snapshot"),
        };
        ioctl::snapshot(root.as_fd(), entry, c"tree", false).step("make the snapshot")?;
        TreeDir::in_entry(entry)
    }

    fn nested_volume(&self, dir: BorrowedFd) -> Result<Option<PathBuf>, SysError> {
        in_place::first_nested(dir)
    }

    fn make_root(&self, _: Uid, entry: BorrowedFd) -> Result<TreeDir, SysError> {
        ioctl::create(entry, c"tree").step("make the subvolume")?;
        TreeDir::in_entry(entry)
    }

    fn has_nested_volume(&self, _: &LiveTree, tree: BorrowedFd) -> Result<bool, SysError> {
        Ok(in_place::first_nested(tree)?.is_some())
    }

    fn freeze(&self, _: &LiveTree, tree: BorrowedFd) -> Result<Option<u64>, SysError> {
        ioctl::set_read_only(in_place::root_of(tree)?, true).step("make the subvolume read-only")?;
        ioctl::sync(tree).step("commit the subvolume")?;
        Ok(Some(ioctl::subvolume(tree).step("ask about the subvolume")?.generation))
    }

    fn remove(&self, uid: Uid, entry: BorrowedFd, _: EntryLocation) -> Result<(), SysError> {
        self.sealed_sizes.forget(uid);
        remove::remove_layers(entry)?;
        let Some(tree) = dir::open_opt(entry, c"tree").step("open the tree")? else { return Ok(()) };
        if !ioctl::is_subvolume(&tree) {
            return remove::remove_tree(entry, c"tree");
        }
        let id = ioctl::subvolume(&tree).step("ask about the subvolume")?.id;
        quota::lift(entry, id)?;
        remove_nested(tree.as_fd(), (entry, id), 0)?;
        quota::forget(entry, id, id)?;
        // Snapshots made from this tree are not part of it. Only the flags of its own root can forbid its deletion.
        remove::clear_protection(tree.as_fd());
        drop(tree);
        ioctl::delete(entry, c"tree").step("delete the subvolume")
    }

    fn commit_removals(&self, root: BorrowedFd) -> Result<(), SysError> {
        commit::commit(root).step("commit the removal")
    }

    fn measure(&self, _: &Layout, live: &LiveTree) -> Result<DiskUsage, Error> {
        let tree = self.open(live)?;
        trees::measure(tree.as_fd(), extents::exclusive_bytes_at).map_err(|source| Error::Measure { uid: live.marker.uid, source })
    }

    fn set_quota(&self, _: &Layout, live: &LiveTree, quota: Option<Quota>) -> Result<QuotaState, SysError> {
        let tree = dir::open(&live.entry, TREE).step("open the tree")?;
        match (quota::support(tree.as_fd())?, quota) {
            (Ok(id), quota) => quota::limit(live.entry.as_fd(), id, quota).map(|()| QuotaState::Enforced),
            (Err(_), None) => Ok(QuotaState::Enforced),
            (Err(unsupported), Some(_)) => Ok(unsupported),
        }
    }

    fn charged(&self, _: &Layout, live: &LiveTree) -> Result<Option<u64>, SysError> {
        quota::charged(dir::open(&live.entry, TREE).step("open the tree")?.as_fd())
    }

    fn usage(&self, layout: &Layout, live: &LiveTree, charged: Option<u64>) -> Result<DiskUsage, Error> {
        let Some(charged) = charged else { return self.measure(layout, live) };
        if !live.marker.below.as_os_str().is_empty() {
            // The sizes are those of the whole subvolume, of which the tree is one folder.
            return Ok(DiskUsage { exclusive_bytes: charged, charged_bytes: Some(charged), ..self.measure(layout, live)? });
        }
        let TreeSizes { logical_bytes, entries } = self.sizes((live, &self.open(live)?))?;
        Ok(DiskUsage { logical_bytes, exclusive_bytes: charged, entries, charged_bytes: Some(charged) })
    }

    /// A snapshot keeps inode numbers and ctimes, and any change to a file moves its ctime. If one tree is a clone of the other, the kernel
    /// lists the inodes that changed; otherwise every file is visited.
    fn changes(&self, tree: &LiveTree, since: &LiveTree, limits: &ChangeLimits, out: &mut ChangeCollector) -> Result<(), Error> {
        let (opened, base) = (self.open(tree)?, self.open(since)?);
        let same = |pair: &compare::Pair| Ok(same_inode(pair.base.1, pair.tree.1));
        let mut list = || match self.changed_paths((tree, &opened), (since, &base), limits)? {
            Some(paths) => compare::compare_paths(base.as_fd(), opened.as_fd(), &paths, &same, out),
            None => compare::compare_all(base.as_fd(), opened.as_fd(), &same, out),
        };
        list().map_err(|source| Error::Compare { uid: tree.marker.uid, source })
    }
}

type Opened<'a> = (&'a LiveTree, &'a TreeDir);

impl Btrfs {
    /// The sizes of a tree that is a whole subvolume. Of a clone of a sealed tree only what differs is read.
    fn sizes(&self, tree: Opened) -> Result<TreeSizes, Error> {
        let wrap = |source| Error::Measure { uid: tree.0.marker.uid, source };
        if let Some(sizes) = self.sizes_since_origin(tree)? {
            return Ok(sizes);
        }
        sizes::of_subvolume(tree.1).step("read the sizes of all files").map_err(wrap)
    }

    fn sizes_since_origin(&self, tree: Opened) -> Result<Option<TreeSizes>, Error> {
        let wrap = |source| Error::Measure { uid: tree.0.marker.uid, source };
        let TreeOrigin::Clone { from, .. } = tree.0.marker.origin else { return Ok(None) };
        let Some((entry, marker)) = self.layout.live_entry(from)?.filter(|(_, base)| base.provider == Self::KIND) else { return Ok(None) };
        let Some(seal) = marker.sealed.clone() else { return Ok(None) };
        let base = LiveTree { marker, entry };
        let opened = self.open(&base)?;
        let Some(first) = first_changed_transid(tree, (&base, &opened)).map_err(wrap)? else { return Ok(None) };
        let of_base = || sizes::of_subvolume(&opened).step("read the sizes of all files");
        let of_base = self.sealed_sizes.get((from, &seal), of_base).map_err(wrap)?;
        sizes::of_snapshot(tree.1, (&opened, of_base), first).step("read the sizes of what differs").map_err(wrap)
    }

    /// The paths in `tree` of all inodes that changed. `None` if the kernel cannot list them, or they are too many.
    fn changed_paths(&self, tree: Opened, since: Opened, limits: &ChangeLimits) -> Result<Option<compare::Paths>, SysError> {
        let Some(first) = first_changed_transid(tree, since)? else { return Ok(None) };
        let below = tree.0.marker.below.as_os_str().as_bytes();
        let tree = &tree.1.dir;
        self.sync.run(limits.is_cancelled, || ioctl::sync(tree)).step("commit the changes")?;
        let Some(changed) = search::changed_since(tree, first, MAX_CHANGED_INODES).step("search the changed inodes")? else {
            return Ok(None);
        };
        let (mut paths, mut bytes) = (compare::Paths::default(), 0);
        for changed in changed {
            limits.check()?;
            let found = match changed.is_dir {
                true => search::path_of_dir(tree, changed.inode).map(|path| path.into_iter().collect()),
                false => search::paths_of_file(tree, changed.inode),
            };
            // The path is too long, the links are too many, or the call is not permitted. A comparison of all files finds them.
            let Ok(found) = found else { return Ok(None) };
            let found: Vec<_> = found.into_iter().filter_map(|path| compare::path_below(below, path)).collect();
            bytes += found.iter().map(Vec::len).sum::<usize>();
            if bytes > MAX_CHANGED_PATH_BYTES {
                return Ok(None);
            }
            match changed.is_dir {
                true => paths.dirs.extend(found),
                false => paths.files.extend(found),
            }
        }
        Ok(Some(paths))
    }
}

/// The first transaction in which `tree` can differ from `since`. `None` unless one is a direct clone of the other.
fn first_changed_transid(tree: Opened, (since, base): Opened) -> Result<Option<u64>, SysError> {
    let ask = |tree: &TreeDir| ioctl::subvolume(&tree.dir).step("ask about a subvolume");
    let (mine, theirs) = (ask(tree.1)?, ask(base)?);
    if mine.parent_uuid == theirs.uuid {
        // If the base was sealed after it was cloned, it may hold changes that this tree never had.
        let before = since.marker.sealed.as_ref().is_none_or(|seal| seal.transid.is_some_and(|at| at <= mine.created_transid));
        return Ok((since.marker.is_read_only_clone() || before).then_some(mine.created_transid + 1));
    }
    if theirs.parent_uuid == mine.uuid && since.marker.is_read_only_clone() {
        return Ok(Some(theirs.created_transid + 1));
    }
    Ok(None)
}

fn same_inode(a: &Stat, b: &Stat) -> bool {
    let identity = |s: &Stat| (s.st_ino, dir::ctime(s));
    identity(a) == identity(b) && compare::same_metadata(a, b)
}

/// Deletes the subvolumes inside `subvolume`, a part of the subvolume `tree` in `entry`, innermost first. They are found by id and opened by handle, whatever
/// their names and modes.
fn remove_nested(subvolume: BorrowedFd, (entry, tree): (BorrowedFd, u64), depth: usize) -> Result<(), SysError> {
    if depth > dir::MAX_DEPTH {
        return Err(dir::too_deep()).step("delete nested subvolumes");
    }
    let mut before = None;
    loop {
        let children = ioctl::children(subvolume).step("list nested subvolumes")?;
        if children.is_empty() {
            return Ok(());
        }
        if before.replace(children.clone()) == Some(children.clone()) {
            return Err(std::io::Error::other("they are still there after their deletion")).step("delete nested subvolumes");
        }
        let id = ioctl::subvolume(subvolume).step("ask about a subvolume")?.id;
        // The read-only flag of the subvolume, and flags of the directory that contains a child, forbid the deletion of the child.
        remove::clear_protection(subvolume);
        for child in children {
            let root = handle::open_inode(subvolume, child.id, ioctl::ROOT_INODE).step("open a nested subvolume")?;
            remove_nested(root.as_fd(), (entry, tree), depth + 1)?;
            quota::forget(entry, child.id, tree)?;
            remove::clear_protection(root.as_fd());
            drop(root);
            if ioctl::delete_by_id(subvolume, child.id).is_err() {
                remove::clear_protection(handle::open_inode(subvolume, id, child.dir).step("open a directory of the tree")?.as_fd());
                ioctl::delete_by_id(subvolume, child.id).step("delete a nested subvolume")?;
            }
        }
    }
}
