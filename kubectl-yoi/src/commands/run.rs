//! `run`: starts an agent, and waits for the end of its task with `--wait` or `--follow`.

mod end;
mod follow;

use std::time::Duration;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::ResourceExt;
use yoi_crds::pod::{
    Agent, BuiltinAgent, CliAgent, Compaction, Completion, EnvVar, Limits, Model, ModelApi, ModelEndpointSpec, ModelProvider, PodSettings,
    PodWorkspace, PresetSource, PushSettings, Resources, SecretKeyRef, SecretRef, SessionSettings, WorkspaceTemplate,
};
use yoi_crds::source::{NamedRef, ProjectRevision, WorkspaceSource};
use yoi_crds::{AgentWorkspace, YoiPod, YoiPodSpec, YoiProject};

use super::{peer, rm};
use crate::args::{ModelApiName, ModelOptions, ModelWireFormat, OutputFormat, ProgramOptions, RunOptions, SyncOptions};
use crate::cluster::Cluster;
use crate::error::{Error, RefusalKind};
use crate::progress::unless_over_soon;
use crate::show;

/// How long a YoiPeer of a former agent of the name may take to go.
const PEER_TIMEOUT: Duration = Duration::from_secs(30);

pub async fn run(cluster: &Cluster, output: Option<OutputFormat>, args: RunOptions) -> Result<(), Error> {
    if args.follow && output.is_some_and(|output| !matches!(output, OutputFormat::Wide)) {
        let next = "leave one of them out; for its log as JSON: kubectl yoi log -f -o json";
        return Err(cluster.refused_error::<YoiPod>("run", &args.name, "--follow shows lines for people, and -o is for programs", next));
    }
    let Some(project_name) = args.project.clone() else {
        let next = format!(
            "name one: --project PROJECT, of {}; or make one of the clone at hand: kubectl yoi init --apply",
            cluster.list_command::<YoiProject>()
        );
        let message =
            format!("the project of {} is not named, and this folder is no clone that has one", cluster.display_name::<YoiPod>(&args.name));
        return Err(Error::Usage { message, next });
    };
    let checked = async {
        let project: YoiProject = cluster.get(&project_name).await?;
        check(cluster, &args, &project_name, &project).await?;
        Ok::<_, Error>(project)
    };
    let what = cluster.display_name::<YoiProject>(&project_name);
    let project = unless_over_soon(&format!("{what}: the API server is asked for it"), checked).await?;
    if syncs_first(&args, &project) && cluster.dry_run.is_none() {
        let tree = SyncOptions {
            project: Some(project_name.clone()),
            include: Vec::new(),
            machine: None,
            timeout: args.timeout,
            watch: false,
            yes: false,
            dry_run: false,
        };
        // Nothing is sent for an agent that cannot be made.
        if cluster.get_opt::<YoiPod>(&args.name).await?.is_some() {
            return Err(name_taken(cluster, &args.name));
        }
        super::sync::before_run(cluster, &tree).await?;
    }
    let (wait, follows, timeout, peers) = (args.wait, args.follow, args.timeout, args.peer.clone());
    let (name, spec) = (args.name.clone(), spec(args, &project_name)?);
    let has_task = spec.task.is_some();
    let shown = cluster.display_name::<YoiPod>(&name);
    let made = unless_over_soon(&format!("{shown}: the API server makes it"), cluster.create(&YoiPod::new(&name, spec))).await?;
    let title = format!("yoipod.yoi.dev/{name}");
    if cluster.dry_run.is_some() {
        return show::object(output, &made, &title, &format!("{title} created{}", cluster.dry_run_mark()));
    }
    for peer in &peers {
        peer::join(cluster, &name, peer, PEER_TIMEOUT).await?;
    }
    if !wait && !follows {
        let follow = cluster.plugin_command(&format!("log {name} -f"));
        return show::object(output, &made, &title, &format!("{title} created\nfollow it: {follow}"));
    }
    let waiting = async {
        if follows {
            follow::wait(cluster, &name, &project, has_task, timeout).await
        } else {
            end::wait(cluster, &name, &project, has_task, timeout, None).await
        }
    };
    let (ended, sentences) = cluster.unless_project_fails(Some(&project_name), timeout, waiting).await?;
    show::object(output, &ended, &title, &sentences)
}

