//! Two conversations of one agent.

use anyhow::{Result, ensure};
use serde_json::Value;
use yoi_e2e::poll_until;
use yoi_e2e::test_namespace::{TIMEOUT, TestNamespace};

/// The first waits in its command for what the second does in the same tree.
const SCRIPT: &str = r#"
rules:
- when: {lastUserContains: wait for the other}
  steps:
  - toolCalls:
    - { tool: Shell, args: { command: "until test -e made; do sleep 0.1; done; cat made", timeoutSeconds: 600 } }
  - text: It is there.
- when: {lastUserContains: make it}
  steps:
  - toolCalls:
    - { tool: Shell, args: { command: echo by-review > made } }
  - text: It is made.
"#;

#[tokio::test]
async fn p60_two_conversations_work_side_by_side_in_one_tree_and_a_stopped_one_is_read() -> Result<()> {
    let ns = TestNamespace::create("conversations").await?;
    ns.create_model(SCRIPT).await?;
    ns.create_empty_project("p").await?;
    ns.create_agent("a", "p", serde_json::json!({ "task": "Now wait for the other." })).await?;
    // The gateway may learn of the agent a moment after it runs.
    let started = async || {
        let started = ns.yoi(&["conversation", "start", "a", "review"]).await?;
        Ok((started.code == 0).then_some(()))
    };
    poll_until(TIMEOUT, "the second conversation is started", started).await?;
    let answer = ns.yoi(&["send", "a", "--conversation", "review", "--wait", "Now make it."]).await?.exit_ok()?;
    ensure!(answer.out.contains("It is made."), "{answer:?}");
    // `main` was in its command all the while: only the other conversation makes the file.
    ns.wait_task_complete("a").await?;

    let list: Value = serde_json::from_str(&ns.yoi(&["conversation", "ls", "a", "-o", "json"]).await?.exit_ok()?.out)?;
    let names: Vec<&Value> = list["items"].as_array().into_iter().flatten().map(|one| &one["name"]).collect();
    ensure!(names == ["main", "review"] && list["items"][1]["state"] == "Running", "{list}");
    let log = async |words: &[&str]| anyhow::Ok(ns.yoi(words).await?.exit_ok()?.out);
    let (main, review) = (log(&["log", "a"]).await?, log(&["log", "a", "--conversation", "review"]).await?);
    ensure!(main.contains("by-review") && !main.contains("make it"), "{main}");
    ensure!(review.contains("make it") && !review.contains("wait for the other"), "{review}");

    ns.yoi(&["conversation", "stop", "a", "review"]).await?.exit_ok()?;
    ensure!(ns.yoi(&["send", "a", "--conversation", "review", "hello"]).await?.code != 0, "a stopped conversation took a message");
    ns.yoi(&["stop", "a", "--wait"]).await?.exit_ok()?;
    // Of a stopped agent it is read, too.
    ensure!(log(&["log", "a", "--conversation", "review"]).await?.starts_with(&review), "its log has changed");
    ns.remove().await
}

const PLANNING: &str = r#"
rules:
- when: {lastUserContains: make it}
  steps:
  - toolCalls:
    - { tool: Shell, args: { command: echo by-agent > made } }
  - text: That is all.
"#;

#[tokio::test]
async fn p29_an_agent_in_planning_changes_nothing_also_after_a_restart_until_a_person_sets_another_mode() -> Result<()> {
    let ns = TestNamespace::create("modes").await?;
    ns.create_model(PLANNING).await?;
    ns.create_empty_project("p").await?;
    ns.create_agent("a", "p", serde_json::json!({})).await?;
    ns.wait_agent_ready("a").await?;
    // The gateway may learn of the agent a moment after it runs.
    let set = async || Ok((ns.yoi(&["mode", "a", "planning"]).await?.code == 0).then_some(()));
    poll_until(TIMEOUT, "the mode is set", set).await?;
    ns.yoi(&["restart", "a", "--wait"]).await?.exit_ok()?;
    let answer = ns.yoi(&["send", "a", "--wait", "Now make it."]).await?.exit_ok()?;
    ensure!(answer.out.contains("That is all."), "{answer:?}");
    let log = ns.yoi(&["log", "a"]).await?.exit_ok()?.out;
    ensure!(log.contains("planning from here on") && log.contains("tool_not_exposed"), "{log}");
    let list: Value = serde_json::from_str(&ns.yoi(&["conversation", "ls", "a", "-o", "json"]).await?.exit_ok()?.out)?;
    ensure!(list["items"][0]["mode"] == "planning", "{list}");
    ns.yoi(&["mode", "a", "engineering"]).await?.exit_ok()?;
    ns.yoi(&["send", "a", "--wait", "Now make it again."]).await?.exit_ok()?;
    let log = ns.yoi(&["log", "a"]).await?.exit_ok()?.out;
    ensure!(log.contains("engineering from here on") && log.matches("tool_not_exposed").count() == 1, "{log}");
    ns.remove().await
}
