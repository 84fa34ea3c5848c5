//! What plans read of an agent's Pod: the run that it was made for, and the tree and the manifest that it mounts.

use k8s_openapi::api::core::v1::Pod;
use yoi_crds::name::annotation;
use yoi_crds::pod::MOST_RUNS;

use crate::meta;
use crate::stored::{Stored, Uid};

/// Annotations of a cached Pod: what it mounts, after [`forget_volumes`] has removed its volumes.
const MOUNTS_TREE: &str = "cache.yoi.dev/tree";
const MOUNTS_MANIFEST: &str = "cache.yoi.dev/manifest";

/// An agent's Pod.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AgentPod<'a> {
    pub pod: Stored<'a, Pod>,
    pub run_generation: i64,
    /// UID of the workspace that it mounts.
    pub tree: Option<Uid<'a>>,
    /// Name of the ConfigMap that it mounts.
    pub manifest: Option<&'a str>,
    /// The node that the scheduler has chosen.
    pub node: Option<&'a str>,
}

impl<'a> AgentPod<'a> {
    pub(crate) fn new(pod: Stored<'a, Pod>) -> Self {
        let object = pod.get();
        AgentPod {
            pod,
            run_generation: run_generation(object),
            tree: tree_of(object).and_then(Uid::new),
            manifest: manifest_of(object),
            node: object.spec.as_ref().and_then(|spec| spec.node_name.as_deref()),
        }
    }
}

/// Run generation that an agent's Pod was made for; 0 when it bears none, or one that no status can hold.
#[must_use]
pub fn run_generation(pod: &Pod) -> i64 {
    // Whoever may make Pods here can write this annotation.
    let written = meta::annotation(&pod.metadata, annotation::RUN_GENERATION).and_then(|text| text.parse().ok());
    written.filter(|generation| (0..=MOST_RUNS).contains(generation)).unwrap_or(0)
}

/// For caches: replaces a Pod's volumes, which are most of its memory, by two annotations that hold what plans read of them. Plans decide the same
/// before and after.
pub fn forget_volumes(pod: &mut Pod) {
    let [tree, manifest] = [tree_of(pod), manifest_of(pod)].map(|mounted| mounted.map(str::to_owned));
    let annotations = pod.metadata.annotations.get_or_insert_default();
    for (key, mounted) in [(MOUNTS_TREE, tree), (MOUNTS_MANIFEST, manifest)] {
        // The object may have come with such an annotation, which nobody checked.
        annotations.remove(key);
        annotations.extend(mounted.map(|mounted| (key.to_owned(), mounted)));
    }
    pod.spec.get_or_insert_default().volumes = None;
}

fn manifest_of(pod: &Pod) -> Option<&str> {
    let Some(volumes) = pod.spec.as_ref()?.volumes.as_ref() else { return meta::annotation(&pod.metadata, MOUNTS_MANIFEST) };
    volumes.iter().find(|v| v.name == "manifest")?.config_map.as_ref().map(|c| c.name.as_str())
}

fn tree_of(pod: &Pod) -> Option<&str> {
    let Some(volumes) = pod.spec.as_ref()?.volumes.as_ref() else { return meta::annotation(&pod.metadata, MOUNTS_TREE) };
    let attributes = volumes.iter().find(|v| v.name == "tree")?.csi.as_ref()?.volume_attributes.as_ref()?;
    attributes.get(yoi_wire::identity::VOLUME_WORKSPACE).map(String::as_str)
}
