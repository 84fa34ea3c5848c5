//! `ls`: lists agents, sessions, workspaces, and who sees whom.

mod agents;
mod peers;
mod rows;
mod watch;
mod workspaces;

use std::collections::HashSet;

use kube::ResourceExt;
use yoi_crds::{AgentWorkspace, YoiPeer, YoiPod, YoiProject};
use yoi_plan::visibility::PeerLink;

use crate::args::{ListFilter, ListKind, LsOptions, OutputFormat};
use crate::cluster::{Cluster, Listed, NamespacedObject};
use crate::commands::approvals::needs_input;
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
    let links = async { if wanted(ListKind::Agents) { cluster.list_each::<YoiPeer>(all, None).await } else { Ok(Listed::EMPTY) } };
    let everybody = async {
        let needed = wanted(ListKind::Agents) && selector.is_some();
        if needed { cluster.list_each::<YoiPod>(all, None).await } else { Ok(Listed::EMPTY) }
    };
    let pods = async {
        let needed = wanted(ListKind::Agents) || wanted(ListKind::Sessions);
        if needed { cluster.list_each::<YoiPod>(all, selector).await } else { Ok(Listed::EMPTY) }
    };
    let workspaces = async { if wanted(ListKind::Workspaces) { list_trees(cluster, &args.filter).await } else { Ok(Listed::EMPTY) } };
    let peers = async {
        match (wanted(ListKind::Peers), wanted(ListKind::Agents) && selector.is_none()) {
            (true, false) => cluster.list_each::<YoiPeer>(all, selector).await.map(Some),
            // They are the links.
            (true, true) | (false, _) => Ok(None),
        }
    };
    let (links, everybody, mut pods, workspaces, peers) = futures::try_join!(links, everybody, pods, workspaces, peers)?;
    let peers = peers.unwrap_or_else(|| links.clone());
    let is_table = matches!(output, None | Some(OutputFormat::Wide));
    if is_table {
        // Those that wait for a person come first, and those that rest last.
        pods.objects.sort_by_key(|pod| (!needs_input(pod), yoi_plan::yoipod::may_be_woken(pod)));
    }
    let nested = if is_table { agents::as_tree(&mut pods.objects) } else { HashSet::new() };
    // The other tables have a line for each, and the objects themselves stand in documents.
    if !is_table || args.what == Some(ListKind::Sessions) {
        rows::say_unreadable("agents", &pods.unreadable);
    }
    if !is_table {
        rows::say_unreadable("workspaces", &workspaces.unreadable);
    }
    if !is_table && wanted(ListKind::Peers) || is_table && args.what == Some(ListKind::Agents) {
        rows::say_unreadable("peers", &peers.unreadable);
    }
    match (output, args.what) {
        (None | Some(OutputFormat::Wide), _) => {
            let links: Vec<PeerLink> = links.objects.into_iter().map(PeerLink::from).collect();
            let others: &[YoiPod] = if selector.is_some() { &everybody.objects } else { &pods.objects };
            let mut tables = Vec::new();
            if wanted(ListKind::Agents) {
                tables.push(table(&AgentRows::new(&links, others).with_nested(nested), &pods, &options));
            }
            if wanted(ListKind::Sessions) {
                let with: Vec<YoiPod> = pods.objects.iter().filter(|pod| agents::has_session(pod)).cloned().collect();
                tables.push(table(&SessionRows, &Listed { objects: with, unreadable: Vec::new() }, &options));
            }
            if args.what == Some(ListKind::Sessions) {
                // Whoever may not read projects sees the sessions all the same.
                let projects = cluster.list_each::<YoiProject>(all, None).await.unwrap_or(Listed::EMPTY);
                tables.extend(warm_lines(&projects.objects));
            }
            if wanted(ListKind::Workspaces) {
                tables.push(table(&WorkspaceRows, &workspaces, &options));
            }
            if wanted(ListKind::Peers) {
                tables.push(table(&PeerRows, &peers, &options));
            }
            show::print(&tables.join("\n"))
        }
        (Some(OutputFormat::Name), Some(ListKind::Sessions)) => {
            show::print(&pods.objects.iter().filter_map(agents::session_name).map(|name| name + "\n").collect::<String>())
        }
        (Some(OutputFormat::Name), _) => {
            let names = [names(&pods, wanted(ListKind::Agents)), names(&workspaces, true), names(&peers, wanted(ListKind::Peers))];
            show::print(&names.concat().into_iter().map(|name| name + "\n").collect::<String>())
        }
        (Some(format), _) => {
            let mut items = documents(&pods)?;
            items.extend(documents(&workspaces)?);
            if wanted(ListKind::Peers) {
                items.extend(documents(&peers)?);
            }
            show::print_as(format, &show::list(&items)?)
        }
    }
}

