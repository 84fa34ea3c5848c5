//! What people ask of a running agent, and what they see of it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use http::StatusCode;
use serde_json::json;
use tokio::sync::watch;
use yoi_test_support::{eventually, in_time};
use yoi_wire::control::{AttachLine, ControlAction, ControlReason, ControlRequest, ControlResponse, DeltaKind, RewindTargets};
use yoi_wire::entry::{Body, Entry, RunOutcome, SegmentReason};
use yoi_wire::hub::{Activity, TaskState, runtime_api};

use crate::harness::{EXAMPLE, Harness, kinds, outcomes, texts, tool_ends};

pub async fn ask(harness: &Harness, id: &str, action: ControlAction) -> ControlResponse {
    ask_json(harness, &serde_json::to_value(ControlRequest { id: id.to_owned(), action }).unwrap()).await
}

async fn ask_json(harness: &Harness, request: &serde_json::Value) -> ControlResponse {
    let look = async || {
        let (status, body) = harness.gateway.request_as("jane", "POST", runtime_api::CONTROL, request.to_string()).await;
        // The line may be up before the session is replayed.
        (status != StatusCode::SERVICE_UNAVAILABLE).then_some((status, body))
    };
    let (status, body) = eventually("an open session", look).await;
    assert_eq!(status, StatusCode::OK, "{body:?}");
    serde_json::from_slice(&body).unwrap()
}

async fn refusal(harness: &Harness, id: &str, action: ControlAction) -> Option<ControlReason> {
    ask(harness, id, action).await.refused.map(|refused| refused.reason)
}

/// Programs that work in the agent's tree.
pub fn programs_in(tree: &Path) -> usize {
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(|entry| std::fs::read_link(entry.ok()?.path().join("cwd")).ok());
    processes.filter(|cwd| cwd == tree).count()
}

async fn at_the_slow_command() -> (Harness, crate::harness::Runtime) {
    let harness = Harness::new(EXAMPLE).await;
    let runtime = harness.start(1, Some("run the slow command"));
    harness.wait_until("the start of the command", |_| harness.tree().join("begun.txt").exists()).await;
    (harness, runtime)
}

