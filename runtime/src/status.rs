//! What the runtime says of itself, and how it reaches the gateway.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use yoi_line::{Backoff, BackoffPolicy, CallError, Caller, LinesState};
use yoi_session::Error as SessionError;
use yoi_wire::hub::{Activity, Report, ReportTaken, SessionPointer, TaskReport, asked};

use crate::chance::chance;

/// How the runtime is. The words are those of conditions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    Starting,
    /// Replayed and locked.
    Ready,
    /// The session cannot be used, with the reason and the sentence.
    Session {
        reason: &'static str,
        message: String,
    },
    SecretMissing,
    ModelUnreachable {
        message: String,
    },
    Stopping,
}

impl Health {
    #[must_use]
    pub fn of(error: &SessionError) -> Self {
        let reason = match error.reason() {
            // The vocabulary of reports has one word for a disk that refuses.
            "DiskFull" | "DiskFailed" | "LogPoisoned" | "EntryRefused" => "DiskFull",
            "SessionLocked" => "SessionLocked",
            "LogNewer" => "LogNewer",
            _ => "ReplayFailed",
        };
        Self::Session { reason, message: chain(error) }
    }

    fn words(&self) -> (bool, &str, &str) {
        match self {
            Self::Starting => (false, "Starting", "the runtime is starting"),
            Self::Ready => (true, "Replayed", "the session is locked and replayed"),
            Self::Session { reason, message } => (false, reason, message),
            Self::SecretMissing => (false, "SecretMissing", "the Secret with the model's key is missing, or does not have the key"),
            Self::ModelUnreachable { message } => (false, "ModelUnreachable", message),
            Self::Stopping => (false, "Stopping", "the runtime was asked to stop"),
        }
    }
}

/// An error with all its causes, in one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

/// The report as it stands; whoever changes it wakes the reporter.
#[derive(Clone, Debug)]
pub struct Status {
    sender: watch::Sender<Report>,
}

impl Status {
    #[must_use]
    pub fn new(run_generation: u64, health: &Health) -> Self {
        let (ready, reason, message) = health.words();
        let (sender, _) = watch::channel(Report {
            run_generation,
            ready,
            reason: reason.to_owned(),
            message: message.to_owned(),
            session: None,
            task: None,
            activity: Activity::Idle,
        });
        Self { sender }
    }

    pub fn health(&self, health: &Health) {
        let (ready, reason, message) = health.words();
        let changed = self.sender.send_if_modified(|report| {
            let new = Report { ready, reason: reason.to_owned(), message: message.to_owned(), ..report.clone() };
            replace(report, new)
        });
        if changed {
            tracing::info!(ready, reason, "state changed");
        }
    }

    pub fn session(&self, session: SessionPointer) {
        self.sender.send_if_modified(|report| replace(report, Report { session: Some(session), ..report.clone() }));
    }

    pub fn progress(&self, activity: Activity, task: Option<TaskReport>) {
        self.sender.send_if_modified(|report| replace(report, Report { activity, task, ..report.clone() }));
    }

    #[must_use]
    pub fn report(&self) -> Report {
        self.sender.borrow().clone()
    }

    #[must_use]
    pub fn watch(&self) -> watch::Receiver<Report> {
        self.sender.subscribe()
    }
}

fn replace(report: &mut Report, new: Report) -> bool {
    let changed = *report != new;
    *report = new;
    changed
}

async fn tell(caller: &Caller, report: &Report) -> Result<ReportTaken, CallError> {
    caller.post_json(asked::REPORT, report).await
}

/// Tells the gateway every state, again after each new line, and after a failure with backoff. For ever.
pub async fn keep_told(caller: Caller, status: Status, mut lines: watch::Receiver<LinesState>) {
    let policy = BackoffPolicy { first: Duration::from_millis(250), cap: Duration::from_secs(15), settled: Duration::ZERO };
    let (mut backoff, mut reports) = (Backoff::new(policy), status.watch());
    loop {
        let report = reports.borrow_and_update().clone();
        match tell(&caller, &report).await {
            Ok(_) => {
                backoff = Backoff::new(policy);
                tracing::debug!(reason = report.reason, "report taken");
                tokio::select! {
                    changed = reports.changed() => if changed.is_err() { return },
                    () = one_more_line(&mut lines) => {}
                }
            }
            Err(error) => {
                let delay = backoff.after_failure(None, chance());
                tracing::info!(error = %error.fault(), retry_in = ?delay, "report not taken");
                sleep(delay).await;
            }
        }
    }
}

/// A gateway that has come up may know nothing of us.
async fn one_more_line(lines: &mut watch::Receiver<LinesState>) {
    let mut up = lines.borrow_and_update().up();
    while lines.changed().await.is_ok() {
        let now = lines.borrow_and_update().up();
        if now > up {
            return;
        }
        up = now;
    }
    // The lines are stopped.
    std::future::pending::<()>().await;
}

/// The last word; not waited for longer than this.
pub async fn tell_once(caller: &Caller, status: &Status, within: Duration) {
    if !matches!(timeout(within, tell(caller, &status.report())).await, Ok(Ok(_))) {
        tracing::info!("last report not taken");
    }
}
