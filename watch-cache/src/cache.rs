//! The reading side.

use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tokio::sync::watch;

use crate::state::{Cached, State, id};
use crate::writer::CacheWriter;

/// What the reading and the writing side share.
pub(crate) struct Shared<T, X>(Mutex<State<T, X>>);

impl<T, X> Shared<T, X> {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State<T, X>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The objects of one watch, by name and by key. A clone reads the same objects.
///
/// `T` is the cached type: the watched type itself, or what the caller reads of it. `X` is the type of the keys.
pub struct WatchCache<T, X> {
    shared: Arc<Shared<T, X>>,
    ready: watch::Receiver<bool>,
}

impl<T, X> Clone for WatchCache<T, X> {
    fn clone(&self) -> Self {
        WatchCache { shared: Arc::clone(&self.shared), ready: self.ready.clone() }
    }
}

impl<T, X: Clone + Eq + Hash> WatchCache<T, X> {
    /// Returns an empty cache and its only writer. `K` is the watched type, `T` the cached one.
    ///
    /// `to_cached` makes the cached object from the watched one, whose metadata is trimmed before
    /// ([`trim_metadata`](crate::trim_metadata)). `keys` returns the keys that a cached object is found by. Both must be pure.
    #[must_use]
    pub fn new<K>(to_cached: fn(K) -> T, keys: fn(&T) -> Vec<X>) -> (Self, CacheWriter<K, T, X>) {
        let shared = Arc::new(Shared(Mutex::new(State::new(keys))));
        let (is_ready, ready) = watch::channel(false);
        (WatchCache { shared: Arc::clone(&shared), ready }, CacheWriter::new(shared, is_ready, to_cached))
    }

    /// The object of this name; `namespace` is empty for cluster-scoped kinds.
    #[must_use]
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<T>> {
        self.shared.lock().get(&id(namespace, name)).map(|cached| Arc::clone(&cached.object))
    }

    /// Every object that has `key`, sorted by namespace and name.
    #[must_use]
    pub fn by_key(&self, key: &X) -> Vec<Arc<T>> {
        let mut found: Vec<Cached<T>> = self.shared.lock().by_key(key).cloned().collect();
        found.sort_by(|a, b| a.id.cmp(&b.id));
        found.into_iter().map(|cached| cached.object).collect()
    }

    /// The first object, by namespace and name, that has `key`.
    #[must_use]
    pub fn first_by_key(&self, key: &X) -> Option<Arc<T>> {
        let state = self.shared.lock();
        state.by_key(key).min_by(|a, b| a.id.cmp(&b.id)).map(|cached| Arc::clone(&cached.object))
    }

    /// Whether an object has `key`.
    #[must_use]
    pub fn contains_key(&self, key: &X) -> bool {
        self.shared.lock().contains_key(key)
    }

    /// Every object, in no order.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<T>> {
        self.shared.lock().all().map(|cached| Arc::clone(&cached.object)).collect()
    }

    /// How many objects there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shared.lock().all().len()
    }

    /// Whether there is no object.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes in an object that an own request read or wrote, so that the caller need not wait for the watch to show it.
    ///
    /// Returns the keys that it had before and has now; the caller notifies whom they concern, since `on_change` is not called. Changes
    /// nothing and returns no keys if a newer version is known, or if the watch has shown the deletion of the object.
    pub fn learn(&self, metadata: &ObjectMeta, object: T) -> Vec<X> {
        self.shared.lock().learn(Cached::new(metadata, Arc::new(object)))
    }

    /// Whether the first listing is complete.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        *self.ready.borrow()
    }

    /// Returns when the first listing is complete. Never returns if the watch ends before: nobody may decide by an incomplete cache.
    pub async fn wait_until_ready(&self) {
        if self.ready.clone().wait_for(|ready| *ready).await.is_err() {
            futures::future::pending::<()>().await;
        }
    }
}
