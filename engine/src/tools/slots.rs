//! How many calls are in flight at once. Calls get their slots in the order in which they came.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};
use yoi_wire::entry::RefusalClass;

use crate::decision::Refusal;

/// Calls in flight in the whole project.
pub(super) const PROJECT_SLOTS: usize = 8;
/// Calls in flight in one conversation.
pub(super) const CONVERSATION_SLOTS: usize = 4;

/// The slots of a project, which its conversations share.
#[derive(Clone, Debug)]
pub struct ProjectSlots(Arc<Semaphore>);

impl Default for ProjectSlots {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(PROJECT_SLOTS)))
    }
}

/// The slots of one conversation, beside those of its project.
#[derive(Clone, Debug)]
pub(super) struct Slots {
    project: ProjectSlots,
    pub(super) conversation: Arc<Semaphore>,
}

/// A slot of the conversation and one of the project, until it is dropped.
#[derive(Debug)]
pub(super) struct Slot {
    _conversation: OwnedSemaphorePermit,
    _project: OwnedSemaphorePermit,
}

impl Slots {
    /// The slots of a new conversation of the project.
    pub fn new(project: ProjectSlots) -> Self {
        Self { project, conversation: Arc::new(Semaphore::new(CONVERSATION_SLOTS)) }
    }

    /// The slots of another conversation of the same project.
    pub fn of_another_conversation(&self) -> Self {
        Self::new(self.project.clone())
    }

    /// Waits for a slot of the conversation and then for one of the project, for at most `limit` in all.
    pub async fn take(&self, limit: Duration) -> Result<Slot, Refusal> {
        let deadline = Instant::now() + limit;
        let full = |slots: usize, of: &str| {
            let why = format_args!("within {} s none of the {slots} calls in flight in this {of} ended; nothing was done", limit.as_secs());
            Refusal::new(RefusalClass::SlotsFull, why)
        };
        // The semaphores are never closed.
        let Ok(Ok(conversation)) = timeout_at(deadline, self.conversation.clone().acquire_owned()).await else {
            return Err(full(CONVERSATION_SLOTS, "conversation"));
        };
        let Ok(Ok(project)) = timeout_at(deadline, self.project.0.clone().acquire_owned()).await else {
            return Err(full(PROJECT_SLOTS, "project"));
        };
        Ok(Slot { _conversation: conversation, _project: project })
    }
}
