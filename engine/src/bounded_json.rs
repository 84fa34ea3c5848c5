//! JSON for programs, of which no text is long.

use serde_json::Value;

/// Bytes of each text.
const TEXT_BYTES: usize = 2048;

/// The value with long texts cut, which say so.
pub(crate) fn cut(value: Value) -> Value {
    match value {
        Value::String(text) if text.len() > TEXT_BYTES => {
            format!("{} [cut: the text has {} bytes]", &text[..text.floor_char_boundary(TEXT_BYTES)], text.len()).into()
        }
        Value::Array(items) => items.into_iter().map(cut).collect(),
        Value::Object(fields) => Value::Object(fields.into_iter().map(|(name, value)| (name, cut(value))).collect()),
        other => other,
    }
}
