//! `sync`: sends the working tree at hand as it is, and waits until new trees are made from it.

mod changes;
mod clone;
mod question;
mod watch;

use serde::Serialize;
use yoi_crds::YoiProject;
use yoi_crds::condition::find;
use yoi_crds::reason::condition;
use yoi_crds::sync::{MAX_SYNC_BYTES, SyncStatus, SyncedTree, sync_ref};
use yoi_wire::sync::SyncQuery;
use yoi_worktree::{BundleError, Captured, Source, write_bundle};

use crate::args::{ClusterOptions, OutputFormat, SyncOptions};
use crate::bundle_file::BundleFile;
use crate::cluster::{Cluster, Wait, blocked};
use crate::error::{Error, RefusalKind};
use crate::git::{CloneRefusal, refusal};
use crate::local_clone::short;
use crate::progress::Progress;
use crate::show;
use clone::SyncedClone;
use question::why_not;

const OPERATION: &str = "sync the working tree to";
/// How moments are written.
const TIME: &str = "%Y-%m-%dT%H:%M:%SZ";
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
    /// What is to be said of repositories in the tree.
    fn of_repositories(&self) -> Option<String> {
        let named: Vec<String> = self.repositories.iter().take(5).map(|path| show::quoted_path(path)).collect();
        let more = if self.repositories.len() > named.len() { ", ..." } else { "" };
        let sentence = || format!("of repositories in the tree only the commit that they have checked out: {}{more}", named.join(", "));
        (!named.is_empty()).then(sentence)
    }
}

pub async fn sync(cluster: Cluster, connection: &ClusterOptions, output: Option<OutputFormat>, args: &SyncOptions) -> Result<(), Error> {
    if args.watch {
        return watch::watch(cluster, connection, output, args).await;
    }
    let (result, sentence) = once(&cluster, args).await?;
    show::object(output, &result, &title(&result.project), &sentence)?;
    result.of_repositories().iter().for_each(|words| eprintln!("{words}"));
    Ok(())
}

/// Sends the working tree at hand to the project, waits until trees are made from it, and says on standard error of which moment it is.
pub async fn before_run(cluster: &Cluster, args: &SyncOptions) -> Result<(), Error> {
    let (result, sentence) = once(cluster, args).await?;
    [Some(sentence), result.of_repositories()].iter().flatten().for_each(|words| eprintln!("{words}"));
    Ok(())
}

fn title(project: &str) -> String {
    format!("yoiproject.yoi.dev/{project}")
}

/// A captured tree that the project has, or would be sent.
struct Sent {
    result: SyncResult,
    captured: Captured,
    /// The commit that had come last before.
    before: Option<String>,
}

impl Sent {
    fn size(&self) -> String {
        self.result.bytes.map_or_else(|| "it is there already".to_owned(), show::bytes)
    }

    /// What is said once trees are made from it.
    fn sentence(&self) -> String {
        let SyncResult { project, machine, commit, captured_at, .. } = &self.result;
        format!("{} makes trees from {machine} as it was at {captured_at} (commit {}, {})", title(project), short(commit), self.size())
    }
}

async fn once(cluster: &Cluster, args: &SyncOptions) -> Result<(SyncResult, String), Error> {
    let name = project_name(args)?;
    let mut progress = Progress::start();
    let mut tell = |words: String| eprintln!("{words}");
    let captured = CapturedTree::of_clone(cluster, name, args, &mut progress, &mut tell).await?;
    let sent = captured.send(cluster, args, &mut progress, &mut tell).await?;
    drop(progress);
    if args.dry_run {
        let base = sent.result.base.as_deref().map_or_else(|| "no commit".to_owned(), |base| format!("commit {}", short(base)));
        let (machine, size) = (&sent.result.machine, sent.size());
        let sentence = format!("the working tree of {machine} on top of {base} would be sent to {}: {size} (dry run)", title(name));
        return Ok((sent.result, sentence));
    }
    let mut waiting = Progress::start();
    let what = cluster.display_name::<YoiProject>(name);
    if let Some(other) = wait(cluster, args, &sent, |why| waiting.set(&format!("{what}: {why}"))).await? {
        let message = format!("{} has synced {} meanwhile, and what came last counts", other.person, other.machine);
        let next = format!("say it again if yours is to count: {}", cluster.plugin_command(&format!("sync {name}")));
        return Err(Error::refused_error(format!("{OPERATION} {what}"), show::one_line(&message), next, RefusalKind::Other));
    }
    let sentence = sent.sentence();
    Ok((sent.result, sentence))
}

