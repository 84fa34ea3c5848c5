//! What a node tells of itself.

use anyhow::{Result, ensure};
use kube::api::{Api, ListParams};
use yoi_crds::WorkspaceNode;
use yoi_crds::condition::is_true;
use yoi_crds::source::ProviderName;
use yoi_e2e::stage::Stage;

#[tokio::test]
async fn every_node_says_what_it_offers() -> Result<()> {
    let stage = Stage::open("node").await?;
    let nodes = Api::<WorkspaceNode>::all(stage.client.clone()).list(&ListParams::default()).await?.items;
    ensure!(!nodes.is_empty(), "no WorkspaceNode");
    for node in nodes {
        let status = node.status.unwrap_or_default();
        ensure!(is_true(&status.conditions, "Ready"), "{status:?}");
        ensure!(status.providers.iter().any(|p| p.name == ProviderName::Btrfs && p.available), "{status:?}");
        ensure!(status.capacity.is_some_and(|c| c.free_bytes > 0 && c.free_bytes <= c.total_bytes), "{status:?}");
        ensure!(status.runtime_digests.iter().all(|d| d.len() == 64) && !status.runtime_digests.is_empty(), "{status:?}");
    }
    stage.close().await
}
