//! Provider Overlay: a base is a folder, and a clone of it is an overlay, made in constant time on every file system that can hold an upper
//! layer.
//!
//! # Layers
//! A tree that began empty is the folder `tree` of its entry. Once it is sealed it is a base: it is opened only through a read-only mount.
//! A clone of a base has `upper` and `work` in its entry, and its marker names the base. A clone of a clone copies the upper layer and the
//! index of its source, and has the same base, so every overlay has exactly one lower layer and lives without its source.
//!
//! # Mounts
//! A clone is mounted when it is first shown or read as a whole, and not before. The kernel refuses a second overlay with one upper layer
//! (`index=on`), whoever asks: then the one that is there is found in the mount table by its source, and cloned. If it is not in this
//! process's table, the error has the reason `Busy`.
//!
//! # Caveats
//! - A clone of a clone takes time by the size of what differs from the base, and so does its disk space where files cannot share blocks.
//! - Unmounting an overlay flushes the file system below it.
//! - A change list of a tree that wrote to a file with several names in the base visits the names of the whole base.

mod attempt;
mod changes;
mod fork;
mod layer_mounts;
mod merged;
mod sizes;

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};

pub(crate) use attempt::try_here;

use self::layer_mounts::{LayerMounts, Layers};
use crate::change_list::ChangeCollector;
use crate::error::StepContext;
use crate::layout::{IDLE, Layout, TREE, UPPER, WORK};
use crate::linked_files::MOST_LINKED;
use crate::mount::{self, TreeMount};
use crate::mountinfo::{self, Mount};
use crate::sealed_sizes::{SealedSizes, TreeSizes};
use crate::trees::{Backend, LiveTree, TreeDir};
use crate::{
    ChangeLimits, CloneAccess, DiskUsage, EntryLocation, Error, ErrorReason, Marker, PlantedFault, ProviderKind, Seal, SysError, Uid, dir,
    folder, remove, trees,
};

pub(crate) struct Overlay {
    layout: Arc<Layout>,
    /// Made when it is first needed: it takes rights that the other providers do not need.
    layers: Mutex<Option<Arc<LayerMounts>>>,
    /// Mounts that somebody in this process uses.
    mounted: Mutex<HashMap<Uid, Weak<OwnedFd>>>,
    sealed_sizes: SealedSizes,
}

/// The mount points outside of the data root of all overlays of a data root.
pub(crate) fn mounts_elsewhere(name: Uid, data_root: &Path, table: &[Mount]) -> Vec<PathBuf> {
    let prefix = source_of(name, "");
    let is_ours = |m: &&Mount| m.fs_type == "overlay" && m.source.to_str().is_some_and(|source| source.starts_with(&prefix));
    table.iter().filter(is_ours).filter(|m| !m.mount_point.starts_with(data_root)).map(|m| m.mount_point.clone()).collect()
}

/// The source of every overlay of ours begins with it, and goes on with the data root's name, a colon, and the tree.
pub(crate) const SOURCE_PREFIX: &str = "yoi:";

fn source_of(name: Uid, tree: &str) -> String {
    format!("{SOURCE_PREFIX}{name}:{tree}")
}

/// The tree of this data root whose overlay a mount shows as a whole, whether or not the tree is still there.
pub(crate) fn shown_tree(name: Uid, mount: &Mount) -> Option<Uid> {
    let tree = mountinfo::named_tree(mount).filter(|_| mount.fs_type == "overlay")?;
    mountinfo::is_whole_mount_of(mount, &source_of(name, &tree.to_string())).then_some(tree)
}

/// The path of a base, below the data root.
fn base_path(uid: Uid) -> String {
    format!("{}/{TREE}", Layout::live_path(uid))
}

impl Overlay {
    pub fn new(layout: Arc<Layout>) -> Self {
        Self { layout, layers: Mutex::new(None), mounted: Mutex::default(), sealed_sizes: SealedSizes::default() }
    }

    fn layers(&self) -> Result<Arc<LayerMounts>, SysError> {
        let mut layers = self.layers.lock().unwrap_or_else(PoisonError::into_inner);
        let takes_descriptors = !self.layout.faults.has(PlantedFault::LayersByPathOnly);
        match &*layers {
            Some(there) => Ok(there.clone()),
            None => Ok(layers.insert(Arc::new(LayerMounts::new(self.layout.root(), takes_descriptors)?)).clone()),
        }
    }

