//! Nodes that are switched off and on, that join and that leave.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;
use yoi_e2e::local_cluster::LocalCluster;
use yoi_e2e::locks::{self, Lock};
use yoi_e2e::poll_until;
use yoi_e2e::processes::wait_all_ready;
use yoi_e2e::test_namespace::{TIMEOUT, TestNamespace};

use crate::{create_pod, node_names, pod_on, ready, sh, wait_ready};

#[tokio::test]
async fn a_node_that_is_switched_off_ends_its_pods_and_starts_again_from_its_disk() -> Result<()> {
    let _alone = locks::exclusive(&[Lock::Nodes]).await?;
    let (ns, cluster) = (TestNamespace::create("off").await?, LocalCluster::from_environment()?);
    let workers = cluster.workers().await?;
    let node = workers.last().context("no worker")?;
    create_pod(&ns, node, "there").await?;
    sh(&ns, "there", "echo kept > /own/file; sync /own/file").await?;

    cluster.node(&["stop", node]).await?;
    let inside = cluster.run_on_node(node, "true").await;
    cluster.node(&["start", node]).await?;
    let inside = inside?;
    ensure!(inside.code != 0 && inside.err.contains("does not run"), "something of it runs: {inside:?}");
    poll_until(TIMEOUT, "the containers were started again", async || {
        let statuses = ns.get::<Pod>("there").await?.status.and_then(|status| status.container_statuses).unwrap_or_default();
        Ok((statuses.len() == 2 && statuses.iter().all(|status| status.restart_count == 1 && status.ready)).then_some(()))
    })
    .await?;
    ensure!(sh(&ns, "there", "cat /own/file").await? == "kept\n", "the disk was lost");
    wait_ready(&ns.client, node, "True").await?;
    wait_all_ready(&ns.client).await?;
    ns.remove().await
}

#[tokio::test]
async fn a_node_joins_takes_a_pod_that_waited_for_it_and_is_removed_without_a_trace() -> Result<()> {
    let _alone = locks::exclusive(&[Lock::Nodes]).await?;
    let (ns, cluster) = (TestNamespace::create("joins").await?, LocalCluster::from_environment()?);
    let before = node_names(&ns.client).await?;
    let number = before.len() + 1;
    let node = format!("{}-node-{number}", cluster.name());
    let mut pod = pod_on("", "waits", json!({ "nodeSelector": { "kubernetes.io/hostname": node } }));
    pod["spec"]["nodeName"].take();
    ns.apply(&pod.to_string()).await?;
    ns.wait_for::<Pod, ()>("waits", "Unschedulable", |pod| {
        let conditions = pod?.status.as_ref()?.conditions.as_ref()?;
        conditions.iter().any(|c| c.type_ == "PodScheduled" && c.reason.as_deref() == Some("Unschedulable")).then_some(())
    })
    .await?;

    cluster.node(&["add", "--name", cluster.name(), "--data-root", "ext4"]).await?;
    let joined = async {
        ensure!(ready(&ns.client, &node).await? == "True", "{node} was added and is not Ready");
        ns.wait_pod_ready("waits").await
    };
    let outcome = joined.await;
    let (link, folder) =
        (format!("/sys/class/net/{}{}", cluster.name(), number - 1), format!("/var/lib/yoi-cluster/{}/nodes/{number}", cluster.name()));
    let existed = Path::new(&link).exists() && Path::new(&folder).exists();
    cluster.node(&["remove", &node]).await?;
    outcome?;
    ensure!(existed, "this test looks for {link} and {folder}, which were never there");
    ensure!(node_names(&ns.client).await? == before, "its Node object is still there");
    ensure!(!Path::new(&link).exists() && !Path::new(&folder).exists(), "{link} or {folder} is left");
    let mounts = std::fs::read_to_string("/proc/self/mountinfo")?;
    ensure!(!mounts.contains(&folder), "a mount is left in {folder}");
    // Its Pod is on no node any more.
    ns.kubectl(&["delete", "pod", "waits", "--force", "--grace-period=0", "--ignore-not-found"]).await?.exit_ok()?;
    wait_all_ready(&ns.client).await?;
    ns.remove().await
}
