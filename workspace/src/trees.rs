//! What all providers have in common: names, markers, the commit point, what is refused, the order of destruction.

use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;

use crate::change_list::ChangeCollector;
use crate::error::StepContext;
use crate::faults::FaultPoint;
use crate::layout::{self, Layout, TREE};
use crate::locks::LocksGuard;
use crate::mount::TreeMount;
use crate::{
    ChangeLimits, ChangeList, CloneAccess, DiskUsage, EntryLocation, Error, ErrorReason, Marker, NodeKind, Owner, Provider, ProviderKind,
    Seal, SysError, TreeManifest, TreeOrigin, Uid, compare, dir, manifest, mountinfo, remove,
};

/// What differs between providers.
pub(crate) trait Backend: Send + Sync {
    const KIND: ProviderKind;
    /// Whether a tree can be cloned while it is written.
    const FORKS_LIVE: bool;

    /// Whether a tree has one name of the provider's own, wherever its entry is. Then what is left of a tree in the trash goes before another
    /// is made with its UID.
    const HAS_ONE_NAME: bool = false;
    /// The file system types of mounts with [`Backend::mount_source`]. The source alone proves nothing: whoever mounts chooses it.
    const MOUNT_TYPES: &'static [&'static str] = &[];

    fn make_empty(&self, uid: Uid, entry: BorrowedFd, owner: Owner) -> Result<(), SysError>;
    fn clone_into(&self, source: &LiveTree, uid: Uid, entry: BorrowedFd, access: CloneAccess) -> Result<(), SysError>;
    /// [`Marker::lower`] of a clone of `source`.
    fn lower_of_clone(&self, _source: &Marker) -> Option<Uid> {
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
    fn has_nested_volume(&self, live: &LiveTree, tree: BorrowedFd) -> Result<bool, SysError>;
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
    fn freeze(&self, live: &LiveTree, tree: BorrowedFd) -> Result<Option<u64>, SysError>;
    fn remove(&self, uid: Uid, entry: BorrowedFd, location: EntryLocation) -> Result<(), SysError>;
    /// Makes earlier removals durable: the caller forgets a destroyed tree, so a power cut must not bring it back.
    fn commit_removals(&self, root: BorrowedFd) -> Result<(), SysError>;
    fn usage(&self, live: &LiveTree) -> Result<DiskUsage, Error>;
    /// Tells `out` of each change, in any order and some twice.
    fn changes(&self, tree: &LiveTree, since: &LiveTree, limits: &ChangeLimits, out: &mut ChangeCollector) -> Result<(), Error>;
}

/// The opened entry of a UID.
pub(crate) struct LiveTree {
    pub marker: Marker,
    pub entry: OwnedFd,
}

impl LiveTree {
    /// Opens the folder `tree` of the entry.
    pub fn open_folder(&self) -> Result<TreeDir, Error> {
        let tree = dir::open(&self.entry, TREE).step("open the tree").map_err(|source| Error::Open { uid: self.marker.uid, source })?;
        Ok(TreeDir { dir: tree, _mount: None })
    }
}

/// The opened root directory of a tree. A tree that is a mount stays mounted while this lives.
#[derive(Debug)]
pub struct TreeDir {
    pub(crate) dir: OwnedFd,
    pub(crate) _mount: Option<Arc<OwnedFd>>,
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
    let mut usage = DiskUsage { logical_bytes: 0, exclusive_bytes: 0, entries: 0 };
    let mut linked = std::collections::HashSet::new();
    dir::walk(tree, &mut |entry| {
        usage.entries += 1;
        let first = entry.stat.st_nlink == 1 || linked.insert((entry.stat.st_dev, entry.stat.st_ino));
        if entry.kind == NodeKind::File && first {
            usage.logical_bytes += entry.stat.st_size as u64;
            usage.exclusive_bytes += exclusive(entry.parent, entry.name, &entry.stat)?;
        }
        Ok(())
    })?;
    Ok(usage)
}