fn name_taken(cluster: &Cluster, name: &str) -> Error {
    let next = format!(
        "give another name; or send this one its work: {}; or delete it: {}",
        cluster.plugin_command(&format!("send {name} TEXT")),
        cluster.plugin_command(&format!("rm {name} --force")),
    );
    cluster.refused_error::<YoiPod>("run", name, "an agent of this name exists already, and the working tree was not sent", next)
}

/// Whether the agent's tree is to be the working tree at hand: the line is about the project of this clone, which takes working trees.
fn syncs_first(args: &RunOptions, project: &YoiProject) -> bool {
    project.spec.source.takes_trees() && args.of_clone && !args.no_sync && args.fork.is_none() && args.revision.is_none()
}

/// Checks what the operator would refuse later.
async fn check(cluster: &Cluster, args: &RunOptions, name: &str, project: &YoiProject) -> Result<(), Error> {
    let can_do_without = args.program.command || args.program.credentials.is_some();
    if args.model.model.is_none() && project.spec.defaults.model.is_none() && !can_do_without {
        let message = format!("neither the command nor {} says which model to use", cluster.display_name::<YoiProject>(name));
        let next = "give --model-provider, --model and --model-url, or set spec.defaults.model of the project";
        return Err(cluster.refused_error::<YoiPod>("run", &args.name, message, next));
    }
    if let Some(parent) = &args.fork {
        cluster.get::<AgentWorkspace>(parent).await?;
    }
    for peer in &args.peer {
        if *peer == args.name {
            let next = format!("name another agent: {}", cluster.list_command::<YoiPod>());
            return Err(cluster.refused_error::<YoiPod>("run", peer, "an agent cannot be its own peer", next));
        }
        cluster.get::<YoiPod>(peer).await?;
    }
    if args.push.is_some() && project.spec.source.git.is_none() {
        let message =
            format!("the source of {} is no git repository, so there is nothing to push to", cluster.display_name::<YoiProject>(name));
        return Err(cluster.refused_error::<YoiPod>(
            "run",
            &args.name,
            message,
            "leave --push out; kubectl yoi patch gets what the agent commits",
        ));
    }
    match &args.claim {
        Some(claim) => cluster.get::<PersistentVolumeClaim>(claim).await.map(drop),
        None => check_former_session(cluster, &args.name, name).await,
    }
}

/// A session that an earlier agent of this name has left: the operator would neither take nor overwrite it.
async fn check_former_session(cluster: &Cluster, name: &str, project: &str) -> Result<(), Error> {
    // Whoever may not read claims learns it from the operator.
    let Some(left) = rm::left_by(cluster, name).await.ok().flatten() else { return Ok(()) };
    if cluster.get_opt::<YoiPod>(name).await?.is_some() {
        return Ok(());
    }
    let claim = left.name_any();
    let operation = format!("run {}", cluster.display_name::<YoiPod>(name));
    let next = format!(
        "go on with that session: {}\n  or:   begin anew, and lose that session: {}",
        cluster.plugin_command(&format!("run {name} --project {project} --claim {claim}")),
        cluster.plugin_command(&format!("rm {name} --purge --force")),
    );
    let message = format!("claim {claim} holds the session of a former agent of this name");
    Err(Error::refused_error(operation, message, next, RefusalKind::Other))
}

