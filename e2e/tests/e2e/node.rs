//! The status of WorkspaceNodes.

use std::time::Duration;

use anyhow::{Result, ensure};
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use yoi_crds::WorkspaceNode;
use yoi_crds::condition::is_true;
use yoi_crds::source::ProviderName;
use yoi_e2e::local_cluster::LocalCluster;
use yoi_e2e::poll_until;
use yoi_e2e::test_namespace::{TIMEOUT, TestNamespace};

/// Whether the node's trees lie on a Btrfs: of its own, or of the chart in a file.
async fn is_on_btrfs(cluster: &LocalCluster, node: &str) -> Result<bool> {
    let root = std::env::var("YOI_DATA_ROOT")?;
    let script = format!("grep -cE ' ({root}|{root}/pool) .* - btrfs ' /proc/self/mountinfo");
    Ok(cluster.run_on_node(node, &script).await?.code == 0)
}

#[tokio::test]
async fn every_node_reports_what_it_offers() -> Result<()> {
    let ns = TestNamespace::create("node").await?;
    let api = Api::<WorkspaceNode>::all(ns.client.clone());
    let nodes = api.list(&ListParams::default()).await?.items;
    ensure!(!nodes.is_empty(), "no WorkspaceNode");
    let cluster = LocalCluster::from_environment()?;
    for node in nodes {
        let name = node.name_any();
        let goal = format!("WorkspaceNode {name} is Ready");
        let ready = poll_until(TIMEOUT, &goal, async || {
            let status = api.get(&name).await?.status.unwrap_or_default();
            Ok(is_true(&status.conditions, "Ready").then_some(status))
        });
        let (status, _) = ready.await?;
        let taken = ProviderName::OFFERED.into_iter().find(|name| status.providers.iter().any(|p| p.name == *name && p.available));
        let listed_first = status.providers.iter().find(|p| p.available).map(|p| p.name);
        ensure!(taken == listed_first, "people see another provider first than Auto takes: {status:?}");
        let on_btrfs = is_on_btrfs(&cluster, &name).await?;
        ensure!(taken == Some(if on_btrfs { ProviderName::Btrfs } else { ProviderName::Overlay }), "{on_btrfs}: {status:?}");
        ensure!(status.providers.iter().all(|p| p.available || !p.reason.is_empty()), "no word on why not: {status:?}");
        let capacity = status.capacity.clone().unwrap_or_default();
        ensure!(capacity.free_bytes > 0 && capacity.free_bytes <= capacity.total_bytes, "{status:?}");
        // What is free may be written anew between the two looks.
        let same = poll_until(Duration::from_secs(60), "table and object show the same free space", async || {
            let capacity = api.get(&name).await?.status.and_then(|status| status.capacity).unwrap_or_default();
            let shown = ns.kubectl(&["get", "workspacenodes"]).await?.exit_ok()?.out;
            ensure!(capacity.free.ends_with('i') && !shown.contains(&capacity.free_bytes.to_string()), "{capacity:?}: {shown}");
            Ok(shown.contains(&capacity.free).then_some(()))
        });
        same.await?;
        ensure!(status.runtime_digests.iter().all(|d| d.len() == 64) && !status.runtime_digests.is_empty(), "{status:?}");
    }
    ns.remove().await
}
