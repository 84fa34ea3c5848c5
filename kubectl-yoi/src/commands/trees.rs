//! `trees`: what nodes hold that no AgentWorkspace claims, the way to look into it, and its discarding.
//!
//! The node itself looks again before it destroys anything: the wish stands in the spec of its WorkspaceNode.

mod show_tree;

use std::collections::HashMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::ResourceExt;
use kube::api::{Api, ListParams, Patch, PatchParams};
use serde::Serialize;
use serde_json::json;
use yoi_crds::WorkspaceNode;
use yoi_crds::name::field_manager;
use yoi_crds::node::UnclaimedTree;
use yoi_wire::identity::CSI_DRIVER;

use crate::args::{DryRun, OutputFormat, TreesCommand, TreesDiscardOptions, TreesOptions};
use crate::cluster::Cluster;
use crate::error::{Error, ErrorTarget, RefusalKind};
use crate::show;

/// How often a WorkspaceNode is read again that changes before the wish is written.
const MOST_TRIES: usize = 5;

/// A tree with the node that holds it, and what keeps it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ListedTree {
    node: String,
    #[serde(flatten)]
    tree: UnclaimedTree,
    /// The PersistentVolume that names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    kept_by: Option<String>,
}

pub async fn trees(cluster: &Cluster, output: Option<OutputFormat>, args: &TreesOptions) -> Result<(), Error> {
    match &args.command {
        Some(TreesCommand::Show(args)) => show_tree::show_tree(cluster, output, args).await,
        Some(TreesCommand::Discard(args)) => discard(cluster, output, args).await,
        None => list(cluster, output, args.node.as_deref()).await,
    }
}

/// The PersistentVolumes of our driver by the UID of their tree. None of them for a user who may not read volumes.
pub fn volumes_by_tree(volumes: &[PersistentVolume]) -> HashMap<String, String> {
    let ours = |volume: &PersistentVolume| {
        let csi = volume.spec.as_ref()?.csi.as_ref().filter(|csi| csi.driver == CSI_DRIVER)?;
        Some((csi.volume_handle.clone(), volume.name_any()))
    };
    volumes.iter().filter_map(ours).collect()
}

async fn kept(cluster: &Cluster) -> HashMap<String, String> {
    let volumes = Api::<PersistentVolume>::all(cluster.client.clone()).list(&ListParams::default()).await;
    volumes_by_tree(&volumes.map(|list| list.items).unwrap_or_default())
}

async fn list(cluster: &Cluster, output: Option<OutputFormat>, node: Option<&str>) -> Result<(), Error> {
    let nodes = match node {
        Some(name) => vec![get(cluster, name).await?],
        None => {
            let listed = Api::<WorkspaceNode>::all(cluster.client.clone()).list(&ListParams::default()).await;
            let mut nodes = listed.map_err(|e| api_error(cluster, "read", "the list of WorkspaceNodes", e))?.items;
            nodes.sort_by_key(ResourceExt::name_any);
            nodes
        }
    };
    let kept = kept(cluster).await;
    let of_node = |node: &WorkspaceNode| {
        let items = node.status.as_ref().and_then(|status| status.unclaimed.clone()).unwrap_or_default().items;
        let listed = |tree: UnclaimedTree| ListedTree { node: node.name_any(), kept_by: kept.get(&tree.uid).cloned(), tree };
        items.into_iter().map(listed).collect::<Vec<_>>()
    };
    let trees: Vec<ListedTree> = nodes.iter().flat_map(of_node).collect();
    show::objects(output, &trees, |listed| format!("{}/{}", listed.node, listed.tree.uid), || table(&trees, &nodes))
}

fn table(trees: &[ListedTree], nodes: &[WorkspaceNode]) -> String {
    if trees.is_empty() {
        return "every tree on a node's disk belongs to an AgentWorkspace\n".to_owned();
    }
    let mut table = show::table(&["node", "uid", "kind", "made for", "generation", "logical", "exclusive", "age", "message"]);
    for ListedTree { node, tree, kept_by } in trees {
        let created = tree.created_at.as_ref().and_then(|at| at.parse::<Timestamp>().ok());
        let message = match (kept_by, &tree.refused) {
            (Some(volume), _) => format!("kept by PersistentVolume {volume}"),
            (None, Some(why)) => format!("not discarded: {why}"),
            (None, None) => String::new(),
        };
        table.add_row(vec![
            show::cell(node),
            show::cell(&tree.uid),
            show::cell(if tree.base { "base" } else { "tree" }),
            show::cell(tree.object.as_deref().unwrap_or_default()),
            show::cell(tree.generation.as_deref().unwrap_or_default()),
            show::cell(bytes(tree.logical_bytes)),
            show::cell(bytes(tree.exclusive_bytes)),
            show::cell(show::age(created)),
            show::cell(message),
        ]);
    }
    let mut text = show::lines(&table);
    for node in nodes {
        let Some(all) = node.status.as_ref().and_then(|status| status.unclaimed.as_ref()) else { continue };
        let more = all.trees + all.bases - i64::try_from(all.items.len()).unwrap_or(i64::MAX);
        if more > 0 {
            text.push_str(&format!("{more} more are on {}; they are listed once some of these are gone\n", node.name_any()));
        }
    }
    text
}

/// Empty until the node has measured the tree.
fn bytes(bytes: Option<i64>) -> String {
    bytes.and_then(|bytes| u64::try_from(bytes).ok()).map(show::bytes).unwrap_or_default()
}

