//! A lock for each key.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::OwnedMutexGuard;

/// Locks by key, made when they are first taken. Those who wait for a lock get it in the order in which they came.
pub struct KeyedLocks<K>(Mutex<HashMap<K, Arc<tokio::sync::Mutex<()>>>>);

impl<K> Default for KeyedLocks<K> {
    fn default() -> Self {
        KeyedLocks(Mutex::default())
    }
}

impl<K: Eq + Hash> KeyedLocks<K> {
    /// Waits for the lock of `key` and holds it until the guard is dropped.
    pub async fn lock(&self, key: K) -> OwnedMutexGuard<()> {
        let lock = {
            let mut locks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            // Whoever holds a lock or waits for it has a reference to it.
            locks.retain(|_, lock| Arc::strong_count(lock) > 1);
            locks.entry(key).or_default().clone()
        };
        lock.lock_owned().await
    }
}
