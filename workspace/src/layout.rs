//! The names in a data root, and the markers that say what is ours.
//!
//! Each tree has an entry: a folder named after its UID, with the marker and the tree itself in it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags, StatxFlags};
use rustix::io::Errno;

use crate::error::StepContext;
use crate::faults::{FaultPoint, Faults};
use crate::locks::Locks;
use crate::projects::Projects;
use crate::trees::LiveTree;
use crate::{
    DataRootEntry, EntryLocation, Error, ExpectedRoot, Inventory, Marker, Quota, SHARDS, SysError, Uid, UnreadableEntry, atomic, dir,
};

pub(crate) const TREE: &str = "tree";
/// The upper layer of an overlay.
pub(crate) const UPPER: &str = "upper";
/// The work folder of an overlay.
pub(crate) const WORK: &str = "work";
/// Another one, with which an overlay is mounted before it is destroyed, to see that nobody uses it.
pub(crate) const IDLE: &str = "idle";
const MARKER: &str = "marker";
const MARKER_NEW: &str = "marker.new";
const MARKER_VERSION: u32 = 1;
/// A symbolic link whose text is the data root's own name.
const ROOT_NAME: &str = "name";

/// The opened data root.
pub(crate) struct Layout {
    root: OwnedFd,
    pub name: Uid,
    pub locks: Locks,
    pub faults: Arc<dyn Faults>,
    pub projects: Projects,
}

impl Layout {
    /// Opens the data root if it is the expected one, and then makes what is missing.
    pub fn open(path: &Path, expected: ExpectedRoot, faults: Arc<dyn Faults>) -> Result<Self, Error> {
        let wrap = |source| Error::OpenRoot { path: path.to_owned(), source };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(path, flags, Mode::empty()).step("open the directory").map_err(wrap)?;
        let found = read_root_name(&root).map_err(wrap)?;
        let other = |wanted| Err(Error::OtherRoot { path: path.to_owned(), found, wanted });
        match expected {
            ExpectedRoot::Any => {}
            ExpectedRoot::Used if found.is_some() || dir::open_opt(&root, "trees").step("look for trees").map_err(wrap)?.is_some() => {}
            ExpectedRoot::Used => return other(None),
            ExpectedRoot::Named(wanted) if found == Some(wanted) => {}
            ExpectedRoot::Named(wanted) => return other(Some(wanted)),
        }
        let name = create_layout(&root, found).map_err(wrap)?;
        let projects = Projects::of(root.as_fd(), name);
        Ok(Self { root, name, locks: Locks::default(), faults, projects })
    }

    pub fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    fn parent_dir(&self, uid: Uid, location: EntryLocation) -> rustix::io::Result<OwnedFd> {
        match location {
            EntryLocation::Building | EntryLocation::Live => dir::open(&self.root, format!("trees/{}", uid.shard())),
            EntryLocation::Trash => dir::open(&self.root, "trash"),
        }
    }

    /// Opens the entry of a tree; `None` if it is missing.
    pub fn entry(&self, uid: Uid, location: EntryLocation) -> Result<Option<OwnedFd>, SysError> {
        let parent = self.parent_dir(uid, location).step("open the directory of the entry")?;
        dir::open_opt(&parent, entry_name(uid, location)).step("open the entry")
    }

    /// Opens the entry of a live tree and reads its marker. `None` if it is missing.
    pub fn live_entry(&self, uid: Uid) -> Result<Option<(OwnedFd, Marker)>, Error> {
        let Some(entry) = self.entry(uid, EntryLocation::Live).map_err(|source| Error::Open { uid, source })? else { return Ok(None) };
        match read_marker(&entry, uid).map_err(|source| Error::Open { uid, source })? {
            Some(marker) => Ok(Some((entry, marker))),
            None => Err(Error::Foreign { name: entry_name(uid, EntryLocation::Live) }),
        }
    }

    /// The path of the entry of a live tree, below the data root.
    pub fn live_path(uid: Uid) -> String {
        format!("trees/{}/{uid}", uid.shard())
    }

    /// Makes the entry with its marker, under its temporary name.
    pub fn create_entry(&self, marker: &Marker) -> Result<OwnedFd, SysError> {
        let parent = self.parent_dir(marker.uid, EntryLocation::Building).step("open the directory of the entry")?;
        let temporary = entry_name(marker.uid, EntryLocation::Building);
        rustix::fs::mkdirat(&parent, &*temporary, Mode::from_raw_mode(0o700)).step("make the entry")?;
        self.faults.on_point(FaultPoint::EntryMade);
        let entry = dir::open(&parent, &*temporary).step("open the entry")?;
        rustix::fs::symlinkat(encode_marker(marker)?, &entry, MARKER).step("write the marker")?;
        self.faults.on_point(FaultPoint::MarkerWritten);
        Ok(entry)
    }

