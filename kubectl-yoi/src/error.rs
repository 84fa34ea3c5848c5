//! Errors of the plugin. Each names the object, the cause and the next step, and has an exit code.

mod api;

pub use api::{ErrorTarget, watch_error_message};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("failed to read the cluster's configuration: {source}\n  next: set KUBECONFIG, or give --kubeconfig or --context")]
    Config { source: Box<dyn std::error::Error + Send + Sync> },
    /// What the words of the line cannot tell alone.
    #[error("{message}\n  next: {next}")]
    Usage { message: String, next: String },
    #[error("{what} does not exist\n  next: {next}")]
    Missing { what: String, next: String },
    /// The object was there when the verb began.
    #[error("{what} was deleted meanwhile\n  next: {next}")]
    Gone { what: String, next: String },
    #[error("failed to {operation}: {message}{next}")]
    Refused { operation: String, message: String, next: NextStep, kind: RefusalKind },
    #[error("failed to {operation}: {message}\n  next: {next}")]
    Unreachable { operation: String, message: String, next: &'static str },
    #[error("{what} is not there yet after {seconds} s: {why}\n  next: {next}")]
    TimedOut { what: String, seconds: u64, why: String, next: String },
    /// What a verb waits for does not come by itself.
    #[error("{what} is not {goal}, and only a person can fix that: {why}\n  {advice}\n  next: {next}")]
    NeedsPerson { what: String, goal: &'static str, why: String, advice: &'static str, next: String },
    #[error("the task of {what} failed: {why}\n  next: {next}")]
    TaskFailed { what: String, why: String, next: String },
    #[error("the run of {what} that read the message did not finish: {why}\n  next: {next}")]
    RunFailed { what: String, why: String, next: String },
    /// Its result was printed, as far as it has one.
    #[error("the call of {tool} by {what} {why}\n  next: {next}")]
    ToolFailed { what: String, tool: String, why: String, next: String },
    /// The answer was printed as far as it goes.
    #[error("the answer of {what} is not whole: {why}\n  next: {next}")]
    Cut { what: String, why: String, next: String },
    /// The paths are listed above this.
    #[error("{}: {count} of what {what} has changed, listed above\n  next: {next}", was_left(*.dry_run))]
    LeftAlone { what: String, count: String, dry_run: bool, next: String },
    /// The doctor has printed findings above this.
    #[error("{}\n  next: run the commands above, then look again: {again}", counts(*.errors, *.warnings, *.unknown))]
    Unhealthy { errors: usize, warnings: usize, unknown: usize, again: String },
    #[error("failed to {operation}: {source}\n  next: {next}")]
    Local { operation: String, source: Box<dyn std::error::Error + Send + Sync>, next: &'static str },
}

/// What the user does after a refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextStep {
    Text(String),
    /// The message of the gateway already says it.
    InMessage,
}

impl std::fmt::Display for NextStep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NextStep::Text(step) => write!(f, "\n  next: {step}"),
            NextStep::InMessage => Ok(()),
        }
    }
}

/// Why an operation was refused, as far as exit codes tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalKind {
    Forbidden,
    Unreachable,
    Other,
}

fn counts(errors: usize, warnings: usize, unknown: usize) -> String {
    let word = |n: usize, one: &str, more: &str| (n > 0).then(|| format!("{n} {}", if n == 1 { one } else { more }));
    let words = [
        word(errors, "error", "errors"),
        word(warnings, "warning", "warnings"),
        word(unknown, "thing not looked at", "things not looked at"),
    ];
    format!("the doctor found {}", words.into_iter().flatten().collect::<Vec<_>>().join(", "))
}

fn was_left(dry_run: bool) -> &'static str {
    if dry_run { "would be left alone" } else { "left alone" }
}

