//! The keys that a cached object is found by, and that say whom a change of it concerns.

use kube::{Resource, ResourceExt};
use yoi_crds::name::label;
use yoi_crds::{AgentWorkspace, YoiPeer, YoiPod, YoiProject};
use yoi_plan::nodes::heartbeat::ShimPod;
use yoi_plan::tree::base_set::base_parent_uid;
use yoi_plan::yoipod::{session_claim_name, workspace_name};

use crate::cached::{CachedClaim, CachedManifest, CachedPod, CachedVolume};

/// What an object is, belongs to or names. Two strings are a namespace and a name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CacheKey {
    /// The YoiPod itself, or what belongs to it or names it.
    YoiPod(String, String),
    /// The AgentWorkspace itself, or what belongs to it or names it.
    Workspace(String, String),
    /// A workspace, or a YoiPod's template, that is a fork of this workspace.
    Parent(String, String),
    /// The YoiProject itself, or what starts from it.
    Project(String, String),
    /// The claim itself, its volume, or the YoiPod whose session it holds.
    Claim(String, String),
    /// A base of the project or workspace with this UID.
    BaseOf(String),
    /// A workspace that is a clone of the workspace with this UID.
    Origin(String),
    /// A warm session claim of the project with this UID.
    Warm(String),
    /// A YoiPod that the one with this UID has started.
    SpawnedBy(String),
    /// The object itself: a YoiPod, project or workspace by UID, a cluster-scoped object by name.
    Itself(String),
    /// An object of this namespace.
    Namespace(String),
}

pub(crate) fn namespace_of<K: Resource>(object: &K) -> String {
    object.meta().namespace.clone().unwrap_or_default()
}

pub(crate) fn no_keys<K>(_: &K) -> Vec<CacheKey> {
    Vec::new()
}

pub(crate) fn name_keys<K: Resource>(object: &K) -> Vec<CacheKey> {
    vec![CacheKey::Itself(object.name_any())]
}

pub(crate) fn namespace_keys<K: Resource>(object: &K) -> Vec<CacheKey> {
    vec![CacheKey::Namespace(namespace_of(object))]
}

pub(crate) fn project_keys(project: &YoiProject) -> Vec<CacheKey> {
    let mut keys = vec![CacheKey::Project(namespace_of(project), project.name_any()), CacheKey::Namespace(namespace_of(project))];
    keys.extend(project.metadata.uid.clone().map(CacheKey::Itself));
    keys
}

pub(crate) fn workspace_keys(workspace: &AgentWorkspace) -> Vec<CacheKey> {
    let namespace = namespace_of(workspace);
    let mut keys = vec![CacheKey::Workspace(namespace.clone(), workspace.name_any())];
    keys.extend(workspace.metadata.uid.clone().map(CacheKey::Itself));
    if let Some(owner) = base_parent_uid(workspace) {
        keys.push(CacheKey::BaseOf(owner.to_owned()));
        return keys;
    }
    keys.extend(workspace.spec.source.project.as_ref().map(|p| CacheKey::Project(namespace.clone(), p.name.clone())));
    keys.extend(workspace.spec.source.workspace.as_ref().map(|w| CacheKey::Parent(namespace, w.name.clone())));
    keys.extend(workspace.status.as_ref().and_then(|s| s.origin.as_ref()?.workspace_uid.clone()).map(CacheKey::Origin));
    keys
}

/// The YoiPod itself, and what it names: workspace, project, session claim, and the workspace that it forks.
pub(crate) fn yoipod_keys(yoipod: &YoiPod) -> Vec<CacheKey> {
    let namespace = namespace_of(yoipod);
    let fork_source = yoipod.spec.workspace.as_ref().and_then(|w| w.template.as_ref()?.source.as_ref()?.workspace.as_ref());
    let mut keys = vec![
        CacheKey::YoiPod(namespace.clone(), yoipod.name_any()),
        CacheKey::Workspace(namespace.clone(), workspace_name(yoipod).to_owned()),
        CacheKey::Project(namespace.clone(), yoipod.spec.project_ref.name.clone()),
        CacheKey::Claim(namespace.clone(), session_claim_name(yoipod)),
    ];
    keys.extend(fork_source.map(|w| CacheKey::Parent(namespace, w.name.clone())));
    keys.extend(yoipod.metadata.uid.clone().map(CacheKey::Itself));
    keys.extend(yoipod.spec.spawned_by.as_ref().map(|by| CacheKey::SpawnedBy(by.uid.clone())));
    keys
}

pub(crate) fn peer_keys(peer: &YoiPeer) -> Vec<CacheKey> {
    peer.spec.members.iter().map(|m| CacheKey::YoiPod(namespace_of(peer), m.clone())).collect()
}

pub(crate) fn pod_keys(pod: &CachedPod) -> Vec<CacheKey> {
    let namespace = || pod.metadata.namespace().to_owned();
    let label_value = |key: &str| pod.metadata.label(key).map(str::to_owned);
    let mut keys = Vec::new();
    keys.extend(label_value(label::YOIPOD).map(|name| CacheKey::YoiPod(namespace(), name)));
    keys.extend(label_value(label::WORKSPACE).map(|name| CacheKey::Workspace(namespace(), name)));
    // Of the Pods with this role only one that looks at a project's source bears the project's name.
    let is_look = pod.metadata.label(label::ROLE) == Some(label::ROLE_POPULATOR);
    keys.extend(label_value(label::PROJECT).filter(|_| is_look).map(|name| CacheKey::Project(namespace(), name)));
    keys
}

/// The node that it is on.
pub(crate) fn shim_pod_keys(pod: &ShimPod) -> Vec<CacheKey> {
    pod.node.clone().map(CacheKey::Itself).into_iter().collect()
}

/// Itself, the YoiPod that it was made for or that has taken it, and the project that it stands ready for.
pub(crate) fn claim_keys(claim: &CachedClaim) -> Vec<CacheKey> {
    let metadata = &claim.metadata;
    let namespace = metadata.namespace().to_owned();
    let mut keys = vec![CacheKey::Claim(namespace.clone(), metadata.name().to_owned())];
    keys.extend(metadata.label(label::YOIPOD).map(|name| CacheKey::YoiPod(namespace, name.to_owned())));
    let is_warm = metadata.label(label::WARM).is_some();
    keys.extend(metadata.controller().filter(|_| is_warm).map(CacheKey::Warm));
    keys
}

pub(crate) fn volume_keys(volume: &CachedVolume) -> Vec<CacheKey> {
    volume.claim().map(|(namespace, name)| CacheKey::Claim(namespace.to_owned(), name.to_owned())).into_iter().collect()
}

pub(crate) fn manifest_keys(map: &CachedManifest) -> Vec<CacheKey> {
    let metadata = &map.metadata;
    metadata.label(label::YOIPOD).map(|name| CacheKey::YoiPod(metadata.namespace().to_owned(), name.to_owned())).into_iter().collect()
}