/// A [`Provider`] made of a [`Backend`].
pub(crate) struct TreeProvider<B> {
    pub layout: Arc<Layout>,
    pub backend: B,
}

impl<B: Backend> TreeProvider<B> {
    fn live_tree(&self, uid: Uid) -> Result<LiveTree, Error> {
        let (entry, marker) = self.layout.live_entry(uid)?.ok_or(Error::NotFound { uid })?;
        if marker.provider != B::KIND {
            return Err(Error::WrongProvider { uid, found: marker.provider, wanted: B::KIND });
        }
        Ok(LiveTree { marker, entry })
    }

    /// Opens the source of a clone and keeps it still: a tree that may be written gets the only lock.
    fn lock_source(&self, uid: Uid, from: Uid) -> Result<(LocksGuard<'_>, LiveTree), Error> {
        let guard = self.layout.locks.for_clone(uid, from);
        let source = self.live_tree(from)?;
        if B::FORKS_LIVE || source.marker.is_frozen() {
            return Ok((guard, source));
        }
        drop(guard);
        let guard = self.layout.locks.exclusive_pair(uid, from);
        Ok((guard, self.live_tree(from)?))
    }

    /// Makes a tree under a temporary name, up to the rename that commits it. First it removes what a crash left under that name; after an error it
    /// removes what it made itself.
    fn build(&self, marker: Marker, make: impl FnOnce(BorrowedFd) -> Result<(), SysError>) -> Result<Marker, Error> {
        let uid = marker.uid;
        let attempt = || -> Result<(), SysError> {
            let entry = self.layout.create_entry(&marker)?;
            make(entry.as_fd())?;
            self.layout.faults.on_point(FaultPoint::TreeMade);
            drop(entry);
            self.layout.commit(uid)
        };
        self.remove_entry(uid, EntryLocation::Building)?;
        if B::HAS_ONE_NAME {
            self.remove_entry(uid, EntryLocation::Trash)?;
        }
        match attempt() {
            Ok(()) => Ok(marker),
            Err(source) => {
                // The first error is the one to report. What stays behind is removed by the next call or by recovery.
                let _ = self.remove_entry(uid, EntryLocation::Building);
                Err(Error::Make { uid, source })
            }
        }
    }

    /// The marker of the tree that has this UID already. Errors: `Conflict` if it was made otherwise.
    fn existing(&self, uid: Uid, origin: TreeOrigin) -> Result<Option<Marker>, Error> {
        match self.layout.live_entry(uid)? {
            None => Ok(None),
            Some((_, marker)) if marker.provider == B::KIND && marker.origin == origin => Ok(Some(marker)),
            Some(_) => Err(Error::Conflict { uid }),
        }
    }

    /// Removes an entry that has a marker of this UID.
    pub fn remove_entry(&self, uid: Uid, location: EntryLocation) -> Result<(), Error> {
        let wrap = |source| Error::Destroy { uid, source };
        let Some(entry) = self.layout.entry(uid, location).map_err(wrap)? else { return Ok(()) };
        let Some(marker) = layout::read_marker(&entry, uid).map_err(wrap)? else {
            return self.layout.remove_unmarked(uid, location);
        };
        // What only the provider knows of that made it would stay behind.
        if (marker.provider == ProviderKind::Zfs) != (B::KIND == ProviderKind::Zfs) {
            return Err(Error::WrongProvider { uid, found: marker.provider, wanted: B::KIND });
        }
        self.refuse_mounted(uid, &entry)?;
        let empty = || -> Result<(), SysError> {
            remove::detach_mounts(&entry)?;
            self.backend.remove(uid, entry.as_fd(), location)?;
            self.layout.faults.on_point(FaultPoint::TreeGone);
            self.layout.finish_removal(uid, location)
        };
        empty().map_err(wrap)
    }

