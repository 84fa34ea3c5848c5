//! Agents that an agent starts, each in a fork of its tree.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use serde_json::json;
use yoi_crds::YoiPod;
use yoi_crds::pod::DesiredState;
use yoi_e2e::poll_until;
use yoi_e2e::test_namespace::{TIMEOUT, TestNamespace, uid};
use yoi_wire::entry::Body;

use crate::tool_output;

const SCRIPT: &str = r#"
rules:
- name: child
  when: { lastUserContains: "work as the child" }
  steps:
  - toolCalls: [{ tool: Write, args: { path: from-child, content: "child\n" } }, { tool: Shell, args: { command: "cat from-lead from-child" } }]
  - text: The child has done it.
- name: lead
  when: { lastUserContains: "start another" }
  steps:
  - toolCalls: [{ tool: Write, args: { path: from-lead, content: "lead\n" } }]
  - toolCalls: [{ tool: SpawnPod, args: { name: child, task: "work as the child" } }, { tool: WaitPods, args: { names: [child] } }]
  - text: Started.
- name: look
  when: { lastUserContains: "look at it" }
  steps:
  - toolCalls: [{ tool: ReadPodOutput, args: { name: child } }, { tool: DiffPod, args: { name: child } }, { tool: ListPods, args: {} }]
  - text: Looked.
- name: end
  when: { lastUserContains: "end it" }
  steps:
  - toolCalls: [{ tool: StopPod, args: { name: child } }]
  - text: Ended.
"#;

#[tokio::test]
async fn a_lead_starts_a_child_in_a_fork_of_its_tree_reads_it_over_a_restart_and_stops_it() -> Result<()> {
    let ns = TestNamespace::create("children").await?;
    ns.create_model(SCRIPT).await?;
    ns.create_project_with("p", json!({ "source": { "empty": {} }, "provider": "Btrfs" })).await?;
    ns.create_agent("lead", "p", json!({ "task": "start another", "delegation": {} })).await?;
    ns.wait_task_complete("lead").await?;
    let outputs: Vec<String> = tool_output::all(&ns, "lead").await?.into_iter().map(|(_, output)| output).collect();
    ensure!(outputs.iter().any(|output| output.contains("is started in a fork")), "{outputs:?}");
    ensure!(outputs.last().is_some_and(|output| output.contains("child is Idle")), "{outputs:?}");

    ns.wait_task_complete("child").await?;
    let (lead, child): (YoiPod, YoiPod) = (ns.get("lead").await?, ns.get("child").await?);
    let by = child.spec.spawned_by.as_deref().context("the child has no record of its birth")?;
    ensure!(by.name == "lead" && by.uid == uid(&lead) && child.spec.delegation.is_none(), "{:?}", child.spec);
    ensure!(child.metadata.owner_references.is_none(), "the child goes with its parent: {:?}", child.metadata.owner_references);
    let seen = tool_output::last(&ns, "child").await?;
    ensure!(seen.contains("lead\nchild"), "the child sees {seen}");

    let outputs = tool_output::of_run(&ns, "lead", "look at it").await?;
    ensure!(outputs.len() == 3 && outputs[0].contains("The child has done it."), "{outputs:?}");
    // What only reads may end in any order.
    ensure!(outputs.iter().any(|output| output.contains("from-child")), "{outputs:?}");
    ensure!(outputs.iter().any(|output| output.lines().any(|line| line.starts_with("child (child)"))), "{outputs:?}");

    // The cursor is in the lead's log.
    let pod = lead.status.and_then(|status| status.pod).context("the lead has a Pod")?.name;
    ns.delete::<Pod>(&pod).await?;
    ns.wait_log("lead", "a second runtime", |log| {
        (log.iter().filter(|line| matches!(line.entry.body, Body::RuntimeStarted(_))).count() == 2).then_some(())
    })
    .await?;
    ns.wait_agent_ready("lead").await?;
    let outputs = tool_output::of_run(&ns, "lead", "look at it").await?;
    ensure!(outputs[0].contains("It has said nothing new"), "{outputs:?}");

    let list = ns.yoi(&["ls", "agents"]).await?.exit_ok()?.out;
    ensure!(list.lines().any(|line| line.trim_start().starts_with("└ child") && line.contains("lead")), "{list}");
    let outputs = tool_output::of_run(&ns, "lead", "end it").await?;
    ensure!(outputs[0].contains("is being stopped"), "{outputs:?}");
    ns.wait_for::<YoiPod, _>("child", "stopped", |child| {
        child
            .filter(|child| {
                child.spec.desired_state == DesiredState::Stopped && child.status.as_ref().is_some_and(|status| status.pod.is_none())
            })
            .map(drop)
    })
    .await?;
    // A stopped child is read all the same.
    let outputs = tool_output::of_run(&ns, "lead", "look at it").await?;
    ensure!(outputs[0].contains("child is Stopped") && outputs.iter().any(|output| output.contains("from-child")), "{outputs:?}");

    // Nobody else says whose child an agent is.
    let mut forged = YoiPod::new("forged", child.spec.clone());
    forged.metadata.namespace = Some(ns.name.clone());
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let refused = ns.api::<YoiPod>().create(&dry, &forged).await.err().context("a user has forged a child")?.to_string();
    ensure!(refused.contains("only the Yoi gateway says who has started an agent"), "{refused}");
    forged.spec.spawned_by = None;
    ns.api::<YoiPod>().create(&dry, &forged).await.context("the control, the same without it, is refused")?;
    ns.remove().await
}