#[tokio::test(flavor = "multi_thread")]
async fn e4_e5_a_pause_ends_the_tools_processes_and_another_run_goes_on_from_there() {
    let (harness, mut runtime) = at_the_slow_command().await;
    let tree = harness.tree().canonicalize().unwrap();
    assert!(programs_in(&tree) > 0);
    assert!(ask(&harness, "p", ControlAction::Pause {}).await.done.is_some());
    assert_eq!(programs_in(&tree), 0);
    assert!(kinds(&harness.entries()).ends_with("ToolStarted ToolEnded Paused"), "{}", kinds(&harness.entries()));
    harness.gateway.wait_for_report(|report| report.activity == Activity::Paused).await;
    // It stays paused over a restart.
    runtime.kill();
    harness.gateway.forget_line();
    let _runtime = harness.start(1, Some("run the slow command"));
    assert_eq!(refusal(&harness, "c", ControlAction::Compact {}).await, Some(ControlReason::Paused));
    assert!(ask(&harness, "r", ControlAction::Run { text: "say hello".to_owned() }).await.done.is_some());
    let entries = harness.wait_for_runs(1).await;
    assert_eq!((outcomes(&entries), texts(&entries).last().unwrap().as_str()), (vec![RunOutcome::Finished], "Hello."));
    assert!(!harness.tree().join("ended.txt").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn e11_a_rewind_hides_what_came_from_that_input_on_and_cuts_nothing_from_the_log() {
    let harness = Harness::new("rules: [{repeat: true, steps: [{text: done}]}]").await;
    let mut runtime = harness.start(1, None);
    harness.gateway.wait_for_report(|report| report.ready).await;
    for (n, text) in ["apples", "pears"].into_iter().enumerate() {
        ask(&harness, text, ControlAction::Run { text: text.to_owned() }).await;
        harness.wait_for_runs(n + 1).await;
    }
    let targets = async |id: &str| ask(&harness, id, ControlAction::RewindTargets {}).await.done.unwrap().rewind.unwrap();
    let RewindTargets { segment, head, inputs } = targets("t").await;
    let to_second = |head| ControlAction::RewindTo { segment: segment.clone(), seq: inputs[1].seq, head };
    assert_eq!(refusal(&harness, "w", to_second(head - 1)).await, Some(ControlReason::HeadChanged));
    let before = harness.entries();
    let done = ask(&harness, "b", to_second(head)).await.done.unwrap();
    assert_eq!(done.input.as_deref(), Some("pears"));
    assert_eq!(harness.entries().get(..before.len()), Some(before.as_slice()), "the rewind has changed what was in the log");
    assert_eq!(targets("u").await.inputs.len(), 1);
    // The same after a restart.
    runtime.kill();
    harness.gateway.forget_line();
    let _runtime = harness.start(2, None);
    ask(&harness, "plums", ControlAction::Run { text: "plums".to_owned() }).await;
    let entries = harness.wait_for_runs(3).await;
    assert_eq!(entries.get(..before.len()), Some(before.as_slice()), "the restart has changed what was in the log");
    let request = harness.requests.lock().unwrap().last().unwrap().to_string();
    assert!(request.contains("apples") && request.contains("plums") && !request.contains("pears"), "{request}");
}

#[tokio::test(flavor = "multi_thread")]
async fn e9_of_an_input_kind_of_a_newer_client_the_asker_is_told_and_the_model_reads_a_placeholder() {
    let harness = Harness::new("rules: [{steps: [{text: done}]}]").await;
    let _runtime = harness.start(1, None);
    harness.gateway.wait_for_report(|report| report.ready).await;
    let parts = json!([{"type": "image", "mediaType": "image/png", "data": "aGk="}, {"type": "audio"}]);
    let request = json!({"id": "r", "action": {"type": "run", "text": "what is this?", "parts": parts}});
    let answer = ask_json(&harness, &request).await;
    let message = &answer.done.as_ref().unwrap().message;
    assert!(message.ends_with("because this version does not know them: image, audio"), "{message}");
    let entries = harness.wait_for_runs(1).await;
    let inputs: Vec<_> =
        entries.iter().filter_map(|entry| if let Body::Input(input) = &entry.body { Some(&input.text) } else { None }).collect();
    let left = |kind: &str| format!("\n[Here was a part of kind {kind}, which this version of Yoi cannot take.]");
    assert_eq!(inputs, [&format!("what is this?{}{}", left("image"), left("audio"))]);
    assert_eq!(ask_json(&harness, &request).await, answer, "the same request gets the same answer");
}

#[tokio::test(flavor = "multi_thread")]
async fn p33_a_cancel_leaves_no_process_and_the_task_has_failed_also_after_a_restart() {
    let (harness, mut runtime) = at_the_slow_command().await;
    assert_eq!(refusal(&harness, "r", ControlAction::Run { text: "more".to_owned() }).await, Some(ControlReason::AlreadyRunning));
    let done = ask(&harness, "c", ControlAction::Cancel {}).await;
    assert!(done.done.is_some());
    assert_eq!(programs_in(&harness.tree().canonicalize().unwrap()), 0, "a process of the tool works on");
    let entries = harness.entries();
    assert_eq!((outcomes(&entries), tool_ends(&entries).len()), (vec![RunOutcome::Cancelled], 1));
    let failed = |report: &yoi_wire::hub::RuntimeReport| report.task.as_ref().is_some_and(|task| task.state == TaskState::Failed);
    harness.gateway.wait_for_report(failed).await;
    runtime.kill();
    harness.gateway.forget_line();
    let _runtime = harness.start(2, Some("run the slow command"));
    assert_eq!(ask(&harness, "c", ControlAction::Cancel {}).await, done, "the same request gets the same answer");
    assert_eq!(refusal(&harness, "d", ControlAction::Cancel {}).await, Some(ControlReason::NotRunning));
    assert_eq!(outcomes(&harness.entries()).len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn e3_a_pause_before_any_answer_hands_the_input_back() {
    let harness = Harness::new("rules: [{steps: [{text: done, delayMs: 600000}]}]").await;
    let _runtime = harness.start(1, None);
    harness.gateway.wait_for_report(|report| report.ready).await;
    ask(&harness, "r", ControlAction::Run { text: "think".to_owned() }).await;
    let done = ask(&harness, "p", ControlAction::Pause {}).await.done.unwrap();
    assert_eq!(done.input.as_deref(), Some("think"));
    assert!(kinds(&harness.entries()).ends_with("RolledBack RunEnded"));
    // The answer is there a moment before the agent is idle.
    assert_eq!(harness.wait_for_usage(|usage| usage.activity == Activity::Idle).await.turns, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn p30_a_request_that_is_none_is_invalid_and_nothing_is_logged() {
    let harness = Harness::new(EXAMPLE).await;
    let _runtime = harness.start(1, None);
    harness.gateway.wait_for_report(|report| report.ready).await;
    let before = harness.entries().len();
    // The last but one is of a kind that only the runtime writes.
    for action in [
        json!({"type": "teleport"}),
        json!({"type": "pause", "hard": true}),
        json!({"type": "run"}),
        json!({"type": "RunEnded", "runId": "run-1"}),
        json!("run"),
    ] {
        let body = json!({"id": "x", "action": action}).to_string();
        let (status, body) = harness.gateway.request_as("jane", "POST", runtime_api::CONTROL, body).await;
        let response: ControlResponse = serde_json::from_slice(&body).unwrap();
        assert_eq!((status, response.refused.unwrap().reason), (StatusCode::BAD_REQUEST, ControlReason::Invalid));
    }
    let long = json!({"id": "x", "action": {"type": "run", "text": "x".repeat(65_537)}}).to_string();
    assert_eq!(harness.gateway.request_as("jane", "POST", runtime_api::CONTROL, long).await.0, StatusCode::PAYLOAD_TOO_LARGE);
    let nobody = json!({"id": "x", "action": {"type": "pause"}}).to_string();
    assert_eq!(harness.gateway.request("POST", runtime_api::CONTROL, nobody).await.0, StatusCode::BAD_REQUEST);
    assert_eq!(harness.entries().len(), before);
    let (status, _) = harness.gateway.request("GET", &format!("{}?after=x", runtime_api::ATTACH), Bytes::new()).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
}

fn entries_of(lines: &[AttachLine]) -> Vec<Entry> {
    let entries = lines.iter().filter_map(|line| match line {
        AttachLine::Entry { entry, .. } => Some((**entry).clone()),
        _ => None,
    });
    entries.collect()
}

/// Attaches at many moments of an answer: what was there of it and what came live together are its text.
#[tokio::test(flavor = "multi_thread")]
async fn f8_who_attaches_during_an_answer_gets_each_piece_of_it_once() {
    // Fewer pieces than the feed holds for a client: a slow machine may deliver many at once.
    let text: String = (0..250).map(|n| format!("word{n} ")).collect();
    let script = json!({"rules": [{"steps": [{"text": text, "chunkDelayMs": 6}]}]}).to_string();
    let harness = Harness::new(&script).await;
    let _runtime = harness.start(1, None);
    harness.gateway.wait_for_report(|report| report.ready).await;
    ask(&harness, "r", ControlAction::Run { text: "go".to_owned() }).await;
    // Each attaches when the first one has got so many bytes.
    let (shown, _) = watch::channel(0);
    let clients = (0..30).map(|n| {
        let (gateway, shown) = (harness.gateway.clone(), &shown);
        let moment = n * text.len() / 32;
        async move {
            shown.subscribe().wait_for(|bytes| *bytes >= moment).await.unwrap();
            let (mut stream, mut seen) = (gateway.attach("").await, String::new());
            loop {
                for line in stream.next().await {
                    match line {
                        AttachLine::Delta(delta) if delta.kind == DeltaKind::Text => {
                            assert_eq!(delta.offset as usize, seen.len(), "a piece of the answer is missing or comes twice");
                            seen.push_str(&delta.text);
                            shown.send_if_modified(|bytes| std::mem::replace(bytes, seen.len().max(*bytes)) < seen.len());
                        }
                        AttachLine::Entry { entry, .. } => {
                            if let Body::Assistant(answer) = &entry.body {
                                shown.send_replace(usize::MAX);
                                return (seen, answer.text.clone());
                            }
                        }
                        _ => {}
                    }
                }
            }
        }
    });
    let attached = in_time("all that is attached", futures::future::join_all(clients)).await;
    for (seen, answer) in &attached {
        assert!(*answer == text && (seen.is_empty() || seen == answer), "{seen:?}");
    }
    let during = attached.iter().filter(|(seen, _)| !seen.is_empty()).count();
    assert!(during > 3, "only {during} came during the answer");
}

/// Attaches at many moments of a run: what was there and what came live together are the log, each entry once and in order.
#[tokio::test(flavor = "multi_thread")]
async fn f8_p63_who_attaches_during_a_run_gets_each_entry_once_and_goes_on_by_token() {
    let steps: String =
        (0..15).map(|n| format!("  - {{toolCalls: [{{tool: Shell, args: {{command: echo {n}}}}}], delayMs: 20}}\n")).collect();
    let harness = Harness::new(&format!("rules:\n- steps:\n{steps}  - text: done\n")).await;
    let mut runtime = harness.start(1, None);
    harness.gateway.wait_for_report(|report| report.ready).await;
    ask(&harness, "r", ControlAction::Run { text: "go".to_owned() }).await;
    let ended = |entry: &Entry| matches!(entry.body, Body::RunEnded(_));
    let clients = (0..24).map(|n| {
        let (gateway, harness) = (harness.gateway.clone(), &harness);
        async move {
            harness.wait_until("the moment to attach", |entries| entries.len() >= 2 * n).await;
            let mut lines = Vec::new();
            let mut first = gateway.attach("").await;
            // Leaves in the middle and goes on by the last token.
            while entries_of(&lines).len() < 5 + n % 3 {
                lines.extend(first.next().await);
            }
            let token =
                lines.iter().rev().find_map(|line| if let AttachLine::Entry { token, .. } = line { Some(token.clone()) } else { None });
            drop(first);
            let mut second = gateway.attach(&format!("after={}", token.unwrap())).await;
            while !entries_of(&lines).last().is_some_and(ended) {
                lines.extend(second.next().await);
            }
            lines
        }
    });
    let attached = in_time("all that is attached", futures::future::join_all(clients)).await;
    let log = harness.entries();
    for lines in attached {
        assert_eq!(entries_of(&lines), log);
        assert!(matches!(&lines[0], AttachLine::Greeting { .. }));
    }
    assert!(runtime.terminate().await.success());
}

/// The bytes of each segment of each session, by path.
fn segments(harness: &Harness) -> BTreeMap<PathBuf, Vec<u8>> {
    let files = |folder: &Path| std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
    let all = files(&harness.session().join("sessions")).into_iter().flat_map(|session| files(&session)).filter(|path| path.is_file());
    all.map(|path| (path.clone(), std::fs::read(path).unwrap())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn f9_p45_who_reads_nothing_is_told_that_it_is_behind_goes_on_by_token_and_slows_nobody() {
    // More than the windows of a line hold, in more pieces than wait for a client.
    let steps = "[{toolCalls: [{tool: Shell, args: {command: yes | head -c 33554432}}]}, {text: done}]";
    let harness = Harness::new(&format!("rules: [{{steps: {steps}}}]")).await;
    let _runtime = harness.start(1, None);
    harness.gateway.wait_for_report(|report| report.ready).await;
    let mut lazy = harness.gateway.attach("").await;
    ask(&harness, "r", ControlAction::Run { text: "go".to_owned() }).await;
    let log = harness.wait_for_runs(1).await;
    assert_eq!(outcomes(&log), [RunOutcome::Finished], "the run does not wait for its client");
    assert_eq!(harness.gateway.log("").await.len(), log.len(), "a reader of the log is never cut off");
    let mut lines = Vec::new();
    while !matches!(lines.last(), Some(AttachLine::Behind {})) {
        lines.extend(lazy.next().await);
    }
    assert!(entries_of(&lines).len() < log.len());
    let token = lines.iter().rev().find_map(|line| if let AttachLine::Entry { token, .. } = line { Some(token.clone()) } else { None });
    let mut again = harness.gateway.attach(&format!("after={}", token.unwrap())).await;
    while entries_of(&lines).len() < log.len() {
        lines.extend(again.next().await);
    }
    assert_eq!(entries_of(&lines), log);
}

#[tokio::test(flavor = "multi_thread")]
async fn f10_who_is_attached_when_a_compaction_ends_learns_of_the_new_segment_and_gets_what_it_carries() {
    let summary = "{when: {lastUserContains: SUMMARY}, steps: [{text: short}]}".replace("SUMMARY", "about to be replaced by your summary");
    let harness = Harness::new(&format!("rules: [{summary}, {{steps: [{{text: done}}]}}]")).await;
    let _runtime = harness.start(1, None);
    harness.gateway.wait_for_report(|report| report.ready).await;
    for id in ["r1", "r2", "r3"] {
        ask(&harness, id, ControlAction::Run { text: "a long story ".repeat(1000) }).await;
        harness.wait_for_runs(id[1..].parse().unwrap()).await;
    }
    let before = segments(&harness);
    let mut attached = harness.gateway.attach("tail=0").await;
    assert_eq!(ask(&harness, "c", ControlAction::Compact {}).await.done.unwrap().message, "the conversation was compacted");
    let mut lines = Vec::new();
    while !entries_of(&lines).last().is_some_and(|entry| matches!(entry.body, Body::Carried(_))) {
        lines.extend(attached.next().await);
    }
    let AttachLine::Greeting { session, segment, .. } = &lines[0] else { panic!("{:?}", lines[0]) };
    let rotated = lines.iter().position(|line| matches!(line, AttachLine::Rotated { .. })).unwrap();
    let AttachLine::Rotated { segment: new } = &lines[rotated] else { unreachable!() };
    let carried = entries_of(&lines[rotated..]);
    let Body::SegmentStarted(head) = &carried[0].body else { panic!("{:?}", carried[0]) };
    assert_eq!((head.reason, &head.previous.as_ref().unwrap().segment), (SegmentReason::Compacted, segment));
    assert!(kinds(&carried).starts_with("SegmentStarted Carried"), "{}", kinds(&carried));
    let after = segments(&harness);
    for (path, bytes) in &before {
        let written = &bytes[..bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1];
        assert!(after[path].starts_with(written), "{} is kept", path.display());
    }
    assert!(after.keys().any(|path| path.file_stem().is_some_and(|name| name == new.as_str())), "{new}");
    let mut again = harness.gateway.attach("tail=0").await;
    let greeting = again.next().await.remove(0);
    assert!(matches!(&greeting, AttachLine::Greeting { session: s, segment: g, .. } if s == session && g == new), "{greeting:?}");
}
