//! Charts are upgraded, uninstalled and installed again while agents work.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, ListParams};
use serde_json::json;
use yoi_crds::condition::is_true;
use yoi_crds::{AgentWorkspace, WorkspaceNode, YoiPod};
use yoi_e2e::fixtures::TREE_PATH;
use yoi_e2e::local_cluster::tree_uids;
use yoi_e2e::poll_until;
use yoi_e2e::program;
use yoi_e2e::test_namespace::{TIMEOUT, TestNamespace};
use yoi_wire::entry::Body;

use crate::installation::{
    Installation, SYSTEM, agent_identity, chart, deletion_blockers, finished_runs, helm, input_count, nothing_runs, pod_of, restart_count,
    send_until_delivered, spec_of,
};

const SCRIPT: &str = r#"
rules:
- name: long
  when: { lastUserContains: "work for long" }
  steps:
  - toolCalls: [{ tool: Shell, args: { command: "echo begun >> begun; i=0; while [ ! -e stop ] && [ $i -lt 30000 ]; do echo $i >> counting || echo failed >> /tmp/failed; sleep 0.1; i=$((i+1)); done; cat /tmp/failed; true" } }]
  - text: Done.
- steps: [{ toolCalls: [{ tool: Shell, args: { command: "echo once >> once" } }] }, { text: heard }]
"#;

/// Creates an agent `done` that has finished a task, and an agent `busy` with a running tool.
async fn done_and_busy_agents(test: &str) -> Result<TestNamespace> {
    let ns = TestNamespace::create(test).await?;
    ns.create_model(SCRIPT).await?;
    ns.create_git_project("p").await?;
    ns.create_agent("done", "p", json!({ "task": "a first task" })).await?;
    ns.create_agent("busy", "p", json!({ "task": "work for long", "limits": { "toolSeconds": 3600 } })).await?;
    ns.wait_task_complete("done").await?;
    ns.wait_agent_ready("done").await?;
    ns.wait_agent_ready("busy").await?;
    ns.wait_log("busy", "a tool at work", |log| log.iter().any(|l| matches!(l.entry.body, Body::ToolStarted(_))).then_some(())).await?;
    Ok(ns)
}

async fn exec_in_agent(ns: &TestNamespace, agent: &str, script: &str) -> Result<String> {
    let pod = pod_of(ns, agent).await?.metadata.name.unwrap_or_default();
    Ok(ns.kubectl(&["exec", &pod, "--", "/bin/sh", "-c", &format!("cd {TREE_PATH} && {script}")]).await?.exit_ok()?.out)
}

/// Returns the number of lines that the busy agent's tool has written so far.
async fn lines_written(ns: &TestNamespace) -> Result<usize> {
    Ok(exec_in_agent(ns, "busy", "wc -l < counting").await?.trim().parse()?)
}

/// Checks that the tool writes more lines and that no write failed.
async fn check_tool_writes_on(ns: &TestNamespace) -> Result<()> {
    // Its container may be gone, and then no look into it works.
    tool_writes_on(ns).await.context("busy did not go on with its tool")
}

async fn tool_writes_on(ns: &TestNamespace) -> Result<()> {
    let before = lines_written(ns).await?;
    poll_until(TIMEOUT, "the tool writes on", async || Ok((lines_written(ns).await? > before + 5).then_some(()))).await?;
    let failed = exec_in_agent(ns, "busy", "cat /tmp/failed 2>/dev/null; true").await?;
    ensure!(failed.is_empty(), "the tool could not write: {failed}");
    Ok(())
}

/// Lets the busy agent's tool end, and checks that neither the tool nor the task was run again.
async fn finish_tool(ns: &TestNamespace) -> Result<()> {
    exec_in_agent(ns, "busy", "touch stop").await?;
    let log = ns.wait_log("busy", "the run's end", |log| (finished_runs(log) == 1).then(|| log.to_vec())).await?;
    let tools = log.iter().filter(|l| matches!(l.entry.body, Body::ToolStarted(_))).count();
    ensure!((tools, input_count(&log)) == (1, 1), "the task was run again");
    ensure!(exec_in_agent(ns, "busy", "wc -l < begun").await?.trim() == "1", "the tool was run again");
    Ok(())
}

