//! Looks again at every object once in a while: a change that triggered nobody is noticed then.
//!
//! A timer for each object, as kube has it, takes half a KiB for each. So every few seconds a slice of all objects is triggered.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt, stream};
use kube::runtime::reflector::ObjectRef;
use tokio::time::{MissedTickBehavior, interval};
use yoi_plan::meta;
use yoi_watch_cache::Queued;

use super::{Context, Reconciled};

/// Time between two slices.
const EVERY: Duration = Duration::from_secs(10);
/// So many slices make all objects: each is looked at once in twelve and a half minutes.
const SLICES: u64 = 75;

/// Every object of the kind, again and again, spread over time by the names of the objects.
pub(super) fn resync<K: Reconciled>(context: Arc<Context>) -> impl Stream<Item = ObjectRef<Queued<K>>> + Send + 'static {
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let slices = stream::unfold((ticks, 0), move |(mut ticks, slice)| {
        let context = Arc::clone(&context);
        async move {
            ticks.tick().await;
            let all = K::all(&context.caches);
            let names = all.iter().map(|object| (meta::namespace(object.meta()), meta::name(object.meta())));
            let due = names.filter(|(namespace, name)| slice_of(namespace, name) == slice);
            let due: Vec<_> = due.map(|(namespace, name)| ObjectRef::new(name).within(namespace)).collect();
            Some((stream::iter(due), (ticks, (slice + 1) % SLICES)))
        }
    });
    slices.flatten()
}

fn slice_of(namespace: &str, name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (namespace, name).hash(&mut hasher);
    hasher.finish() % SLICES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_spread_over_all_slices() {
        let mut sizes = [0; SLICES as usize];
        (0..10_000).for_each(|n| sizes[slice_of("team", &format!("agent-{n}")) as usize] += 1);
        // 133 on average.
        assert!(sizes.iter().all(|size| (60..240).contains(size)), "{sizes:?}");
    }
}
