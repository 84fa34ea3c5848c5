//! `sync`: sends the working tree at hand as it is, of a clone or of a folder without git, and waits until new trees are made from it.

mod changes;
mod clone;
mod names;
mod question;
mod upload;
mod watch;

use serde::Serialize;
use yoi_crds::YoiProject;
use yoi_crds::condition::find;
use yoi_crds::reason::{POPULATE_FAILED, condition};
use yoi_crds::sync::{MAX_SYNC_BYTES, PART_BYTES, SyncStatus, SyncedTree, part_count, sync_ref};
use yoi_wire::sync::SyncQuery;
use yoi_worktree::{BundleError, Captured, write_bundle};

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
use upload::{About, Upload};

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
    /// The project has a server, on which their commits may be.
    #[serde(skip)]
    has_server: bool,
}

impl SyncResult {
    /// What is to be said of repositories in the tree.
    fn of_repositories(&self) -> Option<String> {
        let named: Vec<String> = self.repositories.iter().take(5).map(|path| show::quoted_path(path)).collect();
        let more = if self.repositories.len() > named.len() { ", ..." } else { "" };
        let what = match self.has_server {
            true => "of repositories in the tree only the commit that they have checked out",
            false => "repositories in the tree are left out, and are empty folders for agents",
        };
        let sentence = || format!("{what}: {}{more}", named.join(", "));
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
    /// No tree could be made from what came last.
    has_failed: bool,
    has_server: bool,
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
        let url = server_of(cluster, name, &project)?;
        let before = project.status.as_ref().and_then(|status| status.sync.as_deref().cloned()).unwrap_or_default();
        let conditions = project.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
        let has_failed = find(conditions, condition::REFRESHED).is_some_and(|refreshed| refreshed.reason == POPULATE_FAILED);
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
        names::check(&clone, &captured, tell).map_err(refused)?;
        Ok(CapturedTree { project: name, clone, machine, at, captured, before, has_failed, has_server: url.is_some() })
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

    /// The commit that the project has already of this very tree, if it is the state that counts. What no tree could be made from is sent anew.
    async fn already_last(&self) -> Result<Option<&String>, CloneRefusal> {
        let last = self.before.last.as_ref().filter(|last| last.machine == self.machine && !self.has_failed);
        let Some(last) = last else { return Ok(None) };
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
            has_server: self.has_server,
        };
        let last = self.before.last.as_ref();
        if let Some(same) = self.already_last().await.map_err(refused)? {
            result.commit.clone_from(same);
        } else {
            if let Some(other) = last.filter(|last| last.machine != self.machine) {
                tell(format!("it takes the place of {}", state(other)));
            }
            progress.set("writing what the project's server lacks of it");
            let have = self.clone.on_server(&self.captured).await.map_err(refused)?;
            let about = About::new(&self.machine, &self.captured, &have);
            let upload = match Upload::kept(self.clone.private(), &about).filter(|kept| !self.has_come(&kept.commit)) {
                Some(kept) => kept,
                None => Upload::new(&self.captured.commit, self.bundle(&have)?.map_err(refused)?),
            };
            result.commit.clone_from(&upload.commit);
            result.bytes = Some(upload.bytes.len() as u64);
            if !args.dry_run {
                self.send_parts(cluster, &upload, &about, &result.captured_at, progress, tell).await?;
            }
        }
        let before = last.map(|last| last.commit.clone());
        Ok(Sent { result, captured: self.captured, before })
    }

    /// Whether the project had this commit already. A bundle that is kept of it is of a former time.
    fn has_come(&self, commit: &String) -> bool {
        let SyncStatus { last, machines, bundles, .. } = &self.before;
        let known = last.iter().map(|tree| &tree.commit).chain(machines.iter().map(|known| &known.commit));
        known.chain(bundles.iter().map(|bundle| &bundle.commit)).any(|known| known == commit)
    }

