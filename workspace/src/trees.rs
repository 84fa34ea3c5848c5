//! What all providers have in common: names, markers, the commit point, what is refused, the order of destruction.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use crate::change_list::ChangeCollector;
use crate::faults::FaultPoint;
use crate::layout::{self, Layout, TREE};
use crate::{
    ChangeLimits, ChangeList, CloneAccess, DiskUsage, EntryLocation, Error, ErrorReason, Marker, NodeKind, Owner, Provider, ProviderKind,
    Seal, SysError, TreeManifest, TreeOrigin, Uid, compare, dir, manifest, mountinfo, remove,
};

/// What differs between providers. A tree is always the subdirectory `tree` of its entry.
pub(crate) trait Backend: Send + Sync {
    const KIND: ProviderKind;
    /// Whether a tree can be cloned while it is written.
    const FORKS_LIVE: bool;

    fn make_empty(&self, entry: BorrowedFd, owner: Owner) -> Result<(), SysError>;
    fn clone_into(&self, source: BorrowedFd, entry: BorrowedFd, access: CloneAccess) -> Result<(), SysError>;
    /// True if a clone of this tree would have an empty directory where the source has content.
    fn has_nested_volume(&self, tree: BorrowedFd) -> Result<bool, SysError>;
    /// Makes the tree durable, and read-only if the file system can. Returns [`Seal::transid`].
    fn freeze(&self, tree: BorrowedFd) -> Result<Option<u64>, SysError>;
    fn remove(&self, entry: BorrowedFd) -> Result<(), SysError>;
    /// Makes earlier removals durable: the caller forgets a destroyed tree, so a power cut must not bring it back.
    fn commit_removals(&self, root: BorrowedFd) -> Result<(), SysError>;
    fn exclusive_bytes(&self, parent: BorrowedFd, name: &std::ffi::CStr, stat: &rustix::fs::Stat) -> Result<u64, SysError>;
    /// Tells `out` of each change, in any order and some twice.
    fn changes(&self, tree: &LiveTree, since: &LiveTree, limits: &ChangeLimits, out: &mut ChangeCollector) -> Result<(), SysError>;
}

/// The opened entry and tree of a UID.
pub(crate) struct LiveTree {
    pub marker: Marker,
    pub entry: OwnedFd,
    pub tree: OwnedFd,
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
        let tree = open_tree(&entry).map_err(|source| Error::Open { uid, source })?;
        Ok(LiveTree { marker, entry, tree })
    }

    /// Makes a tree under a temporary name, up to the rename that commits it. First it removes what a crash left under that name; after an error it
    /// removes what it made itself.
    fn build(&self, uid: Uid, origin: TreeOrigin, make: impl FnOnce(BorrowedFd) -> Result<(), SysError>) -> Result<Marker, Error> {
        let marker = Marker { version: 1, uid, provider: B::KIND, origin, sealed: None };
        let attempt = || -> Result<(), SysError> {
            let entry = self.layout.create_entry(&marker)?;
            make(entry.as_fd())?;
            self.layout.faults.on_point(FaultPoint::TreeMade);
            drop(entry);
            self.layout.commit(uid)
        };
        self.remove_entry(uid, EntryLocation::Building)?;
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
        if layout::read_marker(&entry, uid).map_err(wrap)?.is_none() {
            return self.layout.remove_unmarked(uid, location);
        }
        self.refuse_mounted(uid, &entry)?;
        let empty = || -> Result<(), SysError> {
            remove::detach_mounts(&entry)?;
            self.backend.remove(entry.as_fd())?;
            self.layout.faults.on_point(FaultPoint::TreeGone);
            self.layout.finish_removal(uid, location)
        };
        empty().map_err(wrap)
    }

    fn refuse_mounted(&self, uid: Uid, entry: &OwnedFd) -> Result<(), Error> {
        let look = || -> Result<_, SysError> {
            let table = mountinfo::read()?;
            let here = mountinfo::locate(entry, &table)?;
            Ok(mountinfo::mounts_elsewhere(&here, &mountinfo::path_of(self.layout.root())?, &table))
        };
        match look().map_err(|source| Error::Destroy { uid, source })? {
            targets if targets.is_empty() => Ok(()),
            targets => Err(Error::Busy { uid, targets }),
        }
    }
}

pub(crate) fn open_tree(entry: &OwnedFd) -> Result<OwnedFd, SysError> {
    use crate::error::StepContext;
    dir::open(entry, TREE).step("open the tree")
}