#[tokio::test]
async fn agents_go_on_while_yoi_is_uninstalled_and_after_it_is_back() -> Result<()> {
    let installation = Installation::lock().await?;
    let ns = done_and_busy_agents("reinstall").await?;
    let (done, busy) = (agent_identity(&ns, "done").await?, agent_identity(&ns, "busy").await?);
    let log = ns.log("done").await?;
    let policies = async || -> Result<Vec<NetworkPolicy>> {
        let mut all: Vec<NetworkPolicy> = ns.list("").await?;
        all.retain(|p| p.metadata.name.as_deref().is_some_and(|n| n.starts_with("yoi-")));
        Ok(all)
    };
    let policies_before = policies().await?;
    let crds: Api<CustomResourceDefinition> = Api::all(ns.client.clone());
    let uid_of = |crd: CustomResourceDefinition| crd.metadata.uid;
    let crd = uid_of(crds.get("yoipods.yoi.dev").await?);
    let deleted = TestNamespace::create("deleted").await?;
    deleted.create_empty_project("p").await?;
    deleted.yoi(&["workspace", "create", "w", "--project", "p", "--claim", "--immediate", "--wait"]).await?.exit_ok()?;

    installation.uninstall().await?;
    poll_until(TIMEOUT, "nothing of ours runs", async || Ok(nothing_runs(&ns).await?.then_some(()))).await?;
    let gone = check_while_uninstalled(&ns, &deleted, &policies_before.len(), policies).await;
    installation.install(&[]).await?;
    gone?;

    // After the installation: the same Pods, trees and sessions; no container was restarted and nothing was run again.
    ensure!(uid_of(crds.get("yoipods.yoi.dev").await?) == crd, "the CRDs were made anew");
    let took = send_until_delivered(&ns, "done", "another word").await?;
    println!("an agent was reached {took:?} after the installation");
    for (name, before) in [("done", &done), ("busy", &busy)] {
        ns.wait_agent_ready(name).await?;
        ensure!(agent_identity(&ns, name).await? == *before, "{name} was replaced: {before:?}, {:?}", agent_identity(&ns, name).await?);
        ensure!(restart_count(&pod_of(&ns, name).await?) == 0, "{name} did not go on: its container was restarted");
    }
    let after = ns.wait_log("done", "a second run", |log| (finished_runs(log) == 2).then(|| log.to_vec())).await?;
    ensure!(after[..log.len()] == log[..], "earlier entries changed");
    ensure!(input_count(&after) == 2 && exec_in_agent(&ns, "done", "wc -l < once").await?.trim() == "2", "a task was run again");
    check_tool_writes_on(&ns).await?;
    finish_tool(&ns).await?;
    let specs = |of: &[NetworkPolicy]| of.iter().map(spec_of).collect::<Result<Vec<_>>>();
    ensure!(specs(&policies().await?)? == specs(&policies_before)?, "the network policies changed");
    let nodes = Api::<WorkspaceNode>::all(ns.client.clone());
    poll_until(TIMEOUT, "every node reports", async || {
        let all = nodes.list(&ListParams::default()).await?.items;
        Ok(all.iter().all(|n| n.status.as_ref().is_some_and(|s| is_true(&s.conditions, "Ready"))).then_some(()))
    })
    .await?;
    // The deletion that had to wait for Yoi ends now.
    let (_, took) = poll_until(Duration::from_secs(90), "the namespace that was deleted meanwhile is gone", async || {
        Ok(deletion_blockers(&deleted).await?.is_none().then_some(()))
    })
    .await?;
    println!("a namespace that was deleted in Yoi's absence ended {took:?} after its return");
    ns.remove_and_wait().await
}

