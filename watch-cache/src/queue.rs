//! The work queue of a controller: names of objects, not their contents.

use std::fmt::Debug;
use std::sync::Arc;

use futures::{Stream, StreamExt};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::core::PartialObjectMeta;
use kube::runtime::WatchStreamExt;
use kube::runtime::reflector::{self, Store};
use kube::runtime::watcher::{self, Event};

/// Namespace and name of an object of kind `K`. The reconciler reads the object itself from the cache, which is never older.
pub type Queued<K> = PartialObjectMeta<K>;

/// The two arguments of [`Controller::for_stream`](kube::runtime::Controller::for_stream), from the events of
/// [`CacheWriter::watch`](crate::CacheWriter::watch).
///
/// An object that is deleted is queued, too: the controller then reports it as not found. Events that the caller filters out of `events` queue
/// nothing.
pub fn queue<K>(
    events: impl Stream<Item = Result<Event<Arc<K>>, watcher::Error>> + Send + 'static,
) -> (impl Stream<Item = Result<Queued<K>, watcher::Error>> + Send + 'static, Store<Queued<K>>)
where
    K: Resource<DynamicType = ()> + Clone + Debug + Send + Sync + 'static,
{
    let (store, writer) = reflector::store();
    let names = events.map(|event| event.map(|event| map_event(event, |object| queued(&*object))));
    (names.reflect(writer).touched_objects(), store)
}

fn queued<K: Resource<DynamicType = ()>>(object: &K) -> Queued<K> {
    let ObjectMeta { namespace, name, .. } = object.meta().clone();
    let metadata = ObjectMeta { namespace, name, ..ObjectMeta::default() };
    PartialObjectMeta { types: None, metadata, _phantom: std::marker::PhantomData }
}

pub(crate) fn map_event<A, B>(event: Event<A>, map: impl FnOnce(A) -> B) -> Event<B> {
    match event {
        Event::Init => Event::Init,
        Event::InitApply(object) => Event::InitApply(map(object)),
        Event::InitDone => Event::InitDone,
        Event::Apply(object) => Event::Apply(map(object)),
        Event::Delete(object) => Event::Delete(map(object)),
    }
}
