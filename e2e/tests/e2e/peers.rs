//! Who sees whom, and what arrives.

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use serde_json::json;
use yoi_crds::condition::ConditionStatus;
use yoi_crds::{YoiPeer, YoiPod};
use yoi_e2e::stage::{Stage, uid};
use yoi_wire::entry::{Body, RunOutcome};
use yoi_wire::people::LogLine;

const SCRIPT: &str = r#"
rules:
- name: tell
  when: { lastUserContains: "tell your peer" }
  steps:
  - toolCalls:
    - { tool: ListPods, args: {} }
    - { tool: SendToPeerPod, args: { to: b, message: "the words of a" } }
  - text: Told.
- name: look around
  when: { lastUserContains: "look around" }
  steps:
  - toolCalls:
    - { tool: ListPods, args: {} }
    - { tool: SendToPeerPod, args: { to: b, message: "can you hear me" } }
    - { tool: SendToPeerPod, args: { to: stranger, message: "can you hear me" } }
    - { tool: SendToPeerPod, args: { to: nobody, message: "can you hear me" } }
  - text: I see what I see.
- name: hear
  when: { lastUserContains: "the words of a" }
  steps:
  - text: I heard you.
"#;

async fn two(test: &str) -> Result<Stage> {
    let stage = Stage::open(test).await?;
    stage.model(SCRIPT).await?;
    stage.empty_project("p").await?;
    stage.agent("a", "p", json!({})).await?;
    stage.agent("b", "p", json!({})).await?;
    Ok(stage)
}

async fn ready(stage: &Stage) -> Result<()> {
    stage.agent_ready("a").await?;
    stage.agent_ready("b").await
}

fn outputs(log: &[LogLine]) -> Vec<String> {
    log.iter()
        .filter_map(|l| match &l.entry.body {
            Body::ToolEnded(t) => Some(t.output.clone()),
            _ => None,
        })
        .collect()
}

fn finished(log: &[LogLine]) -> bool {
    log.iter().any(|l| matches!(&l.entry.body, Body::RunEnded(r) if r.outcome == RunOutcome::Finished))
}

fn heard_a_person(log: &[LogLine]) -> bool {
    log.iter().any(|l| matches!(l.entry.body, Body::Input(_)))
}

#[tokio::test]
async fn a17_a_peers_message_is_delivered_once_and_starts_a_run() -> Result<()> {
    let stage = two("deliver").await?;
    ready(&stage).await?;
    stage.yoi(&["peer", "b", "a"]).await?.ok()?;
    stage.condition::<YoiPeer>("a.b", "Ready", ConditionStatus::True).await?;
    stage.yoi(&["send", "a", "tell your peer"]).await?.ok()?;
    let log = stage.log_until("b", "a run's end", |log| finished(log).then(|| log.to_vec())).await?;
    let a: YoiPod = stage.get("a").await?;
    let heard: Vec<_> = log
        .iter()
        .filter_map(|l| match &l.entry.body {
            Body::PeerMessage(m) => Some(m.clone()),
            _ => None,
        })
        .collect();
    ensure!(heard.len() == 1, "delivered {} times", heard.len());
    ensure!(heard[0].text == "the words of a" && heard[0].from.name == "a" && heard[0].from.uid == uid(&a), "{heard:?}");
    let sender = stage.log("a").await?;
    ensure!(outputs(&sender)[0].lines().any(|line| line.starts_with("b (peer)")), "{:?}", outputs(&sender));

    // A restart of the receiver delivers nothing again.
    let pod: YoiPod = stage.get("b").await?;
    let name = pod.status.and_then(|s| s.pod).map(|p| p.name).unwrap_or_default();
    stage.delete::<k8s_openapi::api::core::v1::Pod>(&name).await?;
    stage
        .log_until("b", "a second runtime", |log| {
            (log.iter().filter(|l| matches!(l.entry.body, Body::RuntimeStarted(_))).count() == 2).then_some(())
        })
        .await?;
    // What is left in the inbox gets into the log before what comes later.
    let sent = stage.yoi(&["send", "b", "a word of a person"]).await?.ok()?;
    ensure!(sent.out.contains("delivered"), "{}", sent.out);
    let log = stage.log_until("b", "a person's words", |log| heard_a_person(log).then(|| log.to_vec())).await?;
    ensure!(log.iter().filter(|l| matches!(l.entry.body, Body::PeerMessage(_))).count() == 1, "delivered again after a restart");
    stage.close().await
}

