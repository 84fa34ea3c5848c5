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
        ensure!(status.capacity.is_some_and(|c| c.free_bytes > 0 && c.free_bytes <= c.total_bytes), "{status:?}");
        ensure!(status.runtime_digests.iter().all(|d| d.len() == 64) && !status.runtime_digests.is_empty(), "{status:?}");
    }
    ns.remove().await
}
