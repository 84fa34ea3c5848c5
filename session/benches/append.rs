//! What durability costs over what the device asks for it: `cargo bench -p yoi-session`.
//!
//! | Ours | The same work with system calls |
//! |---|---|
//! | [`Log::append`] of one entry | overwrite of as many bytes in a file that is written full of zeros and synced, then `fdatasync` |
//! | [`Inbox::put`] of one message | a new file of as many bytes, `fsync`, rename, `fsync` of the folder |
//!
//! Both work in turn, in one folder, in one run. They take turns in going first. With `YOI_BENCH_OUT` (a folder) the figures also go to
//! `session.json` there: times in microseconds, `p50` and `p99` of ours, `ratio` of the medians, `mean_ratio` of the sums.
#![expect(clippy::disallowed_methods, clippy::disallowed_macros, clippy::disallowed_types, reason = "a benchmark needs clock and disk")]

use std::{
    fs::{self, File, OpenOptions},
    os::unix::fs::FileExt,
    path::Path,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use serde_json::json;
use uuid::Uuid;
use yoi_session::{
    Holder, Inbox, InboxMessage, Lock, Log, LogState, Preallocate, PutOutcome, Sender, Wake,
    disk::{Disk, RealDisk},
};
use yoi_wire::entry::{AgentRef, Assistant, Body};

/// Turns that are not counted.
const WARM: usize = 100;
/// Enough turns to cross a step of zeros ahead.
const SMALL_TURNS: usize = 3000;
const LARGE_TURNS: usize = 1000;
const MESSAGES: usize = 1000;
const BAR: f64 = 1.3;
/// Types of tmpfs and ramfs in `statfs`.
const IN_MEMORY: [rustix::fs::FsWord; 2] = [0x0102_1994, 0x8584_58f6];

struct Row {
    name: &'static str,
    ours: Vec<Duration>,
    bare: Vec<Duration>,
}

fn main() {
    let temp = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    if IN_MEMORY.contains(&rustix::fs::statfs(temp.path()).unwrap().f_type) {
        println!("append: NOT RUN: {} is in memory and has no flush", temp.path().display());
        return;
    }
    let lock = Lock::take(Arc::new(RealDisk) as Arc<dyn Disk>, temp.path(), Holder { run_generation: 1, pod_uid: "bench".into() }).unwrap();
    let rows = [
        append(&lock, "append, entry of 300 B", 300, SMALL_TURNS),
        append(&lock, "append, entry of 4 KiB", 4096, LARGE_TURNS),
        put(&lock, "inbox, message of 1 KiB", 1024),
    ];
    println!("{:<26}{:>6}{:>12}{:>12}{:>9}{:>9}{:>12}{:>12}", "", "n", "ours p50", "bare p50", "p50 x", "mean x", "ours p99", "bare p99");
    rows.iter().for_each(Row::print);
    println!("bar for an append: {BAR}x of the medians");
    if let Some(out) = std::env::var_os("YOI_BENCH_OUT") {
        let all: Vec<serde_json::Value> = rows.iter().map(Row::json).collect();
        fs::write(Path::new(&out).join("session.json"), serde_json::to_vec_pretty(&all).unwrap()).unwrap();
    }
}

/// Runs both in turn and returns their times without the first turns.
fn in_turn(
    turns: usize,
    mut ours: impl FnMut(usize) -> Duration,
    mut bare: impl FnMut(usize) -> Duration,
) -> (Vec<Duration>, Vec<Duration>) {
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for n in 0..WARM + turns {
        if n % 2 == 0 {
            a.push(ours(n));
            b.push(bare(n));
        } else {
            b.push(bare(n));
            a.push(ours(n));
        }
    }
    (a.split_off(WARM), b.split_off(WARM))
}

fn time<T>(act: impl FnOnce() -> T) -> (Duration, T) {
    let started = Instant::now();
    let done = act();
    (started.elapsed(), done)
}

fn append(lock: &Arc<Lock>, name: &'static str, bytes: usize, turns: usize) -> Row {
    let (session, segment) = (Uuid::now_v7(), Uuid::now_v7());
    let mut log = Log::create(lock, session, segment, Preallocate::default()).unwrap();
    let path = lock.root().join(format!("sessions/{session}/{segment}.jsonl"));
    let answer = |text: String| [Body::Assistant(Assistant { text, tool_calls: Vec::new(), usage: None, ..Assistant::default() })];
    log.append(&answer(String::new()), SystemTime::now(), &mut Uuid::now_v7).unwrap();
    let first = fs::read(&path).unwrap().iter().position(|byte| *byte == b'\n').unwrap() + 1;
    let body = answer("a".repeat(bytes - first));

    let line = vec![b'b'; bytes];
    let full = File::create_new(lock.root().join(format!("{session}.full"))).unwrap();
    full.write_all_at(&vec![0; (WARM + turns) * bytes], 0).unwrap();
    full.sync_all().unwrap();

    let (ours, bare) = in_turn(
        turns,
        |_| time(|| log.append(&body, SystemTime::now(), &mut Uuid::now_v7).unwrap()).0,
        |n| {
            let at = (n * bytes) as u64;
            time(|| {
                full.write_all_at(&line, at).unwrap();
                full.sync_data().unwrap();
            })
            .0
        },
    );
    log.close().unwrap();
    let written = fs::metadata(&path).unwrap().len() as usize;
    let planned = (WARM + turns) * bytes;
    assert!(written.abs_diff(planned) < planned / 20, "ours wrote {written} bytes, the other {planned}");
    Row { name, ours, bare }
}

fn put(lock: &Arc<Lock>, name: &'static str, bytes: usize) -> Row {
    let session = Uuid::now_v7();
    drop(Log::create(lock, session, Uuid::now_v7(), Preallocate::default()).unwrap());
    let mut inbox = Inbox::open(lock, session, &LogState::default()).unwrap();
    let from = AgentRef { namespace: "team".into(), name: "ada".into(), uid: Uuid::nil().to_string() };
    let message =
        |n: usize| InboxMessage { id: format!("m{n}"), from: Sender::Agent(from.clone()), text: "a".repeat(bytes), wake: Wake::Run };

    let dir = lock.root().join(format!("{session}.bare"));
    fs::create_dir(&dir).unwrap();
    let folder = File::open(&dir).unwrap();
    let framed = {
        let probe = message(0);
        inbox.put(probe.clone(), SystemTime::now()).unwrap();
        let path = lock.root().join(format!("sessions/{session}/inbox/{:020}.json", 1));
        let framed = fs::read(path).unwrap();
        inbox.mark_delivered(&probe.id).unwrap();
        framed
    };
    let (ours, bare) = in_turn(
        MESSAGES,
        |n| {
            let message = message(n + 1);
            let id = message.id.clone();
            let (took, put) = time(|| inbox.put(message, SystemTime::now()).unwrap());
            assert_eq!(put, PutOutcome::Accepted);
            inbox.mark_delivered(&id).unwrap();
            took
        },
        |n| {
            let (new, path) = (dir.join(format!("{n:020}.json.tmp")), dir.join(format!("{n:020}.json")));
            let took = time(|| {
                let file = OpenOptions::new().write(true).create_new(true).open(&new).unwrap();
                file.write_all_at(&framed, 0).unwrap();
                file.sync_all().unwrap();
                fs::rename(&new, &path).unwrap();
                folder.sync_all().unwrap();
            })
            .0;
            fs::remove_file(&path).unwrap();
            took
        },
    );
    Row { name, ours, bare }
}

impl Row {
    fn ratio(&self) -> f64 {
        micros(at(&self.ours, 50)) / micros(at(&self.bare, 50))
    }

    fn mean_ratio(&self) -> f64 {
        micros(self.ours.iter().sum()) / micros(self.bare.iter().sum())
    }

    fn print(&self) {
        let times = [at(&self.ours, 50), at(&self.bare, 50), at(&self.ours, 99), at(&self.bare, 99)].map(|time| format!("{time:.1?}"));
        let (name, n, ratio, mean) = (self.name, self.ours.len(), self.ratio(), self.mean_ratio());
        println!("{name:<26}{n:>6}{:>12}{:>12}{ratio:>9.2}{mean:>9.2}{:>12}{:>12}", times[0], times[1], times[2], times[3]);
    }

    fn json(&self) -> serde_json::Value {
        json!({
            "name": self.name,
            "ours_us": micros(at(&self.ours, 50)),
            "bare_us": micros(at(&self.bare, 50)),
            "bare_p99": micros(at(&self.bare, 99)),
            "bar": self.name.starts_with("append").then_some(BAR),
            "ratio": self.ratio(),
            "mean_ratio": self.mean_ratio(),
            "n": self.ours.len(),
            "p50": micros(at(&self.ours, 50)),
            "p99": micros(at(&self.ours, 99)),
        })
    }
}

fn at(samples: &[Duration], percent: usize) -> Duration {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable();
    sorted[(sorted.len() * percent / 100).min(sorted.len() - 1)]
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
