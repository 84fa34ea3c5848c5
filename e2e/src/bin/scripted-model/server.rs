//! The HTTP server.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::{Value, json};

use super::answer::{Answer, Usage, output_tokens};
use super::conversation::{Conversation, Item};
use super::errors::{self, ErrorKind};
use super::prefix_cache::{CacheUse, PrefixCache};
use super::recorder::{Outcome, Recorder};
use super::rule::{Refusal, Request, first_broken};
use super::script::{Fault, ModelSettings, Profile, ScriptFile};
use super::wire::Wire;

mod reply;

pub use reply::event_stream;
use reply::{has_key, refuse, send};

/// System prompt, kind (`user`, `assistant`, `result`) and text.
type Shown = (String, &'static str, String);

#[derive(Clone)]
struct Model {
    script_file: Arc<ScriptFile>,
    key: Option<Arc<str>>,
    /// All texts of all requests. Tests compare them with the agents' logs.
    shown: Arc<Mutex<BTreeSet<Shown>>>,
    cache: Arc<PrefixCache>,
    recorder: Arc<Recorder>,
}

/// Where a request was sent, and what the path says of it.
struct Asked {
    wire: Wire,
    path: String,
    /// Gemini names the model in the path.
    model: Option<String>,
    streamed: Option<bool>,
    /// Gemini streams a list unless the client asks for events.
    as_list: bool,
    key: Option<String>,
}

pub fn router(script_file: Arc<ScriptFile>, require_key: Option<String>) -> Router {
    let by_body = |wire: Wire| {
        move |State(model): State<Model>, uri: Uri, headers: HeaderMap, body: Bytes| {
            let path = uri.path().to_owned();
            answer(model, Asked { wire, path, model: None, streamed: None, as_list: false, key: None }, headers, body)
        }
    };
    Router::new()
        .route("/healthz", get(async || "ok"))
        .route("/v1/chat/completions", post(by_body(Wire::Chat)))
        .route("/v1/responses", post(by_body(Wire::Responses)))
        .route("/v1/messages", post(by_body(Wire::Messages)))
        .route("/v1beta/models/{call}", post(answer_gemini))
        .route("/v1/models/{call}", post(answer_gemini))
        .route("/shown", get(get_shown))
        .route("/requests", get(get_requests))
        .route("/rules", get(get_rules))
        // Larger requests are refused by their format's own limit, with its own words.
        .layer(axum::extract::DefaultBodyLimit::max(256 << 20))
        .with_state(Model {
            script_file,
            key: require_key.map(Arc::from),
            shown: Arc::default(),
            cache: Arc::default(),
            recorder: Arc::default(),
        })
}

/// Returns every text that the model was sent since it started, once, as lines of JSON.
async fn get_shown(State(model): State<Model>) -> String {
    let shown = model.shown.lock().unwrap_or_else(PoisonError::into_inner);
    shown.iter().map(|(system, kind, text)| json!({"system": system, "kind": kind, "text": text}).to_string() + "\n").collect()
}

#[derive(serde::Deserialize)]
struct From {
    #[serde(default)]
    from: u64,
}

/// Returns the requests as they were received, as lines of JSON; with `?from=N` those with this number and higher ones.
async fn get_requests(State(model): State<Model>, Query(From { from }): Query<From>) -> String {
    model.recorder.lines_from(from)
}

/// Returns all rules of all formats, as lines of JSON.
async fn get_rules() -> String {
    let profiles = |wire| match wire {
        Wire::Chat => vec![Profile::OpenAI, Profile::DeepSeek, Profile::Gemini, Profile::Plain],
        Wire::Responses => vec![Profile::OpenAI],
        Wire::Messages => vec![Profile::Anthropic],
        Wire::Gemini => vec![Profile::Gemini],
    };
    let mut lines = String::new();
    for wire in [Wire::Chat, Wire::Responses, Wire::Messages, Wire::Gemini] {
        for profile in profiles(wire) {
            for rule in wire.rules(profile) {
                let line =
                    json!({"format": format!("{wire:?}"), "profile": format!("{profile:?}"), "name": rule.name, "source": rule.source});
                lines += &format!("{line}\n");
            }
        }
    }
    lines
}

#[derive(serde::Deserialize)]
struct GeminiQuery {
    alt: Option<String>,
    key: Option<String>,
}

async fn answer_gemini(
    State(model): State<Model>,
    Path(call): Path<String>,
    Query(query): Query<GeminiQuery>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let (name, method) = call.split_once(':').unwrap_or((&call, ""));
    let streamed = match method {
        "generateContent" => false,
        "streamGenerateContent" => true,
        _ => return StatusCode::NOT_FOUND.into_response(),
    };
    let asked = Asked {
        wire: Wire::Gemini,
        path: uri.path().to_owned(),
        model: Some(name.to_owned()),
        streamed: Some(streamed),
        as_list: streamed && query.alt.as_deref() != Some("sse"),
        key: query.key,
    };
    answer(model, asked, headers, body).await
}

/// An answer that is ready to be sent.
struct Ready {
    answer: Answer,
    settings: ModelSettings,
    fault: Option<Fault>,
}

/// A refusal, with what is known of the model: its profile shapes the body.
struct Refused {
    refusal: Refusal,
    settings: ModelSettings,
}

async fn answer(model: Model, asked: Asked, headers: HeaderMap, body: Bytes) -> Response {
    let parsed: Result<Value, _> = serde_json::from_slice(&body);
    let mut request = parsed.as_ref().map_or_else(|_| json!(String::from_utf8_lossy(&body)), Value::clone);
    let received = request.clone();
    if let (Some(name), Some(fields)) = (&asked.model, request.as_object_mut()) {
        fields.insert("model".to_owned(), name.as_str().into());
    }
    let mut outcome = Outcome { status: 200, ..Outcome::default() };
    let ready = prepare(&model, &asked, &headers, &request, parsed.err(), body.len(), &mut outcome);
    if let Err(refused) = &ready {
        outcome.status = refused.refusal.status;
    } else if let Ok(Ready { fault: Some(fault), .. }) = &ready {
        outcome.status = fault.status.unwrap_or(200);
    }
    model.recorder.record(&asked.path, &headers, &received, &outcome);
    match ready {
        Ok(ready) => send(asked, &request, ready).await,
        Err(refused) => {
            let Refused { refusal, settings } = *refused;
            tracing::warn!(rule = outcome.rule, message = refusal.message, "refused");
            refuse(asked.wire, &settings, &refusal)
        }
    }
}

/// Holds the request to the rules, and asks the script for the answer.
fn prepare(
    model: &Model,
    asked: &Asked,
    headers: &HeaderMap,
    request: &Value,
    not_json: Option<serde_json::Error>,
    length: usize,
    outcome: &mut Outcome,
) -> Result<Ready, Box<Refused>> {
    let wire = asked.wire;
    let name = request["model"].as_str().unwrap_or_default();
    let script = model.script_file.script().map_err(|error| {
        let refusal = Refusal::with_status(500, format!("failed to read the script: {error:#}"));
        Box::new(Refused { refusal, settings: ModelSettings::default() })
    })?;
    let known = script.model(name);
    let settings = known.clone().unwrap_or_default();
    let profile = wire.profile(&settings);
    let refuse = |refusal: Refusal| Box::new(Refused { refusal, settings: settings.clone() });
    if let Some(key) = &model.key
        && !has_key(headers, asked.key.as_deref(), key)
    {
        return Err(refuse(errors::refusal(wire, profile, ErrorKind::InvalidKey, name)));
    }
    if length > settings.max_body_bytes.unwrap_or(wire.max_body_bytes()) {
        outcome.rule = Some("a request is not too large");
        // https://platform.claude.com/docs/en/api/errors (413 request_too_large)
        return Err(refuse(Refusal::with_status(413, "Request exceeds the maximum size")));
    }
    if let Some(error) = not_json {
        return Err(refuse(Refusal::invalid(format!("We could not parse the JSON body of your request: {error}"))));
    }
    if known.is_none() {
        return Err(refuse(errors::refusal(wire, profile, ErrorKind::ModelNotFound, name)));
    }
    let prompt = wire.prompt(request);
    let tokens = super::tokens::count(prompt.iter().map(|part| part.text.len()).sum());
    outcome.input_tokens = tokens;
    let checked = Request { body: request, headers, model: &settings, tokens };
    first_broken(wire.rules(profile), &checked).map_err(|(rule, refusal)| {
        outcome.rule = Some(rule);
        refuse(refusal)
    })?;
    let mut conversation = wire.conversation(request);
    if script.texts_apart {
        conversation.part_user_texts();
    }
    record_shown(model, &conversation);
    let scripted = script.next(&conversation).map_err(|sentence| refuse(Refusal::invalid(sentence)))?;
    tracing::info!(step = scripted.key.split('/').take(2).collect::<Vec<_>>().join("/"), "asked");
    let fault = model.script_file.fault(&scripted);
    if let Some(kind) = fault.as_ref().and_then(|fault| fault.error) {
        let retry_after = fault.and_then(|fault| fault.retry_after_seconds);
        return Err(refuse(Refusal { retry_after, ..errors::refusal(wire, profile, kind, name) }));
    }
    let (policy, min) = wire.cache(profile, request);
    let CacheUse { prompt: input, read, written } =
        model.cache.look_up(&format!("{wire:?} {name}"), &prompt, policy, settings.min_cache_tokens.unwrap_or(min));
    outcome.cached_tokens = read;
    let (output, reasoning) = output_tokens(&scripted);
    let answer = Answer {
        model: name.to_owned(),
        scripted,
        usage: Usage { input, cached: read, cache_written: written, output, reasoning },
        shows_thoughts: wire.shows_thoughts(request),
        streams_usage: request["stream_options"]["include_usage"] == true,
    };
    Ok(Ready { answer, settings, fault })
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
