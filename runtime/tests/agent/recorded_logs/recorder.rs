//! Writes the recorded volumes, by the runtime of this build. Run once for each format:
//!
//! ```text
//! YOI_RECORD_TO=DIR cargo test -p yoi-runtime --test agent -- --ignored record_session_volumes --nocapture
//! ```
//!
//! What the runtime writes by itself comes from the binary. An end that a power cut leaves and damage are made of such volumes, because no test
//! can time them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::json;
use uuid::Uuid;
use yoi_session::disk::{Disk, RealDisk};
use yoi_session::{Holder, Lock, Log, Preallocate, current, frame};
use yoi_wire::entry::{Entry, RunOutcome};
use yoi_wire::hub::MessageSender;

use super::expectation::{Expectation, open};
use super::{CASES, NEXT_SCRIPT, RecordedCase, continue_session, large, volume};
use crate::gateway::person;
use crate::gateway::{SendFate, agent};
use crate::harness::{Harness, kinds, outcomes};

const SCRIPT: &str = r#"
rules:
- when: {lastUserContains: work through the list}
  steps:
  - text: "I look at the tree first. 水 é 😀"
    toolCalls:
    - {tool: Write, args: {path: notes.txt, content: "one\ntwo 水\n"}}
    - {tool: Read, args: {path: notes.txt}}
    - {tool: Edit, args: {path: notes.txt, old: "two", new: "three"}}
    - {tool: Shell, args: {command: "cat notes.txt; printf 'a\\0b'"}}
  - toolCalls:
    - {tool: Edit, args: {path: notes.txt, old: "nothing like it", new: "x"}}
    - {tool: Shell, args: {command: "echo no >&2; exit 3"}}
    - {tool: Teleport, args: {to: mars}}
    - {tool: Read, args: {file: notes.txt}}
    - {tool: Shell, rawArgs: '{"command": "ec'}
    - {tool: ListPods}
    - {tool: Shell, args: {command: "echo begun; sleep 30", timeoutSeconds: 1}}
  - toolCalls:
    - {tool: SendToPeerPod, args: {to: b, message: hello}}
    - {tool: SendToPeerPod, args: {to: b, message: hello again}}
  - text: The list is done.
- when: {lastUserContains: wait in a tool}
  steps:
  - text: I start the long command.
    toolCalls:
    - {tool: Shell, args: {command: "echo begun >> begun.txt; sleep 60"}}
    - {tool: Shell, args: {command: "echo never"}}
  - text: I go on after the stop.
- when: {lastUserContains: wait in the model}
  steps:
  - {text: Too late., delayMs: 600000}
- when: {lastUserContains: try again}
  steps:
  - text: It worked in the end.
    fault: {status: 503, times: 2, retryAfterSeconds: 0}
- when: {lastUserContains: be refused}
  steps:
  - text: never said
    fault: {status: 400, times: 1000, body: '{"error":{"message":"a fault of the script","param":"messages[0].content"}}'}
- when: {lastUserContains: never end}
  steps:
  - toolCalls: [{tool: Shell, args: {command: "true"}}]
  repeat: true
- when: {lastUserContains: answer oddly}
  steps:
  - text: "   "
    toolCalls:
    - {tool: Shell, args: {command: "echo one"}, id: same}
    - {tool: Shell, args: {command: "echo two"}, id: same}
  - text: "\n \n"
    toolCalls: [{tool: Shell, args: {command: "echo three"}, id: same}]
  - {text: " ", fault: {show: empty, times: 1000}}
- when: {lastUserContains: are you there}
  steps:
  - text: I have read it.
- when: {lastUserContains: say hello}
  steps:
  - text: "Hello. 水水水"
