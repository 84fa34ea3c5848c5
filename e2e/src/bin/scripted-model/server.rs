//! The HTTP of it.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures::{Stream, StreamExt, stream};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::script::{Found, Shelf, Show};
use crate::talk::{Item, Talk};
use crate::{anthropic, nonsense, openai};

/// The system prompt, who said it, and what.
type Shown = (String, &'static str, String);

#[derive(Clone)]
struct Model {
    shelf: Arc<Shelf>,
    key: Option<Arc<str>>,
    /// What it was shown, for tests that compare it with what agents remember: system prompt, kind, text.
    shown: Arc<Mutex<BTreeSet<Shown>>>,
}

/// The two wire formats.
struct Format {
    read: fn(&Value) -> Result<Talk, String>,
    whole: fn(&str, &Talk, &Found) -> Value,
    stream: fn(&str, &Talk, &Found) -> Vec<String>,
}

const OPENAI: Format = Format { read: openai::read, whole: openai::whole, stream: openai::stream };
const ANTHROPIC: Format = Format { read: anthropic::read, whole: anthropic::whole, stream: anthropic::stream };

pub fn router(shelf: Arc<Shelf>, require_key: Option<String>) -> Router {
    Router::new()
        .route("/healthz", get(async || "ok"))
        .route("/v1/chat/completions", post(async |model, headers, body| answer(&OPENAI, model, headers, body).await))
        .route("/v1/messages", post(async |model, headers, body| answer(&ANTHROPIC, model, headers, body).await))
        .route("/shown", get(shown))
        // Conversations hold tools' outputs, and grow.
        .layer(axum::extract::DefaultBodyLimit::max(64 << 20))
        .with_state(Model { shelf, key: require_key.map(Arc::from), shown: Arc::default() })
}

/// Everything that the model was shown since it started, each text once: a JSON line for each.
async fn shown(State(model): State<Model>) -> String {
    let shown = model.shown.lock().unwrap_or_else(PoisonError::into_inner);
    shown.iter().map(|(system, kind, text)| json!({"system": system, "kind": kind, "text": text}).to_string() + "\n").collect()
}

fn remember(model: &Model, talk: &Talk) {
    let mut shown = model.shown.lock().unwrap_or_else(PoisonError::into_inner);
    for item in &talk.items {
        let (kind, text) = match item {
            Item::User(text) => ("user", text),
            Item::Assistant(text) => ("assistant", text),
            Item::Result(text) => ("result", text),
        };
        shown.insert((talk.system.clone(), kind, text.clone()));
    }
}

async fn answer(format: &Format, State(model): State<Model>, headers: HeaderMap, Json(request): Json<Value>) -> Response {
    if let Some(key) = &model.key
        && !bears(&headers, key)
    {
        return refuse(StatusCode::UNAUTHORIZED, "the key is missing or wrong");
    }
    let script = match model.shelf.script() {
        Ok(script) => script,
        Err(error) => return refuse(StatusCode::INTERNAL_SERVER_ERROR, &format!("failed to read the script: {error:#}")),
    };
    let talk = match (format.read)(&request) {
        Ok(talk) => talk,
        Err(sentence) => return refuse(StatusCode::BAD_REQUEST, &sentence),
    };
    remember(&model, &talk);
    let found = match script.next(&talk) {
        Ok(found) => found,
        Err(sentence) => return refuse(StatusCode::BAD_REQUEST, &sentence),
    };
    tracing::info!(step = found.key.split('/').take(2).collect::<Vec<_>>().join("/"), "asked");
    sleep(Duration::from_millis(found.step.delay_ms)).await;
    let fault = model.shelf.fault(&found);
    if let Some(status) = fault.as_ref().and_then(|fault| fault.status) {
        let mut response = refuse(StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), "a fault of the script");
        if let Some(seconds) = fault.and_then(|fault| fault.retry_after_seconds) {
            response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
        }
        return response;
    }
    if let Some(show) = fault.as_ref().and_then(|fault| fault.show)
        && let Some(nonsense) = nonsense::answer(show)
    {
        return nonsense.await;
    }
    let name = request["model"].as_str().unwrap_or("scripted");
    if !request["stream"].as_bool().unwrap_or_default() {
        return Json((format.whole)(name, &talk, &found)).into_response();
    }
    let pause = found.step.chunk_delay_ms;
    let mut events: Vec<Result<String, std::io::Error>> = Vec::new();
    match fault.as_ref().and_then(|fault| fault.show) {
        Some(Show::Endless) => return nonsense::endless((format.stream)(name, &talk, &nonsense::one_word(found))),
        Some(Show::CutCall) => {
            events.extend(nonsense::until_arguments((format.stream)(name, &talk, &found)).into_iter().map(Ok));
            events.push(Err(std::io::Error::other("a fault of the script")));
        }
        Some(Show::CutEnd) => {
            events.extend((format.stream)(name, &talk, &found).into_iter().map(Ok));
            events.pop();
            events.push(Err(std::io::Error::other("a fault of the script")));
        }
        Some(Show::Empty) => events.extend((format.stream)(name, &talk, &nonsense::speechless(found)).into_iter().map(Ok)),
        Some(_) | None => events.extend((format.stream)(name, &talk, &found).into_iter().map(Ok)),
    }
    if fault.is_some_and(|fault| fault.cut) {
        events.truncate(1);
        events.push(Err(std::io::Error::other("a fault of the script")));
    }
    let pause = Duration::from_millis(pause);
    let body = stream::iter(events).then(move |event| async move {
        // A pause of nothing is still a point where the chunk so far leaves.
        sleep(pause).await;
        event
    });
    streamed(body)
}

pub fn streamed(body: impl Stream<Item = Result<String, std::io::Error>> + Send + 'static) -> Response {
    ([(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-cache")], Body::from_stream(body)).into_response()
}

fn bears(headers: &HeaderMap, key: &str) -> bool {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    text("x-api-key") == Some(key) || text("authorization").and_then(|value| value.strip_prefix("Bearer ")) == Some(key)
}

fn refuse(status: StatusCode, sentence: &str) -> Response {
    let body = json!({"type": "error", "error": {"type": "scripted_model_error", "message": sentence}});
    (status, Json(body)).into_response()
}
