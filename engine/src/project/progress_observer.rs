//! An observer between a conversation and another observer.

use std::sync::Arc;

use yoi_wire::entry::RefusalClass;
use yoi_wire::hub::{Activity, SessionPointer, TaskReport};

use crate::driver::{ConversationObserver, FailedCall};

/// Passes everything on, and looks at the state of the task on its way.
pub(super) struct ProgressObserver<F> {
    pub(super) next: Arc<dyn ConversationObserver>,
    /// Returns the state of the task that is passed on.
    pub(super) on_task: F,
}

impl<F: Fn(Option<TaskReport>) -> Option<TaskReport> + Send + Sync> ConversationObserver for ProgressObserver<F> {
    fn on_entries_logged(&self) {
        self.next.on_entries_logged();
    }

    fn on_model_called(&self, failure: Option<FailedCall>) {
        self.next.on_model_called(failure);
    }

    fn on_progress(&self, activity: Activity, task: Option<TaskReport>) {
        self.next.on_progress(activity, (self.on_task)(task));
    }

    fn on_program_session(&self, lost: Option<String>) {
        self.next.on_program_session(lost);
    }

    fn on_rotated(&self, session: SessionPointer) {
        self.next.on_rotated(session);
    }

    fn on_call_refused(&self, class: RefusalClass) {
        self.next.on_call_refused(class);
    }

    fn on_wait(&self) {
        self.next.on_wait();
    }
}