fn project_name(args: &SyncOptions) -> Result<&String, Error> {
    args.project.as_ref().ok_or_else(|| {
        let message = "the project is not named, and this folder is no clone that has one".to_owned();
        Error::Usage { message, next: "name it: kubectl yoi sync PROJECT; or make one: kubectl yoi init --apply".to_owned() }
    })
}

/// The working tree at hand as it was at one moment, and what the project had before that moment.
struct CapturedTree<'a> {
    project: &'a str,
    clone: SyncedClone,
    machine: String,
    at: jiff::Timestamp,
    captured: Captured,
    before: SyncStatus,
}

impl<'a> CapturedTree<'a> {
    /// Captures it. `tell` gets what the person should know.
    async fn of_clone(
        cluster: &Cluster,
        name: &'a str,
        args: &SyncOptions,
        progress: &mut Progress,
        tell: &mut dyn FnMut(String),
    ) -> Result<Self, Error> {
        let refused = |why| refused(cluster, name, why);
        // Before the capture: whatever comes meanwhile is newer than what this machine had when it began, and then this one is not taken.
        let project: YoiProject = cluster.get(name).await?;
        let url = source_url(cluster, name, &project)?;
        let before = project.status.as_ref().and_then(|status| status.sync.as_deref().cloned()).unwrap_or_default();
        let clone = SyncedClone::open(url).await.map_err(refused)?;
        if let Some(under_way) = clone.under_way() {
            tell(format!("{under_way}: the tree is taken as it is"));
        }
        let machine = match &args.machine {
            Some(machine) => machine.clone(),
            None => clone::machine_name().await.map_err(refused)?,
        };
        progress.set("reading the working tree");
        let at = jiff::Timestamp::now();
        let captured = question::capture(&clone, args, at, progress).map_err(refused)?;
        Ok(CapturedTree { project: name, clone, machine, at, captured, before })
    }

    /// The last commit that the project had of this machine.
    fn previous(&self) -> Option<&String> {
        self.before.machines.iter().find(|known| known.machine == self.machine).map(|known| &known.commit)
    }

    /// Whether the tree is as `sent`, which is the last that the project had of this machine. What another machine has sent since is newer then.
    fn is_still(&self, sent: &Sent) -> bool {
        let same = sent.captured.tree == self.captured.tree && sent.captured.base == self.captured.base;
        same && self.previous() == Some(&sent.result.commit)
    }

    /// The commit that the project has already of this very tree, if it is the state that counts.
    async fn already_last(&self) -> Result<Option<&String>, CloneRefusal> {
        let Some(last) = self.before.last.as_ref().filter(|last| last.machine == self.machine) else { return Ok(None) };
        Ok(self.clone.is_same(&last.commit, &self.captured).await?.then_some(&last.commit))
    }