    /// So many files with several names are remembered. If there are more, all of a tree is visited, for which none has to be.
    fn most_linked(&self) -> usize {
        if self.layout.faults.has(PlantedFault::FewLinksRemembered) { 2 } else { MOST_LINKED }
    }

    fn source(&self, uid: Uid) -> String {
        source_of(self.layout.name, &uid.to_string())
    }

    /// Opens a base, through the read-only mount.
    fn open_base(&self, uid: Uid) -> Result<OwnedFd, SysError> {
        let path = base_path(uid);
        if self.layout.faults.has(PlantedFault::LowerWritable) {
            return dir::open(self.layout.root(), path).step("open the base");
        }
        dir::open(&self.layers()?.read_only, path).step("open the base")
    }

    /// Opens the lower layer of a clone. Returns its seal, too. Errors: `LowerLost`.
    fn open_lower(&self, live: &LiveTree, lower: Uid) -> Result<(OwnedFd, Seal), Error> {
        let uid = live.marker.uid;
        match self.layout.live_entry(lower)? {
            Some((_, Marker { provider: ProviderKind::Overlay, lower: None, sealed: Some(seal), .. })) => {
                Ok((self.open_base(lower).map_err(|source| Error::Open { uid, source })?, seal))
            }
            _ => Err(Error::LowerLost { uid, lower }),
        }
    }

    /// Makes a mount of a clone. The kernel refuses a second one with EBUSY.
    fn mount(&self, uid: Uid, lower: &str, work: &str) -> Result<OwnedFd, SysError> {
        let (source, entry) = (self.source(uid), Layout::live_path(uid));
        let is_only = !self.layout.faults.has(PlantedFault::UpperMountedTwice);
        self.layers()?.mount(&Layers { source: &source, lower, entry: &entry, work, is_volatile: work == IDLE, is_only })
    }

    /// A mount of a clone: the one that this process uses, or the one that stands in the mount table, or a new one.
    fn mounted(&self, live: &LiveTree, lower: Uid) -> Result<Arc<OwnedFd>, Error> {
        let uid = live.marker.uid;
        let wrap = |source| Error::Open { uid, source };
        drop(self.open_lower(live, lower)?);
        let mut mounted = self.mounted.lock().unwrap_or_else(PoisonError::into_inner);
        mounted.retain(|_, mount| mount.strong_count() > 0);
        if let Some(there) = mounted.get(&uid).and_then(Weak::upgrade) {
            return Ok(there);
        }
        // The kernel would refuse it as well, but with a line in its log each time.
        let made = match self.clone_of_live(uid).map_err(wrap)? {
            Some(there) => there,
            None => match self.mount(uid, &base_path(lower), WORK) {
                Ok(made) => made,
                Err(e) if e.source.raw_os_error() == Some(libc::ESTALE) => return Err(Error::LowerLost { uid, lower }),
                // Another process may have mounted it meanwhile.
                Err(e) if e.reason() == ErrorReason::Busy => self.clone_of_live(uid).map_err(wrap)?.ok_or(e).map_err(wrap)?,
                Err(e) => return Err(wrap(e)),
            },
        };
        let made = Arc::new(made);
        mounted.insert(uid, Arc::downgrade(&made));
        Ok(made)
    }

    /// A clone of the mount of this tree that stands in this process's mount table.
    fn clone_of_live(&self, uid: Uid) -> Result<Option<OwnedFd>, SysError> {
        let source = self.source(uid);
        if self.layout.faults.has(PlantedFault::UpperMountedTwice) {
            return Ok(None);
        }
        for mount in mountinfo::read()?.iter().rev().filter(|m| mountinfo::is_whole_mount_of(m, &source)) {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let Ok(at) = rustix::fs::open(&mount.mount_point, flags, Mode::empty()) else { continue };
            // Another mount may have been put on top of it.
            let found = rustix::fs::statx(&at, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID).step("find the mount of a directory")?;
            if found.stx_mnt_id == mount.id {
                return mount::clone_mount(at.as_fd()).map(Some);
            }
        }
        Ok(None)
    }

