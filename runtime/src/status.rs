//! The runtime's report to the gateway. `sending` sends it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use yoi_engine::assets::{ProjectAssets, report};
use yoi_engine::driver::{ConversationObserver, FailedCall};
use yoi_wire::assets::AssetsReport;
use yoi_wire::conversation::MAIN;
use yoi_wire::entry::RefusalClass;
use yoi_wire::hub::{Activity, ReportReason, RuntimeReport, SessionPointer, TaskReport};

mod activity;
mod not_ready;
mod sending;

use activity::Activities;
pub use not_ready::NotReady;
pub use sending::send_reports;

/// Whether this process can use the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionState {
    Starting,
    /// Replayed and locked, and the log takes entries.
    Open,
    /// It cannot be used, for this reason.
    Broken(NotReady),
}

/// What the report is computed from. Each field has one writer, so a problem that ends never hides one that lasts.
#[derive(Clone, Debug)]
struct StatusInputs {
    session: SessionState,
    /// Which Secret is missing.
    missing_secret: Option<String>,
    /// Why the program that is the agent cannot run.
    program: Option<NotReady>,
    /// Why the inbox takes no messages.
    inbox: Option<NotReady>,
    /// How the model's last call failed.
    model: Option<FailedCall>,
    stopping: bool,
    /// The agent has gone to rest.
    resting: bool,
}

impl StatusInputs {
    /// Ready, reason and message: the first problem, in order of importance.
    fn condition(&self) -> (bool, ReportReason, &str) {
        if self.resting {
            return (false, ReportReason::Resting, "the agent had nothing to do and rests");
        }
        if self.stopping {
            return (false, ReportReason::Stopping, "the runtime was asked to stop");
        }
        match &self.session {
            SessionState::Broken(failure) => return (false, failure.reason, &failure.message),
            SessionState::Starting if self.missing_secret.is_none() => return (false, ReportReason::Starting, "the runtime is starting"),
            SessionState::Starting | SessionState::Open => {}
        }
        if let Some(message) = &self.missing_secret {
            return (false, ReportReason::SecretMissing, message);
        }
        if let Some(failure) = &self.program {
            return (false, failure.reason, &failure.message);
        }
        if let Some(failure) = &self.inbox {
            return (false, failure.reason, &failure.message);
        }
        if let Some(failed) = &self.model {
            return (false, failed.reason, &failed.summary);
        }
        (true, ReportReason::Replayed, "the session is locked and replayed")
    }
}

/// The runtime's current report. Cheap to clone; every change notifies the subscribers.
#[derive(Clone, Debug)]
pub struct RuntimeStatus {
    inputs: Arc<Mutex<StatusInputs>>,
    activities: Arc<Mutex<Activities>>,
    sender: watch::Sender<RuntimeReport>,
}

impl RuntimeStatus {
    /// A report with the reason `Starting`, or `SecretMissing` with this message.
    #[must_use]
    pub fn new(run_generation: u64, missing_secret: Option<String>) -> Self {
        let inputs = StatusInputs {
            session: SessionState::Starting,
            missing_secret,
            program: None,
            inbox: None,
            model: None,
            stopping: false,
            resting: false,
        };
        let (ready, reason, message) = inputs.condition();
        let report = RuntimeReport {
            run_generation,
            ready,
            reason: reason.into(),
            message: message.to_owned(),
            session: None,
            task: None,
            activity: Activity::Idle.into(),
            volume_run_generation: None,
            scope: None,
            has_frame: None,
            has_git: None,
            program: None,
            program_session: None,
            assets: None,
            background: 0,
            conversations: Vec::new(),
            refused_calls: BTreeMap::new(),
        };
        Self { inputs: Arc::new(Mutex::new(inputs)), activities: Arc::default(), sender: watch::channel(report).0 }
    }

    /// Sets whether the session can be used.
    pub fn set_session_state(&self, session: SessionState) {
        self.update(|inputs| inputs.session = session);
    }

    /// Sets why the inbox takes no messages; `None` when it does.
    pub fn set_inbox_failure(&self, failure: Option<NotReady>) {
        self.update(|inputs| inputs.inbox = failure);
    }

    /// Sets why the program that is the agent cannot run; `None` when it can.
    pub fn set_program_failure(&self, failure: Option<NotReady>) {
        self.update(|inputs| inputs.program = failure);
    }

