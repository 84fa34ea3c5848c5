//! The wire formats. A request's body is a function of the request alone; an answer's events are read by a state machine without I/O.

use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;
use yoi_wire::entry::{AgentConfig, PromptItem, TokenUsage};
use yoi_wire::manifest::{ModelApi, ModelEndpoint, ModelProvider};

use super::answer::{AnswerBuilder, StreamError};
use super::sse::SseEvent;

mod anthropic;
mod chat;
mod gemini;
mod responses;
mod whole;

/// A wire format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WireFormat {
    Responses,
    ChatCompletions,
    Anthropic,
    Gemini,
}

/// What is known of a server beside its format. All of it is the same for all requests of a client, but for what a refusal has taught.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Server {
    pub kind: ServerKind,
    /// A model of `/responses` that does not reason refuses to be asked for encrypted reasoning.
    pub takes_encrypted_reasoning: bool,
    /// Roles have to alternate, tools' results aside.
    pub strict_order: bool,
}

/// Whose server it is. A compatible one gets nothing that OpenAI's or Google's own alone understands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServerKind {
    OpenAi,
    Google,
    Other,
}

/// What is asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestParts<'a> {
    pub config: &'a AgentConfig,
    pub items: &'a [PromptItem],
    pub offer_tools: bool,
    /// The answers before this item are given without what only their endpoint understands.
    pub own_from: usize,
}

impl WireFormat {
    /// The format of an endpoint; `None` for one of another version.
    pub fn of(endpoint: &ModelEndpoint) -> Option<Self> {
        match (endpoint.provider, endpoint.api) {
            (ModelProvider::OpenAI, Some(ModelApi::Responses)) => Some(Self::Responses),
            (ModelProvider::OpenAI, Some(ModelApi::ChatCompletions)) => Some(Self::ChatCompletions),
            (ModelProvider::OpenAI, None) if endpoint.base_url.is_none() => Some(Self::Responses),
            // Most endpoints that are compatible with OpenAI have this format only.
            (ModelProvider::OpenAI, None) => Some(Self::ChatCompletions),
            (ModelProvider::Anthropic, _) => Some(Self::Anthropic),
            (ModelProvider::Gemini, _) => Some(Self::Gemini),
            (ModelProvider::OpenAI, Some(ModelApi::Unknown)) | (ModelProvider::Unknown, _) => None,
        }
    }

    /// The name in the log.
    pub fn name(self) -> &'static str {
        match self {
            Self::Responses => "responses",
            Self::ChatCompletions => "chatCompletions",
            Self::Anthropic => "anthropic",
            Self::Gemini => "gemini",
        }
    }

    /// Where the provider's own endpoint is.
    pub fn default_base(self) -> &'static str {
        match self {
            Self::Responses | Self::ChatCompletions => "https://api.openai.com/v1/",
            Self::Anthropic => "https://api.anthropic.com/v1/",
            Self::Gemini => "https://generativelanguage.googleapis.com/v1beta/",
        }
    }

    /// The URL of a call. A query of the base URL stays.
    pub fn url(self, base: &Url, model: &str) -> Url {
        let mut url = base.clone();
        let add = |url: &mut Url, segments: &[&str]| {
            if let Ok(mut path) = url.path_segments_mut() {
                path.pop_if_empty().extend(segments);
            }
        };
        match self {
            Self::Responses => add(&mut url, &["responses"]),
            Self::ChatCompletions => add(&mut url, &["chat", "completions"]),
            Self::Anthropic => add(&mut url, &["messages"]),
            Self::Gemini => {
                // A tuned model is written with its collection.
                let resource = if model.contains('/') { model.to_owned() } else { format!("models/{model}") };
                let method = format!("{resource}:streamGenerateContent");
                add(&mut url, &method.split('/').collect::<Vec<_>>());
                url.query_pairs_mut().append_pair("alt", "sse");
            }
        }
        url
    }

    /// Headers of every request beside the user's.
    pub fn headers(self, key: Option<&str>) -> Result<HeaderMap, reqwest::header::InvalidHeaderValue> {
        let mut headers = HeaderMap::new();
        if self == Self::Anthropic {
            headers.insert("anthropic-version", HeaderValue::from_static("2023-06-01"));
        }
        if let Some(key) = key {
            let (name, value) = match self {
                Self::Responses | Self::ChatCompletions => ("authorization", format!("Bearer {key}")),
                Self::Anthropic => ("x-api-key", key.to_owned()),
                Self::Gemini => ("x-goog-api-key", key.to_owned()),
            };
            let mut value = HeaderValue::from_str(&value)?;
            value.set_sensitive(true);
            headers.insert(HeaderName::from_static(name), value);
        }
        Ok(headers)
    }

    /// The body of a request. Equal arguments give equal bodies.
    pub(super) fn body(self, request: RequestParts<'_>, server: Server) -> Value {
        match self {
            Self::Responses => responses::body(request, server),
            Self::ChatCompletions => chat::body(request, server),
            Self::Anthropic => anthropic::body(request),
            Self::Gemini => gemini::body(request),
        }
    }

    /// The most tokens of an answer that a request asks for, with this setting; `None`: it names no limit.
    pub(super) fn output_limit(self, configured: Option<u32>) -> Option<u32> {
        match self {
            Self::Anthropic => Some(configured.unwrap_or(anthropic::DEFAULT_MAX_TOKENS)),
            Self::Responses | Self::ChatCompletions | Self::Gemini => configured,
        }
    }

    /// The tokens that a `usage` object (in Gemini's format `usageMetadata`) tells.
    pub fn usage(self, usage: &Value) -> TokenUsage {
        match self {
            Self::Responses => responses::usage(usage),
            Self::ChatCompletions => chat::usage(usage),
            Self::Anthropic => anthropic::usage(usage),
            Self::Gemini => gemini::read_usage(usage),
        }
    }

    /// The events that a stream of this answer would have had, of an answer that came as one JSON text.
    pub(super) fn events_of(self, whole: Value) -> Vec<Value> {
        whole::events(self, whole)
    }

    /// Reads one answer.
    pub(super) fn reader(self) -> AnswerReader {
        match self {
            Self::Responses => AnswerReader::Responses(responses::ResponsesReader::default()),
            Self::ChatCompletions => AnswerReader::Chat(chat::ChatReader::default()),
            Self::Anthropic => AnswerReader::Anthropic(anthropic::AnthropicReader::default()),
            Self::Gemini => AnswerReader::Gemini(gemini::GeminiReader::default()),
        }
    }
}

