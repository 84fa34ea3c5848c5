//! The table of all kinds that the operator watches. A new kind is one more row.
//!
//! | Column | Meaning |
//! |---|---|
//! | cache | the field of `WatchCaches` and of `Triggers` |
//! | kind | the type that is watched |
//! | cached | the type that is cached: the kind, or what plans read of it |
//! | plural | the name of the kind in URLs |
//! | scope | `namespaced`: of the namespaces that this operator is responsible for; `shims`: of the shims' namespace; `cluster`: all |
//! | label | only objects with this label are watched |
//! | project | makes the cached object from the watched one, without what nobody reads |
//! | keys | the keys that the cached object is found by |
//! | on change | the method of `WatchCaches` that triggers whom a change concerns |
//! | work | `reconcile`, `maintain`, `maintain_claims`, or `only_cache` |

/// Calls the macro `generate` with the rows.
macro_rules! for_each_kind {
    ($generate:ident) => {
        $generate! {
            // cache          kind                          cached                        plural                    scope       label                project               keys            on change          work
            projects:         YoiProject,                   YoiProject,                   "yoiprojects",            namespaced, None,                trim::own_object,     project_keys,   project_changed,   reconcile;
            workspaces:       AgentWorkspace,               AgentWorkspace,               "agentworkspaces",        namespaced, None,                trim::own_object,     workspace_keys, workspace_changed, reconcile;
            yoipods:          YoiPod,                       YoiPod,                       "yoipods",                namespaced, None,                trim::own_object,     yoipod_keys,    yoipod_changed,    reconcile;
            peers:            YoiPeer,                      YoiPeer,                      "yoipeers",               namespaced, None,                identity,             peer_keys,      no_triggers,       reconcile;
            workspace_nodes:  WorkspaceNode,                WorkspaceNode,                "workspacenodes",         cluster,    None,                trim::offer,          name_keys,      nodes_changed,     maintain;
            pods:             Pod,                          CachedPod,                    "pods",                   namespaced, Some(label::ROLE),   CachedPod::from,      pod_keys,       part_changed,      only_cache;
            claims:           PersistentVolumeClaim,        CachedClaim,                  "persistentvolumeclaims", namespaced, None,                CachedClaim::from,    claim_keys,     part_changed,      maintain_claims;
            volumes:          PersistentVolume,             CachedVolume,                 "persistentvolumes",      cluster,    None,                CachedVolume::from,   volume_keys,    part_changed,      only_cache;
            manifests:        ConfigMap,                    CachedManifest,               "configmaps",             namespaced, Some(label::YOIPOD), CachedManifest::from, manifest_keys,  part_changed,      only_cache;
            network_policies: NetworkPolicy,                NetworkPolicy,                "networkpolicies",        namespaced, Some(label::ROLE),   identity,             namespace_keys, part_changed,      only_cache;
            namespaces:       PartialObjectMeta<Namespace>, PartialObjectMeta<Namespace>, "namespaces",             cluster,    None,                identity,             no_keys,        no_triggers,       only_cache;
            shim_pods:        Pod,                          ShimPod,                      "pods",                   shims,      Some(label::SHIM),   ShimPod::from,        shim_pod_keys,  shim_pods_changed, only_cache;
            storage_classes:  StorageClass,                 StorageClass,                 "storageclasses",         cluster,    None,                identity,             no_keys,        classes_changed,   only_cache;
            nodes:            Node,                         Node,                         "nodes",                  cluster,    None,                trim::node,           name_keys,      nodes_changed,     only_cache;
        }
    };
}
pub(crate) use for_each_kind;
