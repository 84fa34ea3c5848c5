//! Errors in words for people and for the model.

use yoi_wire::error_chain;

/// An error with its causes in one line, without the system's error numbers.
#[must_use]
pub fn error_text(error: &dyn std::error::Error) -> String {
    without_os_error_number(&error_chain(error))
}

/// Removes the error numbers that the standard library adds, as in `(os error 28)`.
#[must_use]
pub fn without_os_error_number(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(" (os error ") {
        let Some(end) = rest[at..].find(')') else { break };
        out.push_str(&rest[..at]);
        rest = &rest[at + end + 1..];
    }
    out + rest
}
