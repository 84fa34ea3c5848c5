//! The data root of a node: opens the directory, gives out its providers, and mounts trees into Pods.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::btrfs::{self, Btrfs, ioctl};
use crate::copy::Copy;
use crate::faults::{self, Faults};
use crate::layout::{self, Layout};
use crate::mount::{self, BindOutcome, MountError, TargetRoot};
use crate::mountinfo::Mount;
use crate::overlay::Overlay;
use crate::plan::DiskStep;
use crate::probe::{self, Probe};
use crate::reflink::Reflink;
use crate::trees::{TreeDir, TreeProvider};
use crate::zfs::Zfs;
use crate::{EntryLocation, Error, Inventory, Marker, Provider, ProviderKind, QuotaState, Uid, ZfsOptions, mountinfo, overlay};

/// The opened data root of a node.
///
/// # Guarantees
/// Everything is reached from the root's descriptor, through no link and into no other mount. A tree of provider Zfs is a dataset: only its
/// entry is in the data root.
///
/// # Assumptions
/// One process has the data root open at a time. The directory belongs to root, and nobody else writes to it.
pub struct DataRoot {
    layout: Arc<Layout>,
    /// None if no dataset is named for trees.
    zfs: Option<TreeProvider<Zfs>>,
    btrfs: TreeProvider<Btrfs>,
    overlay: TreeProvider<Overlay>,
    reflink: TreeProvider<Reflink>,
    copy: TreeProvider<Copy>,
    on_btrfs: bool,
}

/// What a caller knows of the data root that it opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExpectedRoot {
    /// Nothing: it may be new.
    Any,
    /// It was used before: it has a name or a folder for trees.
    Used,
    /// It has this name.
    Named(Uid),
}

/// How a data root is opened.
pub struct RootOptions {
    /// What the caller knows of it.
    pub expected: ExpectedRoot,
    /// Where trees of provider Zfs are. Without it the data root has none.
    pub zfs: Option<ZfsOptions>,
    /// Called at each step.
    pub faults: Arc<dyn Faults>,
}

impl Default for RootOptions {
    fn default() -> Self {
        Self { expected: ExpectedRoot::Any, zfs: None, faults: faults::none() }
    }
}

