//! Resident memory of the process, from `/proc`.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use yoi_wire::entry::{Body, CompactionOutcome};
use yoi_wire::hub::{Activity, runtime_api};
use yoi_wire::people::UsageResponse;

use crate::gateway::person;
use crate::harness::{EXAMPLE, Harness, Runtime, status_kib};

/// Processes that are measured before any work, and as many after a run.
const PROCESSES: usize = 10;
const IDLE_BAR: f64 = 10.0;
const BEFORE_BAR: f64 = 1.15;
const TURNS: usize = 5000;
const TURNS_PER_RUN: usize = 100;
const TURNS_BAR: f64 = 1.3;
/// A runtime that waits has given back what it had freed by then.
const SETTLED: Duration = Duration::from_secs(2);

/// Memory of runtimes that wait.
#[derive(Default)]
struct Idle {
    fresh: Vec<Memory>,
    worked: Vec<Memory>,
}

/// Of one process, in MiB.
struct Memory {
    /// With the pages of the program's file that are mapped: they stand in memory once for all agents of one image on a node.
    resident: f64,
    /// What no other process shares.
    anonymous: f64,
}

/// An idle runtime, before any work and after a run of three turns, and the same of an older build if there is one.
pub async fn idle() -> Vec<Value> {
    let before = std::env::var_os("YOI_RUNTIME_BEFORE").map(PathBuf::from);
    let (mut ours, mut older) = (Idle::default(), Idle::default());
    for _ in 0..PROCESSES {
        ours.add(None).await;
        if let Some(binary) = &before {
            older.add(Some(binary.clone())).await;
        }
    }
    let figures = [("before any work", ours.fresh, older.fresh), ("after a run of three turns", ours.worked, older.worked)];
    let mut rows = Vec::new();
    for (when, ours, older) in figures {
        let name = format!("idle runtime (RSS), {when}");
        let all = resident(&ours);
        println!("{name}: {:.1} MiB (bar {IDLE_BAR} MiB)", median(&all));
        rows.push(json!({"name": name, "unit": "MiB", "ours": figures_of(&all), "bar": IDLE_BAR}));
        if !older.is_empty() {
            rows.push(over(&format!("{name}, over the runtime before the engine"), &all, &resident(&older), BEFORE_BAR));
        }
        let (name, own) = (format!("idle runtime, {when}: of it anonymous (RssAnon)"), anonymous(&ours));
        println!("{name}: {:.1} MiB", median(&own));
        rows.push(json!({"name": name, "unit": "MiB", "ours": figures_of(&own)}));
    }
    rows
}

impl Idle {
    async fn add(&mut self, binary: Option<PathBuf>) {
        let (harness, runtime) = start(binary.clone(), None, Harness::new(EXAMPLE).await).await;
        self.fresh.push(memory(&runtime).await);
        drop((runtime, harness));
        let (harness, runtime) = start(binary, Some("write the greeting"), Harness::new(EXAMPLE).await).await;
        harness.wait_for_runs(1).await;
        harness.gateway.wait_for_report(|report| report.ready && report.activity == Activity::Idle && report.task.is_some()).await;
        self.worked.push(memory(&runtime).await);
    }
}

