//! `push`: pushes what agents have committed to branches of their project's repository. A Pod does it that has the project's credentials.

use serde::Serialize;
use yoi_crds::YoiPod;
use yoi_crds::condition::find;
use yoi_crds::pod::{PushOutcome, PushResult};
use yoi_crds::reason::condition;
use yoi_wire::bundle::{CommitRequest, InnerRepository, Uncommitted};
use yoi_wire::push::{PushRequest, PushResponse, default_branch};

use super::diff::tell_inner;
use super::pull::tell_uncommitted;
use super::selection::agent_names;
use crate::args::{OutputFormat, PushOptions};
use crate::cluster::{Cluster, Wait};
use crate::error::{Error, tell_former};
use crate::local_clone::short;
use crate::show;

pub(super) const OPERATION: &str = "push the commits of";

/// What became of it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Pushed {
    agent: String,
    /// Of the project's repository.
    branch: String,
    /// Where the branch is; absent when the agent has committed nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    commit: Option<String>,
    /// Where the branch was before.
    #[serde(skip_serializing_if = "Option::is_none")]
    previous: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    base: Option<String>,
    /// Since the base.
    commits: u64,
    /// The commit that `--commit` made.
    #[serde(skip_serializing_if = "Option::is_none")]
    committed: Option<String>,
    uncommitted: Uncommitted,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    inner_repositories: Vec<InnerRepository>,
}

pub async fn push(cluster: &Cluster, output: Option<OutputFormat>, args: &PushOptions) -> Result<(), Error> {
    let names = agent_names(cluster, &args.agents).await?;
    if names.len() > 1 && (args.branch.is_some() || args.force_with_lease.is_some()) {
        let message = "a branch takes the commits of one agent";
        let next = "push them one by one, or leave --branch and --force-with-lease out: each gets its own branch";
        return Err(cluster.refused_error::<YoiPod>(OPERATION, &names.join(", "), message, next));
    }
    // All of them go on at the same time, and one that fails holds up no other.
    let (mut asked, mut failed) = (Vec::new(), None);
    for name in names {
        match ask(cluster, &name, args).await {
            Ok(answer) => asked.push((name, answer)),
            Err(error) => failed = tell_former(failed, error),
        }
    }
    for (name, (committed, answer)) in asked {
        if let Err(error) = finish(cluster, output, args, name, committed, answer).await {
            failed = tell_former(failed, error);
        }
    }
    failed.map_or(Ok(()), Err)
}

/// Asks for the push, and returns the commit that was made for it and the answer.
async fn ask(cluster: &Cluster, name: &str, args: &PushOptions) -> Result<(Option<String>, PushResponse), Error> {
    let committed = match &args.message {
        Some(message) => cluster.commit(name, &CommitRequest { message: message.clone() }).await?.commit,
        None => None,
    };
    let expected = match &args.force_with_lease {
        None => None,
        Some(Some(commit)) => Some(commit.clone()),
        Some(None) => Some(last_pushed(cluster, name, args.branch.as_deref()).await?),
    };
    let answer = cluster.push(name, &PushRequest { branch: args.branch.clone(), expected }).await?;
    Ok((committed, answer))
}

/// Where the agent's last push left the branch.
async fn last_pushed(cluster: &Cluster, name: &str, branch: Option<&str>) -> Result<String, Error> {
    let agent: YoiPod = cluster.get(name).await?;
    let default = default_branch(name);
    let branch = branch.unwrap_or(&default);
    let outcome = agent.status.and_then(|status| status.push?.outcome);
    let commit = outcome.filter(|outcome| outcome.branch == branch).and_then(|outcome| outcome.commit);
    commit.ok_or_else(|| {
        let message = format!("its last push was to no branch {branch}, so it is not known what may be lost there");
        cluster.refused_error::<YoiPod>(OPERATION, name, message, "name the commit that the branch is at: --force-with-lease=COMMIT")
    })
}

async fn finish(
    cluster: &Cluster,
    output: Option<OutputFormat>,
    args: &PushOptions,
    name: String,
    committed: Option<String>,
    answer: PushResponse,
) -> Result<(), Error> {
    let PushResponse { id, branch, commit: _, base, commits, uncommitted, inner_repositories } = answer;
    let agent = name.clone();
    let mut pushed = Pushed { agent, branch, commit: None, previous: None, base, commits, committed, uncommitted, inner_repositories };
    let title = format!("yoipod.yoi.dev/{name}");
    let sentence = match id {
        None => format!("{} has committed nothing since the base of its tree; nothing was pushed", cluster.display_name::<YoiPod>(&name)),
        Some(id) => {
            let outcome = wait(cluster, &name, &id, args).await?;
            let sentence = sentence(&outcome, &pushed);
            (pushed.commit, pushed.previous) = (outcome.commit, outcome.previous);
            sentence
        }
    };
    show::object(output, &pushed, &title, &sentence)?;
    tell_uncommitted(cluster, ("push", "on the branch"), &name, &pushed.uncommitted);
    tell_inner(&pushed.inner_repositories);
    Ok(())
}

async fn wait(cluster: &Cluster, name: &str, id: &str, args: &PushOptions) -> Result<PushOutcome, Error> {
    let outcome = cluster
        .wait(name, args.timeout, "pushed", |agent: Option<&YoiPod>| {
            let Some(agent) = agent else { return Err(cluster.gone_error::<YoiPod>(name)) };
            let status = agent.status.clone().unwrap_or_default();
            let push = status.push.map(|push| *push).unwrap_or_default();
            if let Some(outcome) = push.outcome.filter(|outcome| outcome.id == id) {
                return Ok(Wait::Done(outcome));
            }
            if push.ended_request.as_deref() == Some(id) {
                let message = "it has ended, and what became of it was replaced by the push of the agent's task";
                return Err(cluster.refused_error::<YoiPod>(OPERATION, name, message, "see where the branch is: kubectl describe yoipod"));
            }
            if push.request.is_none_or(|request| request.id != id) {
                let message = "another push was asked for meanwhile";
                return Err(cluster.refused_error::<YoiPod>(OPERATION, name, message, "see what became of both: kubectl describe yoipod"));
            }
            let under_way = find(&status.conditions, condition::PUSHED).filter(|_| push.attempts.is_some());
            Ok(Wait::Pending(under_way.map_or_else(|| "the operator has not seen it yet".to_owned(), |c| c.message.clone())))
        })
        .await?;
    match outcome.result {
        PushResult::Pushed | PushResult::Nothing => Ok(outcome),
        PushResult::Failed | PushResult::Unknown => {
            let next = format!(
                "mend what it says and push again, or to another branch: {}",
                cluster.plugin_command(&format!("push {name} --branch B"))
            );
            Err(cluster.refused_error::<YoiPod>(OPERATION, name, show::one_line(&outcome.message), next))
        }
    }
}

fn sentence(outcome: &PushOutcome, pushed: &Pushed) -> String {
    let count = if pushed.commits == 1 { "1 commit".to_owned() } else { format!("{} commits", pushed.commits) };
    let since = pushed.base.as_deref().map_or(String::new(), |base| format!(" since {}", short(base)));
    format!("{}: {count}{since}", show::one_line(&outcome.message))
}
