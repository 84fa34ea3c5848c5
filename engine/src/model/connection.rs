//! One endpoint over HTTP: sends a request and reads its answer.

use std::mem::discriminant;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use reqwest::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, TRANSFER_ENCODING};
use reqwest::{Response, Url, Version};
use serde_json::Value;
use tokio::time::timeout;
use yoi_wire::entry::{Assistant, ModelConfig};
use yoi_wire::manifest::ModelEndpoint;

use super::answer::{AnswerBuilder, StreamError};
use super::deltas::DeltaSink;
use super::failure::{CallContext, Failed, ModelFailure};
use super::format::{AnswerReader, Progress, Server, WireFormat};
use super::secrets::{ModelSecrets, Redaction};
use super::sse::SseReader;
use super::upstream::Upstream;
use super::{ModelError, ModelRequest, ModelTimeouts};

mod changes;

use changes::{Attempt, Change, Learned};

/// Bytes of an error's body that are read.
const MAX_ERROR_BYTES: usize = 64 << 10;
/// Bytes of one answer's stream. Each piece of an answer comes in an event many times its size.
const MAX_STREAM_BYTES: usize = 256 << 20;
/// Bytes of an answer that is one JSON text.
const MAX_JSON_BYTES: usize = 16 << 20;
/// Bytes that are kept of the begin of an answer, for the message when it is none.
const HEAD_BYTES: usize = 1024;
/// How often in a row the answers of an endpoint must end without saying why, before they are taken for whole.
const ENDS_WITHOUT_MARK: u32 = 2;
/// Requests for one answer. Each of them was refused for something that the next one leaves out.
const MAX_ATTEMPTS: usize = 16;

/// An endpoint and everything that its requests have in common.
#[derive(Debug)]
pub(super) struct Connection {
    http: reqwest::Client,
    url: Url,
    headers: HeaderMap,
    format: WireFormat,
    server: Server,
    /// What its refusals have taught.
    learned: Mutex<Learned>,
    /// Streams in a row that have ended with an answer and without saying why. An endpoint that has ever said it is not counted.
    ends_without_mark: AtomicU32,
    config: ModelConfig,
    context: CallContext,
    redaction: Redaction,
}

/// Stands for a count of an endpoint that says why its answers end.
const SAYS_WHY: u32 = u32::MAX;

impl Connection {
    pub fn new(endpoint: &ModelEndpoint, secrets: &ModelSecrets, timeouts: ModelTimeouts) -> Result<Self, ModelError> {
        let Upstream { http, base, headers, format, context, redaction } = Upstream::new(endpoint, secrets, timeouts)?;
        let config = ModelConfig {
            api: format.name().to_owned(),
            name: endpoint.name.clone(),
            max_output_tokens: endpoint.max_output_tokens,
            effort: endpoint.effort.clone(),
        };
        Ok(Self {
            http,
            url: format.url(&base, &endpoint.name),
            headers,
            format,
            server: Server::at(&base),
            learned: Mutex::default(),
            ends_without_mark: AtomicU32::new(0),
            config,
            context,
            redaction,
        })
    }

    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// Calls the model. Dropping the future closes the connection.
    pub async fn call(&self, request: &ModelRequest, sink: &DeltaSink) -> Result<Assistant, ModelFailure> {
        let answer = match timeout(self.context.timeouts.total, self.answer(request, sink)).await {
            Ok(answer) => answer,
            Err(_) => Err(ModelFailure::answer_too_slow(&self.context)),
        };
        answer.map_err(|failure| ModelFailure { usage: sink.usage(), ..failure.redact(&self.redaction) })
    }

