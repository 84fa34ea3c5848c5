use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use yoi_test_support::eventually;
use yoi_wire::entry::TokenUsage;

use super::*;
use crate::model::ApiKey;
use crate::program::access::UsedUp;

mod answers;
mod refusals;

const TOKEN: &str = "token-of-the-run";
const KEY: &str = "sk-canary-0123456789";
const TENANT: &str = "tenant-canary-9876543210";
const FORMATS: [WireFormat; 4] = [WireFormat::Anthropic, WireFormat::Responses, WireFormat::ChatCompletions, WireFormat::Gemini];

/// Counts, and refuses when it is told to.
#[derive(Default)]
struct Counted {
    used: Mutex<Vec<TokenUsage>>,
    used_up: AtomicBool,
}

impl RunBudget for Counted {
    fn used(&self, usage: TokenUsage) {
        self.used.lock().unwrap().push(usage);
    }

    fn ask(&self) -> Result<(), UsedUp> {
        if self.used_up.load(Ordering::SeqCst) { Err(UsedUp::Tokens) } else { Ok(()) }
    }
}

/// A model's endpoint on loopback, a proxy before it, and a run's token.
struct Setup {
    proxy: ModelProxy,
    _grant: ProxyGrant,
    usage: Arc<Counted>,
    format: WireFormat,
}

impl Setup {
    /// `respond` serves each connection, after its request was read.
    async fn start<F>(format: WireFormat, respond: impl Fn(TcpStream, String) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                stream.set_nodelay(true).unwrap();
                if let Some(request) = read_request(&mut stream).await {
                    tokio::spawn(respond(stream, request));
                }
            }
        });
        Self::before(format, &format!("http://{address}"))
    }

    /// A proxy before an endpoint that always writes the same.
    async fn writing(format: WireFormat, response: String) -> (Self, Arc<Mutex<Vec<String>>>) {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let requests = seen.clone();
        let setup = Self::start(format, move |mut stream, request| {
            requests.lock().unwrap().push(request);
            let response = response.clone();
            async move {
                let _ = stream.write_all(response.as_bytes()).await;
            }
        });
        (setup.await, seen)
    }

    fn before(format: WireFormat, url: &str) -> Self {
        let (provider, api, version) = match format {
            WireFormat::Anthropic => ("Anthropic", None, "v1"),
            WireFormat::Responses => ("OpenAI", Some("Responses"), "v1"),
            WireFormat::ChatCompletions => ("OpenAI", Some("ChatCompletions"), "v1"),
            WireFormat::Gemini => ("Gemini", None, "v1beta"),
        };
        let headers = json!([{"name": "x-team", "value": "blue"}, {"name": "x-tenant", "valueEnv": "TENANT"}]);
        let endpoint = json!({
            "provider": provider, "api": api, "name": "m", "baseUrl": format!("{url}/{version}/"), "headers": headers, "timeoutSeconds": 50,
        });
        let endpoint: ModelEndpoint = serde_json::from_value(endpoint).unwrap();
        let mut secrets = ModelSecrets::from(Some(ApiKey::new(KEY.to_owned())));
        secrets.headers.insert("TENANT".to_owned(), ApiKey::new(TENANT.to_owned()));
        let usage = Arc::new(Counted::default());
        let proxy = ModelProxy::start(&endpoint, &secrets).unwrap();
        let grant = proxy.allow(TOKEN, usage.clone());
        Self { proxy, _grant: grant, usage, format }
    }

    fn path(&self) -> &'static str {
        match self.format {
            WireFormat::Anthropic => "/v1/messages?beta=true",
            WireFormat::Responses => "/v1/responses",
            WireFormat::ChatCompletions => "/v1/chat/completions",
            WireFormat::Gemini => "/v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse",
        }
    }

    /// A request with the run's token where the format's own clients put it.
    fn request(&self, body: impl Into<reqwest::Body>) -> reqwest::RequestBuilder {
        let request = client().post(self.proxy.base_url() + self.path()).body(body);
        match self.format {
            WireFormat::Anthropic => request.header("x-api-key", TOKEN),
            WireFormat::Responses | WireFormat::ChatCompletions => request.bearer_auth(TOKEN),
            WireFormat::Gemini => request.header("x-goog-api-key", TOKEN),
        }
    }

    fn used(&self) -> Vec<TokenUsage> {
        self.usage.used.lock().unwrap().clone()
    }

    async fn until_used(&self) -> Vec<TokenUsage> {
        until(|| !self.used().is_empty()).await;
        self.used()
    }
}

