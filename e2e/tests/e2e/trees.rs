//! Trees on nodes' disks that no object claims.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use yoi_e2e::local_cluster::{LocalCluster, tree_uids};
use yoi_e2e::poll_until;
use yoi_e2e::test_namespace::TestNamespace;

/// Longer than a node waits until it looks at its trees, and then until it reports.
const LOOK: Duration = Duration::from_secs(240);

/// Puts a tree onto the disk of a node, as one lies there whose object and record are gone. Returns its UID.
async fn put_tree(cluster: &LocalCluster, node: &str) -> Result<String> {
    let uid = std::fs::read_to_string("/proc/sys/kernel/random/uuid")?.trim().to_owned();
    let digits: Vec<u8> = uid.chars().filter_map(|c| c.to_digit(16)).filter_map(|d| u8::try_from(d).ok()).collect();
    let shard = digits.chunks(2).fold(0, |all, pair| all ^ pair.iter().fold(0, |byte, digit| byte << 4 | digit)) % 64;
    let root = std::env::var("YOI_DATA_ROOT")?;
    let marker = format!(r#"{{"version":1,"uid":"{uid}","provider":"Copy","making":{{"Empty":{{"owner":{{"uid":1000,"gid":1000}}}}}}}}"#);
    let script = format!(
        "set -e; root={root}; if [ -L {root}/pool/name ]; then root={root}/pool; fi; at=$root/trees/{shard:02x}/{uid}; \
         mkdir -p $at/tree; echo work > $at/tree/file; ln -s '{marker}' $at/marker"
    );
    cluster.run_on_node(node, &script).await?.exit_ok()?;
    Ok(uid)
}

#[tokio::test]
async fn a_tree_without_an_object_is_named_and_goes_only_when_a_person_discards_it() -> Result<()> {
    let (ns, cluster) = (TestNamespace::create("trees").await?, LocalCluster::from_environment()?);
    let workers = cluster.workers().await?;
    let node = workers.last().context("no worker")?;
    let tree = put_tree(&cluster, node).await?;
    ensure!(tree_uids().await?.contains(&tree), "the tree is not where trees are");
    let list = async || -> Result<String> { Ok(ns.yoi(&["trees", "--node", node]).await?.exit_ok()?.out) };
    let listed = async || Ok(list().await?.contains(&tree).then_some(()));
    poll_until(LOOK, "the node lists the tree", listed).await?;
    let doctor = ns.yoi(&["doctor"]).await?;
    ensure!(doctor.out.contains(&format!("WorkspaceNode {node}: its disk holds")), "{}", doctor.out);

    let told = ns.yoi(&["trees", "discard", node, &tree]).await?.exit_ok()?;
    ensure!(told.out.contains("Nothing was done") && tree_uids().await?.contains(&tree), "{told:?}");
    ns.yoi(&["trees", "discard", node, &tree, "--force"]).await?.exit_ok()?;
    let gone = async || Ok((!tree_uids().await?.contains(&tree)).then_some(()));
    poll_until(LOOK, "the node destroys the tree", gone).await?;
    let unlisted = async || Ok((!list().await?.contains(&tree)).then_some(()));
    poll_until(LOOK, "the node lists the tree no more", unlisted).await?;
    ns.remove().await
}