    fn refuse_mounted(&self, uid: Uid, entry: &OwnedFd) -> Result<(), Error> {
        let look = || -> Result<_, SysError> {
            let table = mountinfo::read()?;
            let here = mountinfo::locate(entry, &table)?;
            let data_root = mountinfo::path_of(self.layout.root())?;
            let mut targets = mountinfo::mounts_elsewhere(&here, &data_root, &table);
            if let Some(source) = self.backend.mount_source(uid) {
                targets.extend(mountinfo::mounts_of_source(B::MOUNT_TYPES, &source, &data_root, &table));
            }
            Ok(targets)
        };
        match look().map_err(|source| Error::Destroy { uid, source })? {
            targets if targets.is_empty() => Ok(()),
            targets => Err(Error::Busy { uid, targets }),
        }
    }
}

impl<B: Backend> Provider for TreeProvider<B> {
    fn create_empty(&self, uid: Uid, owner: Owner) -> Result<Marker, Error> {
        let _guard = self.layout.locks.exclusive(uid);
        let origin = TreeOrigin::Empty { owner };
        match self.existing(uid, origin)? {
            Some(marker) => Ok(marker),
            None => {
                let marker = Marker { version: 1, uid, provider: B::KIND, origin, lower: None, sealed: None };
                self.build(marker, |entry| self.backend.make_empty(uid, entry, owner))
            }
        }
    }

    fn clone_tree(&self, uid: Uid, from: Uid, access: CloneAccess) -> Result<Marker, Error> {
        if uid == from {
            return Err(Error::Conflict { uid });
        }
        let origin = TreeOrigin::Clone { from, access };
        let existing = {
            let _guard = self.layout.locks.shared(&[uid]);
            self.existing(uid, origin)?
        };
        if let Some(marker) = existing {
            return Ok(marker);
        }
        let (_guard, source) = self.lock_source(uid, from)?;
        // Another call may have made it before this one got its locks.
        if let Some(marker) = self.existing(uid, origin)? {
            return Ok(marker);
        }
        let refuse_nested = || -> Result<(), Error> {
            match self.backend.live_has_nested_volume(&source)? {
                false => Ok(()),
                true => Err(Error::NestedVolume { from }),
            }
        };
        let _still = match (B::FORKS_LIVE, source.marker.is_frozen()) {
            (true, _) => {
                refuse_nested()?;
                None
            }
            // What is frozen was looked through when it was sealed, or is itself a clone.
            (false, true) => None,
            (false, false) => self.backend.hold_still(&source)?,
        };
        let lower = self.backend.lower_of_clone(&source.marker);
        let marker = Marker { version: 1, uid, provider: B::KIND, origin, lower, sealed: None };
        let marker = self.build(marker, |entry| self.backend.clone_into(&source, uid, entry, access))?;
        // A live source may have got a nested volume between the check and the clone.
        if B::FORKS_LIVE
            && !source.marker.is_frozen()
            && let Err(error) = refuse_nested()
        {
            self.layout.move_to_trash(uid, EntryLocation::Live).map_err(|source| Error::Make { uid, source })?;
            self.remove_entry(uid, EntryLocation::Trash)?;
            return Err(error);
        }
        Ok(marker)
    }

    fn seal(&self, uid: Uid) -> Result<TreeManifest, Error> {
        let _guard = self.layout.locks.exclusive(uid);
        let live = self.live_tree(uid)?;
        if let Some(seal) = live.marker.sealed {
            return Ok(seal.manifest);
        }
        let tree = self.backend.open(&live)?;
        let wrap = |source| Error::Seal { uid, source };
        if self.backend.has_nested_volume(&live, tree.as_fd()).map_err(wrap)? {
            return Err(Error::NestedVolume { from: uid });
        }
        self.backend.check_sealable(&live, tree.as_fd())?;
        let transid = self.backend.freeze(&live, tree.as_fd()).map_err(wrap)?;
        self.layout.faults.on_point(FaultPoint::ReadOnlySet);
        let manifest = manifest::compute(tree.as_fd()).map_err(wrap)?;
        let marker = Marker { sealed: Some(Seal { manifest: manifest.clone(), transid }), ..live.marker };
        self.layout.replace_marker(&live.entry, &marker).map_err(wrap)?;
        Ok(manifest)
    }

