//! What an agent's Pod mounts, read from its volumes or from what a cache noted of them.

use k8s_openapi::api::core::v1::Pod;

use crate::meta;

/// What a Pod mounts, where its volumes are not remembered.
const MOUNTS_TREE: &str = "cache.yoi.dev/tree";
const MOUNTS_MANIFEST: &str = "cache.yoi.dev/manifest";

/// For caches: what decisions read of a Pod's volumes becomes two words, and the volumes go. They are most of a Pod's memory.
pub fn forget_volumes(pod: &mut Pod) {
    let [tree, manifest] = [tree_of(pod), manifest_of(pod)].map(|said| said.map(str::to_owned));
    let notes = pod.metadata.annotations.get_or_insert_default();
    for (key, said) in [(MOUNTS_TREE, tree), (MOUNTS_MANIFEST, manifest)] {
        // Whoever wrote the word into the object itself is not believed.
        notes.remove(key);
        notes.extend(said.map(|said| (key.to_owned(), said)));
    }
    pod.spec.get_or_insert_default().volumes = None;
}

pub(super) fn manifest_of(pod: &Pod) -> Option<&str> {
    let Some(volumes) = pod.spec.as_ref()?.volumes.as_ref() else { return meta::annotation(&pod.metadata, MOUNTS_MANIFEST) };
    volumes.iter().find(|v| v.name == "manifest")?.config_map.as_ref().map(|c| c.name.as_str())
}

/// UID of the workspace that a Pod mounts.
pub(crate) fn tree_of(pod: &Pod) -> Option<&str> {
    let Some(volumes) = pod.spec.as_ref()?.volumes.as_ref() else { return meta::annotation(&pod.metadata, MOUNTS_TREE) };
    let attributes = volumes.iter().find(|v| v.name == "tree")?.csi.as_ref()?.volume_attributes.as_ref()?;
    attributes.get(yoi_wire::identity::VOLUME_WORKSPACE).map(String::as_str)
}
