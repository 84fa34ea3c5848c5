//! How tokens are counted: 4 bytes of the prompt are a token. This is the only place that knows.

use serde_json::Value;

use super::digest::Digest;

pub const BYTES_PER_TOKEN: usize = 4;

/// An image of any size. Anthropic documents (width * height) / 750 tokens and scales larger images down to about this.
const IMAGE_TOKENS: usize = 1600;

pub fn count(bytes: usize) -> u64 {
    bytes.div_ceil(BYTES_PER_TOKEN) as u64
}

pub fn of(text: &str) -> u64 {
    count(text.len())
}

/// Returns what a part of the request adds to the prompt. Marks for the cache add nothing, and each image adds the same length.
pub fn prompt_text(part: &Value) -> String {
    match part {
        Value::String(text) => without_image(text),
        _ => simplified(part).to_string(),
    }
}

fn simplified(value: &Value) -> Value {
    match value {
        Value::String(text) => Value::String(without_image(text)),
        Value::Array(list) => list.iter().map(simplified).collect(),
        Value::Object(map) => {
            let is_image = map.get("type").is_some_and(|kind| kind == "base64") || map.contains_key("mimeType");
            let fields = map.iter().filter(|(name, _)| !["cache_control", "prompt_cache_breakpoint"].contains(&name.as_str())).map(
                |(name, value)| {
                    let value = match value {
                        Value::String(data) if is_image && name == "data" => Value::String(image(data)),
                        _ => simplified(value),
                    };
                    (name.clone(), value)
                },
            );
            Value::Object(fields.collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

fn without_image(text: &str) -> String {
    if text.starts_with("data:image/") { image(text) } else { text.to_owned() }
}

fn image(data: &str) -> String {
    format!("{:>width$}", Digest::of(data).hex(), width = IMAGE_TOKENS * BYTES_PER_TOKEN)
}