    /// Sets what the kernel lacks of the frame, empty: nothing; and whether there is a frame at all.
    pub fn set_scope(&self, scope: String, has_frame: bool) {
        let (scope, has_frame) = (Some(scope), Some(has_frame));
        self.sender.send_if_modified(|report| replace(report, RuntimeReport { scope, has_frame, ..report.clone() }));
    }

    /// Sets that the program is of a version that its preset does not name; `None`: it is not.
    pub fn set_program_version(&self, program: Option<String>) {
        self.sender.send_if_modified(|report| replace(report, RuntimeReport { program, ..report.clone() }));
    }

    /// Sets whether the agent's image has git.
    pub fn set_has_git(&self, has_git: bool) {
        self.sender.send_if_modified(|report| replace(report, RuntimeReport { has_git: Some(has_git), ..report.clone() }));
    }

    /// Sets what counts of the agent's assets.
    pub fn set_assets(&self, assets: Option<AssetsReport>) {
        self.sender.send_if_modified(|report| replace(report, RuntimeReport { assets, ..report.clone() }));
    }

    /// Sets how many commands of the agent run in the background.
    pub fn set_background(&self, background: usize) {
        let background = u32::try_from(background).unwrap_or(u32::MAX);
        self.sender.send_if_modified(|report| replace(report, RuntimeReport { background, ..report.clone() }));
    }

    /// Reports that the runtime stops. This hides every other reason.
    pub fn set_stopping(&self) {
        self.update(|inputs| inputs.stopping = true);
    }

    /// Reports that the agent has gone to rest. This hides every other reason, and nothing follows on it.
    pub fn set_resting(&self) {
        self.update(|inputs| inputs.resting = true);
    }

    fn update(&self, change: impl FnOnce(&mut StatusInputs)) {
        let mut inputs = self.inputs.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut inputs);
        let (ready, reason, message) = inputs.condition();
        let volume_run_generation = match &inputs.session {
            SessionState::Broken(failure) => failure.volume_run_generation,
            SessionState::Starting | SessionState::Open => None,
        };
        let changed = self.sender.send_if_modified(|report| {
            let new = RuntimeReport { ready, reason: reason.into(), message: message.to_owned(), volume_run_generation, ..report.clone() };
            replace(report, new)
        });
        if changed {
            tracing::info!(ready, reason = reason.as_str(), "state changed");
        }
    }

    /// Counts a call of a tool that was refused.
    pub fn count_refused(&self, class: RefusalClass) {
        // The name of a class is that of its variant.
        let name = serde_json::to_value(class).ok().and_then(|name| name.as_str().map(str::to_owned)).unwrap_or_default();
        self.sender.send_modify(|report| *report.refused_calls.entry(name).or_default() += 1);
    }

    /// The gateway has taken these.
    fn forget_refused(&self, taken: &BTreeMap<String, u64>) {
        self.sender.send_if_modified(|report| {
            report.refused_calls.retain(|class, count| {
                *count = count.saturating_sub(taken.get(class).copied().unwrap_or_default());
                *count > 0
            });
            false
        });
    }

    /// Sets which session and segment are open.
    pub fn set_session(&self, session: SessionPointer) {
        self.sender.send_if_modified(|report| replace(report, RuntimeReport { session: Some(session), ..report.clone() }));
    }

    /// The report, and a notification of every change.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<RuntimeReport> {
        self.sender.subscribe()
    }
}

impl ConversationObserver for RuntimeStatus {
    fn on_entries_logged(&self) {
        self.set_session_state(SessionState::Open);
    }

    fn on_model_called(&self, failure: Option<FailedCall>) {
        self.update(|inputs| inputs.model = failure);
    }

    fn on_progress(&self, activity: Activity, task: Option<TaskReport>) {
        let mut activities = self.activities.lock().unwrap_or_else(PoisonError::into_inner);
        let activity = activities.set(MAIN, Some(activity));
        self.sender.send_if_modified(|report| replace(report, RuntimeReport { activity: activity.into(), task, ..report.clone() }));
    }

    fn on_program_session(&self, lost: Option<String>) {
        self.sender.send_if_modified(|report| replace(report, RuntimeReport { program_session: lost, ..report.clone() }));
    }

    fn on_rotated(&self, session: SessionPointer) {
        self.set_session(session);
    }

    fn on_call_refused(&self, class: RefusalClass) {
        self.count_refused(class);
    }

