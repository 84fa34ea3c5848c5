//! `workspace create | ls`.

use std::time::Duration;

use yoi_crds::condition::{find, is_true};
use yoi_crds::pod::SecretRef;
use yoi_crds::reason::{self, condition};
use yoi_crds::source::{EmptySource, GitSource, HostSource, NamedRef, ProjectRevision, WorkspaceSource};
use yoi_crds::workspace::Binding;
use yoi_crds::{AgentWorkspace, AgentWorkspaceSpec, YoiProject};

use super::ls;
use crate::args::{ListFilter, OutputFormat, WorkspaceCreateOptions};
use crate::cluster::{Cluster, Wait, blocked};
use crate::error::Error;
use crate::show;

pub async fn create(cluster: &Cluster, output: Option<OutputFormat>, args: WorkspaceCreateOptions) -> Result<(), Error> {
    check(cluster, &args).await?;
    let (name, project) = (args.name, args.project.clone());
    let is_late = !args.immediate;
    let source = WorkspaceSource {
        project: args.project.map(|name| Box::new(ProjectRevision { name, revision: args.revision })),
        workspace: args.fork.map(|name| NamedRef { name }),
        git: args.git.map(|url| {
            Box::new(GitSource {
                url,
                ref_: args.ref_,
                credentials_secret_ref: args.git_secret.map(|name| SecretRef { name }),
                ..GitSource::default()
            })
        }),
        host: args.host.map(|name| HostSource { name, take: None }),
        empty: args.empty.then(EmptySource::default),
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
        quota: args.quota,
        base: None,
    };
    let mut made = cluster.create(&AgentWorkspace::new(&name, spec)).await?;
    let mut state = "created";
    if args.wait && cluster.dry_run.is_none() {
        let waiting = async {
            if let Some(project) = project.as_ref().filter(|_| is_late) {
                wait_project(cluster, project, args.timeout).await?;
            }
            wait(cluster, &name, is_late, args.timeout).await
        };
        (made, state) = cluster.unless_project_fails(project.as_deref(), args.timeout, waiting).await?;
    }
    let title = format!("agentworkspace.yoi.dev/{name}");
    show::object(output, &made, &title, &format!("{title} {state}{}", cluster.dry_run_mark()))
}

/// Checks what the tree is to be made from: a missing one is most likely a typing mistake.
async fn check(cluster: &Cluster, args: &WorkspaceCreateOptions) -> Result<(), Error> {
    if let Some(project) = &args.project {
        cluster.get::<YoiProject>(project).await?;
    }
    if let Some(parent) = &args.fork {
        cluster.get::<AgentWorkspace>(parent).await?;
    }
    if args.wait && args.git.is_some() && !args.immediate {
        let message = "a tree from --git is fetched where its first Pod runs, so there is nothing to wait for";
        let next = "leave out --wait, or let a node be chosen now: --claim --immediate";
        return Err(cluster.refused_error::<AgentWorkspace>("create", &args.name, message, next));
    }
    Ok(())
}

async fn wait_project(cluster: &Cluster, name: &str, timeout: Duration) -> Result<(), Error> {
    cluster
        .wait(name, timeout, "ready", |project: Option<&YoiProject>| {
            let Some(project) = project else { return Err(cluster.gone_error::<YoiProject>(name)) };
            let conditions = project.status.as_ref().map(|s| s.conditions.as_slice()).unwrap_or_default();
            if is_true(conditions, condition::READY) {
                return Ok(Wait::Done(()));
            }
            Ok(blocked(cluster, project, "ready", find(conditions, condition::READY), |_| None))
        })
        .await
}

/// Waits until the tree is made, or, where its first Pod makes it, until the operator has accepted it. Returns what is to be said of it.
async fn wait(cluster: &Cluster, name: &str, is_late: bool, timeout: Duration) -> Result<(AgentWorkspace, &'static str), Error> {
    cluster
        .wait(name, timeout, "ready", |workspace: Option<&AgentWorkspace>| {
            let Some(workspace) = workspace else {
                return Err(cluster.gone_error::<AgentWorkspace>(name));
            };
            let conditions = workspace.status.as_ref().map(|s| s.conditions.as_slice()).unwrap_or_default();
            let ready = find(conditions, condition::READY);
            if is_true(conditions, condition::READY) {
                return Ok(Wait::Done((workspace.clone(), "ready")));
            }
            if is_late && ready.is_some_and(|c| c.reason == reason::WAITING_FOR_CONSUMER) {
                return Ok(Wait::Done((workspace.clone(), "created; its tree is made with the first Pod that uses it")));
            }
            Ok(blocked(cluster, workspace, "ready", ready, |_| None))
        })
        .await
}

pub async fn ls(cluster: &Cluster, output: Option<OutputFormat>, filter: &ListFilter) -> Result<(), Error> {
    ls::list_workspaces(cluster, output, filter).await
}