fn client() -> reqwest::Client {
    let tls = rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()));
    let tls =
        tls.with_safe_default_protocol_versions().unwrap().with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth();
    reqwest::Client::builder().no_proxy().tls_backend_preconfigured(tls).build().unwrap()
}

async fn until(condition: impl Fn() -> bool) {
    eventually("the condition holds", async || condition().then_some(())).await;
}

/// Reads a request whose length is told; `None` when the connection ends before.
async fn read_request(stream: &mut TcpStream) -> Option<String> {
    let (mut request, mut buffer) = (Vec::new(), vec![0; 1 << 16]);
    loop {
        let count = stream.read(&mut buffer).await.ok().filter(|count| *count > 0)?;
        request.extend_from_slice(&buffer[..count]);
        let Some(end) = request.windows(4).position(|window| window == b"\r\n\r\n") else { continue };
        let head = String::from_utf8_lossy(&request[..end]).into_owned();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).map_or(0, |length| length.parse().unwrap());
        while request.len() < end + 4 + length {
            let count = stream.read(&mut buffer).await.ok().filter(|count| *count > 0)?;
            request.extend_from_slice(&buffer[..count]);
        }
        return Some(String::from_utf8(request).unwrap());
    }
}

fn whole(status: &str, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}\r\n{headers}\r\n{body}", body.len())
}

fn stream_head() -> &'static str {
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n"
}

fn chunk(bytes: &[u8]) -> Vec<u8> {
    [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}

/// A stream of each format, as its provider writes it, and the tokens that it tells.
fn sample(format: WireFormat) -> (String, TokenUsage) {
    let named =
        |events: &[Value]| events.iter().map(|event| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap())).collect();
    let plain = |events: &[Value]| events.iter().map(|event| format!("data: {event}\r\n\r\n")).collect::<String>();
    let usage = TokenUsage { input_tokens: 21, output_tokens: 8, ..TokenUsage::default() };
    match format {
        WireFormat::Anthropic => (
            named(&[
                json!({"type": "message_start", "message": {"usage": {"input_tokens": 10, "cache_read_input_tokens": 7, "cache_creation_input_tokens": 4, "output_tokens": 1}}}),
                json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "grüße \"usage\": {\"input_tokens\": 999}"}}),
                json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 8}}),
                json!({"type": "message_stop"}),
            ]),
            TokenUsage { cached_tokens: 7, cache_write_tokens: 4, ..usage },
        ),
        WireFormat::Responses => (
            named(&[
                json!({"type": "response.created", "response": {"id": "r", "usage": null}}),
                json!({"type": "response.output_text.delta", "delta": "grüße"}),
                json!({"type": "response.completed", "response": {"output": [], "usage": {"input_tokens": 21, "input_tokens_details": {"cached_tokens": 7}, "output_tokens": 8, "output_tokens_details": {"reasoning_tokens": 3}}}}),
            ]),
            TokenUsage { cached_tokens: 7, reasoning_tokens: 3, ..usage },
        ),
        WireFormat::ChatCompletions => (
            plain(&[
                json!({"choices": [{"delta": {"content": "grüße"}}], "usage": null}),
                json!({"choices": [{"delta": {}, "finish_reason": "stop"}]}),
                json!({"choices": [], "usage": {"prompt_tokens": 21, "completion_tokens": 8, "prompt_tokens_details": {"cached_tokens": 7}}}),
            ]) + "data: [DONE]\n\n",
            TokenUsage { cached_tokens: 7, ..usage },
        ),
        WireFormat::Gemini => (
            plain(&[
                json!({"candidates": [{"content": {"parts": [{"text": "grüße"}]}}], "usageMetadata": {"promptTokenCount": 21}}),
                json!({"candidates": [{"finishReason": "STOP"}], "usageMetadata": {"promptTokenCount": 21, "cachedContentTokenCount": 7, "candidatesTokenCount": 5, "thoughtsTokenCount": 3}}),
            ]),
            TokenUsage { cached_tokens: 7, reasoning_tokens: 3, ..usage },
        ),
    }
}
