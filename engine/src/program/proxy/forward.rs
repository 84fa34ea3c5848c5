//! One request: checks it, passes it on with the endpoint's key, and begins to pass the answer back.

use std::sync::Arc;

use hyper::body::Incoming;
use hyper::header::{
    ACCEPT_ENCODING, AUTHORIZATION, CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, HOST, HeaderMap, HeaderName, HeaderValue, SET_COOKIE, TE,
    TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use hyper::{Request, Response};
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::{Instant, timeout};

use super::ProxyState;
use super::conceal::Concealer;
use super::passing::{self, PassingAnswer, ResponseBody, TokenCounter};
use super::refusal::Refusal;
use super::request_body;
use super::route::{Route, query_pairs};
use super::usage::UsageReader;
use crate::model::failure::ModelFailure;
use crate::program::access::RunBudget;

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
pub(super) async fn answer(state: &Arc<ProxyState>, request: Request<Incoming>) -> Response<ResponseBody> {
    match forward(state, request).await {
        Ok(response) => response,
        Err(refusal) => {
            tracing::debug!(?refusal, "model proxy refuses a request");
            refusal.response(state.upstream.format)
        }
    }
}

async fn forward(state: &Arc<ProxyState>, request: Request<Incoming>) -> Result<Response<ResponseBody>, Refusal> {
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
    if route.asks_model {
        body = request_body::with_usage(upstream.format, &body)?;
    }
    let request_bytes = body.len();
    let url = route.url(&upstream.base, head.uri.query());
    let mut asked = upstream.http.request(head.method, url).headers(request_headers(state, &head.headers));
    if !body.is_empty() {
        asked = asked.body(body);
    }
    let call = UpstreamCall { state: state.clone(), asked, memory, permit, counts: route.asks_model.then_some((request_bytes, budget)) };
    let (answer, answered) = oneshot::channel();
    // It goes on when the program goes away, which drops this future.
    tokio::spawn(call.run(answer));
    answered.await.unwrap_or(Err(Refusal::Busy))
}

/// A request on its way to the endpoint.
struct UpstreamCall {
    state: Arc<ProxyState>,
    asked: reqwest::RequestBuilder,
    memory: OwnedSemaphorePermit,
    permit: OwnedSemaphorePermit,
    /// Bytes of the request, and who pays; `None`: it costs nothing.
    counts: Option<(usize, Arc<dyn RunBudget>)>,
}

impl UpstreamCall {
    /// Asks, gives the head of the response to `answer`, and passes the rest on.
    async fn run(self, answer: oneshot::Sender<Result<Response<ResponseBody>, Refusal>>) {
        let Self { state, asked, memory, permit, counts } = self;
        let (upstream, timeouts) = (&state.upstream, &state.upstream.context.timeouts);
        let deadline = Instant::now() + timeouts.total;
        let refusal = match timeout(timeouts.head, asked.send()).await {
            Ok(Ok(response)) => {
                drop(memory);
                let mut head = Response::new(());
                *head.status_mut() = response.status();
                *head.headers_mut() = response_headers(&state, response.headers());
                let counts = counts.filter(|_| response.status().is_success());
                let passing = PassingAnswer {
                    response,
                    concealer: Concealer::new(state.secrets.clone()),
                    counter: counts.map(|(bytes, budget)| TokenCounter::new(UsageReader::new(upstream.format), bytes, budget)),
                    idle: timeouts.idle,
                    deadline,
                    permit,
                };
                let (pieces, body) = passing::body();
                // The program may have gone. Then the body is dropped here, which is how the answer's reader learns of it.
                let _ = answer.send(Ok(head.map(|()| body)));
                return passing.pass(pieces).await;
            }
            Ok(Err(error)) => {
                let failure = ModelFailure::from_connection(&error, &upstream.context).redact(&upstream.redaction);
                tracing::warn!(what = failure.summary, "model proxy gets no answer");
                Refusal::Unreachable(failure.summary)
            }
            Err(_) => Refusal::Slow(ModelFailure::no_answer_begun(&upstream.context).redact(&upstream.redaction).summary),
        };
        let _ = answer.send(Err(refusal));
    }
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
