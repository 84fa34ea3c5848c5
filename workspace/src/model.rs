//! What a tree is, what was found in the data root, what changed. All plain data with serde: it crosses a socket.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::{Quota, Uid};

/// How a tree is made and isolated from its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ProviderKind {
    /// A ZFS dataset; clones are clones of a snapshot, atomic even while the source is written.
    Zfs,
    /// A Btrfs subvolume; clones are snapshots, atomic even while the source is written.
    Btrfs,
    /// A base is a directory; its clones are overlays of it, made in constant time. A clone of a clone copies what differs from the base.
    Overlay,
    /// A directory; clones are new directories whose files share all blocks with a sealed source.
    Reflink,
    /// A directory; clones are full copies of a sealed source, though the file system may share blocks of its own accord.
    Copy,
}

impl ProviderKind {
    /// All of them, the best first.
    pub const ALL: [ProviderKind; 5] =
        [ProviderKind::Zfs, ProviderKind::Btrfs, ProviderKind::Overlay, ProviderKind::Reflink, ProviderKind::Copy];

    /// The name that users see in `spec.provider` and `status.provider.selected`.
    pub fn as_str(self) -> &'static str {
        match self {
            ProviderKind::Zfs => "Zfs",
            ProviderKind::Btrfs => "Btrfs",
            ProviderKind::Overlay => "Overlay",
            ProviderKind::Reflink => "Reflink",
            ProviderKind::Copy => "Copy",
        }
    }
}

impl std::fmt::Display for ProviderKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Who owns the root of an empty tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// User id on the node.
    pub uid: u32,
    /// Group id on the node.
    pub gid: u32,
}

/// Whether a clone will be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CloneAccess {
    /// The clone may be written.
    ReadWrite,
    /// The clone is never written. It is a checkpoint: changes can be counted from it, and it can be cloned.
    ReadOnly,
}

/// What a tree was made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TreeOrigin {
    /// Nothing.
    Empty {
        /// Owner of the root directory.
        owner: Owner,
    },
    /// Another tree.
    Clone {
        /// The source.
        from: Uid,
        /// Whether the clone is written.
        access: CloneAccess,
    },
    /// A folder of the host, with all that was in it. The tree is sealed as soon as it is made.
    Host {
        /// Owner of the folder.
        owner: Owner,
    },
}

/// How a folder of the host became a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CaptureMethod {
    /// By a snapshot of the volume that the folder is, or lies in: of one moment, in constant time.
    Snapshot,
    /// File by file, each sharing its blocks with the folder's.
    Reflinked,
    /// File by file. At least one file shares no blocks with the folder's.
    Copied,
}

/// What the marker says of a tree that was a folder of the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Captured {
    /// How the tree was made.
    pub how: CaptureMethod,
    /// Why it was not made in a better way, or what made the best one possible: a part of a sentence for people.
    pub why: String,
}

/// The owner marker beside every tree, outside of what the agent sees. A directory without a marker, or with the marker of another UID, is
/// foreign and is never changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Marker {
    /// Always 1.
    pub version: u32,
    /// The UID of the tree, which is also its name on disk.
    pub uid: Uid,
    /// The provider that made the tree.
    pub provider: ProviderKind,
    /// What the tree was made from.
    #[serde(rename = "making")]
    pub origin: TreeOrigin,
    /// Zfs only: the dataset below which the tree's own is. It may not be the one that is used now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_dataset: Option<String>,
    /// Zfs only: the dataset of the host that the tree began as a clone of. Its snapshot bears the tree's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_dataset: Option<String>,
    /// Overlay only: the sealed tree that is the lower layer of this one. A clone of a clone has the lower layer of its source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lower: Option<Uid>,
    /// The quota that the kernel enforces. It is set before it stands here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota: Option<Quota>,
    /// The folder of the volume that is the root of the tree. Empty, unless the tree began as a snapshot of a volume in which a folder of
    /// the host lies; then it and all its clones show only this folder.
    #[serde(default, skip_serializing_if = "is_empty", with = "path_bytes")]
    pub below: PathBuf,
    /// Present if the tree was a folder of the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub captured: Option<Captured>,
    /// Present once the tree is sealed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sealed: Option<Seal>,
}

fn is_empty(path: &Path) -> bool {
    path.as_os_str().is_empty()
}

impl Marker {
    /// The marker of a tree that is being made: with no lower layer, no quota, not captured, not sealed.
    pub fn new(uid: Uid, provider: ProviderKind, origin: TreeOrigin) -> Self {
        Self {
            version: 1,
            uid,
            provider,
            origin,
            parent_dataset: None,
            host_dataset: None,
            lower: None,
            quota: None,
            below: PathBuf::new(),
            captured: None,
            sealed: None,
        }
    }

    /// True if nobody can write this tree any more: it is sealed, or is a read-only clone.
    pub fn is_frozen(&self) -> bool {
        self.sealed.is_some() || self.is_read_only_clone()
    }

    /// True if the tree is a read-only clone.
    pub fn is_read_only_clone(&self) -> bool {
        matches!(self.origin, TreeOrigin::Clone { access: CloneAccess::ReadOnly, .. })
    }
}

