//! Visibility and messages between agents.

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use serde_json::json;
use yoi_crds::condition::ConditionStatus;
use yoi_crds::{YoiPeer, YoiPod};
use yoi_e2e::test_namespace::{TestNamespace, uid};
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
- name: hear
  when: { lastUserContains: "the words of a" }
  steps:
  - text: I heard you.
"#;

async fn two_agents(test: &str) -> Result<TestNamespace> {
    let ns = TestNamespace::create(test).await?;
    ns.create_model(SCRIPT).await?;
    ns.create_empty_project("p").await?;
    ns.create_agent("a", "p", json!({})).await?;
    ns.create_agent("b", "p", json!({})).await?;
    Ok(ns)
}

async fn wait_both_ready(ns: &TestNamespace) -> Result<()> {
    ns.wait_agent_ready("a").await?;
    ns.wait_agent_ready("b").await
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

fn has_input(log: &[LogLine]) -> bool {
    log.iter().any(|l| matches!(l.entry.body, Body::Input(_)))
}

#[tokio::test]
async fn a17_a_peers_message_is_delivered_once_and_starts_a_run() -> Result<()> {
    let ns = two_agents("deliver").await?;
    wait_both_ready(&ns).await?;
    ns.yoi(&["peer", "b", "a"]).await?.exit_ok()?;
    ns.wait_condition::<YoiPeer>("a.b", "Ready", ConditionStatus::True).await?;
    ns.yoi(&["send", "a", "tell your peer"]).await?.exit_ok()?;
    let log = ns.wait_log("b", "a run's end", |log| finished(log).then(|| log.to_vec())).await?;
    let a: YoiPod = ns.get("a").await?;
    let received: Vec<_> = log
        .iter()
        .filter_map(|l| match &l.entry.body {
            Body::PeerMessage(m) => Some(m.clone()),
            _ => None,
        })
        .collect();
    ensure!(received.len() == 1, "delivered {} times", received.len());
    ensure!(received[0].text == "the words of a" && received[0].from.name == "a" && received[0].from.uid == uid(&a), "{received:?}");
    let sender = ns.log("a").await?;
    ensure!(outputs(&sender)[0].lines().any(|line| line.starts_with("b (peer)")), "{:?}", outputs(&sender));

    // A restart of the receiver delivers no message again.
    let pod: YoiPod = ns.get("b").await?;
    let name = pod.status.and_then(|s| s.pod).map(|p| p.name).unwrap_or_default();
    ns.delete::<k8s_openapi::api::core::v1::Pod>(&name).await?;
    ns.wait_log("b", "a second runtime", |log| {
        (log.iter().filter(|l| matches!(l.entry.body, Body::RuntimeStarted(_))).count() == 2).then_some(())
    })
    .await?;
    ns.wait_agent_ready("b").await?;
    // A message left in the inbox gets into the log before a later one.
    let sent = ns.yoi(&["send", "b", "a word of a person"]).await?.exit_ok()?;
    ensure!(sent.out.contains("delivered"), "{}", sent.out);
    let log = ns.wait_log("b", "a person's words", |log| has_input(log).then(|| log.to_vec())).await?;
    ensure!(log.iter().filter(|l| matches!(l.entry.body, Body::PeerMessage(_))).count() == 1, "delivered again after a restart");
    ns.remove().await
}

#[tokio::test]
async fn a21_a_new_agent_of_the_same_name_is_not_the_peer() -> Result<()> {
    let ns = two_agents("replaced").await?;
    ns.yoi(&["peer", "a", "b"]).await?.exit_ok()?;
    // An agent that is deleted before it is Ready may have no session volume yet.
    ns.wait_agent_ready("b").await?;
    ns.wait_condition::<YoiPeer>("a.b", "Ready", ConditionStatus::True).await?;
    ns.delete::<YoiPod>("b").await?;
    ns.wait_gone::<YoiPod>("b").await?;
    ns.wait_reason::<YoiPeer>("a.b", "Ready", "MemberMissing").await?;
    ns.delete::<PersistentVolumeClaim>("b-session").await?;
    ns.wait_gone::<PersistentVolumeClaim>("b-session").await?;
    ns.create_agent("b", "p", json!({})).await?;
    ns.wait_reason::<YoiPeer>("a.b", "Ready", "MemberReplaced").await?;
    // The new agent, which has its own session, gets no message.
    wait_both_ready(&ns).await?;
    ns.yoi(&["send", "a", "tell your peer"]).await?.exit_ok()?;
    let outputs = ns.wait_log("a", "a run's end", |log| finished(log).then(|| outputs(log))).await?;
    ensure!(outputs.len() == 2 && outputs[1].contains("nothing was sent"), "{outputs:?}");
    ensure!(outputs[0].lines().any(|line| line.starts_with("b (peer): not live, Missing")), "{outputs:?}");
    ensure!(!ns.log("b").await?.iter().any(|l| matches!(l.entry.body, Body::PeerMessage(_))), "the new agent got the message");
    ns.remove().await
}
