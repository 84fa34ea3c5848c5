//! How many requests of one agent are answered at once; the others wait, and nobody else waits for them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Beyond this many agents, those without a request under way are forgotten at each newcomer.
const SWEPT_ABOVE: usize = 1_000;

pub struct Turns {
    each: usize,
    of: Mutex<HashMap<String, Weak<Semaphore>>>,
}

impl Turns {
    pub fn new(each: usize) -> Self {
        Turns { each, of: Mutex::default() }
    }

    /// Waits until the agent has less than its number under way; the turn ends when the permit is dropped.
    pub async fn wait(&self, agent_uid: &str) -> Option<OwnedSemaphorePermit> {
        // Never closed, so there always is one.
        self.semaphore(agent_uid).acquire_owned().await.ok()
    }

    fn semaphore(&self, agent_uid: &str) -> Arc<Semaphore> {
        let mut of = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(semaphore) = of.get(agent_uid).and_then(Weak::upgrade) {
            return semaphore;
        }
        if of.len() >= SWEPT_ABOVE {
            of.retain(|_, semaphore| semaphore.strong_count() > 0);
        }
        let semaphore = Arc::new(Semaphore::new(self.each));
        of.insert(agent_uid.to_owned(), Arc::downgrade(&semaphore));
        semaphore
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[tokio::test]
    async fn one_agents_requests_wait_for_each_other_and_for_nobody_elses() {
        let turns = Turns::new(2);
        let first = turns.wait("a").await;
        let _second = turns.wait("a").await;
        let mut third = Box::pin(turns.wait("a"));
        assert!(third.as_mut().now_or_never().is_none());
        assert!(turns.wait("b").now_or_never().is_some());
        drop(first);
        assert!(third.await.is_some());
    }

    #[tokio::test]
    async fn idle_agents_are_forgotten() {
        let turns = Turns::new(1);
        for n in 0..2 * SWEPT_ABOVE {
            drop(turns.wait(&n.to_string()).await);
        }
        assert!(turns.of.lock().unwrap().len() <= SWEPT_ABOVE);
    }
}
