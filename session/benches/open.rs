//! What opening a session costs: `cargo bench -p yoi-session --bench open`.
//!
//! | Measured | Over | Bar |
//! |---|---|---|
//! | [`Log::open`] of a session of 16 segments | the same of a session that has the last of them only | 1.2x of the medians |
//! | [`Log::open`] of one segment of 100 MiB | nothing | 1 s |
//!
//! The three sessions are opened in turn, in one run; all files are in the page cache. `YOI_BENCH_SEGMENT_MIB` is the size of a segment of
//! the first row (64), `YOI_BENCH_SINGLE_MIB` that of the second (100): smaller ones try the bench. With `YOI_BENCH_OUT` (a folder) the
//! figures also go to `session-open.json` there, times in milliseconds.
#![expect(clippy::disallowed_methods, clippy::disallowed_macros, reason = "a benchmark needs clock and disk")]

use std::{
    fs,
    path::Path,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use serde::Serialize;
use serde_json::json;
use uuid::Uuid;
use yoi_session::{
    Holder, Lock, Log, LogState, Preallocate, current,
    disk::{Disk, RealDisk},
    fold,
};
use yoi_wire::entry::{
    AgentConfig, AgentRef, Assistant, Body, FORMAT, SegmentReason, SegmentStarted, SessionStarted, ToolCall, ToolEnded, ToolOutcome,
    ToolStarted,
};

const SEGMENTS: u64 = 16;
const TIMES: usize = 15;
const CHAIN_BAR: f64 = 1.2;
const SINGLE_BAR: f64 = 1000.0;
/// Turns of one append: the bench is of reading.
const TURNS: usize = 64;

fn main() {
    let mib = |name: &str, otherwise| std::env::var(name).ok().and_then(|mib| mib.parse::<u64>().ok()).unwrap_or(otherwise) << 20;
    let (segment, single) = (mib("YOI_BENCH_SEGMENT_MIB", 64), mib("YOI_BENCH_SINGLE_MIB", 100));
    let temp = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let volume = |name: &str| {
        let root = temp.path().join(name);
        fs::create_dir(&root).unwrap();
        Lock::take(Arc::new(RealDisk) as Arc<dyn Disk>, &root, Holder { run_generation: 1, pod_uid: "bench".into() }).unwrap()
    };
    let (chain, last, one) = (volume("chain"), volume("last"), volume("one"));
    let session = write(&chain, SEGMENTS, segment);
    let last_session = write(&last, 1, segment);
    let one_session = write(&one, 1, single);

    let (mut of_chain, mut of_last, mut of_one) = (Vec::new(), Vec::new(), Vec::new());
    for turn in 0..TIMES {
        let mut both = [(&chain, session, &mut of_chain), (&last, last_session, &mut of_last)];
        both.rotate_left(turn % 2);
        for (lock, session, times) in both {
            times.push(open(lock, session));
        }
        of_one.push(open(&one, one_session));
    }
    let [of_chain, of_last, of_one] = [of_chain, of_last, of_one].map(Figures::of);
    let ratio = of_chain.p50 / of_last.p50;
    let sizes = [segment >> 20, single >> 20];
    let names = [
        format!("open {SEGMENTS} segments of {} MiB, over the last of them alone", sizes[0]),
        format!("open one segment of {} MiB", sizes[1]),
    ];
    println!("{}: {:.1} ms over {:.1} ms, {ratio:.2}x (bar {CHAIN_BAR}x)", names[0], of_chain.p50, of_last.p50);
    println!("{}: {:.1} ms, slowest {:.1} ms (bar {SINGLE_BAR} ms)", names[1], of_one.p50, of_one.p99);
    if let Some(out) = std::env::var_os("YOI_BENCH_OUT") {
        let rows = json!([
            {"name": names[0], "unit": "ms", "ours": of_chain, "bare": of_last, "ratio": ratio, "bar": CHAIN_BAR},
            {"name": names[1], "unit": "ms", "ours": of_one, "bar": SINGLE_BAR},
        ]);
        fs::write(Path::new(&out).join("session-open.json"), serde_json::to_vec_pretty(&rows).unwrap()).unwrap();
    }
}

/// Times in milliseconds.
#[derive(Serialize)]
struct Figures {
    n: usize,
    p50: f64,
    /// The slowest, as there are fewer than a hundred.
    p99: f64,
}

impl Figures {
    fn of(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        let millis = |at: usize| times[at].as_secs_f64() * 1e3;
        Self { n: times.len(), p50: millis(times.len() / 2), p99: millis(times.len() - 1) }
    }
}

/// Writes a session of so many segments of so many bytes each, and closes it.
fn write(lock: &Arc<Lock>, segments: u64, bytes: u64) -> Uuid {
    let (session, segment) = (Uuid::now_v7(), Uuid::now_v7());
    let mut log = Log::create(lock, session, segment, Preallocate::Off).unwrap();
    current::write(lock, session, segment).unwrap();
    let agent = AgentRef { namespace: "team".into(), name: "ada".into(), uid: Uuid::nil().to_string() };
    let config = AgentConfig { system: vec!["You work in a tree. ".repeat(400)], ..AgentConfig::default() };
    let head = SegmentStarted { number: 1, format: FORMAT, previous: None, reason: SegmentReason::SessionStarted, config: config.clone() };
    let first = [Body::SessionStarted(SessionStarted { session: session.to_string(), agent, format: FORMAT }), Body::SegmentStarted(head)];
    let mut state = LogState::default();
    let mut add = |log: &mut Log, bodies: &[Body]| {
        let entries = log.append(bodies, SystemTime::now(), &mut Uuid::now_v7).unwrap();
        state = entries.iter().fold(std::mem::take(&mut state), fold::apply);
        state.carried()
    };
    let mut carried = add(&mut log, &first);
    for number in 1..=segments {
        if number > 1 {
            let carried = carried.clone();
            log.rotate(SegmentReason::Full, config.clone(), carried, SystemTime::now(), &mut Uuid::now_v7).unwrap();
        }
        let mut n = 0;
        while log.segment_bytes() < bytes {
            let turns: Vec<Body> = (n..n + TURNS).flat_map(turn).collect();
            carried = add(&mut log, &turns);
            n += TURNS;
        }
    }
    log.close().unwrap();
    session
}

/// A turn as an agent has it: a short answer with a call, and an output of 0 to 8 KiB.
fn turn(n: usize) -> [Body; 3] {
    let call_id = format!("call-{n}");
    let call = ToolCall { call_id: call_id.clone(), tool: "Shell".into(), args: json!({ "command": "cargo check -p yoi-session" }) };
    let output = "   Compiling yoi-session v0.1.0 (/tree/session)\nwarning: \"unused\" é\n".repeat(n * 7 % 118);
    [
        Body::Assistant(Assistant { text: "I look at what the compiler says.".into(), tool_calls: vec![call], ..Assistant::default() }),
        Body::ToolStarted(ToolStarted { call_id: call_id.clone(), tool: "Shell".into(), decision: None }),
        Body::ToolEnded(ToolEnded {
            call_id,
            outcome: ToolOutcome::Succeeded,
            output,
            images: Vec::new(),
            millis: Some(7),
            decision: None,
            read: None,
        }),
    ]
}

fn open(lock: &Arc<Lock>, session: Uuid) -> Duration {
    let started = Instant::now();
    let (log, replay) = Log::open(lock, session, Preallocate::Off).unwrap();
    let took = started.elapsed();
    assert!(!replay.entries.is_empty());
    drop(log);
    took
}
