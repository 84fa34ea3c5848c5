//! One endpoint over HTTP: sends a request and reads its stream.

use std::sync::atomic::{AtomicBool, Ordering};

use reqwest::header::{CONTENT_TYPE, HeaderMap};
use reqwest::{Response, StatusCode, Url};
use tokio::time::timeout;
use yoi_wire::entry::{Assistant, ModelConfig, PromptItem, StopReason};
use yoi_wire::manifest::ModelEndpoint;

use super::answer::{AnswerBuilder, StreamError};
use super::deltas::DeltaSink;
use super::failure::{CallContext, ModelFailure};
use super::format::{Progress, RequestParts, Server, WireFormat};
use super::secrets::{ModelSecrets, Redaction};
use super::sse::SseReader;
use super::upstream::Upstream;
use super::{ModelError, ModelRequest, ModelTimeouts};

/// Bytes of an error's body that are read.
const MAX_ERROR_BYTES: usize = 64 << 10;
/// Bytes of one answer's stream. Each piece of an answer comes in an event many times its size.
const MAX_STREAM_BYTES: usize = 256 << 20;

/// An endpoint and everything that its requests have in common.
#[derive(Debug)]
pub(super) struct Connection {
    http: reqwest::Client,
    url: Url,
    headers: HeaderMap,
    format: WireFormat,
    server: Server,
    /// The model has refused to be asked for encrypted reasoning.
    refuses_encrypted_reasoning: AtomicBool,
    config: ModelConfig,
    context: CallContext,
    redaction: Redaction,
}

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
            refuses_encrypted_reasoning: AtomicBool::new(false),
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
        let answer = timeout(self.context.timeouts.total, self.answer(request, sink)).await;
        let answer = answer.unwrap_or_else(|_| Err(ModelFailure::answer_too_slow(&self.context)));
        let answer =
            answer.and_then(
                |answer| if is_useless(&answer, &request.items) { Err(ModelFailure::empty_answer(&self.context)) } else { Ok(answer) },
            );
        answer.map_err(|failure| ModelFailure { usage: sink.usage(), ..failure.redact(&self.redaction) })
    }

    async fn answer(&self, request: &ModelRequest, sink: &DeltaSink) -> Result<Assistant, ModelFailure> {
        let response = match self.send(request).await {
            Err(Refusal { encrypted_reasoning: true, .. }) if !self.refuses_encrypted_reasoning.swap(true, Ordering::Relaxed) => {
                self.send(request).await
            }
            other => other,
        };
        let model = &request.config.model.name;
        self.read(response.map_err(|refusal| refusal.failure)?, AnswerBuilder::new(sink.clone()), model).await
    }

    /// Sends the request and returns the response whose status is a success.
    async fn send(&self, request: &ModelRequest) -> Result<Response, Refusal> {
        let server = Server { takes_encrypted_reasoning: !self.refuses_encrypted_reasoning.load(Ordering::Relaxed), ..self.server };
        let parts = RequestParts { config: &request.config, items: &request.items, offer_tools: request.offer_tools };
        let body = self.format.body(parts, server).to_string();
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
        let encrypted_reasoning = status == StatusCode::BAD_REQUEST
            && server.takes_encrypted_reasoning
            && self.format == WireFormat::Responses
            && (body.contains("Encrypted content is not supported")
                || body.contains("\"param\": \"include\"")
                || body.contains("\"param\":\"include\""));
        Err(Refusal { failure: ModelFailure::from_status(status, &headers, &body, &self.context), encrypted_reasoning })
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

    async fn read(&self, mut response: Response, mut answer: AnswerBuilder, model: &str) -> Result<Assistant, ModelFailure> {
        let failed = |error| ModelFailure::from_stream(error, &self.context);
        let (mut events, mut reader) = (SseReader::default(), self.format.reader());
        let (mut bytes, mut any) = (0, false);
        let whole = 'stream: loop {
            // Every byte is a sign of life, also that of a comment.
            let chunk = match timeout(self.context.timeouts.idle, response.chunk()).await {
                Err(_) => return Err(ModelFailure::silent(&self.context)),
                Ok(Err(error)) => return Err(ModelFailure::from_connection(&error, &self.context)),
                Ok(Ok(chunk)) => chunk,
            };
            let Some(chunk) = chunk else {
                if let Some(event) = events.finish() {
                    any = true;
                    if reader.read(&event, &mut answer).map_err(failed)? == Progress::Done {
                        break true;
                    }
                }
                break reader.is_complete();
            };
            bytes += chunk.len();
            if bytes > MAX_STREAM_BYTES {
                return Err(failed(StreamError::TooLong));
            }
            for event in events.push(&chunk).map_err(|_| failed(StreamError::TooLong))? {
                any = true;
                if reader.read(&event, &mut answer).map_err(failed)? == Progress::Done {
                    break 'stream true;
                }
            }
        };
        match (whole, any) {
            (true, _) => {
                reader.finish(&mut answer).map_err(failed)?;
                Ok(answer.finish(self.format.name(), model))
            }
            (false, true) => Err(ModelFailure::answer_cut_off(&self.context)),
            (false, false) => Err(ModelFailure::not_a_stream(&self.context)),
        }
    }
}

/// A request that was not answered.
struct Refusal {
    failure: ModelFailure,
    /// Only because it asked for encrypted reasoning.
    encrypted_reasoning: bool,
}

impl From<ModelFailure> for Refusal {
    fn from(failure: ModelFailure) -> Self {
        Self { failure, encrypted_reasoning: false }
    }
}

/// Some models end with an empty answer after a tool's result. Anywhere else it is an error, unless the endpoint says why.
fn is_useless(answer: &Assistant, items: &[PromptItem]) -> bool {
    let empty = answer.text.trim().is_empty() && answer.tool_calls.is_empty();
    let explained = match answer.stop {
        Some(StopReason::Length | StopReason::Refusal | StopReason::ContentFilter | StopReason::Pause) => true,
        None | Some(StopReason::End | StopReason::ToolCalls) => false,
    };
    empty && !explained && !matches!(items.last(), Some(PromptItem::Results(_)))
}
