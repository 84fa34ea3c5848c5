//! `workspace rm`.

use kube::ResourceExt;
use yoi_crds::{AgentWorkspace, YoiPod};

use super::loss::{self, Objection};
use super::{delete_as_seen, refused, tell_objection};
use crate::args::{OutputFormat, WorkspaceRmOptions};
use crate::cluster::Cluster;
use crate::error::Error;
use crate::show;

pub async fn rm_trees(cluster: &Cluster, output: Option<OutputFormat>, args: &WorkspaceRmOptions) -> Result<(), Error> {
    let trees = selected(cluster, args).await?;
    let agents: Vec<YoiPod> = cluster.list(false, None).await?;
    let mut found = Vec::new();
    for tree in trees {
        let users: Vec<YoiPod> = loss::users_of(&tree.name_any(), &agents).cloned().collect();
        let objection = match loss::tree_in_use(cluster, &tree, &users).await {
            Some(objection) => Some(objection).filter(|objection| objection.is_final || !args.force),
            None if args.force => None,
            None => loss::unsaved(cluster, &tree, users.first()).await,
        };
        found.push((tree, users, objection));
    }
    let refusal = |tree: &AgentWorkspace, objection: &Option<Objection>, then: &str| {
        objection.as_ref().map(|objection| refused::<AgentWorkspace>(cluster, &tree.name_any(), objection, then))
    };
    if !args.force {
        let mut first = None;
        for (tree, users, objection) in &found {
            let title = title(tree);
            match objection {
                Some(objection) => tell_objection(output, &title, objection)?,
                None => {
                    let sentence = format!("would delete {title}{}. Nothing was done: say --force to do it.", consequence(users));
                    show::object(output, tree, &title, &sentence)?;
                }
            }
            first = first.or(refusal(tree, objection, "nothing was done, and --force would do it"));
        }
        return first.map_or(Ok(()), Err);
    }
    if let Some(refused) = found.iter().find_map(|(tree, _, objection)| refusal(tree, objection, "nothing was deleted")) {
        return Err(refused);
    }
    for (tree, users, _) in found {
        let tree = delete_as_seen(cluster, tree, async |tree| Ok(loss::tree_in_use(cluster, tree, &users).await)).await?;
        let title = title(&tree);
        show::object(output, &tree, &title, &format!("{title} deleted{}{}", consequence(&users), cluster.dry_run_mark()))?;
    }
    Ok(())
}

async fn selected(cluster: &Cluster, args: &WorkspaceRmOptions) -> Result<Vec<AgentWorkspace>, Error> {
    let mut trees: Vec<AgentWorkspace> = Vec::new();
    if args.all || args.selector.is_some() {
        let listed: Vec<AgentWorkspace> = cluster.list(false, args.selector.as_deref()).await?;
        // The tree of an agent goes with its agent, and a base with its project.
        trees.extend(listed.into_iter().filter(|w| w.metadata.owner_references.as_ref().is_none_or(Vec::is_empty)));
        if trees.is_empty() {
            let what = format!("such an AgentWorkspace in namespace {}", cluster.namespace);
            return Err(Error::Missing { what, next: cluster.list_command::<AgentWorkspace>() });
        }
    }
    for name in &args.names {
        trees.push(cluster.get(name).await?);
    }
    Ok(trees)
}

fn title(tree: &AgentWorkspace) -> String {
    format!("agentworkspace.yoi.dev/{}", tree.name_any())
}

/// What its deletion means for the agents that work in it.
fn consequence(users: &[YoiPod]) -> String {
    match users {
        [] => String::new(),
        users => {
            let names: Vec<String> = users.iter().map(ResourceExt::name_any).collect();
            format!("; without it {} does not start again until a person allows a new tree", names.join(", "))
        }
    }
}
