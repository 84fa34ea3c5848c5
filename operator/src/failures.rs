//! How often in a row the reconcile of each object failed; it gives the length of the next pause.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Kind, namespace and name.
type Id = (String, String, String);

#[derive(Default)]
pub struct Failures(Mutex<HashMap<Id, u32>>);

fn id(kind: &str, namespace: &str, name: &str) -> Id {
    (kind.to_owned(), namespace.to_owned(), name.to_owned())
}

impl Failures {
    /// Counts a failure and returns the pause after it: 1 s at first, doubled each time, at most 5 min.
    pub fn record_failure(&self, kind: &str, namespace: &str, name: &str) -> Duration {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = all.entry(id(kind, namespace, name)).or_default();
        let pause = Duration::from_secs((1_u64 << (*count).min(9)).min(300));
        *count = count.saturating_add(1);
        pause
    }

    /// Ends the count: the reconcile succeeded, or the object is gone.
    pub fn forget(&self, kind: &str, namespace: &str, name: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&id(kind, namespace, name));
    }

    /// How many objects failed at their last reconcile.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}
