//! A log of format 1 that is too large for the repository. It is made from the description of the format alone, and its digest is that of the
//! file that the runtime of format 1 wrote.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use uuid::Uuid;
use yoi_session::disk::RealDisk;
use yoi_session::{Holder, Lock, Log, Preallocate, frame};
use yoi_wire::entry::Body;

use super::expectation::{Opened, open};
use super::volume::Padded;
use super::{NEXT_SCRIPT, case, continue_session, volume};
use crate::harness::Harness;

const SESSION: Uuid = Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_0001);
const SEGMENT: Uuid = Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_0002);
const FIRST_ID: u128 = 0x0190_0000_0000_7000_8000_0001_0000_0000;
const AT: &str = "2023-11-14T22:13:20.123Z";
const RUNS: u64 = 200;
const TURNS: u64 = 25;
/// SHA-256 of the segment as the runtime of commit e83d7f51076cc575cb99684eec530dad4670e9d1 wrote it.
const WRITTEN_DIGEST: &str = "54e2ce29659216d043613801615ebeac85705e30bf908b06d165230b03d8d3e0";
/// SHA-256 of the projection that it made.
const PROJECTION_DIGEST: &str = "d1181b2a6428f1003fe68b65193735a64ca4b6d4a287b8db0f4d2664746c065d";

/// Kind and body of each entry, by append. The bodies are texts, because the order of members is part of the digest.
fn appends() -> Vec<Vec<(&'static str, String)>> {
    let start = format!(r#"{{"session":"{SESSION}","agent":{{"namespace":"ns","name":"a","uid":"uid-a"}},"format":1}}"#);
    let mut appends = vec![vec![("SessionStarted", start)]];
    let mut seq = 1;
    for run in 1..=RUNS {
        let run_id = format!("run-{}", seq + 2);
        appends.push(vec![
            ("Input", format!(r#"{{"from":"person","messageId":"m{run}","user":"jane","text":"Run {run}: look at every file."}}"#)),
            ("RunStarted", format!(r#"{{"runId":"{run_id}","cause":["m{run}"]}}"#)),
        ]);
        for turn in 1..=TURNS {
            let call = format!("call-{run}-{turn}");
            let output = serde_json::to_string(&format!("line {turn} of the file 水 \"quoted\"\n").repeat(24)).unwrap();
            let asked = format!(r#"{{"callId":"{call}","tool":"Shell","args":{{"command":"cat file-{turn}.txt"}}}}"#);
            let usage = format!(r#"{{"inputTokens":{},"outputTokens":40}}"#, 300 * turn);
            appends.push(vec![("Assistant", format!(r#"{{"text":"","toolCalls":[{asked}],"usage":{usage}}}"#))]);
            appends.push(vec![("ToolStarted", format!(r#"{{"callId":"{call}","tool":"Shell"}}"#))]);
            let ended = format!(r#"{{"callId":"{call}","outcome":"succeeded","output":{output},"millis":3}}"#);
            appends.push(vec![("ToolEnded", ended)]);
        }
        appends.push(vec![
            ("Assistant", format!(r#"{{"text":"Run {run} is done."}}"#)),
            ("RunEnded", format!(r#"{{"runId":"{run_id}","outcome":"finished"}}"#)),
        ]);
        seq += 4 + 3 * TURNS;
    }
    appends
}

/// A line, its members in the order of the format.
#[derive(Serialize)]
struct Line<'a> {
    batch: u64,
    id: Uuid,
    seq: u64,
    run: u64,
    at: &'a str,
    kind: &'a str,
    body: Box<RawValue>,
}

/// The segment.
fn segment() -> Vec<u8> {
    let (mut lines, mut seq) = (Vec::new(), 0);
    for append in appends() {
        let batch = seq + 1;
        for (kind, body) in append {
            seq += 1;
            let id = Uuid::from_u128(FIRST_ID + u128::from(seq));
            let line = Line { batch, id, seq, run: 1, at: AT, kind, body: RawValue::from_string(body).unwrap() };
            frame::encode(&line, &mut lines).unwrap();
        }
    }
    lines
}

/// The segment as this version writes it.
pub fn segment_of_this_version() -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let mut log = Log::create(&take_lock(dir.path()), SESSION, SEGMENT, Preallocate::Off).unwrap();
    let mut last = FIRST_ID;
    let mut ids = || {
        last += 1;
        Uuid::from_u128(last)
    };
    let at = UNIX_EPOCH + Duration::from_millis(1_700_000_000_123);
    for append in appends() {
        let body = |(kind, body): &(&str, String)| -> Body {
            serde_json::from_value(json!({ "kind": kind, "body": serde_json::from_str::<Value>(body).unwrap() })).unwrap()
        };
        log.append(&append.iter().map(body).collect::<Vec<_>>(), at, &mut ids).unwrap();
    }
    log.close().unwrap();
    std::fs::read(volume::segment(dir.path())).unwrap()
}

pub fn digest(bytes: impl AsRef<[u8]>) -> String {
    hex::encode(Sha256::digest(bytes))
}

/// `current.json` as a runtime of format 1 wrote it, which names no segment.
fn current_session() -> Vec<u8> {
    let mut line = Vec::new();
    frame::encode(&json!({ "session": SESSION }), &mut line).unwrap();
    line
}

fn take_lock(root: &Path) -> Arc<Lock> {
    Lock::take(Arc::new(RealDisk), root, Holder { run_generation: 1, pod_uid: "pod-1".to_owned() }).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn f15_a_log_of_five_thousand_turns_opens_and_goes_on() {
    let segment = segment();
    assert_eq!(digest(&segment), WRITTEN_DIGEST, "this is no log of format 1");
    let harness = Harness::new(NEXT_SCRIPT).await;
    let root = harness.session();
    std::fs::write(root.join("current.json"), current_session()).unwrap();
    let dir = root.join("sessions").join(SESSION.to_string());
    std::fs::create_dir_all(dir.join("inbox")).unwrap();
    std::fs::write(dir.join(format!("{SEGMENT}.jsonl")), segment).unwrap();
    // Opening takes the lock for the highest run generation, so it gets a copy.
    let copy = tempfile::tempdir().unwrap();
    volume::restore(&root, &Padded::new(), copy.path());
    let opened = open(copy.path());
    let Opened::Replayed(replayed) = &opened else { panic!("{opened:?}") };
    assert_eq!((replayed.entries as u64, replayed.pending.len(), replayed.recovery.len()), (1 + RUNS * (4 + 3 * TURNS), 0, 0));
    assert_eq!(digest(replayed.projection.to_string()), PROJECTION_DIGEST);
    let continued = continue_session(&harness, &case("large", None, false), &opened).await.unwrap();
    assert_eq!(continued.kinds, "RuntimeStarted Input RunStarted Assistant RunEnded");
    // An input, an answer to each turn and its result, the last answer; then the new message.
    assert_eq!(continued.messages.len() as u64, RUNS * (2 + 2 * TURNS) + 1);
}
