//! The policy that counts for the calls of a conversation, which may be another one from one call to the next.

use std::sync::{Arc, Mutex, PoisonError};

use crate::policy::Policy;

/// The policy of one conversation.
#[derive(Debug)]
pub struct PolicyInForce(Mutex<Arc<Policy>>);

impl PolicyInForce {
    pub(super) fn new(policy: Arc<Policy>) -> Self {
        Self(Mutex::new(policy))
    }

    /// As it is now. Who asks it several times about one call asks the same one.
    #[must_use]
    pub fn get(&self) -> Arc<Policy> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set(&self, policy: Arc<Policy>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = policy;
    }
}
