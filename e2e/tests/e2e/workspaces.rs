//! Workspaces: isolation, forks, providers, sharing.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use yoi_crds::source::ProviderName;
use yoi_crds::{AgentWorkspace, YoiPod};
use yoi_e2e::fixtures::TREE_PATH;
use yoi_e2e::test_namespace::{TestNamespace, uid};
use yoi_wire::entry::{Body, ToolOutcome};

use crate::tool_output;

const SCRIPT: &str = r#"
rules:
- name: destroy
  when: { lastUserContains: "change everything" }
  steps:
  - toolCalls:
    - { tool: Shell, args: { command: "set -e; echo changed > README.md; rm -rf src; mv Makefile Moved; echo new > NEW; git commit -qam changed; find . -path ./.git -prune -o -type f -print0 | sort -z | xargs -0 sha256sum" } }
  - text: All is other now.
- name: look
  when: { lastUserContains: "hash the tree" }
  steps:
  - toolCalls:
    - { tool: Shell, args: { command: "git status --porcelain; find . -path ./.git -prune -o -type f -print0 | sort -z | xargs -0 sha256sum; git rev-parse HEAD" } }
  - text: Hashed.
- name: left
  when: { lastUserContains: "write left" }
  steps:
  - toolCalls: [{ tool: Write, args: { path: same, content: "left\n" } }, { tool: Shell, args: { command: "cat same; cat parent 2>&1" } }]
  - text: Left.
- name: right
  when: { lastUserContains: "write right" }
  steps:
  - toolCalls: [{ tool: Write, args: { path: same, content: "right\n" } }, { tool: Shell, args: { command: "cat same; cat parent 2>&1" } }]
  - text: Right.
- name: parent
  when: { lastUserContains: "write as parent" }
  steps:
  - toolCalls: [{ tool: Write, args: { path: parent, content: "parent\n" } }, { tool: Write, args: { path: same, content: "parent\n" } }]
  - text: Written.
- name: check
  when: { lastUserContains: "look again" }
  steps:
  - toolCalls: [{ tool: Shell, args: { command: "cat same" } }]
  - text: Seen.
- name: frozen
  when: { lastUserContains: "try to write" }
  steps:
  - toolCalls: [{ tool: Write, args: { path: same, content: "written\n" } }]
  - toolCalls: [{ tool: Shell, args: { command: "cat README.md; touch new 2>&1; rm -rf src 2>&1; find src -type f; git status --porcelain" } }]
  - text: Tried.
"#;

/// Creates a workspace that no YoiPod owns.
async fn tree(ns: &TestNamespace, name: &str, project: &str, more: Value) -> Result<()> {
    let mut spec = json!({ "source": { "project": { "name": project } }, "path": TREE_PATH });
    if let (Some(spec), Value::Object(more)) = (spec.as_object_mut(), more) {
        spec.extend(more);
    }
    let object = json!({ "apiVersion": "yoi.dev/v1alpha1", "kind": "AgentWorkspace", "metadata": { "name": name }, "spec": spec });
    ns.apply(&object.to_string()).await
}

