//! A policy that changes while an agent runs.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use yoi_crds::condition::ConditionStatus;
use yoi_crds::{YoiPod, YoiProject};
use yoi_e2e::test_namespace::TestNamespace;
use yoi_wire::entry::Body;

use crate::tool_output;

const SCRIPT: &str = "
rules:
- when: { lastUserContains: make it }
  steps:
  - toolCalls:
    - { tool: Write, args: { path: made, content: by the agent } }
  - text: That is all.
";

/// Has the agent write a file, and returns what came of the call.
async fn write(ns: &TestNamespace) -> Result<String> {
    ns.yoi(&["send", "a", "--wait", "Now make it."]).await?.exit_ok()?;
    tool_output::last(ns, "a").await
}

/// Sets the policy of the project, and waits until the log of the agent has this many changes of it.
async fn set_policy(ns: &TestNamespace, policy: Value, changes: usize) -> Result<()> {
    ns.merge_patch::<YoiProject>("p", &json!({ "spec": { "policy": policy } })).await?;
    ns.wait_log("a", "the policy is in the log", |log| {
        let is_one = |body: &Body| matches!(body, Body::Extension(extension) if extension.name == "yoi/policy");
        (log.iter().filter(|line| is_one(&line.entry.body)).count() == changes).then_some(())
    })
    .await
}

#[tokio::test]
async fn p74_a_policy_change_takes_effect_in_a_running_agent_and_a_line_that_is_none_changes_nothing() -> Result<()> {
    let ns = TestNamespace::create("policy").await?;
    ns.create_model(SCRIPT).await?;
    ns.create_empty_project("p").await?;
    ns.create_agent("a", "p", json!({})).await?;
    ns.wait_agent_ready("a").await?;
    let first: YoiPod = ns.get("a").await?;

    set_policy(&ns, json!({ "deny": ["Write"] }), 1).await?;
    let refused = write(&ns).await?;
    ensure!(refused.starts_with("tool_denied"), "{refused}");
    ns.wait_condition::<YoiPod>("a", "PolicyValid", ConditionStatus::True).await?;
    ns.wait_condition::<YoiPod>("a", "ManifestCurrent", ConditionStatus::True).await?;

    ns.merge_patch::<YoiProject>("p", &json!({ "spec": { "policy": { "deny": ["Wriet"] } } })).await?;
    let invalid = ns.wait_reason::<YoiPod>("a", "PolicyValid", "PolicyInvalid").await?;
    ensure!(invalid.message.contains("spec.policy.deny[0]") && invalid.message.ends_with("stays in force"), "{invalid:?}");
    let refused = write(&ns).await?;
    ensure!(refused.starts_with("tool_denied"), "{refused}");

    set_policy(&ns, Value::Null, 2).await?;
    let made = write(&ns).await?;
    ensure!(!made.starts_with("tool_denied"), "{made}");
    let now: YoiPod = ns.get("a").await?;
    let pod = |agent: &YoiPod| agent.status.as_ref().and_then(|status| status.pod.clone());
    ensure!(pod(&now) == pod(&first), "another Pod was made");
    ns.remove().await
}
