//! What a sub-agent is given less of than its agent, and how it is learnt that it has done its task.

use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use yoi_wire::entry::RefusalClass;
use yoi_wire::hub::{Activity, SessionPointer, TaskReport, TaskState};
use yoi_wire::subagent::SubagentTemplate;

use crate::driver::{ConversationObserver, FailedCall};
use crate::error_text::error_text;
use crate::policy::Policy;
use crate::subagents::{SubagentState, SubagentStatus};

/// How the task of a sub-agent has ended, once it has.
pub(super) type TaskEnd = Option<(SubagentState, Option<String>)>;

/// Keeps the policy of a sub-agent below that of its agent, which may change.
pub(super) async fn follow_policy(
    mut of_agent: watch::Receiver<Arc<Policy>>,
    template: SubagentTemplate,
    narrowed: watch::Sender<Arc<Policy>>,
    stop: CancellationToken,
) {
    while stop.run_until_cancelled(of_agent.changed()).await.is_some_and(|changed| changed.is_ok()) {
        let source = template.narrowed(of_agent.borrow_and_update().source());
        match Policy::new(&source) {
            Ok(policy) => drop(narrowed.send_replace(Arc::new(policy))),
            Err(error) => tracing::error!(error = error_text(&error), template = template.name, "policy of a sub-agent is not renewed"),
        }
    }
}

pub(super) fn told(template: &SubagentTemplate, status: &SubagentStatus) -> String {
    let mut text = format!(
        "You are the sub-agent {:?}. Another conversation of this agent has started you for one task, for at most {} s. It works in the same tree at the same \
         time. When you are done, answer with all that it needs to know: your last answer is all that it reads of you.",
        status.name, status.seconds
    );
    if !template.instruction.is_empty() {
        text.push_str("\n\n");
        text.push_str(&template.instruction);
    }
    text
}

/// Learns the end of the task, and passes all on.
pub(super) struct TaskObserver {
    pub(super) next: Arc<dyn ConversationObserver>,
    pub(super) end: Arc<watch::Sender<TaskEnd>>,
}

impl ConversationObserver for TaskObserver {
    fn on_entries_logged(&self) {
        self.next.on_entries_logged();
    }

    fn on_model_called(&self, failure: Option<FailedCall>) {
        self.next.on_model_called(failure);
    }

    fn on_progress(&self, activity: Activity, task: Option<TaskReport>) {
        let end = task.as_ref().and_then(|task| match task.state.known()? {
            TaskState::Succeeded => Some((SubagentState::Completed, None)),
            TaskState::Failed => Some((SubagentState::Failed, task.reason.clone())),
            TaskState::Submitted | TaskState::Running => None,
        });
        if end.is_some() {
            self.end.send_if_modified(|known| {
                known.is_none() && {
                    *known = end;
                    true
                }
            });
        }
        self.next.on_progress(activity, None);
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
