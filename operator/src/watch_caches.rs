//! The caches of all kinds in [`crate::kinds`].

use std::collections::BTreeMap;
use std::convert::identity;
use std::sync::{Arc, PoisonError, RwLock};

use futures::channel::mpsc;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::core::PartialObjectMeta;
use kube::runtime::reflector::ObjectRef;
use yoi_crds::{AgentWorkspace, WorkspaceNode, YoiPeer, YoiPod, YoiProject};
use yoi_plan::nodes::Nodes;
use yoi_plan::nodes::heartbeat::{ShimPod, Silence};
use yoi_watch_cache::{CacheWriter, Queued, WatchCache};

use crate::cache_key::{
    CacheKey, claim_keys, manifest_keys, name_keys, namespace_keys, no_keys, peer_keys, pod_keys, project_keys, shim_pod_keys, volume_keys,
    workspace_keys, yoipod_keys,
};
use crate::cached::{CachedClaim, CachedManifest, CachedPod, CachedVolume};
use crate::kinds::for_each_kind;
use crate::trim;
use crate::warm_ledger::WarmLedger;

/// Nodes without a shim's Pod.
pub(crate) struct AbsentShims {
    /// When this process began to watch.
    started: jiff::Timestamp,
    /// When the last Pod of a shim went from a node, by the node's name.
    since: RwLock<BTreeMap<String, jiff::Timestamp>>,
}

impl AbsentShims {
    fn new() -> Self {
        AbsentShims { started: jiff::Timestamp::now(), since: RwLock::default() }
    }

    pub(crate) fn set(&self, node: &str, is_absent: bool) {
        let mut since = self.since.write().unwrap_or_else(PoisonError::into_inner);
        if is_absent {
            since.entry(node.to_owned()).or_insert_with(jiff::Timestamp::now);
        } else {
            since.remove(node);
        }
    }

    /// A node that never had one lacks it since this process began to watch.
    fn since(&self, node: &str) -> jiff::Timestamp {
        self.since.read().unwrap_or_else(PoisonError::into_inner).get(node).copied().unwrap_or(self.started)
    }
}

/// A type that can be had from the caches.
pub trait CachedObject: Sized {
    /// The object of this name; `namespace` is empty for cluster-scoped kinds.
    fn get(caches: &WatchCaches, namespace: &str, name: &str) -> Option<Arc<Self>>;
}

impl CachedObject for PersistentVolumeClaim {
    fn get(caches: &WatchCaches, namespace: &str, name: &str) -> Option<Arc<Self>> {
        caches.claims.get(namespace, name).map(|claim| Arc::new(claim.observed()))
    }
}

macro_rules! declare_caches {
    ($($cache:ident: $kind:ty, $cached:ty, $plural:literal, $scope:ident, $label:expr, $project:path, $keys:ident, $on_change:ident, $work:ident;)+) => {
        /// What the operator knows of the cluster.
        pub struct WatchCaches {
            $(pub $cache: WatchCache<$cached, CacheKey>,)+
            pub(crate) observed_nodes: RwLock<Arc<Nodes>>,
            pub(crate) absent_shims: AbsentShims,
            /// The warm session claims that this process has made.
            pub warm_ledger: WarmLedger,
            pub(crate) senders: TriggerSenders,
        }

        /// The writing sides of all caches.
        pub struct CacheWriters {
            $(pub $cache: CacheWriter<$kind, $cached, CacheKey>,)+
        }

        #[expect(dead_code, reason = "nobody triggers a kind that is only cached")]
        pub(crate) struct TriggerSenders {
            $(pub(crate) $cache: mpsc::UnboundedSender<ObjectRef<Queued<$kind>>>,)+
        }

        /// The objects that each controller reconciles because another object changed.
        pub struct Triggers {
            $(pub(crate) $cache: mpsc::UnboundedReceiver<ObjectRef<Queued<$kind>>>,)+
        }

        impl WatchCaches {
            /// Empty caches, with their writing sides and what they trigger.
            #[must_use]
            pub fn new() -> (Arc<Self>, CacheWriters, Triggers) {
                $(let $cache = (WatchCache::new($project, $keys), mpsc::unbounded());)+
                let writers = CacheWriters { $($cache: $cache.0.1,)+ };
                let senders = TriggerSenders { $($cache: $cache.1.0,)+ };
                let triggers = Triggers { $($cache: $cache.1.1,)+ };
                let caches = WatchCaches { $($cache: $cache.0.0,)+ observed_nodes: RwLock::default(), absent_shims: AbsentShims::new(), warm_ledger: WarmLedger::new(jiff::Timestamp::now()), senders };
                (Arc::new(caches), writers, triggers)
            }

            /// Returns when every kind is listed: "no Pod" must mean that there is none.
            pub async fn wait_until_ready(&self) {
                $(self.$cache.wait_until_ready().await;)+
            }

            /// Plurals of the kinds that are not listed yet.
            #[must_use]
            pub fn not_ready(&self) -> Vec<&'static str> {
                let all = [$(($plural, self.$cache.is_ready())),+];
                all.into_iter().filter(|(_, ready)| !ready).map(|(plural, _)| plural).collect()
            }
        }

        $(impl CachedObject for $cached {
            fn get(caches: &WatchCaches, namespace: &str, name: &str) -> Option<Arc<Self>> {
                caches.$cache.get(namespace, name)
            }
        })+
    };
}
for_each_kind!(declare_caches);

impl WatchCaches {
    /// The nodes of the cluster with what each offers.
    #[must_use]
    pub fn observed_nodes(&self) -> Arc<Nodes> {
        Arc::clone(&self.observed_nodes.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Why nothing may be heard of the node's shim; `None` when its Pod is ready.
    #[must_use]
    pub fn shim_silence(&self, node: &str) -> Option<Silence> {
        let pods = self.shim_pods.by_key(&CacheKey::Itself(node.to_owned()));
        Silence::observed(pods.iter().map(AsRef::as_ref), self.absent_shims.since(node))
    }

    /// Whether the namespace is being deleted.
    #[must_use]
    pub fn is_terminating(&self, namespace: &str) -> bool {
        self.namespaces.get("", namespace).is_some_and(|n| n.metadata.deletion_timestamp.is_some())
    }
}