    /// Gives the entry its final name: the commit point.
    pub fn commit(&self, uid: Uid) -> Result<(), SysError> {
        let parent = self.parent_dir(uid, EntryLocation::Live).step("open the directory of the entry")?;
        let (temporary, live) = (entry_name(uid, EntryLocation::Building), entry_name(uid, EntryLocation::Live));
        rustix::fs::renameat_with(&parent, &*temporary, &parent, &*live, RenameFlags::NOREPLACE).step("rename the entry")?;
        self.faults.on_point(FaultPoint::Committed);
        Ok(())
    }

    /// Moves an entry to the trash. The caller has removed what an earlier destruction left there.
    pub fn move_to_trash(&self, uid: Uid, from: EntryLocation) -> Result<(), SysError> {
        let parent = self.parent_dir(uid, from).step("open the directory of the entry")?;
        let trash = self.parent_dir(uid, EntryLocation::Trash).step("open the trash")?;
        let to = entry_name(uid, EntryLocation::Trash);
        rustix::fs::renameat_with(&parent, entry_name(uid, from), &trash, &*to, RenameFlags::NOREPLACE).step("rename the entry away")?;
        self.faults.on_point(FaultPoint::Trashed);
        Ok(())
    }

    /// Replaces the marker of a tree that is being sealed.
    pub fn replace_marker(&self, entry: &OwnedFd, marker: &Marker) -> Result<(), SysError> {
        atomic::replace_link(entry.as_fd(), MARKER.as_ref(), MARKER_NEW.as_ref(), &encode_marker(marker)?)?;
        self.faults.on_point(FaultPoint::SealMarked);
        Ok(())
    }

    /// Notes in the marker of a tree that its quota is in force. The file system writes the quota before the marker, or both at once: a flush
    /// of the marker alone could turn that round.
    pub fn note_quota(&self, live: &LiveTree, quota: Option<Quota>) -> Result<(), SysError> {
        let marker = Marker { quota, ..live.marker.clone() };
        atomic::replace_link_later(live.entry.as_fd(), MARKER.as_ref(), MARKER_NEW.as_ref(), &encode_marker(&marker)?)?;
        self.faults.on_point(FaultPoint::QuotaMarked);
        Ok(())
    }

    /// Ends what the file system counts for a tree, once no entry of it is left.
    pub fn release_project(&self, uid: Uid) -> Result<(), SysError> {
        if self.projects.why_not().is_some() {
            return Ok(());
        }
        for location in [EntryLocation::Building, EntryLocation::Live, EntryLocation::Trash] {
            if self.entry(uid, location)?.is_some() {
                return Ok(());
            }
        }
        self.projects.release(self.root(), uid)
    }

    /// Removes what is left of an entry once its tree is gone. The marker goes last, so that the entry is ours until then.
    pub fn finish_removal(&self, uid: Uid, location: EntryLocation) -> Result<(), SysError> {
        if let Some(entry) = self.entry(uid, location)? {
            unlink(&entry, MARKER_NEW)?;
            unlink(&entry, MARKER)?;
            self.faults.on_point(FaultPoint::MarkerGone);
        }
        self.remove_empty(uid, location)?;
        self.faults.on_point(FaultPoint::EntryGone);
        Ok(())
    }

    fn remove_empty(&self, uid: Uid, location: EntryLocation) -> Result<(), SysError> {
        let parent = self.parent_dir(uid, location).step("open the directory of the entry")?;
        match rustix::fs::unlinkat(&parent, entry_name(uid, location), AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(e) => Err(e).step("remove the entry"),
        }
    }

    /// Removes an entry without a marker if it is empty. If it is not, it is not ours.
    pub fn remove_unmarked(&self, uid: Uid, location: EntryLocation) -> Result<(), Error> {
        match self.remove_empty(uid, location) {
            Err(e) if matches!(e.source.raw_os_error(), Some(libc::ENOTEMPTY | libc::ENOTDIR)) => {
                Err(Error::Foreign { name: entry_name(uid, location) })
            }
            other => other.map_err(|source| Error::Destroy { uid, source }),
        }
    }

