//! The mounting door: who may mount what, and whether to wait.

use std::collections::HashMap;
use std::path::Path;

use yoi_crds::AgentWorkspace;
use yoi_wire::identity::{CSI_DRIVER, VOLUME_KIND, VOLUME_RUNTIME, VOLUME_RUNTIME_DIGEST, VOLUME_TREE, VOLUME_WORKSPACE};
use yoi_workspace::{CloneAccess, ParseUidError, Record, RecordState, TreeOrigin, Uid};

use crate::mounter::verb::{Digest, NotADigest};
use crate::volume::{ForeignTarget, PodVolume};

/// Set by the kubelet for inline volumes, whatever the Pod's author writes.
const EPHEMERAL: &str = "csi.storage.k8s.io/ephemeral";
const POD_UID: &str = "csi.storage.k8s.io/pod.uid";

/// What a NodePublishVolume asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    pub volume: PodVolume,
    pub what: Wish,
    pub read_only: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    Runtime(Digest),
    /// Inline: only the Pod that the operator names.
    Tree(Uid),
    /// By claim: any Pod that the API server let have the claim.
    Claim(Uid),
}

/// The request can never be right.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Nonsense {
    #[error(transparent)]
    Target(#[from] ForeignTarget),
    #[error("failed to find attribute {VOLUME_KIND} with value {VOLUME_RUNTIME} or {VOLUME_TREE}")]
    Kind,
    #[error("failed to read attribute {VOLUME_WORKSPACE}")]
    Workspace(#[source] ParseUidError),
    #[error("failed to read attribute {VOLUME_RUNTIME_DIGEST}")]
    Digest(#[source] NotADigest),
    #[error("failed to read the volume's handle as the UID of an AgentWorkspace")]
    Handle(#[source] ParseUidError),
    #[error("failed to match the target with the Pod that the kubelet names: CSIDriver {CSI_DRIVER} must set podInfoOnMount")]
    Pod,
}

pub fn asked(
    kubelet_dir: &Path,
    handle: &str,
    target: &str,
    read_only: bool,
    context: &HashMap<String, String>,
) -> Result<Asked, Nonsense> {
    let volume = PodVolume::from_target(kubelet_dir, Path::new(target))?;
    let attribute = |key: &str| context.get(key).map(String::as_str).unwrap_or_default();
    if attribute(POD_UID) != volume.pod.to_string() {
        return Err(Nonsense::Pod);
    }
    let what = match (attribute(EPHEMERAL) == "true", attribute(VOLUME_KIND)) {
        (true, VOLUME_RUNTIME) => Wish::Runtime(attribute(VOLUME_RUNTIME_DIGEST).to_owned().try_into().map_err(Nonsense::Digest)?),
        (true, VOLUME_TREE) => Wish::Tree(attribute(VOLUME_WORKSPACE).parse().map_err(Nonsense::Workspace)?),
        (true, _) => return Err(Nonsense::Kind),
        (false, _) => Wish::Claim(handle.parse().map_err(Nonsense::Handle)?),
    };
    // Nobody may write the runtime that the next Pod of this digest runs.
    let read_only = read_only || matches!(what, Wish::Runtime(_));
    Ok(Asked { volume, what, read_only })
}

/// What is known about the tree that a Pod asks for.
pub struct Known<'a> {
    pub node: &'a str,
    pub workspace: Option<&'a AgentWorkspace>,
    pub record: Option<&'a Record>,
    /// This very volume has shown this tree before, by its publish record.
    pub earlier: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Passage {
    Open(CloneAccess),
    /// It may become right; the sentence says what is missing.
    Wait(String),
    /// Nothing that this shim waits for makes it right.
    Closed(String),
}

/// Whether a Pod may mount a tree now. `inline` is false for claims.
pub fn passage(uid: Uid, pod: Uid, inline: bool, read_only: bool, known: &Known) -> Passage {
    if !known.earlier {
        match permission(uid, pod, inline, known) {
            Passage::Open(_) => {}
            other => return other,
        }
    }
    let Some(record) = known.record else { return Passage::Wait(provisioning(uid, known.workspace)) };
    let frozen = known.workspace.is_some_and(|ws| ws.spec.read_only) || born_read_only(record);
    match record.state {
        RecordState::Creating => Passage::Wait(provisioning(uid, known.workspace)),
        RecordState::Destroying => Passage::Closed(format!("the tree of workspace {uid} is being destroyed")),
        RecordState::Sealing | RecordState::Sealed => Passage::Open(CloneAccess::ReadOnly),
        RecordState::Ready if read_only || frozen => Passage::Open(CloneAccess::ReadOnly),
        RecordState::Ready => Passage::Open(CloneAccess::ReadWrite),
    }
}

fn permission(uid: Uid, pod: Uid, inline: bool, known: &Known) -> Passage {
    let Some(ws) = known.workspace else {
        return Passage::Wait(format!("no AgentWorkspace with UID {uid} is scheduled to node {}", known.node));
    };
    let name = ws.metadata.name.as_deref().unwrap_or_default();
    if ws.metadata.deletion_timestamp.is_some() {
        return Passage::Closed(format!("AgentWorkspace {name} is being deleted"));
    }
    let status = ws.status.as_ref();
    if status.and_then(|s| s.node_name.as_deref()) != Some(known.node) {
        return Passage::Wait(format!("AgentWorkspace {name} is not scheduled to node {}", known.node));
    }
    let mine = pod.to_string();
    match (inline, ws.spec.claim, status.and_then(|s| s.pod_uid.as_deref())) {
        (false, true, _) => Passage::Open(CloneAccess::ReadWrite),
        (false, false, _) => Passage::Closed(format!("AgentWorkspace {name} has no claim: only a YoiPod's Pod mounts it")),
        (true, _, Some(chosen)) if chosen == mine => Passage::Open(CloneAccess::ReadWrite),
        // The operator names the Pod once it is scheduled, and may still name the one before.
        (true, _, Some(chosen)) => Passage::Wait(format!("AgentWorkspace {name} is for the Pod with UID {chosen}")),
        (true, _, None) => Passage::Wait(format!("AgentWorkspace {name} is for no Pod yet")),
    }
}

fn born_read_only(record: &Record) -> bool {
    match record.origin {
        TreeOrigin::Empty { .. } => false,
        TreeOrigin::Clone { access, .. } => access == CloneAccess::ReadOnly,
    }
}

fn provisioning(uid: Uid, ws: Option<&AgentWorkspace>) -> String {
    let said = ws.and_then(|ws| ws.status.as_ref()).map(|s| s.conditions.as_slice()).unwrap_or_default();
    match yoi_crds::condition::find(said, yoi_crds::reason::condition::PROVISIONED) {
        Some(c) if c.status != yoi_crds::ConditionStatus::True => {
            format!("the tree of workspace {uid} is not made: {}: {}", c.reason, c.message)
        }
        Some(_) | None => format!("the tree of workspace {uid} is being made"),
    }
}

#[cfg(test)]
mod tests;