    /// Whether the kernel refuses to mount a tree because it is mounted. A volatile mount spoils its work folder, so that is not the tree's
    /// own; nothing need be flushed for a tree that is about to go.
    fn is_busy(&self, live: &LiveTree, lower: Uid, work: &str) -> Result<bool, SysError> {
        remove::remove_tree(live.entry.as_fd(), c"idle")?;
        if work == IDLE {
            rustix::fs::mkdirat(&live.entry, IDLE, Mode::RWXU).step("make a work folder")?;
        }
        let is_busy = match self.mount(live.marker.uid, &base_path(lower), work) {
            Ok(mount) => {
                drop(mount);
                false
            }
            Err(e) if e.reason() == ErrorReason::Busy => true,
            // Its base is gone or another one, or the kernel makes no overlay of it: nobody uses it.
            Err(e) if matches!(e.source.raw_os_error(), Some(libc::ESTALE | libc::ENOENT | libc::EINVAL)) => false,
            Err(e) => return Err(e),
        };
        remove::remove_tree(live.entry.as_fd(), c"idle")?;
        Ok(is_busy)
    }

    /// The overlays whose lower layer is this tree.
    fn forks_of(&self, uid: Uid) -> Result<Vec<Uid>, Error> {
        let entries = self.layout.inventory()?.entries.into_iter();
        let needs = |location| match location {
            EntryLocation::Building | EntryLocation::Live => true,
            // It is never mounted again.
            EntryLocation::Trash => false,
        };
        Ok(entries.filter(|e| needs(e.location) && e.marker.as_ref().is_some_and(|m| m.lower == Some(uid))).map(|e| e.uid).collect())
    }
}

