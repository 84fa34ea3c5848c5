//! One endpoint over HTTP: sends a request and reads its stream.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Response, StatusCode, Url, redirect};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tokio::time::timeout;
use yoi_wire::entry::{Assistant, ModelConfig, PromptItem, StopReason};
use yoi_wire::manifest::{ModelEndpoint, ModelHeader};

use super::answer::{AnswerBuilder, StreamError};
use super::deltas::DeltaSink;
use super::failure::{CallContext, ModelFailure};
use super::format::{Progress, RequestParts, Server, WireFormat};
use super::secrets::{ModelSecrets, Redaction};
use super::sse::SseReader;
use super::{CONNECT_TIMEOUT, ModelError, ModelRequest, ModelTimeouts};

/// Bytes of an error's body that are read.
const MAX_ERROR_BYTES: usize = 64 << 10;
/// Bytes of one answer's stream. Each piece of an answer comes in an event many times its size.
const MAX_STREAM_BYTES: usize = 256 << 20;
const MAX_REDIRECTS: usize = 5;

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
        let format = WireFormat::of(endpoint)
            .ok_or_else(|| ModelError::Endpoint("the model's provider or api is of another version of Yoi".to_owned()))?;
        let base = endpoint.base_url.as_deref().unwrap_or(format.default_base());
        let base = Url::parse(base).map_err(|_| ModelError::Endpoint("spec.model.baseUrl is no URL".to_owned()))?;
        let key = secrets.key.as_ref().map(super::ApiKey::expose);
        let user_headers = user_headers(&endpoint.headers, secrets)?;
        let mut headers =
            format.headers(key).map_err(|_| ModelError::Endpoint("the model's key has characters that no header takes".to_owned()))?;
        for (name, value) in &user_headers {
            headers.insert(name, value.clone());
        }
        let proxy = endpoint.proxy_url.as_deref().map(Url::parse).transpose();
        let proxy = proxy.map_err(|_| ModelError::Endpoint("spec.model.proxyUrl is no URL".to_owned()))?;
        let values = user_headers.iter().filter_map(|(_, value)| Some(value.to_str().ok()?.to_owned()));
        let redaction = Redaction::new(key, values, proxy.as_ref().and_then(Url::password));
        let context = CallContext {
            endpoint: host_and_port(&base),
            proxy: proxy.as_ref().map(host_and_port),
            has_secret: takes_secret(endpoint, secrets),
            timeouts: timeouts.for_endpoint(endpoint),
        };
        let mut http = reqwest::Client::builder()
            .tls_backend_preconfigured(tls_config(endpoint.ca.as_deref())?)
            .connect_timeout(CONNECT_TIMEOUT)
            // Elsewhere, a redirect would take the key with it.
            .redirect(redirect::Policy::custom(|attempt| {
                let origin = attempt.previous().first().map(Url::origin);
                if attempt.previous().len() <= MAX_REDIRECTS && origin == Some(attempt.url().origin()) {
                    attempt.follow()
                } else {
                    attempt.stop()
                }
            }));
        if let Some(proxy) = &proxy {
            http = http.proxy(reqwest::Proxy::all(proxy.clone())?);
        }
        let config = ModelConfig {
            api: format.name().to_owned(),
            name: endpoint.name.clone(),
            max_output_tokens: endpoint.max_output_tokens,
            effort: endpoint.effort.clone(),
        };
        Ok(Self {
            http: http.build()?,
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

/// Whether a Secret holds the endpoint's key or one of its headers, even an empty one.
pub(super) fn takes_secret(endpoint: &ModelEndpoint, secrets: &ModelSecrets) -> bool {
    secrets.key.is_some() || endpoint.key_secret.is_some() || endpoint.headers.iter().any(|header| header.value_env.is_some())
}

fn user_headers(headers: &[ModelHeader], secrets: &ModelSecrets) -> Result<Vec<(HeaderName, HeaderValue)>, ModelError> {
    let invalid =
        |header: &ModelHeader, what: &str| ModelError::Endpoint(format!("the header {:?} in spec.model.headers {what}", header.name));
    let mut all = Vec::new();
    for header in headers {
        let value = match (&header.value, &header.value_env) {
            (_, Some(variable)) => {
                secrets.headers.get(variable).map(super::ApiKey::expose).ok_or_else(|| invalid(header, "has no value"))?
            }
            (Some(value), None) => value,
            (None, None) => "",
        };
        let name = HeaderName::from_bytes(header.name.as_bytes()).map_err(|_| invalid(header, "has no valid name"))?;
        let mut value = HeaderValue::from_str(value).map_err(|_| invalid(header, "has a value that no header takes"))?;
        value.set_sensitive(true);
        all.push((name, value));
    }
    Ok(all)
}

/// Host and port of a URL, for messages. A user name or password in the URL is left out.
fn host_and_port(url: &Url) -> String {
    match (url.host_str(), url.port()) {
        (Some(host), Some(port)) => format!("{host}:{port}"),
        (Some(host), None) => host.to_owned(),
        (None, _) => "(spec.model.baseUrl has no host)".to_owned(),
    }
}

/// Trusts public roots, because users' images may have none, and the user's.
fn tls_config(ca: Option<&str>) -> Result<rustls::ClientConfig, ModelError> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add_parsable_certificates(webpki_root_certs::TLS_SERVER_ROOT_CERTS.iter().cloned());
    let (mut found, invalid) = (0, || ModelError::Endpoint("spec.model.caRef names no certificate in PEM".to_owned()));
    for certificate in CertificateDer::pem_slice_iter(ca.unwrap_or_default().as_bytes()) {
        roots.add(certificate.map_err(|_| invalid())?).map_err(|_| invalid())?;
        found += 1;
    }
    if ca.is_some() && found == 0 {
        return Err(invalid());
    }
    Ok(rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth())
}

impl ModelTimeouts {
    /// What `spec.model.timeout` makes of them.
    fn for_endpoint(self, endpoint: &ModelEndpoint) -> Self {
        let Some(silence) = endpoint.timeout_seconds.map(|seconds| Duration::from_secs(seconds.into())) else { return self };
        Self { head: silence, idle: silence, total: self.total.max(silence) }
    }
}
