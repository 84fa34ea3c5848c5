//! What the runtime says of itself, and how it reaches the gateway.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use yoi_line::{Backoff, BackoffPolicy, CallError, LineSetState, RequestClient};
use yoi_session::Error as SessionError;
use yoi_wire::hub::{Activity, ReportAccepted, RuntimeReport, SessionPointer, TaskReport, gateway_api};

use crate::chance::chance;

/// How the session is, as this process has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Session {
    Starting,
    /// Replayed and locked, and the log takes entries.
    Open,
    /// It cannot be used.
    Broken(Trouble),
}

/// A reason of the vocabulary that users see, and the sentence: what is wrong, where, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    pub reason: &'static str,
    pub message: String,
}

impl Trouble {
    #[must_use]
    pub fn of(error: &SessionError) -> Self {
        let words = chain(error);
        let (reason, message) = match error.reason() {
            "DiskFull" => (
                "DiskFull",
                format!("the session volume is full: {words}; make room there or enlarge its claim, and the agent goes on by itself"),
            ),
            "SessionLocked" => ("SessionLocked", words),
            "LogNewer" => ("LogNewer", words),
            // A disk that refuses for another reason; also an earlier append's, which the next opening settles.
            "DiskFailed" | "LogPoisoned" | "EntryRefused" => {
                ("DiskFailed", format!("the session volume refuses: {words}; once the volume works again, the agent goes on by itself"))
            }
            _ => ("ReplayFailed", format!("{words}{}", advice(error))),
        };
        Self { reason, message }
    }
}

/// What a person can do about a session that no waiting mends. The agent does nothing until then, so that nothing is written over.
fn advice(error: &SessionError) -> &'static str {
    let SessionError::Damaged { file, .. } = error else { return "" };
    // One file a message: the damage is of that message alone.
    if file.parent().and_then(|folder| folder.file_name()).is_some_and(|name| name == "inbox") {
        "; put this file back from a copy of the session volume, or move it out of its folder (its message is then lost, and its sender has to \
         send it again); then stop and start the agent"
    } else {
        "; the agent does nothing until this file is put back from a copy of the session volume; then stop and start it. `kubectl yoi log` \
         shows what stands before that line"
    }
}

/// What the report is made of: each part has its own teller, and none of them hides another for longer than it lasts.
#[derive(Clone, Debug)]
struct Facts {
    session: Session,
    secret_missing: bool,
    /// The inbox takes no messages.
    inbox: Option<Trouble>,
    /// The model's last word was a failure.
    model: Option<String>,
    stopping: bool,
}

impl Facts {
    /// The first that stands in the way.
    fn words(&self) -> (bool, &str, &str) {
        if self.stopping {
            return (false, "Stopping", "the runtime was asked to stop");
        }
        match &self.session {
            Session::Broken(trouble) => return (false, trouble.reason, &trouble.message),
            Session::Starting if !self.secret_missing => return (false, "Starting", "the runtime is starting"),
            Session::Starting | Session::Open => {}
        }
        if self.secret_missing {
            return (false, "SecretMissing", "the Secret with the model's key is missing, or does not have the key");
        }
        if let Some(trouble) = &self.inbox {
            return (false, trouble.reason, &trouble.message);
        }
        if let Some(message) = &self.model {
            return (false, "ModelUnreachable", message);
        }
        (true, "Replayed", "the session is locked and replayed")
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
    plain(&text)
}

/// Without the numbers that the standard library adds to the system's words.
pub(crate) fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(" (os error ") {
        let Some(end) = rest[at..].find(')') else { break };
        out.push_str(&rest[..at]);
        rest = &rest[at + end + 1..];
    }
    out + rest
}

/// The report as it stands; whoever changes it wakes the reporter.
#[derive(Clone, Debug)]
pub struct Status {
    facts: Arc<Mutex<Facts>>,
    sender: watch::Sender<RuntimeReport>,
}

impl Status {
    #[must_use]
    pub fn new(run_generation: u64, secret_missing: bool) -> Self {
        let facts = Facts { session: Session::Starting, secret_missing, inbox: None, model: None, stopping: false };
        let (ready, reason, message) = facts.words();
        let report = RuntimeReport {
            run_generation,
            ready,
            reason: reason.to_owned(),
            message: message.to_owned(),
            session: None,
            task: None,
            activity: Activity::Idle,
        };
        Self { facts: Arc::new(Mutex::new(facts)), sender: watch::channel(report).0 }
    }

    /// How the session is.
    pub fn session_is(&self, session: Session) {
        self.update(|facts| facts.session = session);
    }

    /// Why the inbox takes nothing; `None` when it does.
    pub fn inbox_is(&self, trouble: Option<Trouble>) {
        self.update(|facts| facts.inbox = trouble);
    }

    /// How the model's last call failed; `None` when it did not.
    pub fn model_is(&self, failure: Option<String>) {
        self.update(|facts| facts.model = failure);
    }

    pub fn stopping(&self) {
        self.update(|facts| facts.stopping = true);
    }

