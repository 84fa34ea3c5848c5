//! What the door to the tools, more conversations and followed events cost.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use yoi_engine::decision::Decision;
use yoi_engine::peers::NoPeers;
use yoi_engine::policy::Policy;
use yoi_engine::processes::ProcessSupervisor;
use yoi_engine::project::{Project, ProjectOptions};
use yoi_engine::tools::shell::Shell;
use yoi_engine::tools::tree::Tree;
use yoi_engine::tools::{LiveOutput, ToolGate, ToolRunner};
use yoi_wire::entry::{Body, CallFrom, Entry, ToolCall, ToolOutcome};
use yoi_wire::manifest::{ModelEndpoint, ModelProvider, RunLimits};

use crate::gateway::person;
use crate::harness::{Harness, Runtime, outcomes, status_kib};

const CALLS: usize = 20_000;
const DECISION_BAR_MS: f64 = 0.2;
/// Names how many conversations a process of its own has, whose memory is measured.
const CHILD: &str = "YOI_BENCH_CONVERSATIONS";
const CONVERSATIONS: usize = 100;
const PROCESSES: usize = 5;
const CONVERSATIONS_BAR: f64 = 2.0;
/// Model calls of one run.
const TURNS: usize = 50;
/// Runs that are not counted.
const WARM: usize = 2;
const RUNS: usize = 20;
const POLICY_BAR: f64 = 1.02;
const STREAMS: usize = 20;
const DELTA_BAR: f64 = 1.1;
/// A process that waits has given back what it had freed by then.
const SETTLED: Duration = Duration::from_secs(2);

/// A policy as teams write them.
fn policy() -> Value {
    let commands = |verb: &str| (0..12).map(|n| format!("Shell({verb}{n} *)")).collect::<Vec<_>>();
    let named = |rules: &[&str]| rules.iter().map(|rule| (*rule).to_owned()).collect::<Vec<_>>();
    let deny = [commands("drop"), named(&["Edit(vendor/**)", "WebFetch(domain:evil.example)"])].concat();
    let ask = [commands("push"), named(&["Shell(git push *)"])].concat();
    let allow = [commands("make"), named(&["Shell(git *)", "Shell(head *)", "Read", "Edit", "Grep", "ListPods"])].concat();
    json!({
        "deny": deny, "ask": ask, "allow": [allow],
        "sensitive": ["*.tfstate", "secrets/**"],
        "network": {"hosts": ["example.org"], "schemes": ["https"]},
    })
}

/// Schema, policy and mode of a call, and its slot: a tool that does nothing is decided about and run.
pub async fn decision() -> Vec<Value> {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join("src/deep")).unwrap();
    std::fs::write(folder.path().join("src/deep/file.rs"), "fn main() {}\n").unwrap();
    let shell = Shell::new(Arc::new(ProcessSupervisor::new(folder.path().to_owned(), "a", &[])));
    let policy = Arc::new(Policy::new(&serde_json::from_value(policy()).unwrap()).unwrap());
    let tree = Arc::new(Tree::open(folder.path()).unwrap());
    let gate = ToolGate::new(ToolRunner::new(tree, Arc::new(shell), Arc::new(NoPeers), RunLimits::default(), policy));
    let call = |tool: &str, args: Value| ToolCall { call_id: "c".to_owned(), tool: tool.to_owned(), args };
    let decided = [
        call("Shell", json!({"command": "git log --oneline -20 | head -3"})),
        call("Read", json!({"path": "src/deep/file.rs"})),
        call("Edit", json!({"path": "src/deep/file.rs", "old": "main", "new": "other"})),
        call("Grep", json!({"pattern": "main", "path": "src"})),
    ];
    let idle = call("ListPods", json!({}));
    let mut times = Vec::new();
    for turn in 0..CALLS {
        let begun = Instant::now();
        assert_eq!(gate.begin(&decided[turn % decided.len()], CallFrom::Model), Decision::Allow);
        let run = gate.run(&idle, CallFrom::Model, &LiveOutput::discard()).await;
        times.push(begun.elapsed().as_secs_f64() * 1e3);
        assert_eq!(run.outcome, ToolOutcome::Succeeded);
    }
    times.sort_by(f64::total_cmp);
    let [p50, p99] = [times[times.len() / 2], times[times.len() * 99 / 100]];
    let name = "decision, schema and slot of a call, with 44 rules";
    println!("{name}: {p50:.4} ms, slowest hundredth {p99:.4} ms (bar {DECISION_BAR_MS} ms)");
    vec![json!({"name": name, "unit": "ms", "bar": DECISION_BAR_MS, "ours": {"n": CALLS, "p50": p50, "p99": p99}})]
}

