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
/// An object that is deleted is queued, too: the controller then reports it as not found. The objects of a listing are queued when it is complete,
/// because the cache does not hold a new one before. Events that the caller filters out of `events` queue nothing.
pub fn queue<K>(
    events: impl Stream<Item = Result<Event<Arc<K>>, watcher::Error>> + Send + 'static,
) -> (impl Stream<Item = Result<Queued<K>, watcher::Error>> + Send + 'static, Store<Queued<K>>)
where
    K: Resource<DynamicType = ()> + Clone + Debug + Send + Sync + 'static,
{
    let (store, writer) = reflector::store();
    let names = events.map(|event| event.map(|event| map_event(event, |object| queued(&*object))));
    let mut listed = Vec::new();
    let ready = names.reflect(writer).flat_map(move |event| futures::stream::iter(ready_names(&mut listed, event)));
    (ready, store)
}

/// What one event queues. `listed` holds the names of a listing that is not complete.
fn ready_names<N>(listed: &mut Vec<N>, event: Result<Event<N>, watcher::Error>) -> Vec<Result<N, watcher::Error>> {
    match event {
        Ok(Event::Init) => {
            listed.clear();
            Vec::new()
        }
        Ok(Event::InitApply(name)) => {
            listed.push(name);
            Vec::new()
        }
        Ok(Event::InitDone) => std::mem::take(listed).into_iter().map(Ok).collect(),
        Ok(Event::Apply(name) | Event::Delete(name)) => vec![Ok(name)],
        Err(error) => vec![Err(error)],
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use futures::executor::block_on;
    use k8s_openapi::api::core::v1::Pod;

    fn pod(name: &str) -> Arc<Pod> {
        let mut pod = Pod::default();
        pod.metadata.name = Some(name.to_owned());
        Arc::new(pod)
    }

    #[test]
    fn objects_of_a_listing_are_queued_when_it_is_complete() {
        let (events, received) = futures::channel::mpsc::unbounded();
        let (names, store) = queue(received.map(Ok));
        let mut names = Box::pin(names.map(|name| name.unwrap().metadata.name.unwrap()));
        let send = |event| events.unbounded_send(event).unwrap();
        let mut next_now = || block_on(futures::future::poll_immediate(names.next())).flatten();
        send(Event::Init);
        send(Event::InitApply(pod("a")));
        assert_eq!(next_now(), None);
        send(Event::InitDone);
        assert_eq!(next_now().as_deref(), Some("a"));
        assert_eq!(store.state().len(), 1);
        send(Event::Apply(pod("b")));
        assert_eq!(next_now().as_deref(), Some("b"));
        // A listing that broke off is forgotten; the next one is whole.
        send(Event::Init);
        send(Event::InitApply(pod("c")));
        send(Event::Init);
        send(Event::InitApply(pod("d")));
        send(Event::InitDone);
        assert_eq!(next_now().as_deref(), Some("d"));
        assert_eq!(next_now(), None);
    }
}