#[tokio::test]
async fn b1_without_a_peer_and_across_namespaces_nobody_is_visible() -> Result<()> {
    let stage = two("sight").await?;
    let other = stage.beside().await?;
    other.model(SCRIPT).await?;
    other.empty_project("p").await?;
    other.agent("stranger", "p", json!({})).await?;
    ready(&stage).await?;
    other.agent_ready("stranger").await?;
    stage.yoi(&["send", "a", "look around"]).await?.ok()?;
    let log = stage.log_until("a", "a run's end", |log| finished(log).then(|| log.to_vec())).await?;
    let said = outputs(&log);
    ensure!(said.len() == 4, "{said:?}");
    ensure!(said[0].lines().count() == 1 && said[0].starts_with("a (self)"), "ListPods shows more than itself: {}", said[0]);
    // A neighbour, another namespace's agent and nobody at all get the same answer but for the name.
    let plain = |text: &str, name: &str| text.replace(name, "X");
    ensure!(plain(&said[2], "stranger") == plain(&said[3], "nobody"), "{said:?}");
    ensure!(plain(&said[1], "b") == plain(&said[3].replace("nobody", "b"), "b"), "{said:?}");
    ensure!(!stage.log("b").await?.iter().any(|l| matches!(l.entry.body, Body::PeerMessage(_))), "b got a message from a stranger");
    ensure!(
        !other.log("stranger").await?.iter().any(|l| matches!(l.entry.body, Body::PeerMessage(_))),
        "another namespace's agent got a message"
    );
    other.close().await?;
    stage.close().await
}

#[tokio::test]
async fn a21_a_new_agent_of_the_same_name_is_a_stranger() -> Result<()> {
    let stage = two("replaced").await?;
    stage.yoi(&["peer", "a", "b"]).await?.ok()?;
    stage.condition::<YoiPeer>("a.b", "Ready", ConditionStatus::True).await?;
    stage.delete::<YoiPod>("b").await?;
    stage.until_gone::<YoiPod>("b").await?;
    stage.unmet::<YoiPeer>("a.b", "Ready", "MemberMissing").await?;
    stage.delete::<PersistentVolumeClaim>("b-session").await?;
    stage.until_gone::<PersistentVolumeClaim>("b-session").await?;
    stage.agent("b", "p", json!({})).await?;
    stage.unmet::<YoiPeer>("a.b", "Ready", "MemberReplaced").await?;
    // And nothing is said to the stranger, who runs with a session of its own.
    ready(&stage).await?;
    stage.yoi(&["send", "a", "tell your peer"]).await?.ok()?;
    let said = stage.log_until("a", "a run's end", |log| finished(log).then(|| outputs(log))).await?;
    ensure!(said.len() == 2 && said[1].contains("nothing was sent"), "{said:?}");
    ensure!(said[0].lines().any(|line| line.starts_with("b (peer): not live, Missing")), "{said:?}");
    ensure!(!stage.log("b").await?.iter().any(|l| matches!(l.entry.body, Body::PeerMessage(_))), "the stranger got the message");
    stage.close().await
}

#[tokio::test]
async fn a2_a_peer_that_does_not_exist_is_named() -> Result<()> {
    let stage = Stage::open("nobody").await?;
    let refused = stage.yoi(&["peer", "a", "z"]).await?;
    ensure!(refused.code == 3 && refused.err.contains("does not exist"), "{refused:?}");
    ensure!(stage.list::<YoiPeer>("").await?.is_empty(), "a YoiPeer was made");
    stage.close().await
}
