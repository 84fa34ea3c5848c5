//! One request: checks it, passes it on with the endpoint's key, and begins to pass the answer back.

use hyper::body::Incoming;
use hyper::header::{
    ACCEPT_ENCODING, AUTHORIZATION, CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, HOST, HeaderMap, HeaderName, HeaderValue, SET_COOKIE, TE,
    TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use hyper::{Request, Response};
use tokio::time::{Instant, timeout};

use super::ProxyState;
use super::conceal::Concealer;
use super::passing::{PassingAnswer, ResponseBody, TokenCounter};
use super::refusal::Refusal;
use super::request_body;
use super::route::{Route, query_pairs};
use super::usage::UsageReader;
use crate::model::failure::ModelFailure;
use crate::model::format::WireFormat;

const KEY_HEADERS: [&str; 2] = ["x-api-key", "x-goog-api-key"];
/// Headers that concern one connection, and cookies, which are nobody's here.
static DROPPED_HEADERS: [HeaderName; 10] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-authenticate"),
    HeaderName::from_static("proxy-authorization"),
    HeaderName::from_static("proxy-connection"),
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
    HeaderName::from_static("alt-svc"),
];

/// Answers a request of a program.
pub(super) async fn answer(state: &ProxyState, request: Request<Incoming>) -> Response<ResponseBody> {
    match forward(state, request).await {
        Ok(response) => response,
        Err(refusal) => {
            tracing::debug!(?refusal, "model proxy refuses a request");
            refusal.response(state.upstream.format)
        }
    }
}

async fn forward(state: &ProxyState, request: Request<Incoming>) -> Result<Response<ResponseBody>, Refusal> {
    let upstream = &state.upstream;
    let (head, body) = request.into_parts();
    let budget = shown_tokens(&head.headers, head.uri.query()).iter().find_map(|token| state.tokens.find(token)).ok_or(Refusal::NoToken)?;
    let route = Route::of(upstream.format, &head.method, head.uri.path())
        .ok_or_else(|| Refusal::NotServed { request: format!("{} {}", head.method, head.uri.path()) })?;
    let permit = state.requests.clone().try_acquire_owned().map_err(|_| Refusal::Busy)?;
    if route.asks_model {
        budget.ask().map_err(Refusal::UsedUp)?;
    }
    let (mut body, memory) = request_body::read(body, &state.body_memory).await?;
    if route.asks_model && upstream.format == WireFormat::ChatCompletions {
        body = request_body::ask_for_usage(body);
    }
    let url = route.url(&upstream.base, head.uri.query());
    let mut asked = upstream.http.request(head.method, url).headers(request_headers(state, &head.headers));
    if !body.is_empty() {
        asked = asked.body(body);
    }
    let timeouts = &upstream.context.timeouts;
    let deadline = Instant::now() + timeouts.total;
    let response = match timeout(timeouts.head, asked.send()).await {
        Err(_) => return Err(Refusal::Slow(ModelFailure::no_answer_begun(&upstream.context).redact(&upstream.redaction).summary)),
        Ok(Err(error)) => {
            let failure = ModelFailure::from_connection(&error, &upstream.context).redact(&upstream.redaction);
            tracing::warn!(what = failure.summary, "model proxy gets no answer");
            return Err(Refusal::Unreachable(failure.summary));
        }
        Ok(Ok(response)) => response,
    };
    drop(memory);
    let counts = route.asks_model && response.status().is_success();
    let mut answer = Response::new(());
    *answer.status_mut() = response.status();
    *answer.headers_mut() = response_headers(state, response.headers());
    let passing = PassingAnswer {
        response,
        concealer: Concealer::new(state.secrets.clone()),
        counter: counts.then(|| TokenCounter::new(UsageReader::new(upstream.format), budget)),
        idle: timeouts.idle,
        deadline,
        _permit: permit,
    };
    Ok(answer.map(|()| passing.into_body()))
}

/// What the program shows as its key, wherever its format puts one.
fn shown_tokens(headers: &HeaderMap, query: Option<&str>) -> Vec<String> {
    let text = |value: &HeaderValue| value.to_str().ok().map(str::to_owned);
    let bearer = headers.get(AUTHORIZATION).and_then(text).and_then(|value| {
        let (scheme, token) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| token.trim().to_owned())
    });
    let keys = KEY_HEADERS.into_iter().filter_map(|name| headers.get(name).and_then(text));
    let in_query = query_pairs(query).into_iter().filter(|(name, _)| name == "key").map(|(_, value)| value);
    bearer.into_iter().chain(keys).chain(in_query).collect()
}

/// The program's headers, with the endpoint's key and the user's headers in their place.
fn request_headers(state: &ProxyState, shown: &HeaderMap) -> HeaderMap {
    let mut headers = without_connection_headers(shown);
    for name in [HOST, CONTENT_LENGTH, COOKIE, EXPECT, AUTHORIZATION] {
        headers.remove(name);
    }
    for name in KEY_HEADERS {
        headers.remove(name);
    }
    let own_version = headers.get("anthropic-version").cloned();
    for (name, value) in &state.upstream.headers {
        headers.insert(name, value.clone());
    }
    if let Some(version) = own_version {
        headers.insert("anthropic-version", version);
    }
    // Tokens cannot be read out of a compressed answer.
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    headers
}

/// The endpoint's headers. The length stays: nothing that passes through changes it.
fn response_headers(state: &ProxyState, sent: &HeaderMap) -> HeaderMap {
    let mut headers = without_connection_headers(sent);
    headers.remove(SET_COOKIE);
    let concealed: Vec<HeaderName> =
        headers.iter().filter(|(_, value)| state.secrets.is_in(value.as_bytes())).map(|(name, _)| name.clone()).collect();
    for name in &concealed {
        headers.remove(name);
    }
    headers
}

fn without_connection_headers(all: &HeaderMap) -> HeaderMap {
    let mut headers = all.clone();
    let named = all.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
    for name in named.filter_map(|name| HeaderName::from_bytes(name.trim().as_bytes()).ok()) {
        headers.remove(name);
    }
    for name in &DROPPED_HEADERS {
        headers.remove(name);
    }
    headers
}
