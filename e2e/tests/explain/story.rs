//! Conditions and Events, read in order as they were written.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use yoi_crds::{ConditionStatus, YoiPod};
use yoi_e2e::stage::{PATIENCE, Stage};

use super::CLUSTER;

/// Reasons of the Events about one object, by the time of their writing, with how often each was said.
async fn told(stage: &Stage, kind: &str, name: &str) -> Result<Vec<(String, u64)>> {
    let about = format!("involvedObject.kind={kind},involvedObject.name={name}");
    let said = stage.kubectl(&["get", "events", "--field-selector", &about, "-o", "json"]).await?.ok()?;
    let list: Value = serde_json::from_str(&said.out)?;
    let mut events: Vec<_> = list["items"].as_array().context("no list")?.iter().collect();
    events.sort_by_key(|e| e["eventTime"].as_str().unwrap_or_default().to_owned());
    let one = |e: &Value| (e["reason"].as_str().unwrap_or_default().to_owned(), e["series"]["count"].as_u64().unwrap_or(1));
    Ok(events.into_iter().map(one).collect())
}

/// Waits until the story ends with `last`, and holds it against `wanted`.
async fn story(stage: &Stage, kind: &str, name: &str, wanted: &[&str]) -> Result<()> {
    let start = std::time::Instant::now();
    loop {
        let events = told(stage, kind, name).await?;
        let reasons: Vec<_> = events.iter().map(|(reason, _)| reason.as_str()).collect();
        if reasons == wanted {
            ensure!(events.iter().all(|(_, count)| *count == 1), "said twice: {events:?}");
            return Ok(());
        }
        // Events are written behind the conditions; what is too much or in another order does not get right by waiting.
        ensure!(wanted.starts_with(&reasons) && start.elapsed() < PATIENCE, "{kind} {name} tells {events:?}, not {wanted:?}");
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    }
}

/// The same words in the same order for who reads `kubectl describe`.
async fn described(stage: &Stage, name: &str, wanted: &[&str]) -> Result<()> {
    let text = stage.kubectl(&["describe", "yoipod", name]).await?.ok()?.out;
    let events = text.split("Events:").nth(1).context("no Events")?;
    let reasons: Vec<_> = events.lines().skip(3).filter_map(|l| l.split_whitespace().nth(1)).collect();
    ensure!(reasons == wanted, "kubectl describe tells {reasons:?}, not {wanted:?}\n{events}");
    Ok(())
}

#[tokio::test]
async fn an_agent_tells_its_story_from_apply_to_its_deletion() -> Result<()> {
    let _whole = CLUSTER.read().await;
    let stage = Stage::open("story").await?;
    // A task that is done in the moment in which the agent gets ready may be told of first.
    stage.model("rules: [{ steps: [{ text: hello, delayMs: 15000 }] }]").await?;
    stage.empty_project("p").await?;
    stage.agent("a", "p", json!({ "task": "say it" })).await?;
    stage.task_complete("a").await?;
    let up = ["WorkspaceReady", "Replayed", "Ready", "TaskSucceeded"];
    story(&stage, "YoiPod", "a", &up).await?;
    described(&stage, "a", &up).await?;
    story(&stage, "AgentWorkspace", "a", &["NodeSelected", "CloneCreated", "Ready"]).await?;

    stage.yoi(&["stop", "a", "--wait"]).await?.ok()?;
    let down = [&up[..], &["Stopped"]].concat();
    story(&stage, "YoiPod", "a", &down).await?;
    described(&stage, "a", &down).await?;
    let conditions = stage.get::<YoiPod>("a").await?.status.unwrap_or_default().conditions;
    let ready = yoi_crds::condition::find(&conditions, "Ready").context("no Ready")?;
    ensure!(ready.status == ConditionStatus::False && ready.reason == "Stopped", "{ready:?}");

    story(&stage, "AgentWorkspace", "a", &["NodeSelected", "CloneCreated", "Ready", "Released"]).await?;

    stage.yoi(&["rm", "a", "--force"]).await?.ok()?;
    stage.until_gone::<YoiPod>("a").await?;
    stage.until_gone::<yoi_crds::AgentWorkspace>("a").await?;
    story(&stage, "AgentWorkspace", "a", &["NodeSelected", "CloneCreated", "Ready", "Released", "Destroyed"]).await?;
    // Its end makes no noise: what was said stands, and nothing was added.
    story(&stage, "YoiPod", "a", &down).await?;
    stage.close().await
}

#[tokio::test]
async fn an_agent_whose_project_comes_late_tells_why_it_waited_and_then_goes_on() -> Result<()> {
    let _whole = CLUSTER.read().await;
    let stage = Stage::open("late").await?;
    stage.model("rules: [{ steps: [{ text: hello }] }]").await?;
    stage.agent("a", "p", json!({})).await?;
    let said = stage.unmet::<YoiPod>("a", "Ready", "SourceNotFound").await?;
    ensure!(said.message.contains("YoiProject p does not exist in namespace"), "{said:?}");
    story(&stage, "YoiPod", "a", &["SourceNotFound"]).await?;
    stage.empty_project("p").await?;
    stage.agent_ready("a").await?;
    let whole = ["SourceNotFound", "WorkspaceReady", "Replayed", "Ready"];
    story(&stage, "YoiPod", "a", &whole).await?;
    described(&stage, "a", &whole).await?;
    stage.close().await
}
