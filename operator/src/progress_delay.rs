//! Statuses that tell of progress only are written a moment later, so that one write tells what several would have told.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The longest that a status of progress waits. People look at it; no controller acts on it.
pub const PROGRESS_DELAY: Duration = Duration::from_secs(2);

/// Kind, namespace and name.
type Id = (String, String, String);

/// Since when each object's status differs from what is written. It is lost with the process: then the time begins anew.
#[derive(Default)]
pub struct ProgressDelay(Mutex<HashMap<Id, Instant>>);

fn id(kind: &str, namespace: &str, name: &str) -> Id {
    (kind.to_owned(), namespace.to_owned(), name.to_owned())
}

impl ProgressDelay {
    /// Returns how much longer a status waits; `None` once [`PROGRESS_DELAY`] is over.
    pub fn remaining(&self, kind: &str, namespace: &str, name: &str, now: Instant) -> Option<Duration> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let since = *all.entry(id(kind, namespace, name)).or_insert(now);
        PROGRESS_DELAY.checked_sub(now.saturating_duration_since(since)).filter(|left| !left.is_zero())
    }

    /// Nothing waits any more: the status is written, is again as it is written, or its object is gone.
    pub fn forget(&self, kind: &str, namespace: &str, name: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&id(kind, namespace, name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_that_keeps_changing_waits_no_longer_than_the_delay() {
        let (delays, begin) = (ProgressDelay::default(), Instant::now());
        let remaining = |millis| delays.remaining("YoiPod", "ns", "a", begin + Duration::from_millis(millis));
        assert_eq!((remaining(0), remaining(1_500)), (Some(PROGRESS_DELAY), Some(Duration::from_millis(500))));
        assert_eq!((remaining(2_000), remaining(9_000)), (None, None));
        delays.forget("YoiPod", "ns", "a");
        assert_eq!(remaining(9_000), Some(PROGRESS_DELAY));
    }

    #[test]
    fn objects_wait_each_for_itself() {
        let (delays, begin) = (ProgressDelay::default(), Instant::now());
        delays.remaining("YoiPod", "ns", "a", begin);
        let later = begin + PROGRESS_DELAY;
        for (kind, namespace, name) in [("YoiPod", "ns", "b"), ("YoiPod", "other", "a"), ("YoiPeer", "ns", "a")] {
            assert_eq!(delays.remaining(kind, namespace, name, later), Some(PROGRESS_DELAY));
        }
    }
}
