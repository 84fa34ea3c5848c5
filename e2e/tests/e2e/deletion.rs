//! What is deleted while an agent uses it: its project, its tree.

use anyhow::{Context, Result, ensure};
use serde_json::json;
use yoi_crds::condition::ConditionStatus;
use yoi_crds::name::annotation::NEW_TREE;
use yoi_crds::{AgentWorkspace, YoiPod, YoiProject};
use yoi_e2e::test_namespace::{TestNamespace, uid};

const SCRIPT: &str = r#"
rules:
- name: write
  when: { lastUserContains: "write the file" }
  steps:
  - toolCalls: [{ tool: Shell, args: { command: "echo one > file" } }]
  - text: Written.
- name: look
  when: { lastUserContains: "look at it" }
  steps:
  - toolCalls: [{ tool: Shell, args: { command: "cat file" } }]
    expect: []
  - text: Seen.
    expect: ["one"]
- steps: [{ text: hello }]
"#;

#[tokio::test]
async fn a_project_with_agents_stays_until_they_are_gone_and_they_start_again_meanwhile() -> Result<()> {
    let ns = TestNamespace::create("going").await?;
    ns.create_model(SCRIPT).await?;
    ns.create_empty_project("p").await?;
    ns.create_agent("a", "p", json!({ "task": "write the file" })).await?;
    ns.wait_task_complete("a").await?;
    ns.delete::<YoiProject>("p").await?;
    let waits = ns.wait_reason::<YoiProject>("p", "Ready", "WaitingForAgents").await?;
    ensure!(waits.message.contains("YoiPod a") && waits.message.contains("kubectl yoi rm a"), "{}", waits.message);
    ns.yoi(&["stop", "a", "--wait", "--timeout", "100s"]).await?.exit_ok()?;
    ns.yoi(&["start", "a", "--wait", "--timeout", "100s"]).await?.exit_ok()?;
    ns.yoi(&["send", "a", "look at it", "--wait", "--timeout", "100s"]).await?.exit_ok()?;
    // Nothing new begins from it.
    ns.create_agent("late", "p", json!({})).await?;
    let refused = ns.wait_reason::<YoiPod>("late", "Ready", "ProjectDeleting").await?;
    ensure!(refused.message.contains("is being deleted"), "{}", refused.message);
    ns.delete::<YoiPod>("late").await?;
    ns.yoi(&["stop", "a", "--wait", "--timeout", "100s"]).await?.exit_ok()?;
    ns.yoi(&["rm", "a", "--force"]).await?.exit_ok()?;
    ns.wait_gone::<YoiProject>("p").await?;
    ns.remove().await
}

#[tokio::test]
async fn h1_the_tree_of_a_running_agent_is_not_deleted_and_a_lost_tree_is_not_replaced_unasked() -> Result<()> {
    let ns = TestNamespace::create("lost").await?;
    ns.create_model(SCRIPT).await?;
    ns.create_empty_project("p").await?;
    ns.create_agent("a", "p", json!({ "task": "write the file" })).await?;
    ns.wait_task_complete("a").await?;
    let former = uid(&ns.get::<AgentWorkspace>("a").await?);
    for words in [&["workspace", "rm", "a"][..], &["workspace", "rm", "a", "--force"], &["rm", "a", "--force"]] {
        let refused = ns.yoi(words).await?;
        ensure!(refused.code == 1 && refused.err.contains("kubectl yoi stop --wait a"), "{words:?}: {refused:?}");
    }
    // Plain kubectl asks nobody: the agent says what follows.
    ns.delete::<AgentWorkspace>("a").await?;
    let waits = ns.wait_reason::<YoiPod>("a", "WorkspaceReady", "WaitingForPods").await?;
    ensure!(waits.message.contains("its tree is destroyed when Pod a-1 ends"), "{}", waits.message);
    ns.yoi(&["stop", "a", "--wait", "--timeout", "100s"]).await?.exit_ok()?;
    ns.wait_gone::<AgentWorkspace>("a").await?;
    ns.wait_reason::<YoiPod>("a", "WorkspaceReady", "TreeDeleted").await?;
    let start = ns.yoi(&["start", "a", "--wait", "--timeout", "60s"]).await?;
    ensure!(start.code == 1 && start.err.contains(&format!("{NEW_TREE}={former}")), "{start:?}");
    ensure!(ns.api::<AgentWorkspace>().get_opt("a").await?.is_none(), "the agent has another tree");
    ns.kubectl(&["annotate", "yoipod", "a", "--overwrite", &format!("{NEW_TREE}={former}")]).await?.exit_ok()?;
    ns.wait_agent_ready("a").await?;
    ensure!(uid(&ns.get::<AgentWorkspace>("a").await?) != former, "the former tree");
    ns.remove().await
}

#[tokio::test]
async fn a_project_made_anew_from_another_source_is_told_by_the_trees_of_the_former() -> Result<()> {
    let ns = TestNamespace::create("anew").await?;
    ns.create_model(SCRIPT).await?;
    ns.create_git_project("p").await?;
    ns.create_agent("a", "p", json!({})).await?;
    ns.wait_agent_ready("a").await?;
    // By force, as only somebody who takes the finalizer off can.
    ns.delete::<YoiProject>("p").await?;
    ns.wait_reason::<YoiProject>("p", "Ready", "WaitingForAgents").await?;
    ns.merge_patch::<YoiProject>("p", &json!({ "metadata": { "finalizers": null } })).await?;
    ns.wait_gone::<YoiProject>("p").await?;
    // The agent goes on, and starts, as at its last start.
    ns.yoi(&["restart", "a", "--wait", "--timeout", "100s"]).await?.exit_ok()?;
    ns.create_project("p", json!({ "empty": {} })).await?;
    let told = ns
        .wait_for::<AgentWorkspace, _>("a", "FormerSource", |tree| {
            let ready = yoi_crds::condition::find(&tree?.status.as_ref()?.conditions, "Ready")?;
            (ready.reason == "FormerSource").then(|| ready.clone())
        })
        .await?;
    ensure!(told.status == ConditionStatus::True && told.message.contains("YoiProject p is empty now"), "{told:?}");
    let list = ns.yoi(&["ls", "workspaces"]).await?.exit_ok()?;
    let line = list.out.lines().find(|line| line.starts_with("a ")).context("no line of the tree")?;
    ensure!(line.contains("FormerSource"), "{line}");
    ns.remove().await
}
