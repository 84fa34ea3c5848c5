//! The work of another working tree merged into this one: three-way, by git, all of it or nothing.
//!
//! # Flow
//! The bundle is checked, this tree is captured, git merges both without touching either, and what comes out is laid on the tree by [`apply`].
//! Nothing is committed: HEAD and index are as they were, and the person sees the merge as changes of their own.
//!
//! The commit that was merged last is remembered under `refs/yoi/merged`. The next merge begins there, so that what was merged once is no conflict later.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::apply::{Application, Applied, AppliedPath, ApplyError, Outcome, Why, apply, check_free};
use crate::capture::{Asked, CaptureError, Captured, Limits, Place, Source, args, capture, place};
use crate::check::{CheckError, Rules, check};
use crate::git::{Git, GitError, failed};

/// Where the commits that were merged last are remembered.
const REMEMBERED: &str = "refs/yoi/merged";
/// A merge driver of ours, and the file that says where it counts: everywhere.
const DRIVER: &str = "yoi-favour";
const ATTRIBUTES: &str = "* merge=yoi-favour\n";

/// What is merged into which working tree.
#[derive(Clone, Debug)]
pub struct Merge<'a> {
    /// Any folder of the working tree.
    pub folder: &'a Path,
    /// An empty folder of ours, by its whole path, for what is only needed meanwhile.
    pub private: &'a Path,
    /// The other side's work.
    pub bundle: &'a Path,
    /// What the bundle may be.
    pub rules: &'a Rules<'a>,
    /// Whose work it is: a name under which it is remembered, of letters, digits and dashes.
    pub key: &'a str,
    /// Who is right about lines that both have changed.
    pub favour: Favour,
    /// The moment, in seconds since 1970.
    pub seconds: i64,
    /// What is too much of this tree.
    pub limits: Limits,
    /// Nothing is written to the working tree or the repository.
    pub dry_run: bool,
}

/// Who is right about lines that both sides have changed, each in its own way. What one side has deleted and the other changed is a conflict all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Favour {
    /// Nobody: they are a conflict.
    Neither,
    /// This tree.
    Ours,
    /// The other one.
    Theirs,
}

/// What became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Merged {
    /// The other side's commit.
    pub theirs: String,
    /// Why nothing was merged; empty when all was.
    pub conflicts: Vec<Conflict>,
    /// The paths of this tree that are others now, or would be.
    pub paths: Vec<AppliedPath>,
    /// Why the next merge cannot begin where this one ended; `None` when it does, or when nothing was written.
    pub not_remembered: Option<String>,
}

/// A path that could not be merged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// As git writes it.
    pub path: Vec<u8>,
    /// What is wrong with it.
    pub why: ConflictWhy,
}

/// Why a path could not be merged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConflictWhy {
    /// Both sides have changed it: the kind of the conflict, in git's words.
    Git(String),
    /// The working tree cannot take what came out of the merge.
    Tree(Why),
}

