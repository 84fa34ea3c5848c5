//! `rm` of agents, with their sessions where that is asked for, and `workspace rm`.
//!
//! Both look first, at all that is named, and delete nothing when one of them is in use. Without `--force` they only tell.

mod loss;
mod purge;
mod trees;

use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use yoi_crds::pod::{DesiredState, SessionRetain};
use yoi_crds::{AgentWorkspace, YoiPod};
use yoi_plan::yoipod::workspace_name;

use super::selection::agent_names;
use super::stop_start::{set_desired_state, wait_stopped};
use crate::args::{OutputFormat, RmOptions};
use crate::cluster::{Cluster, NamespacedObject};
use crate::error::{Error, tell_former};
use crate::show;
use loss::Objection;
pub use loss::claim_user;
pub use purge::{Session, left_by};
pub use trees::rm_trees;

/// How many agents are deleted side by side.
const AT_ONCE: usize = 16;
/// How often an object is looked at again that changes between the look and the deletion.
const MOST_LOOKS: usize = 5;

pub async fn rm(cluster: &Cluster, output: Option<OutputFormat>, args: &RmOptions) -> Result<(), Error> {
    let names = agent_names(cluster, &args.agents).await?;
    if args.stop && cluster.dry_run.is_none() {
        stop_all(cluster, &names, args.timeout).await?;
    }
    let mut found = Vec::new();
    for name in names {
        found.push(Found::new(cluster, args, name).await?);
    }
    if !args.force {
        let mut first = None;
        for agent in &found {
            agent.tell(cluster, output, args)?;
            first = first.or(agent.refusal(cluster, "nothing was done, and --force would do it"));
        }
        return first.map_or(Ok(()), Err);
    }
    if let Some(refused) = found.iter().find_map(|agent| agent.refusal(cluster, "nothing was deleted")) {
        return Err(refused);
    }
    let mut ends = futures::stream::iter(found.into_iter().map(|agent| agent.delete(cluster, output, args))).buffer_unordered(AT_ONCE);
    // One that fails holds up no other.
    let mut failed = None;
    while let Some(end) = ends.next().await {
        if let Err(error) = end {
            failed = tell_former(failed, error);
        }
    }
    failed.map_or(Ok(()), Err)
}

/// Stops those of the agents that exist, and waits until none has a Pod.
async fn stop_all(cluster: &Cluster, names: &[String], timeout: Duration) -> Result<(), Error> {
    let mut there = Vec::new();
    for name in names {
        if cluster.get_opt::<YoiPod>(name).await?.is_some() {
            set_desired_state(cluster, name, DesiredState::Stopped).await?;
            there.push(name);
        }
    }
    let stopped = there.into_iter().map(|name| wait_stopped(cluster, name, timeout));
    futures::stream::iter(stopped).buffer_unordered(AT_ONCE).try_for_each(async |_| Ok(())).await
}

/// What bears a name: an agent, or only the session that one has left.
struct Found {
    name: String,
    agent: Option<YoiPod>,
    session: Option<Session>,
    objection: Option<Objection>,
}

impl Found {
    async fn new(cluster: &Cluster, args: &RmOptions, name: String) -> Result<Self, Error> {
        let Some(agent) = cluster.get_opt::<YoiPod>(&name).await? else {
            // The session of an agent that is gone can be deleted by the agent's name.
            let session = if args.purge { Session::left_by(cluster, &name).await? } else { None };
            if session.is_none() {
                cluster.get::<YoiPod>(&name).await?;
            }
            return Ok(Found { name, agent: None, session, objection: None });
        };
        let session = if args.purge { Session::of(cluster, &agent).await? } else { None };
        let objection = match loss::agent_in_use(cluster, &agent) {
            Some(objection) => Some(objection).filter(|objection| objection.is_final || !args.force),
            // Whoever forces it need not be told, and no Pod is started to look.
            None if args.force => None,
            None => unsaved(cluster, &agent).await?,
        };
        Ok(Found { name, agent: Some(agent), session, objection })
    }

    fn title(&self) -> String {
        format!("yoipod.yoi.dev/{}", self.name)
    }

    fn refusal(&self, cluster: &Cluster, then: &str) -> Option<Error> {
        self.objection.as_ref().map(|objection| refused::<YoiPod>(cluster, &self.name, objection, then))
    }

    /// Says what would be done.
    fn tell(&self, cluster: &Cluster, output: Option<OutputFormat>, args: &RmOptions) -> Result<(), Error> {
        const THEN: &str = "Nothing was done: say --force to do it.";
        let Some(agent) = &self.agent else {
            let Some(session) = &self.session else { return Ok(()) };
            return show::object(output, &session.claim, &session.name(), &format!("{} would be deleted. {THEN}", session.title()));
        };
        if let Some(objection) = &self.objection {
            return tell_objection(output, &self.title(), objection);
        }
        let fate = self.session_fate(cluster, agent, args, "goes too");
        let sentence = format!("would delete {} and its workspace; {fate}. {THEN}", self.title());
        show::object(output, agent, &self.title(), &sentence)
    }

