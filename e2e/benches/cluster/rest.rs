//! A message to an agent that rests: until it is durable and until the agent's first word, compared with an agent that is made for the same word. And what
//! agents cost that rest.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use axum::http::Request;
use futures::{AsyncBufReadExt, StreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, PostParams};
use serde_json::json;
use tokio::time::timeout;
use yoi_crds::YoiPod;
use yoi_crds::condition::find;
use yoi_e2e::local_cluster::LocalCluster;
use yoi_e2e::test_namespace::TestNamespace;
use yoi_wire::entry::Body;
use yoi_wire::hub::SendResponse;
use yoi_wire::people::{GROUP, LogLine, PersonMessage, VERSION};

use crate::measure::{Row, Samples};
use crate::writes::{count_writes, count_writes_when_quiet};

const MESSAGES: usize = 15;
/// Nothing takes longer.
const LONGEST: Duration = Duration::from_secs(60);
/// Of the slowest message.
const DURABLE_BAR: f64 = 1_200.0;
const WORD_BAR: f64 = 1_500.0;
const COLD_BAR: f64 = 0.35;

/// In batches that one node takes at once.
const BATCHES: usize = 4;
const BATCH: usize = 25;
const QUIET: Duration = Duration::from_secs(60);

pub async fn run() -> Result<Vec<Row>> {
    let ns = TestNamespace::create("bench-rest").await?;
    let rules = json!({ "rules": [{ "name": "speak", "when": {}, "steps": [{ "text": "Here is a word." }] }] });
    ns.create_model(&serde_json::to_string(&rules)?).await?;
    ns.create_empty_project("p").await?;
    let mut rows = messages(&ns).await?;
    rows.extend(cost(&ns).await?);
    ns.remove_and_wait().await?;
    rows.iter().for_each(Row::print);
    Ok(rows)
}

async fn messages(ns: &TestNamespace) -> Result<Vec<Row>> {
    let session = json!({ "retain": "Delete" });
    ns.create_agent("a", "p", json!({ "session": session, "task": "speak", "desiredState": "Suspended" })).await?;
    wait_resting(ns, "a").await?;
    let (mut durable, mut word, mut cold) = (Samples::default(), Samples::default(), Samples::default());
    // While it rests, nobody asks for its log: that would start a reader.
    let mut seen = 0;
    // The first message warms up connections, and does not count.
    for n in 0..=MESSAGES {
        let since = Instant::now();
        send(ns, "a", n).await?;
        let stored = since.elapsed();
        if n == 0 {
            // The answer to its task is no answer to a message.
            seen = first_word(ns, "a", seen, since).await?.1;
        }
        let (said, seq) = first_word(ns, "a", seen, since).await?;
        if n > 0 {
            durable.add(stored);
            word.add(said);
        }
        seen = seq;
        wait_resting(ns, "a").await?;

        let name = format!("cold{n}");
        let object: YoiPod = serde_json::from_value(json!({
            "apiVersion": "yoi.dev/v1alpha1", "kind": "YoiPod", "metadata": { "name": name },
            "spec": { "projectRef": { "name": "p" }, "agent": { "builtin": { "instruction": "Speak." } }, "session": session, "task": "speak" },
        }))?;
        let since = Instant::now();
        ns.api::<YoiPod>().create(&PostParams::default(), &object).await?;
        ns.wait_for::<YoiPod, ()>(&name, "with a session", |agent| agent?.status.as_ref()?.session.as_ref().map(drop)).await?;
        let (said, _) = first_word(ns, &name, 0, since).await?;
        if n > 0 {
            cold.add(said);
        }
        ns.api::<YoiPod>().delete(&name, &DeleteParams::default()).await?;
        ns.wait_gone::<YoiPod>(&name).await?;
        eprint!("\r  {n} of {MESSAGES} messages to an agent that rests ");
    }
    eprintln!();
    Ok(vec![
        Row::without_ratio("message to a resting agent, send to durable", "ms", &durable, Some(DURABLE_BAR)),
        Row::without_ratio("message to a resting agent, send to its first word", "ms", &word, Some(WORD_BAR)),
        Row::with_ratio("the same over a cold agent, apply to its first word", &word, &cold, COLD_BAR),
    ])
}

async fn wait_resting(ns: &TestNamespace, name: &str) -> Result<()> {
    ns.wait_for::<YoiPod, ()>(name, "at rest", |agent| {
        let status = agent?.status.as_ref()?;
        let is_resting = find(&status.conditions, "Ready").is_some_and(|ready| ready.reason == "Resting");
        (is_resting && status.pod.is_none()).then_some(())
    })
    .await
}

fn path(ns: &TestNamespace, agent: &str, what: &str) -> String {
    format!("/apis/{GROUP}/{VERSION}/namespaces/{}/yoipods/{agent}/{what}", ns.name)
}

/// Sends a message, under one id until it is durable, as the plugin does.
async fn send(ns: &TestNamespace, agent: &str, n: usize) -> Result<()> {
    let id = format!("{:08x}-0001-7000-8000-{n:012x}", std::process::id());
    let body = serde_json::to_vec(&PersonMessage { message_id: id, text: format!("speak {n}") })?;
    let begun = Instant::now();
    loop {
        let request = Request::post(path(ns, agent, "message")).header("content-type", "application/json").body(body.clone())?;
        match ns.client.request::<SendResponse>(request).await {
            Ok(_) => return Ok(()),
            Err(kube::Error::Api(status)) if status.code == 503 && begun.elapsed() < LONGEST => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Err(error) => return Err(error).context("the message was refused"),
        }
    }
}

