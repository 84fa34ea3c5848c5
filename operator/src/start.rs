//! Starts the watch of every kind in [`crate::kinds`], and its controller.

use std::sync::Arc;

use futures::{Stream, StreamExt};
use kube::core::{DeserializeGuard, NamespaceResourceScope};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, Resource};
use tokio::task::JoinSet;
use tracing::warn;
use yoi_crds::name::label;
use yoi_watch_cache::{CacheChange, Queued};

use crate::cache_key::CacheKey;
use crate::controller::{Context, maintain, maintain_claims, reconcile};
use crate::kinds::for_each_kind;
use crate::watch_caches::{CacheWriters, Triggers};

/// The namespaces that are watched.
#[derive(Clone, Copy, Debug)]
pub struct Namespaces<'a> {
    /// The only one that this operator is responsible for; `None`: all.
    pub watched: Option<&'a str>,
    /// That of the shims' Pods.
    pub shims: &'a str,
}

/// Starts a task for every row of the table of kinds: its watch, and its controller if it has one.
pub fn start_all(
    parts: &mut JoinSet<&'static str>,
    writers: CacheWriters,
    triggers: Triggers,
    context: &Arc<Context>,
    namespaces: Namespaces<'_>,
) {
    macro_rules! start {
        ($($cache:ident: $kind:ty, $cached:ty, $plural:literal, $scope:ident, $label:expr, $project:path, $keys:ident, $on_change:ident, $work:ident;)+) => {
            $({
                let api = $scope(&context.client, namespaces);
                let caches = Arc::clone(&context.caches);
                let on_change = move |change: &CacheChange<CacheKey>| caches.$on_change(&change.keys);
                let events = writers.$cache.watch(api, label_config($label), on_change);
                let work = $work(events, triggers.$cache, Arc::clone(context));
                parts.spawn(async move {
                    work.await;
                    concat!("the task of ", $plural)
                });
            })+
        };
    }
    for_each_kind!(start);
}

fn namespaced<K>(client: &Client, namespaces: Namespaces<'_>) -> Api<DeserializeGuard<K>>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
{
    namespaces.watched.map_or_else(|| Api::all(client.clone()), |namespace| Api::namespaced(client.clone(), namespace))
}

fn shims<K>(client: &Client, namespaces: Namespaces<'_>) -> Api<DeserializeGuard<K>>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
{
    Api::namespaced(client.clone(), namespaces.shims)
}

fn cluster<K: Resource<DynamicType = ()>>(client: &Client, _: Namespaces<'_>) -> Api<DeserializeGuard<K>> {
    Api::all(client.clone())
}

fn label_config(label: Option<&str>) -> watcher::Config {
    label.map_or_else(watcher::Config::default, |label| watcher::Config::default().labels(label))
}

/// Fills the cache of a kind that has no controller.
async fn only_cache<K: Resource<DynamicType = ()>, T>(
    events: impl Stream<Item = Result<Event<Arc<T>>, watcher::Error>>,
    _: impl Stream<Item = ObjectRef<Queued<K>>>,
    _: Arc<Context>,
) {
    let log = |event: Result<_, watcher::Error>| {
        if let Err(error) = event {
            warn!(kind = %K::kind(&()), %error, "watch failed; it is tried again");
        }
        std::future::ready(())
    };
    events.for_each(log).await;
}