    /// Asks, and asks again for as long as the endpoint refuses something that can be left out or written in another way.
    async fn answer(&self, request: &ModelRequest, sink: &DeltaSink) -> Result<Assistant, ModelFailure> {
        let learned = self.learned.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut attempt = Attempt::new(self.format, learned, request);
        let mut told: Vec<(Change, String)> = Vec::new();
        for _ in 0..MAX_ATTEMPTS {
            let answer = match self.send(&attempt).await {
                Ok(response) => self.read(response, AnswerBuilder::new(sink.clone()), &request.config.model.name).await,
                Err(failed) => Err(failed),
            };
            let Failed { failure, refusal } = match answer {
                Ok(answer) => {
                    if attempt.has_learned() {
                        *self.learned.lock().unwrap_or_else(PoisonError::into_inner) = attempt.into_learned();
                    }
                    told.into_iter().for_each(|(_, sentence)| sink.add_change(self.redaction.apply(&sentence)));
                    return Ok(answer);
                }
                Err(failed) => failed,
            };
            // What was shown of an answer cannot be taken back here.
            let change = refusal.filter(|_| sink.bytes() == 0).and_then(|refusal| attempt.change(&refusal, failure.class));
            let Some(change) = change else { return Err(failure) };
            tracing::info!(?change, failure = failure.summary, "the request is sent in another form");
            // More pictures that are left out are told once.
            told.retain(|(known, _)| discriminant(known) != discriminant(&change));
            told.extend(change.sentence(&failure.detail).map(|sentence| (change, sentence)));
        }
        Err(ModelFailure::call_panicked())
    }

    /// Sends the request and returns the response whose status is a success.
    async fn send(&self, attempt: &Attempt<'_>) -> Result<Response, Failed> {
        let body = attempt.body(self.server).to_string();
        let sent =
            self.http.post(self.url.clone()).headers(self.headers.clone()).header(CONTENT_TYPE, "application/json").body(body).send();
        let response = match timeout(self.context.timeouts.head, sent).await {
            Err(_) => return Err(ModelFailure::no_answer_begun(&self.context).into()),
            Ok(Err(error)) => return Err(ModelFailure::from_connection(&error, &self.context).into()),
            Ok(Ok(response)) => response,
        };
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let headers = response.headers().clone();
        let body = self.error_body(response).await;
        Err(ModelFailure::from_status(status, &headers, &body, &self.context))
    }

    async fn error_body(&self, mut response: Response) -> String {
        let mut body = Vec::new();
        while let Ok(Ok(Some(chunk))) = timeout(self.context.timeouts.idle, response.chunk()).await {
            body.extend_from_slice(&chunk[..chunk.len().min(MAX_ERROR_BYTES - body.len())]);
            if body.len() == MAX_ERROR_BYTES {
                break;
            }
        }
        String::from_utf8_lossy(&body).into_owned()
    }

    async fn read(&self, mut response: Response, mut answer: AnswerBuilder, model: &str) -> Result<Assistant, Failed> {
        let failed = |error| ModelFailure::from_stream(error, &self.context);
        let framed = tells_its_end(&response);
        let mut body = AnswerBody::new(self.format);
        let mut bytes = 0;
        let end = loop {
            // Every byte is a sign of life, also that of a comment.
            let chunk = match timeout(self.context.timeouts.idle, response.chunk()).await {
                Err(_) => return Err(ModelFailure::silent(&self.context).into()),
                Ok(Err(error)) => return Err(ModelFailure::from_connection(&error, &self.context).into()),
                Ok(Ok(chunk)) => chunk,
            };
            let Some(chunk) = chunk else { break body.finish(&mut answer).map_err(failed)? };
            bytes += chunk.len();
            if bytes > MAX_STREAM_BYTES {
                return Err(failed(StreamError::TooLong));
            }
            if let Some(end) = body.push(&chunk, &mut answer).map_err(failed)? {
                break end;
            }
        };
        let whole = match end {
            End::Marked => {
                self.ends_without_mark.store(SAYS_WHY, Ordering::Relaxed);
                true
            }
            End::Whole => true,
            // A proxy between may have cut it, so one such answer alone proves nothing.
            End::Closed => framed && !answer.is_empty() && answer.has_only_whole_calls() && self.is_taken_for_whole(),
            End::Empty => return Err(ModelFailure::answer_without_content(&self.context).into()),
            End::Nothing => return Err(ModelFailure::not_a_stream(&self.context, &body.head).into()),
        };
        if !whole {
            return Err(ModelFailure::answer_without_end(&self.context, body.reader.end_mark()).into());
        }
        body.reader.finish(&mut answer).map_err(failed)?;
        Ok(answer.finish(self.format.name(), model))
    }

