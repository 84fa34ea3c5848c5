//! `stop`, `suspend` and `start` of agents.

use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt;
use yoi_crds::condition::{find, is_true};
use yoi_crds::name::annotation;
use yoi_crds::pod::DesiredState;
use yoi_crds::reason::condition;
use yoi_crds::{YoiPod, YoiProject};

use super::selection::agent_names;
use crate::args::{DesiredStateOptions, OutputFormat, StartOptions, StopOptions};
use crate::cluster::{Cluster, Wait, blocked};
use crate::error::Error;
use crate::progress::unless_over_soon;
use crate::{remedy, show};

pub async fn stop(cluster: &Cluster, output: Option<OutputFormat>, args: &StopOptions) -> Result<(), Error> {
    let StopOptions { state: args, tree } = args;
    let mut names = agent_names(cluster, &args.agents).await?;
    if *tree {
        add_descendants(&mut names, &cluster.list::<YoiPod>(false, None).await?);
    }
    let mut pods = Vec::new();
    for name in names {
        pods.push((set_desired_state(cluster, &name, DesiredState::Stopped).await?, name));
    }
    for (pod, name) in pods {
        let pod = if args.wait { wait_stopped(cluster, &name, args.timeout).await? } else { pod };
        print(cluster, output, &pod, &name, if args.wait { "stopped" } else { "stopping" })?;
    }
    Ok(())
}

/// Adds the agents that these have started, and those that they have, each once. A namesake of a former parent has started none of its children.
fn add_descendants(names: &mut Vec<String>, all: &[YoiPod]) {
    let mut at = 0;
    while let Some(name) = names.get(at).cloned() {
        at += 1;
        let Some(uid) = all.iter().find(|pod| pod.name_any() == name).and_then(ResourceExt::uid) else { continue };
        let children = all.iter().filter(|pod| pod.spec.spawned_by.as_ref().is_some_and(|by| by.uid == uid)).map(ResourceExt::name_any);
        let new: Vec<String> = children.filter(|child| !names.contains(child)).collect();
        names.extend(new);
    }
}

pub async fn suspend(cluster: &Cluster, output: Option<OutputFormat>, args: &DesiredStateOptions) -> Result<(), Error> {
    let mut pods = Vec::new();
    for name in agent_names(cluster, &args.agents).await? {
        pods.push((set_desired_state(cluster, &name, DesiredState::Suspended).await?, name));
    }
    for (pod, name) in pods {
        let pod = if args.wait { wait_resting(cluster, &name, args.timeout).await? } else { pod };
        print(cluster, output, &pod, &name, if args.wait { "rests" } else { "rests when it has nothing to do" })?;
    }
    Ok(())
}

pub async fn start(cluster: &Cluster, output: Option<OutputFormat>, args: &StartOptions) -> Result<(), Error> {
    let StartOptions { state: args, refresh } = args;
    let refresh = refresh.then(|| Timestamp::now().to_string());
    let mut pods = Vec::new();
    let mut finished = None;
    for name in agent_names(cluster, &args.agents).await? {
        // The others start all the same.
        match check_unfinished(cluster, &name).await {
            Ok(()) => pods.push((start_one(cluster, &name, refresh.as_deref()).await?, name)),
            Err(error) => finished = finished.or(Some(error)),
        }
    }
    for (pod, name) in pods {
        let pod = if args.wait { wait_ready(cluster, &name, args.timeout).await? } else { pod };
        print(cluster, output, &pod, &name, if args.wait { "running" } else { "starting" })?;
    }
    finished.map_or(Ok(()), Err)
}

/// Any other value of the annotation than before asks for a refresh.
async fn start_one(cluster: &Cluster, name: &str, refresh: Option<&str>) -> Result<YoiPod, Error> {
    let Some(refresh) = refresh else {
        let pod = set_desired_state(cluster, name, DesiredState::Running).await?;
        wake(cluster, name, &pod).await;
        return Ok(pod);
    };
    let metadata = serde_json::json!({ "annotations": { annotation::REFRESH: refresh } });
    let pod = cluster.patch(name, &serde_json::json!({ "metadata": metadata, "spec": { "desiredState": DesiredState::Running } })).await?;
    wake(cluster, name, &pod).await;
    Ok(pod)
}

/// Wakes an agent that rests although its spec asks for no other state: somebody who attaches wakes it.
pub async fn wake(cluster: &Cluster, name: &str, pod: &YoiPod) {
    if cluster.dry_run.is_none() && yoi_plan::yoipod::may_be_woken(pod) {
        // Without the right to attach, or when that takes long, the wait for the agent or its conditions say how it is.
        let what = format!("{}: it rests, and is woken", cluster.display_name::<YoiPod>(name));
        let _ = unless_over_soon(&what, cluster.stream_now(name, "attach", "tail=0")).await;
    }
}

/// Refuses an agent that would not start: it has done its task and is to stop then, or its lifetime is over.
pub async fn check_unfinished(cluster: &Cluster, name: &str) -> Result<(), Error> {
    let pod: YoiPod = cluster.get(name).await?;
    ended_error(cluster, name, &pod).map_or(Ok(()), Err)
}

/// Why an agent that has ended by itself does not start.
fn ended_error(cluster: &Cluster, name: &str, pod: &YoiPod) -> Option<Error> {
    if yoi_plan::yoipod::lifetime_is_over(pod) {
        let message = "its lifetime is over; what it did can be read as it is, by log, diff and patch";
        let patch = r#"--type merge -p '{"spec":{"limits":{"lifetime":null}}}'"#;
        let next = format!("let it go on: kubectl patch yoipod {name} -n {} {patch}", cluster.namespace);
        return Some(cluster.refused_error::<YoiPod>("start", name, message, next));
    }
    yoi_plan::yoipod::is_finished(pod).then(|| finished_error(cluster, name))
}