"#;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "writes the recorded volumes; run once for each format"]
async fn record_session_volumes() {
    let to = PathBuf::from(std::env::var_os("YOI_RECORD_TO").expect("the folder to write to"));
    let written_by =
        std::process::Command::new("git").args(["rev-parse", "HEAD"]).current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    let written_by = String::from_utf8(written_by.stdout).unwrap().trim().to_owned();
    for case in &CASES {
        let folder = to.join(case.name);
        if folder.exists() {
            println!("{} is there and stays", case.name);
            continue;
        }
        let made = tempfile::tempdir().unwrap();
        make(case, made.path()).await;
        let padded = volume::store(made.path(), &folder.join("volume"));
        let copy = tempfile::tempdir().unwrap();
        volume::restore(&folder.join("volume"), &padded, copy.path());
        let opened = open(copy.path());
        let harness = Harness::new(NEXT_SCRIPT).await;
        volume::restore(&folder.join("volume"), &padded, &harness.session());
        let continued = continue_session(&harness, case, &opened).await;
        let expected = Expectation { written_by: written_by.clone(), padded, opened, continued };
        std::fs::write(folder.join("expected.json"), serde_json::to_string_pretty(&expected).unwrap() + "\n").unwrap();
        println!("{} is recorded", case.name);
    }
    println!("digest of the large segment: {}", large::digest(large::segment_of_this_version()));
}

/// Makes the volume of a case in the folder `to`.
async fn make(case: &RecordedCase, to: &Path) {
    match case.name {
        "every-kind" => every_kind(to, "OpenAI").await,
        "anthropic" => every_kind(to, "Anthropic").await,
        "odd-answers" => {
            let harness = Harness::new(SCRIPT).await;
            run_task(&harness, case, RunOutcome::Finished).await;
            keep(&harness, to);
        }
        "killed-in-a-tool" => {
            let harness = Harness::new(SCRIPT).await;
            kill_in_tool(&harness, 1, case.task).await;
            keep(&harness, to);
        }
        "stopped-in-a-tool" => {
            let harness = Harness::new(SCRIPT).await;
            let mut runtime = harness.start(1, case.task);
            wait_for_tool(&harness, 1).await;
            assert!(runtime.terminate().await.success());
            keep(&harness, to);
        }
        "killed-in-a-model-call" => {
            let harness = Harness::new(SCRIPT).await;
            let mut runtime = harness.start(1, case.task);
            harness.wait_until("the run", |entries| kinds(entries).ends_with("RunStarted")).await;
            runtime.kill();
            keep(&harness, to);
        }
        "restarted" => restarted(case, to).await,
        "restarted-after-a-torn-end" => {
            let harness = hello().await;
            tear(&volume::segment(&harness.session()), "RunEnded", |line| line / 2);
            let mut runtime = harness.start(2, case.task);
            harness.wait_for_runs(1).await;
            runtime.kill();
            keep(&harness, to);
        }
        "pending-messages" => keep(&busy_with_messages(case).await, to),
        "damaged-message" => {
            keep(&busy_with_messages(case).await, to);
            replace(&inbox_files(to)[0].1, "say hello", "say hallo");
        }
        "delivered-message-left" => {
            let harness = busy_with_messages(case).await;
            let (name, path) = inbox_files(&harness.session()).remove(0);
            let message = std::fs::read(path).unwrap();
            let mut runtime = harness.start(2, case.task);
            harness.wait_for_runs(2).await;
            runtime.kill();
            keep(&harness, to);
            // A crash between the entry and the removal of its message leaves the file.
            std::fs::write(to.join(name), message).unwrap();
        }
        "empty-session" => {
            let holder = Holder { run_generation: 1, pod_uid: "pod-1".to_owned() };
            let disk: Arc<dyn Disk> = Arc::new(RealDisk);
            let lock = Lock::take(disk, to, holder).unwrap();
            let log = Log::create(&lock, Uuid::now_v7(), Uuid::now_v7(), Preallocate::default()).unwrap();
            current::write(&lock, log.session(), log.segment()).unwrap();
        }
        "torn-json" => tear(&hello_at(to).await, "Assistant", |line| line / 2),
        "torn-append" => tear(&hello_at(to).await, "RunEnded", |line| line - 3),
        "torn-character" => torn_character(to).await,
        "torn-sector" => {
            let harness = Harness::new(&SCRIPT.replace("Hello. 水水水", &"Hello. ".repeat(300))).await;
            let mut runtime = harness.start(1, case.task);
            harness.wait_for_runs(1).await;
            runtime.kill();
            keep(&harness, to);
            torn_sector(&volume::segment(to));
        }
        "optional-kind" => {
            append_line(&hello_at(to).await, json!({ "kind": "Telepathy", "optional": true, "body": { "to": ["mars", 7] } }))
        }
        "unknown-kind" => append_line(&hello_at(to).await, json!({ "kind": "Telepathy", "body": { "to": ["mars", 7] } })),
        "damaged-byte" => replace(&hello_at(to).await, "RuntimeStarted", "RuntimeStarteD"),
        "damaged-last-line" => replace(&hello_at(to).await, "\"finished\"", "\"finisheD\""),
        "missing-line" => {
            let path = hello_at(to).await;
            let bytes = std::fs::read(&path).unwrap();
            let lines: Vec<_> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
            std::fs::write(&path, [&lines[..3], &lines[4..]].concat().concat()).unwrap();
        }
        "damaged-pointer" => {
            hello_at(to).await;
            replace(&to.join("current.json"), "\"session\"", "\"sessioN\"");
        }
        name => panic!("nothing makes {name}"),
    }
}

