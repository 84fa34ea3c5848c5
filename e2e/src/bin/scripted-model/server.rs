//! The HTTP server.

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

use crate::conversation::{Conversation, Item};
use crate::script::{BrokenResponse, ScriptFile, ScriptedAnswer};
use crate::{anthropic, broken_response, openai};

/// System prompt, kind (`user`, `assistant`, `result`) and text.
type Shown = (String, &'static str, String);

#[derive(Clone)]
struct Model {
    script_file: Arc<ScriptFile>,
    key: Option<Arc<str>>,
    /// All texts of all requests. Tests compare them with the agents' logs.
    shown: Arc<Mutex<BTreeSet<Shown>>>,
}

/// The two wire formats.
struct Format {
    parse: fn(&Value) -> Result<Conversation, String>,
    response: fn(&str, &Conversation, &ScriptedAnswer) -> Value,
    stream: fn(&str, &Conversation, &ScriptedAnswer) -> Vec<String>,
}

const OPENAI: Format = Format { parse: openai::parse, response: openai::response, stream: openai::stream };
const ANTHROPIC: Format = Format { parse: anthropic::parse, response: anthropic::response, stream: anthropic::stream };

pub fn router(script_file: Arc<ScriptFile>, require_key: Option<String>) -> Router {
    Router::new()
        .route("/healthz", get(async || "ok"))
        .route("/v1/chat/completions", post(async |model, headers, body| chat(&OPENAI, model, headers, body).await))
        .route("/v1/messages", post(async |model, headers, body| chat(&ANTHROPIC, model, headers, body).await))
        .route("/shown", get(get_shown))
        // A conversation holds the outputs of tools.
        .layer(axum::extract::DefaultBodyLimit::max(64 << 20))
        .with_state(Model { script_file, key: require_key.map(Arc::from), shown: Arc::default() })
}

/// Returns every text that the model was sent since it started, once, as lines of JSON.
async fn get_shown(State(model): State<Model>) -> String {
    let shown = model.shown.lock().unwrap_or_else(PoisonError::into_inner);
    shown.iter().map(|(system, kind, text)| json!({"system": system, "kind": kind, "text": text}).to_string() + "\n").collect()
}

fn record_shown(model: &Model, conversation: &Conversation) {
    let mut shown = model.shown.lock().unwrap_or_else(PoisonError::into_inner);
    for item in &conversation.items {
        let (kind, text) = match item {
            Item::User(text) => ("user", text),
            Item::Assistant(text) => ("assistant", text),
            Item::Result(text) => ("result", text),
        };
        shown.insert((conversation.system.clone(), kind, text.clone()));
    }
}

async fn chat(format: &Format, State(model): State<Model>, headers: HeaderMap, Json(request): Json<Value>) -> Response {
    if let Some(key) = &model.key
        && !has_key(&headers, key)
    {
        return error_response(StatusCode::UNAUTHORIZED, "the key is missing or wrong");
    }
    let script = match model.script_file.script() {
        Ok(script) => script,
        Err(error) => return error_response(StatusCode::INTERNAL_SERVER_ERROR, &format!("failed to read the script: {error:#}")),
    };
    let conversation = match (format.parse)(&request) {
        Ok(conversation) => conversation,
        Err(sentence) => return error_response(StatusCode::BAD_REQUEST, &sentence),
    };
    record_shown(&model, &conversation);
    let answer = match script.next(&conversation) {
        Ok(answer) => answer,
        Err(sentence) => return error_response(StatusCode::BAD_REQUEST, &sentence),
    };
    tracing::info!(step = answer.key.split('/').take(2).collect::<Vec<_>>().join("/"), "asked");
    sleep(Duration::from_millis(answer.step.delay_ms)).await;
    let fault = model.script_file.fault(&answer);
    if let Some(status) = fault.as_ref().and_then(|fault| fault.status) {
        let mut response =
            error_response(StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), "a fault of the script");
        if let Some(seconds) = fault.and_then(|fault| fault.retry_after_seconds) {
            response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
        }
        return response;
    }
    if let Some(show) = fault.as_ref().and_then(|fault| fault.show)
        && let Some(response) = broken_response::respond(show)
    {
        return response.await;
    }
    let name = request["model"].as_str().unwrap_or("scripted");
    if !request["stream"].as_bool().unwrap_or_default() {
        return Json((format.response)(name, &conversation, &answer)).into_response();
    }
    let pause = answer.step.chunk_delay_ms;
    let mut events: Vec<Result<String, std::io::Error>> = Vec::new();
    match fault.as_ref().and_then(|fault| fault.show) {
        Some(BrokenResponse::Endless) => {
            return broken_response::endless_stream((format.stream)(name, &conversation, &broken_response::with_one_word(answer)));
        }
        Some(BrokenResponse::CutCall) => {
            events.extend(broken_response::until_arguments((format.stream)(name, &conversation, &answer)).into_iter().map(Ok));
            events.push(Err(std::io::Error::other("a fault of the script")));
        }
        Some(BrokenResponse::CutEnd) => {
            events.extend((format.stream)(name, &conversation, &answer).into_iter().map(Ok));
            events.pop();
            events.push(Err(std::io::Error::other("a fault of the script")));
        }
        Some(BrokenResponse::Empty) => {
            events.extend((format.stream)(name, &conversation, &broken_response::without_output(answer)).into_iter().map(Ok))
        }
        Some(_) | None => events.extend((format.stream)(name, &conversation, &answer).into_iter().map(Ok)),
    }
    if fault.is_some_and(|fault| fault.cut) {
        events.truncate(1);
        events.push(Err(std::io::Error::other("a fault of the script")));
    }
    let pause = Duration::from_millis(pause);
    let body = stream::iter(events).then(move |event| async move {
        // Even a pause of zero lets the server flush the chunk before it.
        sleep(pause).await;
        event
    });
    event_stream(body)
}

pub fn event_stream(body: impl Stream<Item = Result<String, std::io::Error>> + Send + 'static) -> Response {
    ([(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-cache")], Body::from_stream(body)).into_response()
}

fn has_key(headers: &HeaderMap, key: &str) -> bool {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    text("x-api-key") == Some(key) || text("authorization").and_then(|value| value.strip_prefix("Bearer ")) == Some(key)
}

fn error_response(status: StatusCode, sentence: &str) -> Response {
    let body = json!({"type": "error", "error": {"type": "scripted_model_error", "message": sentence}});
    (status, Json(body)).into_response()
}
