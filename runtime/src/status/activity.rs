//! What the agent does, as the sum of what its conversations do.

use std::collections::BTreeMap;
use std::sync::PoisonError;

use yoi_engine::driver::{ConversationObserver, FailedCall};
use yoi_wire::conversation::MAIN;
use yoi_wire::entry::RefusalClass;
use yoi_wire::hub::{Activity, RuntimeReport, SessionPointer, TaskReport};

use super::{RuntimeStatus, replace};

/// What each conversation does.
#[derive(Debug, Default)]
pub(super) struct Activities(BTreeMap<String, Activity>);

impl Activities {
    /// Names of those beside `main` that run.
    fn others(&self) -> Vec<String> {
        self.0.keys().filter(|name| *name != MAIN).cloned().collect()
    }

    /// Sets what a conversation does, `None` when it has ended, and returns what the agent does.
    pub fn set(&mut self, name: &str, activity: Option<Activity>) -> Activity {
        match activity {
            Some(activity) => self.0.insert(name.to_owned(), activity),
            None => self.0.remove(name),
        };
        // What a person has to see first.
        let order = [Activity::NeedsInput, Activity::Running, Activity::Paused];
        order.into_iter().find(|activity| self.0.values().any(|of| of == activity)).unwrap_or(Activity::Idle)
    }
}

/// Observes a conversation beside `main`. Of the agent it only says what it does.
pub struct OtherObserver {
    name: String,
    status: RuntimeStatus,
}

impl RuntimeStatus {
    /// An observer of the conversation of this name.
    #[must_use]
    pub fn observer_of(&self, name: &str) -> OtherObserver {
        OtherObserver { name: name.to_owned(), status: self.clone() }
    }

    fn set_activity(&self, name: &str, activity: Option<Activity>) {
        let mut activities = self.activities.lock().unwrap_or_else(PoisonError::into_inner);
        let (activity, conversations) = (activities.set(name, activity), activities.others());
        self.sender
            .send_if_modified(|report| replace(report, RuntimeReport { activity: activity.into(), conversations, ..report.clone() }));
    }
}

impl ConversationObserver for OtherObserver {
    fn on_entries_logged(&self) {}
    fn on_model_called(&self, _failure: Option<FailedCall>) {}

    fn on_progress(&self, activity: Activity, _task: Option<TaskReport>) {
        self.status.set_activity(&self.name, Some(activity));
    }

    fn on_program_session(&self, _lost: Option<String>) {}
    fn on_rotated(&self, _session: SessionPointer) {}

    fn on_call_refused(&self, class: RefusalClass) {
        self.status.count_refused(class);
    }

    fn on_wait(&self) {
        crate::allocator::release_free_memory();
    }
}

impl Drop for OtherObserver {
    fn drop(&mut self) {
        self.status.set_activity(&self.name, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_agent_does_what_is_most_urgent_in_any_of_its_conversations() {
        let status = RuntimeStatus::new(1, None);
        let activity = || status.subscribe().borrow().activity.known().unwrap();
        let others = || status.subscribe().borrow().conversations.clone();
        status.on_progress(Activity::Idle, None);
        let (first, second) = (status.observer_of("first"), status.observer_of("second"));
        first.on_progress(Activity::Running, None);
        assert_eq!(activity(), Activity::Running);
        second.on_progress(Activity::NeedsInput, None);
        assert_eq!(activity(), Activity::NeedsInput);
        assert_eq!(others(), ["first", "second"]);
        drop(second);
        assert_eq!((activity(), others()), (Activity::Running, vec!["first".to_owned()]));
        first.on_progress(Activity::Idle, None);
        assert_eq!(activity(), Activity::Idle);
        status.on_progress(Activity::Paused, None);
        assert_eq!(activity(), Activity::Paused);
    }
}