    /// Deletes the agent, and its session after it, and waits as `kubectl delete` does: whoever makes an agent of that name next finds it free.
    async fn delete(mut self, cluster: &Cluster, output: Option<OutputFormat>, args: &RmOptions) -> Result<(), Error> {
        let mark = cluster.dry_run_mark();
        if let Some(session) = &self.session {
            session.check(cluster).await?;
        }
        let Some(agent) = self.agent.take() else {
            let Some(session) = &self.session else { return Ok(()) };
            session.delete(cluster, args.timeout).await?;
            show::object(output, &session.claim, &session.name(), &format!("{} deleted{mark}", session.title()))?;
            return Ok(());
        };
        let agent = delete_as_seen(cluster, agent, async |agent| Ok(loss::agent_in_use(cluster, agent))).await?;
        let gone = async || match cluster.dry_run {
            Some(_) => Ok(()),
            None => cluster.wait_gone::<YoiPod>(&self.name, agent.metadata.uid.as_deref(), args.timeout).await,
        };
        if let Some(session) = &self.session {
            gone().await?;
            session.delete(cluster, args.timeout).await?;
        }
        let fate = self.session_fate(cluster, &agent, args, "deleted");
        show::object(output, &agent, &self.title(), &format!("{} deleted; {fate}{mark}", self.title()))?;
        // Without its session it may still be there.
        if self.session.is_none() { gone().await } else { Ok(()) }
    }

    /// What becomes of the session; `done` is what is said of one that is deleted by `--purge`.
    fn session_fate(&self, cluster: &Cluster, agent: &YoiPod, args: &RmOptions, done: &str) -> String {
        match self.session.as_ref().filter(|_| args.purge) {
            Some(session) => format!("{} {done}", session.title()),
            // It was looked for: an agent that never ran has the name of one in its status, and no claim.
            None if args.purge => "it has no session claim".to_owned(),
            None => kept_session(cluster, agent, &self.name),
        }
    }
}

/// Whether something is only in the tree that goes with the agent.
async fn unsaved(cluster: &Cluster, agent: &YoiPod) -> Result<Option<Objection>, Error> {
    let is_own = agent.spec.workspace.as_ref().is_none_or(|workspace| workspace.ref_.is_none());
    let tree = if is_own { cluster.get_opt::<AgentWorkspace>(workspace_name(agent)).await? } else { None };
    Ok(match tree {
        Some(tree) => loss::unsaved(cluster, &tree, Some(agent)).await,
        None => None,
    })
}

/// Deletes an object as it was looked at. One that has changed since is read and looked at again, so that what has begun to live is not deleted.
async fn delete_as_seen<K: NamespacedObject>(
    cluster: &Cluster,
    mut object: K,
    look: impl AsyncFn(&K) -> Result<Option<Objection>, Error>,
) -> Result<K, Error> {
    let name = object.meta().name.clone().unwrap_or_default();
    for _ in 0..MOST_LOOKS {
        if let Some(objection) = look(&object).await?.filter(|objection| objection.is_final) {
            return Err(refused::<K>(cluster, &name, &objection, "it was not deleted"));
        }
        if cluster.delete_unchanged(&object).await? {
            return Ok(object);
        }
        object = cluster.get(&name).await?;
    }
    let next = format!("try again, or look what changes it: kubectl describe {} {name} -n {}", K::plural(&()), cluster.namespace);
    Err(cluster.refused_error::<K>("delete", &name, "it changes all the time", next))
}

/// The error for what is not deleted. `then` says what became of the request.
fn refused<K: NamespacedObject>(cluster: &Cluster, name: &str, objection: &Objection, then: &str) -> Error {
    let then = if objection.is_final { "--force does not change that" } else { then };
    cluster.refused_error::<K>("delete", name, format!("{}; {then}", objection.why), objection.next.clone())
}

/// The line of a report for what would not be deleted. Programs get only what would be.
fn tell_objection(output: Option<OutputFormat>, title: &str, objection: &Objection) -> Result<(), Error> {
    match output {
        None | Some(OutputFormat::Wide) => show::print(&format!("would not delete {title}: {}\n", objection.why)),
        Some(OutputFormat::Json | OutputFormat::Yaml | OutputFormat::Name) => Ok(()),
    }
}

/// What becomes of the session of an agent that is deleted without `--purge`.
fn kept_session(cluster: &Cluster, pod: &YoiPod, name: &str) -> String {
    let status = pod.status.clone().unwrap_or_default();
    match (&status.session_claim_name, pod.spec.session.retain, &pod.spec.session.claim_name) {
        (Some(claim), SessionRetain::Delete, None) => format!("its session claim {claim} goes too"),
        (Some(claim), _, _) => {
            let on = cluster.plugin_command(&format!("run {name} --project {} --claim {claim}", pod.spec.project_ref.name));
            format!("its session claim {claim} stays (to go on with it: {on})")
        }
        (None, _, _) => "it has no session claim".to_owned(),
    }
}
