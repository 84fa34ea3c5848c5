//! Paths of an agent's tree that it lends to an agent that it starts: the kernel closes them to it until they are back.

use anyhow::{Context, Result, ensure};
use kube::api::{Patch, PatchParams};
use serde_json::json;
use yoi_crds::workspace::ClaimState;
use yoi_crds::{AgentWorkspace, YoiPod};
use yoi_e2e::test_namespace::{TestNamespace, uid};
use yoi_wire::entry::Body;

use crate::tool_output;

const SCRIPT: &str = r#"
rules:
- name: child
  when: { lastUserContains: "work as the child" }
  steps:
  - toolCalls: [{ tool: Shell, args: { command: "echo child > docs/from-child && cat docs/from-lead; echo child > from-child" } }]
  - text: The child has done it.
- name: lead
  when: { lastUserContains: "hand the docs over" }
  steps:
  - toolCalls: [{ tool: Shell, args: { command: "mkdir docs && echo lead > docs/from-lead" } }]
  - toolCalls: [{ tool: SpawnPod, args: { name: child, task: "work as the child", share: [{ path: docs, access: Write }] } }]
  - toolCalls: [{ tool: WaitPods, args: { names: [child] } }]
    expect: ["[Lent to child: docs."]
  - toolCalls: [{ tool: Shell, args: { command: "cat docs/from-child; echo again > docs/from-lead; echo lead > beside" } }]
  - text: Handed over.
- name: again
  when: { lastUserContains: "lend them again" }
  steps:
  - toolCalls: [{ tool: SpawnPod, args: { name: second, task: "work as the child", share: [{ path: docs/more, access: Write }] } }]
  - text: Asked.
- name: end
  when: { lastUserContains: "end the child" }
  steps:
  - toolCalls: [{ tool: StopPod, args: { name: child } }]
  - text: Ended.
- name: write
  when: { lastUserContains: "write it yourself" }
  steps:
  - toolCalls: [{ tool: Shell, args: { command: "echo back > docs/from-lead && cat docs/from-lead" } }]
    expect: ["[Back from child: docs."]
  - text: Written.
"#;

fn states(tree: &AgentWorkspace) -> Vec<ClaimState> {
    tree.status.iter().flat_map(|status| &status.claims).map(|claim| claim.state).collect()
}

#[tokio::test]
async fn c7_a_lead_does_not_write_what_it_has_lent_until_its_child_is_stopped() -> Result<()> {
    let ns = TestNamespace::create("loans").await?;
    ns.create_model(SCRIPT).await?;
    ns.create_project_with("p", json!({ "source": { "empty": {} }, "provider": "Btrfs" })).await?;
    let delegation = json!({ "allow": [{ "path": "docs", "access": "Write" }] });
    ns.create_agent("lead", "p", json!({ "task": "hand the docs over", "delegation": delegation })).await?;
    ns.wait_task_complete("lead").await?;
    let outputs: Vec<String> = tool_output::all(&ns, "lead").await?.into_iter().map(|(_, output)| output).collect();
    ensure!(outputs.iter().any(|output| output.contains("child is started in your tree")), "{outputs:?}");
    let last = outputs.last().context("the lead ran no tool")?;
    ensure!(last.contains("child") && last.contains("Read-only file system"), "the lead reads and does not write: {last}");
    ensure!(last.matches("Read-only file system").count() == 1, "beside it, it writes: {last}");

    ns.wait_task_complete("child").await?;
    let of_child = tool_output::last(&ns, "child").await?;
    ensure!(
        of_child.contains("lead") && of_child.matches("Read-only file system").count() == 1,
        "the child writes what it was lent alone: {of_child}"
    );
    let (lead, child): (YoiPod, YoiPod) = (ns.get("lead").await?, ns.get("child").await?);
    let by = child.spec.spawned_by.as_deref().context("the child has no record of its birth")?;
    ensure!(by.uid == uid(&lead) && by.loan.is_some() && child.spec.delegation.is_none(), "{:?}", child.spec);
    let node = |agent: &YoiPod| agent.status.as_ref().and_then(|status| status.workspace.as_ref()?.node_name.clone());
    ensure!(node(&lead).is_some() && node(&lead) == node(&child), "they share a tree: {:?}, {:?}", node(&lead), node(&child));
    let tree: AgentWorkspace = ns.get("lead").await?;
    ensure!(states(&tree) == [ClaimState::Active], "{:?}", tree.status);
    let shown = ns.yoi(&["scope", "lead"]).await?.exit_ok()?.out;
    ensure!(shown.lines().any(|line| line.contains("docs") && line.contains("child") && line.contains("Active")), "{shown}");

    // What is held is not lent twice, and nobody else writes who holds it.
    let outputs = tool_output::of_run(&ns, "lead", "lend them again").await?;
    ensure!(outputs[0].contains("No agent was started") && outputs[0].contains("child holds it"), "{outputs:?}");
    let forged = json!({ "status": { "claims": [] } });
    let refused = ns.api::<AgentWorkspace>().patch_status("lead", &PatchParams::default(), &Patch::Merge(&forged)).await.err();
    let refused = refused.context("a user has taken a claim away")?.to_string();
    ensure!(refused.contains("only the Yoi gateway and the Yoi operator write the claims"), "{refused}");

    let outputs = tool_output::of_run(&ns, "lead", "end the child").await?;
    ensure!(outputs[0].contains("is being stopped"), "{outputs:?}");
    ns.wait_for::<AgentWorkspace, _>("lead", "its paths back", |tree| {
        let tree = tree?;
        let is_back = states(tree).iter().all(|state| *state == ClaimState::Released);
        let is_open = tree.status.iter().flat_map(|status| &status.loans).all(|view| !view.covered);
        (is_back && is_open).then_some(())
    })
    .await?;
    let outputs = tool_output::of_run(&ns, "lead", "write it yourself").await?;
    ensure!(outputs[0].starts_with("back\n"), "{outputs:?}");
    let told = ns.log("lead").await?;
    let told = told.iter().filter(|line| matches!(&line.entry.body, Body::SystemItem(item) if item.topic == "Loan")).count();
    ensure!(told == 2, "the log has {told} entries of the loan");
    ns.remove().await
}