const MERGES: &str = r#"
rules:
- name: child
  when: { lastUserContains: "work as the child" }
  steps:
  - toolCalls:
    - { tool: Shell, args: { command: "sed -i s/1/one/ a && git commit -q -am child && echo late > late && cat a" } }
  - text: The child has done it.
- name: again
  when: { lastUserContains: "once more" }
  steps:
  - text: The child is back.
- name: lead
  when: { lastUserContains: "start another" }
  steps:
  - toolCalls: [{ tool: Shell, args: { command: "git init -q && printf '1\\n2\\n3\\n4\\n' > a && git add a && git commit -q -m base && git log --oneline" } }]
  - toolCalls: [{ tool: SpawnPod, args: { name: child, task: "work as the child" } }, { tool: WaitPods, args: { names: [child] } }]
  - text: Started.
- name: merge
  when: { lastUserContains: "merge it" }
  steps:
  - toolCalls: [{ tool: Shell, args: { command: "sed -i s/4/four/ a" } }]
  - toolCalls: [{ tool: PodState, args: { name: child } }]
  - toolCalls: [{ tool: PodLog, args: { name: child } }]
  - toolCalls: [{ tool: MergePod, args: { name: child, dryRun: true } }]
  - toolCalls: [{ tool: MergePod, args: { name: child } }]
  - toolCalls: [{ tool: Shell, args: { command: "cat a late; git log --oneline | wc -l" } }]
  - text: Merged.
- name: end
  when: { lastUserContains: "end it" }
  steps:
  - toolCalls: [{ tool: StopPod, args: { name: child } }]
  - text: Ended.
- name: restore
  when: { lastUserContains: "restore it" }
  steps:
  - toolCalls: [{ tool: ListPods, args: {} }]
  - toolCalls: [{ tool: RestorePod, args: { name: child } }]
  - text: Restored.
- name: more
  when: { lastUserContains: "give it more" }
  steps:
  - toolCalls: [{ tool: SendToPod, args: { to: child, message: "once more" } }]
  - text: Given.
"#;

#[tokio::test]
async fn d12_a_lead_merges_its_childs_work_and_restores_it() -> Result<()> {
    let ns = TestNamespace::create("merges").await?;
    ns.create_model(MERGES).await?;
    ns.create_project_with("p", json!({ "source": { "empty": {} }, "provider": "Btrfs" })).await?;
    ns.create_agent("lead", "p", json!({ "task": "start another", "delegation": {} })).await?;
    ns.wait_task_complete("lead").await?;
    ns.wait_task_complete("child").await?;

    let outputs = tool_output::of_run(&ns, "lead", "merge it").await?;
    ensure!(outputs.len() == 6, "{outputs:?}");
    ensure!(outputs[1].contains("1 paths: late") && outputs[1].contains("finished"), "{}", outputs[1]);
    ensure!(outputs[2].contains("sed -i s/1/one/") && outputs[2].contains("The child has done it."), "{}", outputs[2]);
    ensure!(outputs[3].contains("2 paths would be merged"), "{}", outputs[3]);
    ensure!(outputs[4].contains("2 paths were merged"), "{}", outputs[4]);
    // The lead's own change is in it, and nothing was committed.
    ensure!(outputs[5].contains("one\n2\n3\nfour\nlate\n1"), "{}", outputs[5]);
    let merged = ns.yoi(&["merge", "child"]).await?.exit_ok()?.out;
    ensure!(merged.contains("the tree of lead has all that child has done"), "{merged}");

    tool_output::of_run(&ns, "lead", "end it").await?;
    // One that is not up in time, as on a busy machine, is stopped again.
    for tries_left in (0..5).rev() {
        ns.wait_for::<YoiPod, _>("child", "stopped", |child| {
            child.filter(|child| child.status.as_ref().is_some_and(|status| status.pod.is_none())).map(drop)
        })
        .await?;
        let outputs = tool_output::of_run(&ns, "lead", "restore it").await?;
        ensure!(outputs[0].contains("Stopped; restorable"), "{}", outputs[0]);
        if outputs[1].contains("child is restored") {
            break;
        }
        ensure!(tries_left > 0 && outputs[1].contains("was stopped again"), "{}", outputs[1]);
    }
    tool_output::of_run(&ns, "lead", "give it more").await?;
    ns.wait_log("child", "an answer after the restore", |log| {
        let says = |body: &Body| matches!(body, Body::Assistant(answer) if answer.text.contains("The child is back."));
        log.iter().any(|line| says(&line.entry.body)).then_some(())
    })
    .await?;
    let lead: YoiPod = ns.get("lead").await?;
    ensure!(lead.status.as_ref().and_then(|status| status.children) == Some(1), "{:?}", lead.status);
    let refused = ns.yoi(&["restore", "child"]).await?;
    ensure!(refused.code == 1 && refused.err.contains("live"), "{refused:?}");
    ns.remove().await
}

