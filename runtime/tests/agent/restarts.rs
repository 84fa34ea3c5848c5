//! Crashes, stops, locks and damage.

use std::time::Duration;

use yoi_wire::entry::{Body, RunOutcome, ToolOutcome};
use yoi_wire::hub::{ReportReason, TaskState};

use crate::gateway::person;
use crate::harness::{EXAMPLE, Harness, kinds, lines, outcomes, texts, tool_ends};

async fn wait_for_begin(harness: &Harness) {
    harness.wait_until("the start of the command", |_| harness.tree().join("begun.txt").exists()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn p39_f4_a_call_that_ran_at_a_kill_is_unknown_and_not_run_again() {
    let harness = Harness::new(EXAMPLE).await;
    let mut runtime = harness.start(1, Some("run the slow command"));
    wait_for_begin(&harness).await;
    runtime.kill();
    let _runtime = harness.start(1, Some("run the slow command"));
    let entries = harness.wait_for_runs(2).await;
    assert_eq!(outcomes(&entries), [RunOutcome::Interrupted, RunOutcome::Finished]);
    assert_eq!(tool_ends(&entries).into_iter().map(|end| end.outcome).collect::<Vec<_>>(), [ToolOutcome::Unknown]);
    assert_eq!(texts(&entries).last().unwrap(), "The command may or may not have run.");
    assert_eq!(lines(&harness.tree().join("begun.txt")), 1);
    harness.gateway.wait_for_report(|report| report.task.as_ref().is_some_and(|task| task.state == TaskState::Succeeded)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn p68_sigterm_ends_tools_closes_the_run_and_the_next_start_goes_on() {
    let harness = Harness::new(EXAMPLE).await;
    let mut runtime = harness.start(1, Some("run the slow command"));
    wait_for_begin(&harness).await;
    harness.stop(&mut runtime).await;
    let entries = harness.entries();
    assert!(kinds(&entries).ends_with("ToolStarted ToolEnded RunEnded Extension"), "{}", kinds(&entries));
    assert_eq!(harness.gateway.reports().last().unwrap().reason, ReportReason::Stopping, "{:?}", harness.gateway.reports());
    let file = std::fs::read_dir(harness.session().join("sessions")).unwrap().next().unwrap().unwrap().path();
    let log = std::fs::read_dir(file).unwrap().map(|entry| entry.unwrap().path()).find(|path| path.extension().is_some()).unwrap();
    assert!(std::fs::read(log).unwrap().ends_with(b"\n"), "the zeros were trimmed");
    let _runtime = harness.start(2, Some("run the slow command"));
    let entries = harness.wait_for_runs(2).await;
    assert_eq!(outcomes(&entries), [RunOutcome::Interrupted, RunOutcome::Finished]);
    assert_eq!(lines(&harness.tree().join("begun.txt")), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_report_is_that_of_the_stop_even_when_an_earlier_one_is_slow() {
    let harness = Harness::new(EXAMPLE).await;
    harness.gateway.set_report_delay(Duration::from_millis(400));
    let mut runtime = harness.start(1, Some("run the slow command"));
    wait_for_begin(&harness).await;
    assert!(runtime.terminate().await.success());
    let reports = harness.gateway.all_reports().await;
    assert!(reports.iter().any(|report| report.ready), "{reports:?}");
    assert_eq!(reports.last().unwrap().reason, ReportReason::Stopping, "{reports:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn b10_f6_a_second_runtime_waits_for_the_lock_and_one_of_a_lower_generation_never_gets_it() {
    let harness = Harness::new(EXAMPLE).await;
    let mut first = harness.start(2, Some("say hello"));
    harness.wait_for_runs(1).await;
    let mut lower = harness.start(1, None);
    let report = harness.gateway.wait_for_report(|report| report.run_generation == 1 && report.reason == ReportReason::SessionLocked).await;
    assert!(report.message.contains("Pod pod-2 of run generation 2"), "{}", report.message);
    first.kill();
    harness.gateway.wait_for_report(|report| report.run_generation == 1 && report.message.contains("generation 2 has already")).await;
    lower.kill();
    let _next = harness.start(3, Some("say hello"));
    harness.gateway.wait_for_report(|report| report.run_generation == 3 && report.ready).await;
    assert_eq!(outcomes(&harness.entries()).len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn b21_f3_a_damaged_log_is_reported_with_its_line_and_still_read() {
    let harness = Harness::new(EXAMPLE).await;
    let mut runtime = harness.start(1, Some("say hello"));
    harness.wait_for_runs(1).await;
    let all = harness.gateway.log("").await;
    assert!(runtime.terminate().await.success());
    let folder = std::fs::read_dir(harness.session().join("sessions")).unwrap().next().unwrap().unwrap().path();
    let log = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).find(|path| path.extension().is_some()).unwrap();
    let text = std::fs::read_to_string(&log).unwrap();
    std::fs::write(&log, text.replacen("RuntimeStarted", "RuntimeStarteD", 1)).unwrap();
    harness.gateway.forget_line();
    let mut runtime = harness.start(1, Some("say hello"));
    let report = harness.gateway.wait_for_report(|report| report.reason == ReportReason::ReplayFailed).await;
    assert!(!report.ready && report.message.contains(".jsonl line 3"), "{}", report.message);
    // What stands after the damage is read from the end, where the stop is.
    assert_eq!(harness.gateway.log("tail=2").await[..1], all[all.len() - 1..]);
    let (status, body) = harness.gateway.request("GET", &format!("/v1/log?after={}", all[1].token), "").await;
    assert!(status.is_server_error() && String::from_utf8_lossy(&body).contains("line 3"), "{status} {body:?}");
    assert!(runtime.child.try_wait().unwrap().is_none(), "it stays up");
    let (status, _) = harness.gateway.deliver("m", person(), "hello").await;
    assert_eq!(status, 503);
    assert!(runtime.terminate().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn f11_a_newer_log_is_refused() {
    let harness = Harness::new(EXAMPLE).await;
    let mut runtime = harness.start(1, Some("say hello"));
    harness.wait_for_runs(1).await;
    runtime.kill();
    let folder = std::fs::read_dir(harness.session().join("sessions")).unwrap().next().unwrap().unwrap().path();
    let log = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).find(|path| path.extension().is_some()).unwrap();
    let mut bytes = std::fs::read(&log).unwrap();
    bytes.truncate(bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1);
    let mut newer = harness.entries().pop().unwrap();
    newer.seq += 1;
    let Body::RunEnded(_) = &newer.body else { panic!() };
    let mut value = serde_json::to_value(&newer).unwrap();
    (value["kind"], value["batch"]) = ("Telepathy".into(), newer.seq.into());
    yoi_session::frame::encode(&value, &mut bytes).unwrap();
    std::fs::write(&log, bytes).unwrap();
    harness.gateway.forget_line();
    let _runtime = harness.start(1, Some("say hello"));
    let report = harness.gateway.wait_for_report(|report| report.reason == ReportReason::LogNewer).await;
    assert!(report.message.contains("Telepathy"), "{}", report.message);
    // The log can still be read.
    let last = harness.gateway.log("tail=1").await.remove(0);
    assert_eq!(last.entry.body.kind(), "Telepathy");
}

/// Skipped where mounting is not allowed.
#[tokio::test(flavor = "multi_thread")]
async fn f5_a_full_disk_stops_the_run_before_the_call_until_there_is_free_space() {
    // Longer than a page, so that logging the answer needs new blocks.
    let long = "long ".repeat(4000);
    let script = format!(
        "rules:\n- steps:\n  - {{text: {long}, toolCalls: [{{tool: Shell, args: {{command: echo ran >> ran.txt}}}}], delayMs: 5000}}\n  - text: done\n"
    );
    let harness = Harness::new(&script).await;
    let mounted = std::process::Command::new("mount").args(["-t", "tmpfs", "-o", "size=4m", "tmpfs"]).arg(harness.session()).status();
    if !mounted.is_ok_and(|status| status.success()) {
        crate::skip::skip("no right to mount a small disk");
        return;
    }
    let _unmounted = Unmount(harness.session());
    let mut runtime = harness.start(1, Some("go"));
    harness.wait_until("the run", |entries| kinds(entries).ends_with("RunStarted")).await;
    let folder = std::fs::read_dir(harness.session().join("sessions")).unwrap().next().unwrap().unwrap().path();
    let log = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).find(|path| path.extension().is_some()).unwrap();
    // The next append finds neither preallocated zeros nor free space.
    let entries = std::fs::read(&log).unwrap();
    let end = entries.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    std::fs::OpenOptions::new().write(true).open(&log).unwrap().set_len(end as u64).unwrap();
    let ballast = harness.session().join("ballast");
    let _ = std::fs::write(&ballast, vec![1; 8 << 20]);
    let report = harness.gateway.wait_for_report(|report| report.reason == ReportReason::DiskFull).await;
    assert!(!report.ready);
    assert!(!harness.tree().join("ran.txt").exists() && !kinds(&harness.entries()).contains("ToolStarted"));
    std::fs::remove_file(ballast).unwrap();
    let entries = harness.wait_until("the end", |entries| outcomes(entries).contains(&RunOutcome::Finished)).await;
    assert_eq!(lines(&harness.tree().join("ran.txt")), 1, "{}", kinds(&entries));
    harness
        .gateway
        .wait_for_report(|report| report.ready && report.task.as_ref().is_some_and(|task| task.state == TaskState::Succeeded))
        .await;
    assert!(runtime.terminate().await.success());
}

struct Unmount(std::path::PathBuf);

impl Drop for Unmount {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
