//! Records when watches of one namespace saw which state of each object.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::StreamExt;
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::Value;
use tokio::task::JoinSet;
use yoi_e2e::test_namespace::{TestNamespace, TestObject};

struct Observation {
    at: Instant,
    kind: &'static str,
    object: Value,
}

/// All observations since the last `clear`. The watches end when it is dropped.
pub struct Trace {
    seen: Arc<Mutex<Vec<Observation>>>,
    followers: JoinSet<()>,
}

impl Trace {
    pub fn new() -> Self {
        Self { seen: Arc::default(), followers: JoinSet::new() }
    }

    pub fn follow<K: TestObject>(&mut self, ns: &TestNamespace, kind: &'static str) {
        let (api, seen) = (ns.api::<K>(), self.seen.clone());
        self.followers.spawn(async move {
            let mut stream = watcher(api, watcher::Config::default()).default_backoff().applied_objects().boxed();
            while let Some(next) = stream.next().await {
                if let Ok(object) = next {
                    let object = serde_json::to_value(&object).unwrap_or_default();
                    seen.lock().expect("no holder panics").push(Observation { at: Instant::now(), kind, object });
                }
            }
        });
    }

    /// Returns the time from `since` until an object of this kind, whose name begins with `name`, first satisfied `is`.
    pub fn first(&self, since: Instant, kind: &str, name: &str, is: impl Fn(&Value) -> bool) -> Option<Duration> {
        let seen = self.seen.lock().expect("no holder panics");
        let named = |object: &Value| object["metadata"]["name"].as_str().is_some_and(|n| n.starts_with(name));
        let hit = seen.iter().find(|s| s.at >= since && s.kind == kind && named(&s.object) && is(&s.object))?;
        Some(hit.at - since)
    }

    /// Returns how many versions of the object were seen, in other words how often it was written. Two writes within one delivery count once.
    pub fn versions(&self, kind: &str, name: &str) -> usize {
        let seen = self.seen.lock().expect("no holder panics");
        let of = seen.iter().filter(|s| s.kind == kind && s.object["metadata"]["name"] == name);
        of.map(|s| s.object["metadata"]["resourceVersion"].to_string()).collect::<BTreeSet<_>>().len()
    }

    /// Returns how many objects of this kind, whose names begin with `prefix`, have satisfied `is`.
    pub fn count(&self, kind: &str, prefix: &str, is: impl Fn(&Value) -> bool) -> usize {
        let seen = self.seen.lock().expect("no holder panics");
        let of = seen.iter().filter(|s| s.kind == kind && is(&s.object));
        let names = of.filter_map(|s| s.object["metadata"]["name"].as_str()).filter(|name| name.starts_with(prefix));
        names.collect::<BTreeSet<_>>().len()
    }

    pub fn clear(&self) {
        self.seen.lock().expect("no holder panics").clear();
    }
}

/// Returns whether a condition of this type is True.
pub fn is_true(object: &Value, type_: &str) -> bool {
    object["status"]["conditions"].as_array().is_some_and(|all| all.iter().any(|c| c["type"] == type_ && c["status"] == "True"))
}
