//! Events of a stream.

use serde_json::Value;

/// An event with its data, as OpenAI's chat completions and Gemini send it.
pub fn data(body: &Value) -> String {
    format!("data: {body}\n\n")
}

/// An event that is named by its `type`, as Anthropic and OpenAI's Responses API send it.
pub fn named(body: &Value) -> String {
    format!("event: {}\ndata: {body}\n\n", body["type"].as_str().unwrap_or_default())
}
