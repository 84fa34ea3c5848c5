//! A stream through the model proxy of the real runtime, and straight from the endpoint.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use axum::routing::post;
use axum::serve::ListenerExt;
use futures::{StreamExt, stream};
use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval};

use crate::harness::Harness;
use crate::pairs::{Pairs, Side};

const BAR: f64 = 1.1;
/// Turns that are not counted: connections are opened in them.
const WARM: usize = 3;
/// Time between two events, which bring about a word each. Fast models write 100 to 200 words in a second.
const PACE: Duration = Duration::from_millis(5);
const PACED: Answer = Answer { model: "paced", events: 200, turns: 40 };
const AT_ONCE: Answer = Answer { model: "at-once", events: 20_000, turns: 40 };
/// Tells where the proxy is, and keeps the run going.
const PROGRAM: &str = "cat > /dev/null; echo \"$PROXY $TOKEN\" > told; mv told proxy; exec sleep 3600";

/// An answer that the endpoint writes.
#[derive(Clone, Copy)]
struct Answer {
    /// The model that is asked for it.
    model: &'static str,
    events: usize,
    turns: usize,
}

/// Of one answer.
struct Times {
    first_bytes: Duration,
    all: Duration,
    bytes: usize,
}

pub async fn rows() -> Vec<Value> {
    let endpoint = endpoint().await;
    let mut harness = Harness::new("rules: []\n").await;
    harness.model_url = format!("{endpoint}/v1");
    harness.limits["turnsPerRun"] = 1_000_000.into();
    harness.manifest_settings = json!({"program": {"preset": {
        "name": "asks", "program": "sh", "firstArgs": ["-c", PROGRAM], "speaks": ["ChatCompletions"], "parser": "Text",
        "env": {"PROXY": "${proxy}", "TOKEN": "${token}"},
    }}});
    let _runtime = harness.start(1, Some("go"));
    harness.wait_until("the proxy is open", |_| harness.tree().join("proxy").exists()).await;
    let told = std::fs::read_to_string(harness.tree().join("proxy")).unwrap();
    let (proxy, token) = told.trim().split_once(' ').unwrap();
    // reqwest makes no client without a provider of TLS, also for one that uses none.
    rustls::crypto::ring::default_provider().install_default().unwrap();
    let client = reqwest::Client::new();
    let mut rows = Vec::new();
    for answer in [PACED, AT_ONCE] {
        let (mut first, mut all) = (Pairs::default(), Pairs::default());
        for turn in 0..WARM + answer.turns {
            let mut bytes = Vec::new();
            for side in Side::in_turn(turn) {
                let url = if side == Side::Ours { proxy } else { &endpoint };
                let times = ask(&client, url, token, answer.model).await;
                bytes.push(times.bytes);
                if turn >= WARM {
                    first.push_time(side, times.first_bytes);
                    all.push_time(side, times.all);
                }
            }
            assert_eq!(bytes[0], bytes[1], "the proxy changes the answer");
        }
        let events = answer.events;
        if answer.model == PACED.model {
            let pace = PACE.as_millis();
            rows.push(all.row(
                &format!("proxy: an answer of {events} events, one in {pace} ms, over straight from the endpoint"),
                "ms",
                Some(BAR),
            ));
            rows.push(first.row("proxy: its first bytes, from an endpoint that answers at once", "ms", None));
        } else {
            rows.push(all.row(&format!("proxy: {events} events that the endpoint writes at once"), "ms", None));
        }
    }
    rows
}

/// An endpoint of chat completions on loopback, on a thread of its own.
async fn endpoint() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let router = Router::new().route("/v1/chat/completions", post(respond));
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            // As endpoints have it: without this, the kernel holds an event back until the one before has been acknowledged.
            axum::serve(listener.tap_io(|stream| stream.set_nodelay(true).unwrap()), router).await
        })
    });
    format!("http://{address}")
}

async fn respond(request: String) -> Response {
    let request: Value = serde_json::from_str(&request).unwrap();
    let is_paced = request["model"] == PACED.model;
    let answer = if is_paced { PACED } else { AT_ONCE };
    let event = |delta: Value, usage: Value| {
        let chunk = json!({"id": "c", "object": "chat.completion.chunk", "model": answer.model, "usage": usage,
            "choices": [{"index": 0, "delta": delta, "finish_reason": null}]});
        format!("data: {chunk}\n\n")
    };
    let usage = json!({"prompt_tokens": 10, "completion_tokens": answer.events});
    let last = event(json!({}), usage) + "data: [DONE]\n\n";
    let word = event(json!({"content": "another word"}), Value::Null);
    let events = stream::iter((0..answer.events).map(move |_| word.clone())).chain(stream::iter([last]));
    let mut pace = interval(PACE);
    pace.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let body = if is_paced {
        let paced = stream::unfold((pace, events), |(mut pace, mut events)| async move {
            pace.tick().await;
            Some((Ok::<_, Infallible>(events.next().await?), (pace, events)))
        });
        Body::from_stream(paced)
    } else {
        Body::from_stream(events.map(Ok::<_, Infallible>))
    };
    Response::builder().header("content-type", "text/event-stream").body(body).unwrap()
}

async fn ask(client: &reqwest::Client, url: &str, token: &str, model: &str) -> Times {
    let body = json!({"model": model, "stream": true, "messages": [{"role": "user", "content": "Tell me all."}]}).to_string();
    let begun = Instant::now();
    let asked = client.post(format!("{url}/v1/chat/completions")).bearer_auth(token).header("content-type", "application/json").body(body);
    let mut response = asked.send().await.unwrap().error_for_status().unwrap();
    let first = response.chunk().await.unwrap().unwrap();
    let first_bytes = begun.elapsed();
    let mut bytes = first.len();
    while let Some(chunk) = response.chunk().await.unwrap() {
        bytes += chunk.len();
    }
    Times { first_bytes, all: begun.elapsed(), bytes }
}