async fn check_while_uninstalled(
    ns: &TestNamespace,
    deleted: &TestNamespace,
    policies_before: &usize,
    policies: impl AsyncFn() -> Result<Vec<NetworkPolicy>>,
) -> Result<()> {
    // Running agents go on, and their network policies stay.
    check_tool_writes_on(ns).await?;
    ensure!(policies().await?.len() == *policies_before && *policies_before == 4, "agents are alive and without network policies");
    let cli = ns.yoi(&["send", "done", "nobody hears this"]).await?;
    ensure!(cli.code != 0 && !cli.err.contains("panicked"), "{cli:?}");
    let crds: Api<CustomResourceDefinition> = Api::all(ns.client.clone());
    for kind in ["yoiprojects", "yoipods", "yoipeers", "agentworkspaces", "workspacenodes"] {
        crds.get(&format!("{kind}.yoi.dev")).await?;
    }
    let _: YoiPod = ns.get("done").await?;
    // The Secret with the CA that agents trust does not belong to the chart and stays.
    Api::<Secret>::namespaced(ns.client.clone(), SYSTEM).get("yoi-gateway-tls").await?;
    // A namespace without our objects can be deleted; one with a tree waits for the shim.
    let namespaces = Api::<Namespace>::all(ns.client.clone());
    let empty = TestNamespace::create("without-yoi").await?;
    empty.remove_and_wait().await?;
    namespaces.delete(&deleted.name, &DeleteParams::default()).await?;
    poll_until(TIMEOUT, "the namespace says that finalizers hold it", async || {
        let words = deletion_blockers(deleted).await?.context("a namespace with a tree ended without the shim")?;
        Ok(words.contains("yoi.dev/").then_some(()))
    })
    .await?;
    let left: Vec<AgentWorkspace> = deleted.list("").await?;
    let uids: BTreeSet<String> = left.into_iter().filter_map(|w| w.metadata.uid).collect();
    ensure!(!uids.is_empty() && uids.is_subset(&tree_uids().await?), "a tree went without the shim");
    Ok(())
}

#[tokio::test]
async fn agents_come_back_to_a_gateway_with_a_new_ca() -> Result<()> {
    let installation = Installation::lock().await?;
    let ns = done_and_busy_agents("new-ca").await?;
    let before = agent_identity(&ns, "done").await?;
    let log = ns.log("done").await?;
    // A person deletes everything, including the keys.
    installation.uninstall().await?;
    let namespaces = Api::<Namespace>::all(ns.client.clone());
    Api::<Secret>::namespaced(ns.client.clone(), SYSTEM).delete("yoi-gateway-tls", &DeleteParams::default()).await?;
    namespaces.get(SYSTEM).await?;
    installation.install(&[]).await?;
    let took = send_until_delivered(&ns, "done", "another word").await?;
    println!("an agent was reached {took:?} after an installation with a new CA");
    let after = ns.wait_log("done", "a second run", |log| (finished_runs(log) == 2).then(|| log.to_vec())).await?;
    ensure!(after[..log.len()] == log[..] && input_count(&after) == 2, "the log does not continue, or a task was run again");
    let now = agent_identity(&ns, "done").await?;
    ensure!((&now.uid, &now.session, &now.workspace) == (&before.uid, &before.session, &before.workspace), "{before:?} became {now:?}");
    ns.wait_agent_ready("busy").await?;
    ns.remove_and_wait().await
}

#[tokio::test]
async fn the_shim_rolls_under_running_agents_and_their_trees_stay_mounted() -> Result<()> {
    let installation = Installation::lock().await?;
    let ns = done_and_busy_agents("roll").await?;
    let (done, busy) = (agent_identity(&ns, "done").await?, agent_identity(&ns, "busy").await?);
    let mounts = "grep -E ' /(workspace|yoi)' /proc/self/mountinfo | cut -d' ' -f1,3,4,5";
    let table = exec_in_agent(&ns, "busy", mounts).await?;
    ensure!(table.lines().count() >= 2, "no mounts: {table}");
    let shims: Api<DaemonSet> = Api::namespaced(ns.client.clone(), "yoi-node");
    let rolled = async || -> Result<i64> { Ok(shims.get("yoi-agent-shim").await?.metadata.generation.unwrap_or_default()) };
    let generation = rolled().await?;
    let tried = async {
        let upgrade = installation.install(&["--set", "shim.resources.limits.memory=250Mi", "--set", "agents.egress[0].ports[0].port=443"]);
        let create_agent = async {
            // An agent that is created while the shim is replaced.
            ns.create_agent("new", "p", json!({ "task": "a first task" })).await?;
            ns.wait_task_complete("new").await
        };
        futures::try_join!(upgrade, create_agent)?;
        ensure!(rolled().await? > generation, "the shim did not roll");
        // helm waits for as many shims as a roll leaves: on one node, none.
        ns.kubectl(&["-n", "yoi-node", "rollout", "status", "daemonset/yoi-agent-shim", "--timeout=110s"]).await?.exit_ok()?;
        check_tool_writes_on(&ns).await?;
        ensure!(exec_in_agent(&ns, "busy", mounts).await? == table, "the mounts changed: {table}");
        for (name, before) in [("done", &done), ("busy", &busy)] {
            ensure!(agent_identity(&ns, name).await? == *before, "{name} was replaced");
            ensure!(restart_count(&pod_of(&ns, name).await?) == 0, "{name} did not go on: its container was restarted");
            let diff = ns.yoi(&["diff", name, "--name-only"]).await?.exit_ok()?;
            ensure!(diff.out.contains('\t'), "the new shim reports no changes of {name}: {diff:?}");
        }
        finish_tool(&ns).await
    }
    .await;
    installation.install(&[]).await?;
    tried?;
    ns.remove_and_wait().await
}