async fn discard(cluster: &Cluster, output: Option<OutputFormat>, args: &TreesDiscardOptions) -> Result<(), Error> {
    let name = &args.node;
    let node = get(cluster, name).await?;
    let kept = kept(cluster).await;
    let wanted = wanted(&node, args, &kept)?;
    let title = format!("workspacenode.yoi.dev/{name}");
    if !args.force {
        let sentences: Vec<String> = wanted.iter().map(|tree| format!("would discard {} from {title}", describe(tree))).collect();
        return show::object(output, &node, &title, &format!("{}\nNothing was done: say --force to do it.", sentences.join("\n")));
    }
    let asked = write_wish(cluster, node, &wanted).await?;
    let sentences: Vec<String> = wanted.iter().map(|tree| format!("{} is given up{}", describe(tree), cluster.dry_run_mark())).collect();
    let then =
        format!("the node destroys it within two minutes; until then, or if something uses it, it is in `kubectl yoi trees --node {name}`");
    show::object(output, &asked, &title, &format!("{}\n{then}", sentences.join("\n")))
}

/// The trees that the command names, of those that the node's status lists.
fn wanted(node: &WorkspaceNode, args: &TreesDiscardOptions, kept: &HashMap<String, String>) -> Result<Vec<UnclaimedTree>, Error> {
    let name = node.name_any();
    let listed = node.status.as_ref().and_then(|status| status.unclaimed.clone()).unwrap_or_default().items;
    let look = format!("kubectl yoi trees --node {name}");
    let refused = |uid: &str, why: String, next: String| {
        Err(Error::refused_error(format!("discard {uid} of WorkspaceNode {name}"), why, next, RefusalKind::Other))
    };
    if args.bases {
        let bases: Vec<_> = listed.into_iter().filter(|tree| tree.base && !kept.contains_key(&tree.uid)).collect();
        if bases.is_empty() {
            return Err(Error::Missing { what: format!("a base on WorkspaceNode {name} that no AgentWorkspace claims"), next: look });
        }
        return Ok(bases);
    }
    let mut wanted = Vec::new();
    for uid in &args.uids {
        let Some(tree) = listed.iter().find(|tree| tree.uid == *uid) else {
            return refused(uid, "the node does not list it: an AgentWorkspace claims it, or it is not there".to_owned(), look);
        };
        if let Some(volume) = kept.get(uid) {
            let next = format!("look at what it is kept for: kubectl describe persistentvolume {volume}");
            return refused(uid, format!("PersistentVolume {volume} names it"), next);
        }
        wanted.push(tree.clone());
    }
    Ok(wanted)
}

fn describe(tree: &UnclaimedTree) -> String {
    let kind = if tree.base { "base" } else { "tree" };
    let of = tree.object.as_ref().map(|object| format!(" of {}", show::one_line(object))).unwrap_or_default();
    let size = tree.exclusive_bytes.map(|_| format!(" ({} of its own)", bytes(tree.exclusive_bytes))).unwrap_or_default();
    format!("{kind} {}{of}{size}", tree.uid)
}

/// Adds these trees to `spec.discard`, and takes out what the node lists no more.
async fn write_wish(cluster: &Cluster, mut node: WorkspaceNode, wanted: &[UnclaimedTree]) -> Result<WorkspaceNode, Error> {
    let name = node.name_any();
    let api: Api<WorkspaceNode> = Api::all(cluster.client.clone());
    let server_dry_run = cluster.dry_run == Some(DryRun::Server);
    let params = PatchParams { field_manager: Some(field_manager::PLUGIN.into()), dry_run: server_dry_run, ..PatchParams::default() };
    let mut tries = 1;
    loop {
        let discard = discard_with(&node, wanted);
        if cluster.dry_run == Some(DryRun::Client) {
            node.spec.discard = discard;
            return Ok(node);
        }
        // Two people may write at once, and the list is replaced as a whole.
        let patch = json!({ "metadata": { "resourceVersion": node.resource_version() }, "spec": { "discard": discard } });
        match api.patch(&name, &params, &Patch::Merge(&patch)).await {
            Err(kube::Error::Api(status)) if status.reason == "Conflict" && tries < MOST_TRIES => {
                tries += 1;
                node = get(cluster, &name).await?;
            }
            written => return written.map_err(|e| api_error(cluster, "discard trees of", &format!("WorkspaceNode {name}"), e)),
        }
    }
}

fn discard_with(node: &WorkspaceNode, wanted: &[UnclaimedTree]) -> Vec<String> {
    let listed = node.status.as_ref().and_then(|status| status.unclaimed.as_ref()).map(|all| all.items.as_slice()).unwrap_or_default();
    let is_open = |uid: &&String| listed.iter().any(|tree| tree.uid == **uid) && !wanted.iter().any(|tree| tree.uid == **uid);
    node.spec.discard.iter().filter(is_open).cloned().chain(wanted.iter().map(|tree| tree.uid.clone())).collect()
}

async fn get(cluster: &Cluster, name: &str) -> Result<WorkspaceNode, Error> {
    let found = Api::<WorkspaceNode>::all(cluster.client.clone()).get(name).await;
    found.map_err(|e| api_error(cluster, "read", &format!("WorkspaceNode {name}"), e))
}

fn api_error(cluster: &Cluster, operation: &str, name: &str, error: kube::Error) -> Error {
    let operation = format!("{operation} {name}");
    match error {
        // Nodes are in no namespace, so the roles for namespaces do not help.
        kube::Error::Api(status) if matches!(status.code, 401 | 403) => Error::refused_error(
            operation,
            show::one_line(&status.message),
            "ask the cluster's administrator for the ClusterRole yoi-nodes, bound for the whole cluster",
            RefusalKind::Forbidden,
        ),
        error => {
            let list_command = "kubectl get workspacenodes".to_owned();
            Error::api(
                operation,
                &ErrorTarget { name: name.to_owned(), list_command, doctor_command: cluster.doctor_command(false) },
                error,
            )
        }
    }
}
