//! What all providers have in common: names, markers, the commit point, what is refused, the order of destruction.

mod backend;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

pub use backend::TreeDir;
pub(crate) use backend::{Backend, LiveTree, measure};

use crate::change_list::ChangeCollector;
use crate::faults::FaultPoint;
use crate::layout::{self, Layout};
use crate::locks::LocksGuard;
use crate::mount::TreeMount;
use crate::{
    ChangeLimits, ChangeList, CloneAccess, DiskUsage, EntryLocation, Error, ErrorReason, HostFolder, Marker, Owner, PlantedFault, Provider,
    ProviderKind, Quota, QuotaState, Seal, SysError, TreeManifest, TreeOrigin, Uid, compare, manifest, mountinfo, projects, remove,
};

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
            let is_counted = self.layout.projects.begin(self.layout.root(), uid, entry.as_fd())?;
            make(entry.as_fd())?;
            if is_counted {
                projects::end(entry.as_fd())?;
            }
            self.layout.faults.on_point(FaultPoint::TreeMade);
            drop(entry);
            self.layout.commit(uid)
        };
        self.make_way(uid)?;
        match attempt() {
            Ok(()) => Ok(marker),
            Err(source) => {
                // The first error is the one to report. What stays behind is removed by the next call or by recovery.
                let _ = self.remove_entry(uid, EntryLocation::Building);
                Err(Error::Make { uid, source })
            }
        }
    }

    /// Removes what earlier attempts left where a tree is made.
    pub(crate) fn make_way(&self, uid: Uid) -> Result<(), Error> {
        self.remove_entry(uid, EntryLocation::Building)?;
        if B::HAS_ONE_NAME { self.remove_entry(uid, EntryLocation::Trash) } else { Ok(()) }
    }

    /// The marker of the tree that has this UID already. Errors: `Conflict` if it was made otherwise.
    pub(crate) fn existing(&self, uid: Uid, origin: TreeOrigin) -> Result<Option<Marker>, Error> {
        match self.layout.live_entry(uid)? {
            None => Ok(None),
            Some((_, marker)) if marker.provider == B::KIND && marker.origin == origin => Ok(Some(marker)),
            Some(_) => Err(Error::Conflict { uid }),
        }
    }

    pub(crate) fn new_marker(&self, uid: Uid, origin: TreeOrigin) -> Marker {
        Marker { parent_dataset: self.backend.parent_dataset(), ..Marker::new(uid, B::KIND, origin) }
    }

    /// A dataset that is looked for in the wrong place would count as gone, and nothing would name it any more.
    fn refuse_other_dataset(&self, marker: &Marker) -> Result<(), Error> {
        match &marker.parent_dataset {
            Some(parent) if self.backend.parent_dataset().as_ref() != Some(parent) => {
                Err(Error::OtherDataset { uid: marker.uid, parent: parent.clone() })
            }
            _ => Ok(()),
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
        self.refuse_other_dataset(&marker)?;
        self.refuse_mounted(uid, &entry)?;
        let empty = || -> Result<(), SysError> {
            remove::detach_mounts(&entry)?;
            self.backend.remove(uid, entry.as_fd(), location)?;
            self.layout.faults.on_point(FaultPoint::TreeGone);
            self.layout.finish_removal(uid, location)?;
            self.layout.release_project(uid)
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

    /// [`Provider::seal`] for a caller that has the lock. Returns the marker of the sealed tree, and what the tree holds.
    pub(crate) fn seal_locked(&self, uid: Uid) -> Result<(Marker, TreeManifest), Error> {
        let live = self.live_tree(uid)?;
        if let Some(Seal { manifest, .. }) = live.marker.sealed.clone() {
            return Ok((live.marker, manifest));
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
        Ok((marker, manifest))
    }
}

impl<B: Backend> Provider for TreeProvider<B> {
    fn create_empty(&self, uid: Uid, owner: Owner) -> Result<Marker, Error> {
        let _guard = self.layout.locks.exclusive(uid);
        let origin = TreeOrigin::Empty { owner };
        match self.existing(uid, origin)? {
            Some(marker) => Ok(marker),
            None => self.build(self.new_marker(uid, origin), |entry| self.backend.make_empty(uid, entry, owner)),
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
        let marker = Marker { lower, below: source.marker.below.clone(), ..self.new_marker(uid, origin) };
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

    fn capture(&self, uid: Uid, source: &HostFolder, owner: Owner, access: CloneAccess) -> Result<Marker, Error> {
        let _guard = self.layout.locks.exclusive(uid);
        self.capture_locked(uid, source, owner, access)
    }

    fn seal(&self, uid: Uid) -> Result<TreeManifest, Error> {
        let _guard = self.layout.locks.exclusive(uid);
        self.seal_locked(uid).map(|(_, manifest)| manifest)
    }

    fn destroy(&self, uid: Uid) -> Result<(), Error> {
        let _guard = self.layout.locks.exclusive(uid);
        let live = match self.live_tree(uid) {
            Ok(live) => Some(live),
            Err(Error::NotFound { .. }) => None,
            Err(e) => return Err(e),
        };
        if let Some(live) = &live {
            self.refuse_other_dataset(&live.marker)?;
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
        self.layout.release_project(uid).map_err(|source| Error::Destroy { uid, source })?;
        self.backend.commit_removals(self.layout.root()).map_err(|source| Error::Destroy { uid, source })
    }

    fn usage(&self, uid: Uid) -> Result<DiskUsage, Error> {
        let _guard = self.layout.locks.shared(&[uid]);
        let live = self.live_tree(uid)?;
        let charged = self.backend.charged(&self.layout, &live).map_err(|source| Error::Measure { uid, source })?;
        self.backend.usage(&self.layout, &live, charged)
    }

    fn measure(&self, uid: Uid) -> Result<DiskUsage, Error> {
        let _guard = self.layout.locks.shared(&[uid]);
        self.backend.measure(&self.layout, &self.live_tree(uid)?)
    }

    fn set_quota(&self, uid: Uid, quota: Option<Quota>) -> Result<QuotaState, Error> {
        let _guard = self.layout.locks.exclusive(uid);
        let live = self.live_tree(uid)?;
        let forgets = self.layout.faults.has(PlantedFault::QuotaNotSetOnClone) && matches!(live.marker.origin, TreeOrigin::Clone { .. });
        let set = || -> Result<QuotaState, SysError> {
            let state = if forgets { QuotaState::Enforced } else { self.backend.set_quota(&self.layout, &live, quota)? };
            self.layout.faults.on_point(FaultPoint::QuotaSet);
            let in_force = quota.filter(|_| state == QuotaState::Enforced);
            if live.marker.quota != in_force {
                self.layout.note_quota(&live, in_force)?;
            }
            Ok(state)
        };
        let wrap = |source| Error::SetQuota { uid, source };
        if let Some(quota) = quota {
            let total = self.backend.total_bytes(&self.layout).map_err(wrap)?;
            if quota.bytes() > total {
                return Err(Error::QuotaTooLarge { uid, quota: quota.bytes(), total });
            }
        }
        set().map_err(wrap)
    }

    fn changes(&self, uid: Uid, since: Uid, limits: &ChangeLimits) -> Result<ChangeList, Error> {
        let _guard = self.layout.locks.shared(&[uid, since]);
        let (tree, base) = (self.live_tree(uid)?, self.live_tree(since)?);
        if !base.marker.is_frozen() {
            return Err(Error::BaseNotSealed { since });
        }
        let mut out = ChangeCollector::new(limits);
        let compared = self.backend.changes(&tree, &base, limits, &mut out);
        out.end(compared)
    }

    fn contents(&self, uid: Uid, limits: &ChangeLimits) -> Result<ChangeList, Error> {
        let _guard = self.layout.locks.shared(&[uid]);
        let tree = self.backend.open(&self.live_tree(uid)?)?;
        let mut out = ChangeCollector::new(limits);
        let listed = compare::list_all(tree.as_fd(), &mut out).map_err(|source| Error::Compare { uid, source });
        out.end(listed)
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
        let named = |uid: &Uid| is_type && self.backend.mount_source(*uid).is_some_and(|source| mount.source == Path::new(&source));
        let of_source = mount.source.to_str().and_then(|s| s.rsplit([':', '/']).next()).and_then(|text| text.parse().ok()).filter(named);
        let (uid, below) = match of_source {
            // The root of a file system of the tree's own.
            Some(uid) => (uid, mount.root.strip_prefix("/").ok()?.to_owned()),
            None => mountinfo::tree_below(&here, mount)?,
        };
        let marker = self.layout.live_entry(uid).ok()??.1;
        (marker.provider == B::KIND && marker.below == below).then_some(uid)
    }
}