    /// Lists the data root.
    pub fn inventory(&self) -> Result<Inventory, Error> {
        let mut found = Inventory::default();
        let mut list = |parent: String| -> Result<(), SysError> {
            let dir = dir::open(&self.root, &*parent).step("open a directory")?;
            dir::for_each_name(&dir, "read a directory", |file_name| {
                let text = file_name.to_string_lossy();
                let Some((uid, location)) = parse_entry_name(&text, &parent) else {
                    found.foreign.push(format!("{parent}/{text}"));
                    return Ok(());
                };
                let looked = match dir::open(&dir, file_name) {
                    Ok(entry) => read_marker(&entry, uid).map(|marker| (marker, created_seconds(&entry))),
                    // Another call removed it after the directory was read.
                    Err(Errno::NOENT) => return Ok(()),
                    // A file, a link or a mount point is no entry of ours.
                    Err(Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => {
                        found.foreign.push(format!("{parent}/{text}"));
                        return Ok(());
                    }
                    Err(e) => Err(e).step("open the entry"),
                };
                match looked {
                    Ok((marker, created_seconds)) => found.entries.push(DataRootEntry { uid, location, marker, created_seconds }),
                    Err(e) => found.unreadable.push(UnreadableEntry { uid, why: format!("{parent}/{text}: {e}: {}", e.source) }),
                }
                Ok(())
            })
        };
        (0..SHARDS).map(|s| format!("trees/{s:02x}")).chain(["trash".to_owned()]).try_for_each(&mut list).map_err(Error::List)?;
        found.entries.sort_by_key(|e| (e.uid, e.location));
        found.foreign.sort();
        Ok(found)
    }
}

/// The name of the data root; `None` if it has none, or no valid one.
fn read_root_name(root: &OwnedFd) -> Result<Option<Uid>, SysError> {
    match rustix::fs::readlinkat(root, ROOT_NAME, Vec::new()) {
        Ok(text) => Ok(text.to_str().ok().and_then(|t| t.parse().ok())),
        Err(Errno::NOENT | Errno::INVAL) => Ok(None),
        Err(e) => Err(e).step("read the name of the data root"),
    }
}

/// Makes what is missing. The name comes last, so a data root with a name is complete.
fn create_layout(root: &OwnedFd, found: Option<Uid>) -> Result<Uid, SysError> {
    make_dir(root, "trash")?;
    make_dir(root, "trees")?;
    for shard in 0..SHARDS {
        make_dir(root, &format!("trees/{shard:02x}"))?;
    }
    if let Some(name) = found {
        return Ok(name);
    }
    let text = std::fs::read_to_string("/proc/sys/kernel/random/uuid").step("draw a name for the data root")?;
    let name = text.trim().parse::<Uid>().map_err(std::io::Error::other).step("draw a name for the data root")?;
    rustix::fs::symlinkat(name.to_string(), root, ROOT_NAME).step("name the data root")?;
    // The caller refuses every other name from now on, so this one must survive a power cut.
    rustix::fs::syncfs(root).step("flush the name of the data root")?;
    Ok(name)
}

pub(crate) fn entry_name(uid: Uid, location: EntryLocation) -> String {
    match location {
        EntryLocation::Building => format!("{uid}.tmp"),
        EntryLocation::Live | EntryLocation::Trash => uid.to_string(),
    }
}

fn parse_entry_name(text: &str, parent: &str) -> Option<(Uid, EntryLocation)> {
    if parent == "trash" {
        return Some((text.parse().ok()?, EntryLocation::Trash));
    }
    let (stem, location) = match text.strip_suffix(".tmp") {
        Some(stem) => (stem, EntryLocation::Building),
        None => (text, EntryLocation::Live),
    };
    let uid: Uid = stem.parse().ok()?;
    (parent.strip_prefix("trees/") == Some(&*uid.shard())).then_some((uid, location))
}

/// A marker is a symbolic link. It appears whole, and it is metadata: the commit that makes a snapshot durable makes its marker durable,
/// with no flush of its own.
fn encode_marker(marker: &Marker) -> Result<String, SysError> {
    serde_json::to_string(marker).map_err(std::io::Error::from).step("spell the marker")
}

/// Reads the marker of an entry; `None` unless it is one of ours for this UID.
pub(crate) fn read_marker(entry: impl AsFd, uid: Uid) -> Result<Option<Marker>, SysError> {
    match rustix::fs::readlinkat(entry, MARKER, Vec::new()) {
        Ok(text) => {
            let marker = serde_json::from_slice::<Marker>(text.to_bytes()).ok();
            Ok(marker.filter(|m| m.uid == uid && m.version == MARKER_VERSION))
        }
        Err(Errno::NOENT | Errno::INVAL) => Ok(None),
        Err(e) => Err(e).step("read the marker"),
    }
}

/// When an entry was made. Only people read it, so an error is no reason to know nothing of the entry.
fn created_seconds(entry: &OwnedFd) -> Option<i64> {
    let found = rustix::fs::statx(entry, c"", AtFlags::EMPTY_PATH, StatxFlags::BTIME).ok()?;
    (found.stx_mask & StatxFlags::BTIME.bits() != 0).then_some(found.stx_btime.tv_sec)
}

fn unlink(dir: &OwnedFd, name: &str) -> Result<(), SysError> {
    match rustix::fs::unlinkat(dir, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(e) => Err(e).step("remove the marker"),
    }
}

fn make_dir(root: &OwnedFd, path: &str) -> Result<(), SysError> {
    match rustix::fs::mkdirat(root, path, Mode::from_raw_mode(0o700)) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(e) => Err(e).step("make a directory"),
    }
}