const NARROW: &str = r#"
rules:
- name: child
  when: { lastUserContains: "work as the child" }
  steps:
  - toolCalls: [{ tool: Shell, args: { command: "pwd; ls" } }, { tool: Write, args: { path: docs/more, content: "x" } }]
  - text: The child has done it.
- name: lead
  when: { lastUserContains: "start a narrow one" }
  steps:
  - toolCalls: [{ tool: Shell, args: { command: "mkdir docs && touch docs/here" } }]
  - toolCalls: [{ tool: SpawnPod, args: { name: child, task: "work as the child", cwd: docs } }]
  - toolCalls: [{ tool: SpawnPod, args: { name: child, task: "work as the child", cwd: /workspace/tree/docs, template: look } }]
  - text: Started.
- name: again
  when: { lastUserContains: "what now" }
  steps:
  - text: Nothing.
"#;

#[tokio::test]
async fn c10_c11_g8_a_child_has_its_templates_tools_and_its_folder_and_its_parent_is_told_of_its_end() -> Result<()> {
    let ns = TestNamespace::create("narrow").await?;
    ns.create_model(NARROW).await?;
    ns.create_project_with("p", json!({ "source": { "empty": {} }, "provider": "Btrfs" })).await?;
    let look = json!({ "name": "look", "description": "Looks.", "tools": ["Shell", "Read"] });
    let agent = json!({ "builtin": { "instruction": "You are lead.", "subagents": [look] } });
    ns.create_agent("lead", "p", json!({ "task": "start a narrow one", "delegation": {}, "agent": agent })).await?;
    ns.wait_task_complete("lead").await?;
    let outputs: Vec<String> = tool_output::all(&ns, "lead").await?.into_iter().map(|(_, output)| output).collect();
    ensure!(outputs[1].contains("is relative") && outputs[2].contains("is started in a fork"), "{outputs:?}");
    ns.wait_task_complete("child").await?;
    let of_child: Vec<String> = tool_output::all(&ns, "child").await?.into_iter().map(|(_, output)| output).collect();
    ensure!(of_child.iter().any(|output| output.contains("/workspace/tree/docs\nhere")), "{of_child:?}");
    ensure!(!of_child.iter().any(|output| output.contains("bytes to docs/more")), "it writes: {of_child:?}");
    let child: YoiPod = ns.get("child").await?;
    ensure!(child.spec.working_dir.as_deref() == Some("docs"), "{:?}", child.spec);
    ensure!(child.spec.policy.as_ref().is_some_and(|policy| policy.allow == ["Shell", "Read"]), "{:?}", child.spec.policy);

    ns.yoi(&["stop", "child", "--wait"]).await?.exit_ok()?;
    // A hint: it comes some seconds after the end, and is read with a run of the lead.
    let told = poll_until(TIMEOUT, "the lead is told of its child's end", async || {
        tool_output::of_run(&ns, "lead", "what now").await?;
        let is_told = |body: &Body| matches!(body, Body::PeerMessage(message) if message.text.contains("It has stopped"));
        Ok(ns.log("lead").await?.iter().any(|line| is_told(&line.entry.body)).then_some(()))
    });
    told.await?;
    ns.remove().await
}