impl Server {
    /// What the host of a base URL tells.
    pub fn at(base: &Url) -> Self {
        let kind = match base.host_str() {
            Some("api.openai.com") => ServerKind::OpenAi,
            Some("generativelanguage.googleapis.com") => ServerKind::Google,
            Some(_) | None => ServerKind::Other,
        };
        Self { kind, takes_encrypted_reasoning: true, strict_order: false }
    }
}

/// Whether more events come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// The answer is not complete, or the connection's end completes it.
    More,
    /// The answer is complete.
    Done,
    /// The endpoint says that the answer is complete, and nothing has come.
    Empty,
}

/// Reads the events of one answer.
#[derive(Debug)]
pub(super) enum AnswerReader {
    Responses(responses::ResponsesReader),
    Chat(chat::ChatReader),
    Anthropic(anthropic::AnthropicReader),
    Gemini(gemini::GeminiReader),
}

impl AnswerReader {
    /// Reads one event.
    pub fn read(&mut self, event: &SseEvent, answer: &mut AnswerBuilder) -> Result<Progress, StreamError> {
        if event.data.trim() == "[DONE]" {
            // The server says that this is all, also where it leaves out why.
            return Ok(if self.is_complete() || !answer.is_empty() { Progress::Done } else { Progress::Empty });
        }
        let data: Value = crate::foreign_json::from_str(&event.data).map_err(|error| StreamError::Unreadable(error.to_string()))?;
        if !data.is_object() {
            return Err(StreamError::Unreadable("an event is no object".to_owned()));
        }
        self.read_data(&data, answer)
    }

    /// Reads what an event holds.
    pub fn read_data(&mut self, data: &Value, answer: &mut AnswerBuilder) -> Result<Progress, StreamError> {
        if reports_error(data) {
            return Err(StreamError::Reported(data.clone()));
        }
        match self {
            Self::Responses(reader) => reader.read(data, answer),
            Self::Chat(reader) => reader.read(data, answer),
            Self::Anthropic(reader) => reader.read(data, answer),
            Self::Gemini(reader) => reader.read(data, answer),
        }
    }

    /// Whether the answer is whole if the stream ends here: why the model stopped is known.
    pub fn is_complete(&self) -> bool {
        match self {
            Self::Responses(_) => false,
            Self::Anthropic(reader) => reader.is_complete(),
            Self::Chat(reader) => reader.is_complete(),
            Self::Gemini(reader) => reader.is_complete(),
        }
    }

    /// What says why the model stopped, for a message that names what did not come.
    pub fn end_mark(&self) -> &'static str {
        match self {
            Self::Responses(_) => "response.completed",
            Self::Anthropic(_) => "a stop_reason",
            Self::Chat(_) => "a finish_reason",
            Self::Gemini(_) => "a finishReason",
        }
    }

    /// Adds what can be known only when the stream is over.
    pub fn finish(self, answer: &mut AnswerBuilder) -> Result<(), StreamError> {
        match self {
            Self::Chat(reader) => reader.finish(answer),
            Self::Anthropic(reader) => reader.finish(answer),
            Self::Responses(_) | Self::Gemini(_) => Ok(()),
        }
    }
}

/// Whether an event or an answer is an error, in any of the ways in which servers write one beside the format's own.
fn reports_error(data: &Value) -> bool {
    let has_text = |field: &&str| data.get(*field).and_then(Value::as_str).is_some_and(|text| !text.is_empty());
    data.get("error").is_some_and(|error| !error.is_null())
        || [text(data, "object"), text(data, "type")].contains(&"error")
        || ["error_message", "error_msg", "error_type"].iter().any(has_text)
}

/// A string field; empty when it is absent or null.
fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

/// A count at a pointer; 0 when it is absent.
fn count(value: &Value, pointer: &str) -> u64 {
    value.pointer(pointer).and_then(Value::as_u64).unwrap_or_default()
}

/// The larger of two counts, field by field: a later event may leave out what an earlier one said.
pub(crate) fn larger(a: TokenUsage, b: TokenUsage) -> TokenUsage {
    TokenUsage {
        input_tokens: a.input_tokens.max(b.input_tokens),
        output_tokens: a.output_tokens.max(b.output_tokens),
        cached_tokens: a.cached_tokens.max(b.cached_tokens),
        cache_write_tokens: a.cache_write_tokens.max(b.cache_write_tokens),
        reasoning_tokens: a.reasoning_tokens.max(b.reasoning_tokens),
    }
}

/// An effort that is a number is a budget of tokens, in the formats that have budgets.
fn budget(effort: &str) -> Option<u32> {
    effort.parse().ok()
}

#[cfg(test)]
mod tests;
