//! Sending an answer: whole, as a stream, or broken as the script wants it.

use std::time::Duration;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures::{Stream, StreamExt, stream};
use serde_json::Value;
use tokio::task::yield_now;
use tokio::time::sleep;

use super::{Asked, Ready};
use crate::endpoint::answer::Answer;
use crate::endpoint::broken_response;
use crate::endpoint::errors::{self, ErrorKind};
use crate::endpoint::pieces::halves;
use crate::endpoint::rule::Refusal;
use crate::endpoint::script::{BrokenResponse, ModelSettings, Profile};
use crate::endpoint::wire::Wire;

/// Bytes of a stream, or its breaking off.
type Chunk = Result<String, std::io::Error>;

pub(super) async fn send(asked: Asked, request: &Value, ready: Ready) -> Response {
    let Ready { answer, settings, fault } = ready;
    let wire = asked.wire;
    let profile = wire.profile(&settings);
    let streamed = asked.streamed.unwrap_or(request["stream"] == true);
    let step = &answer.scripted.step;
    let (delay, ping, pause) = (step.delay_ms, step.ping_ms, Duration::from_millis(step.chunk_delay_ms));
    let pings = streamed && ping > 0;
    if !pings {
        sleep(Duration::from_millis(delay)).await;
    }
    if let Some(body) = fault.as_ref().and_then(|fault| fault.body.clone()) {
        let status = fault.and_then(|fault| StatusCode::from_u16(fault.status?).ok()).unwrap_or(StatusCode::OK);
        return (status, [(header::CONTENT_TYPE, "application/json")], body).into_response();
    }
    if let Some(events) = fault.as_ref().and_then(|fault| fault.events.clone()) {
        return event_stream(stream::iter(events.into_iter().map(|data| Ok(format!("data: {data}\n\n")))));
    }
    if let Some(status) = fault.as_ref().and_then(|fault| fault.status) {
        let retry_after = fault.and_then(|fault| fault.retry_after_seconds);
        return refuse(wire, &settings, &Refusal { retry_after, ..Refusal::with_status(status, "a fault of the script") });
    }
    let show = fault.as_ref().and_then(|fault| fault.show);
    if let Some(response) = show.and_then(broken_response::respond) {
        return response.await;
    }
    if !streamed {
        return Json(wire.response(&answer, profile)).into_response();
    }
    if show == Some(BrokenResponse::Endless) {
        return broken_response::endless_stream(wire.stream(&broken_response::with_one_word(answer), profile));
    }
    let mut events = events(wire, profile, answer, show);
    if fault.is_some_and(|fault| fault.cut) {
        events.truncate(1);
        events.push(Err(std::io::Error::other("a fault of the script")));
    }
    if asked.as_list {
        return list_of(events);
    }
    let waited = if pings { delay.div_ceil(ping) } else { 0 };
    let life = stream::iter(0..waited).then(move |_| async move {
        sleep(Duration::from_millis(ping)).await;
        Ok(wire.ping())
    });
    let body = stream::iter(events).then(move |event| async move {
        // Even a pause of zero lets the server flush the chunk before it.
        sleep(pause).await;
        event
    });
    event_stream(life.chain(body))
}

/// Returns the events of the stream, broken as `show` says.
fn events(wire: Wire, profile: Profile, answer: Answer, show: Option<BrokenResponse>) -> Vec<Chunk> {
    let broken = || Err(std::io::Error::other("a fault of the script"));
    let whole = |answer: &Answer| wire.stream(answer, profile);
    match show {
        Some(BrokenResponse::CutCall) => broken_response::until_arguments(whole(&answer)).into_iter().map(Ok).chain([broken()]).collect(),
        Some(BrokenResponse::CutEnd) => {
            let mut events = whole(&answer);
            events.pop();
            events.into_iter().map(Ok).chain([broken()]).collect()
        }
        Some(BrokenResponse::ErrorEvent) => {
            let events = whole(&answer);
            let error = errors::body(wire, profile, &errors::refusal(wire, profile, ErrorKind::Overloaded, &answer.model));
            let half = events.len() / 2;
            events.into_iter().take(half).chain([wire.error_event(&error)]).map(Ok).collect()
        }
        Some(BrokenResponse::Empty) => whole(&broken_response::without_output(answer)).into_iter().map(Ok).collect(),
        Some(
            BrokenResponse::Hang
            | BrokenResponse::Trickle
            | BrokenResponse::Html
            | BrokenResponse::Noise
            | BrokenResponse::Endless
            | BrokenResponse::EndlessLine,
        )
        | None => whole(&answer).into_iter().map(Ok).collect(),
    }
}

/// Sends events. Each is cut in two, so that a client that takes a chunk for an event, or for whole characters, fails its tests.
pub fn event_stream(body: impl Stream<Item = Chunk> + Send + 'static) -> Response {
    let cut = body.flat_map(|event| {
        let halves: Vec<Result<Bytes, std::io::Error>> = match event {
            Ok(event) => halves(&event).into_iter().map(|half| Ok(Bytes::from(half))).collect(),
            Err(error) => vec![Err(error)],
        };
        // The server sends what it has when the body lets it wait.
        stream::iter(halves).then(async |half| {
            yield_now().await;
            half
        })
    });
    ([(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-cache")], Body::from_stream(cut)).into_response()
}

/// Sends the events' data as one list, as Gemini does without `alt=sse`.
fn list_of(events: Vec<Chunk>) -> Response {
    let last = events.len().saturating_sub(1);
    let parts = events.into_iter().enumerate().map(move |(at, event)| {
        event.map(|event| {
            let data = event.trim_start_matches("data: ").trim_end().to_owned();
            format!("{}{data}{}", if at == 0 { "[" } else { "" }, if at == last { "]" } else { ",\r\n" })
        })
    });
    ([(header::CONTENT_TYPE, "application/json")], Body::from_stream(stream::iter(parts.collect::<Vec<_>>()))).into_response()
}

pub(super) fn has_key(headers: &HeaderMap, in_path: Option<&str>, key: &str) -> bool {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let bearer = text("authorization").and_then(|value| value.strip_prefix("Bearer "));
    [text("x-api-key"), text("x-goog-api-key"), bearer, in_path].contains(&Some(key))
}

pub(super) fn refuse(wire: Wire, settings: &ModelSettings, refusal: &Refusal) -> Response {
    let status = StatusCode::from_u16(refusal.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = (status, Json(errors::body(wire, wire.profile(settings), refusal))).into_response();
    if let Some(seconds) = refusal.retry_after.filter(|_| wire != Wire::Gemini) {
        response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    response
}
