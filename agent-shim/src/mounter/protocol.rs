//! The protocol between shim and mounter: UIDs and enums, never option strings, and no paths but those of covers, which are relative to a tree.

use serde::{Deserialize, Serialize};
use yoi_workspace::mount::{Cover, LaidCover, Shown};
use yoi_workspace::plan::{DiskStep, RecoveryStep};
use yoi_workspace::{
    ChangeList, CloneAccess, DiskUsage, ErrorReason, ExpectedRoot, Inventory, Marker, Owner, Probe, ProviderKind, Quota, QuotaState,
    TreeManifest, Uid,
};

use super::log_context::LogContext;
use crate::host_sources::HostSourceName;
use crate::runtime_digest::RuntimeDigest;
use crate::volume::PodVolume;

/// The content of a frame from the shim.
#[derive(Debug, Serialize, Deserialize)]
pub struct Envelope {
    /// Whom the request is for, for the log.
    #[serde(rename = "whose")]
    pub context: LogContext,
    /// What to do.
    #[serde(rename = "verb")]
    pub request: Request,
}

/// What the shim can ask for. Each request can be repeated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Opens the data root if it is the expected one. It is the first request to a mounter that has started. Returns [`Response::Opened`].
    Open {
        /// Which data root is expected.
        expected: ExpectedRoot,
    },
    /// What this node offers, found by trying it. Returns [`Response::Offers`].
    Probe,
    /// Everything in the data root. Returns [`Response::Trees`].
    Inventory,
    /// Our mounts below the kubelet's root directory, and the Pods that the kubelet has a directory for. Returns [`Response::Mounts`].
    Mounts,
    /// Makes an empty tree. Returns [`Response::Made`].
    CreateEmpty {
        /// UID of the workspace whose tree it is.
        uid: Uid,
        /// Which provider makes it.
        provider: ProviderKind,
        /// Owner of the root directory.
        owner: Owner,
    },
    /// Makes a tree with the content of `from`. Returns [`Response::Made`].
    Clone {
        /// UID of the workspace whose tree it is.
        uid: Uid,
        /// Which provider makes it.
        provider: ProviderKind,
        /// UID of the tree to clone.
        from: Uid,
        /// Whether the tree or mount can be written.
        access: CloneAccess,
    },
    /// Makes a tree with the content of a folder of the host, and seals it unless it is to be written to first. Returns [`Response::Made`].
    Capture {
        /// UID of the workspace whose tree it is.
        uid: Uid,
        /// Which provider makes it.
        provider: ProviderKind,
        /// Which folder.
        source: HostSourceName,
        /// Owner that the folder must have.
        owner: Owner,
        /// Whether something is to be written to the tree before it is sealed.
        access: CloneAccess,
    },
    /// Which of the listed folders of the host are there. Returns [`Response::HostSources`].
    HostSources,
    /// Makes a tree read-only for good. Returns [`Response::Sealed`].
    Seal {
        /// UID of the workspace whose tree it is.
        uid: Uid,
    },
    /// Sets, changes or ends the quota of a tree. Returns [`Response::Quota`].
    SetQuota {
        /// UID of the workspace whose tree it is.
        uid: Uid,
        /// None: no quota.
        quota: Option<Quota>,
    },
    /// Measures a tree, by counters of the file system if there are any. Returns [`Response::Usage`].
    Usage {
        /// UID of the workspace whose tree it is.
        uid: Uid,
    },
    /// Destroys a tree of ours. Succeeds if there is none. Returns [`Response::Done`].
    Destroy {
        /// UID of the workspace whose tree it is.
        uid: Uid,
    },
    /// Performs one step of recovery. Returns [`Response::Done`].
    Recover {
        /// The step, from [`yoi_workspace::plan::recover`].
        step: DiskStep,
    },
    /// Mounts a tree at the target of a volume. Returns [`Response::Done`].
    Publish {
        /// UID of the workspace.
        tree: Uid,
        /// The volume of the Pod.
        volume: PodVolume,
        /// Whether the tree or mount can be written.
        access: CloneAccess,
        /// What is laid over paths of the tree, the outer first. With all of it, or not at all.
        covers: Vec<Cover>,
    },
    /// Mounts the Pod's own directory read-only. It must hold the runtime with this digest. Returns [`Response::Done`].
    PublishRuntime {
        /// The volume of the Pod.
        volume: PodVolume,
        /// The runtime that the directory must hold.
        digest: RuntimeDigest,
    },
    /// Unmounts everything at the target of a volume and removes the target. Succeeds if there is none. Returns [`Response::Done`].
    Unpublish {
        /// The volume of the Pod.
        volume: PodVolume,
    },
    /// Closes paths of a tree that a Pod has mounted, while the Pod runs: those that this view closes and that are open yet. Opens none. Said twice it is done once.
    /// Returns [`Response::Done`].
    Cover {
        /// The volume of the Pod.
        volume: PodVolume,
        /// Whether anything of the tree can be written by this Pod at all.
        access: CloneAccess,
        /// All covers of the view, the outer first, those that lie there already among them.
        view: Vec<Cover>,
        /// Whether a file with names on both sides of a cover is looked for, in the whole tree, once nobody can make one.
        check_names: bool,
    },
    /// Opens paths of a tree that a Pod has mounted, while the Pod runs: takes off the covers that are not of this view, unless a path that it closes would be open
    /// then. Returns [`Response::Done`].
    Uncover {
        /// The volume of the Pod.
        volume: PodVolume,
        /// Whether anything of the tree can be written by this Pod at all.
        access: CloneAccess,
        /// All covers of the view, the outer first.
        view: Vec<Cover>,
    },
    /// At most `limit` paths that differ from `since`, or from nothing. Returns [`Response::Changes`].
    Changes {
        /// UID of the workspace whose tree it is.
        uid: Uid,
        /// The tree to compare with. None: an empty tree.
        since: Option<Uid>,
        /// The most paths to return.
        limit: u32,
    },
    /// Mounts the data root anew if its file system has become read-only. Refused as `Busy` while Pods or requests use it. Returns
    /// [`Response::Done`].
    MountAnew,
    /// Does a little of what the other requests do, to show that the mounter works. Returns [`Response::Done`].
    Check,
}