impl<B: Backend> Provider for TreeProvider<B> {
    fn create_empty(&self, uid: Uid, owner: Owner) -> Result<Marker, Error> {
        let _guard = self.layout.locks.exclusive(uid);
        let origin = TreeOrigin::Empty { owner };
        match self.existing(uid, origin)? {
            Some(marker) => Ok(marker),
            None => self.build(uid, origin, |entry| self.backend.make_empty(entry, owner)),
        }
    }

    fn clone_tree(&self, uid: Uid, from: Uid, access: CloneAccess) -> Result<Marker, Error> {
        if uid == from {
            return Err(Error::Conflict { uid });
        }
        let _guard = self.layout.locks.for_clone(uid, from);
        let origin = TreeOrigin::Clone { from, access };
        if let Some(marker) = self.existing(uid, origin)? {
            return Ok(marker);
        }
        let source = self.live_tree(from)?;
        if !B::FORKS_LIVE && !source.marker.is_frozen() {
            return Err(Error::SourceNotSealed { from, provider: B::KIND });
        }
        let refuse_nested = || match self.backend.has_nested_volume(source.tree.as_fd()) {
            Ok(false) => Ok(()),
            Ok(true) => Err(Error::NestedVolume { from }),
            Err(source) => Err(Error::Make { uid, source }),
        };
        refuse_nested()?;
        let marker = self.build(uid, origin, |entry| self.backend.clone_into(source.tree.as_fd(), entry, access))?;
        // A live source may have got a nested volume between the check and the clone.
        if !source.marker.is_frozen()
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
        let LiveTree { mut marker, entry, tree } = self.live_tree(uid)?;
        if let Some(seal) = marker.sealed {
            return Ok(seal.manifest);
        }
        let wrap = |source| Error::Seal { uid, source };
        if self.backend.has_nested_volume(tree.as_fd()).map_err(wrap)? {
            return Err(Error::NestedVolume { from: uid });
        }
        let transid = self.backend.freeze(tree.as_fd()).map_err(wrap)?;
        self.layout.faults.on_point(FaultPoint::ReadOnlySet);
        let manifest = manifest::compute(tree.as_fd()).map_err(wrap)?;
        marker.sealed = Some(Seal { manifest: manifest.clone(), transid });
        self.layout.replace_marker(&entry, &marker).map_err(wrap)?;
        Ok(manifest)
    }

    fn destroy(&self, uid: Uid) -> Result<(), Error> {
        let _guard = self.layout.locks.exclusive(uid);
        let live = self.layout.live_entry(uid)?;
        if let Some((entry, marker)) = &live {
            if marker.provider != B::KIND {
                return Err(Error::WrongProvider { uid, found: marker.provider, wanted: B::KIND });
            }
            self.refuse_mounted(uid, entry)?;
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
        let found = self.live_tree(uid)?;
        let mut usage = DiskUsage { logical_bytes: 0, exclusive_bytes: 0, entries: 0 };
        let mut linked = std::collections::HashSet::new();
        dir::walk(found.tree.as_fd(), &mut |entry| {
            usage.entries += 1;
            let first = entry.stat.st_nlink == 1 || linked.insert((entry.stat.st_dev, entry.stat.st_ino));
            if entry.kind == NodeKind::File && first {
                usage.logical_bytes += entry.stat.st_size as u64;
                usage.exclusive_bytes += self.backend.exclusive_bytes(entry.parent, entry.name, &entry.stat)?;
            }
            Ok(())
        })
        .map_err(|source| Error::Measure { uid, source })?;
        Ok(usage)
    }

    fn changes(&self, uid: Uid, since: Uid, limits: &ChangeLimits) -> Result<ChangeList, Error> {
        let _guard = self.layout.locks.shared(&[uid, since]);
        let (tree, base) = (self.live_tree(uid)?, self.live_tree(since)?);
        if !base.marker.is_frozen() {
            return Err(Error::BaseNotSealed { since });
        }
        let mut out = ChangeCollector::new(limits);
        self.backend.changes(&tree, &base, limits, &mut out).map_err(|source| Error::Compare { uid, source })?;
        Ok(out.finish())
    }

    fn contents(&self, uid: Uid, limits: &ChangeLimits) -> Result<ChangeList, Error> {
        let _guard = self.layout.locks.shared(&[uid]);
        let tree = self.live_tree(uid)?;
        let mut out = ChangeCollector::new(limits);
        compare::list_all(tree.tree.as_fd(), &mut out).map_err(|source| Error::Compare { uid, source })?;
        Ok(out.finish())
    }
}
