//! `take`: takes a project's folder of a node as it is now.

use yoi_crds::YoiProject;
use yoi_crds::condition::{find, is_true};
use yoi_crds::reason::condition;

use crate::args::{OutputFormat, TakeOptions};
use crate::cluster::{Cluster, Wait, blocked};
use crate::error::Error;
use crate::show;

/// Agents that have a tree keep it; those made later get the new one.
pub async fn take(cluster: &Cluster, output: Option<OutputFormat>, args: &TakeOptions) -> Result<(), Error> {
    let name = &args.project;
    let project: YoiProject = cluster.get(name).await?;
    if project.spec.source.host.is_none() {
        let next = "only a project with source.host is taken from a node; a git source changes with its ref";
        return Err(cluster.refused_error::<YoiProject>("take", name, "its source is no folder of a node", next));
    }
    // Without colons it is a word that a label may hold, too.
    let now = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%S%.3fZ").to_string();
    let mut taken: YoiProject = cluster.patch(name, &serde_json::json!({ "spec": { "source": { "host": { "take": now } } } })).await?;
    let mut done = "is being taken";
    if args.wait && cluster.dry_run.is_none() {
        taken = wait(cluster, name, args, taken.metadata.generation).await?;
        done = "taken";
    }
    let title = format!("yoiproject.yoi.dev/{name}");
    show::object(output, &taken, &title, &format!("{title} {done} as of {now}{}", cluster.dry_run_mark()))
}

async fn wait(cluster: &Cluster, name: &str, args: &TakeOptions, generation: Option<i64>) -> Result<YoiProject, Error> {
    cluster
        .wait(name, args.timeout, "taken", |project: Option<&YoiProject>| {
            let Some(project) = project else { return Err(cluster.gone_error::<YoiProject>(name)) };
            let status = project.status.clone().unwrap_or_default();
            // What is said of the former source ends no wait for this one.
            if status.observed_generation >= generation && is_true(&status.conditions, condition::READY) {
                return Ok(Wait::Done(project.clone()));
            }
            Ok(blocked(cluster, project, "taken", find(&status.conditions, condition::READY), |_| None))
        })
        .await
}
