//! What a sub-agent is given less of than its agent, and how it is learnt that it has done its task.

use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use yoi_wire::hub::{TaskReport, TaskState};
use yoi_wire::subagent::SubagentTemplate;

use crate::driver::ConversationObserver;
use crate::error_text::error_text;
use crate::policy::Policy;
use crate::project::progress_observer::ProgressObserver;
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

/// What the model of a sub-agent reads before its task.
pub(super) fn system_text(template: &SubagentTemplate, status: &SubagentStatus) -> String {
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

/// Learns how the task ends. Nobody else is told of it: it is no task of the agent.
pub(super) fn of_task(next: Arc<dyn ConversationObserver>, end: Arc<watch::Sender<TaskEnd>>) -> impl ConversationObserver {
    let on_task = move |task: Option<TaskReport>| {
        let ended = task.and_then(|task| match task.state.known()? {
            TaskState::Succeeded => Some((SubagentState::Completed, None)),
            TaskState::Failed => Some((SubagentState::Failed, task.reason)),
            TaskState::Submitted | TaskState::Running => None,
        });
        if ended.is_some() {
            end.send_if_modified(|known| {
                let is_first = known.is_none();
                if is_first {
                    *known = ended;
                }
                is_first
            });
        }
        None
    };
    ProgressObserver { next, on_task }
}
