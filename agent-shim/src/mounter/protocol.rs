//! The words between shim and mounter: UIDs and enums, never paths or option strings.

use serde::{Deserialize, Serialize};
use yoi_workspace::plan::{DiskStep, RecoveryStep};
use yoi_workspace::{Change, CloneAccess, ErrorReason, Expected, Inventory, Marker, Owner, Probe, ProviderKind, TreeManifest, Uid};

use super::log_context::LogContext;
use crate::runtime_digest::RuntimeDigest;
use crate::volume::PodVolume;

/// What stands in a frame from the shim.
#[derive(Debug, Serialize, Deserialize)]
pub struct Envelope {
    #[serde(rename = "whose")]
    pub context: LogContext,
    #[serde(rename = "verb")]
    pub request: Request,
}

/// What the shim may ask for. Each may be said twice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Opens the data root, if it is what is expected: the first question to a mounter that has just started. Answers [`Response::Opened`].
    Open { expected: Expected },
    /// What this node offers, tried for real. Answers [`Response::Offers`].
    Probe,
    /// Everything in the data root. Answers [`Response::Trees`].
    Inventory,
    /// Our mounts below the kubelet's root folder, and the Pods that the kubelet still keeps a folder for. Answers [`Response::Mounts`].
    Mounts,
    /// An empty tree. Answers [`Response::Made`].
    CreateEmpty { uid: Uid, provider: ProviderKind, owner: Owner },
    /// A tree with the content of `from`. Answers [`Response::Made`].
    Clone { uid: Uid, provider: ProviderKind, from: Uid, access: CloneAccess },
    /// Answers [`Response::Sealed`].
    Seal { uid: Uid },
    /// Ends a tree of ours, whoever made it. Gone is done. Answers [`Response::Done`].
    Destroy { uid: Uid },
    /// One step of recovery. Answers [`Response::Done`].
    Recover { step: DiskStep },
    /// Shows a tree to a Pod. Answers [`Response::Done`].
    Publish { tree: Uid, volume: PodVolume, access: CloneAccess },
    /// Shows the Pod's own folder, which must hold the runtime of this digest, read-only. Answers [`Response::Done`].
    PublishRuntime { volume: PodVolume, digest: RuntimeDigest },
    /// Takes every mount off the volume's target and removes the target. Gone is done. Answers [`Response::Done`].
    Unpublish { volume: PodVolume },
    /// What differs from `since`, or from nothing. Answers [`Response::Changes`].
    Changes { uid: Uid, since: Option<Uid>, limit: u32 },
}

impl Request {
    /// Whether the disk or the mount table may be another one afterwards.
    pub fn changes_node(&self) -> bool {
        match self {
            Request::Open { .. } | Request::Probe | Request::Inventory | Request::Mounts | Request::Changes { .. } => false,
            Request::CreateEmpty { .. }
            | Request::Clone { .. }
            | Request::Seal { .. }
            | Request::Destroy { .. }
            | Request::Recover { .. } => true,
            Request::Publish { .. } | Request::PublishRuntime { .. } | Request::Unpublish { .. } => true,
        }
    }

    /// The UIDs of the workspace and of the Pod that it is about, for logs.
    pub fn subjects(&self) -> (Option<Uid>, Option<Uid>) {
        match self {
            Request::Open { .. } | Request::Probe | Request::Inventory | Request::Mounts => (None, None),
            Request::CreateEmpty { uid, .. } | Request::Clone { uid, .. } | Request::Seal { uid } => (Some(*uid), None),
            Request::Destroy { uid } | Request::Changes { uid, .. } => (Some(*uid), None),
            Request::Recover { step } => (Some(RecoveryStep::Disk(*step).uid()), None),
            Request::Publish { tree, volume, .. } => (Some(*tree), Some(volume.pod)),
            Request::PublishRuntime { volume, .. } | Request::Unpublish { volume } => (None, Some(volume.pod)),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Response {
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
    pub shown: Vec<PublishedMount>,
    /// Pods with a folder below the kubelet's.
    pub pods: Vec<Uid>,
}

/// A mount of ours at the target of a Pod's volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublishedMount {
    pub volume: PodVolume,
    pub what: MountedContent,
    pub read_only: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MountedContent {
    Tree(Uid),
    Runtime,
}

/// The mounter understood and did not do it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    pub reason: ErrorReason,
    pub message: String,
}