/// Why nothing was merged.
#[derive(Debug, thiserror::Error)]
pub enum MergeError {
    /// The bundle is refused.
    #[error(transparent)]
    Check(#[from] CheckError),
    /// This tree cannot be captured, or nothing can be laid on it.
    #[error(transparent)]
    Apply(#[from] ApplyError),
    /// There is nothing that both sides began with.
    #[error("the commits of both sides have none in common, so nothing tells what each has changed")]
    Unrelated,
    /// What was laid before another process wrote to the tree could not be taken back.
    #[error("files were written while the merge was laid, and what was laid of it could not be taken back: {}", .0.join(", "))]
    HalfLaid(Vec<String>),
}

impl From<GitError> for MergeError {
    fn from(error: GitError) -> Self {
        MergeError::Apply(error.into())
    }
}

impl From<CaptureError> for MergeError {
    fn from(error: CaptureError) -> Self {
        MergeError::Apply(error.into())
    }
}

/// Merges the work in a bundle into the working tree. `step` is called before each change of it.
///
/// # Guarantees
/// - All paths are merged, or none: with a conflict, files, index, refs and objects are as they were.
/// - HEAD, index and stash stay as they are; of refs only the one that remembers the merge is written.
/// - What comes out is what `git merge` makes of the two trees, each committed as it is.
/// - A merge that was killed in the middle is finished when it is asked for again.
///
/// # Errors
/// Nothing was merged.
pub fn merge(asked: &Merge<'_>, step: &mut dyn FnMut()) -> Result<Merged, MergeError> {
    let source = Source::WorkTree(asked.folder.to_owned());
    // A folder in no repository is told as that.
    place(&source, asked.private)?;
    check_free(&source)?;
    let file = |path: &Path| {
        let path = path.to_owned();
        move |error| GitError::File(path, error)
    };
    // One folder for all objects: those of the bundle, of the captured tree and of the merge.
    let objects = asked.private.join("objects");
    std::fs::create_dir_all(&objects).map_err(file(&objects))?;
    let theirs = check(asked.bundle, asked.folder, &objects, asked.rules)?.commit;
    let captured = capture(&source, &Asked { private: asked.private, include: &[], seconds: asked.seconds, limits: asked.limits })?;
    let place = place(&source, asked.private)?;
    let sides = Sides::new(&place, captured, &theirs, asked)?;
    let (tree, conflicts) = sides.merged(&place, asked)?;
    let mut merged = Merged { theirs, conflicts, paths: Vec::new(), not_remembered: None };
    if !merged.conflicts.is_empty() {
        return Ok(merged);
    }
    let out = commit_of(&place.git, &tree, Some(&sides.ours), asked.seconds)?;
    let lay = |base: &str, to: &str, dry_run: bool, name: &str, step: &mut dyn FnMut()| -> Result<Applied, MergeError> {
        let private = asked.private.join(name);
        std::fs::create_dir_all(&private).map_err(file(&private))?;
        let (source, here, windows_names) = (&source, asked.folder, asked.rules.windows_names);
        let label = asked.key;
        Ok(apply(
            &Application { source, here, private: &private, objects: &objects, base, theirs: to, label, windows_names, dry_run },
            step,
        )?)
    };
    let would = lay(&sides.ours, &out, true, "look", &mut || {})?;
    merged.conflicts = left_alone(&would);
    merged.paths = would.paths;
    if !merged.conflicts.is_empty() || asked.dry_run {
        merged.paths.retain(|path| merged.conflicts.is_empty() && path.outcome != Outcome::Same);
        return Ok(merged);
    }
    let done = lay(&sides.ours, &out, false, "lay", step)?;
    merged.conflicts = left_alone(&done);
    if !merged.conflicts.is_empty() {
        // Something was written in this very moment. What was laid goes back, and what was written stays.
        let back = lay(&out, &sides.ours, false, "back", step)?;
        let stay: Vec<Vec<u8>> = merged.conflicts.iter().map(|conflict| conflict.path.clone()).collect();
        let half: Vec<String> =
            left_alone(&back).into_iter().filter(|left| !stay.contains(&left.path)).map(|left| text(&left.path)).collect();
        merged.paths = Vec::new();
        return if half.is_empty() { Ok(merged) } else { Err(MergeError::HalfLaid(half)) };
    }
    merged.paths = done.paths.into_iter().filter(|path| path.outcome != Outcome::Same).collect();
    merged.not_remembered = remember(asked).err().map(|error| error.to_string());
    Ok(merged)
}

fn text(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}

fn left_alone(applied: &Applied) -> Vec<Conflict> {
    let left = applied.paths.iter().filter_map(|path| match &path.outcome {
        Outcome::LeftAlone(why) => Some(Conflict { path: path.path.clone(), why: ConflictWhy::Tree(why.clone()) }),
        Outcome::Added | Outcome::Changed | Outcome::Deleted | Outcome::Same => None,
    });
    left.collect()
}

/// The two commits that git merges, which have a commit in common.
struct Sides {
    /// This tree as it is, by the commit that was captured.
    ours: String,
    /// What git is told of both: the same trees, with a history of two commits where a merge is remembered.
    merged: [String; 2],
}

impl Sides {
    fn new(place: &Place, captured: Captured, theirs: &str, asked: &Merge<'_>) -> Result<Self, MergeError> {
        let git = &place.git;
        let remembered = git.try_run(&["rev-parse", "--verify", "--quiet", &format!("{}^{{commit}}", reference(asked.key))], &[])?;
        if remembered.status.success() {
            let last = text(&remembered.stdout).trim().to_owned();
            let theirs_tree = git.line(&["rev-parse", "--verify", &format!("{theirs}^{{tree}}")])?;
            let of = |tree: &str| commit_of(git, tree, Some(&last), asked.seconds);
            return Ok(Sides { merged: [of(&captured.tree)?, of(&theirs_tree)?], ours: captured.commit });
        }
        if !git.succeeds(&["merge-base", &captured.commit, theirs])? {
            return Err(MergeError::Unrelated);
        }
        Ok(Sides { merged: [captured.commit.clone(), theirs.to_owned()], ours: captured.commit })
    }

    /// The tree that git makes of both, and its conflicts.
    fn merged(&self, place: &Place, asked: &Merge<'_>) -> Result<(String, Vec<Conflict>), MergeError> {
        let attributes = asked.private.join("attributes");
        let attributes_setting = format!("core.attributesFile={}", attributes.display());
        let driver = match asked.favour {
            Favour::Neither => None,
            Favour::Ours => Some(format!("merge.{DRIVER}.driver=git merge-file --quiet --ours %A %O %B")),
            Favour::Theirs => Some(format!("merge.{DRIVER}.driver=git merge-file --quiet --theirs %A %O %B")),
        };
        let git = self.beside_the_tree(place, asked)?;
        let mut words = args(&[]);
        if let Some(driver) = &driver {
            std::fs::write(&attributes, ATTRIBUTES).map_err(|error| GitError::File(attributes.clone(), error))?;
            words.extend(["-c", &attributes_setting, "-c", driver]);
        }
        let [ours, theirs] = &self.merged;
        words.extend(["merge-tree", "--write-tree", "-z", "--name-only", ours, theirs]);
        let output = git.try_run(&words, &[])?;
        let parsed = match output.status.code() {
            Some(0 | 1) => parse(&output.stdout),
            _ => None,
        };
        parsed.ok_or_else(|| failed(&words, &output.stderr).into())
    }
}

impl Sides {
    /// git at work in a folder of ours, because merge drivers have files where it works. The attributes are those of this tree, by an index of ours.
    fn beside_the_tree(&self, place: &Place, asked: &Merge<'_>) -> Result<Git, GitError> {
        let folder = asked.private.join("merge");
        std::fs::create_dir_all(&folder).map_err(|error| GitError::File(folder.clone(), error))?;
        let repository = place.git.line(&["rev-parse", "--absolute-git-dir"])?;
        let git = place.git.clone().started_in(&folder).with("GIT_DIR", repository).with("GIT_WORK_TREE", &folder);
        let git = git.with("GIT_INDEX_FILE", asked.private.join("merge-index"));
        git.run(&args(&["read-tree", &self.ours]), &[])?;
        Ok(git)
    }
}

/// Reads what `git merge-tree -z --name-only` prints: the tree, the paths in conflict, an empty record, and then messages, each with its paths and its kind.
fn parse(output: &[u8]) -> Option<(String, Vec<Conflict>)> {
    let mut records = output.split(|byte| *byte == 0);
    let tree = String::from_utf8(records.next()?.to_vec()).ok().filter(|tree| crate::is_hash(tree))?;
    let paths: Vec<Vec<u8>> = records.by_ref().take_while(|record| !record.is_empty()).map(<[u8]>::to_vec).collect();
    let mut kinds: BTreeMap<Vec<u8>, String> = BTreeMap::new();
    while let Some(count) = records.next().and_then(|count| std::str::from_utf8(count).ok()?.parse::<usize>().ok()) {
        let of: Vec<&[u8]> = records.by_ref().take(count).collect();
        let (Some(kind), Some(_)) = (records.next(), records.next()) else { break };
        let kind = text(kind);
        if let Some(inner) = kind.strip_prefix("CONFLICT (").and_then(|rest| rest.strip_suffix(')')) {
            for path in of {
                kinds.entry(path.to_vec()).or_insert_with(|| inner.to_owned());
            }
        }
    }
    let conflicts = paths.into_iter().map(|path| {
        let kind = kinds.get(&path).cloned().unwrap_or_else(|| "contents".to_owned());
        Conflict { path, why: ConflictWhy::Git(kind) }
    });
    Some((tree, conflicts.collect()))
}

/// A commit of ours, which no branch leads to.
fn commit_of(git: &Git, tree: &str, parent: Option<&str>, seconds: i64) -> Result<String, GitError> {
    let mut git = git.clone();
    let date = format!("@{seconds} +0000");
    for who in ["GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"] {
        git = git.with(who, "yoi");
    }
    for mail in ["GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"] {
        git = git.with(mail, "yoi@yoi.invalid");
    }
    for when in ["GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"] {
        git = git.with(when, date.clone());
    }
    let mut words = vec!["-c", "commit.gpgSign=false", "commit-tree", "-m", "A merge", tree];
    if let Some(parent) = parent {
        words.extend(["-p", parent]);
    }
    git.line(&words)
}

fn reference(key: &str) -> String {
    format!("{REMEMBERED}/{key}")
}

/// Takes the commits of the bundle into the repository. Whatever the person's own configuration says about fetches: one ref, and nothing else.
fn remember(asked: &Merge<'_>) -> Result<(), GitError> {
    let refspec = format!("+{}:{}", asked.rules.name, reference(asked.key));
    let bundle: PathBuf = asked.bundle.to_owned();
    let bundle = bundle.to_string_lossy();
    let strict = [
        "-c",
        "core.hooksPath=/dev/null",
        "-c",
        "fetch.fsckObjects=true",
        "-c",
        "protocol.file.allow=always",
        "-c",
        "maintenance.auto=false",
    ];
    let only = ["fetch", "--quiet", "--no-tags", "--no-prune", "--no-recurse-submodules", "--no-write-fetch-head", "--no-auto-maintenance"];
    Git::in_folder(asked.folder).run(&[&strict[..], &only[..], &[&*bundle, &*refspec]].concat(), &[]).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_git_says_of_a_merge_is_read_with_whatever_a_path_holds() {
        let tree = "1".repeat(40);
        assert_eq!(parse(format!("{tree}\0").as_bytes()), Some((tree.clone(), Vec::new())));
        let conflict = |path: &str, why: &str| Conflict { path: path.as_bytes().to_vec(), why: ConflictWhy::Git(why.to_owned()) };
        let output = format!(
            "{tree}\0a\nb\0c\0\0001\0a\nb\0Auto-merging\0Auto-merging a\0001\0a\nb\0CONFLICT (contents)\0words\n\0002\0c\0d\0CONFLICT (modify/delete)\0words\n\0"
        );
        let both = vec![conflict("a\nb", "contents"), conflict("c", "modify/delete")];
        assert_eq!(parse(output.as_bytes()), Some((tree, both)));
        for broken in ["", "no hash\0", "\0"] {
            assert_eq!(parse(broken.as_bytes()), None);
        }
    }
}
