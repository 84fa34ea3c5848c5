//! Promise: when a disk is full, a model or a git server fails, or a command misbehaves, the agent says so in its conditions, still answers people,
//! stops when it is told to, and goes on by itself when the fault is over.
//!
//! Each test makes one kind of fault, checks condition, doctor and responsiveness, ends the fault, and checks that the work was done once. The many
//! variants of each fault are tested on the binaries alone (`runtime/tests/agent/degraded`, `workspace`).

#[path = "../explain/doctor.rs"]
mod doctor;
mod full;
mod git;
mod models;
mod tools;

use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use yoi_crds::{Condition, YoiPod};
use yoi_e2e::poll_seen;
use yoi_e2e::test_namespace::{TIMEOUT, TestNamespace};
use yoi_test_support::limit;

/// How much longer a message and a read of the log may take while the fault lasts, on a quiet machine.
const ADDED_DELAY: Duration = Duration::from_secs(1);

/// Checks that people can send to the agent and read its log in time. The same requests for an agent that does not exist give the time that
/// this machine needs anyway. No rule of a script matches the message, so a running run goes on.
async fn check_responsive(ns: &TestNamespace, agent: &str) -> Result<()> {
    let both = async |agent: &str| -> Result<(Duration, i32)> {
        let begun = Instant::now();
        let sent = ns.yoi(&["send", agent, "are you there"]).await?;
        let read = ns.yoi(&["log", agent, "--tail", "1"]).await?;
        Ok((begun.elapsed(), sent.code.max(read.code)))
    };
    let (mut fastest, mut baseline) = (Duration::MAX, Duration::ZERO);
    for _ in 0..8 {
        baseline = baseline.max(both("nobody").await?.0);
        let (took, code) = both(agent).await?;
        ensure!(code == 0, "{agent} does not take a message, or show its log: exit code {code}");
        fastest = fastest.min(took);
        if fastest < baseline + ADDED_DELAY.mul_f64(yoi_test_support::slowness()) {
            return Ok(());
        }
    }
    bail!("a message to {agent} and its log took {fastest:?} at best, and {baseline:?} for an agent that does not exist");
}

/// Checks that the agent stops in time: the kubelet kills it after 30 s, and the rest is what a busy machine takes.
async fn check_stops(ns: &TestNamespace, agent: &str) -> Result<()> {
    let limit = format!("{}s", limit(Duration::from_secs(120)).as_secs());
    ns.yoi(&["stop", agent, "--wait", "--timeout", &limit]).await?.exit_ok().map(drop)
}

/// Checks that the condition's message contains `words` and no Rust debug output or key.
fn check_message(condition: &Condition, words: &str) -> Result<()> {
    let message = &condition.message;
    ensure!(message.contains(words), "{message:?} does not say {words:?}");
    for wrong in ["Error {", "Some(", "None", "os error", "kind:", "sk-"] {
        ensure!(!message.contains(wrong), "{wrong:?} in {message:?}");
    }
    Ok(())
}

/// Waits until the doctor reports this object as an error, by this check and with these words.
async fn check_doctor_names(ns: &TestNamespace, check: &str, kind: &str, name: &str, words: &str) -> Result<()> {
    let object = format!("{kind} {}/{name}", ns.name);
    let finding = doctor::wait_finding(ns, &[], check, &object, words).await?;
    ensure!(finding.object == object && finding.severity == "error", "{finding:?}");
    Ok(())
}

/// Sends a message again and again until it is accepted: the fault has only just ended.
async fn send_until_accepted(ns: &TestNamespace, agent: &str, text: &str) -> Result<()> {
    poll_seen(TIMEOUT, "the message is taken", async || {
        let output = ns.yoi(&["send", agent, text]).await?;
        Ok(if output.code == 0 { Ok(()) } else { Err(output.err) })
    })
    .await
    .map(drop)
}

/// Waits until a YoiPod's Ready condition has this reason, and returns the condition.
async fn wait_ready_reason(ns: &TestNamespace, agent: &str, reason: &str) -> Result<Condition> {
    ns.wait_reason::<YoiPod>(agent, "Ready", reason).await
}
