//! What 1,000 YoiPods and 1,000 workspaces cost the operator: memory, writes for each object, and no writes afterwards.

use std::time::Duration;

use anyhow::{Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use kube::api::{DeleteParams, ListParams, PostParams};
use serde_json::json;
use yoi_crds::{AgentWorkspace, YoiPod};
use yoi_e2e::local_cluster::LocalCluster;
use yoi_e2e::test_namespace::{TIMEOUT, TestNamespace};

use crate::measure::Row;
use crate::writes::{Writes, count_writes, count_writes_when_quiet};

const MANY: usize = 1_000;
/// As many agents as run on one node beside everything else.
const RUNNING: usize = 20;
const QUIET: Duration = Duration::from_secs(60);

pub async fn run() -> Result<Vec<Row>> {
    let ns = TestNamespace::create("bench-objects").await?;
    ns.create_empty_project("p").await?;
    let idle = operator_memory().await?;

    eprint!("\r  {RUNNING} running agents ");
    let first = count_writes_when_quiet(&ns).await?;
    let agents: Vec<String> = (0..RUNNING).map(|n| format!("r{n}")).collect();
    for agent in &agents {
        ns.create_agent(agent, "p", json!({ "session": { "retain": "Delete" } })).await?;
    }
    for agent in &agents {
        ns.wait_agent_ready(agent).await?;
    }
    let ready = count_writes_when_quiet(&ns).await?.since(first);
    for agent in &agents {
        ns.api::<YoiPod>().delete(agent, &DeleteParams::default()).await?;
    }
    for agent in &agents {
        ns.wait_gone::<YoiPod>(agent).await?;
    }
    let before = count_writes_when_quiet(&ns).await?;

    eprint!("\r  {MANY} YoiPods ");
    // Stopped agents, because one node has no room for 1,000 Pods. The operator caches the objects of a stopped agent as those of a running one.
    let names: Vec<usize> = (0..MANY).collect();
    stream::iter(names.iter().map(|n| {
        let ns = &ns;
        async move {
            let object: YoiPod = serde_json::from_value(json!({
                "apiVersion": "yoi.dev/v1alpha1", "kind": "YoiPod", "metadata": { "name": format!("a{n}") },
                "spec": { "projectRef": { "name": "p" }, "agent": { "builtin": { "instruction": "Wait." } }, "desiredState": "Stopped" },
            }))?;
            ns.api::<YoiPod>().create(&PostParams::default(), &object).await?;
            anyhow::Ok(())
        }
    }))
    .buffer_unordered(16)
    .try_collect::<()>()
    .await?;
    wait_conditions::<YoiPod>(&ns).await?;
    let after_pods = count_writes_when_quiet(&ns).await?;

    eprint!("\r  {MANY} AgentWorkspaces ");
    stream::iter(names.iter().map(|n| {
        let ns = &ns;
        async move {
            let object: AgentWorkspace = serde_json::from_value(json!({
                "apiVersion": "yoi.dev/v1alpha1", "kind": "AgentWorkspace", "metadata": { "name": format!("w{n}") },
                "spec": { "source": { "project": { "name": "p" } }, "claim": true, "binding": "Immediate" },
            }))?;
            ns.api::<AgentWorkspace>().create(&PostParams::default(), &object).await?;
            anyhow::Ok(())
        }
    }))
    .buffer_unordered(16)
    .try_collect::<()>()
    .await?;
    wait_conditions::<AgentWorkspace>(&ns).await?;
    let after_workspaces = count_writes_when_quiet(&ns).await?;
    let full = operator_memory().await?;

    eprint!("\r  quiet for {} s ", QUIET.as_secs());
    tokio::time::sleep(QUIET).await;
    let silence = count_writes(&ns).await?.since(after_workspaces);
    eprintln!();
    ns.remove_and_wait().await?;

    let mut rows = vec![
        Row::number("operator's memory (RSS), nothing but an empty project", "MiB", idle, Some(64.0)),
        Row::number(&format!("operator's memory (RSS), {MANY} stopped YoiPods and {MANY} workspaces"), "MiB", full, Some(150.0)),
    ];
    let mut add = |what: &str, n: usize, written: Writes, harness: f64| {
        // `harness` is the number of writes that this bench made for each object.
        let each = |all: u64| all as f64 / n as f64;
        rows.push(Row::number(&format!("writes to yoi.dev objects for each {what}"), "writes", each(written.ours) - harness, None));
        rows.push(Row::number(
            &format!("writes of the operator to objects of all kinds for each {what}"),
            "writes",
            each(written.operators),
            None,
        ));
    };
    add(&format!("of {RUNNING} running agents, to Ready"), RUNNING, ready, 1.0);
    add("stopped YoiPod", MANY, after_pods.since(before), 1.0);
    add("workspace with a claim, to Ready", MANY, after_workspaces.since(after_pods), 1.0);
    for (whose, written) in [("writes to yoi.dev objects", silence.ours), ("writes of the operator but to its Lease", silence.operators)] {
        rows.push(Row::number(&format!("{whose} in {} s of quiet", QUIET.as_secs()), "writes", written as f64, Some(0.0)));
    }
    rows.iter().for_each(Row::print);
    Ok(rows)
}

/// Returns the resident memory of the operator's process in MiB.
async fn operator_memory() -> Result<f64> {
    let look = "for p in /proc/[0-9]*; do case $(tr '\\0' ' ' < $p/cmdline 2>/dev/null) in */yoi-operator\\ *|*/yoi-operator|/yoi-operator*) \
                grep VmRSS $p/status;; esac; done";
    let output = LocalCluster::from_environment()?.run_on_first_node(look).await?.exit_ok()?;
    let kib: Vec<f64> = output.out.lines().filter_map(|line| line.split_whitespace().nth(1)?.parse().ok()).collect();
    ensure!(!kib.is_empty(), "no operator runs in the node: {}{}", output.out, output.err);
    Ok(kib.into_iter().fold(0.0, f64::max) / 1024.0)
}

/// Waits until every object has a condition Ready.
async fn wait_conditions<K>(ns: &TestNamespace) -> Result<()>
where
    K: yoi_e2e::test_namespace::TestObject,
{
    let began = std::time::Instant::now();
    loop {
        let all = ns.api::<K>().list(&ListParams::default()).await?.items;
        let with_condition = all.iter().filter(|object| {
            let object = serde_json::to_value(object).unwrap_or_default();
            object["status"]["conditions"].as_array().is_some_and(|all| all.iter().any(|c| c["type"] == "Ready"))
        });
        let (with_condition, all) = (with_condition.count(), all.len());
        if all >= MANY && with_condition == all {
            return Ok(());
        }
        ensure!(began.elapsed() < 4 * TIMEOUT, "{with_condition} of {all} have a condition Ready");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}
