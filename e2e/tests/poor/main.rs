//! The world is poor, on the cluster: each kind of want once, from the object's conditions down to the kernel. The many variants of each are
//! tried on the binaries alone (`runtime/tests/agent/degraded`, `workspace`).

#[path = "../explain/doctor.rs"]
mod doctor;
mod full;
mod git;
mod models;
mod tools;

use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use yoi_crds::{Condition, YoiPod};
use yoi_e2e::program::{self, Said};
use yoi_e2e::stage::{PATIENCE, Stage};

/// What the want of an agent may add to the time of a message and a look at the log.
const SOON: Duration = Duration::from_secs(1);

/// People can speak to the agent and read its log. What that takes on this machine anyhow is measured beside it, on an agent that does not
/// exist. No rule of a script knows the words: a run that is under way goes on as it was.
async fn obeys(stage: &Stage, agent: &str) -> Result<()> {
    let both = async |agent: &str| -> Result<(Duration, i32)> {
        let begun = Instant::now();
        let sent = stage.yoi(&["send", agent, "are you there"]).await?;
        let read = stage.yoi(&["log", agent, "--tail", "1"]).await?;
        Ok((begun.elapsed(), sent.code.max(read.code)))
    };
    let (mut quickest, mut anyhow) = (Duration::MAX, Duration::ZERO);
    for _ in 0..8 {
        anyhow = anyhow.max(both("nobody").await?.0);
        let (took, code) = both(agent).await?;
        ensure!(code == 0, "{agent} does not take a message, or show its log: exit code {code}");
        quickest = quickest.min(took);
        if quickest < anyhow + SOON {
            return Ok(());
        }
    }
    bail!("a message to {agent} and its log took {quickest:?} at best, and {anyhow:?} of nobody");
}

/// Stopped within seconds, its log closed and still to be read.
async fn stops(stage: &Stage, agent: &str, within: Duration) -> Result<()> {
    let begun = Instant::now();
    stage.yoi(&["stop", agent, "--wait"]).await?.ok()?;
    ensure!(begun.elapsed() < within, "{agent} took {:?} to stop", begun.elapsed());
    Ok(())
}

/// A sentence for people.
fn sentence(condition: &Condition, words: &str) -> Result<()> {
    let message = &condition.message;
    ensure!(message.contains(words), "{message:?} does not say {words:?}");
    for wrong in ["Error {", "Some(", "None", "os error", "kind:", "sk-"] {
        ensure!(!message.contains(wrong), "{wrong:?} in {message:?}");
    }
    Ok(())
}

/// The doctor names this object for what ails it, by this check, as an error; asked again until it does.
async fn diagnosed(stage: &Stage, check: &str, kind: &str, name: &str, words: &str) -> Result<()> {
    let object = format!("{kind} {}/{name}", stage.namespace);
    let finding = doctor::named(stage, &[], check, &object, words).await?;
    ensure!(finding.object == object && finding.severity == "error", "{finding:?}");
    Ok(())
}

/// A command in the node, as root.
async fn on_node(script: &str) -> Result<Said> {
    let words = std::env::var("YOI_NODE_EXEC")?;
    let mut words: Vec<&str> = words.split(' ').collect();
    words.extend(["sh", "-euc", script]);
    program::run(words[0], &words[1..], &[], None).await
}

/// Sends until it is taken: the agent has just been able to take it again.
async fn send_until_taken(stage: &Stage, agent: &str, text: &str) -> Result<()> {
    let begun = Instant::now();
    loop {
        let said = stage.yoi(&["send", agent, text]).await?;
        if said.code == 0 {
            return Ok(());
        }
        ensure!(begun.elapsed() < PATIENCE, "the message is not taken: {}", said.err);
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// Waits until a YoiPod's Ready condition holds this reason, and gives it back.
async fn ready_is(stage: &Stage, agent: &str, reason: &str) -> Result<Condition> {
    stage.unmet::<YoiPod>(agent, "Ready", reason).await
}
