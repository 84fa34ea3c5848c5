use crate::{Change, CloneAccess, DiskUsage, Error, Marker, Owner, TreeManifest, Uid};

/// Makes, clones, seals and destroys trees.
///
/// # Guarantees
/// - Every verb may be said twice: a second call finds the work done, or finishes it.
/// - A tree appears under its name whole or not at all (rename is the commit point).
/// - A directory without our marker is refused with [`Error::Foreign`] and stays as it was.
/// - Verbs on one UID run one at a time within this process; clones of one source run side by side.
///
/// # Durability
/// A verb that makes a tree answers when the tree and its marker are on the device: a Btrfs snapshot returns with the commit that holds
/// both, everything else is flushed. The rename to its name may be lost by a power cut; then the journal says that the tree stood, and
/// recovery renames it again ([`crate::plan::DiskStep::Commit`]). So no commit of the file system is needed before a tree is reported as
/// made, and none is done: it would double the time, and cost the neighbours.
///
/// # Assumptions
/// - One process works on a data root; the journal around it is the caller's ([`crate::Journal`]).
///
/// # Caveats
/// - All verbs block. By Btrfs, `clone_tree` and `destroy` do not grow with the tree, and `changes` between a tree and its direct
///   clone grows with what changed; everything else visits every file.
/// - A tree deeper than 256 directories can be cloned by Btrfs and always destroyed, but neither sealed, measured nor compared.
pub trait Provider: Send + Sync {
    /// An empty tree whose root belongs to `owner`, mode 0755.
    /// Errors: `Conflict` if this UID stands for a tree made otherwise, `Foreign`, `Make`.
    fn create_empty(&self, uid: Uid, owner: Owner) -> Result<Marker, Error>;

    /// A tree with the content of `from`, which is sealed, or live where the provider can fork atomically (Btrfs).
    /// Modes, owners, times, extended attributes and links are the source's; nothing is chowned.
    /// Once it has answered, a power cut does not take the tree away: see Durability.
    /// Errors: `NotFound` (no `from`), `SourceNotSealed`, `NestedVolume`, `WrongProvider`, `Conflict`, `Foreign`, `Make`.
    fn clone_tree(&self, uid: Uid, from: Uid, access: CloneAccess) -> Result<Marker, Error>;

    /// Ends writing to this tree for ever, makes it durable, and says what it holds. The caller has seen its writers gone.
    /// A sealed tree answers with the manifest of its sealing.
    /// Errors: `NotFound`, `WrongProvider`, `Foreign`, `Seal`.
    fn seal(&self, uid: Uid) -> Result<TreeManifest, Error>;

    /// Ends this tree, whatever stands in it: nested subvolumes, immutable files, closed directories, mounts. Gone is done.
    /// The file system may give the space back later.
    /// Errors: `Busy` while a mount elsewhere shows the tree, `Foreign`, `WrongProvider`, `Destroy`.
    fn destroy(&self, uid: Uid) -> Result<(), Error>;

    /// What the tree weighs. Visits every file.
    /// Errors: `NotFound`, `WrongProvider`, `Foreign`, `Measure`.
    fn usage(&self, uid: Uid) -> Result<DiskUsage, Error>;

    /// Every path that differs from `since`, a sealed or read-only tree, sorted by path; also what is inside `.git`.
    /// A renamed directory is its old paths deleted and its new paths added.
    /// Errors: `NotFound`, `BaseNotSealed`, `WrongProvider`, `Foreign`, `Compare`.
    fn changes(&self, uid: Uid, since: Uid) -> Result<Vec<Change>, Error>;

    /// Every path of the tree, as if each had been added to nothing; sorted by path.
    /// Errors: `NotFound`, `WrongProvider`, `Foreign`, `Compare`.
    fn contents(&self, uid: Uid) -> Result<Vec<Change>, Error>;
}
