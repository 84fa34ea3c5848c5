//! How often in a row each object's rounds failed, and so how long the next pause is.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Kind, namespace, name. An object that is gone is forgotten.
type Id = (String, String, String);

#[derive(Default)]
pub struct Failures(Mutex<HashMap<Id, u32>>);

fn id(kind: &str, namespace: &str, name: &str) -> Id {
    (kind.to_owned(), namespace.to_owned(), name.to_owned())
}

impl Failures {
    /// The next pause after a failure: 1 s, doubled, at most 5 min.
    pub fn failed(&self, kind: &str, namespace: &str, name: &str) -> Duration {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = all.entry(id(kind, namespace, name)).or_default();
        let pause = Duration::from_secs((1_u64 << (*count).min(9)).min(300));
        *count = count.saturating_add(1);
        pause
    }

    /// It succeeded, or it is no more.
    pub fn forget(&self, kind: &str, namespace: &str, name: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&id(kind, namespace, name));
    }

    /// Objects whose last round failed.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}