/// One agent whose runs have 5,000 turns together, over agents that have not worked yet.
pub async fn after_many_turns() -> Vec<Value> {
    let turns = std::env::var("YOI_BENCH_TURNS").ok().and_then(|turns| turns.parse().ok()).unwrap_or(TURNS);
    let mut fresh = Vec::new();
    for _ in 0..PROCESSES {
        let (_harness, runtime) = start(None, None, Harness::new(EXAMPLE).await).await;
        fresh.push(memory(&runtime).await);
    }
    let harness = Harness {
        limits: json!({"turnsPerRun": TURNS_PER_RUN, "toolSeconds": 30, "toolOutputBytes": 32768}),
        manifest_settings: json!({"compaction": {"at": 20_000, "keep": 4000}}),
        ..Harness::new(&working()).await
    };
    std::fs::write(harness.tree().join("file"), "A line of a file that is read again and again.\n".repeat(20)).unwrap();
    let (harness, runtime) = start(None, None, harness).await;
    let mut spent = 0;
    for run in 0..turns.div_ceil(TURNS_PER_RUN) {
        harness.gateway.deliver(&format!("m{run}"), person(), &format!("Now do part {run}.")).await;
        spent = wait_for_run(&harness, spent).await;
        // What the harness keeps of each request, it need not keep here.
        harness.requests.lock().unwrap().clear();
    }
    let worked = [memory(&runtime).await];
    let entries = harness.entries();
    let count = |wanted: fn(&Body) -> bool| entries.iter().filter(|entry| wanted(&entry.body)).count();
    let answers = count(|body| matches!(body, Body::Assistant(_)));
    let compactions = count(|body| matches!(body, Body::CompactionEnded(end) if end.outcome == CompactionOutcome::Used));
    assert!(answers >= turns && compactions > 0, "{answers} turns, {compactions} compactions: {}", harness.stderr());
    let name = format!("runtime (RSS) after {answers} turns and {compactions} compactions, over one before any work");
    let own = anonymous(&worked);
    println!("of it anonymous (RssAnon): {:.1} MiB", median(&own));
    vec![
        over(&name, &resident(&worked), &resident(&fresh), TURNS_BAR),
        json!({"name": format!("runtime after {answers} turns: of it anonymous (RssAnon)"), "unit": "MiB", "ours": figures_of(&own)}),
    ]
}

/// A model that reads the file and runs a command until the limit of turns is reached, and sums up when it is asked to.
fn working() -> String {
    let summary = "Part by part, the file was read and the command was run. ".repeat(10);
    format!(
        "rules:\n- when: {{lastUserContains: about to be replaced by your summary}}\n  steps: [{{text: \"{summary}\"}}]\n- repeat: true\n  steps:\n  \
         - text: I look at it.\n    toolCalls:\n    - {{tool: Read, args: {{path: file}}}}\n    - {{tool: Shell, args: {{command: head -3 file}}}}\n"
    )
}

async fn start(binary: Option<PathBuf>, task: Option<&str>, harness: Harness) -> (Harness, Runtime) {
    let harness = Harness { binary, ..harness };
    let runtime = harness.start(1, task);
    harness.gateway.wait_for_report(|report| report.ready).await;
    harness.gateway.log("").await;
    (harness, runtime)
}

/// Waits for the end of a run that takes the tokens of answers above `spent`, and returns their sum.
async fn wait_for_run(harness: &Harness, spent: u64) -> u64 {
    loop {
        let (_, body) = harness.gateway.request("GET", runtime_api::USAGE, "").await;
        let usage: UsageResponse = serde_json::from_slice(&body).unwrap();
        if usage.activity == Activity::Idle && usage.total.output_tokens > spent {
            return usage.total.output_tokens;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Once the process has settled.
async fn memory(runtime: &Runtime) -> Memory {
    tokio::time::sleep(SETTLED).await;
    let mib = |what| status_kib(runtime.child.id(), what) as f64 / 1024.0;
    Memory { resident: mib("VmRSS"), anonymous: mib("RssAnon") }
}

fn resident(taken: &[Memory]) -> Vec<f64> {
    taken.iter().map(|memory| memory.resident).collect()
}

fn anonymous(taken: &[Memory]) -> Vec<f64> {
    taken.iter().map(|memory| memory.anonymous).collect()
}

fn over(name: &str, ours: &[f64], bare: &[f64], bar: f64) -> Value {
    let ratio = median(ours) / median(bare);
    println!("{name}: {:.1} MiB over {:.1} MiB, {ratio:.2}x (bar {bar}x)", median(ours), median(bare));
    json!({"name": name, "unit": "MiB", "ours": figures_of(ours), "bare": figures_of(bare), "ratio": ratio, "bar": bar})
}

fn median(values: &[f64]) -> f64 {
    sorted(values)[values.len() / 2]
}

fn figures_of(values: &[f64]) -> Value {
    json!({"n": values.len(), "p50": median(values), "p99": sorted(values).last()})
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}
