//! Messages to other agents that may or may not have arrived.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Mutex, MutexGuard, PoisonError};

use uuid::Uuid;

/// Recipient and text.
pub type MessageKey = (String, String);

/// Ids of this run's messages that may or may not have arrived, by recipient and text. The same text to the same agent is the same message.
#[derive(Debug, Default)]
pub struct UnconfirmedMessages(Mutex<HashMap<MessageKey, String>>);

impl UnconfirmedMessages {
    /// Forgets all ids: the same text in a later run is a new message.
    pub fn clear(&self) {
        self.lock().clear();
    }

    /// The id of this message, and whether an earlier call may have sent it.
    pub fn id_of(&self, message: &MessageKey) -> (String, bool) {
        match self.lock().entry(message.clone()) {
            Entry::Occupied(known) => (known.get().clone(), true),
            Entry::Vacant(new) => (new.insert(Uuid::new_v4().to_string()).clone(), false),
        }
    }

    /// What became of this message is known.
    pub fn remove(&self, message: &MessageKey) {
        self.lock().remove(message);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<MessageKey, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