    /// Whether an answer that has just ended without saying why is whole: this endpoint never says it.
    fn is_taken_for_whole(&self) -> bool {
        let count = |seen: u32| (seen != SAYS_WHY).then(|| (seen + 1).min(ENDS_WITHOUT_MARK));
        let before = self.ends_without_mark.fetch_update(Ordering::Relaxed, Ordering::Relaxed, count);
        before.is_ok_and(|before| before + 1 >= ENDS_WITHOUT_MARK)
    }
}

/// Whether the end of the body differs from a connection that breaks off.
fn tells_its_end(response: &Response) -> bool {
    let has = |name| response.headers().contains_key(name);
    response.version() >= Version::HTTP_2 || has(TRANSFER_ENCODING) || has(CONTENT_LENGTH)
}

/// How an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// It says why the model stopped.
    Marked,
    /// The endpoint says that this is all.
    Whole,
    /// The connection ended.
    Closed,
    /// The endpoint says that this is all, and there is nothing.
    Empty,
    /// Nothing of an answer has come.
    Nothing,
}

/// The body of an answer: a stream of events, or one JSON text.
struct AnswerBody {
    format: WireFormat,
    reader: AnswerReader,
    shape: Shape,
    /// What it begins with.
    head: Vec<u8>,
    any: bool,
    empty: bool,
}

/// How an answer is written. Its content type is not relied on.
enum Shape {
    /// Nothing but space has come.
    NotKnown,
    Events(SseReader),
    Json(Vec<u8>),
}

impl AnswerBody {
    fn new(format: WireFormat) -> Self {
        Self { format, reader: format.reader(), shape: Shape::NotKnown, head: Vec::new(), any: false, empty: false }
    }

    /// Reads the next bytes. Returns how the answer ended, once it has.
    fn push(&mut self, bytes: &[u8], answer: &mut AnswerBuilder) -> Result<Option<End>, StreamError> {
        self.head.extend_from_slice(&bytes[..bytes.len().min(HEAD_BYTES - self.head.len())]);
        if let Shape::NotKnown = self.shape {
            self.shape = match bytes.iter().find(|byte| !byte.is_ascii_whitespace()) {
                None => return Ok(None),
                Some(b'{' | b'[') => Shape::Json(Vec::new()),
                Some(_) => Shape::Events(SseReader::default()),
            };
        }
        match &mut self.shape {
            Shape::Events(reader) => {
                for event in reader.push(bytes).map_err(|_| StreamError::TooLong)? {
                    self.any = true;
                    match self.reader.read(&event, answer)? {
                        Progress::More => {}
                        Progress::Done => return Ok(Some(self.said_end())),
                        Progress::Empty => self.empty = true,
                    }
                }
            }
            Shape::Json(text) if text.len() + bytes.len() > MAX_JSON_BYTES => return Err(StreamError::TooLong),
            Shape::Json(text) => text.extend_from_slice(bytes),
            Shape::NotKnown => {}
        }
        Ok(None)
    }

    /// The connection has ended.
    fn finish(&mut self, answer: &mut AnswerBuilder) -> Result<End, StreamError> {
        match std::mem::replace(&mut self.shape, Shape::NotKnown) {
            Shape::Events(reader) => {
                if let Some(event) = reader.finish() {
                    self.any = true;
                    match self.reader.read(&event, answer)? {
                        Progress::More => {}
                        Progress::Done => return Ok(self.said_end()),
                        Progress::Empty => self.empty = true,
                    }
                }
            }
            Shape::Json(text) => {
                let Ok(whole) = serde_json::from_slice::<Value>(&text) else { return Ok(End::Nothing) };
                for event in self.format.events_of(whole) {
                    if self.reader.read_data(&event, answer)? == Progress::Done {
                        break;
                    }
                }
                return Ok(if self.reader.is_complete() || !answer.is_empty() { End::Whole } else { End::Nothing });
            }
            Shape::NotKnown => {}
        }
        Ok(match (self.reader.is_complete(), self.empty, self.any) {
            (true, _, _) => End::Marked,
            (false, true, _) if answer.is_empty() => End::Empty,
            (false, true, _) => End::Whole,
            (false, false, true) => End::Closed,
            (false, false, false) => End::Nothing,
        })
    }

    /// The last event says that the answer is complete.
    fn said_end(&self) -> End {
        // Of the formats, only Responses has no reason apart from its last event.
        if self.reader.is_complete() || matches!(self.reader, AnswerReader::Responses(_)) { End::Marked } else { End::Whole }
    }
}