/// Writes a copy of the chart of CRDs whose specs have one more field.
fn write_altered_chart(to: &Path) -> Result<()> {
    let from = chart("yoi-crds");
    std::fs::create_dir_all(to.join("templates"))?;
    for file in ["Chart.yaml", "values.yaml", "values.schema.json"] {
        std::fs::copy(from.join(file), to.join(file))?;
    }
    let mut changed = 0;
    for entry in std::fs::read_dir(from.join("templates"))? {
        let entry = entry?;
        let text = std::fs::read_to_string(entry.path())?;
        let mut crd: serde_json::Value = serde_yaml::from_str(&text)?;
        for version in crd["spec"]["versions"].as_array_mut().into_iter().flatten() {
            let spec = &mut version["schema"]["openAPIV3Schema"]["properties"]["spec"];
            if let Some(fields) = spec["properties"].as_object_mut() {
                fields.insert("note".into(), json!({ "type": "string", "description": "Of a later version." }));
                changed += 1;
            }
        }
        std::fs::write(to.join("templates").join(entry.file_name()), serde_yaml::to_string(&crd)?)?;
    }
    ensure!(changed >= 4, "the chart has an unexpected form: {changed} schemas were changed");
    Ok(())
}

#[tokio::test]
async fn the_crds_are_upgraded_and_taken_back_under_living_objects() -> Result<()> {
    let installation = Installation::lock().await?;
    let ns = done_and_busy_agents("crds").await?;
    let before = agent_identity(&ns, "done").await?;
    let spec = spec_of(&ns.get::<YoiPod>("done").await?)?;
    let later = std::env::temp_dir().join(format!("{}-crds", ns.name));
    write_altered_chart(&later)?;
    let tried = async {
        helm(&["upgrade", "yoi-crds", &later.to_string_lossy()]).await?.exit_ok()?;
        let note = json!({ "spec": { "note": "of a later version" } });
        // The API server publishes a schema a little later.
        poll_until(TIMEOUT, "kubectl explains the new field", async || {
            Ok(ns.kubectl(&["explain", "yoipods.spec.note"]).await?.out.contains("Of a later version").then_some(()))
        })
        .await?;
        ns.kubectl(&["patch", "yoipod", "done", "--type=merge", "-p", &note.to_string()]).await?.exit_ok()?;
        // The operator does not know the field. It goes on, and does not remove it.
        ns.create_agent("new", "p", json!({ "task": "a first task" })).await?;
        ns.wait_task_complete("new").await?;
        send_until_delivered(&ns, "done", "another word").await?;
        let kept = ns.kubectl(&["get", "yoipod", "done", "-o", "jsonpath={.spec.note}"]).await?.exit_ok()?;
        ensure!(kept.out == "of a later version", "the field is gone: {kept:?}");
        anyhow::Ok(())
    }
    .await;
    let crds = chart("yoi-crds");
    helm(&["upgrade", "yoi-crds", &crds.to_string_lossy()]).await?.exit_ok()?;
    std::fs::remove_dir_all(&later)?;
    tried?;
    // After the downgrade: the same objects, and undisturbed agents.
    ensure!(agent_identity(&ns, "done").await? == before, "the agent was replaced");
    ensure!(spec_of(&ns.get::<YoiPod>("done").await?)? == spec, "the spec changed");
    check_tool_writes_on(&ns).await?;
    finish_tool(&ns).await?;
    // Uninstalling the chart keeps the CRDs and every object, and installing it takes them over again.
    helm(&["uninstall", "yoi-crds", "--wait"]).await?.exit_ok()?;
    let kept = agent_identity(&ns, "done").await;
    installation.install(&[]).await?;
    ensure!(kept.context("an object went with the chart of CRDs")? == before, "an object changed with the chart of CRDs");
    program::run(&std::env::var("YOI_KUBECTL")?, &["get", "crd", "yoipods.yoi.dev"], &[], None).await?.exit_ok()?;
    ns.wait_agent_ready("done").await?;
    ns.remove_and_wait().await
}
