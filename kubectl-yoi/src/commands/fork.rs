//! `fork`: another agent as one that is there, in a fork of its tree as it is now, with a session of its own.

use yoi_crds::YoiPod;
use yoi_plan::fork::fork_of;

use super::stop_start::wait_ready;
use crate::args::{ForkOptions, OutputFormat};
use crate::cluster::Cluster;
use crate::error::Error;
use crate::show;

pub async fn fork(cluster: &Cluster, output: Option<OutputFormat>, args: &ForkOptions) -> Result<(), Error> {
    let ForkOptions { name, new, task, wait, timeout, dry_run: _ } = args;
    let agent: YoiPod = cluster.get(name).await?;
    let fork = fork_of(&agent, new, task.clone()).map_err(|why| {
        let next = format!("see what it waits for: kubectl describe yoipod {name} -n {}", cluster.namespace);
        cluster.refused_error::<YoiPod>("fork", name, why, next)
    })?;
    let made = cluster.create(&fork).await?;
    let title = format!("yoipod.yoi.dev/{new}");
    if cluster.dry_run.is_none() && *wait {
        let ready = wait_ready(cluster, new, *timeout).await?;
        return show::object(output, &ready, &title, &format!("{title} is a fork of {name}, and running"));
    }
    let follow = cluster.plugin_command(&format!("log {new} -f"));
    show::object(output, &made, &title, &format!("{title} made as a fork of {name}{}\nfollow it: {follow}", cluster.dry_run_mark()))
}