/// A harness whose agent has said hello and was killed.
async fn hello() -> Harness {
    let harness = Harness::new(SCRIPT).await;
    let mut runtime = harness.start(1, Some("say hello"));
    harness.wait_for_runs(1).await;
    runtime.kill();
    harness
}

/// Copies the volume of [`hello`] and returns its segment.
async fn hello_at(to: &Path) -> PathBuf {
    keep(&hello().await, to);
    volume::segment(to)
}

fn keep(harness: &Harness, to: &Path) {
    volume::restore(&harness.session(), &volume::Padded::new(), to);
}

fn peer() -> MessageSender {
    MessageSender { agent: Some(agent("b")), person: None }
}

async fn run_task(harness: &Harness, case: &RecordedCase, outcome: RunOutcome) {
    let mut runtime = harness.start(1, case.task);
    assert_eq!(outcomes(&harness.wait_for_runs(1).await), [outcome]);
    assert!(runtime.terminate().await.success());
}

async fn wait_for_tool(harness: &Harness, times: usize) {
    let begun = |_: &[Entry]| crate::harness::lines(&harness.tree().join("begun.txt")) == times;
    harness.wait_until("the start of the command", begun).await;
}

async fn kill_in_tool(harness: &Harness, generation: u64, task: Option<&str>) {
    let mut runtime = harness.start(generation, task);
    wait_for_tool(harness, 1).await;
    runtime.kill();
}

/// Every kind of entry, every outcome, every sender.
async fn every_kind(to: &Path, provider: &'static str) {
    let mut harness = Harness::new(SCRIPT).await;
    harness.provider = provider;
    harness.limits = json!({"turnsPerRun": 5, "toolSeconds": 30, "toolOutputBytes": 4096});
    harness.gateway.set_fates([SendFate::Delivered, SendFate::Unacknowledged]);
    let mut runtime = harness.start(1, Some("work through the list"));
    harness.wait_for_runs(1).await;
    let messages = [
        ("m1", peer(), "are you there?", 2),
        ("m2", person(), "try again 水", 3),
        ("m3", person(), "be refused", 4),
        ("m4", person(), "never end", 5),
    ];
    for (id, from, text, runs) in messages {
        harness.gateway.deliver(id, from, text).await;
        harness.wait_for_runs(runs).await;
    }
    harness.gateway.deliver("m5", person(), "wait in a tool").await;
    wait_for_tool(&harness, 1).await;
    runtime.kill();
    let mut runtime = harness.start(2, Some("work through the list"));
    let entries = harness.wait_for_runs(7).await;
    assert!(runtime.terminate().await.success());
    let all = [RunOutcome::Finished, RunOutcome::Failed, RunOutcome::LimitReached, RunOutcome::Interrupted];
    assert!(all.iter().all(|outcome| outcomes(&entries).contains(outcome)), "{:?}", outcomes(&entries));
    assert!(kinds(&entries).contains("Notice") && kinds(&entries).contains("PeerMessage"), "{}", kinds(&entries));
    keep(&harness, to);
}

/// Killed, torn, stopped and killed again.
async fn restarted(case: &RecordedCase, to: &Path) {
    let harness = Harness::new(SCRIPT).await;
    kill_in_tool(&harness, 1, case.task).await;
    tear(&volume::segment(&harness.session()), "ToolStarted", |line| line / 3);
    let mut runtime = harness.start(2, case.task);
    harness.wait_until("the second run", |entries| outcomes(entries).len() >= 2).await;
    assert!(runtime.terminate().await.success());
    let mut runtime = harness.start(3, case.task);
    harness.gateway.wait_for_report(|report| report.ready && report.run_generation == 3).await;
    harness.gateway.deliver("m1", person(), "wait in the model").await;
    harness.wait_until("the run", |entries| kinds(entries).ends_with("RunStarted")).await;
    assert!(runtime.terminate().await.success());
    let mut runtime = harness.start(3, case.task);
    harness.wait_until("the run", |entries| kinds(entries).ends_with("RuntimeStarted RunStarted")).await;
    runtime.kill();
    keep(&harness, to);
}

