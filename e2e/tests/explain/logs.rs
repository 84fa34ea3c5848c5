//! Each line of our processes' logs about an agent names the object, its UID and, where it is known, the run.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use serde_json::{Map, Value, json};
use yoi_crds::{AgentWorkspace, YoiPod};
use yoi_e2e::poll_seen;
use yoi_e2e::test_namespace::{TIMEOUT, TestNamespace, uid};

/// Namespace, label and container of the processes that log about agents.
const WRITERS: [(&str, &str, &str); 4] = [
    ("yoi-system", "yoi-operator", ""),
    ("yoi-system", "yoi-gateway", ""),
    ("yoi-node", "yoi-agent-shim", "shim"),
    ("yoi-node", "yoi-agent-shim", "mounter"),
];

/// Returns all fields of a line in one object. A field of the line replaces a field of its spans.
fn flatten(line: &str) -> Option<Value> {
    let Value::Object(whole) = serde_json::from_str(line).ok()? else { return None };
    let spans = whole.get("spans").and_then(Value::as_array).into_iter().flatten().chain(whole.get("span"));
    let parts = spans.chain(whole.get("fields")).filter_map(Value::as_object);
    let mut all: Map<String, Value> = parts.flatten().map(|(key, value)| (key.clone(), value.clone())).collect();
    all.extend(whole.iter().filter(|(key, _)| !["span", "spans", "fields"].contains(&key.as_str())).map(|(k, v)| (k.clone(), v.clone())));
    Some(Value::Object(all))
}

/// Returns the lines of all replicas that contain one of these words.
async fn log_lines(ns: &TestNamespace, (namespace, app, container): (&str, &str, &str), words: &[&str]) -> Result<Vec<Value>> {
    let api: Api<Pod> = Api::namespaced(ns.client.clone(), namespace);
    let mut lines = Vec::new();
    for pod in api.list(&ListParams::default().labels(&format!("app.kubernetes.io/name={app}"))).await?.items {
        let name = pod.name_any();
        let mut args = vec!["-n", namespace, "logs", name.as_str(), "--since=15m"];
        if !container.is_empty() {
            args.extend(["-c", container]);
        }
        let log = ns.kubectl(&args).await?.exit_ok()?.out;
        for line in log.lines().filter(|line| words.iter().any(|word| line.contains(word))) {
            lines.push(flatten(line).with_context(|| format!("{app}: not a line of JSON: {line}"))?);
        }
    }
    Ok(lines)
}

#[tokio::test]
async fn each_line_about_an_agent_says_object_uid_and_run() -> Result<()> {
    let ns = TestNamespace::create("logs").await?;
    ns.create_model("rules: [{ steps: [{ text: hello }] }]").await?;
    ns.create_empty_project("p").await?;
    ns.create_agent("a", "p", json!({ "task": "say it" })).await?;
    ns.wait_task_complete("a").await?;
    let (yoipod, workspace): (YoiPod, AgentWorkspace) = (ns.get("a").await?, ns.get("a").await?);
    let status = yoipod.status.as_ref().context("no status")?;
    let (run, pod) = (status.run_generation.context("no run")?, status.pod.as_ref().context("no Pod")?);
    let (agent, tree, object) = (uid(&yoipod), uid(&workspace), format!("{}/a", ns.name));
    // An agent may finish its work before the kubelet reports its container as running, and until then the kubelet serves no log.
    ns.wait_pod_ready(&pod.name).await?;
    let own = ns.kubectl(&["logs", &pod.name]).await?.exit_ok()?.out;
    let line = own.lines().next_back().and_then(flatten).context("the runtime logs nothing")?;
    ensure!(line["object"] == object.as_str() && line["uid"] == agent.as_str() && line["run"] == run, "the runtime: {line:?}");
    ns.yoi(&["send", "a", "once more"]).await?.exit_ok()?;
    // Then the gateway closes its line, and the shim unmounts its tree.
    ns.yoi(&["stop", "a", "--wait"]).await?.exit_ok()?;

    let words = [ns.name.as_str(), &agent, &tree];
    // For each process: messages that it must log, the UID in them, and whether the run is known there.
    let wanted = [
        vec![("step done", &agent, true)],
        vec![("line open", &agent, true), ("message", &agent, true), ("line ended", &agent, true)],
        vec![("made a tree", &tree, false), ("mounted", &tree, true), ("unmounted", &tree, false)],
        vec![("done", &tree, true)],
    ];
    for (writer, wanted) in WRITERS.into_iter().zip(wanted) {
        // `kubectl logs` may be a little behind.
        poll_seen(TIMEOUT, &format!("{} has logged it all", writer.1), async || {
            let lines = log_lines(&ns, writer, &words).await?;
            for line in &lines {
                let ours = line["object"].as_str().is_some_and(|object| object.starts_with(&format!("{}/", ns.name)));
                let uid = line["uid"].as_str().is_some_and(|uid| !uid.is_empty());
                ensure!(ours && uid, "{} does not name its object: {line}", writer.1);
            }
            let has = |(message, uid, with_run): &(&str, &String, bool)| {
                let its = |line: &Value| line["message"] == *message && line["uid"] == uid.as_str() && line["object"] == object.as_str();
                lines.iter().any(|line| its(line) && (!with_run || line["run"] == run))
            };
            let missing = wanted.iter().find(|one| !has(one));
            let seen = |(message, uid, _): &(&str, &String, bool)| format!("no `{message}` of {uid}, {object}, run {run}: {lines:#?}");
            Ok(missing.map_or(Ok(()), |missing| Err(seen(missing))))
        })
        .await?;
    }
    ns.remove().await
}