/// Why [`DataRoot::publish`] failed.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the message of a variant says what it is")]
pub enum PublishError {
    #[error(transparent)]
    Tree(#[from] Error),
    #[error(transparent)]
    Mount(#[from] MountError),
}

impl DataRoot {
    /// Opens an existing directory, whatever is in it, and makes what is missing of the layout. Errors: `OpenRoot`.
    pub fn open(path: &Path) -> Result<Self, Error> {
        Self::open_with(path, RootOptions::default())
    }

    /// Opens an existing directory if it is the expected one, and makes what is missing of the layout. Errors: `OtherRoot`, `OpenRoot`.
    pub fn open_expected(path: &Path, expected: ExpectedRoot) -> Result<Self, Error> {
        Self::open_with(path, RootOptions { expected, ..RootOptions::default() })
    }

    /// Like [`DataRoot::open_expected`], and calls `faults` at each step.
    pub fn open_with_faults(path: &Path, expected: ExpectedRoot, faults: Arc<dyn Faults>) -> Result<Self, Error> {
        Self::open_with(path, RootOptions { expected, faults, ..RootOptions::default() })
    }

    /// Like [`DataRoot::open_expected`], with all that can be chosen. Runs no program: a pool that hangs keeps no data root from being opened.
    pub fn open_with(path: &Path, options: RootOptions) -> Result<Self, Error> {
        let RootOptions { expected, zfs, faults } = options;
        let wrap = |source| Error::OpenRoot { path: path.to_owned(), source };
        let layout = Arc::new(Layout::open(path, expected, faults)?);
        let on_btrfs = ioctl::is_btrfs(layout.root()).map_err(|e| {
            let source = std::io::Error::from(e);
            wrap(crate::SysError { step: "ask for the file system", source })
        })?;
        let zfs = zfs.map(|options| TreeProvider { layout: layout.clone(), backend: Zfs::new(layout.clone(), options) });
        let btrfs = TreeProvider { layout: layout.clone(), backend: Btrfs::new(layout.clone()) };
        let overlay = TreeProvider { layout: layout.clone(), backend: Overlay::new(layout.clone()) };
        let reflink = TreeProvider { layout: layout.clone(), backend: Reflink { layout: layout.clone() } };
        let copy = TreeProvider { layout: layout.clone(), backend: Copy };
        Ok(Self { layout, zfs, btrfs, overlay, reflink, copy, on_btrfs })
    }

    /// The name of this data root. It is generated at random when the data root is first opened, and never changes.
    pub fn name(&self) -> Uid {
        self.layout.name
    }

    /// Returns which providers work on this data root and how much space it has. Tries each provider (two commits on Btrfs). Errors: `Probe`.
    pub fn probe(&self) -> Result<Probe, Error> {
        // Two probes at once would use the same names. No object has the zero UID, so its lock serves them.
        let _guard = self.layout.locks.exclusive(Uid::from_bytes([0; 16]));
        probe::probe(&self.layout, self.on_btrfs, &self.overlay.backend, self.zfs.as_ref().map(|zfs| &zfs.backend)).map_err(Error::Probe)
    }

    /// Makes the file system count what each tree takes, where that must be turned on: simple quotas of Btrfs. For a data root that is ours
    /// alone, or whose owner allows it, because no kernel before Linux 6.7 can mount the file system afterwards. Nothing is turned on where
    /// classic quota groups are. Says whether quotas of trees made from now on by the best provider here are enforced. Errors: `Probe`.
    pub fn set_up_quotas(&self) -> Result<QuotaState, Error> {
        match self.on_btrfs {
            true => btrfs::quota::set_up(self.layout.root()).map_err(Error::Probe),
            false => Ok(self.layout.projects.state()),
        }
    }

    /// The targets where trees of this data root are mounted: whatever its file system shows outside of it. Errors: `Probe`.
    pub fn mounts_elsewhere(&self) -> Result<Vec<PathBuf>, Error> {
        let look = || {
            let table = mountinfo::read()?;
            let here = mountinfo::locate(self.layout.root(), &table)?;
            let mut found = mountinfo::mounts_elsewhere(&here, &here.path, &table);
            found.extend(overlay::mounts_elsewhere(self.layout.name, &here.path, &table));
            found.extend(self.zfs.iter().flat_map(|zfs| zfs.backend.mounts_elsewhere(&here.path, &table)));
            Ok(found)
        };
        look().map_err(Error::Probe)
    }

    /// Returns a provider. Errors: `NotOffered` if it cannot work on this file system.
    pub fn provider(&self, kind: ProviderKind) -> Result<&dyn Provider, Error> {
        match kind {
            ProviderKind::Zfs => Ok(self.zfs()?),
            ProviderKind::Btrfs if self.on_btrfs => Ok(&self.btrfs),
            ProviderKind::Btrfs => Err(Error::NotOffered { provider: kind }),
            ProviderKind::Overlay => Ok(&self.overlay),
            ProviderKind::Reflink => Ok(&self.reflink),
            ProviderKind::Copy => Ok(&self.copy),
        }
    }

    fn zfs(&self) -> Result<&TreeProvider<Zfs>, Error> {
        self.zfs.as_ref().ok_or(Error::NotOffered { provider: ProviderKind::Zfs })
    }

    /// Returns the provider that made a live tree. Errors: `NotFound`, `Foreign`, `Open`.
    pub fn provider_of(&self, uid: Uid) -> Result<&dyn Provider, Error> {
        self.provider(self.marker(uid)?.provider)
    }

    /// Reads the marker of a live tree. Errors: `NotFound`, `Foreign`, `Open`.
    pub fn marker(&self, uid: Uid) -> Result<Marker, Error> {
        self.layout.live_entry(uid)?.map(|(_, marker)| marker).ok_or(Error::NotFound { uid })
    }

    /// Opens the root directory of a live tree, see [`Provider::open_tree`].
    pub fn open_tree(&self, uid: Uid) -> Result<TreeDir, Error> {
        self.provider_of(uid)?.open_tree(uid)
    }

    /// The live tree whose root a mount shows; None if it shows anything else.
    pub fn mounted_tree(&self, mount: &Mount) -> Option<Uid> {
        ProviderKind::ALL.iter().find_map(|kind| self.provider(*kind).ok()?.mounted_tree(mount))
    }

    /// The tree whose root a mount shows, also if that tree is gone from the data root while it was mounted; None if the mount shows anything
    /// else, a part of a tree, or a tree of another data root.
    pub fn shown_tree(&self, mount: &Mount) -> Option<Uid> {
        let gone = || {
            let here = mountinfo::locate(self.layout.root(), &mountinfo::read().ok()?).ok()?;
            overlay::shown_tree(self.layout.name, mount).or_else(|| {
                let (uid, below) = mountinfo::tree_below(&here, mount)?;
                // Which folder of its volume was the root of a tree that is gone, nobody knows any more.
                (below.as_os_str().is_empty() || matches!(self.layout.live_entry(uid), Ok(None))).then_some(uid)
            })
        };
        self.mounted_tree(mount).or_else(gone)
    }

    /// Mounts a tree at a target, see [`mount::bind_tree`]. A sealed or read-only tree is always mounted read-only.
    pub fn publish(&self, uid: Uid, root: &TargetRoot, target: &Path, read_only: bool) -> Result<BindOutcome, PublishError> {
        let _guard = self.layout.locks.shared(&[uid]);
        let read_only = read_only || self.marker(uid)?.is_frozen();
        let tree = self.provider_of(uid)?.open_for_mount(uid)?;
        Ok(mount::bind_tree(tree, root, target, read_only)?)
    }

    /// Lists everything in the data root, for [`crate::plan::recover`]. Errors: `List`.
    pub fn inventory(&self) -> Result<Inventory, Error> {
        self.layout.inventory()
    }

    /// Does one step of a recovery. Can be repeated.
    pub fn perform(&self, step: &DiskStep) -> Result<(), Error> {
        match *step {
            DiskStep::Discard { uid } => self.remove_entry(uid, EntryLocation::Building),
            DiskStep::Purge { uid } => self.remove_entry(uid, EntryLocation::Trash),
            DiskStep::Commit { uid } => {
                let _guard = self.layout.locks.exclusive(uid);
                if self.layout.live_entry(uid)?.is_some() {
                    return Ok(());
                }
                let wrap = |source| Error::Make { uid, source };
                let marked = match self.layout.entry(uid, EntryLocation::Building).map_err(wrap)? {
                    Some(entry) => layout::read_marker(&entry, uid).map_err(wrap)?.is_some(),
                    None => return Err(Error::NotFound { uid }),
                };
                if !marked {
                    return Err(Error::Foreign { name: layout::entry_name(uid, EntryLocation::Building) });
                }
                self.layout.commit(uid).map_err(wrap)
            }
            DiskStep::Destroy { uid, provider } => self.provider(provider)?.destroy(uid),
            DiskStep::Seal { uid, provider } => self.provider(provider)?.seal(uid).map(drop),
            DiskStep::SetQuota { uid, provider, quota } => self.provider(provider)?.set_quota(uid, quota).map(drop),
        }
    }

    fn remove_entry(&self, uid: Uid, location: EntryLocation) -> Result<(), Error> {
        let _guard = self.layout.locks.exclusive(uid);
        let wrap = |source| Error::Destroy { uid, source };
        let marker = match self.layout.entry(uid, location).map_err(wrap)? {
            Some(entry) => layout::read_marker(&entry, uid).map_err(wrap)?,
            // An earlier call may have stopped between the removal and the end of the project.
            None if self.layout.live_entry(uid)?.is_none() => return self.layout.release_project(uid).map_err(wrap),
            None => return Ok(()),
        };
        if marker.is_some_and(|marker| marker.provider == ProviderKind::Zfs) {
            return self.zfs()?.remove_entry(uid, location);
        }
        // Each other provider can remove the trees of the others. Btrfs is fast.
        if self.on_btrfs { self.btrfs.remove_entry(uid, location) } else { self.copy.remove_entry(uid, location) }
    }
}
