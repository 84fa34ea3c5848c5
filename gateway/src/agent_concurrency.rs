//! Limits how many requests of one agent are answered at once. More requests of that agent wait; requests of other agents do not.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Beyond this many agents, each new agent removes the entries of agents without a request in flight.
const PRUNE_ABOVE: usize = 1_000;

pub struct AgentConcurrency {
    limit: usize,
    by_agent: Mutex<HashMap<String, Weak<Semaphore>>>,
}

impl AgentConcurrency {
    pub fn new(limit: usize) -> Self {
        AgentConcurrency { limit, by_agent: Mutex::default() }
    }

    /// Waits until the agent has fewer requests in flight than the limit. Dropping the permit ends the request.
    pub async fn acquire(&self, agent_uid: &str) -> Option<OwnedSemaphorePermit> {
        // The semaphore is never closed, so this is always `Some`.
        self.semaphore(agent_uid).acquire_owned().await.ok()
    }

    fn semaphore(&self, agent_uid: &str) -> Arc<Semaphore> {
        let mut by_agent = self.by_agent.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(semaphore) = by_agent.get(agent_uid).and_then(Weak::upgrade) {
            return semaphore;
        }
        if by_agent.len() >= PRUNE_ABOVE {
            by_agent.retain(|_, semaphore| semaphore.strong_count() > 0);
        }
        let semaphore = Arc::new(Semaphore::new(self.limit));
        by_agent.insert(agent_uid.to_owned(), Arc::downgrade(&semaphore));
        semaphore
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[tokio::test]
    async fn requests_of_one_agent_wait_for_each_other_and_not_for_those_of_others() {
        let concurrency = AgentConcurrency::new(2);
        let first = concurrency.acquire("a").await;
        let _second = concurrency.acquire("a").await;
        let mut third = Box::pin(concurrency.acquire("a"));
        assert!(third.as_mut().now_or_never().is_none());
        assert!(concurrency.acquire("b").now_or_never().is_some());
        drop(first);
        assert!(third.await.is_some());
    }

    #[tokio::test]
    async fn the_entries_of_idle_agents_are_removed() {
        let concurrency = AgentConcurrency::new(1);
        for n in 0..2 * PRUNE_ABOVE {
            drop(concurrency.acquire(&n.to_string()).await);
        }
        assert!(concurrency.by_agent.lock().unwrap().len() <= PRUNE_ABOVE);
    }
}
