//! Reads tokens out of an answer that passes through. Does no I/O.

use serde::Deserialize;
use serde_json::Value;
use yoi_wire::entry::TokenUsage;

use crate::estimate::tokens_of_bytes;
use crate::model::format::{WireFormat, larger};
use crate::model::sse::SseReader;

/// Bytes of an answer that is one JSON text.
const MAX_JSON_BYTES: usize = 16 << 20;

/// Reads the tokens of one answer. Of a stream it holds at most one event.
#[derive(Debug)]
pub(super) struct UsageReader {
    format: WireFormat,
    shape: Shape,
    usage: Option<TokenUsage>,
    seen: Seen,
}

/// What the size of an answer tells of its tokens.
#[derive(Debug, Default)]
struct Seen {
    events: usize,
    /// Bytes of the events' data, or of the one text.
    bytes: usize,
    /// Bytes of the shortest event. All events repeat about so much beside what they add.
    shortest: Option<usize>,
}

/// How the answer is written. Its content type is not relied on.
#[derive(Debug)]
enum Shape {
    /// Nothing but space has come.
    NotKnown,
    Events(SseReader),
    Json(Vec<u8>),
    /// It cannot be read within the limits.
    TooLong,
}

/// The fields of an answer or an event that may tell tokens.
#[derive(Deserialize)]
struct Told {
    usage: Option<Value>,
    #[serde(rename = "usageMetadata")]
    usage_metadata: Option<Value>,
    /// Anthropic's first event.
    message: Option<Inner>,
    /// OpenAI's last event.
    response: Option<Inner>,
}

#[derive(Deserialize)]
struct Inner {
    usage: Option<Value>,
}

impl Seen {
    fn add_event(&mut self, data: &str) {
        if data.trim() == "[DONE]" {
            return;
        }
        self.events += 1;
        self.bytes += data.len();
        self.shortest = Some(self.shortest.map_or(data.len(), |shortest| shortest.min(data.len())));
    }
}

impl UsageReader {
    pub fn new(format: WireFormat) -> Self {
        Self { format, shape: Shape::NotKnown, usage: None, seen: Seen::default() }
    }

    /// Tokens of the answer so far by its size: what each event adds, and one token for each.
    pub fn estimated_tokens(&self) -> u64 {
        let Seen { events, bytes, shortest } = &self.seen;
        tokens_of_bytes(bytes.saturating_sub(events * shortest.unwrap_or_default())) + *events as u64
    }

    /// Reads the next bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        if let Shape::NotKnown = self.shape {
            self.shape = match bytes.iter().find(|byte| !byte.is_ascii_whitespace()) {
                None => return,
                Some(b'{' | b'[') => Shape::Json(Vec::new()),
                Some(_) => Shape::Events(SseReader::default()),
            };
        }
        match &mut self.shape {
            Shape::Events(reader) => match reader.push(bytes) {
                Ok(events) => events.iter().for_each(|event| {
                    self.seen.add_event(&event.data);
                    self.read(&event.data);
                }),
                Err(_) => self.give_up(bytes.len()),
            },
            Shape::Json(text) if text.len() + bytes.len() <= MAX_JSON_BYTES => {
                self.seen.bytes += bytes.len();
                text.extend_from_slice(bytes);
            }
            Shape::Json(_) => self.give_up(bytes.len()),
            Shape::TooLong => self.seen.bytes += bytes.len(),
            Shape::NotKnown => {}
        }
    }

    /// The tokens that were told before the answer ended or broke off.
    pub fn finish(mut self) -> Option<TokenUsage> {
        match std::mem::replace(&mut self.shape, Shape::NotKnown) {
            Shape::Events(reader) => {
                if let Some(event) = reader.finish() {
                    self.read(&event.data);
                }
            }
            Shape::Json(text) => self.read(&String::from_utf8_lossy(&text)),
            Shape::NotKnown | Shape::TooLong => {}
        }
        self.usage
    }

    fn give_up(&mut self, bytes: usize) {
        self.seen.bytes += bytes;
        tracing::warn!("answer of the model is too long to read its tokens");
        self.shape = Shape::TooLong;
    }

    fn read(&mut self, json: &str) {
        // Most events tell none.
        if !json.contains("\"usage") {
            return;
        }
        // Gemini writes a stream that was not asked for as events as a list.
        let told = match serde_json::from_str(json) {
            Ok(told) => vec![told],
            Err(_) => serde_json::from_str::<Vec<Told>>(json).unwrap_or_default(),
        };
        for Told { usage, usage_metadata, message, response } in told {
            let inner = [message, response].into_iter().flatten().filter_map(|inner| inner.usage);
            for usage in inner.chain(usage).chain(usage_metadata).filter(Value::is_object) {
                self.usage = Some(larger(self.usage.unwrap_or_default(), self.format.usage(&usage)));
            }
        }
    }
}
