//! Session volumes that earlier versions wrote are read as they were meant, and go on.
//!
//! `tests/recorded-logs/format-1` holds a folder for each case: `volume` is the session volume, `expected.json` what the version that wrote it
//! made of it. Neither file is ever written again. A later format gets a folder of its own.

mod expectation;
mod large;
mod recorder;
mod volume;

use std::path::{Path, PathBuf};

use futures::StreamExt;
use serde_json::Value;
use yoi_wire::entry::{Body, Entry, RunOutcome};

use crate::gateway::person;
use crate::harness::{Harness, kinds, outcomes};
use expectation::{Continued, Expectation, Opened, Replayed, open, projection_json};

/// Run generation of the runtime that goes on with a volume: later than each that wrote it.
const NEXT_GENERATION: u64 = 1000;
/// Whatever the model is asked, it has nothing to do.
const NEXT_SCRIPT: &str = "rules:\n- steps:\n  - text: I go on.\n  repeat: true\n";

struct RecordedCase {
    name: &'static str,
    /// The task that the agent still has when its runtime starts again.
    task: Option<&'static str>,
    /// Whether the runtime finishes a run by itself at its start: it goes on with it, or adds the end that the log lacks.
    finishes_run: bool,
}

const fn case(name: &'static str, task: Option<&'static str>, finishes_run: bool) -> RecordedCase {
    RecordedCase { name, task, finishes_run }
}

const CASES: [RecordedCase; 22] = [
    case("every-kind", Some("work through the list"), false),
    case("anthropic", Some("work through the list"), false),
    case("odd-answers", Some("answer oddly"), false),
    case("killed-in-a-tool", Some("wait in a tool"), true),
    case("killed-in-a-model-call", Some("wait in the model"), true),
    case("stopped-in-a-tool", Some("wait in a tool"), true),
    case("restarted", Some("wait in a tool"), true),
    case("restarted-after-a-torn-end", Some("say hello"), false),
    case("pending-messages", Some("wait in the model"), true),
    case("delivered-message-left", Some("wait in the model"), false),
    case("empty-session", None, false),
    case("torn-json", Some("say hello"), true),
    case("torn-character", None, true),
    case("torn-append", Some("say hello"), true),
    case("torn-sector", Some("say hello"), true),
    case("optional-kind", Some("say hello"), false),
    case("damaged-byte", Some("say hello"), false),
    case("damaged-last-line", Some("say hello"), false),
    case("missing-line", Some("say hello"), false),
    case("damaged-message", Some("wait in the model"), false),
    case("damaged-pointer", Some("say hello"), false),
    case("unknown-kind", Some("say hello"), false),
];

fn folder(case: &RecordedCase) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded-logs/format-1").join(case.name)
}

fn expectation(case: &RecordedCase) -> Expectation {
    serde_json::from_slice(&std::fs::read(folder(case).join("expected.json")).unwrap()).unwrap()
}