#[tokio::test]
async fn w3_what_agents_do_leaves_the_source_tree_unchanged() -> Result<()> {
    let ns = TestNamespace::create("source").await?;
    ns.create_model(SCRIPT).await?;
    ns.create_git_project("p").await?;
    ns.create_agent("before", "p", json!({ "task": "hash the tree" })).await?;
    ns.wait_task_complete("before").await?;
    ns.create_agent("destroyer", "p", json!({ "task": "change everything" })).await?;
    ns.wait_task_complete("destroyer").await?;
    ns.create_agent("after", "p", json!({ "task": "hash the tree" })).await?;
    ns.wait_task_complete("after").await?;
    let (before, destroyer, after) =
        (tool_output::last(&ns, "before").await?, tool_output::last(&ns, "destroyer").await?, tool_output::last(&ns, "after").await?);
    ensure!(before.contains("README.md") && before.contains("src/main.c"), "{before}");
    ensure!(before == after, "the base changed:\n{before}\n---\n{after}");
    ensure!(destroyer.contains("Moved") && !destroyer.contains("src/main.c"), "the destroyer did nothing: {destroyer}");
    // The first agent sees a clean work tree: clone and snapshot leave no files behind.
    ensure!(!before.contains("?? ") && !before.contains(" M "), "{before}");
    // The tree is a snapshot or an overlay, not a copy.
    let workspace: AgentWorkspace = ns.get("before").await?;
    let provider = workspace.status.unwrap_or_default().provider;
    ensure!(provider.as_ref().is_some_and(|p| [ProviderName::Btrfs, ProviderName::Overlay].contains(&p.selected)), "{provider:?}");
    ns.remove().await
}

#[tokio::test]
async fn w4_w23_forks_of_a_living_agent_are_apart_from_it_and_from_each_other() -> Result<()> {
    let ns = TestNamespace::create("forks").await?;
    ns.create_model(SCRIPT).await?;
    ns.create_project_with("p", json!({ "source": { "empty": {} }, "provider": "Btrfs" })).await?;
    ns.create_agent("parent", "p", json!({ "task": "write as parent" })).await?;
    ns.wait_task_complete("parent").await?;
    let fork = json!({ "template": { "source": { "workspace": { "name": "parent" } } } });
    ns.create_agent("left", "p", json!({ "task": "write left", "workspace": fork })).await?;
    ns.create_agent("right", "p", json!({ "task": "write right", "workspace": fork })).await?;
    for (agent, word) in [("left", "left\nparent"), ("right", "right\nparent")] {
        ns.wait_task_complete(agent).await?;
        let seen = tool_output::last(&ns, agent).await?;
        ensure!(seen.contains(word), "{agent} sees {seen}");
    }
    // The parent goes on, and its file is its own.
    ns.wait_agent_ready("parent").await?;
    let seen = tool_output::after(&ns, "parent", "look again").await?;
    ensure!(seen.starts_with("parent\n") && !seen.contains("left") && !seen.contains("right"), "the parent sees a fork's file: {seen}");

    // W25: the parent is deleted, its forks stay.
    ns.delete::<YoiPod>("parent").await?;
    ns.wait_gone::<YoiPod>("parent").await?;
    ns.wait_gone::<AgentWorkspace>("parent").await?;
    ns.yoi(&["send", "left", "look again"]).await?.exit_ok()?;
    ns.wait_log("left", "a look after the parent went", |log| {
        log.iter().rev().find_map(|l| match &l.entry.body {
            Body::ToolEnded(t) if t.output.starts_with("left\n") && !t.output.contains("parent") => Some(()),
            _ => None,
        })
    })
    .await?;
    ns.remove().await
}

#[tokio::test]
async fn a_fork_of_an_agent_on_overlay_says_what_to_do_and_is_made_once_the_agent_is_stopped() -> Result<()> {
    let ns = TestNamespace::create("overlay").await?;
    ns.create_model(SCRIPT).await?;
    ns.create_project_with("p", json!({ "source": { "empty": {} }, "provider": "Overlay" })).await?;
    ns.create_agent("parent", "p", json!({ "task": "write as parent" })).await?;
    ns.wait_task_complete("parent").await?;
    let workspace: AgentWorkspace = ns.get("parent").await?;
    let provider = workspace.status.unwrap_or_default().provider;
    ensure!(provider.as_ref().is_some_and(|p| p.selected == ProviderName::Overlay && p.reason == "Overlay: as its base"), "{provider:?}");
    let diff = ns.yoi(&["diff", "parent", "--name-only"]).await?.exit_ok()?.out;
    ensure!(!diff.trim().is_empty(), "no change in the tree");

    let fork = json!({ "template": { "source": { "workspace": { "name": "parent" } } } });
    ns.create_agent("left", "p", json!({ "task": "write left", "workspace": fork })).await?;
    let refused = ns.wait_reason::<AgentWorkspace>("left", "Provisioned", "SourceNotSealed").await?;
    ensure!(refused.message.contains("kubectl yoi stop"), "{}", refused.message);
    ns.yoi(&["stop", "parent", "--wait"]).await?.exit_ok()?;
    ns.wait_task_complete("left").await?;
    let seen = tool_output::last(&ns, "left").await?;
    ensure!(seen.contains("left\nparent"), "left sees {seen}");

    // W19: the agent finds what it wrote, in the same upper layer.
    ns.yoi(&["start", "parent", "--wait"]).await?.exit_ok()?;
    let seen = tool_output::after(&ns, "parent", "look again").await?;
    ensure!(seen.starts_with("parent\n") && !seen.contains("left"), "the parent sees a fork's file: {seen}");
    ns.remove().await
}

