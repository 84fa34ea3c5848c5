//! `stop`, `start` and `rm` of agents.

use yoi_crds::YoiPod;
use yoi_crds::condition::is_true;
use yoi_crds::pod::{DesiredState, SessionRetain};
use yoi_crds::reason::condition;

use crate::args::{DesiredStateOptions, OutputFormat, RmOptions};
use crate::cluster::{Cluster, Wait};
use crate::error::Error;
use crate::show;

pub async fn stop(cluster: &Cluster, output: Option<OutputFormat>, args: &DesiredStateOptions) -> Result<(), Error> {
    set_desired_state(cluster, output, args, DesiredState::Stopped).await
}

pub async fn start(cluster: &Cluster, output: Option<OutputFormat>, args: &DesiredStateOptions) -> Result<(), Error> {
    set_desired_state(cluster, output, args, DesiredState::Running).await
}

async fn set_desired_state(
    cluster: &Cluster,
    output: Option<OutputFormat>,
    args: &DesiredStateOptions,
    state: DesiredState,
) -> Result<(), Error> {
    for name in &args.names {
        let mut pod: YoiPod = cluster.patch(name, &serde_json::json!({ "spec": { "desiredState": state } })).await?;
        if args.wait {
            pod = cluster
                .wait(
                    name,
                    args.timeout,
                    match state {
                        DesiredState::Running | DesiredState::Unknown => "running",
                        DesiredState::Stopped => "stopped",
                    },
                    |pod: Option<&YoiPod>| {
                        let Some(pod) = pod else {
                            return Err(cluster.gone_error::<YoiPod>(name));
                        };
                        let status = pod.status.clone().unwrap_or_default();
                        let reached = match state {
                            DesiredState::Running | DesiredState::Unknown => is_true(&status.conditions, condition::READY),
                            DesiredState::Stopped => status.pod.is_none(),
                        };
                        // A condition of an earlier generation says nothing about this one.
                        if reached && status.observed_generation == pod.metadata.generation {
                            return Ok(Wait::Done(pod.clone()));
                        }
                        let ready = yoi_crds::condition::find(&status.conditions, condition::READY);
                        Ok(Wait::Pending(
                            ready.map_or_else(|| "the operator has not seen it yet".to_owned(), |c| format!("{}: {}", c.reason, c.message)),
                        ))
                    },
                )
                .await?;
        }
        let done = match (state, args.wait) {
            (DesiredState::Stopped, true) => "stopped",
            (DesiredState::Stopped, false) => "stopping",
            (DesiredState::Running | DesiredState::Unknown, true) => "running",
            (DesiredState::Running | DesiredState::Unknown, false) => "starting",
        };
        show::object(output, &pod, &format!("yoipod.yoi.dev/{name}"), &format!("yoipod.yoi.dev/{name} {done}"))?;
    }
    Ok(())
}

pub async fn rm(cluster: &Cluster, output: Option<OutputFormat>, args: &RmOptions) -> Result<(), Error> {
    for name in &args.names {
        let pod: YoiPod = cluster.get(name).await?;
        let status = pod.status.clone().unwrap_or_default();
        // A Pod that the status names may still write. Only an agent without one is deleted.
        if status.pod.is_some() {
            let next = cluster.plugin_command(&format!("stop --wait {name}"));
            return Err(cluster.refused_error::<YoiPod>("delete", name, "its Pod is still there", next));
        }
        let session = match (&status.session_claim_name, pod.spec.session.retain, &pod.spec.session.claim_name) {
            (Some(claim), SessionRetain::Delete, None) => format!("its session claim {claim} goes too"),
            (Some(claim), _, _) => format!("its session claim {claim} stays"),
            (None, _, _) => "it has no session claim".to_owned(),
        };
        if !args.force {
            let sentence =
                format!("would delete yoipod.yoi.dev/{name} and its workspace; {session}. Nothing was done: say --force to do it.");
            show::object(output, &pod, &format!("yoipod.yoi.dev/{name}"), &sentence)?;
            continue;
        }
        cluster.delete(&pod).await?;
        show::object(output, &pod, &format!("yoipod.yoi.dev/{name}"), &format!("yoipod.yoi.dev/{name} deleted; {session}"))?;
    }
    Ok(())
}