/// Runs in a process of its own: starts so many conversations beside `main`, and prints how many KiB the process has when they wait. False: this is none.
pub async fn child() -> bool {
    let Some(count) = std::env::var(CHILD).ok().and_then(|count| count.parse::<usize>().ok()) else { return false };
    let folder = tempfile::tempdir().unwrap();
    let (root, state) = (folder.path().join("root"), folder.path().canonicalize().unwrap().join("state"));
    std::fs::create_dir(&root).unwrap();
    // Nobody asks it.
    let model = ModelEndpoint { base_url: Some("http://127.0.0.1:9/".to_owned()), ..ModelEndpoint::new(ModelProvider::OpenAI, "none") };
    let project = Project::start(ProjectOptions { conversations: count, ..ProjectOptions::new("p", root, state, model) }).await.unwrap();
    for n in 0..count {
        project.start_conversation(&format!("c{n}")).await.unwrap();
    }
    tokio::time::sleep(SETTLED).await;
    println!("{}", status_kib(std::process::id(), "VmRSS"));
    project.stop().await;
    true
}

/// A process with 100 conversations that wait, over one with one.
pub fn conversations() -> Vec<Value> {
    let measure = |count: usize| {
        let mut sizes: Vec<f64> = (0..PROCESSES)
            .map(|_| {
                let output = std::process::Command::new(std::env::current_exe().unwrap()).env(CHILD, count.to_string()).output().unwrap();
                String::from_utf8(output.stdout).unwrap().trim().parse::<f64>().unwrap() / 1024.0
            })
            .collect();
        sizes.sort_by(f64::total_cmp);
        sizes
    };
    let (many, one) = (measure(CONVERSATIONS), measure(1));
    vec![over(&format!("memory (RSS) of {CONVERSATIONS} idle conversations, over one"), "MiB", &many, &one, CONVERSATIONS_BAR)]
}

fn over(name: &str, unit: &str, ours: &[f64], bare: &[f64], bar: f64) -> Value {
    let figures = |values: &[f64]| json!({"n": values.len(), "p50": values[values.len() / 2], "p99": values.last()});
    let ratio = ours[ours.len() / 2] / bare[bare.len() / 2];
    println!("{name}: {:.2} {unit} over {:.2} {unit}, {ratio:.3}x (bar {bar}x)", ours[ours.len() / 2], bare[bare.len() / 2]);
    json!({"name": name, "unit": unit, "ratio": ratio, "bar": bar, "ours": figures(ours), "bare": figures(bare)})
}

