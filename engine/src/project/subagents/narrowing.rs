//! What a sub-agent is started with, which is less than its agent has, and who learns that it has done its task.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;
use yoi_wire::entry::CallFrom;
use yoi_wire::hub::{TaskReport, TaskState};
use yoi_wire::manifest::Task;
use yoi_wire::subagent::SubagentTemplate;

use crate::conversation::RunSettings;
use crate::driver::ConversationObserver;
use crate::error_text::error_text;
use crate::policy::Policy;
use crate::project::ProjectError;
use crate::project::parts::{ConversationKind, ConversationParts};
use crate::project::progress_observer::ProgressObserver;
use crate::subagents::{SubagentState, SubagentStatus};

/// How the task of a sub-agent has ended, once it has.
pub(super) type TaskEnd = Option<(SubagentState, Option<String>)>;

/// What a sub-agent is started with: all that its conversation has, and no more of it than the template leaves. Also returns where the end of its task is seen.
pub(super) fn narrowed_parts(
    parts: &ConversationParts,
    template: &SubagentTemplate,
    status: &SubagentStatus,
    task: String,
    used_before: u64,
    stop: &CancellationToken,
) -> Result<(ConversationParts, watch::Receiver<TaskEnd>), ProjectError> {
    let of_agent = parts.policy.borrow().clone();
    let policy = Arc::new(Policy::new(&template.narrowed(of_agent.source()))?);
    let only: BTreeSet<String> = status.tools.iter().cloned().collect();
    let tools = parts.tools.for_subagent(only, template.mode);
    tools.runner().set_policy(policy.clone());
    let named_policy = policy.source().clone();
    let (narrowed, policies) = watch::channel(policy);
    tokio::spawn(follow_policy(parts.policy.clone(), template.clone(), narrowed, stop.clone()));
    let (form, gate, text) = (parts.form_config.clone(), tools.clone(), system_text(template, status));
    let (observe, (end, ended)) = (parts.observe.clone(), watch::channel(None));
    let end = Arc::new(end);
    let turns = [template.turns, template.mode.map(|mode| mode.steps())].into_iter().flatten();
    let parts = ConversationParts {
        kind: ConversationKind::Subagent { used_before, tokens: template.tokens },
        subagents: None,
        settings: RunSettings { turns_per_run: turns.fold(parts.settings.turns_per_run, u32::min), ..parts.settings },
        observe: Arc::new(move |name: &str| -> Arc<dyn ConversationObserver> { Arc::new(task_observer(observe(name), end.clone())) }),
        form_config: Arc::new(move || {
            let mut config = form();
            config.tools = gate.offered(CallFrom::Model);
            config.system.push(text.clone());
            config
        }),
        tools,
        policy: policies,
        named_policy,
        task: Some(Task { id: Uuid::now_v7().to_string(), text: task }),
        ..parts.clone()
    };
    Ok((parts, ended))
}

/// Keeps the policy of a sub-agent below that of its agent, which may change.
async fn follow_policy(
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
fn system_text(template: &SubagentTemplate, status: &SubagentStatus) -> String {
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
fn task_observer(next: Arc<dyn ConversationObserver>, end: Arc<watch::Sender<TaskEnd>>) -> impl ConversationObserver {
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
