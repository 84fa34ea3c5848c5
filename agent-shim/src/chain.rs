//! Errors as one sentence.

/// An error with all that lies under it.
pub fn whole(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut under = error.source();
    while let Some(e) = under {
        text.push_str(": ");
        text.push_str(&e.to_string());
        under = e.source();
    }
    text
}