    fn destroy(&self, uid: Uid) -> Result<(), Error> {
        let _guard = self.layout.locks.exclusive(uid);
        let live = match self.live_tree(uid) {
            Ok(live) => Some(live),
            Err(Error::NotFound { .. }) => None,
            Err(e) => return Err(e),
        };
        if let Some(live) = &live {
            self.refuse_mounted(uid, &live.entry)?;
            self.backend.refuse_needed(live)?;
            remove::detach_mounts(&live.entry).map_err(|source| Error::Destroy { uid, source })?;
            self.backend.refuse_used(live)?;
        }
        self.remove_entry(uid, EntryLocation::Trash)?;
        self.remove_entry(uid, EntryLocation::Building)?;
        if live.is_some() {
            match self.layout.move_to_trash(uid, EntryLocation::Live) {
                Ok(()) => self.remove_entry(uid, EntryLocation::Trash)?,
                // A full disk has no space for a name in the trash. If its trees could not be destroyed, it would stay full, so the tree is
                // removed where it is. A crash leaves a part of the tree, with a marker and a record that says Destroying.
                Err(source) if source.reason() == ErrorReason::OutOfSpace => self.remove_entry(uid, EntryLocation::Live)?,
                Err(source) => return Err(Error::Destroy { uid, source }),
            }
        }
        // Also if there was nothing to remove: an earlier call may have stopped between the removal and this line.
        self.backend.commit_removals(self.layout.root()).map_err(|source| Error::Destroy { uid, source })
    }

    fn usage(&self, uid: Uid) -> Result<DiskUsage, Error> {
        let _guard = self.layout.locks.shared(&[uid]);
        self.backend.usage(&self.live_tree(uid)?)
    }

    fn changes(&self, uid: Uid, since: Uid, limits: &ChangeLimits) -> Result<ChangeList, Error> {
        let _guard = self.layout.locks.shared(&[uid, since]);
        let (tree, base) = (self.live_tree(uid)?, self.live_tree(since)?);
        if !base.marker.is_frozen() {
            return Err(Error::BaseNotSealed { since });
        }
        let mut out = ChangeCollector::new(limits);
        self.backend.changes(&tree, &base, limits, &mut out)?;
        Ok(out.finish())
    }

    fn contents(&self, uid: Uid, limits: &ChangeLimits) -> Result<ChangeList, Error> {
        let _guard = self.layout.locks.shared(&[uid]);
        let tree = self.backend.open(&self.live_tree(uid)?)?;
        let mut out = ChangeCollector::new(limits);
        compare::list_all(tree.as_fd(), &mut out).map_err(|source| Error::Compare { uid, source })?;
        Ok(out.finish())
    }

    fn open_tree(&self, uid: Uid) -> Result<TreeDir, Error> {
        let _guard = self.layout.locks.shared(&[uid]);
        self.backend.open(&self.live_tree(uid)?)
    }

    fn open_for_mount(&self, uid: Uid) -> Result<TreeMount, Error> {
        let _guard = self.layout.locks.shared(&[uid]);
        self.backend.open_for_mount(&self.live_tree(uid)?)
    }

    fn mounted_tree(&self, mount: &mountinfo::Mount) -> Option<Uid> {
        let table = mountinfo::read().ok()?;
        let here = mountinfo::locate(self.layout.root(), &table).ok()?;
        let is_type = B::MOUNT_TYPES.contains(&&*mount.fs_type);
        let named =
            |uid: &Uid| is_type && self.backend.mount_source(*uid).is_some_and(|source| mountinfo::is_whole_mount_of(mount, &source));
        let of_source = mount.source.to_str().and_then(|s| s.rsplit([':', '/']).next()).and_then(|text| text.parse().ok()).filter(named);
        let uid = of_source.or_else(|| mountinfo::tree_below(&here, mount))?;
        (self.layout.live_entry(uid).ok()??.1.provider == B::KIND).then_some(uid)
    }
}
