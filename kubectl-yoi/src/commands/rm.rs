//! `rm` of agents, with their sessions where that is asked for.

mod purge;

use yoi_crds::YoiPod;
use yoi_crds::pod::SessionRetain;

use super::selection::agent_names;
use crate::args::{OutputFormat, RmOptions};
use crate::cluster::Cluster;
use crate::error::Error;
use crate::show;
use purge::Session;

pub async fn rm(cluster: &Cluster, output: Option<OutputFormat>, args: &RmOptions) -> Result<(), Error> {
    for name in agent_names(cluster, &args.agents).await? {
        rm_agent(cluster, output, args, &name).await?;
    }
    Ok(())
}

async fn rm_agent(cluster: &Cluster, output: Option<OutputFormat>, args: &RmOptions, name: &str) -> Result<(), Error> {
    let title = format!("yoipod.yoi.dev/{name}");
    let Some(pod) = cluster.get_opt::<YoiPod>(name).await? else {
        // The session of an agent that is gone can be deleted by the agent's name.
        let session = if args.purge { Session::left_by(cluster, name).await? } else { None };
        let Some(session) = session else { return cluster.get::<YoiPod>(name).await.map(drop) };
        if args.force {
            session.check(cluster).await?;
            session.delete(cluster, args.timeout).await?;
        }
        let done = if args.force { "deleted" } else { "would be deleted. Nothing was done: say --force to do it." };
        let sentence = format!("{} {done}{}", session.title(), cluster.dry_run_mark());
        return show::object(output, &session.claim, &session.name(), &sentence);
    };
    // A Pod that the status names may still write. Only an agent without one is deleted.
    if pod.status.as_ref().is_some_and(|status| status.pod.is_some()) {
        let next = cluster.plugin_command(&format!("stop --wait {name}"));
        return Err(cluster.refused_error::<YoiPod>("delete", name, "its Pod is still there", next));
    }
    let session = if args.purge { Session::of(cluster, &pod).await? } else { None };
    let fate = match &session {
        Some(session) => format!("{} goes too", session.title()),
        None => session_fate(cluster, &pod, name),
    };
    if !args.force {
        let sentence = format!("would delete {title} and its workspace; {fate}. Nothing was done: say --force to do it.");
        return show::object(output, &pod, &title, &sentence);
    }
    if let Some(session) = &session {
        session.check(cluster).await?;
    }
    cluster.delete(&pod).await?;
    if let Some(session) = &session {
        if cluster.dry_run.is_none() {
            cluster.wait_gone::<YoiPod>(name, pod.metadata.uid.as_deref(), args.timeout).await?;
        }
        session.delete(cluster, args.timeout).await?;
    }
    let fate = session.map_or(fate, |session| format!("{} deleted", session.title()));
    show::object(output, &pod, &title, &format!("{title} deleted; {fate}{}", cluster.dry_run_mark()))
}

/// What becomes of the session of an agent that is deleted without `--purge`.
fn session_fate(cluster: &Cluster, pod: &YoiPod, name: &str) -> String {
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
