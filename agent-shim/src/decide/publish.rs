//! Which volume a NodePublishVolume call requests, and whether the Pod may mount it, must wait, or may not.

use std::collections::HashMap;
use std::path::Path;

use yoi_crds::AgentWorkspace;
use yoi_crds::pod::Scope;
use yoi_wire::cover;
use yoi_wire::identity::{
    CSI_DRIVER, VOLUME_COVERS, VOLUME_KIND, VOLUME_LENDS, VOLUME_RUNTIME, VOLUME_RUNTIME_DIGEST, VOLUME_SCOPED_TREE, VOLUME_TREE,
    VOLUME_WORKSPACE,
};
use yoi_workspace::mount::{Cover, Shown};
use yoi_workspace::{CloneAccess, ParseUidError, Record, RecordState, TreeOrigin, Uid};

use super::loans::{self, HolderAdmission};
use super::provision::access_of_base;
use crate::runtime_digest::{ParseRuntimeDigestError, RuntimeDigest};
use crate::volume::{ForeignTarget, PodVolume};

/// The kubelet sets this attribute for inline volumes, whatever the author of the Pod writes.
const EPHEMERAL: &str = "csi.storage.k8s.io/ephemeral";
const POD_UID: &str = "csi.storage.k8s.io/pod.uid";

/// A NodePublishVolume call that was understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishRequest {
    /// Where to mount.
    pub volume: PodVolume,
    /// What to mount.
    pub requested: RequestedVolume,
    /// Whether the mount must be read-only.
    pub read_only: bool,
    /// What is laid over the tree. None at all for a tree without a scope.
    pub covers: Vec<Cover>,
    /// What the agent of the Pod may do in the tree, if it may lend paths of it.
    pub lends: Option<Scope>,
}

/// What a volume is to show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestedVolume {
    /// Inline: the runtime with this digest.
    Runtime(RuntimeDigest),
    /// Inline: the tree of the workspace with this UID, for the Pod that the operator names.
    Tree(Uid),
    /// By claim: the tree of the workspace with this UID, for any Pod that has the claim.
    Claim(Uid),
}