#[tokio::test]
async fn h6_an_agent_works_in_a_tree_that_was_there_first_and_leaves_it_to_the_next_one() -> Result<()> {
    let ns = TestNamespace::create("ref").await?;
    ns.create_model(SCRIPT).await?;
    ns.create_git_project("p").await?;
    tree(&ns, "shared", "p", json!({})).await?;
    // Without a claim it waits for a Pod that mounts it.
    ns.wait_reason::<AgentWorkspace>("shared", "Scheduled", "WaitingForConsumer").await?;
    let before = uid(&ns.get::<AgentWorkspace>("shared").await?);
    let by_ref = json!({ "ref": { "name": "shared" } });
    ns.create_agent("first", "p", json!({ "task": "write left", "workspace": by_ref })).await?;
    ns.wait_task_complete("first").await?;
    let seen = tool_output::last(&ns, "first").await?;
    ensure!(seen.starts_with("left\n"), "{seen}");
    let own = ns.api::<AgentWorkspace>().get_opt("first").await?;
    ensure!(own.is_none(), "the agent has a tree of its own, too");

    // The agent does not own it: the tree and its content stay when the agent is deleted.
    ns.delete::<YoiPod>("first").await?;
    ns.wait_gone::<YoiPod>("first").await?;
    ns.create_agent("second", "p", json!({ "task": "look again", "workspace": by_ref })).await?;
    ns.wait_task_complete("second").await?;
    let seen = tool_output::last(&ns, "second").await?;
    ensure!(seen.starts_with("left\n"), "{seen}");
    ensure!(uid(&ns.get::<AgentWorkspace>("shared").await?) == before, "another tree of that name");
    ns.remove().await
}

#[tokio::test]
async fn c23_a_tree_that_is_read_only_is_read_and_the_kernel_refuses_to_write_it() -> Result<()> {
    let ns = TestNamespace::create("frozen").await?;
    ns.create_model(SCRIPT).await?;
    ns.create_git_project("p").await?;
    tree(&ns, "frozen", "p", json!({ "readOnly": true })).await?;
    ns.create_agent("reader", "p", json!({ "task": "try to write", "workspace": { "ref": { "name": "frozen" } } })).await?;
    ns.wait_task_complete("reader").await?;
    let outputs = tool_output::all(&ns, "reader").await?;
    let [(wrote, why), (_, seen)] = outputs.as_slice() else { anyhow::bail!("{outputs:?}") };
    ensure!(*wrote == ToolOutcome::Failed && why.contains("Read-only file system"), "{wrote:?}: {why}");
    ensure!(seen.contains("Fixture") && seen.lines().any(|l| l == "src/main.c"), "the tree is not what it is made from: {seen}");
    // For the new file, and for each file that the command tried to delete.
    ensure!(seen.matches("Read-only file system").count() >= 2, "{seen}");
    ensure!(!seen.contains("?? ") && !seen.contains(" D "), "something was written: {seen}");
    ns.remove().await
}
