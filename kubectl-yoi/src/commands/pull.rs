//! `pull`: fetches what an agent has committed into the clone at hand, on a branch or onto its working tree.

mod apply;

use std::io::Write;

use futures::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt};
use serde::Serialize;
use yoi_crds::workspace::OriginKind;
use yoi_crds::{AgentWorkspace, YoiPod};
use yoi_wire::bundle::{BRANCHES, BundleHead, CommitRequest, InnerRepository, MAX_BUNDLE_BYTES, MAX_BUNDLE_HEAD, Uncommitted};
use yoi_worktree::BundleHeader;

use super::diff::tell_inner;
use crate::args::{OutputFormat, PullOptions};
use crate::bundle_file::BundleFile;
use crate::cluster::Cluster;
use crate::error::{Error, SAME_VERSION};
use crate::folder_tree::FolderTree;
use crate::git::{CloneRefusal, refusal};
use crate::local_clone::{LocalClone, short};
use crate::progress::Progress;
use crate::show;
pub(super) use apply::{check_free, message as why_left_alone};

const OPERATION: &str = "pull the commits of";
/// How much has come, is shown each time that so many bytes more have come.
const PROGRESS_STEP: u64 = 32 << 20;
pub(super) const LOOK_AT_DISK: &str = "look at the folder for temporary files: a disk without room, or a folder that may not be written";

/// What became of it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PullResult {
    agent: String,
    /// The branch of the clone; absent when the agent has committed nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    branch: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    commit: Option<String>,
    /// Where the branch was before.
    #[serde(skip_serializing_if = "Option::is_none")]
    previous: Option<String>,
    /// The commit that the agent's tree was made from.
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

pub async fn pull(cluster: &Cluster, output: Option<OutputFormat>, args: &PullOptions) -> Result<(), Error> {
    let name = &args.name;
    let refused = |why: CloneRefusal| cluster.refused_error::<YoiPod>(OPERATION, name, why.message, why.next);
    let branch = args.branch.as_ref().unwrap_or(name);
    let clone = LocalClone::open().await.map_err(refused)?;
    if args.apply {
        apply::check_free().await.map_err(refused)?;
    } else if let Some(tree) = FolderTree::find() {
        let message = format!("{} is in no git repository, so that there is no branch to pull onto", tree.root.display());
        return Err(refused(refusal(
            message,
            format!("lay it on the folder: {}", cluster.plugin_command(&format!("pull {name} --apply"))),
        )));
    } else {
        clone.check_not_checked_out(branch).await.map_err(refused)?;
    }
    let known_base = base_of_tree(cluster, name).await?;
    let committed = match &args.message {
        Some(message) => cluster.commit(name, &CommitRequest { message: message.clone() }).await?.commit,
        None => None,
    };
    let mut answer = Box::pin(cluster.bundle(name, args.from.as_deref()).await?);
    let head = head_of(cluster, name, &mut answer).await?;
    let mut result = PullResult {
        agent: name.clone(),
        branch: None,
        commit: head.commit.clone(),
        previous: if args.apply { None } else { clone.branch(branch).await.map_err(refused)? },
        base: known_base,
        commits: head.commits,
        committed,
        uncommitted: head.uncommitted,
        inner_repositories: head.inner_repositories,
    };
    let sentence = match (&head.commit, head.commits) {
        (None, _) | (_, 0) => {
            result.previous = None;
            let what = if args.apply { "nothing is laid on the working tree" } else { "no branch was changed" };
            format!("{} has committed nothing since the base of its tree; {what}", cluster.display_name::<YoiPod>(name))
        }
        // The agent may say any commit that the clone has.
        (Some(_), _) if result.base.is_none() && head.base.is_some() => {
            let message = "no object of the cluster names the commit that its tree was made from: it is a fork that an earlier version has made, and its \
                           parent is gone";
            return Err(cluster.refused_error::<YoiPod>(
                OPERATION,
                name,
                message,
                format!("see what it has changed: {}", cluster.plugin_command(&format!("patch {name}"))),
            ));
        }
        // What is there already is not read: the answer ends when it is dropped.
        (Some(commit), _) if result.previous.as_ref() == Some(commit) => {
            result.branch = Some(branch.clone());
            pulled(&result, branch, commit, false)
        }
        (Some(commit), _) if args.apply => {
            let base = result.base.clone().ok_or_else(|| refused(apply::no_base()))?;
            let bundle = download(cluster, name, &mut answer).await?;
            let asked_for = args.from.as_ref().map_or_else(|| "HEAD".to_owned(), |from| format!("{BRANCHES}{from}"));
            let header = header(cluster, name, &bundle, &asked_for, commit)?;
            clone.check_bundle(&bundle, &header, commit, Some(&base)).await.map_err(refused)?;
            return apply::lay(cluster, output, args, &bundle, result, &base, commit);
        }
        (Some(commit), _) => {
            let bundle = download(cluster, name, &mut answer).await?;
            let asked_for = args.from.as_ref().map_or_else(|| "HEAD".to_owned(), |from| format!("{BRANCHES}{from}"));
            let header = header(cluster, name, &bundle, &asked_for, commit)?;
            clone.check_bundle(&bundle, &header, commit, result.base.as_deref()).await.map_err(refused)?;
            let goes_on = match &result.previous {
                Some(old) => clone.check_goes_on(&bundle, branch, old, commit).await.map_err(refused)?,
                None => Some(()),
            };
            if goes_on.is_some() {
                clone.fetch(&bundle, &asked_for, branch).await.map_err(refused)?;
            }
            result.branch = Some(branch.clone());
            pulled(&result, branch, commit, goes_on.is_some())
        }
    };
    show::object(output, &result, &format!("yoipod.yoi.dev/{name}"), &sentence)?;
    tell_uncommitted(cluster, ("pull", "on the branch"), name, &result.uncommitted);
    tell_inner(&result.inner_repositories);
    Ok(())
}