/// A harness whose agent was killed during a model call, with two messages in its inbox.
async fn busy_with_messages(case: &RecordedCase) -> Harness {
    let harness = Harness::new(SCRIPT).await;
    let mut runtime = harness.start(1, case.task);
    harness.wait_until("the run", |entries| kinds(entries).ends_with("RunStarted")).await;
    for (id, from) in [("m1", person()), ("m2", peer())] {
        assert!(harness.gateway.deliver(id, from, "say hello").await.0.is_success());
    }
    runtime.kill();
    harness
}

/// The messages in the inbox, oldest first.
fn inbox_files(root: &Path) -> Vec<(String, PathBuf)> {
    volume::files(root).into_iter().filter(|(name, _)| name.contains("/inbox/")).collect()
}

/// The agent was killed while a message that ends in a letter of three bytes was logged.
async fn torn_character(to: &Path) {
    let harness = Harness::new(SCRIPT).await;
    let mut runtime = harness.start(1, None);
    harness.gateway.wait_for_report(|report| report.ready).await;
    harness.gateway.deliver("m1", person(), "say hello").await;
    harness.wait_for_runs(1).await;
    runtime.kill();
    keep(&harness, to);
    let path = volume::segment(to);
    let bytes = std::fs::read(&path).unwrap();
    let letter = bytes.windows(3).rposition(|three| three == "水".as_bytes()).unwrap();
    std::fs::write(&path, &bytes[..letter + 2]).unwrap();
}

/// Cuts the last line of a kind, and what follows it, as an append that was not finished. `kept` returns how much of the line's length stays.
/// What follows reads as zeros.
fn tear(path: &Path, kind: &str, kept: impl Fn(usize) -> usize) {
    let mut bytes = std::fs::read(path).unwrap();
    let kind = format!("\"kind\":\"{kind}\"");
    let at = bytes.windows(kind.len()).rposition(|window| window == kind.as_bytes()).unwrap();
    let start = bytes[..at].iter().rposition(|byte| *byte == b'\n').unwrap() + 1;
    let len = bytes[start..].iter().position(|byte| *byte == b'\n').unwrap();
    bytes[start + kept(len)..].fill(0);
    std::fs::write(path, bytes).unwrap();
}

/// Leaves out the second sector of the last answer, as a power cut may.
fn torn_sector(path: &Path) {
    let mut bytes = std::fs::read(path).unwrap();
    let answer = bytes.windows(18).rposition(|window| window == br#""kind":"Assistant""#).unwrap();
    let sector = answer.next_multiple_of(512);
    bytes[sector..sector + 512].fill(0);
    std::fs::write(path, bytes).unwrap();
}

/// Appends an entry that this version does not write.
fn append_line(path: &Path, kind_and_body: serde_json::Value) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes.truncate(bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1);
    let last = bytes[..bytes.len() - 1].rsplit(|byte| *byte == b'\n').next().unwrap();
    let mut entry: serde_json::Value = serde_json::from_slice(last).unwrap();
    let seq = entry["seq"].as_u64().unwrap() + 1;
    let object = entry.as_object_mut().unwrap();
    object.remove("crc");
    object.extend([("seq".to_owned(), seq.into()), ("batch".to_owned(), seq.into())]);
    object.extend(kind_and_body.as_object().unwrap().clone());
    frame::encode(&entry, &mut bytes).unwrap();
    std::fs::write(path, bytes).unwrap();
}

/// Replaces the first `old` by `new` of the same length.
fn replace(path: &Path, old: &str, new: &str) {
    let mut bytes = std::fs::read(path).unwrap();
    let at = bytes.windows(old.len()).position(|window| window == old.as_bytes()).unwrap();
    bytes[at..at + old.len()].copy_from_slice(new.as_bytes());
    std::fs::write(path, bytes).unwrap();
}
