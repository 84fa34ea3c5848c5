//! The words between shim and mounter: UIDs and enums, never paths or option strings.

use serde::{Deserialize, Serialize};
use yoi_workspace::plan::{DiskStep, RecoveryStep};
use yoi_workspace::{Change, CloneAccess, ErrorReason, ExpectedRoot, Inventory, Marker, Owner, Probe, ProviderKind, TreeManifest, Uid};

use super::whose::Whose;
use crate::volume::PodVolume;

/// What stands in a frame from the shim.
#[derive(Debug, Serialize, Deserialize)]
pub struct Question {
    pub whose: Whose,
    pub verb: Verb,
}

/// What the shim may ask for. Each may be said twice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verb {
    /// Opens the data root, if it is what is expected: the first question to a mounter that has just started. Answers [`Answer::Opened`].
    Open { expected: ExpectedRoot },
    /// What this node offers, tried for real. Answers [`Answer::Offers`].
    Probe,
    /// Everything in the data root. Answers [`Answer::Trees`].
    Inventory,
    /// Our mounts below the kubelet's root folder, and the Pods that the kubelet still keeps a folder for. Answers [`Answer::Mounts`].
    Mounts,
    /// An empty tree. Answers [`Answer::Made`].
    CreateEmpty { uid: Uid, provider: ProviderKind, owner: Owner },
    /// A tree with the content of `from`. Answers [`Answer::Made`].
    Clone { uid: Uid, provider: ProviderKind, from: Uid, access: CloneAccess },
    /// Answers [`Answer::Sealed`].
    Seal { uid: Uid },
    /// Ends a tree of ours, whoever made it. Gone is done. Answers [`Answer::Done`].
    Destroy { uid: Uid },
    /// One step of recovery. Answers [`Answer::Done`].
    Recover { step: DiskStep },
    /// Shows a tree to a Pod. Answers [`Answer::Done`].
    Publish { tree: Uid, volume: PodVolume, access: CloneAccess },
    /// Shows the Pod's own folder, which must hold the runtime of this digest, read-only. Answers [`Answer::Done`].
    PublishRuntime { volume: PodVolume, digest: Digest },
    /// Takes every mount off the volume's target and removes the target. Gone is done. Answers [`Answer::Done`].
    Unpublish { volume: PodVolume },
    /// What differs from `since`, or from nothing. Answers [`Answer::Changes`].
    Changes { uid: Uid, since: Option<Uid>, limit: u32 },
}

impl Verb {
    /// Whether the disk or the mount table may be another one afterwards.
    pub fn is_deed(&self) -> bool {
        match self {
            Verb::Open { .. } | Verb::Probe | Verb::Inventory | Verb::Mounts | Verb::Changes { .. } => false,
            Verb::CreateEmpty { .. } | Verb::Clone { .. } | Verb::Seal { .. } | Verb::Destroy { .. } | Verb::Recover { .. } => true,
            Verb::Publish { .. } | Verb::PublishRuntime { .. } | Verb::Unpublish { .. } => true,
        }
    }

    /// The UIDs of the workspace and of the Pod that it is about, for logs.
    pub fn about(&self) -> (Option<Uid>, Option<Uid>) {
        match self {
            Verb::Open { .. } | Verb::Probe | Verb::Inventory | Verb::Mounts => (None, None),
            Verb::CreateEmpty { uid, .. } | Verb::Clone { uid, .. } | Verb::Seal { uid } => (Some(*uid), None),
            Verb::Destroy { uid } | Verb::Changes { uid, .. } => (Some(*uid), None),
            Verb::Recover { step } => (Some(RecoveryStep::Disk(*step).uid()), None),
            Verb::Publish { tree, volume, .. } => (Some(*tree), Some(volume.pod)),
            Verb::PublishRuntime { volume, .. } | Verb::Unpublish { volume } => (None, Some(volume.pod)),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    Done,
    /// The data root's own name.
    Opened(Uid),
    Offers(Probe),
    Trees(Inventory),
    Mounts(Mounts),
    Made(Marker),
    Sealed(TreeManifest),
    Changes {
        changes: Vec<Change>,
        cut: bool,
    },
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mounts {
    pub shown: Vec<Shown>,
    /// Pods with a folder below the kubelet's.
    pub pods: Vec<Uid>,
}

/// A mount of ours at the target of a Pod's volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shown {
    pub volume: PodVolume,
    pub what: What,
    pub read_only: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum What {
    Tree(Uid),
    Runtime,
}

/// The mounter understood and did not do it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Refused {
    pub reason: ErrorReason,
    pub message: String,
}

/// Hex SHA-256 of a runtime binary; safe as a file name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest(String);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("failed to accept the runtime digest: it is not 64 lower-case hexadecimal digits")]
pub struct NotADigest;

impl Digest {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Digest {
    type Error = NotADigest;
    fn try_from(text: String) -> Result<Self, NotADigest> {
        let hex = text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        if text.len() == 64 && hex { Ok(Digest(text)) } else { Err(NotADigest) }
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> String {
        digest.0
    }
}