    /// How many parts of a bundle the project has.
    fn parts_there(&self, upload: &Upload) -> usize {
        let is_it = |there: &&yoi_crds::sync::SyncUpload| {
            let bundle = &there.bundle;
            there.machine == self.machine && bundle.commit == upload.commit && bundle.sha256 == upload.sha256
        };
        self.before.uploads.iter().find(is_it).map_or(0, |there| there.bundle.parts.len())
    }

    /// Sends the parts of a bundle that are not there. Cut in the middle, the next call for the same state goes on with the next part.
    async fn send_parts(
        &self,
        cluster: &Cluster,
        upload: &Upload,
        about: &About,
        captured_at: &str,
        progress: &mut Progress,
        tell: &mut dyn FnMut(String),
    ) -> Result<(), Error> {
        let (count, private) = (part_count(upload.bytes.len()), self.clone.private());
        let mut part = self.parts_there(upload).min(count - 1);
        if part > 0 {
            tell(format!("it goes on where it was cut: {part} of {count} parts are there"));
        }
        if count > 1 {
            let failed = |error| Error::local(format!("write below {}", private.display()), error, super::pull::LOOK_AT_DISK);
            upload.keep(private, about).map_err(failed)?;
        }
        while let Some(bytes) = upload.bytes.chunks(PART_BYTES).nth(part) {
            let of_all = if count > 1 { format!(", part {} of {count}", part + 1) } else { String::new() };
            progress.set(&format!("sending {}{of_all}", show::bytes(upload.bytes.len() as u64)));
            let query = SyncQuery {
                machine: self.machine.clone(),
                commit: upload.commit.clone(),
                previous: self.previous().cloned(),
                captured_at: captured_at.to_owned(),
                sha256: upload.sha256.clone(),
                bytes: upload.bytes.len(),
                part,
                part_sha256: yoi_plan::names::sha256(bytes),
            };
            let answer = cluster.send_tree(self.project, &query, bytes).await?;
            // Whoever else sends the same may be ahead.
            part = answer.parts.max(part + 1);
        }
        Upload::forget(private);
        Ok(())
    }

    /// The bundle of what the project's server lacks of it, which has `have`.
    fn bundle(&self, have: &[String]) -> Result<Result<Vec<u8>, CloneRefusal>, Error> {
        let failed = |operation: String, error| Error::local(operation, error, super::pull::LOOK_AT_DISK);
        let (file, _) = BundleFile::create().map_err(|error| failed("make a temporary folder".to_owned(), error))?;
        let path = file.folder().join("synced");
        let ref_ = sync_ref(&self.machine);
        let written =
            write_bundle(self.clone.source(), self.clone.private(), &self.captured.commit, &ref_, have, &path, MAX_SYNC_BYTES as u64);
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

/// The address of the project's repository; `None` of a project without one. Refuses a project that takes no working trees.
fn server_of<'a>(cluster: &Cluster, name: &str, project: &'a YoiProject) -> Result<Option<&'a str>, Error> {
    let source = &project.spec.source;
    if source.takes_trees() {
        return Ok(source.git.as_ref().map(|git| git.url.as_str()));
    }
    let refused = |message: &str, next: String| Err(cluster.refused_error::<YoiProject>(OPERATION, name, message, next));
    let patch = match (&source.git, &source.empty) {
        (Some(_), _) => r#"{"spec":{"source":{"git":{"sync":{},"refresh":null,"depth":null}}}}"#,
        (None, Some(_)) => r#"{"spec":{"source":{"empty":{"sync":{}}}}}"#,
        (None, None) => {
            let next = "make a project of this clone or folder: kubectl yoi init --apply --name NAME";
            return refused("its source is no git repository, and is not empty", next.to_owned());
        }
    };
    refused(
        "it takes no working trees",
        format!("let it: kubectl patch yoiproject {name} -n {} --type merge -p '{patch}'", cluster.namespace),
    )
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
