//! The status of WorkspaceNodes.

use anyhow::{Result, ensure};
use kube::api::{Api, ListParams};
use yoi_crds::WorkspaceNode;
use yoi_crds::condition::is_true;
use yoi_crds::source::ProviderName;
use yoi_e2e::test_namespace::TestNamespace;

#[tokio::test]
async fn every_node_reports_what_it_offers() -> Result<()> {
    let ns = TestNamespace::create("node").await?;
    let nodes = Api::<WorkspaceNode>::all(ns.client.clone()).list(&ListParams::default()).await?.items;
    ensure!(!nodes.is_empty(), "no WorkspaceNode");
    for node in nodes {
        let status = node.status.unwrap_or_default();
        ensure!(is_true(&status.conditions, "Ready"), "{status:?}");
        ensure!(status.providers.iter().any(|p| p.name == ProviderName::Btrfs && p.available), "{status:?}");
        let capacity = status.capacity.clone().unwrap_or_default();
        ensure!(capacity.free_bytes > 0 && capacity.free_bytes <= capacity.total_bytes, "{status:?}");
        let shown = ns.kubectl(&["get", "workspacenodes"]).await?.exit_ok()?.out;
        ensure!(
            shown.contains(&capacity.free) && capacity.free.ends_with('i') && !shown.contains(&capacity.free_bytes.to_string()),
            "{shown}"
        );
        ensure!(status.runtime_digests.iter().all(|d| d.len() == 64) && !status.runtime_digests.is_empty(), "{status:?}");
    }
    ns.remove().await
}
