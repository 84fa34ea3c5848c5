//! `workspace create | ls | rm`.

use kube::ResourceExt;
use yoi_crds::condition::{find, is_true};
use yoi_crds::reason::{self, condition};
use yoi_crds::source::{EmptySource, GitSource, NamedRef, WorkspaceSource};
use yoi_crds::workspace::Binding;
use yoi_crds::{AgentWorkspace, AgentWorkspaceSpec};

use crate::args::{OutputFormat, WorkspaceCreateOptions};
use crate::cluster::{Cluster, Wait};
use crate::error::Error;
use crate::show;

pub async fn create(cluster: &Cluster, output: Option<OutputFormat>, args: WorkspaceCreateOptions) -> Result<(), Error> {
    let source = WorkspaceSource {
        project: args.project.map(|name| NamedRef { name }),
        workspace: args.fork.map(|name| NamedRef { name }),
        git: args.git.map(|url| GitSource { url, ref_: args.ref_ }),
        empty: args.empty.then_some(EmptySource {}),
    };
    let spec = AgentWorkspaceSpec {
        source,
        provider: Default::default(),
        path: args.path,
        owner: None,
        claim: args.claim,
        binding: if args.immediate { Binding::Immediate } else { Binding::WaitForConsumer },
        read_only: false,
        ttl_after_release: args.ttl,
        base: None,
    };
    let name = args.name;
    let mut made = cluster.create(&AgentWorkspace::new(&name, spec)).await?;
    let mut state = "created";
    if args.wait {
        (made, state) = cluster
            .wait(&name, args.timeout, "ready", |ws: Option<&AgentWorkspace>| {
                let Some(ws) = ws else {
                    return Err(cluster.gone_error::<AgentWorkspace>(&name));
                };
                let conditions = ws.status.as_ref().map(|s| s.conditions.as_slice()).unwrap_or_default();
                let ready = find(conditions, condition::READY);
                if is_true(conditions, condition::READY) {
                    return Ok(Wait::Done((ws.clone(), "ready")));
                }
                // A claim that binds late gets no further until a Pod uses it, so the wait ends here.
                if ready.is_some_and(|c| c.reason == reason::WAITING_FOR_CONSUMER) {
                    return Ok(Wait::Done((ws.clone(), "created; its tree is made with the first Pod that uses it")));
                }
                Ok(Wait::Pending(
                    ready.map_or_else(|| "the operator has not seen it yet".to_owned(), |c| format!("{}: {}", c.reason, c.message)),
                ))
            })
            .await?;
    }
    show::object(output, &made, &format!("agentworkspace.yoi.dev/{name}"), &format!("agentworkspace.yoi.dev/{name} {state}"))
}

pub async fn ls(cluster: &Cluster, output: Option<OutputFormat>, all_namespaces: bool) -> Result<(), Error> {
    let workspaces: Vec<AgentWorkspace> = cluster.list(all_namespaces).await?;
    let workspaces: Vec<AgentWorkspace> = workspaces.into_iter().filter(|w| w.spec.base.is_none()).collect();
    let namespace = (!all_namespaces).then_some(cluster.namespace.as_str());
    show::objects(output, &workspaces, |w| format!("agentworkspace.yoi.dev/{}", w.name_any()), || table(&workspaces, namespace))
}

/// Returns a table of workspaces. It has a column for the namespace when none is given.
pub fn table(workspaces: &[AgentWorkspace], namespace: Option<&str>) -> String {
    if workspaces.is_empty() {
        return show::empty_list("workspaces", namespace);
    }
    let all_namespaces = namespace.is_none();
    let mut table = show::table(
        &["namespace", "workspace", "ready", "reason", "source", "provider", "node", "claim", "in use", "age"]
            [usize::from(!all_namespaces)..],
    );
    for workspace in workspaces {
        let status = workspace.status.clone().unwrap_or_default();
        let [ready, reason] = show::ready(&status.conditions);
        let mut row: Vec<comfy_table::Cell> = Vec::new();
        if all_namespaces {
            row.push(workspace.namespace().unwrap_or_default().into());
        }
        row.extend([
            workspace.name_any().into(),
            ready,
            reason,
            source_text(&workspace.spec.source).into(),
            status.provider.map_or_else(|| "-".to_owned(), |p| show::provider(p.selected).to_owned()).into(),
            show::or_dash(status.node_name.as_deref()).into(),
            show::or_dash(status.claim_name.as_deref()).into(),
            if is_true(&status.conditions, condition::IN_USE) { "yes" } else { "no" }.into(),
            show::age(workspace.creation_timestamp().map(|t| t.0)).into(),
        ]);
        table.add_row(row);
    }
    show::lines(&table)
}

fn source_text(source: &WorkspaceSource) -> String {
    match source {
        WorkspaceSource { project: Some(p), .. } => format!("project/{}", p.name),
        WorkspaceSource { workspace: Some(w), .. } => format!("fork of {}", w.name),
        WorkspaceSource { git: Some(g), .. } => g.url.clone(),
        WorkspaceSource { empty: Some(_), .. } => "empty".to_owned(),
        WorkspaceSource { project: None, workspace: None, git: None, empty: None } => "-".to_owned(),
    }
}

pub async fn rm(cluster: &Cluster, output: Option<OutputFormat>, names: &[String]) -> Result<(), Error> {
    for name in names {
        let workspace: AgentWorkspace = cluster.get(name).await?;
        cluster.delete(&workspace).await?;
        show::object(output, &workspace, &format!("agentworkspace.yoi.dev/{name}"), &format!("agentworkspace.yoi.dev/{name} deleted"))?;
    }
    Ok(())
}
