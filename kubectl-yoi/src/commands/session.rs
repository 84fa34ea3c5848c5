//! `session`: the claims that hold sessions, also those of agents that are gone.
//!
//! A session that an agent names is deleted with its agent only, by `rm --purge`. What lives is refused, with `--force` too; without it nothing is deleted.

mod read;

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::ResourceExt;
use serde::Serialize;
use yoi_crds::YoiPod;
use yoi_crds::name::label;
use yoi_plan::yoipod::MADE_FOR;

use super::rm::{Session, claim_user};
use super::{export, log};
use crate::args::{ExportOptions, LogOptions, OutputFormat, SessionCommand, SessionDeletionOptions};
use crate::cluster::Cluster;
use crate::error::{Error, tell_former};
use crate::show;

/// A claim that holds a session.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ListedSession {
    namespace: String,
    claim: String,
    /// The agent that it was made for.
    agent: String,
    /// The agent that names it now. Absent when none does: it is left of one that is gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    named_by: Option<String>,
    /// As the claim asks for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    volume: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    made_at: Option<String>,
    #[serde(skip)]
    object: PersistentVolumeClaim,
}

impl ListedSession {
    /// `None` for a claim that Yoi did not make for an agent.
    fn new(claim: PersistentVolumeClaim, agents: &[YoiPod]) -> Option<Self> {
        claim.annotations().get(MADE_FOR)?;
        let (namespace, name) = (claim.namespace().unwrap_or_default(), claim.name_any());
        let names = |agent: &&YoiPod| {
            let held = agent.status.as_ref().and_then(|status| status.session_claim_name.as_ref());
            let wanted = agent.spec.session.claim_name.as_ref();
            agent.namespace().unwrap_or_default() == namespace && (held == Some(&name) || wanted == Some(&name))
        };
        let spec = claim.spec.as_ref();
        Some(ListedSession {
            agent: claim.labels().get(label::YOIPOD).cloned().unwrap_or_default(),
            named_by: agents.iter().find(names).map(ResourceExt::name_any),
            size: spec.and_then(|spec| Some(spec.resources.as_ref()?.requests.as_ref()?.get("storage")?.0.clone())),
            volume: spec.and_then(|spec| spec.volume_name.clone()).filter(|volume| !volume.is_empty()),
            made_at: made_at(&claim).map(|at| at.to_string()),
            namespace,
            claim: name,
            object: claim,
        })
    }

    fn is_older(&self, than: Duration) -> bool {
        let age = made_at(&self.object).and_then(|at| Duration::try_from(Timestamp::now().duration_since(at)).ok());
        age.is_some_and(|age| age >= than)
    }
}

fn made_at(claim: &PersistentVolumeClaim) -> Option<Timestamp> {
    claim.metadata.creation_timestamp.as_ref().map(|at| at.0)
}

pub async fn session(cluster: &Cluster, output: Option<OutputFormat>, command: &SessionCommand) -> Result<(), Error> {
    match command {
        SessionCommand::Ls(args) => {
            let listed = sessions(cluster, args.all_namespaces).await?;
            let namespace = (!args.all_namespaces).then_some(cluster.namespace.as_str());
            show::objects(output, &listed, |session| format!("persistentvolumeclaim/{}", session.claim), || table(&listed, namespace))
        }
        SessionCommand::Log(args) => {
            let read = async |name: String| {
                let (of, tail, since) = (args.of.clone(), args.tail, args.since);
                log::log(cluster, output, &LogOptions { name, of, follow: false, tail, after: None, since }).await
            };
            read::with_reader(cluster, &args.claim, read).await
        }
        SessionCommand::Export(args) => {
            let read =
                async |name: String| export::export(cluster, &ExportOptions { name, of: args.of.clone(), file: args.file.clone() }).await;
            read::with_reader(cluster, &args.claim, read).await
        }
        SessionCommand::Rm(args) => {
            let mut listed = sessions(cluster, false).await?;
            if let Some(unknown) = args.claims.iter().find(|name| !listed.iter().any(|session| session.claim == **name)) {
                let what = format!("a claim {unknown} with a session in namespace {}", cluster.namespace);
                return Err(Error::Missing { what, next: cluster.plugin_command("session ls") });
            }
            listed.retain(|session| args.claims.contains(&session.claim));
            delete(cluster, output, listed, &args.deletion).await
        }
        SessionCommand::Prune(args) => {
            let mut listed = sessions(cluster, false).await?;
            listed.retain(|session| session.named_by.is_none() && session.is_older(args.older_than));
            if listed.is_empty() {
                eprintln!("nothing to prune: no session of that age is left of an agent that is gone");
            }
            delete(cluster, output, listed, &args.deletion).await
        }
    }
}

