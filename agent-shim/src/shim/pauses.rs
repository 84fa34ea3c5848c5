//! Pauses between what is done for a Pod: each as long as what was done before it took.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use tokio::time::{Instant, sleep_until};
use yoi_workspace::Uid;

/// When the next turn of each Pod may begin.
#[derive(Default)]
pub struct Pauses(Mutex<HashMap<Uid, Instant>>);

impl Pauses {
    /// Waits for the end of the Pod's pause.
    pub async fn wait(&self, pod: Uid) {
        let until = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&pod).copied();
        if let Some(until) = until {
            sleep_until(until).await;
        }
    }

    /// Begins a turn of the Pod. The caller sees to it that a Pod has one turn at a time.
    pub fn begin(&self, pod: Uid) -> Turn<'_> {
        Turn { pauses: self, pod, begun: Instant::now() }
    }
}

/// A turn of a Pod. When it is dropped, a pause begins that is as long as the turn was: so also if nobody waits for its result any longer.
pub struct Turn<'a> {
    pauses: &'a Pauses,
    pod: Uid,
    begun: Instant,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let now = Instant::now();
        let mut pauses = self.pauses.0.lock().unwrap_or_else(PoisonError::into_inner);
        pauses.retain(|_, until| *until > now);
        pauses.insert(self.pod, now + (now - self.begun));
    }
}
