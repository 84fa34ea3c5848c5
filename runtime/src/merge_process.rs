//! `yoi-runtime merge`: merges another agent's work into the tree, in a process of its own, in the frame of the agent's processes.
//!
//! Standard input is a line with a [`MergeOrder`], a line with a [`BundleHead`], and the bundle. Standard output is one [`MergeAnswer`].

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use uuid::Uuid;
use yoi_wire::bundle::{BundleHead, MAX_BUNDLE_BYTES, MAX_BUNDLE_HEAD};
use yoi_wire::error_chain;
use yoi_wire::hub::{Refusal, RefusalReason};
use yoi_wire::merge::{MAX_ORDER, MergeConflict, MergeOrder, MergeOutcome, MergeStrategy, MergedPath, WORK};
use yoi_worktree::{ApplyError, CaptureError, CheckError, ConflictWhy, Favour, Limits, Merge, MergeError, Merged, Rules, Why, merge};

/// Bytes of what has changed in the tree, and of what git does not track in it. More is most likely the output of a build that nobody ignores.
const MAX_CHANGED: u64 = 1 << 30;
/// Paths of the other agent's tree.
const MAX_PATHS: usize = 1_000_000;

/// What the process prints.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum MergeAnswer {
    /// All was merged, or nothing because of conflicts.
    Outcome(MergeOutcome),
    /// Nothing was merged.
    Refused(Refusal),
}

/// Merges what comes on standard input into the tree of this folder.
pub fn run(input: impl Read, tree: &Path) -> MergeAnswer {
    match Work::read(input).and_then(|work| work.merge_into(tree)) {
        Ok(outcome) => MergeAnswer::Outcome(outcome),
        Err(refusal) => MergeAnswer::Refused(refusal),
    }
}

fn refused(reason: RefusalReason, message: impl Into<String>) -> Refusal {
    Refusal { reason, message: message.into() }
}

fn failed(what: &str, error: &io::Error) -> Refusal {
    refused(RefusalReason::ReceiverFailed, format!("nothing was merged: {what}: {error}"))
}

/// The other agent's work, in a folder that goes when this is dropped.
struct Work {
    order: MergeOrder,
    head: BundleHead,
    folder: PathBuf,
}

impl Drop for Work {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Work {
    fn read(input: impl Read) -> Result<Self, Refusal> {
        let mut input = BufReader::new(input);
        let order: MergeOrder = line(&mut input, MAX_ORDER)?;
        let head: BundleHead = line(&mut input, MAX_BUNDLE_HEAD)?;
        if head.name != WORK {
            let message = format!("the runtime of {} is older and does not give out its work: restart it", order.from.name);
            return Err(refused(RefusalReason::Invalid, message));
        }
        let folder = std::env::temp_dir().join(format!("yoi-merge-{}", Uuid::new_v4()));
        let write = |error| failed("the other agent's work cannot be written to the folder for temporary files", &error);
        std::fs::DirBuilder::new().mode(0o700).create(&folder).map_err(write)?;
        let work = Work { order, head, folder };
        let mut file = File::create_new(work.bundle()).map_err(write)?;
        io::copy(&mut input.take(MAX_BUNDLE_BYTES + 1), &mut file).and_then(|_| file.flush()).map_err(write)?;
        Ok(work)
    }

    fn bundle(&self) -> PathBuf {
        self.folder.join("bundle")
    }