impl Backend for Overlay {
    const KIND: ProviderKind = ProviderKind::Overlay;
    const FORKS_LIVE: bool = false;
    const MOUNT_TYPES: &'static [&'static str] = &["overlay"];

    fn clone_into(&self, source: &LiveTree, _: Uid, entry: BorrowedFd, _: CloneAccess) -> Result<(), SysError> {
        match source.marker.lower {
            None => fork::of_base(&self.open_base(source.marker.uid)?, entry),
            Some(_) => fork::of_overlay(source, entry, &*self.layout.faults),
        }
    }

    fn lower_of_clone(&self, source: &Marker) -> Option<Uid> {
        source.lower.or(Some(source.uid))
    }

    /// The only proof that nobody uses a tree is to mount it. While our mount lives, nobody else can.
    fn hold_still(&self, source: &LiveTree) -> Result<Option<TreeDir>, Error> {
        let from = source.marker.uid;
        let in_use = || Error::SourceNotSealed { from, provider: ProviderKind::Overlay };
        let lower = source.marker.lower.ok_or_else(in_use)?;
        drop(self.open_lower(source, lower)?);
        if self.clone_of_live(from).map_err(|source| Error::Open { uid: from, source })?.is_some() {
            return Err(in_use());
        }
        match self.mount(from, &base_path(lower), WORK) {
            Ok(mount) => root_of(Arc::new(mount)).map(Some).map_err(|source| Error::Open { uid: from, source }),
            Err(e) if e.reason() == ErrorReason::Busy => Err(in_use()),
            Err(e) if e.source.raw_os_error() == Some(libc::ESTALE) => Err(Error::LowerLost { uid: from, lower }),
            Err(source) => Err(Error::Open { uid: from, source }),
        }
    }

    fn open(&self, live: &LiveTree) -> Result<TreeDir, Error> {
        let uid = live.marker.uid;
        let wrap = |source| Error::Open { uid, source };
        match live.marker.lower {
            None if live.marker.is_frozen() => Ok(TreeDir { dir: self.open_base(uid).map_err(wrap)?, _mount: None }),
            None => live.open_folder(),
            Some(lower) => root_of(self.mounted(live, lower)?).map_err(wrap),
        }
    }

    fn open_for_mount(&self, live: &LiveTree) -> Result<TreeMount, Error> {
        match live.marker.lower {
            None => Ok(TreeMount::of_folder(live.open_folder()?)),
            Some(lower) => Ok(TreeMount::detached(self.mounted(live, lower)?)),
        }
    }

    fn mount_source(&self, uid: Uid) -> Option<String> {
        Some(self.source(uid))
    }

    /// Tries to mount it: another overlay with this upper layer may be in a namespace whose table this process does not see.
    fn refuse_used(&self, live: &LiveTree) -> Result<(), Error> {
        let uid = live.marker.uid;
        let Some(lower) = live.marker.lower else { return Ok(()) };
        let look = || -> Result<bool, SysError> {
            if dir::open_opt(&live.entry, UPPER).step("open the upper layer")?.is_none() {
                return Ok(false);
            }
            match self.is_busy(live, lower, IDLE) {
                // A full disk has no room for a work folder. The upper layer is no work folder either, but the kernel says so only after it
                // has found out that nobody uses it, and writes nothing.
                Err(e) if e.reason() == ErrorReason::OutOfSpace => self.is_busy(live, lower, UPPER),
                other => other,
            }
        };
        match look() {
            Ok(false) => Ok(()),
            Ok(true) => Err(Error::Busy { uid, targets: Vec::new() }),
            Err(source) => Err(Error::Destroy { uid, source }),
        }
    }

    fn refuse_needed(&self, live: &LiveTree) -> Result<(), Error> {
        let uid = live.marker.uid;
        if live.marker.lower.is_some() || live.marker.sealed.is_none() {
            return Ok(());
        }
        match self.forks_of(uid)? {
            forks if forks.is_empty() => Ok(()),
            forks => Err(Error::DependentForks { uid, forks }),
        }
    }

    fn check_sealable(&self, live: &LiveTree, tree: BorrowedFd) -> Result<(), Error> {
        let uid = live.marker.uid;
        if live.marker.lower.is_some() {
            return Ok(());
        }
        match fork::unfit_for_a_lower(tree).map_err(|source| Error::Seal { uid, source })? {
            None => Ok(()),
            Some((path, what)) => Err(Error::NotALower { uid, path, what }),
        }
    }

    fn remove(&self, uid: Uid, entry: BorrowedFd, _: EntryLocation) -> Result<(), SysError> {
        self.sealed_sizes.forget(uid);
        folder::remove(entry)
    }

    fn measure(&self, layout: &Layout, live: &LiveTree) -> Result<DiskUsage, Error> {
        let tree = self.open(live)?;
        let measure = || match live.marker.lower {
            None => folder::usage(tree.as_fd(), &*layout.faults),
            Some(_) => {
                let own = fork::usage_of_layers(&live.entry, &*layout.faults)?;
                let whole = trees::measure(tree.as_fd(), |_, _, _| Ok(0))?;
                Ok(DiskUsage { exclusive_bytes: own, ..whole })
            }
        };
        measure().map_err(|source| Error::Measure { uid: live.marker.uid, source })
    }

    /// Visits the upper layer alone, and the base once.
    fn usage(&self, layout: &Layout, live: &LiveTree, charged: Option<u64>) -> Result<DiskUsage, Error> {
        let Some(lower) = live.marker.lower else { return Ok(DiskUsage { charged_bytes: charged, ..self.measure(layout, live)? }) };
        let wrap = |source| Error::Measure { uid: live.marker.uid, source };
        let (base, seal) = self.open_lower(live, lower)?;
        let of_base = || {
            trees::measure(base.as_fd(), |_, _, _| Ok(0)).map(|all| TreeSizes { logical_bytes: all.logical_bytes, entries: all.entries })
        };
        let of_base = self.sealed_sizes.get((lower, &seal), of_base).map_err(wrap)?;
        let Some(sizes) = sizes::of_overlay(&live.entry, (&base, of_base), self.most_linked()).map_err(wrap)? else {
            return Ok(DiskUsage { charged_bytes: charged, ..self.measure(layout, live)? });
        };
        let TreeSizes { logical_bytes, entries } = sizes;
        let exclusive_bytes = fork::usage_of_layers(&live.entry, &*layout.faults).map_err(wrap)?;
        Ok(DiskUsage { logical_bytes, exclusive_bytes, entries, charged_bytes: charged })
    }

    fn changes(&self, tree: &LiveTree, since: &LiveTree, limits: &ChangeLimits, out: &mut ChangeCollector) -> Result<(), Error> {
        let wrap = |source| Error::Compare { uid: tree.marker.uid, source };
        if tree.marker.lower == Some(since.marker.uid) {
            let (base, _) = self.open_lower(tree, since.marker.uid)?;
            if changes::since_base((&tree.entry, &base), self.most_linked(), limits, &*self.layout.faults, out).map_err(wrap)? {
                return Ok(());
            }
        }
        let (opened, base) = (self.open(tree)?, self.open(since)?);
        changes::between(opened.as_fd(), base.as_fd(), limits, out).map_err(wrap)
    }
}

/// Opens the root directory of a mount.
fn root_of(mount: Arc<OwnedFd>) -> Result<TreeDir, SysError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = rustix::fs::openat(&*mount, ".", flags, Mode::empty()).step("open the root of the overlay")?;
    Ok(TreeDir { dir, _mount: Some(mount) })
}
