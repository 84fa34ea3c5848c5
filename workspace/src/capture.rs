//! Makes a tree of a folder of the host.
//!
//! # Point in time
//! A snapshot is of one moment. A copy is of the moment at which its last file was copied: every entry is looked at before and after it is
//! copied, and all are looked at once more at the end. If nothing differs, each copied file was then as it was copied.
//!
//! # Caveats
//! A process that writes through a memory map may change a file without its ctime for a while. Only a snapshot is safe from that.

mod seed;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use self::seed::{Seeded, Stop};
use crate::error::StepContext;
use crate::faults::FaultPoint;
use crate::tree_copy::Data;
use crate::trees::{Backend, TreeProvider};
use crate::{
    CaptureMethod, Captured, CloneAccess, EntryLocation, Error, HostFolder, Marker, Owner, SysError, TreeOrigin, Uid, dir, projects,
};

/// So often a copy is begun before the source counts as changing.
const MAX_PASSES: u32 = 3;
/// The marker is a symbolic link, which XFS keeps below 1 KiB.
const MAX_WHY: usize = 240;

/// What the host has a folder in, and a snapshot can be made of.
pub(crate) enum Volume {
    /// The root of a subvolume.
    Subvolume(OwnedFd),
    /// The name of a dataset.
    Dataset(String),
}

/// How a folder of the host becomes a tree.
pub(crate) enum CapturePlan {
    /// By a snapshot of the volume that it is, or lies in.
    Snapshot {
        /// That volume.
        volume: Volume,
        /// The path of the folder in the volume.
        below: PathBuf,
        /// See [`Captured::why`].
        why: String,
    },
    /// File by file.
    Seed {
        /// How each file is copied.
        data: Data,
        /// Why there is no snapshot.
        why: String,
    },
}

impl<B: Backend> TreeProvider<B> {
    /// [`crate::Provider::capture`] for a caller that has the lock.
    pub(crate) fn capture_locked(&self, uid: Uid, source: &HostFolder, owner: Owner, access: CloneAccess) -> Result<Marker, Error> {
        let made = self.existing(uid, TreeOrigin::Host { owner })?;
        if made.is_none() {
            source.check_owner(owner)?;
            source.check_place(self.layout.root())?;
            source.check_repository()?;
            self.make_way(uid)?;
            if let Err(error) = self.take(uid, source, owner) {
                // The first error is the one to report. What stays behind is removed by the next call or by recovery.
                let _ = self.remove_entry(uid, EntryLocation::Building);
                return Err(error);
            }
        }
        if access == CloneAccess::ReadWrite {
            return match made {
                Some(marker) => Ok(marker),
                None => self.existing(uid, TreeOrigin::Host { owner })?.ok_or(Error::NotFound { uid }),
            };
        }
        match self.seal_locked(uid) {
            Ok((marker, _)) => Ok(marker),
            Err(error) => {
                // A source that cannot be sealed leaves no tree.
                self.layout.move_to_trash(uid, EntryLocation::Live).map_err(|source| Error::Make { uid, source })?;
                self.remove_entry(uid, EntryLocation::Trash)?;
                Err(error)
            }
        }
    }

    /// Makes the tree, up to the rename that commits it.
    fn take(&self, uid: Uid, source: &HostFolder, owner: Owner) -> Result<(), Error> {
        let wrap = |source| Error::Make { uid, source };
        let plan = self.backend.plan_capture(source).map_err(wrap)?;
        let (below, host_dataset) = match &plan {
            CapturePlan::Snapshot { below, volume: Volume::Dataset(name), .. } => (below.clone(), Some(name.clone())),
            CapturePlan::Snapshot { below, volume: Volume::Subvolume(_), .. } => (below.clone(), None),
            CapturePlan::Seed { .. } => (PathBuf::new(), None),
        };
        let origin = TreeOrigin::Host { owner };
        let mut marker = Marker { below, host_dataset, ..self.new_marker(uid, origin) };
        let entry = self.layout.create_entry(&marker).map_err(wrap)?;
        let is_counted = self.layout.projects.begin(self.layout.root(), uid, entry.as_fd()).map_err(wrap)?;
        let mut captured = match plan {
            CapturePlan::Snapshot { volume, below, why } => {
                self.take_snapshot(uid, source, &volume, &below, entry.as_fd())?;
                Captured { how: CaptureMethod::Snapshot, why }
            }
            CapturePlan::Seed { data, why } => self.seed(uid, source, data, entry.as_fd())?.describe(&why),
        };
        truncate(&mut captured.why, MAX_WHY);
        if is_counted {
            projects::end(entry.as_fd()).map_err(wrap)?;
        }
        marker.captured = Some(captured);
        self.layout.replace_marker(&entry, &marker).map_err(wrap)?;
        // After a power cut there must not be the final name without the data.
        rustix::fs::syncfs(&entry).step("flush the tree").map_err(wrap)?;
        self.layout.faults.on_point(FaultPoint::TreeMade);
        drop(entry);
        self.layout.commit(uid).map_err(wrap)
    }

    fn take_snapshot(&self, uid: Uid, source: &HostFolder, volume: &Volume, below: &Path, entry: BorrowedFd) -> Result<(), Error> {
        let refuse_nested = || match self.backend.nested_volume(source.dir.as_fd()) {
            Ok(None) => Ok(()),
            Ok(Some(path)) => Err(Error::SourceNested { path }),
            Err(source) => Err(Error::Make { uid, source }),
        };
        refuse_nested()?;
        let take = || -> Result<bool, SysError> {
            let root = self.backend.snapshot_volume(uid, volume, entry)?;
            // The folder may have been renamed before the snapshot, and another one have its name now. Inode numbers are kept.
            let path = if below.as_os_str().is_empty() { Path::new(".") } else { below };
            let tree = dir::open_opt(&root, path).step("open the snapshot")?;
            let same = |tree| Ok::<_, SysError>(rustix::fs::fstat(tree).step("stat the snapshot")?.st_ino == source.stat()?.st_ino);
            tree.map_or(Ok(false), same)
        };
        match take().map_err(|source| Error::Make { uid, source })? {
            // One may have been made between the check and the snapshot.
            true => refuse_nested(),
            false => Err(Error::SourceChanging { path: source.path().to_owned(), passes: 1 }),
        }
    }

    fn seed(&self, uid: Uid, source: &HostFolder, data: Data, entry: BorrowedFd) -> Result<Seeded, Error> {
        let wrap = |source| Error::Make { uid, source };
        let mut changed = PathBuf::new();
        for _ in 0..MAX_PASSES {
            let tree = self.backend.make_root(uid, entry).map_err(wrap)?;
            match seed::fill(source, tree.as_fd(), data, &*self.layout.faults) {
                Ok(seeded) => {
                    self.backend.flush_filled(tree.as_fd()).map_err(wrap)?;
                    return Ok(seeded);
                }
                Err(Stop::Changed(path)) => changed = path,
                Err(Stop::Nested(path)) => return Err(Error::SourceNested { path }),
                Err(Stop::Failed(source)) => return Err(wrap(source)),
            }
            drop(tree);
            self.backend.remove(uid, entry, EntryLocation::Building).map_err(wrap)?;
        }
        Err(Error::SourceChanging { path: changed, passes: MAX_PASSES })
    }
}

fn truncate(text: &mut String, max: usize) {
    let end = (0..=max.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    text.truncate(end);
}
