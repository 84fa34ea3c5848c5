//! Yoi is uninstalled in the README's order.

use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::{Namespace, PersistentVolumeClaim};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams};
use serde_json::json;
use yoi_crds::YoiProject;
use yoi_e2e::poll_until;
use yoi_e2e::test_namespace::{TIMEOUT, TestNamespace};

use crate::installation::{Installation, SYSTEM, helm, nothing_runs};
use yoi_e2e::local_cluster::tree_uids;

#[tokio::test]
async fn uninstalling_ends_and_keeps_the_crds_their_objects_and_the_sessions() -> Result<()> {
    let installation = Installation::lock().await?;
    let ns = TestNamespace::create("teardown").await?;
    ns.create_model("rules: [{ steps: [{ text: hello }] }]").await?;
    ns.create_empty_project("kept").await?;
    ns.create_agent("a", "kept", json!({})).await?;
    ns.wait_agent_ready("a").await?;
    let tree = ns.get::<yoi_crds::AgentWorkspace>("a").await?.metadata.uid.unwrap_or_default();
    ensure!(tree_uids().await?.contains(&tree), "the node does not show the agent's tree");
    // As in the README: agents first, then the charts.
    ns.kubectl(&["delete", "yoipods,yoipeers", "--all"]).await?.exit_ok()?;
    ns.wait_gone::<yoi_crds::AgentWorkspace>("a").await?;
    installation.uninstall().await?;
    helm(&["uninstall", "yoi-crds", "--wait", "--timeout", "110s"]).await?.exit_ok()?;
    let tried = check_after_uninstall(&ns, &tree).await;
    installation.install(&[]).await?;
    tried?;
    ns.remove_and_wait().await
}

async fn check_after_uninstall(ns: &TestNamespace, tree: &str) -> Result<()> {
    poll_until(TIMEOUT, "nothing of ours runs", async || Ok(nothing_runs(ns).await?.then_some(()))).await?;
    let crds: Api<CustomResourceDefinition> = Api::all(ns.client.clone());
    for kind in ["yoiprojects", "yoipods", "yoipeers", "agentworkspaces", "workspacenodes"] {
        crds.get(&format!("{kind}.yoi.dev")).await?;
    }
    let _: YoiProject = ns.get("kept").await?;
    let _: PersistentVolumeClaim = ns.get("a-session").await?;
    ensure!(!tree_uids().await?.contains(tree), "the tree of an agent that was deleted before is left");
    // Only what the chart's README names is left of the chart.
    let kinds = "clusterroles,clusterrolebindings,storageclasses,csidrivers,apiservices,validatingadmissionpolicies,validatingadmissionpolicybindings";
    let left = ns.kubectl(&["get", kinds, "-l", "app.kubernetes.io/part-of=yoi", "-o", "name"]).await?.exit_ok()?.out;
    ensure!(left.trim().is_empty(), "left of the chart: {left}");
    let left = ns.kubectl(&["-n", SYSTEM, "get", "secrets,leases", "-o", "name"]).await?.exit_ok()?.out;
    let known = |line: &str| ["secret/yoi-gateway-tls", "lease.coordination.k8s.io/yoi-operator"].contains(&line);
    ensure!(left.lines().all(known), "left in {SYSTEM}: {left}");

    // The aggregated API is gone with the chart, so it does not block a namespace's deletion.
    let namespaces: Api<Namespace> = Api::all(ns.client.clone());
    let empty: Namespace = serde_json::from_value(json!({ "metadata": { "name": "e2e-after-yoi" } }))?;
    namespaces.create(&Default::default(), &empty).await?;
    namespaces.delete("e2e-after-yoi", &DeleteParams::default()).await?;
    poll_until(Duration::from_secs(60), "a namespace can be deleted after Yoi was uninstalled", async || {
        Ok(namespaces.get_opt("e2e-after-yoi").await?.is_none().then_some(()))
    })
    .await
    .map(drop)
}
