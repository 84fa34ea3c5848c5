//! The writing side: the watch that fills the cache.

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;

use futures::{Stream, StreamExt};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::DeserializeGuard;
use kube::core::error_boundary::InvalidObject;
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use crate::cache::Shared;
use crate::queue::map_event;
use crate::state::{Cached, id_of};

/// kubectl keeps a second copy of the whole object here.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Takes the parts out of `metadata` that are large and that nobody reads: managed fields, the self link, kubectl's copy of the object.
pub fn trim_metadata(metadata: &mut ObjectMeta) {
    metadata.managed_fields = None;
    metadata.self_link = None;
    if let Some(annotations) = &mut metadata.annotations {
        annotations.remove(LAST_APPLIED);
    }
}

/// What one event changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheChange<X> {
    /// All keys that the changed objects had before and have now. A key can occur more than once.
    pub keys: Vec<X>,
    /// A listing was completed: anything may have changed that no key names.
    pub listed: bool,
}

/// The writing side of a [`WatchCache`](crate::WatchCache): `K` is watched, `T` is cached under keys of type `X`.
pub struct CacheWriter<K, T, X> {
    shared: Arc<Shared<T, X>>,
    is_ready: watch::Sender<bool>,
    project: fn(K) -> T,
}

impl<K, T, X: Clone + Eq + Hash> CacheWriter<K, T, X> {
    pub(crate) fn new(shared: Arc<Shared<T, X>>, is_ready: watch::Sender<bool>, project: fn(K) -> T) -> Self {
        CacheWriter { shared, is_ready, project }
    }

    fn store(&self, event: Event<Cached<T>>, on_change: impl FnOnce(&CacheChange<X>)) -> Event<Arc<T>> {
        let keys = {
            let mut state = self.shared.lock();
            match &event {
                Event::Init => {
                    state.begin_listing();
                    Vec::new()
                }
                Event::InitApply(cached) => {
                    state.list(cached.clone());
                    Vec::new()
                }
                Event::InitDone => state.end_listing(),
                Event::Apply(cached) => state.apply(cached.clone()),
                Event::Delete(cached) => state.delete(cached),
            }
        };
        let listed = matches!(event, Event::InitDone);
        if listed || !keys.is_empty() {
            on_change(&CacheChange { keys, listed });
        }
        // Last: who waits for the cache waits for what `on_change` derives from it, too.
        if listed {
            self.is_ready.send_replace(true);
        }
        map_event(event, |cached| cached.object)
    }
}

impl<K: Resource<DynamicType = ()>, T, X: Clone + Eq + Hash> CacheWriter<K, T, X> {
    /// Stores one event as [`watch`](Self::watch) does, for callers that have events of their own, such as tests.
    pub fn apply(&self, event: Event<K>, on_change: impl FnOnce(&CacheChange<X>)) -> Event<Arc<T>> {
        let event = map_event(event, |object| self.project_object(object));
        self.store(event, on_change)
    }

    fn project_object(&self, mut object: K) -> Cached<T> {
        trim_metadata(object.meta_mut());
        let metadata = object.meta().clone();
        Cached::new(&metadata, Arc::new((self.project)(object)))
    }

    /// The event without what this version cannot deserialize.
    fn readable(&self, event: Event<DeserializeGuard<K>>) -> Option<Event<Cached<T>>> {
        let known = |invalid: &InvalidObject| self.shared.lock().get(&id_of(&invalid.metadata)).cloned();
        let event = match event {
            Event::Init => Event::Init,
            Event::InitDone => Event::InitDone,
            Event::Apply(DeserializeGuard(Ok(object))) => Event::Apply(self.project_object(object)),
            Event::InitApply(DeserializeGuard(Ok(object))) => Event::InitApply(self.project_object(object)),
            Event::Delete(DeserializeGuard(Ok(object))) => Event::Delete(self.project_object(object)),
            Event::Apply(DeserializeGuard(Err(invalid))) => {
                log_invalid::<K>(&invalid);
                return None;
            }
            Event::InitApply(DeserializeGuard(Err(invalid))) => {
                log_invalid::<K>(&invalid);
                Event::InitApply(known(&invalid)?)
            }
            Event::Delete(DeserializeGuard(Err(invalid))) => Event::Delete(known(&invalid)?),
        };
        Some(event)
    }
}

impl<K, T, X> CacheWriter<K, T, X>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    T: Send + Sync + 'static,
    X: Clone + Eq + Hash + Send + Sync + 'static,
{
    /// The watch, as a stream of its events; the cache is filled while somebody polls it. A failed watch is tried again with back-off.
    ///
    /// `on_change` is called after the cache holds a change, and after every listing, even an empty one.
    pub fn watch(
        self,
        api: Api<DeserializeGuard<K>>,
        config: watcher::Config,
        on_change: impl Fn(&CacheChange<X>) + Send + 'static,
    ) -> impl Stream<Item = Result<Event<Arc<T>>, watcher::Error>> + Send + 'static {
        watcher(api, config).default_backoff().filter_map(move |event| {
            let event = match event {
                Ok(event) => self.readable(event).map(|event| Ok(self.store(event, &on_change))),
                Err(error) => Some(Err(error)),
            };
            std::future::ready(event)
        })
    }

    /// Fills the cache until dropped, and logs when the watch fails. For callers that need no events beside `on_change`.
    pub async fn run(self, api: Api<DeserializeGuard<K>>, config: watcher::Config, on_change: impl Fn(&CacheChange<X>) + Send + 'static) {
        let events = self.watch(api, config, on_change);
        let log = |event: Result<_, watcher::Error>| {
            if let Err(error) = event {
                tracing::warn!(kind = %K::kind(&()), %error, "watch failed; it is tried again");
            }
            std::future::ready(())
        };
        events.for_each(log).await;
    }
}

fn log_invalid<K: Resource<DynamicType = ()>>(invalid: &InvalidObject) {
    let ObjectMeta { namespace, name, .. } = &invalid.metadata;
    let object = namespace.iter().chain(name).map(String::as_str).collect::<Vec<_>>().join("/");
    tracing::error!(
        kind = %K::kind(&()),
        object,
        uid = invalid.metadata.uid,
        error = invalid.error,
        "an object cannot be read and is left alone; repair or delete it"
    );
}
