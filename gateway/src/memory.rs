//! Short memories of what the API server said.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Beyond this many entries the expired ones are swept out at each insertion, and nothing new is remembered while none has expired.
const MOST: usize = 20_000;

/// Values that may be used again for a short while.
pub struct Memory<K, V> {
    ttl: Duration,
    entries: Mutex<HashMap<K, (Instant, V)>>,
}

impl<K: Eq + Hash, V: Clone> Memory<K, V> {
    pub fn new(ttl: Duration) -> Self {
        Memory { ttl, entries: Mutex::default() }
    }

    pub fn recall(&self, key: &K, now: Instant) -> Option<V> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.get(key).filter(|(since, _)| now.duration_since(*since) < self.ttl).map(|(_, value)| value.clone())
    }

    pub fn keep(&self, key: K, value: V, now: Instant) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.len() >= MOST {
            entries.retain(|_, (since, _)| now.duration_since(*since) < self.ttl);
        }
        if entries.len() < MOST {
            entries.insert(key, (now, value));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_memory_fades() {
        let (memory, start) = (Memory::new(Duration::from_secs(10)), Instant::now());
        memory.keep("a", 1, start);
        assert_eq!(memory.recall(&"a", start + Duration::from_secs(9)), Some(1));
        assert_eq!(memory.recall(&"a", start + Duration::from_secs(10)), None);
    }
}