    fn on_wait(&self) {
        crate::allocator::release_free_memory();
    }
}

/// Reports what counts of the agent's assets, and errors in their files. Ends with `stop`.
pub async fn report_assets(assets: Arc<ProjectAssets>, status: RuntimeStatus, stop: CancellationToken) {
    let mut loaded = assets.subscribe();
    let all = async {
        loop {
            let now = report(&loaded.borrow_and_update());
            status.set_assets(now);
            if loaded.changed().await.is_err() {
                return;
            }
        }
    };
    let _ = stop.run_until_cancelled(all).await;
}

/// Reports how many commands run in the background, until the agent's tools are gone.
pub async fn report_background(mut count: watch::Receiver<usize>, status: RuntimeStatus) {
    loop {
        let running = *count.borrow_and_update();
        status.set_background(running);
        if count.changed().await.is_err() {
            return;
        }
    }
}

/// Returns whether the report changed.
fn replace(report: &mut RuntimeReport, new: RuntimeReport) -> bool {
    let changed = *report != new;
    *report = new;
    changed
}

#[cfg(test)]
mod tests {
    use yoi_session::Error as SessionError;
    use yoi_wire::open::Open;

    use super::*;

    fn report(status: &RuntimeStatus) -> RuntimeReport {
        status.subscribe().borrow().clone()
    }

    fn reasons(status: &RuntimeStatus) -> (bool, Open<ReportReason>) {
        let report = report(status);
        (report.ready, report.reason)
    }

    fn not_ready(reason: ReportReason) -> NotReady {
        NotReady { reason, message: "why".to_owned(), volume_run_generation: None }
    }

    #[test]
    fn a_volume_that_refuses_a_lower_run_generation_is_reported_with_the_one_that_it_has_seen() {
        let status = RuntimeStatus::new(1, None);
        let refused = SessionError::LowerGeneration { ours: 1, seen: 7 };
        status.set_session_state(SessionState::Broken(NotReady::from_session_error(&refused)));
        assert_eq!(report(&status).volume_run_generation, Some(7));
        status.set_session_state(SessionState::Open);
        assert_eq!(report(&status).volume_run_generation, None);
    }

    #[test]
    fn refused_calls_are_reported_by_their_class_until_the_gateway_has_taken_them() {
        let status = RuntimeStatus::new(1, None);
        for class in [RefusalClass::ToolDenied, RefusalClass::ToolDenied, RefusalClass::SlotsFull] {
            status.on_call_refused(class);
        }
        status.observer_of("other").on_call_refused(RefusalClass::SlotsFull);
        let taken = report(&status).refused_calls;
        assert_eq!(taken, BTreeMap::from([("SlotsFull".to_owned(), 2), ("ToolDenied".to_owned(), 2)]));
        status.on_call_refused(RefusalClass::ToolDenied);
        let mut changes = status.subscribe();
        status.forget_refused(&taken);
        assert_eq!(report(&status).refused_calls, BTreeMap::from([("ToolDenied".to_owned(), 1)]));
        assert!(!changes.has_changed().unwrap() && changes.borrow_and_update().refused_calls.len() == 1, "what was taken is no news");
    }

    #[test]
    fn a_problem_that_ends_does_not_hide_one_that_lasts() {
        let status = RuntimeStatus::new(1, None);
        assert_eq!(reasons(&status), (false, ReportReason::Starting.into()));
        status.set_session_state(SessionState::Open);
        assert!(reasons(&status).0);
        status.on_model_called(Some(FailedCall { summary: "m".to_owned(), reason: ReportReason::ModelUnreachable }));
        status.set_inbox_failure(Some(not_ready(ReportReason::DiskFull)));
        assert_eq!(reasons(&status).1, ReportReason::DiskFull);
        status.on_model_called(None);
        assert_eq!(reasons(&status).1, ReportReason::DiskFull, "an answer of the model makes no room");
        status.on_model_called(Some(FailedCall { summary: "m".to_owned(), reason: ReportReason::ModelUnreachable }));
        status.set_inbox_failure(None);
        assert_eq!(reasons(&status).1, ReportReason::ModelUnreachable);
        status.set_session_state(SessionState::Broken(not_ready(ReportReason::ReplayFailed)));
        assert_eq!(reasons(&status).1, ReportReason::ReplayFailed);
        status.set_stopping();
        assert_eq!(reasons(&status).1, ReportReason::Stopping);
    }
}