fn pulled(result: &PullResult, branch: &str, commit: &str, is_new: bool) -> String {
    let count = if result.commits == 1 { "1 commit".to_owned() } else { format!("{} commits", result.commits) };
    let since = result.base.as_deref().map_or(String::new(), |base| format!(" since {}", short(base)));
    match (&result.previous, is_new) {
        (Some(_), false) => format!("branch {branch} is at {} already: {count}{since}", short(commit)),
        (Some(old), true) => format!("branch {branch} went from {} to {}: {count}{since}", short(old), short(commit)),
        (None, _) => format!("branch {branch} is new, at {}: {count}{since}", short(commit)),
    }
}

/// Names what is not committed and so not `place`, and how `verb` gets it.
pub fn tell_uncommitted(cluster: &Cluster, (verb, place): (&str, &str), name: &str, uncommitted: &Uncommitted) {
    if uncommitted.count == 0 {
        return;
    }
    let at_least = if uncommitted.cut { "at least " } else { "" };
    let first: Vec<String> = uncommitted.paths.iter().take(5).map(|path| show::quoted_path(path)).collect();
    let more = if uncommitted.count > first.len() as u64 { ", ..." } else { "" };
    eprintln!(
        "not committed, so not {place}: {at_least}{} ({}{more})\n  see it: {}\n  commit it as the agent: {}",
        if uncommitted.count == 1 { "1 path".to_owned() } else { format!("{} paths", uncommitted.count) },
        first.join(", "),
        cluster.plugin_command(&format!("diff {name} --since-commit")),
        cluster.plugin_command(&format!("{verb} {name} --commit -m MESSAGE")),
    );
}

/// The commit of the base that the agent's tree, or the one that it is a fork of, was made from, as the cluster's objects have it: the agent cannot write
/// those. `None` where it was made from no commit, and where no object names it: that of a fork of former versions.
async fn base_of_tree(cluster: &Cluster, name: &str) -> Result<Option<String>, Error> {
    let agent: YoiPod = cluster.get(name).await?;
    let Some(tree) = agent.status.and_then(|status| status.workspace) else { return Ok(None) };
    let Some(tree) = cluster.get_opt::<AgentWorkspace>(&tree.name).await? else { return Ok(None) };
    let Some(origin) = tree.status.and_then(|status| status.origin) else { return Ok(None) };
    if origin.revision.is_some() {
        return Ok(origin.revision);
    }
    // A version before this field has made the tree.
    let origin = Some(origin).filter(|origin| origin.kind == OriginKind::Base);
    let Some(uid) = origin.and_then(|origin| origin.workspace_uid) else { return Ok(None) };
    let trees = cluster.list::<AgentWorkspace>(false, None).await?;
    let base = trees.into_iter().find(|tree| tree.metadata.uid.as_ref() == Some(&uid));
    Ok(base.and_then(|base| base.status?.volume?.revision))
}

