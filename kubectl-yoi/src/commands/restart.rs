//! `restart`: gives agents another Pod, with the spec, the project and the Secret as they are now.

use yoi_crds::YoiPod;
use yoi_crds::pod::DesiredState;

use super::selection::agent_names;
use super::stop_start::{check_unfinished, print, set_desired_state, wait_ready, wait_stopped};
use crate::args::{OutputFormat, RestartOptions};
use crate::cluster::Cluster;
use crate::error::Error;

pub async fn restart(cluster: &Cluster, output: Option<OutputFormat>, args: &RestartOptions) -> Result<(), Error> {
    let names = agent_names(cluster, &args.agents).await?;
    for name in &names {
        check_unfinished(cluster, name).await?;
    }
    for name in &names {
        set_desired_state(cluster, name, DesiredState::Stopped).await?;
    }
    let mut pods: Vec<YoiPod> = Vec::new();
    for name in &names {
        // Without this the operator might see only the last of the two changes.
        let stopped = match cluster.dry_run {
            Some(_) => Ok(()),
            None => wait_stopped(cluster, name, args.timeout).await.map(drop),
        };
        // An agent whose Pod does not end in time is to run all the same.
        pods.push(set_desired_state(cluster, name, DesiredState::Running).await?);
        stopped?;
    }
    for (mut pod, name) in pods.into_iter().zip(&names) {
        if args.wait {
            pod = wait_ready(cluster, name, args.timeout).await?;
        }
        print(cluster, output, &pod, name, if args.wait { "restarted" } else { "restarting" })?;
    }
    Ok(())
}
