//! `sync`: sends the working tree at hand as it is, and waits until new trees are made from it.

mod clone;

use serde::Serialize;
use yoi_crds::YoiProject;
use yoi_crds::condition::find;
use yoi_crds::reason::condition;
use yoi_crds::sync::{MAX_SYNC_BYTES, SyncStatus, sync_ref};
use yoi_wire::sync::SyncQuery;
use yoi_worktree::{Asked, BundleError, CaptureError, Captured, Limits, Source, capture, write_bundle};

use crate::args::{OutputFormat, SyncOptions};
use crate::bundle_file::BundleFile;
use crate::cluster::{Cluster, Wait, blocked};
use crate::error::{Error, RefusalKind};
use crate::git::{CloneRefusal, refusal};
use crate::local_clone::short;
use crate::progress::Progress;
use crate::show;
use clone::SyncedClone;

const OPERATION: &str = "sync the working tree to";
/// Bytes of files that HEAD does not hold as they are. More than that is nothing that [`MAX_SYNC_BYTES`] could hold, and takes long to find out.
const MAX_CHANGED_BYTES: u64 = 256 << 20;
const LEAVE_OUT: &str = "commit and push it, or let git ignore it: .gitignore, or .git/info/exclude for this clone alone";

/// What was sent.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct SyncResult {
    project: String,
    machine: String,
    commit: String,
    /// HEAD of the clone; absent in a repository without a commit.
    #[serde(skip_serializing_if = "Option::is_none")]
    base: Option<String>,
    captured_at: String,
    /// Of the bundle. Absent when nothing had to be sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    /// Nothing was sent.
    dry_run: bool,
    /// Submodules and other repositories, of which only the commit travels.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    repositories: Vec<String>,
}

impl SyncResult {
    fn tell_of_repositories(&self) {
        if self.repositories.is_empty() {
            return;
        }
        let named: Vec<String> = self.repositories.iter().take(5).map(|path| show::quoted_path(path)).collect();
        let more = if self.repositories.len() > named.len() { ", ..." } else { "" };
        eprintln!("of repositories in the tree only the commit that they have checked out: {}{more}", named.join(", "));
    }
}

pub async fn sync(cluster: &Cluster, output: Option<OutputFormat>, args: &SyncOptions) -> Result<(), Error> {
    let (result, sentence) = send(cluster, args).await?;
    show::object(output, &result, &format!("yoiproject.yoi.dev/{}", result.project), &sentence)?;
    result.tell_of_repositories();
    Ok(())
}

/// Sends the working tree at hand to the project, waits until trees are made from it, and says on standard error of which moment it is.
pub async fn before_run(cluster: &Cluster, args: &SyncOptions) -> Result<(), Error> {
    let (result, sentence) = send(cluster, args).await?;
    eprintln!("{sentence}");
    result.tell_of_repositories();
    Ok(())
}

async fn send(cluster: &Cluster, args: &SyncOptions) -> Result<(SyncResult, String), Error> {
    let Some(name) = &args.project else {
        let message = "the project is not named, and this folder is no clone that has one".to_owned();
        return Err(Error::Usage { message, next: "name it: kubectl yoi sync PROJECT; or make one: kubectl yoi init --apply".to_owned() });
    };
    let refused = |why: CloneRefusal| cluster.refused_error::<YoiProject>(OPERATION, name, why.message, why.next);
    // Before the capture: whatever comes meanwhile is newer than what this machine had when it began, and then this one is not taken.
    let project: YoiProject = cluster.get(name).await?;
    let url = source_url(cluster, name, &project)?;
    let before = project.status.as_ref().and_then(|status| status.sync.as_deref().cloned()).unwrap_or_default();
    let clone = SyncedClone::open(url).await.map_err(refused)?;
    let machine = match &args.machine {
        Some(machine) => machine.clone(),
        None => clone::machine_name().await.map_err(refused)?,
    };
    let previous = before.machines.iter().find(|known| known.machine == machine).map(|known| known.commit.clone());
    let mut progress = Progress::start();
    progress.set("reading the working tree");
    let now = jiff::Timestamp::now();
    let asked =
        Asked { private: clone.private(), include: &args.include, seconds: now.as_second(), limits: Limits { bytes: MAX_CHANGED_BYTES } };
    let source = Source::WorkTree(clone.folder().to_owned());
    let captured = capture(&source, &asked).map_err(|error| refused(why_not(error)))?;
    let mut result = SyncResult {
        project: name.clone(),
        machine,
        commit: captured.commit.clone(),
        base: captured.base.clone(),
        captured_at: now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        bytes: None,
        dry_run: args.dry_run,
        repositories: captured.repositories.clone(),
    };
    if let Some(same) = already_last(&clone, &before, &result.machine, &captured).await.map_err(refused)? {
        result.commit = same;
    } else {
        progress.set("writing what the project's server lacks of it");
        let (file, _) = BundleFile::create().map_err(|error| Error::local("make a temporary folder", error, super::pull::LOOK_AT_DISK))?;
        let path = file.folder().join("synced");
        let have = clone.on_server(&captured).await.map_err(refused)?;
        let ref_ = sync_ref(&result.machine);
        let written = write_bundle(&source, clone.private(), &captured.commit, &ref_, &have, &path, MAX_SYNC_BYTES as u64);
        result.bytes = Some(written.map_err(|error| refused(why_no_bundle(error)))?);
        let bundle =
            std::fs::read(&path).map_err(|error| Error::local(format!("read {}", path.display()), error, super::pull::LOOK_AT_DISK))?;
        if !args.dry_run {
            progress.set(&format!("sending {}", show::bytes(bundle.len() as u64)));
            let query = SyncQuery {
                machine: result.machine.clone(),
                commit: result.commit.clone(),
                previous,
                captured_at: result.captured_at.clone(),
                sha256: yoi_plan::names::sha256(&bundle),
            };
            cluster.send_tree(name, &query, &bundle).await?;
        }
    }
    drop(progress);
    let title = format!("yoiproject.yoi.dev/{name}");
    let sent = result.bytes.map_or_else(|| "it is there already".to_owned(), show::bytes);
    let sentence = if args.dry_run {
        let base = result.base.as_deref().map_or_else(|| "no commit".to_owned(), |base| format!("commit {}", short(base)));
        format!("the working tree of {} on top of {base} would be sent to {title}: {sent} (dry run)", result.machine)
    } else {
        wait(cluster, args, name, &result.commit, before.last.as_ref().map(|last| last.commit.as_str())).await?;
        format!(
            "{title} makes trees from {} as it was at {} (commit {}, {sent})",
            result.machine,
            result.captured_at,
            short(&result.commit)
        )
    };
    Ok((result, sentence))
}