/// What stands ready for agents that are still to come: no session yet, and of no agent.
fn warm_lines(projects: &[YoiProject]) -> Option<String> {
    let line = |project: &YoiProject| {
        let claims = project.status.as_ref()?.warm.as_ref()?.claims.len();
        let title = format!("{}/{}", project.namespace().unwrap_or_default(), project.name_any());
        (claims > 0)
            .then(|| format!("YoiProject {title}: {claims} warm session claim{} for its next agents\n", if claims == 1 { "" } else { "s" }))
    };
    let lines: String = projects.iter().filter_map(line).collect();
    (!lines.is_empty()).then_some(lines)
}

/// The names of objects for programs; nothing where they are not wanted.
fn names<K: NamespacedObject>(listed: &Listed<K>, wanted: bool) -> Vec<String> {
    let unreadable = listed.unreadable.iter().map(|object| object.name.clone());
    let all = listed.objects.iter().map(ResourceExt::name_any).chain(unreadable).filter(|_| wanted);
    all.map(|name| program_name::<K>(&name)).collect()
}

/// Objects as JSON: those that cannot be read as they stand.
fn documents<K: NamespacedObject>(listed: &Listed<K>) -> Result<Vec<serde_json::Value>, Error> {
    let objects = listed.objects.iter().map(serde_json::to_value).collect::<Result<Vec<_>, _>>();
    let mut objects = objects.map_err(|e| Error::local("write the answer", e, "take another form of it: -o name, or none"))?;
    objects.extend(listed.unreadable.iter().map(|unreadable| unreadable.object.clone()));
    Ok(objects)
}

/// `workspace ls`.
pub async fn list_workspaces(cluster: &Cluster, output: Option<OutputFormat>, filter: &ListFilter) -> Result<(), Error> {
    if filter.watch {
        return watch::watch(cluster, output, filter, &WorkspaceRows).await;
    }
    let trees = list_trees(cluster, filter).await?;
    match output {
        None | Some(OutputFormat::Wide) => show::print(&table(&WorkspaceRows, &trees, &RowOptions::new(cluster, output, filter))),
        Some(OutputFormat::Name) => {
            rows::say_unreadable("workspaces", &trees.unreadable);
            show::print(&names(&trees, true).into_iter().map(|name| name + "\n").collect::<String>())
        }
        Some(format) => {
            rows::say_unreadable("workspaces", &trees.unreadable);
            show::print_as(format, &show::list(&documents(&trees)?)?)
        }
    }
}

/// The workspaces that are no bases.
async fn list_trees(cluster: &Cluster, filter: &ListFilter) -> Result<Listed<AgentWorkspace>, Error> {
    let mut trees: Listed<AgentWorkspace> = cluster.list_each(filter.all_namespaces, filter.selector.as_deref()).await?;
    trees.objects.retain(|workspace| workspace.spec.base.is_none());
    Ok(trees)
}

/// Returns `kind.group/name` of an object.
fn program_name<K: kube::Resource<DynamicType = ()>>(name: &str) -> String {
    format!("{}.{}/{name}", K::kind(&()).to_lowercase(), K::group(&()))
}