fn agent(program: ProgramOptions, instruction: String) -> Agent {
    let ProgramOptions { program, preset_from, program_arg, credentials, command, words } = program;
    match (program, preset_from) {
        (preset @ Some(_), from) | (preset, from @ Some(_)) => {
            let preset_from = from.map(|(name, key)| PresetSource { name, key });
            let credentials_secret_ref = credentials.map(|name| SecretRef { name });
            Agent { cli: Some(Box::new(CliAgent { preset, preset_from, args: program_arg, credentials_secret_ref })), ..Agent::default() }
        }
        (None, None) if command => Agent { command: words, ..Agent::default() },
        (None, None) => Agent { builtin: Some(BuiltinAgent { instruction, ..BuiltinAgent::default() }), ..Agent::default() },
    }
}

fn spec(args: RunOptions, project: &str) -> Result<YoiPodSpec, Error> {
    let model = model(&args.model);
    let fork = args.fork.map(|name| WorkspaceSource { workspace: Some(NamedRef { name }), ..Default::default() });
    let of_revision = |revision| {
        let project = ProjectRevision { name: project.to_owned(), revision: Some(revision) };
        WorkspaceSource { project: Some(Box::new(project)), ..Default::default() }
    };
    let source = fork.or_else(|| args.revision.map(of_revision));
    let workspace = source
        .map(|source| PodWorkspace { ref_: None, template: Some(Box::new(WorkspaceTemplate { source: Some(source), provider: None })) });
    let env = args.env.into_iter().map(|(name, value)| EnvVar { name, value, value_from: None }).collect();
    let limits = Limits::default();
    Ok(YoiPodSpec {
        project_ref: NamedRef { name: project.to_owned() },
        workspace,
        agent: agent(args.program, args.instruction),
        task: args.task.map(super::send::text_or_stdin).transpose()?,
        completion: if args.stop_when_done { Completion::Stop } else { Completion::Keep },
        push: args.push.map(|branch| Box::new(PushSettings { branch })),
        model,
        pod: PodSettings { image: args.image, env, resources: resources(args.cpu, args.memory), ..PodSettings::default() },
        desired_state: Default::default(),
        rest: None,
        ttl_after_finished: args.ttl_after_finished,
        session: SessionSettings { claim_name: args.claim, ..SessionSettings::default() },
        limits: Limits { tool_seconds: args.tool_seconds.unwrap_or(limits.tool_seconds), lifetime: args.lifetime, ..limits },
        compaction: Compaction::default(),
        policy: None,
        scope: None,
        delegation: None,
        working_dir: None,
        spawned_by: None,
    })
}

fn resources(cpu: Option<String>, memory: Option<String>) -> Resources {
    let of = |name: &str, amount: Option<String>| amount.map(|amount| (name.to_owned(), amount));
    Resources {
        requests: of("cpu", cpu).into_iter().chain(of("memory", memory.clone())).collect(),
        limits: of("memory", memory).into_iter().collect(),
    }
}

/// The model that the flags say.
pub fn model(args: &ModelOptions) -> Option<Model> {
    let (provider, name) = (args.model_provider?, args.model.clone()?);
    let auth_secret_ref = args.model_secret.as_ref().map(|text| match text.split_once('/') {
        Some((name, key)) => SecretKeyRef { name: name.to_owned(), key: key.to_owned() },
        None => SecretKeyRef { name: text.clone(), key: "apiKey".to_owned() },
    });
    let provider = match provider {
        ModelWireFormat::OpenAI => ModelProvider::OpenAI,
        ModelWireFormat::Anthropic => ModelProvider::Anthropic,
        ModelWireFormat::Gemini => ModelProvider::Gemini,
    };
    let api = args.api.map(|api| match api {
        ModelApiName::Responses => ModelApi::Responses,
        ModelApiName::ChatCompletions => ModelApi::ChatCompletions,
    });
    Some(ModelEndpointSpec { base_url: args.model_url.clone(), auth_secret_ref, api, ..ModelEndpointSpec::new(provider, name) }.into())
}
