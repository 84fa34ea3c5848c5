//! `run`: starts an agent, and waits for the end of its task with `--wait`.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use yoi_crds::condition::{ConditionStatus, find};
use yoi_crds::pod::{Agent, BuiltinAgent, Completion, Model, ModelProvider, PodWorkspace, SecretKeyRef, WorkspaceTemplate};
use yoi_crds::reason::condition;
use yoi_crds::source::{NamedRef, WorkspaceSource};
use yoi_crds::{YoiPod, YoiPodSpec, YoiProject};

use crate::args::{self, OutputFormat, RunOptions};
use crate::cluster::{Cluster, Wait};
use crate::error::Error;
use crate::show;

pub async fn run(cluster: &Cluster, output: Option<OutputFormat>, args: RunOptions) -> Result<(), Error> {
    let project: YoiProject = cluster.get(&args.project).await?;
    let model = model(&args.model);
    if model.is_none() && project.spec.defaults.model.is_none() {
        let message = format!("neither the command nor {} says which model to use", cluster.display_name::<YoiProject>(&args.project));
        let next = "give --model-provider, --model and --model-url, or set spec.defaults.model of the project";
        return Err(cluster.refused_error::<YoiPod>("run", &args.name, message, next));
    }
    let task = args.task.map(super::send::text_or_stdin).transpose()?;
    let has_task = task.is_some();
    let fork = args.fork.map(|name| PodWorkspace {
        ref_: None,
        template: Some(WorkspaceTemplate {
            source: Some(WorkspaceSource { workspace: Some(NamedRef { name }), ..Default::default() }),
            provider: None,
        }),
    });
    let spec = YoiPodSpec {
        project_ref: NamedRef { name: args.project },
        workspace: fork,
        agent: Agent { builtin: Some(BuiltinAgent { instruction: args.instruction }) },
        task,
        completion: if args.stop_when_done { Completion::Stop } else { Completion::Keep },
        model,
        pod: Default::default(),
        desired_state: Default::default(),
        session: Default::default(),
        limits: Default::default(),
    };
    let made = cluster.create(&YoiPod::new(&args.name, spec)).await?;
    if !args.wait {
        let follow = cluster.plugin_command(&format!("log {} -f", args.name));
        let sentence = format!("yoipod.yoi.dev/{} created\nfollow it: {follow}", args.name);
        return show::object(output, &made, &format!("yoipod.yoi.dev/{}", args.name), &sentence);
    }
    let done = wait(cluster, &args.name, has_task, args.timeout).await?;
    let sentence = if has_task {
        format!("task of {} done\nits changes: {}", args.name, cluster.plugin_command(&format!("diff {}", args.name)))
    } else {
        format!("{} is ready", args.name)
    };
    show::object(output, &done, &format!("yoipod.yoi.dev/{}", args.name), &sentence)
}

/// Waits until the task has ended, or until the agent is ready when it has no task. Meanwhile it shows the first unmet condition.
async fn wait(cluster: &Cluster, name: &str, has_task: bool, timeout: Duration) -> Result<YoiPod, Error> {
    let bar = ProgressBar::new_spinner();
    bar.set_style(ProgressStyle::with_template("{spinner} {elapsed:>4} {wide_msg}").unwrap_or_else(|_| ProgressStyle::default_spinner()));
    bar.enable_steady_tick(Duration::from_millis(120));
    let goal = if has_task { "task done" } else { "ready" };
    let result = cluster
        .wait(name, timeout, goal, |pod: Option<&YoiPod>| {
            let Some(pod) = pod else {
                return Err(cluster.gone_error::<YoiPod>(name));
            };
            let conditions = pod.status.as_ref().map(|s| s.conditions.as_slice()).unwrap_or_default();
            if has_task {
                match find(conditions, condition::TASK_COMPLETE) {
                    Some(c) if c.status == ConditionStatus::True => return Ok(Wait::Done(pod.clone())),
                    Some(c) if c.reason == yoi_crds::reason::TASK_FAILED => {
                        return Err(cluster.task_failed(name, &c.message));
                    }
                    _ => {}
                }
            }
            let ready = find(conditions, condition::READY);
            if !has_task && ready.is_some_and(|c| c.status == ConditionStatus::True) {
                return Ok(Wait::Done(pod.clone()));
            }
            let why = ready.map_or_else(|| "the operator has not seen it yet".to_owned(), |c| format!("{}: {}", c.reason, c.message));
            bar.set_message(why.clone());
            Ok(Wait::Pending(why))
        })
        .await;
    bar.finish_and_clear();
    result
}

fn model(args: &args::ModelOptions) -> Option<Model> {
    let (provider, name) = (args.model_provider?, args.model.clone()?);
    let auth_secret_ref = args.model_secret.as_ref().map(|text| match text.split_once('/') {
        Some((name, key)) => SecretKeyRef { name: name.to_owned(), key: key.to_owned() },
        None => SecretKeyRef { name: text.clone(), key: "apiKey".to_owned() },
    });
    let provider = match provider {
        args::ModelWireFormat::OpenAI => ModelProvider::OpenAI,
        args::ModelWireFormat::Anthropic => ModelProvider::Anthropic,
    };
    Some(Model { provider, name, base_url: args.model_url.clone(), auth_secret_ref })
}
