//! `ls`: lists agents, sessions, workspaces, and who sees whom.

mod agents;
mod peers;
mod rows;
mod watch;
mod workspaces;

use kube::ResourceExt;
use yoi_crds::{AgentWorkspace, YoiPeer, YoiPod};
use yoi_plan::visibility::PeerLink;

use crate::args::{ListFilter, ListKind, LsOptions, OutputFormat};
use crate::cluster::Cluster;
use crate::error::Error;
use crate::show;
use agents::{AgentRows, SessionRows};
use peers::PeerRows;
use rows::{RowOptions, table};
use workspaces::WorkspaceRows;

pub async fn ls(cluster: &Cluster, output: Option<OutputFormat>, args: &LsOptions) -> Result<(), Error> {
    if args.filter.watch {
        return match args.what.unwrap_or(ListKind::Agents) {
            ListKind::Agents => watch::watch(cluster, output, &args.filter, &AgentRows::watched()).await,
            ListKind::Sessions => watch::watch(cluster, output, &args.filter, &SessionRows).await,
            ListKind::Workspaces => watch::watch(cluster, output, &args.filter, &WorkspaceRows).await,
            ListKind::Peers => watch::watch(cluster, output, &args.filter, &PeerRows).await,
        };
    }
    let options = RowOptions::new(cluster, output, &args.filter);
    let (all, selector) = (args.filter.all_namespaces, args.filter.selector.as_deref());
    let wanted = |what| args.what.is_none_or(|w| w == what);
    // Whom an agent sees does not depend on labels.
    let links = async { if wanted(ListKind::Agents) { cluster.list::<YoiPeer>(all, None).await } else { Ok(Vec::new()) } };
    let everybody = async { if wanted(ListKind::Agents) && selector.is_some() { cluster.list(all, None).await } else { Ok(Vec::new()) } };
    let pods = async {
        let needed = wanted(ListKind::Agents) || wanted(ListKind::Sessions);
        if needed { cluster.list::<YoiPod>(all, selector).await } else { Ok(Vec::new()) }
    };
    let workspaces = async { if wanted(ListKind::Workspaces) { list_trees(cluster, &args.filter).await } else { Ok(Vec::new()) } };
    let peers = async {
        match (wanted(ListKind::Peers), wanted(ListKind::Agents) && selector.is_none()) {
            (true, false) => cluster.list::<YoiPeer>(all, selector).await.map(Some),
            // They are the links.
            (true, true) | (false, _) => Ok(None),
        }
    };
    let (links, everybody, pods, workspaces, peers) = futures::try_join!(links, everybody, pods, workspaces, peers)?;
    let peers = peers.unwrap_or_else(|| links.clone());
    match (output, args.what) {
        (None | Some(OutputFormat::Wide), _) => {
            let links: Vec<PeerLink> = links.into_iter().map(PeerLink::from).collect();
            let others: &[YoiPod] = if selector.is_some() { &everybody } else { &pods };
            let mut tables = Vec::new();
            if wanted(ListKind::Agents) {
                tables.push(table(&AgentRows::new(&links, others), &pods, &options));
            }
            if wanted(ListKind::Sessions) {
                let with: Vec<YoiPod> = pods.iter().filter(|pod| agents::has_session(pod)).cloned().collect();
                tables.push(table(&SessionRows, &with, &options));
            }
            if wanted(ListKind::Workspaces) {
                tables.push(table(&WorkspaceRows, &workspaces, &options));
            }
            if wanted(ListKind::Peers) {
                tables.push(table(&PeerRows, &peers, &options));
            }
            show::print(&tables.join("\n"))
        }
        (Some(_), Some(ListKind::Workspaces)) => show::objects(output, &workspaces, workspaces::name, String::new),
        (Some(_), Some(ListKind::Peers)) => show::objects(output, &peers, peers::name, String::new),
        (Some(OutputFormat::Name), Some(ListKind::Sessions)) => {
            show::print(&pods.iter().filter_map(agents::session_name).map(|name| name + "\n").collect::<String>())
        }
        (Some(_), Some(ListKind::Agents | ListKind::Sessions)) => show::objects(output, &pods, agents::name, String::new),
        (Some(OutputFormat::Name), None) => {
            let names = pods.iter().map(agents::name).chain(workspaces.iter().map(workspaces::name)).chain(peers.iter().map(peers::name));
            show::print(&names.map(|name| name + "\n").collect::<String>())
        }
        (Some(format), None) => {
            let value = |objects: Result<Vec<serde_json::Value>, serde_json::Error>| {
                objects.map_err(|e| Error::local("write the answer", e, "take another form of it: -o name, or none"))
            };
            let mut items = value(pods.iter().map(serde_json::to_value).collect())?;
            items.extend(value(workspaces.iter().map(serde_json::to_value).collect())?);
            items.extend(value(peers.iter().map(serde_json::to_value).collect())?);
            show::print_as(format, &show::list(&items)?)
        }
    }
}

/// `workspace ls`.
pub async fn list_workspaces(cluster: &Cluster, output: Option<OutputFormat>, filter: &ListFilter) -> Result<(), Error> {
    if filter.watch {
        return watch::watch(cluster, output, filter, &WorkspaceRows).await;
    }
    let trees = list_trees(cluster, filter).await?;
    let options = RowOptions::new(cluster, output, filter);
    show::objects(output, &trees, workspaces::name, || table(&WorkspaceRows, &trees, &options))
}

/// The workspaces that are no bases.
async fn list_trees(cluster: &Cluster, filter: &ListFilter) -> Result<Vec<AgentWorkspace>, Error> {
    let mut trees: Vec<AgentWorkspace> = cluster.list(filter.all_namespaces, filter.selector.as_deref()).await?;
    trees.retain(|workspace| workspace.spec.base.is_none());
    Ok(trees)
}

/// Returns `kind.group/name` of an object.
fn object_name<K: kube::Resource<DynamicType = ()>>(object: &K) -> String {
    format!("{}.{}/{}", K::kind(&()).to_lowercase(), K::group(&()), object.name_any())
}
