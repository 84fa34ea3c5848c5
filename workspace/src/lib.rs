//! Makes, clones, seals, measures, mounts and destroys the trees that agents work in. Uses no cluster and no async runtime.
//!
//! # Shape
//! A [`DataRoot`] holds one directory of a node and its [`Provider`]s. It lives in the process that may touch the disk. A [`Journal`] and
//! [`plan`] may live in another process, without privileges. Everything that passes between the two ([`Inventory`], [`plan::DiskStep`],
//! [`Marker`], [`TreeManifest`]) is plain data with serde.
//!
//! # Layout of a data root
//! ```text
//! name                               a symbolic link whose text is the data root's own name
//! trees/<00..3f>/<uid>/marker        a symbolic link whose text is the owner marker (JSON)
//! trees/<00..3f>/<uid>/tree          the tree: a subvolume or a folder
//! trees/<00..3f>/<uid>/{upper,work}  a tree that is an overlay instead, of the sealed `tree` of another entry
//! trees/<00..3f>/<uid>                a tree that is a ZFS dataset instead: only the marker
//! mounted/<uid>                      where a daemon, not the kernel, mounts such a dataset
//! trees/<00..3f>/<uid>.tmp/          the same while it is made; the rename is the commit point
//! trash/<uid>/                       the same while it is destroyed
//! projects/<id>                      a symbolic link whose text is the UID of the tree that the file system counts under this project id
//! ```

#![deny(missing_docs, clippy::unwrap_used, clippy::expect_used)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used))]

mod atomic;
mod btrfs;
mod capture;
mod change_list;
mod compare;
mod copy;
mod data_root;
mod dir;
mod error;
mod extents;
mod faults;
mod folder;
mod host;
mod host_folder;
pub mod journal;
mod layout;
mod linked_files;
mod locks;
pub mod loopback;
mod manifest;
mod model;
pub mod mount;
pub mod mountinfo;
mod overlay;
pub mod plan;
mod probe;
mod projects;
mod provider;
mod quota;
mod read_ahead;
mod reflink;
mod remove;
mod sealed_sizes;
mod set_digest;
mod tree_copy;
mod trees;
mod uid;
mod zfs;

pub use atomic::{write_atomically, write_atomically_with};
pub use change_list::{ChangeLimits, ChangeList};
pub use data_root::{DataRoot, ExpectedRoot, PublishError, RootOptions};
pub use error::{Error, ErrorReason, SysError};
pub use faults::{CommandFault, FaultPoint, Faults, NoFaults, PlantedFault};
pub use host_folder::HostFolder;
pub use journal::{ChangeBase, Journal, JournalError, Record, RecordDetails, RecordState, TreeLabel};
pub use loopback::ensure_loop_btrfs;
pub use model::{
    CaptureMethod, Captured, Change, ChangeKind, CloneAccess, DataRootEntry, DiskUsage, EntryLocation, Inventory, Marker, NodeKind, Owner,
    ProviderKind, Seal, TreeManifest, TreeOrigin, UnreadableEntry,
};
pub use plan::{ProviderChoice, ProviderOffer, ProviderRequest, ProviderUnavailable};
pub use probe::{KernelFacts, Probe, RootFailure};
pub use provider::Provider;
pub use quota::{Quota, QuotaState, QuotaTooSmall};
pub use read_ahead::read_ahead;
pub use trees::TreeDir;
pub use uid::{ParseUidError, SHARDS, Uid};
pub use zfs::{DatasetFolder, DatasetName, ParseDatasetNameError, ZfsOptions};