/// What the marker of a sealed tree says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seal {
    /// What the tree holds.
    #[serde(flatten)]
    pub manifest: TreeManifest,
    /// Btrfs only: the last transaction that can have changed this tree. Later ones changed clones of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transid: Option<u64>,
}

/// What a sealed tree holds. Equal trees have equal digests under every provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TreeManifest {
    /// Regular files, symbolic links and special files.
    pub files: u64,
    /// Directories below the root.
    pub dirs: u64,
    /// Sum of the sizes of regular files, in bytes.
    pub bytes: u64,
    /// The commit that `.git/HEAD` names at the root: 40 or 64 hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git_head: Option<String>,
    /// BLAKE3, in hexadecimal, of path, kind, size and mtime of every entry, depth first, siblings in byte order.
    pub digest: String,
}

/// The disk usage of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DiskUsage {
    /// Sum of the sizes of regular files, hard links counted once, in bytes.
    pub logical_bytes: u64,
    /// Bytes of file data on disk that no other tree shares. Where simple quotas of Btrfs count, it is what they charge to the tree, with its
    /// metadata (16 KiB for a fresh snapshot); with Zfs metadata is in it as well, and blocks that a tree and its clones share count for the
    /// tree that they were cloned from. Else metadata is not in it.
    pub exclusive_bytes: u64,
    /// Number of entries below the root, directories included.
    pub entries: u64,
    /// What a quota of this tree is compared with. None if the file system does not count it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub charged_bytes: Option<u64>,
}

/// What happened to a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ChangeKind {
    /// The path is new, or another type of file than before.
    Added,
    /// Content, size, mtime, mode or owner differ. A file rewritten with the same content may appear.
    Modified,
    /// The path is gone, or another type of file than before.
    Deleted,
}

/// The type of the file at a path; for a deletion, the former type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum NodeKind {
    /// Regular file.
    File,
    /// Directory.
    Dir,
    /// Symbolic link.
    Symlink,
    /// Socket, FIFO or device.
    Special,
}

/// One changed path, relative to the root of the tree.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Change {
    /// Serialized as a string, or as an array of bytes if it is not UTF-8.
    #[serde(with = "path_bytes")]
    pub path: PathBuf,
    /// What happened.
    pub kind: ChangeKind,
    /// The type of the file.
    pub node: NodeKind,
}

pub(crate) mod path_bytes {
    use std::ffi::OsString;
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    use std::path::{Path, PathBuf};

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    #[serde(untagged)]
    enum PathForm {
        Text(String),
        Bytes(Vec<u8>),
    }

    impl From<&Path> for PathForm {
        fn from(path: &Path) -> Self {
            match path.to_str() {
                Some(text) => PathForm::Text(text.to_owned()),
                None => PathForm::Bytes(path.as_os_str().as_bytes().to_vec()),
            }
        }
    }

    impl From<PathForm> for PathBuf {
        fn from(form: PathForm) -> Self {
            match form {
                PathForm::Text(text) => PathBuf::from(text),
                PathForm::Bytes(bytes) => PathBuf::from(OsString::from_vec(bytes)),
            }
        }
    }

    pub fn serialize<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
        PathForm::from(path).serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
        Ok(PathForm::deserialize(from)?.into())
    }

    pub fn serialize_all<S: Serializer>(paths: &[PathBuf], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(paths.iter().map(|path| PathForm::from(path.as_path())))
    }

    pub fn deserialize_all<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<PathBuf>, D::Error> {
        Ok(Vec::<PathForm>::deserialize(from)?.into_iter().map(PathBuf::from).collect())
    }
}

/// Where an entry was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum EntryLocation {
    /// Under its temporary name: a creation that has not reached its commit point.
    Building,
    /// Under its name.
    Live,
    /// In the trash: a destruction that has not ended.
    Trash,
}

/// One entry of the data root: the folder of one tree, with its marker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataRootEntry {
    /// The UID in its name.
    pub uid: Uid,
    /// Where it was found.
    #[serde(rename = "place")]
    pub location: EntryLocation,
    /// None if it has no marker, or the marker of another UID.
    pub marker: Option<Marker>,
    /// When it was made, in seconds since 1970. None if the file system does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_seconds: Option<i64>,
}

/// Everything in the data root, as found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inventory {
    /// What has one of our names, sorted by UID.
    pub entries: Vec<DataRootEntry>,
    /// Paths below the data root whose names this crate never gives. They are never changed.
    pub foreign: Vec<String>,
    /// Entries with our names that could not be read. Nothing is known of them, so nothing is done to them.
    #[serde(default)]
    pub unreadable: Vec<UnreadableEntry>,
}

/// An entry that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnreadableEntry {
    /// The UID in its name.
    pub uid: Uid,
    /// The path and the error.
    pub why: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStringExt;

    #[test]
    fn names_that_are_not_utf8_are_serialized_whole() {
        for raw in [b"plain".to_vec(), vec![b'a', 0xff, b'/', 0xfe]] {
            let change = Change { path: PathBuf::from(std::ffi::OsString::from_vec(raw)), kind: ChangeKind::Added, node: NodeKind::File };
            let wire = serde_json::to_string(&change).unwrap();
            assert_eq!(serde_json::from_str::<Change>(&wire).unwrap(), change);
        }
    }
}