impl Request {
    /// Whether the request may change the disk or the mount table.
    pub fn changes_node(&self) -> bool {
        match self {
            Request::Open { .. } | Request::Probe | Request::Inventory | Request::Mounts | Request::HostSources => false,
            Request::Changes { .. } | Request::Usage { .. } | Request::Check => false,
            Request::CreateEmpty { .. }
            | Request::Clone { .. }
            | Request::Capture { .. }
            | Request::Seal { .. }
            | Request::SetQuota { .. }
            | Request::Destroy { .. }
            | Request::Recover { .. } => true,
            Request::Publish { .. } | Request::PublishRuntime { .. } | Request::Unpublish { .. } | Request::MountAnew => true,
            Request::Cover { .. } | Request::Uncover { .. } => true,
        }
    }

    /// The UIDs of the workspace and of the Pod that the request is about, for logs.
    pub fn subjects(&self) -> (Option<Uid>, Option<Uid>) {
        match self {
            Request::Open { .. } | Request::Probe | Request::Inventory | Request::Mounts => (None, None),
            Request::HostSources | Request::MountAnew | Request::Check => (None, None),
            Request::Capture { uid, .. } | Request::CreateEmpty { uid, .. } | Request::Clone { uid, .. } | Request::Seal { uid } => {
                (Some(*uid), None)
            }
            Request::Destroy { uid } | Request::Changes { uid, .. } => (Some(*uid), None),
            Request::SetQuota { uid, .. } | Request::Usage { uid } => (Some(*uid), None),
            Request::Recover { step } => (Some(RecoveryStep::Disk(*step).uid()), None),
            Request::Publish { tree, volume, .. } => (Some(*tree), Some(volume.pod)),
            Request::PublishRuntime { volume, .. } | Request::Unpublish { volume } => (None, Some(volume.pod)),
            Request::Cover { volume, .. } | Request::Uncover { volume, .. } => (None, Some(volume.pod)),
        }
    }
}

/// What the mounter answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Response {
    /// The request was carried out.
    Done,
    /// The name of the data root.
    Opened(Uid),
    /// Providers, capacity and kernel of this node.
    Offers(Probe),
    /// Everything in the data root.
    Trees(Inventory),
    /// Our mounts.
    Mounts(Mounts),
    /// The folders of the host that are there.
    HostSources(Vec<HostSourceName>),
    /// The marker of the tree that was made.
    Made(Marker),
    /// The manifest of the sealed tree.
    Sealed(TreeManifest),
    /// Whether the quota is enforced.
    Quota(QuotaState),
    /// What the tree takes.
    Usage(DiskUsage),
    /// What has changed in a tree.
    Changes(ChangeList),
}

/// What is mounted for Pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mounts {
    /// Our mounts at targets of volumes.
    pub shown: Vec<PublishedMount>,
    /// The Pods that the kubelet has a directory for.
    pub pods: Vec<Uid>,
}

/// A mount of ours at the target of a Pod's volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublishedMount {
    /// The volume.
    pub volume: PodVolume,
    /// What is mounted there.
    pub what: MountedContent,
    /// Whether the mount is read-only.
    pub read_only: bool,
    /// What lies over paths of a tree.
    pub covers: Vec<LaidCover>,
}

impl PublishedMount {
    /// Whether its Pod can write anything there.
    pub fn is_writable(&self) -> bool {
        !self.read_only || self.covers.iter().any(|cover| cover.shown == Shown::Writable)
    }
}

/// What a mount shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MountedContent {
    /// The tree of the workspace with this UID.
    Tree(Uid),
    /// The Pod's own directory.
    Runtime,
}

/// The mounter understood the request and did not carry it out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct MounterRefusal {
    /// The class of the error.
    pub reason: ErrorReason,
    /// The error as one sentence.
    pub message: String,
}