/// The address of the project's repository. Refuses a project that takes no working trees.
fn source_url<'a>(cluster: &Cluster, name: &str, project: &'a YoiProject) -> Result<&'a str, Error> {
    let refused = |message: &str, next: String| cluster.refused_error::<YoiProject>(OPERATION, name, message, next);
    let Some(git) = &project.spec.source.git else {
        return Err(refused(
            "its source is no git repository",
            "make a project of this clone: kubectl yoi init --apply --name NAME".to_owned(),
        ));
    };
    if git.sync.is_none() {
        let patch = r#"{"spec":{"source":{"git":{"sync":{},"refresh":null,"depth":null}}}}"#;
        let next = format!("let it: kubectl patch yoiproject {name} -n {} --type merge -p '{patch}'", cluster.namespace);
        return Err(refused("it takes no working trees", next));
    }
    Ok(&git.url)
}

/// The commit that the project has already of this very tree, if it is the state that counts.
async fn already_last(
    clone: &SyncedClone,
    before: &SyncStatus,
    machine: &str,
    captured: &Captured,
) -> Result<Option<String>, CloneRefusal> {
    let Some(last) = before.last.as_ref().filter(|last| last.machine == machine) else { return Ok(None) };
    Ok(clone.is_same(&last.commit, captured).await?.then(|| last.commit.clone()))
}

fn why_not(error: CaptureError) -> CloneRefusal {
    match error {
        CaptureError::TooLarge { bytes, most, largest } => refusal(
            format!(
                "what has changed is {}, and at most {} are read; the largest, in bytes: {}",
                show::bytes(bytes),
                show::bytes(most),
                show::one_line(&largest.join(", "))
            ),
            LEAVE_OUT,
        ),
        CaptureError::Changing(_) => refusal(show::one_line(&error.to_string()), "say it again when nothing writes there"),
        CaptureError::NothingIncluded(_) => refusal(show::one_line(&error.to_string()), "see what is ignored: git status --ignored"),
        CaptureError::Git(_) | CaptureError::NoWorkTree { .. } => {
            refusal(show::one_line(&yoi_wire::error_chain(&error)), "do what git says, and say it again")
        }
    }
}

fn why_no_bundle(error: BundleError) -> CloneRefusal {
    match error {
        BundleError::TooLarge(most) => {
            refusal(format!("what the project's server lacks of it is more than {} in git's packed form", show::bytes(most)), LEAVE_OUT)
        }
        BundleError::Capture(error) => why_not(error),
        BundleError::Git(_) => refusal(show::one_line(&yoi_wire::error_chain(&error)), "do what git says, and say it again"),
    }
}

/// Waits until trees are made from the commit. `before` is the one that had come last: a watch may show that for a moment more.
async fn wait(cluster: &Cluster, args: &SyncOptions, name: &str, commit: &str, before: Option<&str>) -> Result<(), Error> {
    cluster
        .wait(name, args.timeout, "synced", |project: Option<&YoiProject>| {
            let Some(project) = project else { return Err(cluster.gone_error::<YoiProject>(name)) };
            let status = project.status.clone().unwrap_or_default();
            if status.generation.as_ref().and_then(|generation| generation.revision.as_deref()) == Some(commit) {
                return Ok(Wait::Done(()));
            }
            let last = status.sync.and_then(|sync| sync.last);
            if let Some(other) = last.filter(|last| last.commit != commit && Some(last.commit.as_str()) != before) {
                let message = format!("{} has synced {} meanwhile, and what came last counts", other.person, other.machine);
                let operation = format!("{OPERATION} {}", cluster.display_name::<YoiProject>(name));
                let next = format!("say it again if yours is to count: {}", cluster.plugin_command(&format!("sync {name}")));
                return Err(Error::refused_error(operation, show::one_line(&message), next, RefusalKind::Other));
            }
            Ok(blocked(cluster, project, "synced", find(&status.conditions, condition::REFRESHED), |_| None))
        })
        .await
}
