//! Reading JSON whose shape is not yet known to be right.

use serde_json::Value;

/// Returns the elements of a list, and none of anything else.
pub fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Returns a text, and an empty one for anything else.
pub fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Returns the names of an object's fields that `known` does not list.
pub fn unknown_field<'v>(value: &'v Value, known: &[&str]) -> Option<&'v str> {
    value.as_object()?.keys().map(String::as_str).find(|name| !known.contains(name))
}

/// Reports whether a name has 1 to `max` letters, digits, `_` and `-`.
pub fn is_plain_name(name: &str, max: usize) -> bool {
    (1..=max).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
}

/// Reports whether one of a message's parts ends a beginning that OpenAI shall cache.
pub fn is_marked(message: &Value) -> bool {
    list(&message["content"]).iter().any(|part| !part["prompt_cache_breakpoint"].is_null())
}
