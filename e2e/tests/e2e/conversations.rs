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

/// The sub-agent says where the word is, which `main` has in its answer.
const LED: &str = r#"
rules:
- when: {lastUserContains: have it looked for}
  steps:
  - toolCalls:
    - { tool: SpawnSubagent, args: { template: look, task: look for the word } }
  - toolCalls:
    - { tool: WaitSubagents, args: { all: true } }
  - text: It was found.
- when: {lastUserContains: look for the word}
  steps:
  - toolCalls:
    - { tool: Shell, args: { command: echo by-sub-agent > made } }
  - text: The word is in the note.
"#;

#[tokio::test]
async fn p38_an_agent_has_its_task_done_by_a_sub_agent_of_its_template_and_people_read_how_it_was() -> Result<()> {
    let ns = TestNamespace::create("subagents").await?;
    ns.create_model(LED).await?;
    ns.create_empty_project("p").await?;
    let look = serde_json::json!({ "name": "look", "description": "Looks for words.", "tools": ["Read", "Grep"], "mode": "Planning" });
    let spec = serde_json::json!({ "agent": { "builtin": { "subagents": [look] } }, "task": "Now have it looked for." });
    ns.create_agent("a", "p", spec).await?;
    ns.wait_task_complete("a").await?;
    let log = async |words: &[&str]| anyhow::Ok(ns.yoi(words).await?.exit_ok()?.out);
    let (main, own) = (log(&["log", "a"]).await?, log(&["log", "a", "--conversation", "sub-1"]).await?);
    ensure!(main.contains("sub-1") && main.contains("The word is in the note."), "{main}");
    ensure!(own.contains("tool_not_exposed") && !own.contains("have it looked for"), "it has a tool that its template lacks: {own}");
    let status: Value = serde_json::from_str(&log(&["projection", "a", "subagent_status", "-o", "json"]).await?)?;
    ensure!(status[0]["name"] == "sub-1" && status[0]["state"] == "completed", "{status}");
    let events = log(&["events", "a"]).await?;
    ensure!(events.contains("conversation.subagent.started") && events.contains("conversation.subagent.completed"), "{events}");
    ns.remove().await
}