    /// Sends what the project's server lacks of it, unless the project has it, or it is a dry run. `tell` gets what the person should know.
    async fn send(
        self,
        cluster: &Cluster,
        args: &SyncOptions,
        progress: &mut Progress,
        tell: &mut dyn FnMut(String),
    ) -> Result<Sent, Error> {
        let refused = |why| refused(cluster, self.project, why);
        let mut result = SyncResult {
            project: self.project.to_owned(),
            machine: self.machine.clone(),
            commit: self.captured.commit.clone(),
            base: self.captured.base.clone(),
            captured_at: self.at.strftime(TIME).to_string(),
            bytes: None,
            dry_run: args.dry_run,
            repositories: self.captured.repositories.clone(),
        };
        let last = self.before.last.as_ref();
        if let Some(same) = self.already_last().await.map_err(refused)? {
            result.commit.clone_from(same);
        } else {
            if let Some(other) = last.filter(|last| last.machine != self.machine) {
                tell(format!("it takes the place of {}", state(other)));
            }
            progress.set("writing what the project's server lacks of it");
            let bundle = self.bundle().await?.map_err(refused)?;
            result.bytes = Some(bundle.len() as u64);
            if !args.dry_run {
                progress.set(&format!("sending {}", show::bytes(bundle.len() as u64)));
                let query = SyncQuery {
                    machine: self.machine.clone(),
                    commit: result.commit.clone(),
                    previous: self.previous().cloned(),
                    captured_at: result.captured_at.clone(),
                    sha256: yoi_plan::names::sha256(&bundle),
                };
                cluster.send_tree(self.project, &query, &bundle).await?;
            }
        }
        let before = last.map(|last| last.commit.clone());
        Ok(Sent { result, captured: self.captured, before })
    }

    /// The bundle of what the project's server lacks of it.
    async fn bundle(&self) -> Result<Result<Vec<u8>, CloneRefusal>, Error> {
        let failed = |operation: String, error| Error::local(operation, error, super::pull::LOOK_AT_DISK);
        let (file, _) = BundleFile::create().map_err(|error| failed("make a temporary folder".to_owned(), error))?;
        let path = file.folder().join("synced");
        let have = match self.clone.on_server(&self.captured).await {
            Ok(have) => have,
            Err(why) => return Ok(Err(why)),
        };
        let (source, ref_) = (Source::WorkTree(self.clone.folder().to_owned()), sync_ref(&self.machine));
        let written = write_bundle(&source, self.clone.private(), &self.captured.commit, &ref_, &have, &path, MAX_SYNC_BYTES as u64);
        match written {
            Ok(_) => std::fs::read(&path).map(Ok).map_err(|error| failed(format!("read {}", path.display()), error)),
            Err(error) => Ok(Err(why_no_bundle(error))),
        }
    }
}

fn refused(cluster: &Cluster, project: &str, why: CloneRefusal) -> Error {
    cluster.refused_error::<YoiProject>(OPERATION, project, why.message, why.next)
}

/// What another machine or person has sent.
fn state(tree: &SyncedTree) -> String {
    show::one_line(&format!("{} as it was at {}, which {} has synced", tree.machine, tree.captured_at, tree.person))
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

fn why_no_bundle(error: BundleError) -> CloneRefusal {
    match error {
        BundleError::TooLarge(most) => {
            refusal(format!("what the project's server lacks of it is more than {} in git's packed form", show::bytes(most)), LEAVE_OUT)
        }
        BundleError::Capture(error) => why_not(error),
        BundleError::Git(_) => refusal(show::one_line(&yoi_wire::error_chain(&error)), "do what git says, and say it again"),
    }
}

/// Waits until trees are made from what was sent. `Some`: another state has come meanwhile, and counts.
async fn wait(cluster: &Cluster, args: &SyncOptions, sent: &Sent, show: impl FnMut(&str)) -> Result<Option<SyncedTree>, Error> {
    let SyncResult { project: name, commit, .. } = &sent.result;
    cluster
        .watch(
            name,
            args.timeout,
            "synced",
            |project: Option<&YoiProject>| {
                let Some(project) = project else { return Err(cluster.gone_error::<YoiProject>(name)) };
                let status = project.status.clone().unwrap_or_default();
                if status.generation.as_ref().and_then(|generation| generation.revision.as_deref()) == Some(commit) {
                    return Ok(Wait::Done(None));
                }
                // A watch may show for a moment more what had come before.
                let other = status
                    .sync
                    .and_then(|sync| sync.last)
                    .filter(|last| last.commit != *commit && Some(&last.commit) != sent.before.as_ref());
                match other {
                    Some(other) => Ok(Wait::Done(Some(other))),
                    None => Ok(blocked(cluster, project, "synced", find(&status.conditions, condition::REFRESHED), |_| None)),
                }
            },
            show,
        )
        .await
}