/// All sessions, those that no agent names first.
async fn sessions(cluster: &Cluster, all_namespaces: bool) -> Result<Vec<ListedSession>, Error> {
    // The claims first: an agent that is made meanwhile is in the list then, and its claim is none that nobody names.
    let claims: Vec<PersistentVolumeClaim> = cluster.list(all_namespaces, None).await?;
    let agents: Vec<YoiPod> = cluster.list(all_namespaces, None).await?;
    let mut listed: Vec<ListedSession> = claims.into_iter().filter_map(|claim| ListedSession::new(claim, &agents)).collect();
    listed.sort_by_key(|session| session.named_by.is_some());
    Ok(listed)
}

fn table(sessions: &[ListedSession], namespace: Option<&str>) -> String {
    if sessions.is_empty() {
        return show::empty_list("sessions", namespace);
    }
    let mut heads = vec!["claim", "agent", "named by", "size", "age"];
    if namespace.is_none() {
        heads.insert(0, "namespace");
    }
    let mut table = show::table(&heads);
    for session in sessions {
        let named_by = session.named_by.as_deref().unwrap_or("nobody");
        let mut row = vec![
            show::cell(&session.claim),
            show::cell(&session.agent),
            show::cell(named_by),
            show::cell(session.size.as_deref().unwrap_or_default()),
            show::cell(show::age(made_at(&session.object))),
        ];
        if namespace.is_none() {
            row.insert(0, show::cell(&session.namespace));
        }
        table.add_row(row);
    }
    show::lines(&table)
}

/// Looks at all of them first, and deletes none when one of them is in use.
async fn delete(
    cluster: &Cluster,
    output: Option<OutputFormat>,
    listed: Vec<ListedSession>,
    args: &SessionDeletionOptions,
) -> Result<(), Error> {
    let pods: Vec<Pod> = if listed.is_empty() { Vec::new() } else { cluster.list(false, None).await? };
    for session in &listed {
        check(cluster, session, &pods)?;
    }
    let mut failed = None;
    for listed in listed {
        let session = Session::of_nobody(listed.object);
        if !args.force {
            let sentence = format!(
                "{} of agent {}, which is gone, would be deleted. Nothing was done: say --force to do it.",
                session.title(),
                listed.agent
            );
            show::object(output, &session.claim, &session.name(), &sentence)?;
            continue;
        }
        let deleted = async {
            session.check(cluster).await?;
            session.delete(cluster, args.timeout).await
        };
        match deleted.await {
            Ok(()) => {
                show::object(output, &session.claim, &session.name(), &format!("{} deleted{}", session.title(), cluster.dry_run_mark()))?;
            }
            // One that fails holds up no other.
            Err(error) => failed = tell_former(failed, error),
        }
    }
    failed.map_or(Ok(()), Err)
}

/// Refuses a session that something uses or may use.
fn check(cluster: &Cluster, session: &ListedSession, pods: &[Pod]) -> Result<(), Error> {
    let refused = |why: String, next: String| Err(cluster.refused_error::<PersistentVolumeClaim>("delete", &session.claim, why, next));
    if let Some(agent) = &session.named_by {
        let next = cluster.plugin_command(&format!("rm {agent} --purge"));
        return refused(format!("YoiPod {agent} names it as its session; nothing was deleted, and --force does not change that"), next);
    }
    match claim_user(&session.claim, pods) {
        Some(pod) => refused(
            format!("Pod {pod} uses it; nothing was deleted, and --force does not change that"),
            format!("kubectl delete pod {pod} -n {}", cluster.namespace),
        ),
        None => Ok(()),
    }
}
