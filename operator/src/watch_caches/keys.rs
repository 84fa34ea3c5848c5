//! By what the caches find an object again.

use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolume, Pod};
use kube::{Resource, ResourceExt};
use yoi_crds::name::label;
use yoi_crds::{AgentWorkspace, YoiPeer, YoiPod, YoiProject};
use yoi_plan::meta;
use yoi_plan::workspace::base::lineage_of;
use yoi_plan::yoipod::{session_claim_name, workspace_name};

use crate::cache::Key;

pub(super) fn ns<K: Resource>(object: &K) -> String {
    object.meta().namespace.clone().unwrap_or_default()
}

pub(super) fn project_keys(project: &YoiProject) -> Vec<Key> {
    vec![Key::Project(ns(project), project.name_any()), Key::Namespace(ns(project))]
}

pub(super) fn workspace_keys(workspace: &AgentWorkspace) -> Vec<Key> {
    let namespace = ns(workspace);
    let mut keys = vec![Key::Workspace(namespace.clone(), workspace.name_any())];
    keys.extend(workspace.metadata.uid.clone().map(Key::Uid));
    if let Some(lineage) = lineage_of(workspace) {
        keys.push(Key::Lineage(lineage.to_owned()));
        return keys;
    }
    keys.extend(workspace.spec.source.project.as_ref().map(|p| Key::Project(namespace.clone(), p.name.clone())));
    keys.extend(workspace.spec.source.workspace.as_ref().map(|w| Key::Parent(namespace, w.name.clone())));
    keys.extend(workspace.status.as_ref().and_then(|s| s.origin.as_ref()?.workspace_uid.clone()).map(Key::Origin));
    keys
}

pub(super) fn yoipod_keys(yoipod: &YoiPod) -> Vec<Key> {
    let namespace = ns(yoipod);
    let forked = yoipod.spec.workspace.as_ref().and_then(|w| w.template.as_ref()?.source.as_ref()?.workspace.as_ref());
    let mut keys = vec![
        Key::YoiPod(namespace.clone(), yoipod.name_any()),
        Key::Workspace(namespace.clone(), workspace_name(yoipod).to_owned()),
        Key::Project(namespace.clone(), yoipod.spec.project_ref.name.clone()),
        Key::Claim(namespace.clone(), session_claim_name(yoipod)),
    ];
    keys.extend(forked.map(|w| Key::Parent(namespace, w.name.clone())));
    keys
}

pub(super) fn peer_keys(peer: &YoiPeer) -> Vec<Key> {
    peer.spec.members.iter().map(|m| Key::YoiPod(ns(peer), m.clone())).collect()
}

pub(super) fn pod_keys(pod: &Pod) -> Vec<Key> {
    let of = |key: &str| meta::label(&pod.metadata, key).map(str::to_owned);
    let mut keys = Vec::new();
    keys.extend(of(label::YOIPOD).map(|name| Key::YoiPod(ns(pod), name)));
    keys.extend(of(label::WORKSPACE).map(|name| Key::Workspace(ns(pod), name)));
    keys
}

pub(super) fn volume_keys(volume: &PersistentVolume) -> Vec<Key> {
    let claim = volume.spec.as_ref().and_then(|s| s.claim_ref.as_ref());
    claim.and_then(|c| Some(Key::Claim(c.namespace.clone()?, c.name.clone()?))).into_iter().collect()
}

pub(super) fn manifest_keys(map: &ConfigMap) -> Vec<Key> {
    meta::label(&map.metadata, label::YOIPOD).map(|name| Key::YoiPod(ns(map), name.to_owned())).into_iter().collect()
}
