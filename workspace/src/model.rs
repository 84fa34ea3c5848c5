//! The words of the disk: what a tree is, what was found in it, what changed. All plain data, so that they may cross a socket.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::Uid;

/// How a tree is made and kept apart from its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ProviderKind {
    /// A Btrfs subvolume; clones are snapshots, atomic even while the source is written.
    Btrfs,
    /// A plain directory; clones are full copies of a sealed source.
    Copy,
}

impl ProviderKind {
    /// The name that users see in `spec.provider` and `status.provider.selected`.
    pub fn as_str(self) -> &'static str {
        match self {
            ProviderKind::Btrfs => "Btrfs",
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
    pub uid: u32,
    pub gid: u32,
}

/// Whether a clone will be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CloneAccess {
    ReadWrite,
    /// The clone is never written: it is a checkpoint, may serve as `since` of a change list and as a source of clones.
    ReadOnly,
}

/// How a tree came to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Making {
    Empty { owner: Owner },
    Clone { from: Uid, access: CloneAccess },
}

/// The owner marker that stands beside every tree, out of the agent's sight. A directory without one, or with
/// another's UID in it, is foreign and is never touched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Marker {
    /// Always 1.
    pub version: u32,
    pub uid: Uid,
    pub provider: ProviderKind,
    pub making: Making,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sealed: Option<Seal>,
}

impl Marker {
    /// True if nothing writes this tree any more: it is sealed, or was born read-only.
    pub fn is_frozen(&self) -> bool {
        self.sealed.is_some() || self.is_born_read_only()
    }

    /// True if it was never writable.
    pub fn is_born_read_only(&self) -> bool {
        matches!(self.making, Making::Clone { access: CloneAccess::ReadOnly, .. })
    }
}

/// What the marker of a sealed tree keeps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seal {
    #[serde(flatten)]
    pub manifest: TreeManifest,
    /// Btrfs only: the last transaction that could have changed this tree; a later one belongs to a descendant.
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

/// What a tree weighs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DiskUsage {
    /// Sum of the sizes of regular files, hard links counted once, in bytes.
    pub logical_bytes: u64,
    /// Bytes of file data on disk that no other tree shares. Metadata (about 34 KiB for a fresh snapshot) is not in it.
    pub exclusive_bytes: u64,
    /// All entries below the root.
    pub entries: u64,
}

/// What happened to a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ChangeKind {
    Added,
    /// Content, size, mtime, mode or owner differ. A file rewritten with the same content may appear.
    Modified,
    Deleted,
}

/// What stands (or, for a deletion, stood) at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum NodeKind {
    File,
    Dir,
    Symlink,
    /// Socket, FIFO or device.
    Special,
}

/// One changed path, relative to the root of the tree.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Change {
    /// A string on the wire, or an array of bytes where the name is no UTF-8.
    #[serde(with = "path_bytes")]
    pub path: PathBuf,
    pub kind: ChangeKind,
    pub node: NodeKind,
}

mod path_bytes {
    use std::ffi::OsString;
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    use std::path::{Path, PathBuf};

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    #[serde(untagged)]
    enum Spelling {
        Text(String),
        Bytes(Vec<u8>),
    }

    pub fn serialize<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
        match path.to_str() {
            Some(text) => Spelling::Text(text.to_owned()),
            None => Spelling::Bytes(path.as_os_str().as_bytes().to_vec()),
        }
        .serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
        Ok(match Spelling::deserialize(from)? {
            Spelling::Text(text) => PathBuf::from(text),
            Spelling::Bytes(bytes) => PathBuf::from(OsString::from_vec(bytes)),
        })
    }
}

/// Where an entry was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Place {
    /// Under its temporary name: a creation that did not reach its commit point.
    Building,
    /// Under its name.
    Live,
    /// Renamed away: a destruction that did not end.
    Trash,
}

/// One entry of the data root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataRootEntry {
    pub uid: Uid,
    pub place: Place,
    /// None: no marker, or one that names another UID.
    pub marker: Option<Marker>,
}

/// Everything in the data root, as found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inventory {
    pub entries: Vec<DataRootEntry>,
    /// Names that this crate would never give, with their directory. Never touched.
    pub foreign: Vec<String>,
    /// Entries under our names that the disk did not let us look into. Nothing is known of them, so nothing is done to them.
    #[serde(default)]
    pub unreadable: Vec<Unreadable>,
}

/// An entry that could not be looked into.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unreadable {
    pub uid: Uid,
    /// The system's own words.
    pub why: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStringExt;

    #[test]
    fn names_that_are_no_utf8_survive_the_wire() {
        for raw in [b"plain".to_vec(), vec![b'a', 0xff, b'/', 0xfe]] {
            let change = Change { path: PathBuf::from(std::ffi::OsString::from_vec(raw)), kind: ChangeKind::Added, node: NodeKind::File };
            let wire = serde_json::to_string(&change).unwrap();
            assert_eq!(serde_json::from_str::<Change>(&wire).unwrap(), change);
        }
    }
}
