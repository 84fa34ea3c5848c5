//! Why an agent is not ready.

use yoi_engine::error_text::error_text;
use yoi_session::{Error as SessionError, ErrorReason};
use yoi_wire::hub::ReportReason;

/// Why the agent is not ready: a reason, and a sentence that says what is wrong, where, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotReady {
    pub reason: ReportReason,
    pub message: String,
    /// The run generation that the session volume has seen, when it refuses this Pod's lower one.
    pub volume_run_generation: Option<u64>,
}

impl NotReady {
    /// Reason and sentence for an error of the session.
    #[must_use]
    pub fn from_session_error(error: &SessionError) -> Self {
        let text = error_text(error);
        let (reason, message) = match error.reason() {
            ErrorReason::DiskFull => (
                ReportReason::DiskFull,
                format!("the session volume is full: {text}; make room there or enlarge its claim, and the agent goes on by itself"),
            ),
            ErrorReason::SessionLocked => (ReportReason::SessionLocked, text),
            ErrorReason::LogNewer => (ReportReason::LogNewer, text),
            // The disk failed for another reason, now or at an earlier append. The next opening of the session shows whether it works
            // again.
            ErrorReason::DiskFailed | ErrorReason::LogPoisoned | ErrorReason::EntryRefused => (
                ReportReason::DiskFailed,
                format!("the session volume refuses: {text}; once the volume works again, the agent goes on by itself"),
            ),
            ErrorReason::SegmentTooLarge => (
                ReportReason::ReplayFailed,
                format!("the session cannot go on: {text}; the agent does nothing more. Its log can still be read; begin a new agent"),
            ),
            ErrorReason::ReplayFailed | ErrorReason::TokenUnknown => {
                (ReportReason::ReplayFailed, format!("{text}{}", recovery_hint(error)))
            }
        };
        let volume_run_generation = match error {
            SessionError::LowerGeneration { seen, .. } => Some(*seen),
            _ => None,
        };
        Self { reason, message, volume_run_generation }
    }
}

/// What a person can do about a session that does not recover by itself. The agent does nothing until then, so that nothing is overwritten.
fn recovery_hint(error: &SessionError) -> &'static str {
    let SessionError::Damaged { file, .. } = error else { return "" };
    // Each message is one file, so only that message is damaged.
    if file.parent().and_then(|folder| folder.file_name()).is_some_and(|name| name == "inbox") {
        "; put this file back from a copy of the session volume, or move it out of its folder (its message is then lost, and its sender has to \
         send it again); then stop and start the agent"
    } else {
        "; the agent does nothing until this file is put back from a copy of the session volume; then stop and start it. `kubectl yoi log` \
         shows what stands before that line"
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::path::PathBuf;

    use yoi_session::Damage;

    use super::*;

    #[test]
    fn a_message_names_the_file_and_what_to_do_and_has_no_error_number() {
        let full = SessionError::Disk {
            operation: "append to",
            path: PathBuf::from("/session/x.jsonl"),
            source: io::Error::from_raw_os_error(28),
        };
        let not_ready = NotReady::from_session_error(&full);
        assert_eq!(not_ready.reason, ReportReason::DiskFull);
        assert!(
            not_ready.message.contains("/session/x.jsonl: No space left on device; make room") && !not_ready.message.contains("os error"),
            "{not_ready:?}"
        );
        let too_large = SessionError::SegmentTooLarge { kind: "Carried".to_owned(), bytes: 1 << 25, limit: 1 << 24 };
        let not_ready = NotReady::from_session_error(&too_large);
        assert_eq!(not_ready.reason, ReportReason::ReplayFailed);
        assert!(not_ready.message.contains("Carried") && !not_ready.message.contains("by itself"), "{not_ready:?}");
        let read_only = SessionError::Disk { operation: "append to", path: PathBuf::from("/x"), source: io::Error::from_raw_os_error(30) };
        assert_eq!(NotReady::from_session_error(&read_only).reason, ReportReason::DiskFailed);
        let damaged = |file: &str| {
            NotReady::from_session_error(&SessionError::Damaged { file: PathBuf::from(file), line: 7, what: Damage::Checksum })
        };
        let message = damaged("/s/sessions/a/inbox/1.json");
        assert!(
            message.reason == ReportReason::ReplayFailed
                && message.message.contains("1.json line 7")
                && message.message.contains("move it out")
        );
        let log = damaged("/s/sessions/a/b.jsonl");
        assert!(log.message.contains("b.jsonl line 7") && log.message.contains("put back from a copy"), "{log:?}");
    }
}
