//! Full and broken disks of the session and of the tree.

use std::time::Duration;

use http::StatusCode;
use serde_json::json;
use yoi_wire::entry::{RunOutcome, ToolOutcome};
use yoi_wire::hub::{Refusal, ReportReason};

use super::invariants::{assert_invariants, assert_user_sentence, check_acknowledged, check_no_duplicates, check_runs_match_log};
use super::loop_volume::LoopVolume;
use crate::gateway::person;
use crate::harness::{Harness, kinds, outcomes, texts, tool_ends};

/// For how long the gateway waits until a runtime has taken a message.
const GATEWAY_PATIENCE: Duration = Duration::from_secs(10);

const ECHO: &str = "rules: [{steps: [{text: Hello.}]}]";

/// Delivers `count` messages. Returns the acknowledged ids and the refusals.
pub async fn deliver_all(harness: &Harness, prefix: &str, count: usize) -> (Vec<String>, Vec<Refusal>) {
    let (mut acknowledged, mut refused) = (Vec::new(), Vec::new());
    for n in 0..count {
        let id = format!("{prefix}-{n}");
        let text = "words ".repeat(1000);
        // Then the gateway would tell the sender that the outcome is unknown.
        let answer = tokio::time::timeout(GATEWAY_PATIENCE, harness.gateway.deliver(&id, person(), &text)).await;
        let (status, body) = answer.expect("the gateway has waited in vain");
        if status == StatusCode::OK { acknowledged.push(id) } else { refused.push(serde_json::from_slice(&body).unwrap()) }
    }
    (acknowledged, refused)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_with_a_full_session_volume_refuses_messages_reports_it_and_notices_free_space() {
    let harness = Harness::new(ECHO).await;
    let Some(volume) = LoopVolume::over(&harness.session(), 8) else { return };
    let mut runtime = harness.start(1, None);
    harness.gateway.wait_for_report(|report| report.ready).await;
    for round in ["first", "second"] {
        let (mut acknowledged, none) = deliver_all(&harness, &format!("{round}-before"), 2).await;
        assert!(none.is_empty(), "{none:?}");
        harness.wait_for_runs(if round == "first" { 1 } else { 3 }).await;
        volume.fill();
        let (more, refused) = deliver_all(&harness, &format!("{round}-full"), 5).await;
        acknowledged.extend(more);
        assert!(!refused.is_empty());
        for refusal in &refused {
            assert!(refusal.message.starts_with("the message was not taken: the session volume is full: "), "{refusal:?}");
            assert_user_sentence(&refusal.message);
        }
        let report = harness.gateway.wait_for_report(|report| report.reason == ReportReason::DiskFull).await;
        assert!(!report.ready && report.message.contains("No space left on device; make room there"), "{report:?}");
        assert!(!harness.gateway.log("").await.is_empty());
        let seen = harness.gateway.reports().len();
        volume.make_room();
        harness.wait_until("the report of free space", |_| harness.gateway.reports()[seen..].iter().any(|report| report.ready)).await;
        let (after, refused) = deliver_all(&harness, &format!("{round}-after"), 2).await;
        assert_eq!((after.len(), refused.len()), (2, 0));
        acknowledged.extend(after);
        harness.wait_until("the messages", |entries| check_acknowledged(entries, &acknowledged).is_ok()).await;
    }
    assert!(runtime.terminate().await.success());
    assert_invariants(&harness);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_starts_on_a_full_session_volume_is_not_ready_before_there_is_room() {
    let harness = Harness::new(ECHO).await;
    let Some(volume) = LoopVolume::over(&harness.session(), 8) else { return };
    let mut runtime = harness.start(1, None);
    harness.gateway.wait_for_report(|report| report.ready).await;
    harness.stop(&mut runtime).await;
    volume.fill();
    harness.gateway.forget_line();
    let before = harness.gateway.reports().len();
    let mut runtime = harness.start(2, None);
    let is_full = |report: &yoi_wire::hub::RuntimeReport| report.reason == ReportReason::DiskFull;
    harness.wait_until("the report", |_| harness.gateway.reports()[before..].iter().any(is_full)).await;
    assert!(harness.gateway.reports()[before..].iter().all(|report| !report.ready), "{:?}", &harness.gateway.reports()[before..]);
    volume.make_room();
    harness.gateway.wait_for_report(|report| report.ready && report.run_generation == 2).await;
    assert!(runtime.terminate().await.success());
}

/// A script of calls that fill the log. Each adds a line to a file in the tree, and all but the first wait for another file there: what is done to the
/// volume meanwhile meets something left to write.
fn waiting_calls(file: &str, calls: usize) -> String {
    let command = format!("[ ! -e ran ] || until [ -e {file} ]; do sleep 0.1; done; echo ran >> ran; head -c 150000 /dev/urandom | base64");
    script_of_calls(&command, calls)
}

/// A script that calls the shell with `command` in each of `calls` turns.
fn script_of_calls(command: &str, calls: usize) -> String {
    let call = format!("  - toolCalls: [{{tool: Shell, args: {{command: '{command}'}}}}]\n").repeat(calls);
    format!("rules:\n- steps:\n{call}  - text: done\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_volume_that_fills_up_in_a_run_pauses_the_run_until_there_is_free_space() {
    let limits = json!({"turnsPerRun": 40, "toolSeconds": 30, "toolOutputBytes": 262_144});
    let harness = Harness { limits, ..Harness::new(&waiting_calls("full", 12)).await };
    let Some(volume) = LoopVolume::over(&harness.session(), 24) else { return };
    let mut runtime = harness.start(1, Some("go"));
    harness.wait_until("a call", |entries| !tool_ends(entries).is_empty()).await;
    volume.fill();
    std::fs::write(harness.tree().join("full"), "").unwrap();
    let report = harness.gateway.wait_for_report(|report| report.reason == ReportReason::DiskFull).await;
    assert_user_sentence(&report.message);
    assert!(report.message.contains("the agent goes on by itself"), "{}", report.message);
    // No call runs, but the log can be read and the agent stopped.
    let at = harness.entries().len();
    harness.gateway.log("tail=3").await;
    let (acknowledged, refused) = deliver_all(&harness, "full", 3).await;
    assert!(!refused.is_empty());
    let reports = harness.gateway.reports().len();
    harness.wait_until("another try", |_| harness.stderr().matches("session not usable").count() > 3).await;
    assert_eq!(harness.entries().len(), at);
    // No report is ready in between, so the gateway does not write the object again and again.
    assert!(harness.gateway.reports()[reports..].iter().all(|report| !report.ready), "{:?}", &harness.gateway.reports()[reports..]);
    harness.stop(&mut runtime).await;

    // An agent that starts on a full volume reports it, waits, and goes on.
    harness.gateway.forget_line();
    let before = harness.gateway.reports().len();
    let mut runtime = harness.start(2, Some("go"));
    harness
        .wait_until("the report", |_| harness.gateway.reports()[before..].iter().any(|report| report.reason == ReportReason::DiskFull))
        .await;
    harness.gateway.log("tail=3").await;
    volume.make_room();
    let entries = harness.wait_until("the end", |entries| texts(entries).last().is_some_and(|text| text == "done")).await;
    assert!(outcomes(&entries).contains(&RunOutcome::Finished), "{}", kinds(&entries));
    check_runs_match_log(&entries, &harness.tree().join("ran")).unwrap();
    harness.gateway.wait_for_report(|report| report.ready && report.run_generation == 2).await;
    harness.wait_until("what was acknowledged", |entries| check_acknowledged(entries, &acknowledged).is_ok()).await;
    assert!(runtime.terminate().await.success());
    assert_invariants(&harness);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_session_volume_is_reported_and_the_agent_goes_on_once_it_is_mounted_again() {
    let harness = Harness::new(&waiting_calls("broken", 8)).await;
    let Some(volume) = LoopVolume::over(&harness.session(), 24) else { return };
    let mut runtime = harness.start(1, Some("go"));
    harness.wait_until("a call", |entries| !tool_ends(entries).is_empty()).await;
    volume.break_down();
    std::fs::write(harness.tree().join("broken"), "").unwrap();
    let report = harness.gateway.wait_for_report(|report| report.reason == ReportReason::DiskFailed).await;
    assert!(
        report.message.starts_with("the session volume refuses: ") && report.message.contains("Read-only file system"),
        "{}",
        report.message
    );
    assert_user_sentence(&report.message);
    let (_, refused) = deliver_all(&harness, "broken", 2).await;
    assert_eq!(refused.len(), 2);
    harness.gateway.log("tail=3").await;
    assert!(runtime.terminate().await.success());
    let volume = volume.mounted_anew();
    harness.gateway.forget_line();
    let mut runtime = harness.start(2, Some("go"));
    let entries = harness.wait_until("the end", |entries| texts(entries).last().is_some_and(|text| text == "done")).await;
    check_runs_match_log(&entries, &harness.tree().join("ran")).unwrap();
    check_no_duplicates(&entries).unwrap();
    assert!(runtime.terminate().await.success());
    drop(volume);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_model_gets_the_error_of_a_full_tree_and_no_file_is_half_written() {
    let script = r#"
rules:
- when: {lastUserContains: there is room}
  steps:
  - toolCalls: [{tool: Write, args: {path: new/file, content: "now it fits\n"}}]
  - toolCalls: [{tool: Edit, args: {path: old, old: before, new: after}}]
  - text: went on
- steps:
  - toolCalls: [{tool: Write, args: {path: new/file, content: "no room\n"}}]
  - toolCalls: [{tool: Edit, args: {path: old, old: before, new: after}}]
  - toolCalls: [{tool: Shell, args: {command: "echo more > third"}}]
  - toolCalls: [{tool: Read, args: {path: old}}]
  - text: it is full
"#;
    let harness = Harness::new(script).await;
    let Some(volume) = LoopVolume::over(&harness.tree(), 8) else { return };
    std::fs::write(harness.tree().join("old"), "before\n").unwrap();
    volume.fill();
    let mut runtime = harness.start(1, Some("go"));
    let entries = harness.wait_for_runs(1).await;
    let ends = tool_ends(&entries);
    for end in &ends[..3] {
        assert!(end.outcome == ToolOutcome::Failed && end.output.contains("No space left on device"), "{end:?}");
        assert!(!end.output.contains("os error"), "{end:?}");
    }
    assert_eq!(ends[3].output, "     1\tbefore\n");
    assert_eq!((outcomes(&entries), texts(&entries).last().unwrap().as_str()), (vec![RunOutcome::Finished], "it is full"));
    harness.gateway.wait_for_report(|report| report.ready).await;
    let left: Vec<String> =
        std::fs::read_dir(harness.tree()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert!(left.iter().all(|name| !name.starts_with(".yoi")), "{left:?}");
    volume.make_room();
    harness.gateway.deliver("room", person(), "there is room").await;
    let entries = harness.wait_for_runs(2).await;
    assert_eq!(texts(&entries).last().unwrap(), "went on");
    assert_eq!(std::fs::read_to_string(harness.tree().join("new/file")).unwrap(), "now it fits\n");
    assert_eq!(std::fs::read_to_string(harness.tree().join("old")).unwrap(), "after\n");
    assert!(runtime.terminate().await.success());
    assert_invariants(&harness);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_log_says_was_written_survives_a_power_loss() {
    let script = r#"
rules:
- steps:
  - toolCalls: [{tool: Write, args: {path: deep/er/file, content: "written\n"}}]
  - toolCalls: [{tool: Edit, args: {path: old, old: before, new: after}, id: last}]
  - {text: done, delayMs: 60000}
"#;
    let harness = Harness::new(script).await;
    let Some(volume) = LoopVolume::over(&harness.tree(), 16) else { return };
    std::fs::write(harness.tree().join("old"), "before\n").unwrap();
    volume.flush();
    let _runtime = harness.start(1, Some("go"));
    harness.wait_until("both", |entries| tool_ends(entries).len() == 2).await;
    let later = harness.dir.path().join("later");
    let Some(_found) = volume.after_power_loss(&later) else { return };
    assert_eq!(std::fs::read_to_string(later.join("deep/er/file")).unwrap(), "written\n");
    assert_eq!(std::fs::read_to_string(later.join("old")).unwrap(), "after\n");
}
