//! A policy that has a person asked, and a person who may answer and nothing else.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use yoi_crds::YoiPod;
use yoi_e2e::poll_until;
use yoi_e2e::test_namespace::{TIMEOUT, TestNamespace};
use yoi_wire::entry::{Body, ToolOutcome};

use crate::tool_output;

const SCRIPT: &str = "
rules:
- steps:
  - toolCalls:
    - { tool: Shell, args: { command: echo one } }
    - { tool: Shell, args: { command: echo two } }
  - text: All said.
";

/// The call of the agent that waits, as the approver's own list has it. A binding is known everywhere a moment after it was made.
async fn waiting_call(ns: &TestNamespace, approver: &Path, after: u64) -> Result<Value> {
    let look = async || {
        let list = ns.yoi_as(approver, &["approvals", "-o", "json"]).await?;
        if list.code == 4 {
            return Ok(None);
        }
        let list: Value = serde_json::from_str(&list.exit_ok()?.out)?;
        let is_new = |call: &&Value| call["call"].as_u64().is_some_and(|number| number > after);
        Ok(list["items"].as_array().into_iter().flatten().find(is_new).cloned())
    };
    poll_until(TIMEOUT, "a call waits", look).await.map(|(call, _)| call)
}

#[tokio::test]
async fn p69_p73_a_person_with_no_other_right_approves_one_call_and_denies_another() -> Result<()> {
    let ns = TestNamespace::create("approvals").await?;
    ns.create_model(SCRIPT).await?;
    ns.create_empty_project("p").await?;
    let approver = ns.kubeconfig_for("approver", Some("yoi-approve")).await?;
    let viewer = ns.kubeconfig_for("viewer", Some("view")).await?;
    let policy = json!({ "ask": ["Shell"], "approval": { "timeout": "30m" } });
    ns.create_agent("a", "p", json!({ "task": "Say it.", "policy": policy })).await?;

    let first = waiting_call(&ns, &approver, 0).await?;
    ensure!(first["agent"] == "a" && first["tool"] == "Shell" && first["args"]["command"] == "echo one", "{first}");
    let number = first["call"].as_u64().context("a call without a number")?;
    let call = number.to_string();
    ns.wait_for::<YoiPod, ()>("a", "NeedsInput", |agent| {
        let live = agent?.status.as_ref()?.live.as_ref()?;
        (live.activity.as_str() == "NeedsInput").then_some(())
    })
    .await?;
    // Reading is not answering, and answering is neither reading nor steering.
    ensure!(ns.yoi_as(&viewer, &["approve", "a", &call]).await?.code == 4, "a viewer has approved a call");
    for words in [&["log", "a"][..], &["cancel", "a"], &["send", "a", "do it"]] {
        ensure!(ns.yoi_as(&approver, words).await?.code == 4, "the approver may {words:?}");
    }
    let unknown = ns.yoi_as(&approver, &["approve", "a", "999999"]).await?;
    ensure!(unknown.code == 1 && unknown.err.contains("no call 999999 waits"), "{unknown:?}");

    ns.yoi_as(&approver, &["approve", "a", &call]).await?.exit_ok()?;
    let second = waiting_call(&ns, &approver, number).await?["call"].to_string();
    ns.yoi_as(&approver, &["deny", "a", &second, "--because", "Once is enough."]).await?.exit_ok()?;
    let late = ns.yoi_as(&approver, &["approve", "a", &second]).await?;
    ensure!(late.code == 1 && late.err.contains("denied call"), "{late:?}");
    ns.wait_task_complete("a").await?;

    let ends = tool_output::all(&ns, "a").await?;
    ensure!(ends.len() == 2 && ends[0].0 == ToolOutcome::Succeeded && ends[0].1.contains("one"), "{ends:?}");
    ensure!(ends[1].0 == ToolOutcome::Refused && ends[1].1.ends_with("approver denied it: Once is enough."), "{ends:?}");
    let who = format!("system:serviceaccount:{}:approver", ns.name);
    let log = ns.log("a").await?;
    let answers: Vec<_> =
        log.iter().filter_map(|line| if let Body::ToolAnswered(a) = &line.entry.body { Some(&a.answer) } else { None }).collect();
    ensure!(answers.len() == 2 && answers.iter().all(|answer| answer.by == who), "{answers:?}");
    for file in [approver, viewer] {
        std::fs::remove_file(file)?;
    }
    ns.remove().await
}
