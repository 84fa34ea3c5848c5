//! The result of a check: one sentence about one object, and the command that fixes it.

use serde::Serialize;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    Ok,
    /// Nobody has to act.
    Note,
    /// It could not be read.
    Unknown,
    /// It works, but may fail later.
    Warning,
    /// Something does not work.
    Error,
}

impl Severity {
    pub fn as_str(self) -> &'static str {
        match self {
            Severity::Ok => "ok",
            Severity::Note => "note",
            Severity::Unknown => "unknown",
            Severity::Warning => "warning",
            Severity::Error => "error",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    pub severity: Severity,
    /// Name of the check. The table of checks fills it in.
    pub check: &'static str,
    /// `Kind namespace/name`, or what else the finding is about.
    pub object: String,
    /// One sentence.
    pub message: String,
    /// The command that fixes it, or shows more where only a person can decide. The user replaces words in capitals.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
}

impl Finding {
    pub fn ok(object: impl Into<String>, message: impl Into<String>) -> Self {
        Finding { severity: Severity::Ok, check: "", object: object.into(), message: message.into(), command: None }
    }

    pub fn of(severity: Severity, object: impl Into<String>, message: impl Into<String>, command: impl Into<String>) -> Self {
        Finding { severity, check: "", object: object.into(), message: message.into(), command: Some(command.into()) }
    }

    pub fn note(object: impl Into<String>, message: impl Into<String>, command: impl Into<String>) -> Self {
        Finding::of(Severity::Note, object, message, command)
    }

    pub fn warning(object: impl Into<String>, message: impl Into<String>, command: impl Into<String>) -> Self {
        Finding::of(Severity::Warning, object, message, command)
    }

    pub fn error(object: impl Into<String>, message: impl Into<String>, command: impl Into<String>) -> Self {
        Finding::of(Severity::Error, object, message, command)
    }
}
