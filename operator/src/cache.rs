//! One watch per kind, read by every reconcile, and indexed by what each object concerns.

use std::collections::{HashMap, HashSet};
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

use futures::{Stream, StreamExt};
use kube::core::DeserializeGuard;
use kube::core::error_boundary::InvalidObject;
use kube::runtime::reflector::{self, ObjectRef, Store, store::Writer};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use crate::log_subject::{LogSubject, log_for};
use crate::trim;

/// Something that an object concerns: an index entry, and what to notify when the object changes.
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
type Id = Arc<(String, String)>;

#[derive(Default)]
struct Index {
    keys: HashMap<Id, Vec<Arc<Key>>>,
    by: HashMap<Arc<Key>, HashSet<Id>>,
    /// What a new listing has brought so far.
    listing: Option<HashMap<Id, Vec<Key>>>,
}

impl Index {
    fn set(&mut self, id: Id, keys: Vec<Key>) -> Vec<Key> {
        let mut touched = self.remove(&id);
        touched.extend(keys.iter().cloned());
        let shared: Vec<Arc<Key>> = keys
            .into_iter()
            .map(|key| {
                let known = self.by.get_key_value(&key).map(|(known, _)| Arc::clone(known));
                let key = known.unwrap_or_else(|| Arc::new(key));
                self.by.entry(Arc::clone(&key)).or_default().insert(Arc::clone(&id));
                key
            })
            .collect();
        self.keys.insert(id, shared);
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
        old.into_iter().map(|key| (*key).clone()).collect()
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
    trim: fn(&mut K),
    /// What was known of an object before it could not be read any more.
    known: Store<K>,
}

/// `keys`: what an object concerns. `trim`: takes out what nobody reads.
pub fn cache<K>(keys: fn(&K) -> Vec<Key>, trim: fn(&mut K)) -> (Cache<K>, Source<K>)
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    let (store, writer) = reflector::store();
    let index = Arc::new(Mutex::new(Index::default()));
    let (is_ready, ready) = watch::channel(false);
    let known = store.clone();
    (Cache { store, index: Arc::clone(&index), ready }, Source { writer, index, ready: is_ready, keys, trim, known })
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
        ids.iter().filter_map(|id| self.get(&id.0, &id.1)).collect()
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
    /// The watch. `on_change` hears of every change after the cache holds it, with all that the object concerned before and concerns now; and of
    /// every listing, even an empty one. An object that cannot be read stays what it was, or unknown, and holds up no other.
    pub fn stream(
        self,
        api: Api<DeserializeGuard<K>>,
        config: watcher::Config,
        on_change: impl Fn(&[Key]) + Send + 'static,
    ) -> impl Stream<Item = Result<K, watcher::Error>> + Send + 'static {
        let Source { writer, index, ready, keys, trim, known } = self;
        watcher(api, config)
            .default_backoff()
            .filter_map(move |event| std::future::ready(readable(event, &known)))
            .modify(move |object| {
                trim::metadata(object.meta_mut());
                trim(object);
            })
            .reflect(writer)
            .map(move |event| {
                if let Ok(event) = &event {
                    let touched = note(&index, keys, event);
                    let listed = matches!(event, watcher::Event::InitDone);
                    if listed || !touched.is_empty() {
                        on_change(&touched);
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

type Heard<K> = Result<watcher::Event<K>, watcher::Error>;

/// The event without what this version cannot read.
fn readable<K>(event: Heard<DeserializeGuard<K>>, known: &Store<K>) -> Option<Heard<K>>
where
    K: Resource<DynamicType = ()> + Clone,
{
    use watcher::Event::{Apply, Delete, Init, InitApply, InitDone};
    let former = |bad: &InvalidObject| {
        let name = bad.metadata.name.clone().unwrap_or_default();
        let reference = ObjectRef::new(&name);
        let reference = match bad.metadata.namespace.as_deref() {
            Some(namespace) => reference.within(namespace),
            None => reference,
        };
        known.get(&reference).map(|o| (*o).clone())
    };
    let event = match event {
        Ok(event) => event,
        Err(error) => return Some(Err(error)),
    };
    let event = match event {
        Init => Init,
        InitDone => InitDone,
        Apply(DeserializeGuard(Ok(object))) => Apply(object),
        InitApply(DeserializeGuard(Ok(object))) => InitApply(object),
        Delete(DeserializeGuard(Ok(object))) => Delete(object),
        Apply(DeserializeGuard(Err(bad))) => {
            unreadable::<K>(&bad);
            return None;
        }
        InitApply(DeserializeGuard(Err(bad))) => {
            unreadable::<K>(&bad);
            InitApply(former(&bad)?)
        }
        Delete(DeserializeGuard(Err(bad))) => Delete(former(&bad)?),
    };
    Some(Ok(event))
}

fn unreadable<K: Resource<DynamicType = ()>>(bad: &InvalidObject) {
    let meta = bad.metadata.clone();
    let subject = LogSubject {
        kind: K::kind(&()).into_owned(),
        namespace: meta.namespace.unwrap_or_default(),
        name: meta.name.unwrap_or_default(),
        uid: meta.uid.unwrap_or_default(),
        run_generation: None,
    };
    log_for!(error, &subject, error = bad.error, "an object cannot be read and is left alone; mend or delete it");
}

fn note<K: Resource<DynamicType = ()>>(index: &Mutex<Index>, keys: fn(&K) -> Vec<Key>, event: &watcher::Event<K>) -> Vec<Key> {
    let id = |object: &K| Arc::new((object.namespace().unwrap_or_default(), object.name_any()));
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
