//! An agent that rests: its Pod goes, and a message wakes it.

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;
use yoi_crds::condition::find;
use yoi_crds::{YoiPod, YoiPodStatus};
use yoi_e2e::test_namespace::TestNamespace;
use yoi_wire::entry::{Body, RunOutcome};
use yoi_wire::people::LogLine;

const SCRIPT: &str = r#"
rules:
- name: hello
  when: { lastUserContains: "hello" }
  steps:
  - text: Hello to you.
"#;

fn inputs(log: &[LogLine]) -> usize {
    log.iter().filter(|line| matches!(line.entry.body, Body::Input(_))).count()
}

fn finished_runs(log: &[LogLine]) -> usize {
    log.iter().filter(|line| matches!(&line.entry.body, Body::RunEnded(run) if run.outcome == RunOutcome::Finished)).count()
}

/// Waits until the agent rests without a Pod.
async fn wait_resting(ns: &TestNamespace) -> Result<()> {
    let rests = |a: Option<&YoiPod>| {
        let status = a?.status.as_ref()?;
        (status.pod.is_none() && is_resting(status)).then_some(())
    };
    ns.wait_for("a", "at rest", rests).await?;
    ensure!(ns.list::<Pod>("yoi.dev/yoipod=a").await?.is_empty(), "it has a Pod");
    Ok(())
}

fn is_resting(status: &YoiPodStatus) -> bool {
    find(&status.conditions, "Ready").is_some_and(|ready| ready.reason == "Resting")
}

#[tokio::test]
async fn r1_r2_an_agent_that_rests_has_no_pod_and_a_message_wakes_it_and_is_answered_once() -> Result<()> {
    let ns = TestNamespace::create("rest").await?;
    ns.create_model(SCRIPT).await?;
    ns.create_empty_project("p").await?;
    ns.create_agent("a", "p", json!({})).await?;
    ns.wait_agent_ready("a").await?;
    ns.yoi(&["send", "a", "hello", "--wait"]).await?.exit_ok()?;
    ns.yoi(&["suspend", "a", "--wait"]).await?.exit_ok()?;
    wait_resting(&ns).await?;
    let list = ns.yoi(&["ls"]).await?.exit_ok()?.out;
    ensure!(list.contains("Resting") && list.contains("it rests since"), "{list}");

    let sent = ns.yoi(&["send", "a", "hello again", "--wait"]).await?.exit_ok()?;
    ensure!(sent.out.contains("Hello to you."), "{sent:?}");
    let log = ns.wait_log("a", "both runs", |log| (finished_runs(log) == 2).then(|| log.to_vec())).await?;
    ensure!(inputs(&log) == 2, "{} inputs", inputs(&log));
    ensure!(log.windows(2).all(|pair| pair[1].entry.seq == pair[0].entry.seq + 1), "a gap in the log");
    let a: YoiPod = ns.get("a").await?;
    let rest = a.status.and_then(|status| status.rest);
    let by = rest.as_ref().and_then(|rest| Some(rest.wake.as_ref()?.by.as_str())).unwrap_or_default();
    ensure!(by.starts_with("a message of "), "{rest:?}");

    // With nothing to do, it rests again.
    wait_resting(&ns).await?;
    ns.yoi(&["start", "a", "--wait"]).await?.exit_ok()?;
    let log = ns.log("a").await?;
    ensure!((inputs(&log), finished_runs(&log)) == (2, 2), "something was delivered again");
    ns.remove().await
}