/// A call that no state of the node can make valid.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRequest {
    /// The target is not a mount target of a CSI volume below the kubelet.
    #[error(transparent)]
    Target(#[from] ForeignTarget),
    /// An inline volume without a known kind.
    #[error("failed to find attribute {VOLUME_KIND} with value {VOLUME_RUNTIME}, {VOLUME_TREE} or {VOLUME_SCOPED_TREE}")]
    Kind,
    /// The workspace is not a UID.
    #[error("failed to read attribute {VOLUME_WORKSPACE}")]
    Workspace(#[source] ParseUidError),
    /// The covers are malformed, or there are none.
    #[error("failed to read attribute {VOLUME_COVERS}: {0}")]
    Covers(String),
    /// What the agent may do in a tree that it may lend from is malformed.
    #[error("failed to read attribute {VOLUME_LENDS}: {0}")]
    Lends(String),
    /// The digest of the runtime is malformed.
    #[error("failed to read attribute {VOLUME_RUNTIME_DIGEST}")]
    Digest(#[source] ParseRuntimeDigestError),
    /// The handle of a PersistentVolume is not a UID.
    #[error("failed to read the volume's handle as the UID of an AgentWorkspace")]
    Handle(#[source] ParseUidError),
    /// The target belongs to another Pod than the attributes say.
    #[error("failed to match the target with the Pod that the kubelet names: CSIDriver {CSI_DRIVER} must set podInfoOnMount")]
    Pod,
}

/// Reads a NodePublishVolume call. `handle` is the volume id, `context` the volume attributes.
pub fn parse_request(
    kubelet_dir: &Path,
    handle: &str,
    target: &str,
    read_only: bool,
    context: &HashMap<String, String>,
) -> Result<PublishRequest, BadRequest> {
    let volume = PodVolume::from_target(kubelet_dir, Path::new(target))?;
    let attribute = |key: &str| context.get(key).map(String::as_str).unwrap_or_default();
    if attribute(POD_UID) != volume.pod.to_string() {
        return Err(BadRequest::Pod);
    }
    let requested = match (attribute(EPHEMERAL) == "true", attribute(VOLUME_KIND)) {
        (true, VOLUME_RUNTIME) => {
            RequestedVolume::Runtime(attribute(VOLUME_RUNTIME_DIGEST).to_owned().try_into().map_err(BadRequest::Digest)?)
        }
        (true, VOLUME_TREE | VOLUME_SCOPED_TREE) => {
            RequestedVolume::Tree(attribute(VOLUME_WORKSPACE).parse().map_err(BadRequest::Workspace)?)
        }
        (true, _) => return Err(BadRequest::Kind),
        (false, _) => RequestedVolume::Claim(handle.parse().map_err(BadRequest::Handle)?),
    };
    let covers = match (&requested, attribute(VOLUME_KIND)) {
        (RequestedVolume::Tree(_), VOLUME_SCOPED_TREE) => parse_covers(attribute(VOLUME_COVERS))?,
        (RequestedVolume::Tree(_) | RequestedVolume::Runtime(_) | RequestedVolume::Claim(_), _) => Vec::new(),
    };
    // All Pods of a digest share the runtime, so no Pod may write it.
    let read_only = read_only || matches!(requested, RequestedVolume::Runtime(_));
    let lends = match (&requested, context.get(VOLUME_LENDS)) {
        (RequestedVolume::Tree(_), Some(text)) => Some(parse_lends(text)?),
        (RequestedVolume::Tree(_) | RequestedVolume::Runtime(_) | RequestedVolume::Claim(_), _) => None,
    };
    Ok(PublishRequest { volume, requested, read_only, covers, lends })
}

fn parse_covers(text: &str) -> Result<Vec<Cover>, BadRequest> {
    let shown = |shown: cover::Shown| match shown {
        cover::Shown::Writable => Shown::Writable,
        cover::Shown::ReadOnly => Shown::ReadOnly,
        cover::Shown::Hidden => Shown::Hidden,
    };
    let covers: Vec<cover::Cover> = serde_json::from_str(text).map_err(|error| BadRequest::Covers(error.to_string()))?;
    if covers.is_empty() {
        return Err(BadRequest::Covers("it is empty".to_owned()));
    }
    let of_wire = |of: cover::Cover| Cover {
        path: of.path.into(),
        shown: shown(of.shown),
        shown_file: of.shown_file.map(shown),
        folders: of.folders.map(shown),
    };
    Ok(covers.into_iter().map(of_wire).collect())
}

fn parse_lends(text: &str) -> Result<Scope, BadRequest> {
    let scope: Scope = serde_json::from_str(text).map_err(|error| BadRequest::Lends(error.to_string()))?;
    yoi_plan::scope::rules(&scope).map_err(BadRequest::Lends)?;
    Ok(scope)
}

/// What the node knows of a tree that a Pod requests.
pub struct KnownTree<'a> {
    /// Name of this node.
    pub node: &'a str,
    /// The workspace, if the watch shows it on this node.
    pub workspace: Option<&'a AgentWorkspace>,
    /// The journal record of the tree.
    pub record: Option<&'a Record>,
    /// Whether this volume has shown this tree before, by its publish record.
    pub published_before: bool,
    /// Whether the agent of the Pod may lend paths of the tree.
    pub lends: bool,
}

/// Whether a Pod may mount a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It may.
    Admit(CloneAccess),
    /// Not yet. The sentence says what is missing.
    Wait(String),
    /// No. Nothing that the shim waits for changes that.
    Deny(String),
}

/// Whether a Pod may mount a tree now. `inline` is false for claims. A volume that has shown the tree before needs no permission again, so that
/// a restart of the kubelet does not depend on the API server.
pub fn admission(uid: Uid, pod: Uid, inline: bool, read_only: bool, known: &KnownTree) -> Admission {
    if !known.published_before {
        match pod_admission(uid, pod, inline, read_only, known) {
            Admission::Admit(_) => {}
            other => return other,
        }
    }
    let Some(record) = known.record else { return Admission::Wait(provisioning_message(uid, known.workspace)) };
    let is_read_only = known.workspace.is_some_and(|ws| ws.spec.read_only) || made_read_only(record, known.workspace);
    match record.state {
        RecordState::Creating => Admission::Wait(provisioning_message(uid, known.workspace)),
        RecordState::Destroying => Admission::Deny(format!("the tree of workspace {uid} is being destroyed")),
        RecordState::Sealing | RecordState::Sealed => Admission::Admit(CloneAccess::ReadOnly),
        RecordState::Ready if read_only || is_read_only => Admission::Admit(CloneAccess::ReadOnly),
        RecordState::Ready => Admission::Admit(CloneAccess::ReadWrite),
    }
}

/// Whom the operator names as the Pod that may mount a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Naming {
    /// The one that asks.
    ThisPod,
    /// Another one.
    AnotherPod,
    /// None. It may not have named the one that asks yet, or may have taken the name back because that Pod is to go.
    NoPod,
    /// Whoever has the claim may mount the tree.
    NotNeeded,
}

