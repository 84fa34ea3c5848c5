//! How much a tree may take on its node's disk.

use anyhow::{Context, Result, ensure};
use serde_json::json;
use yoi_crds::AgentWorkspace;
use yoi_crds::condition::{ConditionStatus, find};
use yoi_e2e::test_namespace::TestNamespace;

use crate::tool_output;

const MEBIBYTE: i64 = 1 << 20;

const SCRIPT: &str = r#"
rules:
- name: fill
  when: { lastUserContains: "write 15 MiB" }
  steps:
  - toolCalls: [{ tool: Shell, args: { command: "dd if=/dev/urandom of=big bs=64K count=240 conv=fsync 2>&1; stat -c 'size %s' big" } }]
  - text: Written.
- name: little
  when: { lastUserContains: "write 5 MiB" }
  steps:
  - toolCalls: [{ tool: Shell, args: { command: "dd if=/dev/urandom of=big bs=64K count=80 conv=fsync 2>&1; stat -c 'size %s' big" } }]
  - text: Written.
"#;

/// The size of the file that [`SCRIPT`] writes, from the output of its command.
fn size(output: &str) -> Result<i64> {
    let size = output.lines().find_map(|line| line.strip_prefix("size ")).with_context(|| format!("no size in {output}"))?;
    Ok(size.parse()?)
}

#[tokio::test]
async fn what_is_over_a_quota_is_refused_and_written_after_a_raise_while_the_agent_works() -> Result<()> {
    let ns = TestNamespace::create("quota").await?;
    ns.create_model(SCRIPT).await?;
    ns.create_project_with("p", json!({ "source": { "empty": {} }, "provider": "Btrfs" })).await?;
    ns.merge_patch::<yoi_crds::YoiProject>("p", &json!({ "spec": { "defaults": { "quota": "10Mi" } } })).await?;
    ns.create_agent("full", "p", json!({ "task": "write 15 MiB" })).await?;
    ns.create_agent("beside", "p", json!({ "task": "write 5 MiB" })).await?;
    ns.wait_task_complete("full").await?;
    let refused = tool_output::last(&ns, "full").await?;
    let written = size(&refused)?;
    ensure!(refused.contains("quota exceeded") && (10 * MEBIBYTE..=11 * MEBIBYTE).contains(&written), "{refused}");
    ns.wait_condition::<AgentWorkspace>("full", "QuotaEnforced", ConditionStatus::True).await?;
    // Another tree of the same base pays nothing for it.
    ns.wait_task_complete("beside").await?;
    ensure!(size(&tool_output::last(&ns, "beside").await?)? == 5 * MEBIBYTE, "{}", tool_output::last(&ns, "beside").await?);

    let unhealthy = ns.wait_reason::<AgentWorkspace>("full", "Healthy", "QuotaExceeded").await?;
    ensure!(unhealthy.message.contains("10Mi"), "{}", unhealthy.message);
    let bytes = ns.get::<AgentWorkspace>("full").await?.status.and_then(|status| status.volume?.exclusive_bytes);
    ensure!(bytes.is_some_and(|bytes| (10 * MEBIBYTE..=11 * MEBIBYTE).contains(&bytes)), "{bytes:?}");
    let listed = ns.yoi(&["ls", "workspaces"]).await?.exit_ok()?.out;
    let line = listed.lines().find(|line| line.starts_with("full ")).context("the tree is not listed")?;
    ensure!(line.contains("10.") && line.contains("MiB"), "{listed}");

    ns.merge_patch::<AgentWorkspace>("full", &json!({ "spec": { "quota": "40Mi" } })).await?;
    ns.wait_for::<AgentWorkspace, ()>("full", "quota of 40 MiB", |workspace| {
        find(&workspace?.status.as_ref()?.conditions, "QuotaEnforced")?.message.contains("40Mi").then_some(())
    })
    .await?;
    let raised = tool_output::after(&ns, "full", "write 15 MiB").await?;
    ensure!(size(&raised)? == 15 * MEBIBYTE && !raised.contains("quota"), "{raised}");
    ns.remove().await
}

#[tokio::test]
async fn a_quota_that_the_file_system_cannot_enforce_is_told_and_so_is_a_tree_that_is_over_it() -> Result<()> {
    let ns = TestNamespace::create("soft-quota").await?;
    ns.create_model(SCRIPT).await?;
    ns.create_project_with("p", json!({ "source": { "empty": {} }, "provider": "Copy" })).await?;
    ns.merge_patch::<yoi_crds::YoiProject>("p", &json!({ "spec": { "defaults": { "quota": "10Mi" } } })).await?;
    ns.create_agent("over", "p", json!({ "task": "write 15 MiB" })).await?;
    ns.wait_task_complete("over").await?;
    ensure!(size(&tool_output::last(&ns, "over").await?)? == 15 * MEBIBYTE, "{}", tool_output::last(&ns, "over").await?);
    let lacking = ns.wait_reason::<AgentWorkspace>("over", "QuotaEnforced", "Unsupported").await?;
    ensure!(!lacking.message.is_empty(), "no word on what is lacking");
    // It may have been measured while the file grew.
    let told = |message: &str| message.contains("10Mi") && message.contains("15");
    ns.wait_message::<AgentWorkspace>("over", "Healthy", "QuotaExceeded", told).await?;
    // It stays in use, so that its agent can remove files.
    ns.wait_condition::<AgentWorkspace>("over", "Ready", ConditionStatus::True).await?;
    ns.remove().await
}