fn finished_error(cluster: &Cluster, name: &str) -> Error {
    let message = "it has done its task, and completion Stop ends it then; what it did can be read as it is, by log, diff and patch";
    let keep = yoi_plan::yoipod::keep_command(&cluster.namespace, name);
    let next = format!("let it go on and wait for messages: {keep} && {}", cluster.plugin_command(&format!("send {name} TEXT")));
    cluster.refused_error::<YoiPod>("start", name, message, next)
}

pub fn print(cluster: &Cluster, output: Option<OutputFormat>, pod: &YoiPod, name: &str, done: &str) -> Result<(), Error> {
    let title = format!("yoipod.yoi.dev/{name}");
    show::object(output, pod, &title, &format!("{title} {done}{}", cluster.dry_run_mark()))
}

pub async fn set_desired_state(cluster: &Cluster, name: &str, state: DesiredState) -> Result<YoiPod, Error> {
    cluster.patch(name, &serde_json::json!({ "spec": { "desiredState": state } })).await
}

/// Waits until the agent has no Pod.
pub async fn wait_stopped(cluster: &Cluster, name: &str, timeout: Duration) -> Result<YoiPod, Error> {
    cluster
        .wait(name, timeout, "stopped", |pod: Option<&YoiPod>| {
            let Some(pod) = pod else {
                return Err(cluster.gone_error::<YoiPod>(name));
            };
            let status = pod.status.clone().unwrap_or_default();
            if status.pod.is_none() && status.observed_generation == pod.metadata.generation {
                return Ok(Wait::Done(pod.clone()));
            }
            let ready = find(&status.conditions, condition::READY);
            Ok(Wait::Pending(
                ready.map_or_else(|| "the operator has not seen it yet".to_owned(), |c| format!("{}: {}", c.reason, c.message)),
            ))
        })
        .await
}

/// Waits until the agent rests.
async fn wait_resting(cluster: &Cluster, name: &str, timeout: Duration) -> Result<YoiPod, Error> {
    cluster
        .wait(name, timeout, "at rest", |pod: Option<&YoiPod>| {
            let Some(pod) = pod else {
                return Err(cluster.gone_error::<YoiPod>(name));
            };
            let status = pod.status.clone().unwrap_or_default();
            let is_current = status.observed_generation == pod.metadata.generation;
            if status.pod.is_none() && is_current && yoi_plan::yoipod::is_stopped(pod) {
                return Ok(Wait::Done(pod.clone()));
            }
            let activity =
                status.live.map(|live| show::activity(live.activity.as_str(), live.background.unwrap_or_default().unsigned_abs()));
            Ok(Wait::Pending(activity.map_or_else(|| "it is not at rest yet".to_owned(), |activity| format!("it is {activity}"))))
        })
        .await
}

/// Waits until the agent is ready, or until only a person can get it there.
pub async fn wait_ready(cluster: &Cluster, name: &str, timeout: Duration) -> Result<YoiPod, Error> {
    let pod: YoiPod = cluster.get(name).await?;
    let project = pod.spec.project_ref.name.clone();
    let settings: Option<YoiProject> = cluster.get_opt(&project).await.unwrap_or_default();
    let ready = cluster.wait(name, timeout, "running", |pod: Option<&YoiPod>| {
        let Some(pod) = pod else {
            return Err(cluster.gone_error::<YoiPod>(name));
        };
        let status = pod.status.clone().unwrap_or_default();
        // A condition of an earlier generation says nothing about this one.
        if is_true(&status.conditions, condition::READY) && status.observed_generation == pod.metadata.generation {
            return Ok(Wait::Done(pod.clone()));
        }
        if let Some(ended) = ended_error(cluster, name, pod).filter(|_| status.pod.is_none()) {
            return Err(ended);
        }
        Ok(not_ready(cluster, pod, settings.as_ref()))
    });
    cluster.unless_project_fails(Some(&project), timeout, ready).await
}

/// Returns why an agent is not ready, and whether only a person can fix that.
pub fn not_ready<T>(cluster: &Cluster, pod: &YoiPod, project: Option<&YoiProject>) -> Wait<T> {
    let conditions = pod.status.as_ref().map(|s| s.conditions.as_slice()).unwrap_or_default();
    let ready = find(conditions, condition::READY);
    let command = remedy::missing_secret_command(pod, project, ready, &cluster.namespace);
    blocked(cluster, pod, "ready", ready, |_| command)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_tree_of_agents_is_those_that_one_has_started_by_its_identity_and_each_is_in_it_once() {
        let pod = |name: &str, uid: &str, by: Option<(&str, &str)>| -> YoiPod {
            let by = by.map(|(name, uid)| json!({ "name": name, "uid": uid, "requestId": "r" }));
            let spec = json!({ "projectRef": { "name": "p" }, "agent": { "builtin": {} }, "spawnedBy": by });
            serde_json::from_value(json!({ "metadata": { "namespace": "ns", "name": name, "uid": uid }, "spec": spec })).unwrap()
        };
        let all = [
            pod("lead", "u-l", None),
            pod("one", "u-1", Some(("lead", "u-l"))),
            pod("two", "u-2", Some(("lead", "u-l"))),
            pod("deep", "u-3", Some(("one", "u-1"))),
            pod("of-a-former-lead", "u-4", Some(("lead", "u-former"))),
        ];
        let mut names = vec!["lead".to_owned(), "two".to_owned()];
        add_descendants(&mut names, &all);
        assert_eq!(names, ["lead", "two", "one", "deep"]);
    }
}