/// Whom the operator names for the tree of `ws`. `inline` is false for claims.
pub fn naming(pod: Uid, inline: bool, ws: &AgentWorkspace) -> Naming {
    let (pod_uid, pod, status) = (pod, pod.to_string(), ws.status.as_ref());
    // A claim that is over names it, too: nothing else is waited for.
    let is_holder = loans::holder_admission(ws, pod_uid).is_some();
    let named = [status.and_then(|s| s.pod_uid.as_deref()), status.and_then(|s| s.reader_pod_uid.as_deref())];
    match named {
        _ if !inline => Naming::NotNeeded,
        _ if is_holder => Naming::ThisPod,
        named if named.contains(&Some(&*pod)) => Naming::ThisPod,
        [None, _] => Naming::NoPod,
        [Some(_), _] => Naming::AnotherPod,
    }
}

fn pod_admission(uid: Uid, pod: Uid, inline: bool, read_only: bool, known: &KnownTree) -> Admission {
    let Some(ws) = known.workspace else {
        return Admission::Wait(format!("no AgentWorkspace with UID {uid} is scheduled to node {}", known.node));
    };
    let name = ws.metadata.name.as_deref().unwrap_or_default();
    if ws.metadata.deletion_timestamp.is_some() {
        return Admission::Deny(format!("AgentWorkspace {name} is being deleted"));
    }
    let status = ws.status.as_ref();
    if status.and_then(|s| s.node_name.as_deref()) != Some(known.node) {
        return Admission::Wait(format!("AgentWorkspace {name} is not scheduled to node {}", known.node));
    }
    let pod_uid = pod.to_string();
    let reader = status.and_then(|s| s.reader_pod_uid.as_deref());
    let holder = loans::holder_admission(ws, pod).filter(|_| inline);
    // What is lent is closed to no Pod but those that lend: any other one would write there.
    let lent = loans::holders(ws).filter(|_| !read_only && !known.lends);
    let waits_for_loans = || {
        let lent = lent.as_ref().filter(|_| holder.is_none() && reader != Some(&*pod_uid))?;
        Some(Admission::Wait(format!(
            "paths of AgentWorkspace {name} are lent to {lent}: a Pod that is not made for that mounts it once they are back"
        )))
    };
    match (inline, ws.spec.claim, status.and_then(|s| s.pod_uid.as_deref())) {
        (false, true, _) => waits_for_loans().unwrap_or(Admission::Admit(CloneAccess::ReadWrite)),
        (false, false, _) => Admission::Deny(format!("AgentWorkspace {name} has no claim: only a YoiPod's Pod mounts it")),
        (true, _, Some(chosen)) if chosen == pod_uid => waits_for_loans().unwrap_or(Admission::Admit(CloneAccess::ReadWrite)),
        (true, _, _) if reader == Some(&*pod_uid) && read_only => Admission::Admit(CloneAccess::ReadOnly),
        (true, _, _) if reader == Some(&*pod_uid) => {
            Admission::Deny(format!("the Pod with UID {pod_uid} reads AgentWorkspace {name}, and asks for a mount that can be written"))
        }
        (true, _, _) if holder.is_some() => match holder {
            Some(HolderAdmission::Admit { .. }) | None => Admission::Admit(CloneAccess::ReadWrite),
            Some(HolderAdmission::Wait(why)) => Admission::Wait(why),
            Some(HolderAdmission::Deny(why)) => Admission::Deny(why),
        },
        // The operator names the Pod once it is scheduled. It may still name the previous one.
        (true, _, Some(chosen)) => Admission::Wait(format!("AgentWorkspace {name} is for the Pod with UID {chosen}")),
        (true, _, None) => Admission::Wait(format!("AgentWorkspace {name} is for no Pod yet")),
    }
}

fn made_read_only(record: &Record, ws: Option<&AgentWorkspace>) -> bool {
    match record.origin {
        TreeOrigin::Empty { .. } => false,
        // It is sealed as soon as it is made, but where the project prepares it.
        TreeOrigin::Host { .. } => ws.is_none_or(|ws| access_of_base(ws) == CloneAccess::ReadOnly),
        TreeOrigin::Clone { access, .. } => access == CloneAccess::ReadOnly,
    }
}

fn provisioning_message(uid: Uid, ws: Option<&AgentWorkspace>) -> String {
    let conditions = ws.and_then(|ws| ws.status.as_ref()).map(|s| s.conditions.as_slice()).unwrap_or_default();
    match yoi_crds::condition::find(conditions, yoi_crds::reason::condition::PROVISIONED) {
        Some(c) if c.status != yoi_crds::ConditionStatus::True => {
            format!("the tree of workspace {uid} is not made: {}: {}", c.reason, c.message)
        }
        Some(_) | None => format!("the tree of workspace {uid} is being made"),
    }
}