    fn update(&self, change: impl FnOnce(&mut Facts)) {
        let mut facts = self.facts.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut facts);
        let (ready, reason, message) = facts.words();
        let changed = self.sender.send_if_modified(|report| {
            let new = RuntimeReport { ready, reason: reason.to_owned(), message: message.to_owned(), ..report.clone() };
            replace(report, new)
        });
        if changed {
            tracing::info!(ready, reason, "state changed");
        }
    }

    pub fn session(&self, session: SessionPointer) {
        self.sender.send_if_modified(|report| replace(report, RuntimeReport { session: Some(session), ..report.clone() }));
    }

    pub fn progress(&self, activity: Activity, task: Option<TaskReport>) {
        self.sender.send_if_modified(|report| replace(report, RuntimeReport { activity, task, ..report.clone() }));
    }

    #[must_use]
    pub fn report(&self) -> RuntimeReport {
        self.sender.borrow().clone()
    }

    #[must_use]
    pub fn watch(&self) -> watch::Receiver<RuntimeReport> {
        self.sender.subscribe()
    }
}

fn replace(report: &mut RuntimeReport, new: RuntimeReport) -> bool {
    let changed = *report != new;
    *report = new;
    changed
}

async fn tell(caller: &RequestClient, report: &RuntimeReport) -> Result<ReportAccepted, CallError> {
    caller.post_json(gateway_api::REPORT, report).await
}

/// Tells the gateway every state, again after each new line, and after a failure with backoff.
/// Ends when the state that stood at the last word was taken. One report after another and none given up on its way:
/// the gateway takes up what reaches it side by side, and an older one could so become the last.
pub async fn keep_told(caller: RequestClient, status: Status, mut lines: watch::Receiver<LineSetState>, last_word: CancellationToken) {
    let policy = BackoffPolicy { first: Duration::from_millis(250), cap: Duration::from_secs(15), settled: Duration::ZERO };
    let (mut backoff, mut reports) = (Backoff::new(policy), status.watch());
    loop {
        let last = last_word.is_cancelled();
        let report = reports.borrow_and_update().clone();
        match tell(&caller, &report).await {
            Ok(_) if last => return,
            Ok(_) => {
                backoff = Backoff::new(policy);
                tracing::debug!(reason = report.reason, "report taken");
                tokio::select! {
                    changed = reports.changed() => if changed.is_err() { return },
                    () = one_more_line(&mut lines) => {}
                    () = last_word.cancelled() => {}
                }
            }
            Err(error) => {
                let delay = backoff.after_failure(None, chance());
                tracing::info!(error = %error.failure(), retry_in = ?delay, "report not taken");
                tokio::select! {
                    () = sleep(delay) => {}
                    () = last_word.cancelled(), if !last => {}
                }
            }
        }
    }
}

/// A gateway that has come up may know nothing of us.
async fn one_more_line(lines: &mut watch::Receiver<LineSetState>) {
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

#[cfg(test)]
mod tests {
    use std::io;
    use std::path::PathBuf;

    use yoi_session::Damage;

    use super::*;

    fn reasons(status: &Status) -> (bool, String) {
        let report = status.report();
        (report.ready, report.reason)
    }

    #[test]
    fn one_trouble_that_ends_does_not_hide_another_that_lasts() {
        let status = Status::new(1, false);
        assert_eq!(reasons(&status), (false, "Starting".to_owned()));
        status.session_is(Session::Open);
        assert!(reasons(&status).0);
        status.model_is(Some("m".to_owned()));
        status.inbox_is(Some(Trouble { reason: "DiskFull", message: "d".to_owned() }));
        assert_eq!(reasons(&status).1, "DiskFull");
        status.model_is(None);
        assert_eq!(reasons(&status).1, "DiskFull", "an answer of the model makes no room");
        status.model_is(Some("m".to_owned()));
        status.inbox_is(None);
        assert_eq!(reasons(&status).1, "ModelUnreachable");
        status.session_is(Session::Broken(Trouble { reason: "ReplayFailed", message: "r".to_owned() }));
        assert_eq!(reasons(&status).1, "ReplayFailed");
        status.stopping();
        assert_eq!(reasons(&status).1, "Stopping");
    }

    #[test]
    fn a_sentence_names_the_place_and_what_to_do_and_no_number_of_the_systems() {
        let full =
            SessionError::Disk { deed: "append to", path: PathBuf::from("/session/x.jsonl"), source: io::Error::from_raw_os_error(28) };
        let said = Trouble::of(&full);
        assert_eq!(said.reason, "DiskFull");
        assert!(
            said.message.contains("/session/x.jsonl: No space left on device; make room") && !said.message.contains("os error"),
            "{said:?}"
        );
        let read_only = SessionError::Disk { deed: "append to", path: PathBuf::from("/x"), source: io::Error::from_raw_os_error(30) };
        assert_eq!(Trouble::of(&read_only).reason, "DiskFailed");
        let damaged = |file: &str| Trouble::of(&SessionError::Damaged { file: PathBuf::from(file), line: 7, what: Damage::Checksum });
        let message = damaged("/s/sessions/a/inbox/1.json");
        assert!(message.reason == "ReplayFailed" && message.message.contains("1.json line 7") && message.message.contains("move it out"));
        let log = damaged("/s/sessions/a/b.jsonl");
        assert!(log.message.contains("b.jsonl line 7") && log.message.contains("put back from a copy"), "{log:?}");
    }
}