fn cut(cluster: &Cluster, name: &str, why: String) -> Error {
    let next = format!("try again: {}", cluster.plugin_command(&format!("pull {name}")));
    Error::Cut { what: cluster.display_name::<YoiPod>(name), why, next }
}

/// What the runtime says of the bundle that follows.
pub(super) async fn head_of(cluster: &Cluster, name: &str, answer: &mut (impl AsyncBufRead + Unpin)) -> Result<BundleHead, Error> {
    let head = read_head(answer).await.map_err(|error| cut(cluster, name, format!("it broke off: {error}")))?;
    head.ok_or_else(|| cluster.refused_error::<YoiPod>(OPERATION, name, "its answer is not one that this version knows", SAME_VERSION))
}

/// Writes the bundle to a file.
pub(super) async fn download(cluster: &Cluster, name: &str, answer: &mut (impl AsyncBufRead + Unpin)) -> Result<BundleFile, Error> {
    let (bundle, mut file) = BundleFile::create().map_err(|error| Error::local("write a temporary file", error, LOOK_AT_DISK))?;
    let (mut buffer, mut length, mut progress) = (vec![0; 256 << 10], 0_u64, None);
    loop {
        let read = answer.read(&mut buffer).await;
        let count = read.map_err(|error| cut(cluster, name, format!("it broke off after {}: {error}", show::bytes(length))))?;
        let Some(bytes) = buffer.get(..count).filter(|bytes| !bytes.is_empty()) else { break };
        let before = length / PROGRESS_STEP;
        length += bytes.len() as u64;
        if length > MAX_BUNDLE_BYTES {
            let message = format!("its commits are longer than {}", show::bytes(MAX_BUNDLE_BYTES));
            return Err(cluster.refused_error::<YoiPod>(
                OPERATION,
                name,
                message,
                "let the agent take files out of them that are no source",
            ));
        }
        let written = file.write_all(bytes);
        written.map_err(|error| Error::local(format!("write {}", bundle.folder().display()), error, LOOK_AT_DISK))?;
        if length / PROGRESS_STEP > before {
            progress.get_or_insert_with(Progress::start).set(&format!("reading the commits of {name}: {}", show::bytes(length)));
        }
    }
    Ok(bundle)
}

async fn read_head(answer: &mut (impl AsyncBufRead + Unpin)) -> std::io::Result<Option<BundleHead>> {
    let mut line = Vec::new();
    answer.take(MAX_BUNDLE_HEAD as u64).read_until(b'\n', &mut line).await?;
    let head = serde_json::from_slice::<BundleHead>(&line).ok();
    Ok(head.filter(|head| head.commit.as_deref().is_none_or(yoi_worktree::is_hash)))
}

/// The bundle's header, if it holds what was asked for and nothing else.
fn header(cluster: &Cluster, name: &str, bundle: &BundleFile, asked_for: &str, commit: &str) -> Result<BundleHeader, Error> {
    let refused = |message: String, next: &str| cluster.refused_error::<YoiPod>(OPERATION, name, message, next);
    let header =
        bundle.header().map_err(|error| refused(format!("its bundle is not taken: {}", yoi_wire::error_chain(&error)), "pull again"))?;
    let names: Vec<&str> = header.refs.iter().map(|(_, name)| name.as_str()).collect();
    if names != [asked_for] {
        let names = names.iter().map(|name| format!("`{}`", show::one_line(name))).collect::<Vec<_>>().join(", ");
        let message =
            format!("its bundle holds {}, and only `{asked_for}` was asked for", if names.is_empty() { "no ref" } else { &names });
        return Err(refused(message, SAME_VERSION));
    }
    if header.refs.iter().any(|(hash, _)| hash != commit) {
        return Err(refused("it has committed once more meanwhile".to_owned(), "pull again"));
    }
    Ok(header)
}
