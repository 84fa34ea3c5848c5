//! Time of a peer message from send until it is durable at the receiver, at a steady rate. The bench sends to the gateway's port for runtimes
//! with the agents' own tokens.
//!
//! The sender does not wait for answers, and a message's time counts from the moment when it was due. So a stall delays every message behind it.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use futures::future::try_join_all;
use http::Request;
use http_body_util::{BodyExt, Full};
use serde_json::json;
use tokio::task::JoinSet;
use yoi_crds::condition::ConditionStatus;
use yoi_crds::{YoiPeer, YoiPod};
use yoi_e2e::test_namespace::TestNamespace;

use crate::gateway_client;
use crate::measure::{Row, Samples};

const SENDERS: usize = 4;
/// Enough receivers that no inbox gets full: one inbox holds 256 messages.
const RECEIVERS: usize = 40;
/// Messages each second, duration in seconds, and limit of p99 in ms.
const LOADS: [(u32, u32, Option<f64>); 2] = [(100, 20, None), (1_000, 6, Some(50.0))];

type Connection = hyper::client::conn::http2::SendRequest<Full<Bytes>>;

pub async fn run() -> Result<Vec<Row>> {
    let ns = TestNamespace::create("bench-messages").await?;
    ns.create_empty_project("p").await?;
    let senders: Vec<String> = (0..SENDERS).map(|n| format!("a{n}")).collect();
    let receivers: Vec<String> = (0..RECEIVERS).map(|n| format!("r{n:02}")).collect();
    // Nothing listens at this address. Messages wait in log and inbox, and no time of a model is measured.
    let model = json!({ "provider": "OpenAI", "name": "none", "baseUrl": "http://127.0.0.1:9/v1/" });
    for name in senders.iter().chain(&receivers) {
        ns.create_agent(name, "p", json!({ "model": model, "session": { "retain": "Delete" } })).await?;
    }
    try_join_all(senders.iter().chain(&receivers).map(|name| ns.wait_agent_ready(name))).await?;
    let pair = |n: usize| (senders[n % SENDERS].as_str(), receivers[n % RECEIVERS].as_str());
    for n in 0..RECEIVERS {
        let (a, b) = pair(n);
        let peer = json!({ "apiVersion": "yoi.dev/v1alpha1", "kind": "YoiPeer", "metadata": { "name": format!("{a}.{b}") },
            "spec": { "members": [a, b] } });
        ns.apply(&peer.to_string()).await?;
    }
    for n in 0..RECEIVERS {
        let (a, b) = pair(n);
        ns.wait_condition::<YoiPeer>(&format!("{a}.{b}"), "Ready", ConditionStatus::True).await?;
    }

    let gateways = gateway_client::gateways(&ns).await?;
    let mut connections: Vec<(Connection, String)> = vec![];
    for (n, sender) in senders.iter().enumerate() {
        let gateway = &gateways[n % gateways.len()];
        connections.push((gateway.http2(gateway_client::RUNTIMES).await?, gateway_client::token_of(&ns, sender).await?));
    }

    let mut rows = vec![];
    for (rate, seconds, bar) in LOADS {
        eprint!("\r  {rate} messages a second for {seconds} s ");
        let (samples, refused) = send_at_rate(rate, seconds, |n| {
            let (connection, token) = &connections[n % SENDERS];
            (connection.clone(), token.clone(), pair(n).1.to_owned())
        })
        .await?;
        ensure!(refused.is_empty(), "{} of {} messages were refused: {}", refused.len(), rate * seconds, refused[0]);
        rows.push(Row::without_ratio(&format!("peer's message, send to durable, {rate}/s"), "ms", &samples, bar));
    }
    eprintln!();
    for name in &receivers {
        ensure!(ns.get::<YoiPod>(name).await.is_ok(), "{name} went away");
    }
    ns.remove_and_wait().await?;
    rows.iter().for_each(Row::print);
    Ok(rows)
}

async fn send_at_rate(rate: u32, seconds: u32, receiver: impl Fn(usize) -> (Connection, String, String)) -> Result<(Samples, Vec<String>)> {
    let began = Instant::now() + Duration::from_millis(50);
    let mut all = JoinSet::new();
    for n in 0..(rate * seconds) {
        let due = began + Duration::from_secs(1) * n / rate;
        let (connection, token, to) = receiver(n as usize);
        tokio::time::sleep_until(due.into()).await;
        all.spawn(async move {
            let sent = send(connection, &token, &to, n).await;
            sent.map(|refused| (due.elapsed(), refused))
        });
    }
    let (mut samples, mut refused) = (Samples::default(), vec![]);
    while let Some(done) = all.join_next().await {
        let (took, refusal) = done??;
        samples.add(took);
        refused.extend(refusal);
    }
    Ok((samples, refused))
}

/// Sends one message. Returns status and text of a refusal.
async fn send(mut connection: Connection, token: &str, to: &str, n: u32) -> Result<Option<String>> {
    let nanos = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_nanos();
    let id = format!("{:08x}-{:04x}-7000-8000-{n:012x}", (nanos >> 16) as u32, nanos as u16);
    let body = json!({ "to": to, "messageId": id, "text": format!("Message {n}, and some words more, as one agent writes to another.") });
    let request = Request::post(format!("https://{}/v1/send", gateway_client::SERVER))
        .header("authorization", format!("Bearer {token}"))
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(body.to_string())))?;
    let answer =
        tokio::time::timeout(Duration::from_secs(30), connection.send_request(request)).await.context("no answer within 30 s")??;
    let code = answer.status();
    let text = answer.into_body().collect().await?.to_bytes();
    Ok((!code.is_success()).then(|| format!("{code}: {}", String::from_utf8_lossy(&text))))
}