/// The time from `since` until the agent said something in an entry after number `after`, and the number of that entry.
async fn first_word(ns: &TestNamespace, agent: &str, after: u64, since: Instant) -> Result<(Duration, u64)> {
    let begun = Instant::now();
    loop {
        ensure!(begun.elapsed() < LONGEST, "{agent} says nothing");
        let request = Request::get(path(ns, agent, "log?follow=true&tail=50")).body(vec![])?;
        // A gateway without its line yet refuses.
        let Ok(stream) = ns.client.request_stream(request).await else {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        let mut lines = std::pin::pin!(stream.lines());
        while let Some(line) = timeout(LONGEST, lines.next()).await.context("the agent says nothing")? {
            let Ok(line) = line else { break };
            if line.is_empty() {
                continue;
            }
            let LogLine { entry, .. } = serde_json::from_str(&line).with_context(|| format!("not a line of a log: {line}"))?;
            match &entry.body {
                Body::Assistant(said) if entry.seq > after && !said.text.is_empty() => return Ok((since.elapsed(), entry.seq)),
                Body::RunEnded(end) if entry.seq > after && end.message.is_some() => bail!("the run failed: {end:?}"),
                _ => {}
            }
        }
    }
}

/// Makes agents that rest, as many as are named, and measures a minute in which nothing happens.
async fn cost(ns: &TestNamespace) -> Result<Vec<Row>> {
    let count = BATCHES * BATCH;
    count_writes_when_quiet(ns).await?;
    let none = quiet_minute(ns).await?;
    for batch in 0..BATCHES {
        let names: Vec<String> = (0..BATCH).map(|n| format!("x{}", batch * BATCH + n)).collect();
        for name in &names {
            ns.create_agent(name, "p", json!({ "session": { "retain": "Delete" }, "desiredState": "Suspended" })).await?;
        }
        for name in &names {
            wait_resting(ns, name).await?;
        }
        eprint!("\r  {} of {count} agents rest ", (batch + 1) * BATCH);
    }
    eprintln!();
    let pods = ns.list::<Pod>("yoi.dev/role=agent").await?.len();
    count_writes_when_quiet(ns).await?;
    let all = quiet_minute(ns).await?;

    let minute = format!("in {} s of quiet", QUIET.as_secs());
    Ok(vec![
        Row::number(
            &format!("Pods of {count} resting agents, and with them all their processor and memory"),
            "Pods",
            pods as f64,
            Some(0.0),
        ),
        Row::number(&format!("writes to yoi.dev objects {minute}, {count} resting agents"), "writes", all.writes.ours as f64, Some(0.0)),
        Row::number(
            &format!("writes of the operator but to its Lease {minute}, {count} resting agents"),
            "writes",
            all.writes.operators as f64,
            Some(0.0),
        ),
        Row::number(&format!("processor of all Pods of the node {minute}, no agent"), "ms", none.processor, None),
        Row::number(&format!("processor of all Pods of the node {minute}, {count} resting agents"), "ms", all.processor, None),
        Row::number("memory of all Pods of the node, no agent", "MiB", none.memory, None),
        Row::number(&format!("memory of all Pods of the node, {count} resting agents"), "MiB", all.memory, None),
    ])
}

struct Minute {
    writes: crate::writes::Writes,
    /// Milliseconds.
    processor: f64,
    /// MiB.
    memory: f64,
}

/// What the Pods of the node take in a minute in which nobody asks for anything.
async fn quiet_minute(ns: &TestNamespace) -> Result<Minute> {
    let (before, writes) = (pods_of_node().await?, count_writes(ns).await?);
    tokio::time::sleep(QUIET).await;
    let (after, written) = (pods_of_node().await?, count_writes(ns).await?);
    Ok(Minute { writes: written.since(writes), processor: after.processor - before.processor, memory: after.memory })
}

struct Usage {
    processor: f64,
    memory: f64,
}

/// The kubelet's cgroup of all Pods, in either version of cgroups. Of memory, what can be given back at once is left out, as the kubelet does.
async fn pods_of_node() -> Result<Usage> {
    let look = "for d in $(find /sys/fs/cgroup -maxdepth 4 -type d -name kubepods); do \
        if test -f $d/cpuacct.usage; then echo ns $(cat $d/cpuacct.usage); fi; \
        if grep -qs usage_usec $d/cpu.stat; then echo us $(sed -n 's/^usage_usec //p' $d/cpu.stat); fi; \
        if test -f $d/memory.usage_in_bytes; then echo bytes $(cat $d/memory.usage_in_bytes); echo idle $(sed -n 's/^total_inactive_file //p' $d/memory.stat); fi; \
        if test -f $d/memory.current; then echo bytes $(cat $d/memory.current); echo idle $(sed -n 's/^inactive_file //p' $d/memory.stat); fi; \
        done";
    let output = LocalCluster::from_environment()?.run_on_first_node(look).await?.exit_ok()?.out;
    let sum = |what: &str| -> f64 {
        let values = output.lines().filter_map(|line| line.split_once(' ')).filter(|(name, _)| *name == what);
        values.filter_map(|(_, value)| value.parse::<f64>().ok()).sum()
    };
    let usage = Usage { processor: sum("ns") / 1e6 + sum("us") / 1e3, memory: (sum("bytes") - sum("idle")) / f64::from(1 << 20) };
    ensure!(usage.processor > 0.0 && usage.memory > 0.0, "the node shows no cgroup of its Pods: {output}");
    Ok(usage)
}
