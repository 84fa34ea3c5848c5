//! Keeps the requests as they were received, for tests to read.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use axum::http::HeaderMap;
use serde_json::{Map, Value, json};

/// Bytes of bodies that are kept. Older requests are dropped.
const MAX_BYTES: usize = 128 << 20;

/// Headers whose values are secrets.
const SECRET: [&str; 3] = ["authorization", "x-api-key", "x-goog-api-key"];

/// What the endpoint made of a request.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    pub status: u16,
    /// The rule that it broke.
    pub rule: Option<&'static str>,
    pub input_tokens: u64,
    pub cached_tokens: u64,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    bytes: usize,
    lines: VecDeque<(u64, String)>,
}

/// The requests, in the order of their answers' beginnings.
#[derive(Debug, Default)]
pub struct Recorder {
    state: Mutex<State>,
}

impl Recorder {
    pub fn record(&self, path: &str, headers: &HeaderMap, body: &Value, outcome: &Outcome) {
        let headers: Map<String, Value> = headers
            .iter()
            .map(|(name, value)| {
                let secret = SECRET.contains(&name.as_str());
                (name.to_string(), json!(if secret { "(set)" } else { value.to_str().unwrap_or_default() }))
            })
            .collect();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let number = state.next;
        state.next += 1;
        let line = json!({
            "number": number, "path": path, "headers": headers, "body": body, "status": outcome.status, "rule": outcome.rule,
            "inputTokens": outcome.input_tokens, "cachedTokens": outcome.cached_tokens,
        })
        .to_string();
        state.bytes += line.len();
        state.lines.push_back((number, line));
        while state.bytes > MAX_BYTES
            && let Some((_, oldest)) = state.lines.pop_front()
        {
            state.bytes -= oldest.len();
        }
    }

    /// Returns the requests with this number or a higher one, as lines of JSON.
    pub fn lines_from(&self, first: u64) -> String {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.lines.iter().filter(|(number, _)| *number >= first).map(|(_, line)| format!("{line}\n")).collect()
    }
}
