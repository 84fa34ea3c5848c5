//! A cache whose entries expire.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// At this many entries, each insertion first removes the expired ones. While none has expired, new values are not stored.
const MAX_ENTRIES: usize = 20_000;

/// Values that are returned for a fixed time after their insertion.
pub struct TtlCache<K, V> {
    ttl: Duration,
    entries: Mutex<HashMap<K, (Instant, V)>>,
}

impl<K: Eq + Hash, V: Clone> TtlCache<K, V> {
    pub fn new(ttl: Duration) -> Self {
        TtlCache { ttl, entries: Mutex::default() }
    }

    pub fn get(&self, key: &K, now: Instant) -> Option<V> {
        self.get_with_age(key, now).map(|(value, _)| value)
    }

    /// The value, and how long ago it was inserted.
    pub fn get_with_age(&self, key: &K, now: Instant) -> Option<(V, Duration)> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, value) = entries.get(key)?;
        let age = now.saturating_duration_since(*since);
        (age < self.ttl).then(|| (value.clone(), age))
    }

    pub fn remove(&self, key: &K) {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }

    pub fn insert(&self, key: K, value: V, now: Instant) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.len() >= MAX_ENTRIES {
            entries.retain(|_, (since, _)| now.duration_since(*since) < self.ttl);
        }
        if entries.len() < MAX_ENTRIES {
            entries.insert(key, (now, value));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_expires() {
        let (cache, start) = (TtlCache::new(Duration::from_secs(10)), Instant::now());
        cache.insert("a", 1, start);
        assert_eq!(cache.get(&"a", start + Duration::from_secs(9)), Some(1));
        assert_eq!(cache.get(&"a", start + Duration::from_secs(10)), None);
    }
}