impl Error {
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Error::Usage { .. } => 2,
            Error::Missing { .. } | Error::Gone { .. } => 3,
            Error::Refused { kind, .. } => match kind {
                RefusalKind::Forbidden => 4,
                RefusalKind::Unreachable => 5,
                RefusalKind::Other => 1,
            },
            Error::Unreachable { .. } | Error::TimedOut { .. } => 5,
            Error::TaskFailed { .. } | Error::RunFailed { .. } | Error::ToolFailed { .. } => 6,
            Error::Cut { .. } => 7,
            Error::LeftAlone { .. } => 8,
            Error::Unhealthy { errors: 0, warnings: 0, .. } => 4,
            Error::Config { .. } | Error::Local { .. } | Error::NeedsPerson { .. } | Error::Unhealthy { .. } => 1,
        }
    }

    /// Returns the error for an operation without an answer in time.
    #[must_use]
    pub fn no_answer(operation: &str, after: std::time::Duration) -> Self {
        Error::Unreachable {
            operation: operation.to_owned(),
            message: format!("no answer in {} s", after.as_secs()),
            next: LOOK_AT_CLUSTER,
        }
    }

    /// Returns the error for a refused operation. `operation` follows "failed to" and names its object.
    #[must_use]
    pub fn refused_error(operation: impl Into<String>, message: impl Into<String>, next: impl Into<String>, kind: RefusalKind) -> Self {
        Error::Refused { operation: operation.into(), message: message.into(), next: NextStep::Text(next.into()), kind }
    }

    /// Returns the error for an operation that failed on this machine, or for an answer that cannot be used.
    #[must_use]
    pub fn local(operation: impl Into<String>, source: impl std::error::Error + Send + Sync + 'static, next: &'static str) -> Self {
        Error::Local { operation: operation.into(), source: Box::new(source), next }
    }

    /// Whether the same may succeed later, with nothing changed by whoever asks.
    pub fn may_pass(&self) -> bool {
        match self {
            Error::Refused { kind, .. } => *kind != RefusalKind::Forbidden,
            Error::Unreachable { .. } | Error::TimedOut { .. } => true,
            Error::Config { .. } | Error::Missing { .. } | Error::Gone { .. } | Error::NeedsPerson { .. } | Error::Cut { .. } => false,
            Error::TaskFailed { .. }
            | Error::RunFailed { .. }
            | Error::ToolFailed { .. }
            | Error::Unhealthy { .. }
            | Error::Local { .. }
            | Error::Usage { .. } => false,
            Error::LeftAlone { .. } => false,
        }
    }
}

/// The next step for an answer that this version does not understand.
pub const SAME_VERSION: &str = "take the plugin and the charts of the same version: kubectl yoi version";
const LOOK_AT_CLUSTER: &str = "is this the right cluster, and does it answer? kubectl cluster-info";

