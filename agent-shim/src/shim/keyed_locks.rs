//! One at a time per key: those who come later queue, and are never told "busy".

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::OwnedMutexGuard;

pub struct KeyedLocks<K>(Mutex<HashMap<K, Arc<tokio::sync::Mutex<()>>>>);

impl<K> Default for KeyedLocks<K> {
    fn default() -> Self {
        KeyedLocks(Mutex::default())
    }
}

impl<K: Eq + Hash> KeyedLocks<K> {
    pub async fn lock(&self, key: K) -> OwnedMutexGuard<()> {
        let lock = {
            let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            // Whoever holds or waits for a lock holds a reference to it.
            held.retain(|_, lock| Arc::strong_count(lock) > 1);
            held.entry(key).or_default().clone()
        };
        lock.lock_owned().await
    }
}