#[test]
fn every_recorded_volume_has_a_case() {
    let root = folder(&CASES[0]);
    let mut recorded: Vec<_> =
        std::fs::read_dir(root.parent().unwrap()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    let mut listed: Vec<_> = CASES.iter().map(|case| case.name.to_owned()).collect();
    recorded.sort();
    listed.sort();
    assert_eq!(recorded, listed);
}

#[test]
fn p31_f15_every_recorded_volume_opens_as_the_version_that_wrote_it_opened_it() {
    for case in &CASES {
        let expected = expectation(case);
        let dir = tempfile::tempdir().unwrap();
        volume::restore(&folder(case).join("volume"), &expected.padded, dir.path());
        let opened = open(dir.path());
        assert_eq!(opened, expected.opened, "{}", case.name);
        // Opening cut what was torn and changed nothing else.
        let opened_and_cut = match opened {
            Opened::Replayed(replayed) => Opened::Replayed(Box::new(Replayed { cut_bytes: 0, ..*replayed })),
            refused @ Opened::Refused { .. } => refused,
        };
        assert_eq!(open(dir.path()), opened_and_cut, "{}", case.name);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn f15_every_recorded_volume_goes_on_and_the_model_reads_what_it_always_read() {
    futures::stream::iter(&CASES)
        .for_each_concurrent(4, async |case| {
            let expected = expectation(case);
            let harness = Harness::new(NEXT_SCRIPT).await;
            volume::restore(&folder(case).join("volume"), &expected.padded, &harness.session());
            let continued = continue_session(&harness, case, &expected.opened).await;
            assert_eq!(
                continued.map(|all| what_is_read(case, all)),
                expected.continued.map(|all| what_is_read(case, all)),
                "{}",
                case.name
            );
        })
        .await;
}

/// Starts the runtime on the harness's session volume and sends it one more message. `None` when it refuses the volume.
async fn continue_session(harness: &Harness, case: &RecordedCase, opened: &Opened) -> Option<Continued> {
    let (count, projection) = match opened {
        Opened::Replayed(replayed) => (replayed.entries, &replayed.projection),
        Opened::Refused { reason, .. } => {
            let before = volume_bytes(&harness.session());
            let mut runtime = harness.start(NEXT_GENERATION, case.task);
            harness.gateway.wait_for_report(|report| !report.ready && report.reason.as_str() == reason).await;
            assert!(runtime.terminate().await.success());
            assert_eq!(volume_bytes(&harness.session()), before, "{}: a refused volume is left as it is", case.name);
            return None;
        }
    };
    let recorded = harness.entries();
    let mut runtime = harness.start(NEXT_GENERATION, case.task);
    let finished = |wanted: usize| {
        move |entries: &[yoi_wire::entry::Entry]| {
            let new = outcomes(entries.get(count..).unwrap_or_default());
            new.into_iter().filter(|outcome| *outcome == RunOutcome::Finished).count() == wanted
        }
    };
    harness.gateway.wait_for_report(|report| report.ready).await;
    harness.wait_until("the run that goes on", finished(usize::from(case.finishes_run))).await;
    let (status, body) = harness.gateway.deliver("next", person(), "go on").await;
    assert!(status.is_success(), "{}: {body:?}", case.name);
    let entries = harness.wait_until("the next run", finished(usize::from(case.finishes_run) + 1)).await;
    assert!(runtime.terminate().await.success());
    assert_eq!(entries[..count], recorded[..count], "{}: recorded entries are left as they are", case.name);
    assert_eq!(projection_json(&entries[..count]), *projection, "{}", case.name);
    let request = harness.requests.lock().unwrap().last().unwrap().clone();
    let messages =
        request["messages"].as_array().unwrap().iter().filter(|message| message["role"] != "system").cloned().collect::<Vec<Value>>();
    // Since format 2 a session goes on in a segment with a head. What the expectation names comes after it, as ever.
    let is_head = |entry: &&Entry| matches!(entry.body, Body::SegmentStarted(_) | Body::Carried(_));
    let (heads, rest): (Vec<&Entry>, Vec<&Entry>) = entries[count..].iter().partition(is_head);
    assert_eq!(heads.first().map(|head| head.body.kind()), Some("SegmentStarted"), "{}", case.name);
    let rest: Vec<Entry> = rest.into_iter().cloned().collect();
    Some(Continued { kinds: kinds(&rest), messages })
}

/// What the model reads, apart from how the wire format writes it: texts of users that follow each other are one, and
/// blank text is none: endpoints refuse it, so it is not sent any more. `odd-answers` has calls with one id; they get other ids now.
fn what_is_read(case: &RecordedCase, continued: Continued) -> Continued {
    let mut messages: Vec<Value> = Vec::new();
    for mut message in continued.messages {
        let text = message["content"].as_str().unwrap_or_default().to_owned();
        match messages.last_mut().filter(|last| last["role"] == "user" && message["role"] == "user") {
            Some(last) => last["content"] = format!("{}\n\n{text}", last["content"].as_str().unwrap_or_default()).into(),
            None => {
                message["content"] = if text.trim().is_empty() { String::new() } else { text }.into();
                if case.name == "odd-answers" {
                    message.as_object_mut().unwrap().remove("tool_call_id");
                    for call in message.get_mut("tool_calls").and_then(Value::as_array_mut).into_iter().flatten() {
                        call.as_object_mut().unwrap().remove("id");
                    }
                }
                messages.push(message);
            }
        }
    }
    Continued { messages, ..continued }
}

/// All files of a volume but the lock, which names who has tried.
fn volume_bytes(root: &Path) -> Vec<(String, Vec<u8>)> {
    let files = volume::files(root).into_iter().filter(|(name, _)| name != "lock");
    files.map(|(name, path)| (name, std::fs::read(path).unwrap())).collect()
}
