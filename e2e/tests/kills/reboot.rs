//! Promise: after a reboot of the node, each agent runs again on its own tree, with the same content, and each Pod sees its own tree.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use tokio::time::sleep;
use yoi_crds::AgentWorkspace;
use yoi_e2e::locks;
use yoi_e2e::test_namespace::{TIMEOUT, uid};
use yoi_test_support::limit;

use crate::churn::Churn;
use crate::convergence;
use crate::node::{Component, Node};
use crate::rng::SeededRng;
use crate::workload::{AGENTS, Workload};

/// Begins a loop over the folder that a tree is, or that holds what was written to an overlay.
fn each_tree(workspace: &str) -> String {
    format!(
        "for tree in \"$ROOT\"/trees/*/{workspace}/tree \"$ROOT\"/pool/trees/*/{workspace}/tree \"$ROOT\"/trees/*/{workspace}/upper; do
           [ -d \"$tree\" ] || continue"
    )
}

/// Returns a tree's path, its subvolume id and the checksums of the files that [`write_files`] wrote.
async fn tree_contents(node: &Node, workspace: &str) -> Result<String> {
    let each = each_tree(workspace);
    let found = node
        .sh(&format!(
            "{each}
               echo \"$tree\"; btrfs inspect-internal rootid \"$tree\" 2>/dev/null || stat -c %i \"$tree\"
               cd \"$tree/still\" && find . -type f | sort | xargs sha256sum
             done"
        ))
        .await?;
    ensure!(found.lines().count() == 42, "the tree of {workspace} is not there: {found}");
    Ok(found)
}

/// Writes 40 files into a tree that no process changes.
async fn write_files(node: &Node, workspace: &str) -> Result<()> {
    // What lies below an overlay must not be changed while that is mounted, so this is written where a Pod sees it.
    let shown = "$(awk -v w=:{w} '$0 ~ w\" \" && $4 == \"/\" { print $5; exit }' /proc/self/mountinfo)".replace("{w}", workspace);
    let each = each_tree(workspace);
    node.sh(&format!(
        "shown={shown}
         {each}
           [ -z \"$shown\" ] || tree=$shown
           mkdir -p \"$tree/still\"; for i in $(seq 40); do echo {workspace} $i > \"$tree/still/$i\"; done; chown -R 1000:1000 \"$tree/still\"
         done"
    ))
    .await
    .map(drop)
}

/// Returns one of these files as the processes of a Pod see it.
async fn file_in_pod(node: &Node, pod: &Pod) -> Result<String> {
    node.sh(&format!(
        "for p in /proc/[0-9]*; do grep -q {} $p/cgroup 2>/dev/null && cat $p/root/workspace/tree/still/7 2>/dev/null && break; done; true",
        uid(pod)
    ))
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_come_back_from_a_reboot_on_their_own_trees() -> Result<()> {
    let _alone = locks::exclusive(&locks::INTACT).await?;
    let node = Node::from_environment()?;
    let mut rng = SeededRng::new(u64::from(std::process::id()));
    let workload = Workload::create(&node, &mut rng, false).await?;
    let churn = Churn::new(0, workload.provider);
    workload.set_busy(true);
    churn.run(&workload.ns, &mut rng).await?;
    churn.create_last_fork(&workload.ns).await?;
    workload.set_busy(false);
    let (_, pending) = convergence::wait(&workload, &churn, std::time::Instant::now()).await?;
    ensure!(pending.is_empty(), "before the reboot:\n  {}", pending.join("\n  "));
    let mut trees = workload.trees.clone();
    trees.insert("claim-0", uid(&workload.ns.get::<AgentWorkspace>("claim-0").await?));
    let mut before = Vec::new();
    for workspace in trees.values() {
        write_files(&node, workspace).await?;
        before.push(tree_contents(&node, workspace).await?);
    }
    let mounts = node.sh("grep -c kubernetes.io~csi /proc/self/mountinfo").await?;

    workload.set_busy(true);
    sleep(rng.millis(1000, 4000)).await;
    node.reboot().await?;
    let started = std::time::Instant::now();
    workload.set_busy(false);
    workload.request_messages();
    let (convergence, pending) = convergence::wait(&workload, &churn, started).await?;
    println!(
        "after the reboot: converged in {:.1} s, of it back-off {:.1} s; before it, {} mounts of ours",
        convergence.took.as_secs_f32(),
        convergence.backed_off.as_secs_f32(),
        mounts.trim()
    );
    ensure!(pending.is_empty(), "after the reboot:\n  {}", pending.join("\n  "));
    for (workspace, before) in trees.values().zip(before) {
        let now = tree_contents(&node, workspace).await?;
        ensure!(now == before, "another tree than before:\n{before}\nnow\n{now}");
    }
    let pods: Vec<Pod> = workload.ns.list("").await?;
    for (name, workspace) in &trees {
        let own = |pod: &&Pod| {
            let label = pod.labels().get("yoi.dev/yoipod");
            if AGENTS.contains(name) { label.map(String::as_str) == Some(name) } else { pod.name_any() == "foreign-0" }
        };
        let pod = pods.iter().find(own).with_context(|| format!("{name} has no Pod"))?;
        let seen = file_in_pod(&node, pod).await?;
        ensure!(seen == format!("{workspace} 7\n"), "the Pod of {name} is not on its own tree: {seen:?}");
    }
    ensure!(node.pids(Component::Runtime).await?.len() >= AGENTS.len(), "not every agent runs");
    let broken = [workload.violations().await?, workload.leftovers(&churn).await?.1].concat();
    ensure!(broken.is_empty(), "after the reboot:\n  {}", broken.join("\n  "));
    churn.remove(&workload.ns).await?;
    tokio::time::timeout(limit(TIMEOUT + Duration::from_secs(180)), workload.remove()).await?
}
