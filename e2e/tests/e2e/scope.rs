//! Paths of the tree that an agent may not write, or not see.

use anyhow::{Result, ensure};
use serde_json::json;
use yoi_crds::YoiPod;
use yoi_crds::condition::ConditionStatus;
use yoi_e2e::test_namespace::TestNamespace;

use crate::tool_output;

const SCRIPT: &str = r#"
rules:
- name: make
  when: { lastUserContains: "make the folders" }
  steps:
  - toolCalls: [{ tool: Shell, args: { command: "mkdir -p open/inner closed keys && echo secret >keys/key && echo closed >closed/file" } }]
  - text: Made.
- name: try
  when: { lastUserContains: "try it" }
  steps:
  - toolCalls: [{ tool: Shell, args: { command: "for at in . open closed keys moved moved/inner; do (echo x >$at/new) 2>/dev/null && echo wrote $at || echo refused $at; done; mv open moved 2>/dev/null || mv moved open 2>/dev/null || echo stays; cat closed/file; echo hidden: $(ls -A keys)" } }]
  - text: Tried.
"#;

/// Has the agent try to write everywhere, and returns what came of it.
async fn try_it(ns: &TestNamespace) -> Result<Vec<String>> {
    ns.yoi(&["send", "a", "--wait", "Now try it."]).await?.exit_ok()?;
    Ok(tool_output::last(ns, "a").await?.lines().map(str::trim).map(str::to_owned).collect())
}

#[tokio::test]
async fn c23_c24_an_agent_writes_where_its_scope_allows_and_does_not_start_where_the_node_cannot_hold_it() -> Result<()> {
    let ns = TestNamespace::create("scope").await?;
    ns.create_model(SCRIPT).await?;
    ns.create_empty_project("p").await?;
    ns.create_agent("a", "p", json!({ "task": "make the folders" })).await?;
    ns.wait_task_complete("a").await?;
    let before = try_it(&ns).await?;
    let begins = |lines: &[String], expected: &[&str]| {
        lines.iter().zip(expected).filter(|(line, expected)| line == *expected).count() == expected.len()
    };
    // It has moved `open`, as anybody may who may write the folder above.
    let all = ["wrote .", "wrote open", "wrote closed", "wrote keys", "refused moved", "refused moved/inner", "closed", "hidden: key new"];
    ensure!(begins(&before, &all), "{before:?}");

    let deny = json!([{ "path": "moved/inner", "access": "Write" }, { "path": "keys", "access": "Read" }]);
    let scope = json!({ "allow": [{ "path": "moved", "access": "Write" }], "deny": deny });
    ns.merge_patch::<YoiPod>("a", &json!({ "spec": { "scope": scope } })).await?;
    ns.wait_reason::<YoiPod>("a", "ManifestCurrent", "SpecChanged").await?;
    ns.yoi(&["restart", "a", "--wait"]).await?.exit_ok()?;
    let enforced = ns.wait_condition::<YoiPod>("a", "ScopeEnforced", ConditionStatus::True).await?;
    ensure!(enforced.reason == "CoversLaid", "{enforced:?}");
    ns.yoi(&["send", "a", "--wait", "make the folders"]).await?.exit_ok()?;
    let made = tool_output::last(&ns, "a").await?;
    ensure!(made.contains("Read-only file system"), "{made}");
    let after = try_it(&ns).await?;
    let some =
        ["refused .", "refused open", "refused closed", "refused keys", "wrote moved", "refused moved/inner", "stays", "closed", "hidden:"];
    ensure!(begins(&after, &some), "what is closed is read, and what is hidden is not: {after:?}");
    let shown = ns.yoi(&["scope", "a"]).await?.exit_ok()?.out;
    for line in ["allow Write moved yes", "deny Read keys yes", "moved writable -", "moved/inner read-only -", "keys hidden -"] {
        let has = |of: &str| of.split_whitespace().collect::<Vec<_>>().join(" ") == line;
        ensure!(shown.lines().any(has), "no line {line:?} in {shown}");
    }
    ensure!(shown.lines().any(|line| line == "ScopeEnforced"), "{shown}");

    // A path that is not there.
    ns.yoi(&["stop", "a", "--wait"]).await?.exit_ok()?;
    let nowhere = json!({ "allow": [{ "path": "nowhere", "access": "Write" }], "deny": null });
    ns.merge_patch::<YoiPod>("a", &json!({ "spec": { "scope": nowhere, "desiredState": "Running" } })).await?;
    let refused = ns.wait_reason::<YoiPod>("a", "Ready", "CoverRefused").await?;
    ensure!(refused.message.contains("nowhere: it is not in the tree"), "{refused:?}");
    let enforced = ns.wait_condition::<YoiPod>("a", "ScopeEnforced", ConditionStatus::False).await?;
    ensure!(enforced.message.contains("nowhere"), "{enforced:?}");
    // Mended, it starts by itself.
    ns.merge_patch::<YoiPod>("a", &json!({ "spec": { "scope": null } })).await?;
    ns.wait_agent_ready("a").await?;
    let again = try_it(&ns).await?;
    ensure!(again[0] == "wrote .", "{again:?}");
    ns.remove().await
}