/// The last error of what goes on side by side ends the command; those before it are told at once.
pub fn tell_former(former: Option<Error>, error: Error) -> Option<Error> {
    if let Some(former) = former {
        eprintln!("error: {former}");
    }
    Some(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// At least one error of each variant. A new variant does not compile without an arm here, and fails without a row.
    fn rows() -> Vec<(Error, &'static str, u8)> {
        fn name(error: &Error) -> &'static str {
            match error {
                Error::Config { .. } => "Config",
                Error::Usage { .. } => "Usage",
                Error::Missing { .. } => "Missing",
                Error::Gone { .. } => "Gone",
                Error::Refused { .. } => "Refused",
                Error::Unreachable { .. } => "Unreachable",
                Error::TimedOut { .. } => "TimedOut",
                Error::NeedsPerson { .. } => "NeedsPerson",
                Error::TaskFailed { .. } => "TaskFailed",
                Error::RunFailed { .. } => "RunFailed",
                Error::ToolFailed { .. } => "ToolFailed",
                Error::Cut { .. } => "Cut",
                Error::LeftAlone { .. } => "LeftAlone",
                Error::Unhealthy { .. } => "Unhealthy",
                Error::Local { .. } => "Local",
            }
        }
        let source = || std::io::Error::other("no such file");
        let (what, look) = (|| "YoiPod ns/a".to_owned(), || "kubectl yoi ls agents -n ns".to_owned());
        let refused_error = |kind| Error::refused_error("stop YoiPod ns/a", "no", "look", kind);
        let unhealthy =
            |errors, warnings, unknown| Error::Unhealthy { errors, warnings, unknown, again: "kubectl yoi doctor -n ns".into() };
        let late =
            Error::TimedOut { what: "YoiPod ns/a: ready".into(), seconds: 2, why: "PodPending".into(), next: "kubectl describe".into() };
        let failed = Error::TaskFailed { what: what(), why: "the model said no".into(), next: "kubectl yoi log a -n ns".into() };
        let person = Error::NeedsPerson {
            what: what(),
            goal: "ready",
            why: "SecretMissing: the Secret is missing".into(),
            advice: "Make it.",
            next: "kubectl create secret generic s -n ns".into(),
        };
        let run = Error::RunFailed { what: what(), why: "turn limit reached".into(), next: "kubectl yoi log a -n ns".into() };
        let tool = Error::ToolFailed { what: what(), tool: "Shell".into(), why: "failed".into(), next: "kubectl yoi log a -n ns".into() };
        let cut = Error::Cut { what: what(), why: "it is cut at 10,000 paths".into(), next: "kubectl exec".into() };
        let left = |dry_run| Error::LeftAlone { what: what(), count: "2 paths".into(), dry_run, next: "compare them".into() };
        let rows = vec![
            (left(false), "left alone: 2 paths of what YoiPod ns/a has changed, listed above", 8),
            (left(true), "would be left alone: 2 paths of what YoiPod ns/a has changed, listed above", 8),
            (
                person,
                "YoiPod ns/a is not ready, and only a person can fix that: SecretMissing: the Secret is missing\n  Make it.\n  next: ",
                1,
            ),
            (run, "the run of YoiPod ns/a that read the message did not finish: turn limit reached", 6),
            (tool, "the call of Shell by YoiPod ns/a failed\n  next: kubectl yoi log a", 6),
            (cut, "the answer of YoiPod ns/a is not whole: it is cut at 10,000 paths", 7),
            (Error::Config { source: Box::new(source()) }, "set KUBECONFIG", 1),
            (
                Error::Usage { message: "no project is named".into(), next: look() },
                "no project is named\n  next: kubectl yoi ls agents -n ns",
                2,
            ),
            (Error::Missing { what: what(), next: look() }, "YoiPod ns/a does not exist\n  next: kubectl yoi ls agents -n ns", 3),
            (Error::Gone { what: what(), next: look() }, "YoiPod ns/a was deleted meanwhile\n  next: kubectl yoi ls agents -n ns", 3),
            (refused_error(RefusalKind::Forbidden), "failed to stop YoiPod ns/a: no\n  next: look", 4),
            (refused_error(RefusalKind::Unreachable), "failed to stop YoiPod ns/a: no\n  next: look", 5),
            (refused_error(RefusalKind::Other), "failed to stop YoiPod ns/a: no\n  next: look", 1),
            (Error::no_answer("ask the API server for its version", std::time::Duration::from_secs(5)), "no answer in 5 s", 5),
            (late, "YoiPod ns/a: ready is not there yet after 2 s: PodPending", 5),
            (failed, "the task of YoiPod ns/a failed: the model said no\n  next: kubectl yoi log a -n ns", 6),
            (unhealthy(1, 2, 1), "found 1 error, 2 warnings, 1 thing not looked at", 1),
            (
                unhealthy(0, 0, 3),
                "found 3 things not looked at\n  next: run the commands above, then look again: kubectl yoi doctor -n ns",
                4,
            ),
            (Error::local("read standard input", source(), "say it"), "failed to read standard input: no such file\n  next: say it", 1),
        ];
        let tested: std::collections::BTreeSet<_> = rows.iter().map(|(error, _, _)| name(error)).collect();
        assert_eq!(tested.len(), 15, "a variant has no row: {tested:?}");
        rows
    }

    #[test]
    fn every_kind_of_error_says_what_why_and_what_next_in_plain_words() {
        for (error, words, code) in rows() {
            let text = error.to_string();
            assert!(text.contains(words), "`{words}` is not in: {text}");
            assert_eq!(error.exit_code(), code, "{text}");
            assert!(text.contains("\n  next: "), "{text}");
            for rust in ["{ ", "Some(", "Err(", "Error(", "Error {", "\\\"", "None"] {
                assert!(!text.contains(rust), "`{rust}` is Rust's, in: {text}");
            }
        }
    }
}
