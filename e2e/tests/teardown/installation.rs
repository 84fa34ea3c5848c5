//! Helm as a cluster's administrator uses it, the state on the node, and the state of agents.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::Client;
use kube::api::{Api, ListParams};
use serde_json::Value;
use yoi_crds::YoiPod;
use yoi_e2e::local_cluster::LocalCluster;
use yoi_e2e::locks::{self, Held, Lock};
use yoi_e2e::poll_until;
use yoi_e2e::processes::wait_all_ready;
use yoi_e2e::program::{self, CommandOutput};
use yoi_e2e::test_namespace::TestNamespace;
use yoi_wire::entry::{Body, RunOutcome};
use yoi_wire::people::LogLine;

pub const SYSTEM: &str = "yoi-system";

pub fn chart(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../charts").join(name)
}

pub async fn helm(words: &[&str]) -> Result<CommandOutput> {
    program::run(&std::env::var("YOI_HELM")?, &[words, &["--namespace", SYSTEM]].concat(), &[], None).await
}

/// The installed charts and the values of the operator's chart, for a test that changes them.
pub struct Installation {
    values: PathBuf,
    _alone: Held,
}

impl Installation {
    /// Waits until no other test runs on this cluster. Installs Yoi when an earlier test broke off without it.
    pub async fn lock() -> Result<Installation> {
        let alone = locks::exclusive(&[Lock::Installation]).await?;
        // The values are kept beside the cluster's kubeconfig, so that the next run finds them when this one breaks off.
        let values = PathBuf::from(format!("{}.teardown-values.yaml", std::env::var("KUBECONFIG")?));
        let output = helm(&["get", "values", "yoi-operator", "-o", "yaml"]).await?;
        if output.code == 0 {
            std::fs::write(&values, &output.out)?;
        }
        ensure!(values.exists(), "Yoi is not installed, and its values are unknown: {}", output.err);
        let installation = Installation { values, _alone: alone };
        if output.code != 0 {
            installation.install(&[]).await?;
        }
        Ok(installation)
    }

    /// Installs or upgrades both charts as the README says, with additional arguments of helm.
    pub async fn install(&self, more: &[&str]) -> Result<()> {
        let crds = chart("yoi-crds");
        helm(&["upgrade", "--install", "yoi-crds", &crds.to_string_lossy(), "--create-namespace", "--take-ownership"]).await?.exit_ok()?;
        let (chart, values) = (chart("yoi-operator"), self.values.to_string_lossy().into_owned());
        let chart = chart.to_string_lossy().into_owned();
        let words = ["upgrade", "--install", "yoi-operator", &chart, "-f", &values, "--create-namespace", "--wait", "--timeout", "110s"];
        helm(&[&words[..], more].concat()).await?.exit_ok()?;
        // Helm does not wait for the end of former ones.
        wait_all_ready(&Client::try_default().await?).await
    }

    pub async fn uninstall(&self) -> Result<()> {
        helm(&["uninstall", "yoi-operator", "--wait", "--timeout", "110s"]).await?.exit_ok().map(drop)
    }
}

/// Returns the lines of the nodes' mount tables that contain one of these words.
pub async fn mounts_with(words: &BTreeSet<String>) -> Result<Vec<String>> {
    let tables = LocalCluster::from_environment()?.run_on_every_node("cat /proc/1/mountinfo /proc/self/mountinfo").await?;
    let lines = tables.iter().flat_map(|(_, table)| table.lines());
    Ok(lines.filter(|line| words.iter().any(|word| line.contains(word.as_str()))).map(str::to_owned).collect())
}

/// Returns why a namespace in deletion still exists, or `None` when it is gone.
pub async fn deletion_blockers(ns: &TestNamespace) -> Result<Option<String>> {
    let api = Api::<Namespace>::all(ns.client.clone());
    let Some(namespace) = api.get_opt(&ns.name).await? else { return Ok(None) };
    let conditions = namespace.status.and_then(|s| s.conditions).unwrap_or_default();
    let reasons = conditions.into_iter().filter(|c| c.status == "True").map(|c| format!("{}: {}", c.type_, c.message.unwrap_or_default()));
    Ok(Some(reasons.collect::<Vec<_>>().join("; ")))
}

/// What identifies an agent: equal before and after as long as the agent was not replaced.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentIdentity {
    pub uid: String,
    pub pod: String,
    pub session: String,
    pub workspace: String,
}

pub async fn agent_identity(ns: &TestNamespace, agent: &str) -> Result<AgentIdentity> {
    let yoipod: YoiPod = ns.get(agent).await?;
    let workspace: yoi_crds::AgentWorkspace = ns.get(agent).await?;
    let status = yoipod.status.clone().unwrap_or_default();
    Ok(AgentIdentity {
        uid: yoipod.metadata.uid.unwrap_or_default(),
        pod: status.pod.context("no Pod")?.uid,
        session: status.session.context("no session")?.id,
        workspace: workspace.metadata.uid.unwrap_or_default(),
    })
}

pub async fn pod_of(ns: &TestNamespace, agent: &str) -> Result<Pod> {
    let pods: Vec<Pod> = ns.list(&format!("yoi.dev/yoipod={agent}")).await?;
    pods.into_iter().find(|p| p.metadata.deletion_timestamp.is_none()).with_context(|| format!("no Pod of {agent}"))
}

pub fn restart_count(pod: &Pod) -> i32 {
    pod.status.as_ref().and_then(|s| s.container_statuses.as_ref()).into_iter().flatten().map(|c| c.restart_count).sum()
}

pub fn finished_runs(log: &[LogLine]) -> usize {
    log.iter().filter(|l| matches!(&l.entry.body, Body::RunEnded(r) if r.outcome == RunOutcome::Finished)).count()
}

pub fn input_count(log: &[LogLine]) -> usize {
    log.iter().filter(|l| matches!(&l.entry.body, Body::Input(_))).count()
}

/// Sends a message again and again until it is delivered, because a line may need a moment to reconnect. Returns the time that took.
pub async fn send_until_delivered(ns: &TestNamespace, agent: &str, text: &str) -> Result<Duration> {
    let ((), took) = poll_until(yoi_e2e::test_namespace::TIMEOUT, &format!("a message to {agent} is delivered"), async || {
        Ok((ns.yoi(&["send", agent, text]).await?.code == 0).then_some(()))
    })
    .await?;
    Ok(took)
}

/// Returns whether no gateway, operator or shim runs.
pub async fn nothing_runs(ns: &TestNamespace) -> Result<bool> {
    for namespace in [SYSTEM, "yoi-node"] {
        let pods: Api<Pod> = Api::namespaced(ns.client.clone(), namespace);
        let list = pods.list(&ListParams::default().labels("app.kubernetes.io/part-of=yoi")).await?;
        if !list.items.is_empty() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns the spec of an object as JSON.
pub fn spec_of<K: serde::Serialize>(object: &K) -> Result<Value> {
    Ok(serde_json::to_value(object)?["spec"].clone())
}
