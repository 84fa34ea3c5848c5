//! `merge --into BRANCH`: an agent's work on the branch that is checked out in the clone at hand. It stands in the working tree, and nothing is committed.

use std::time::{SystemTime, UNIX_EPOCH};

use kube::ResourceExt;
use yoi_crds::YoiPod;
use yoi_wire::bundle::{InnerRepository, MAX_BUNDLE_BYTES};
use yoi_wire::merge::{MergeConflict, MergeOutcome, MergedPath, WORK};
use yoi_worktree::{ConflictWhy, Favour, Limits, Merge, Merged, Rules, merge};

use super::OPERATION;
use crate::args::{MergeOptions, MergeSide};
use crate::cluster::Cluster;
use crate::commands::pull::{LOOK_AT_DISK, check_free, download, head_of, why_left_alone};
use crate::error::{Error, SAME_VERSION};
use crate::git;
use crate::show;

/// Paths of an agent's tree.
const MAX_PATHS: usize = 1_000_000;

/// The branch that is checked out here; `None` outside of a working tree, and where no branch is.
pub async fn branch_here() -> Option<String> {
    let answer = git::answer(git::command(&["symbolic-ref", "--quiet", "--short", "HEAD"])).await.ok()?;
    Some(answer.line().to_owned()).filter(|branch| answer.success && !branch.is_empty())
}

/// Merges the agent's commits, and what it has not committed, into the working tree at hand.
pub async fn merge_here(cluster: &Cluster, args: &MergeOptions) -> Result<MergeOutcome, Error> {
    let name = &args.name;
    let refused = |message: String, next: String| cluster.refused_error::<YoiPod>(OPERATION, name, message, next);
    let agent: YoiPod = cluster.get(name).await?;
    check_free().await.map_err(|why| refused(why.message, why.next))?;
    let mut answer = Box::pin(cluster.work(name).await?);
    let head = head_of(cluster, name, &mut answer).await?;
    if head.name != WORK {
        return Err(refused("its runtime is older and gives out commits alone".to_owned(), SAME_VERSION.to_owned()));
    }
    let notes: Vec<String> = head.inner_repositories.iter().map(InnerRepository::sentence).collect();
    if head.commits == 0 {
        return Ok(MergeOutcome { dry_run: args.dry_run, notes, ..MergeOutcome::default() });
    }
    let bundle = download(cluster, name, &mut answer).await?;
    let private = bundle.folder().join("private");
    std::fs::create_dir(&private).map_err(|error| Error::local(format!("make {}", private.display()), error, LOOK_AT_DISK))?;
    let here =
        std::env::current_dir().map_err(|error| Error::local("find the working directory", error, "go to a folder that is there"))?;
    let rules =
        Rules { name: WORK, bytes: MAX_BUNDLE_BYTES, pack_bytes: 2 * MAX_BUNDLE_BYTES, paths: MAX_PATHS, windows_names: cfg!(windows) };
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let asked = Merge {
        folder: &here,
        private: &private,
        bundle: &bundle.path(),
        rules: &rules,
        key: &agent.uid().unwrap_or_else(|| name.clone()),
        favour: match args.strategy {
            None => Favour::Neither,
            Some(MergeSide::Ours) => Favour::Ours,
            Some(MergeSide::Theirs) => Favour::Theirs,
        },
        seconds: i64::try_from(seconds).unwrap_or_default(),
        limits: Limits { bytes: u64::MAX, untracked: u64::MAX },
        dry_run: args.dry_run,
    };
    let merged = merge(&asked, &mut || {}).map_err(|error| {
        let next = format!("do what it says; or have its commits on a branch: {}", cluster.plugin_command(&format!("pull {name}")));
        refused(format!("nothing was merged: {}", show::one_line(&yoi_wire::error_chain(&error))), next)
    })?;
    Ok(outcome(merged, args.dry_run, notes))
}

fn outcome(merged: Merged, dry_run: bool, mut notes: Vec<String>) -> MergeOutcome {
    let Merged { theirs, conflicts, paths, not_remembered } = merged;
    notes.extend(not_remembered.map(|why| format!("what was merged could not be remembered for the next merge: {why}")));
    let text = |path: &[u8]| String::from_utf8_lossy(path).into_owned();
    let why = |why: &ConflictWhy| match why {
        ConflictWhy::Git(kind) => format!("both have changed it: {kind}"),
        ConflictWhy::Tree(why) => why_left_alone(why),
    };
    let conflicts = conflicts.iter().map(|conflict| MergeConflict { path: text(&conflict.path), why: why(&conflict.why) });
    // A conflict leaves a path alone, so that none of these is one.
    let paths = paths.iter().map(|path| MergedPath { path: text(&path.path), change: path.outcome.name().to_owned() });
    MergeOutcome::new(theirs, dry_run, conflicts.collect(), paths.collect(), notes)
}