    fn merge_into(self, tree: &Path) -> Result<MergeOutcome, Refusal> {
        let MergeOrder { from, dry_run, strategy } = &self.order;
        let notes: Vec<String> = self.head.inner_repositories.iter().map(yoi_wire::bundle::InnerRepository::sentence).collect();
        if self.head.commits == 0 {
            return Ok(MergeOutcome { dry_run: *dry_run, notes, ..MergeOutcome::default() });
        }
        let private = self.folder.join("private");
        std::fs::create_dir(&private).map_err(|error| failed("the folder for temporary files cannot be written", &error))?;
        let rules = Rules { name: WORK, bytes: MAX_BUNDLE_BYTES, pack_bytes: 2 * MAX_BUNDLE_BYTES, paths: MAX_PATHS, windows_names: false };
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let asked = Merge {
            folder: tree,
            private: &private,
            bundle: &self.bundle(),
            rules: &rules,
            key: &from.uid,
            favour: match strategy {
                MergeStrategy::Stop => Favour::Neither,
                MergeStrategy::Ours => Favour::Ours,
                MergeStrategy::Theirs => Favour::Theirs,
            },
            seconds: i64::try_from(seconds).unwrap_or_default(),
            limits: Limits { bytes: MAX_CHANGED, untracked: MAX_CHANGED },
            dry_run: *dry_run,
        };
        let merged = merge(&asked, &mut || {}).map_err(|error| refusal(&error, &from.name))?;
        Ok(outcome(merged, *dry_run, notes))
    }
}

fn line<T: DeserializeOwned>(input: &mut impl BufRead, most: usize) -> Result<T, Refusal> {
    let mut bytes = Vec::new();
    let read = input.take(most as u64).read_until(b'\n', &mut bytes);
    read.map_err(|error| failed("the request cannot be read", &error))?;
    serde_json::from_slice(&bytes).map_err(|error| refused(RefusalReason::Invalid, format!("the request to merge is none: {error}")))
}

fn outcome(merged: Merged, dry_run: bool, mut notes: Vec<String>) -> MergeOutcome {
    let Merged { theirs, conflicts, paths, not_remembered } = merged;
    if let Some(why) = not_remembered {
        notes.push(format!("what was merged could not be remembered, so that the next merge may find conflicts in it: {why}"));
    }
    let text = |path: &[u8]| String::from_utf8_lossy(path).into_owned();
    let conflicts = conflicts.iter().map(|conflict| MergeConflict { path: text(&conflict.path), why: sentence(&conflict.why) });
    // A conflict leaves a path alone, so that none of these is one.
    let paths = paths.iter().map(|path| MergedPath { path: text(&path.path), change: path.outcome.name().to_owned() });
    MergeOutcome::new(theirs, dry_run, conflicts.collect(), paths.collect(), notes)
}

fn sentence(why: &ConflictWhy) -> String {
    match why {
        ConflictWhy::Git(kind) if kind == "contents" => "both have changed it in the same place".to_owned(),
        ConflictWhy::Git(kind) => format!("both have changed it: {kind}"),
        ConflictWhy::Tree(why) => match why {
            Why::BothChanged => "it was changed in the tree meanwhile".to_owned(),
            Why::InTheWay => "another file is there, which git ignores".to_owned(),
            Why::Folder => "a folder is there, with something in it that git ignores".to_owned(),
            Why::Below(file) => format!("{file} is no folder in the tree"),
            Why::Repository(folder) => format!("{folder} is a repository of its own, of which nothing is merged"),
            Why::LeftOut => "it is not checked out in the tree".to_owned(),
            Why::Name(why) => (*why).to_owned(),
            Why::Case(other) => format!("the disk cannot tell it from {other}"),
            Why::Links => "it is a link, and the disk holds none".to_owned(),
            Why::Changing => "it was written in the tree while the merge was laid".to_owned(),
            Why::OtherDisk => "it is on another disk than the repository".to_owned(),
            Why::Failed(why) => why.clone(),
        },
    }
}

/// Nothing was merged, and why.
fn refusal(error: &MergeError, from: &str) -> Refusal {
    let why = error_chain(error);
    let not_git = |message: String| refused(RefusalReason::NotGit, message);
    match error {
        MergeError::Unrelated | MergeError::Check(CheckError::NotOnOurs(_)) => not_git(format!(
            "nothing was merged: {from} was not made from this tree, nor both from one commit, so nothing tells what each has changed ({why})"
        )),
        MergeError::Apply(ApplyError::Tree(CaptureError::NoWorkTree { .. })) => {
            not_git("nothing was merged: this tree is no git repository".to_owned())
        }
        MergeError::Apply(ApplyError::UnderWay(verb)) => {
            refused(RefusalReason::Invalid, format!("nothing was merged: a {verb} is under way in this tree: finish it or abort it first"))
        }
        MergeError::Apply(ApplyError::Busy) => refused(RefusalReason::Invalid, "another merge is being laid on this tree: try again"),
        MergeError::Apply(ApplyError::Tree(
            CaptureError::TooLarge { .. } | CaptureError::Untracked { .. } | CaptureError::Changing(_) | CaptureError::NothingIncluded(_),
        )) => refused(RefusalReason::Invalid, format!("nothing was merged: {why}; let git ignore what is no source")),
        MergeError::Check(_) => refused(RefusalReason::Invalid, format!("nothing was merged: the work of {from} is refused: {why}")),
        MergeError::HalfLaid(_) => refused(RefusalReason::ReceiverFailed, format!("{why}; look at these files, and merge again")),
        MergeError::Apply(ApplyError::Tree(CaptureError::Git(_))) => {
            refused(RefusalReason::ReceiverFailed, format!("nothing was merged: {why}"))
        }
    }
}
