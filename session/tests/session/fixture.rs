//! What all tests use: a disk in memory, a counter for ids, a fixed time, entries of each kind.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use uuid::Uuid;
use yoi_session::{
    Holder, Lock, Log, Preallocate, Replay, Result,
    disk::{Disk, MemoryDisk},
    frame,
};
use yoi_wire::entry::{
    AgentRef, Assistant, Body, Entry, FORMAT, Input, InputFrom, Notice, RunStarted, SessionStarted, ToolCall, ToolEnded, ToolOutcome,
    ToolStarted,
};

pub const ROOT: &str = "/volume";
pub const SESSION: Uuid = Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_0001);
pub const SEGMENT: Uuid = Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_0002);
/// Steps so small that tests cross them.
pub const SMALL: Preallocate = Preallocate::Ahead(2048);

pub fn at() -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(1_700_000_000_123)
}

pub fn counter() -> impl FnMut() -> Uuid {
    let mut last = 0x0190_0000_0000_7000_8000_0001_0000_0000;
    move || {
        last += 1;
        Uuid::from_u128(last)
    }
}

pub fn holder(run_generation: u64) -> Holder {
    Holder { run_generation, pod_uid: format!("pod-{run_generation}") }
}

pub fn take(disk: &MemoryDisk, run_generation: u64) -> Result<Arc<Lock>> {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    Lock::take(disk, Path::new(ROOT), holder(run_generation))
}

pub fn segment_path() -> PathBuf {
    Path::new(ROOT).join(format!("sessions/{SESSION}/{SEGMENT}.jsonl"))
}

/// Returns a disk with an empty session that no log has open.
pub fn disk() -> MemoryDisk {
    let disk = MemoryDisk::new(Path::new(ROOT));
    Log::create(&take(&disk, 1).unwrap(), SESSION, SEGMENT, Preallocate::Off).unwrap();
    disk
}

pub fn open(disk: &MemoryDisk) -> Result<(Log, Replay)> {
    Log::open(&take(disk, 1)?, SESSION, Preallocate::Off)
}

/// Returns a disk whose closed log holds appends of so many entries each, and these entries.
pub fn written(appends: &[usize]) -> (MemoryDisk, Vec<Entry>) {
    let disk = disk();
    let (mut log, _) = open(&disk).unwrap();
    let (mut ids, mut entries, mut n) = (counter(), Vec::new(), 0);
    for &size in appends {
        let bodies: Vec<Body> = (n..n + size).map(notice).collect();
        entries.extend(log.append(&bodies, at(), &mut ids).unwrap());
        n += size;
    }
    log.close().unwrap();
    (disk, entries)
}

/// Returns a line as another version might write it, newline included.
pub fn line(seq: u64, run: u64, kind: &str, optional: bool) -> Vec<u8> {
    let mut line = Vec::new();
    let id = Uuid::from_u128(u128::from(seq));
    let entry = serde_json::json!({
        "batch": seq, "id": id, "seq": seq, "run": run, "at": "2026-01-01T00:00:00.000Z", "kind": kind, "optional": optional,
        "body": { "reason": "Made", "message": "x" },
    });
    frame::encode(&entry, &mut line).unwrap();
    line
}

pub fn agent(name: &str) -> AgentRef {
    AgentRef { namespace: "team".into(), name: name.into(), uid: format!("uid-of-{name}") }
}

pub fn started() -> Body {
    Body::SessionStarted(SessionStarted { session: SESSION.to_string(), agent: agent("ada"), format: FORMAT })
}

/// Returns the `n`th notice. Every second one ends in a letter of three bytes.
pub fn notice(n: usize) -> Body {
    let message = if n.is_multiple_of(2) { format!("n{n} 水") } else { format!("n{n}") };
    Body::Notice(Notice { reason: "Seen".into(), message })
}

pub fn input(id: &str, from: InputFrom) -> Body {
    Body::Input(Input { from, message_id: id.into(), user: None, text: "do it".into() })
}

pub fn run_started(id: &str) -> Body {
    Body::RunStarted(RunStarted { run_id: id.into(), cause: vec!["m1".into()] })
}

pub fn asks(calls: &[&str]) -> Body {
    let call = |id: &&str| ToolCall { call_id: (*id).into(), tool: "shell".into(), args: serde_json::json!({ "run": "make" }) };
    Body::Assistant(Assistant { text: String::new(), tool_calls: calls.iter().map(call).collect(), usage: None, ..Assistant::default() })
}

pub fn tool_started(id: &str) -> Body {
    Body::ToolStarted(ToolStarted { call_id: id.into(), tool: "shell".into(), decision: None })
}

pub fn tool_ended(id: &str) -> Body {
    Body::ToolEnded(ToolEnded {
        call_id: id.into(),
        outcome: ToolOutcome::Succeeded,
        output: "ok".into(),
        images: Vec::new(),
        millis: Some(3),
        decision: None,
        read: None,
    })
}
