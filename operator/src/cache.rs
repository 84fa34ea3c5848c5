//! One watch per kind, read by every reconcile, and indexed by what each object concerns.

use std::collections::{HashMap, HashSet};
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

use futures::{Stream, StreamExt};
use kube::runtime::reflector::{self, ObjectRef, Store, store::Writer};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::sync::watch;

/// Something that an object concerns: an index entry, and what to wake when the object changes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Key {
    YoiPod(String, String),
    /// A workspace by name: the object itself is concerned, or who names it.
    Workspace(String, String),
    /// The workspace that another one, or a YoiPod's template, forks.
    Parent(String, String),
    Project(String, String),
    Claim(String, String),
    /// Base of this lineage: the UID of a project or workspace.
    Lineage(String),
    /// An origin names this UID.
    Origin(String),
    Uid(String),
    Namespace(String),
}

/// Namespace (empty for cluster-scoped kinds) and name.
type Id = (String, String);

#[derive(Default)]
struct Index {
    keys: HashMap<Id, Vec<Key>>,
    by: HashMap<Key, HashSet<Id>>,
    /// What a new listing has brought so far.
    listing: Option<HashMap<Id, Vec<Key>>>,
}

impl Index {
    fn set(&mut self, id: Id, keys: Vec<Key>) -> Vec<Key> {
        let mut touched = self.remove(&id);
        for key in &keys {
            self.by.entry(key.clone()).or_default().insert(id.clone());
        }
        touched.extend(keys.iter().cloned());
        self.keys.insert(id, keys);
        touched
    }

    fn remove(&mut self, id: &Id) -> Vec<Key> {
        let old = self.keys.remove(id).unwrap_or_default();
        for key in &old {
            if let Some(ids) = self.by.get_mut(key) {
                ids.remove(id);
                if ids.is_empty() {
                    self.by.remove(key);
                }
            }
        }
        old
    }

    /// The listing is the truth now: what it lacks is gone.
    fn settle(&mut self) -> Vec<Key> {
        let listed = self.listing.take().unwrap_or_default();
        let gone: Vec<Id> = self.keys.keys().filter(|id| !listed.contains_key(*id)).cloned().collect();
        let mut touched: Vec<Key> = gone.iter().flat_map(|id| self.remove(id)).collect();
        for (id, keys) in listed {
            touched.extend(self.set(id, keys));
        }
        touched
    }
}

/// The reading side.
pub struct Cache<K: Resource<DynamicType = ()> + Clone + 'static> {
    store: Store<K>,
    index: Arc<Mutex<Index>>,
    ready: watch::Receiver<bool>,
}

impl<K: Resource<DynamicType = ()> + Clone + 'static> Clone for Cache<K> {
    fn clone(&self) -> Self {
        Cache { store: self.store.clone(), index: Arc::clone(&self.index), ready: self.ready.clone() }
    }
}

/// The writing side, turned into a stream once the readers know each other.
pub struct Source<K: Resource<DynamicType = ()> + Clone + 'static> {
    writer: Writer<K>,
    index: Arc<Mutex<Index>>,
    ready: watch::Sender<bool>,
    keys: fn(&K) -> Vec<Key>,
}

pub fn cache<K>(keys: fn(&K) -> Vec<Key>) -> (Cache<K>, Source<K>)
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    let (store, writer) = reflector::store();
    let index = Arc::new(Mutex::new(Index::default()));
    let (said, ready) = watch::channel(false);
    (Cache { store, index: Arc::clone(&index), ready }, Source { writer, index, ready: said, keys })
}

impl<K: Resource<DynamicType = ()> + Clone + 'static> Cache<K> {
    #[must_use]
    pub fn store(&self) -> Store<K> {
        self.store.clone()
    }

    #[must_use]
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        let reference = if namespace.is_empty() { ObjectRef::new(name) } else { ObjectRef::new(name).within(namespace) };
        self.store.get(&reference)
    }

    /// Every object that concerns `key`, sorted by name.
    #[must_use]
    pub fn by(&self, key: &Key) -> Vec<Arc<K>> {
        let mut ids: Vec<Id> = {
            let index = self.index.lock().unwrap_or_else(PoisonError::into_inner);
            index.by.get(key).map(|ids| ids.iter().cloned().collect()).unwrap_or_default()
        };
        ids.sort();
        ids.iter().filter_map(|(namespace, name)| self.get(namespace, name)).collect()
    }

    #[must_use]
    pub fn any(&self, key: &Key) -> bool {
        self.index.lock().unwrap_or_else(PoisonError::into_inner).by.contains_key(key)
    }

    #[must_use]
    pub fn all(&self) -> Vec<Arc<K>> {
        self.store.state()
    }

    #[must_use]
    pub fn is_ready(&self) -> bool {
        *self.ready.borrow()
    }

    /// Returns once the first listing is in.
    pub async fn wait(&self) {
        // An error means that the watch is gone, and with it the process: nothing will reconcile any more.
        if self.ready.clone().wait_for(|ready| *ready).await.is_err() {
            futures::future::pending::<()>().await;
        }
    }
}

impl<K> Source<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    /// The watch. `wake` hears of every change after the cache holds it, with all that the object concerned before and concerns now; and of
    /// every listing, even an empty one.
    pub fn stream(
        self,
        api: Api<K>,
        config: watcher::Config,
        wake: impl Fn(&[Key]) + Send + 'static,
    ) -> impl Stream<Item = Result<K, watcher::Error>> + Send + 'static {
        let Source { writer, index, ready, keys } = self;
        watcher(api, config)
            .default_backoff()
            .modify(|object| object.managed_fields_mut().clear())
            .reflect(writer)
            .map(move |event| {
                if let Ok(event) = &event {
                    let touched = note(&index, keys, event);
                    let listed = matches!(event, watcher::Event::InitDone);
                    if listed || !touched.is_empty() {
                        wake(&touched);
                    }
                    // Last: who waits for the cache waits for what is derived from it, too.
                    if listed {
                        ready.send_replace(true);
                    }
                }
                event
            })
            .touched_objects()
    }
}

fn note<K: Resource<DynamicType = ()>>(index: &Mutex<Index>, keys: fn(&K) -> Vec<Key>, event: &watcher::Event<K>) -> Vec<Key> {
    let id = |object: &K| (object.namespace().unwrap_or_default(), object.name_any());
    let mut index = index.lock().unwrap_or_else(PoisonError::into_inner);
    match event {
        watcher::Event::Init => {
            index.listing = Some(HashMap::new());
            Vec::new()
        }
        watcher::Event::InitApply(object) => {
            let (id, keys) = (id(object), keys(object));
            index.listing.get_or_insert_default().insert(id, keys);
            Vec::new()
        }
        watcher::Event::InitDone => index.settle(),
        watcher::Event::Apply(object) => index.set(id(object), keys(object)),
        watcher::Event::Delete(object) => index.remove(&id(object)),
    }
}