/// A turn of an agent with a policy, over one of an agent without. Both take turns in going first.
pub async fn turns_with_policy() -> Vec<Value> {
    let script = "rules:\n- repeat: true\n  steps:\n  - text: I look.\n    toolCalls:\n    - {tool: Read, args: {path: file}}\n    - {tool: Edit, args: {path: file, old: a, new: a}}\n";
    let start = async |policy: Option<Value>| {
        let mut harness = Harness::new(script).await;
        std::fs::write(harness.tree().join("file"), "a\n").unwrap();
        harness.limits["turnsPerRun"] = TURNS.into();
        if let Some(policy) = policy {
            harness.manifest_settings = json!({ "policy": policy });
        }
        let runtime = harness.start(1, None);
        harness.gateway.wait_for_report(|report| report.ready).await;
        (harness, runtime)
    };
    let agents: [(Harness, Runtime); 2] = [start(Some(policy())).await, start(None).await];
    let mut times = [Vec::new(), Vec::new()];
    for turn in 0..WARM + RUNS {
        for which in [turn % 2, 1 - turn % 2] {
            let harness = &agents[which].0;
            harness.gateway.deliver(&format!("m{turn}"), person(), "go on").await;
            let entries = harness.wait_until("the run", |entries| outcomes(entries).len() > turn).await;
            if turn >= WARM {
                times[which].push(last_run_millis(&entries) / TURNS as f64);
            }
        }
    }
    times.iter_mut().for_each(|times| times.sort_by(f64::total_cmp));
    vec![over("a turn of two calls with a policy of 44 rules, over one without", "ms", &times[0], &times[1], POLICY_BAR)]
}

fn last_run_millis(entries: &[Entry]) -> f64 {
    let at = |is_it: fn(&Body) -> bool| {
        let entry = entries.iter().rev().find(|entry| is_it(&entry.body)).unwrap();
        yoi_session::parse_rfc3339(&entry.at).unwrap()
    };
    let (begun, ended) = (at(|body| matches!(body, Body::RunStarted(_))), at(|body| matches!(body, Body::RunEnded(_))));
    ended.duration_since(begun).unwrap().as_secs_f64() * 1e3
}

/// The last piece of an answer at who follows events, over the model's own stream. Both are measured from the moment in which somebody asks.
pub async fn last_delta() -> Vec<Value> {
    let text = "A word of an answer. ".repeat(60);
    let script = format!("rules:\n- repeat: true\n  steps:\n  - text: \"{text}\"\n    chunkDelayMs: 5\n");
    let harness = Harness::new(&script).await;
    let _runtime = harness.start(1, None);
    harness.gateway.wait_for_report(|report| report.ready).await;
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for turn in 0..STREAMS {
        for which in [turn % 2, 1 - turn % 2] {
            if which == 0 {
                ours.push(followed(&harness, turn).await);
            } else {
                bare.push(streamed(&harness.model_url).await);
            }
        }
    }
    ours.sort_by(f64::total_cmp);
    bare.sort_by(f64::total_cmp);
    vec![over("the last piece of an answer at a subscriber, over the model's own stream", "ms", &ours, &bare, DELTA_BAR)]
}

async fn followed(harness: &Harness, turn: usize) -> f64 {
    let mut events = harness.gateway.events("follow=true&deltas=true&tail=1").await;
    let begun = Instant::now();
    harness.gateway.deliver(&format!("m{turn}"), person(), "say it").await;
    let (mut last, mut seen) = (0.0, String::new());
    loop {
        let frame = events.frame().await.unwrap().unwrap();
        seen.push_str(&String::from_utf8_lossy(frame.data_ref().unwrap()));
        if seen.contains("conversation.assistant.delta") {
            last = begun.elapsed().as_secs_f64() * 1e3;
        }
        if seen.contains("conversation.run.closed") && last > 0.0 {
            return last;
        }
        // What is whole was looked at.
        seen = seen.rsplit_once("\n\n").map_or(seen.clone(), |(_, rest)| rest.to_owned());
    }
}

/// Until the model has written its last piece.
async fn streamed(url: &str) -> f64 {
    let host = url.strip_prefix("http://").unwrap().split('/').next().unwrap();
    let body = json!({"model": "scripted", "stream": true, "messages": [{"role": "user", "content": "say it"}]}).to_string();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let begun = Instant::now();
    let mut stream = TcpStream::connect(host).await.unwrap();
    stream.write_all((head + &body).as_bytes()).await.unwrap();
    let (mut buffer, mut last) = ([0; 16 << 10], 0.0);
    while let Ok(read @ 1..) = stream.read(&mut buffer).await {
        if String::from_utf8_lossy(&buffer[..read]).contains("\"content\"") {
            last = begun.elapsed().as_secs_f64() * 1e3;
        }
    }
    last
}
