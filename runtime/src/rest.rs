//! When the agent goes to rest: it has had nothing to do for as long as the Pod's annotation says.
//!
//! # Flow
//! Once it has been idle for that long, requests wait, and every conversation is asked whether anything is left for it. If nothing is, the gate of the
//! requests closes for good, the conversations end, and the last report says so. The process then waits for the end of its Pod: a container that starts
//! again would take messages in a Pod that goes.
//!
//! # Guarantees
//! Nothing waits in the inbox of an agent that rests.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use yoi_engine::open_session::OpenSession;
use yoi_engine::project::Conversations;
use yoi_wire::hub::{Activity, ReportReason, RuntimeReport, TaskState};
use yoi_wire::identity::REST_FILE;
use yoi_wire::open::Open;

use crate::annotation_file::watch_annotation;
use crate::request_gate::RequestGate;
use crate::status::RuntimeStatus;

/// How long the conversations may take to say that nothing is left for them.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// After an attempt that found something to do, the next one comes no sooner.
const NEXT_ATTEMPT: Duration = Duration::from_secs(5);

/// After how long without anything to do the agent rests, by the file beside the token in `folder`; `None`: never. Ends with `stop`.
pub fn watch_rest(folder: &Path, stop: CancellationToken) -> watch::Receiver<Option<Duration>> {
    watch_annotation(folder.join(REST_FILE), None, parse, "rest", stop)
}

/// `None` for what is no number of seconds.
fn parse(text: &str) -> Option<Option<Duration>> {
    match text {
        "" => Some(None),
        seconds => seconds.parse().ok().map(|seconds| Some(Duration::from_secs(seconds))),
    }
}

/// What the decision looks at.
pub struct Idleness {
    /// After how long the agent rests.
    pub after: watch::Receiver<Option<Duration>>,
    /// How long it stays awake at least, so that whoever woke it reaches it.
    pub awake: Duration,
    /// What it does.
    pub status: RuntimeStatus,
    /// Requests to it.
    pub gate: RequestGate,
    /// The session of `main`.
    pub main: watch::Receiver<Option<Arc<OpenSession>>>,
    /// The other conversations.
    pub others: watch::Receiver<Option<Arc<Conversations>>>,
    /// The manifest has a task.
    pub has_task: bool,
}

impl Idleness {
    /// Returns when the gate is closed and the agent is to rest.
    pub async fn until_rest(mut self) {
        let (mut report, mut gate) = (self.status.subscribe(), self.gate.subscribe());
        let mut not_before = Instant::now() + self.awake;
        let mut idle_since = None;
        loop {
            let after = *self.after.borrow_and_update();
            let is_idle = is_idle(&report.borrow_and_update(), self.has_task) && gate.borrow_and_update().requests == 0;
            let now = Instant::now();
            idle_since = idle_since.filter(|_| is_idle).or(is_idle.then_some(now));
            let due = after.zip(idle_since).map(|(after, since): (Duration, Instant)| (since + after).max(not_before));
            if due.is_some_and(|due| due <= now) {
                if self.closes(&report).await {
                    return;
                }
                not_before = Instant::now() + NEXT_ATTEMPT;
                continue;
            }
            let until_due = async {
                match due {
                    Some(due) => sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = until_due => {}
                Ok(()) = report.changed() => {}
                Ok(()) = gate.changed() => {}
                Ok(()) = self.after.changed() => {}
            }
        }
    }

    /// Closes the gate if nothing is left to do.
    async fn closes(&self, report: &watch::Receiver<RuntimeReport>) -> bool {
        if !self.gate.begin_to_close() {
            return false;
        }
        let is_over = timeout(ANSWER_TIMEOUT, self.nothing_is_left()).await.unwrap_or(false);
        // A message that was taken just before has begun its run by now: a conversation answers after it has looked into its inbox.
        let rests = is_over && is_idle(&report.borrow(), self.has_task);
        self.gate.decide(rests);
        tracing::info!(rests, "nothing to do for a while");
        rests
    }

    async fn nothing_is_left(&self) -> bool {
        let Some(main) = self.main.borrow().clone() else { return false };
        let others = self.others.borrow().clone();
        let names = others.iter().flat_map(|others| others.list()).map(|status| status.name);
        let open = names.filter_map(|name| others.as_ref()?.get(&name).ok()?.open_session());
        for session in std::iter::once(main).chain(open.collect::<Vec<_>>()) {
            let waiting = session.waiting_calls().await;
            if waiting.is_none_or(|calls| !calls.is_empty()) || session.has_work_pending() {
                return false;
            }
        }
        true
    }
}

/// Whether the agent has nothing to do. One that is not ready does not rest: its reason stays to be seen.
fn is_idle(report: &RuntimeReport, has_task: bool) -> bool {
    let task_is_done = match report.task.as_ref().map(|task| task.state.known()) {
        None => !has_task,
        Some(Some(TaskState::Succeeded | TaskState::Failed)) => true,
        Some(Some(TaskState::Submitted | TaskState::Running) | None) => false,
    };
    report.ready && report.activity == Open::Known(Activity::Idle) && report.background == 0 && task_is_done
}

/// Ends the conversations by `rest` once the agent is to rest. The process ends, too, if they do not end within `within`: what is in the log is whole.
pub async fn rest_when_idle(idleness: Idleness, rest: CancellationToken, within: Duration) {
    let status = idleness.status.clone();
    if rest.run_until_cancelled(idleness.until_rest()).await.is_none() {
        return;
    }
    rest.cancel();
    sleep(within).await;
    if status.subscribe().borrow().reason != ReportReason::Resting {
        tracing::error!("going to rest took too long; the process starts again");
        std::process::exit(0);
    }
}

#[cfg(test)]
mod tests {
    use yoi_engine::driver::ConversationObserver;
    use yoi_wire::hub::TaskReport;

    use super::*;
    use crate::status::SessionState;

    #[test]
    fn r5_a_command_in_the_background_a_call_that_waits_and_an_open_task_keep_it_awake() {
        let status = RuntimeStatus::new(1, None);
        let is_idle = |has_task| is_idle(&status.subscribe().borrow(), has_task);
        assert!(!is_idle(false), "it has not replayed yet");
        status.set_session_state(SessionState::Open);
        assert!(is_idle(false) && !is_idle(true), "the task is not submitted yet");
        for (activity, idle) in
            [(Activity::NeedsInput, false), (Activity::Paused, false), (Activity::Running, false), (Activity::Idle, true)]
        {
            status.on_progress(activity, None);
            assert_eq!(is_idle(false), idle, "{activity:?}");
        }
        status.set_background(1);
        assert!(!is_idle(false));
        status.set_background(0);
        for (state, idle) in [(TaskState::Submitted, false), (TaskState::Running, false), (TaskState::Failed, true)] {
            status.on_progress(Activity::Idle, Some(TaskReport { id: "t".to_owned(), state: state.into(), reason: None }));
            assert_eq!(is_idle(true), idle, "{state:?}");
        }
    }
}
