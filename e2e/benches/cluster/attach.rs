//! What an attached person waits for: the last piece of an answer, compared with a client that reads the model's own stream, and the first line,
//! compared with `kubectl yoi log --tail 1`.
//!
//! Both sides of a pair go through the API server: the person through the aggregated API to the agent, the other client through the proxy to the
//! model's Pod. Pairs take turns, so that what else the cluster does slows both.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use axum::http::Request;
use futures::{AsyncBufReadExt, StreamExt};
use serde_json::{Value, json};
use tokio::time::timeout;
use yoi_e2e::test_namespace::TestNamespace;
use yoi_wire::control::{AttachLine, ControlAction, ControlRequest, ControlResponse, DeltaKind};
use yoi_wire::entry::Body;
use yoi_wire::people::{GROUP, VERSION};

use crate::measure::{Row, Samples};
use crate::plugin::Plugin;

const ANSWERS: usize = 20;
const FIRST_LINES: usize = 30;
const LAST_DELTA_BAR: f64 = 1.1;
const FIRST_LINE_BAR: f64 = 1.5;
/// No answer takes longer.
const LONGEST: Duration = Duration::from_secs(60);
/// Milliseconds between two pieces of the answer.
const BETWEEN_PIECES: usize = 10;
const WORDS: usize = 200;

pub async fn run() -> Result<Vec<Row>> {
    let ns = TestNamespace::create("bench-attach").await?;
    let text = (0..WORDS).map(|n| format!("word {n}")).collect::<Vec<_>>().join(" ");
    let step = json!({ "text": text, "chunkDelayMs": BETWEEN_PIECES });
    let rules = json!({ "rules": [{ "name": "speak", "when": {}, "steps": [step] }] });
    ns.create_model(&serde_json::to_string(&rules)?).await?;
    ns.create_empty_project("p").await?;
    ns.create_agent("a", "p", json!({ "session": { "retain": "Delete" } })).await?;
    ns.wait_agent_ready("a").await?;

    let mut attached = Plugin::start(&ns, &["attach", "a", "-o", "json"])?;
    let (mut ours, mut bare) = (Samples::default(), Samples::default());
    // The first pair warms up connections, and does not count.
    for n in 0..=ANSWERS {
        let pair = (attached_answer(&ns, &mut attached, n).await?, model_answer(&ns, n).await?);
        if n > 0 {
            ours.add(pair.0);
            bare.add(pair.1);
        }
    }
    drop(attached);
    let last_delta = Row::with_ratio("last delta of an answer, attached over the model's own stream", &ours, &bare, LAST_DELTA_BAR);

    let (mut ours, mut bare) = (Samples::default(), Samples::default());
    for n in 0..=FIRST_LINES {
        let pair = (first_line(&ns, &["attach", "a", "--tail", "1"]).await?, first_line(&ns, &["log", "a", "--tail", "1"]).await?);
        if n > 0 {
            ours.add(pair.0);
            bare.add(pair.1);
        }
    }
    let first_line = Row::with_ratio("first line of attach, over that of log --tail 1", &ours, &bare, FIRST_LINE_BAR);
    ns.remove_and_wait().await?;
    let rows = vec![last_delta, first_line];
    rows.iter().for_each(Row::print);
    Ok(rows)
}

/// Asks for a run, and returns the time until the last delta of its answer had come.
async fn attached_answer(ns: &TestNamespace, attached: &mut Plugin, n: usize) -> Result<Duration> {
    let action = ControlAction::Run { text: format!("speak {n}") };
    let asked = Instant::now();
    let id = format!("{:08x}-0000-7000-8000-{n:012x}", std::process::id());
    let request = Request::post(format!("/apis/{GROUP}/{VERSION}/namespaces/{}/yoipods/a/control", ns.name))
        .header("content-type", "application/json")
        .body(serde_json::to_vec(&ControlRequest { id, action })?)?;
    let answering = async { Ok(ns.client.request::<ControlResponse>(request).await?) };
    let reading = async {
        let mut last = None;
        loop {
            match serde_json::from_str(&attached.line().await?)? {
                AttachLine::Delta(delta) if delta.kind == DeltaKind::Text => last = Some(asked.elapsed()),
                // Later runs begin with a quiet agent.
                AttachLine::Entry { entry, .. } if matches!(entry.body, Body::RunEnded(_)) && last.is_some() => return Ok(last),
                AttachLine::Behind {} | AttachLine::Ended {} => bail!("the stream broke"),
                _ => {}
            }
        }
    };
    let (answer, last): (ControlResponse, Option<Duration>) = futures::try_join!(answering, reading)?;
    ensure!(answer.refused.is_none(), "the run was refused: {answer:?}");
    last.context("the answer had no delta")
}

/// Asks the model itself, and returns the time until the last piece of its text had come.
async fn model_answer(ns: &TestNamespace, n: usize) -> Result<Duration> {
    let path = format!("/api/v1/namespaces/{}/pods/scripted-model:8080/proxy/v1/chat/completions", ns.name);
    let body = json!({ "model": "scripted", "stream": true, "messages": [{ "role": "user", "content": format!("speak {n}") }] });
    let asked = Instant::now();
    let request = Request::post(path).header("content-type", "application/json").body(serde_json::to_vec(&body)?)?;
    let mut lines = std::pin::pin!(timeout(LONGEST, ns.client.request_stream(request)).await??.lines());
    let mut last = None;
    while let Some(line) = timeout(LONGEST, lines.next()).await.context("the model says nothing")? {
        let line = line?;
        let Some(event) = line.strip_prefix("data: ").and_then(|data| serde_json::from_str::<Value>(data).ok()) else { continue };
        if event["choices"][0]["delta"]["content"].as_str().is_some_and(|text| !text.is_empty()) {
            last = Some(asked.elapsed());
        }
    }
    last.context("the model's answer had no text")
}

/// Starts the plugin, and returns the time until its first line.
async fn first_line(ns: &TestNamespace, words: &[&str]) -> Result<Duration> {
    let started = Instant::now();
    Plugin::start(ns, words)?.line().await?;
    Ok(started.elapsed())
}
