//! `trees show`: a tree that no AgentWorkspace claims, and the command that opens it on its node.
//!
//! Only the node can read it, and the plugin has no way into the node but kubectl's own. So it prints a line that can be typed.

use k8s_openapi::api::apps::v1::DaemonSet;
use kube::api::{Api, ListParams};
use serde::Serialize;
use yoi_crds::node::UnclaimedTree;

use super::{bytes, describe, get, kept};
use crate::args::{OutputFormat, TreesShowOptions};
use crate::cluster::Cluster;
use crate::error::Error;
use crate::show;

/// What the chart has, unless `shim.dataRoot` says something else.
const DEFAULT_DATA_ROOT: &str = "/var/lib/yoi";
/// The DaemonSet of the nodes, whose namespace is a value of the chart.
const SHIM: &str = "metadata.name=yoi-agent-shim";

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ShownTree {
    node: String,
    #[serde(flatten)]
    tree: UnclaimedTree,
    /// The PersistentVolume that names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    kept_by: Option<String>,
    /// Where it is on the node, as a pattern that fits one folder.
    folder: String,
    /// Opens a shell in that folder.
    command: String,
}

pub(super) async fn show_tree(cluster: &Cluster, output: Option<OutputFormat>, args: &TreesShowOptions) -> Result<(), Error> {
    let TreesShowOptions { node: name, uid } = args;
    let node = get(cluster, name).await?;
    let listed = node.status.and_then(|status| status.unclaimed).unwrap_or_default().items;
    let Some(tree) = listed.into_iter().find(|tree| tree.uid == *uid) else {
        let what = format!("tree {uid} on WorkspaceNode {name} that no AgentWorkspace claims");
        return Err(Error::Missing { what, next: format!("kubectl yoi trees --node {name}") });
    };
    let root = data_root(cluster).await;
    let guess = if root.is_none() { " (unless the chart's shim.dataRoot says something else, which could not be read)" } else { "" };
    let folder = format!("{}/trees/*/{uid}", root.as_deref().unwrap_or(DEFAULT_DATA_ROOT));
    let command =
        format!("kubectl debug node/{name} -it --profile=sysadmin --image=busybox -- sh -c 'cd /host{folder} && ls -lA * && exec sh'");
    let kept_by = kept(cluster).await.remove(uid);
    let shown = ShownTree { node: name.clone(), tree, kept_by, folder, command };
    show::object(output, &shown, &format!("workspacenode.yoi.dev/{name}"), &sentence(&shown, guess))
}

fn sentence(shown: &ShownTree, guess: &str) -> String {
    let ShownTree { node, tree, kept_by, folder, command } = shown;
    let mut lines = vec![format!("{} is on node {node} in {folder}{guess}", describe(tree))];
    if let Some(created) = &tree.created_at {
        lines.push(format!("made at {}", show::one_line(created)));
    }
    if tree.logical_bytes.is_some() {
        lines.push(format!("its files are {} in all", bytes(tree.logical_bytes)));
    }
    if let Some(volume) = kept_by {
        lines.push(format!("kept by PersistentVolume {volume}"));
    }
    if let Some(why) = &tree.refused {
        lines.push(format!("not discarded: {}", show::one_line(why)));
    }
    lines.push(
        "A shell in it: its files are in `tree`, and what was changed of an overlay in `upper`. Run nothing that is in there:".to_owned(),
    );
    lines.push(command.clone());
    lines.push("Copy what you want to keep with `kubectl cp` from that Pod while the shell is open, and delete the Pod node-debugger-... after it.".to_owned());
    lines.join("\n")
}

/// The folder for trees that the node's mounter was given. `None` for a user who may not read DaemonSets.
async fn data_root(cluster: &Cluster) -> Option<String> {
    let sets = Api::<DaemonSet>::all(cluster.client.clone()).list(&ListParams::default().fields(SHIM)).await.ok()?;
    let containers = sets.items.into_iter().next()?.spec?.template.spec?.containers;
    let mut args = containers.into_iter().filter_map(|container| container.args).flatten();
    args.find_map(|arg| arg.strip_prefix("--data-root=").map(str::to_owned))
}
