//! What went wrong, for which object, and what to do next; and the exit code that says it to programs.

use kube::core::Status;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("failed to read the cluster's configuration: {source}\n  next: set KUBECONFIG, or give --kubeconfig or --context")]
    Config { source: Box<dyn std::error::Error + Send + Sync> },
    #[error("{what} does not exist\n  next: {next}")]
    Missing { what: String, next: String },
    #[error("failed to {deed}: {message}{}", and_next(.next))]
    Refused { deed: String, message: String, next: Option<String>, class: Class },
    #[error("failed to {deed}: {message}")]
    Unreachable { deed: String, message: String },
    #[error("{what} is not there yet after {seconds} s: {why}\n  next: {next}")]
    TimedOut { what: String, seconds: u64, why: String, next: String },
    #[error("the task of YoiPod {name} failed: {why}\n  next: kubectl yoi log {name}")]
    TaskFailed { name: String, why: String },
    #[error("failed to {deed}: {source}")]
    Local { deed: &'static str, source: Box<dyn std::error::Error + Send + Sync> },
}

/// Whom to blame for a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    Forbidden,
    Unreachable,
    Other,
}

fn and_next(next: &Option<String>) -> String {
    next.as_ref().map(|n| format!("\n  next: {n}")).unwrap_or_default()
}

impl Error {
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Error::Missing { .. } => 3,
            Error::Refused { class, .. } => match class {
                Class::Forbidden => 4,
                Class::Unreachable => 5,
                Class::Other => 1,
            },
            Error::Unreachable { .. } | Error::TimedOut { .. } => 5,
            Error::TaskFailed { .. } => 6,
            Error::Config { .. } | Error::Local { .. } => 1,
        }
    }

    /// From an answer of the API server, for the deed «failed to ...» on the object `what`.
    #[must_use]
    pub fn api(deed: impl Into<String>, what: &str, error: kube::Error) -> Self {
        let deed = deed.into();
        match error {
            kube::Error::Api(status) => Self::status(deed, what, &status),
            other => Error::Unreachable { deed, message: chain(&other) },
        }
    }

    fn status(deed: String, what: &str, status: &Status) -> Self {
        let missing_api = status.message.contains("could not find the requested resource");
        match status.code {
            404 if missing_api => Error::Refused {
                deed,
                message: "the cluster does not know this API".to_owned(),
                next: Some(
                    "install the charts yoi-crds and yoi-operator; see `kubectl get apiservices v1alpha1.runtime.yoi.dev`".to_owned(),
                ),
                class: Class::Other,
            },
            404 => Error::Missing { what: what.to_owned(), next: "kubectl yoi ls".to_owned() },
            401 | 403 => Error::Refused {
                deed,
                message: status.message.clone(),
                next: Some("ask for the role yoi-edit (or yoi-view to read) in this namespace".to_owned()),
                class: Class::Forbidden,
            },
            409 if status.reason == "AlreadyExists" => Error::Refused {
                deed,
                message: format!("{what} exists already"),
                next: Some("take another name, or look at it: kubectl yoi ls".to_owned()),
                class: Class::Other,
            },
            // The aggregated API's word for an agent that is stopped; no patch of ours carries a version that could conflict.
            409 | 429 | 502..=504 => Error::Refused { deed, message: status.message.clone(), next: None, class: Class::Unreachable },
            _ => Error::Refused { deed, message: status.message.clone(), next: None, class: Class::Other },
        }
    }
}

/// The error and what caused it, as one sentence without repetition.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(code: u16, reason: &str, message: &str) -> kube::Error {
        kube::Error::Api(Box::new(Status { code, reason: reason.into(), message: message.into(), ..Default::default() }))
    }

    #[test]
    fn every_class_has_its_own_exit_code_and_names_the_object() {
        let missing = Error::api("read the log", "YoiPod ns/a", status(404, "NotFound", "yoipods.yoi.dev \"a\" not found"));
        assert_eq!(missing.exit_code(), 3);
        assert!(missing.to_string().contains("YoiPod ns/a"));
        assert_eq!(Error::api("x", "y", status(403, "Forbidden", "no")).exit_code(), 4);
        assert_eq!(Error::api("x", "y", status(503, "ServiceUnavailable", "no")).exit_code(), 5);
        assert_eq!(Error::api("x", "y", status(422, "Invalid", "no")).exit_code(), 1);
    }
}
