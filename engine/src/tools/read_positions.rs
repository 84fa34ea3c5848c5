//! How far the words of other agents were read.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use yoi_wire::entry::ReadPosition;

/// By the agent's name. The log has each position in the end of the call that read so far.
#[derive(Debug, Default)]
pub struct ReadPositions(Mutex<BTreeMap<String, ReadPosition>>);

impl ReadPositions {
    /// Takes what the log says, in the place of all else.
    pub fn restore(&self, read: &BTreeMap<String, ReadPosition>) {
        *self.lock() = read.clone();
    }

    /// How far this agent was read.
    pub fn get(&self, agent: &str) -> Option<ReadPosition> {
        self.lock().get(agent).cloned()
    }

    /// It was read so far.
    pub fn set(&self, read: ReadPosition) {
        self.lock().insert(read.agent.clone(), read);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, ReadPosition>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
