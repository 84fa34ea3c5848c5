use crate::mount::TreeMount;
use crate::mountinfo::Mount;
use crate::{
    ChangeLimits, ChangeList, CloneAccess, DiskUsage, Error, HostFolder, Marker, Owner, Quota, QuotaState, TreeDir, TreeManifest, Uid,
};

/// Makes, clones, seals and destroys trees.
///
/// # Guarantees
/// - Every call can be repeated: a second call finds the work done, or finishes it.
/// - A tree appears under its name whole or not at all (rename is the commit point).
/// - A directory without our marker is refused with [`Error::Foreign`] and is not changed.
/// - Calls for one UID run one at a time within this process. Clones of one source run in parallel.
///
/// # Durability
/// A call that makes a tree returns when the tree and its marker are on the device: a Btrfs snapshot returns with the commit that holds
/// both; ZFS does the same, once the entry is flushed; everything else is flushed. A power cut may lose the rename to the tree's name. The journal then says that the tree was made, and
/// recovery renames it again ([`crate::plan::DiskStep::Commit`]). So no commit of the file system is needed before a tree is reported as
/// made, and none is done: it would double the time, and slow down every other writer.
///
/// # Assumptions
/// - One process works on a data root. The caller keeps the journal ([`crate::Journal`]).
///
/// # Caveats
/// - All calls block. With Overlay, a clone of a sealed empty-born tree takes constant time, and `changes` since that tree the time of what
///   changed; a clone of a clone copies what differs from the base. With Btrfs, the time of `clone_tree` and `destroy` does not grow with the tree, and the time of `changes` between a
///   tree and its direct clone grows with what changed. Everything else visits every file.
/// - With Zfs, the time of `clone_tree` and `destroy` is that of two to five commands, whatever is in the tree; `changes` visits every file.
/// - A tree deeper than 256 directories can be cloned by Zfs and Btrfs and can always be destroyed. It cannot be sealed or measured. A change list
///   names the directories at that depth and leaves out what is in them.
/// - A change list takes memory in proportion to its limits, however many paths differ.
pub trait Provider: Send + Sync {
    /// Makes an empty tree whose root belongs to `owner`, mode 0755.
    /// Errors: `Conflict` if a tree with another origin has this UID, `Foreign`, `Make`.
    fn create_empty(&self, uid: Uid, owner: Owner) -> Result<Marker, Error>;

    /// Makes a tree with the content of `from`, which is sealed, or live if the provider can clone a live tree atomically (Zfs, Btrfs), or at rest,
    /// mounted nowhere, if the provider can tell that (Overlay, clones only).
    /// Modes, owners, times, extended attributes and links are those of the source.
    /// After Ok the tree survives a power cut: see Durability.
    /// Errors: `NotFound` (no `from`), `SourceNotSealed`, `NestedVolume`, `WrongProvider`, `Conflict`, `Foreign`, `Make`.
    fn clone_tree(&self, uid: Uid, from: Uid, access: CloneAccess) -> Result<Marker, Error>;

    /// Makes a tree with all that is in a folder of the host, of one point in time, and seals it, unless `access` says that somebody is to write to it
    /// before [`Provider::seal`] is called. The folder is only read, and owners stay.
    /// The marker says how it was done, and why so: by a snapshot where the provider can make one of the volume that the folder is or
    /// lies in, else file by file. A file that changes while it is copied makes the copy begin again, three times at most.
    /// Errors: `SourceVanished`, `SourceForbidden` (it is not `owner`'s, or its git repository is not whole), `SourceNested`, `SourceChanging`, `NotALower`,
    /// `Conflict`, `Foreign`, `Make`, `Seal`. After any of them there is no tree.
    fn capture(&self, uid: Uid, source: &HostFolder, owner: Owner, access: CloneAccess) -> Result<Marker, Error>;

    /// Makes the tree read-only for ever and durable, and returns what it holds. The caller has made sure that nobody writes to it.
    /// For a tree that is sealed already, returns the manifest of that time.
    /// Errors: `NotFound`, `WrongProvider`, `Foreign`, `Seal`.
    fn seal(&self, uid: Uid) -> Result<TreeManifest, Error>;

    /// Destroys the tree, whatever is in it: nested subvolumes, immutable files, directories without permissions, mounts. A missing tree is
    /// a success. The file system may give the space back later (Btrfs: within 30 s).
    /// Errors: `Busy` while the tree is mounted outside of the data root, `DependentForks` while overlays have it as their lower layer,
    /// `Foreign`, `WrongProvider`, `Destroy`.
    fn destroy(&self, uid: Uid) -> Result<(), Error>;

    /// Limits what the tree may take on the disk; None ends that. Returns whether the kernel refuses what is over it. A quota may be below
    /// what the tree takes already: then the next write fails. The caller sets a quota before anybody writes to a new tree, and again after
    /// a restart: a power cut may lose one that the marker does not have yet.
    /// Errors: `QuotaTooLarge`, `NotFound`, `WrongProvider`, `Foreign`, `SetQuota`.
    fn set_quota(&self, uid: Uid, quota: Option<Quota>) -> Result<QuotaState, Error>;

    /// Returns the disk usage of the tree, by counters of the file system where there are any; they are as of its last commit, at most 30 s
    /// ago with Btrfs. Of a clone of a sealed tree Btrfs, where simple quotas count, and Overlay read only what differs. Otherwise as
    /// [`Provider::measure`].
    /// Errors: `NotFound`, `WrongProvider`, `Foreign`, `Measure`.
    fn usage(&self, uid: Uid) -> Result<DiskUsage, Error>;

    /// Returns the disk usage of the tree, without metadata. Visits every file.
    /// Errors: `NotFound`, `WrongProvider`, `Foreign`, `Measure`.
    fn measure(&self, uid: Uid) -> Result<DiskUsage, Error>;

    /// Returns the paths that differ from `since`, a sealed or read-only tree, including those in `.git`, as far as `limits` allow.
    /// Of a renamed directory the old paths are deleted and the new ones added.
    /// Errors: `NotFound`, `BaseNotSealed`, `WrongProvider`, `Foreign`, `Compare` (of the reason `Cancelled`, too).
    fn changes(&self, uid: Uid, since: Uid, limits: &ChangeLimits) -> Result<ChangeList, Error>;

    /// Returns the paths of the tree as added, as far as `limits` allow.
    /// Errors: `NotFound`, `WrongProvider`, `Foreign`, `Compare` (of the reason `Cancelled`, too).
    fn contents(&self, uid: Uid, limits: &ChangeLimits) -> Result<ChangeList, Error>;

    /// Opens the root directory of the tree as its users see it, read-only if the tree is the base of overlays.
    /// Errors: `NotFound`, `WrongProvider`, `Foreign`, `Open` (of the reason `Busy` while an overlay is mounted where this process cannot see
    /// it), `LowerLost`.
    fn open_tree(&self, uid: Uid) -> Result<TreeDir, Error>;

    /// Returns a mount of the tree that is attached nowhere, for [`crate::mount::bind_tree`]. A tree that is mounted already is not mounted a
    /// second time: the result is another view of the same file system. Errors: as [`Provider::open_tree`].
    fn open_for_mount(&self, uid: Uid) -> Result<TreeMount, Error>;

    /// The live tree of this provider whose root a mount shows; None if it shows something else, a part of a tree, or a tree of another data
    /// root.
    fn mounted_tree(&self, mount: &Mount) -> Option<Uid>;
}
