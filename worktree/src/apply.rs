//! What another side made of a commit, laid on a working tree that went on by itself.
//!
//! A path that only the other side has changed becomes theirs; one that both have changed stays, and the other version is kept beside. Nothing is merged
//! within a file. Each step leaves a path as it was or as the other side has it, so that one that is killed goes on when it is asked for again.

mod disk;
mod ours;
mod plan;

use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use self::disk::Identity;
use self::plan::{Change, Decision, Ours, There, decide};
use crate::capture::{CaptureError, Place, Source, args, path_of, place};
use crate::git::{Git, GitError, quoted};

pub use plan::Why;

/// What git is in the middle of, by the file that says so.
const UNDER_WAY: [(&str, &str); 7] = [
    ("MERGE_HEAD", "merge"),
    ("rebase-merge", "rebase"),
    ("rebase-apply", "rebase"),
    ("CHERRY_PICK_HEAD", "cherry-pick"),
    ("REVERT_HEAD", "revert"),
    ("sequencer", "cherry-pick or revert"),
    ("BISECT_LOG", "bisect"),
];
/// Between the folders of a list of git's.
const LIST: &str = if cfg!(windows) { ";" } else { ":" };

/// What is laid on which working tree.
#[derive(Clone, Debug)]
pub struct Application<'a> {
    /// The working tree.
    pub source: &'a Source,
    /// The folder of it that the person is in, which is not removed under them.
    pub here: &'a Path,
    /// An empty folder of ours, for what is only needed meanwhile.
    pub private: &'a Path,
    /// A folder with objects that the repository does not have.
    pub objects: &'a Path,
    /// The commit that the other side began with.
    pub base: &'a str,
    /// The commit that the other side came to.
    pub theirs: &'a str,
    /// The folder of `yoi/conflicts` in the repository where other versions are kept: a name of a file.
    pub label: &'a str,
    /// Whether names that Windows cannot hold are refused, whatever `core.protectNTFS` says.
    pub windows_names: bool,
    /// Nothing is written to the working tree or the repository.
    pub dry_run: bool,
}

/// What became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// Every path that the other side has changed, in git's order.
    pub paths: Vec<AppliedPath>,
    /// What an application that was killed has left behind, files of the person perhaps: it is never deleted.
    pub left_behind: Option<PathBuf>,
}

/// One path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppliedPath {
    /// As git writes it.
    pub path: Vec<u8>,
    /// What happened; with `dry_run`, what would.
    pub outcome: Outcome,
    /// Where the other version is; `None` where it is not kept: the path was not left alone, the other side has deleted it, this disk cannot hold it, or
    /// nothing is written.
    pub kept: Option<PathBuf>,
}

/// What happened to a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is new.
    Added,
    /// It has the other side's content.
    Changed,
    /// It is gone.
    Deleted,
    /// It was so already.
    Same,
    /// It is as it was.
    LeftAlone(Why),
}

impl Outcome {
    /// The variant's name, as answers in JSON have it.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Outcome::Added => "Added",
            Outcome::Changed => "Changed",
            Outcome::Deleted => "Deleted",
            Outcome::Same => "Same",
            Outcome::LeftAlone(_) => "LeftAlone",
        }
    }
}

/// Why nothing was done.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// There is no working tree, or git failed.
    #[error(transparent)]
    Tree(#[from] CaptureError),
    /// The person is in the middle of something.
    #[error("a {0} is under way in this working tree")]
    UnderWay(&'static str),
    /// Another process of ours is at it.
    #[error("something else is laid on this working tree at the moment")]
    Busy,
}

impl From<GitError> for ApplyError {
    fn from(error: GitError) -> Self {
        ApplyError::Tree(error.into())
    }
}

/// Lays what the other side has changed on the working tree. `step` is called before each change of it.
///
/// # Guarantees
/// - Index, refs, stash and objects of the person stay byte-equal.
/// - No file is replaced or deleted that is not as the base has it, nor one that was written meanwhile.
/// - Said again, it does the same and no more: what was done is [`Outcome::Same`] then.
///
/// # Errors
/// Nothing was laid.
pub fn apply(asked: &Application<'_>, step: &mut dyn FnMut()) -> Result<Applied, ApplyError> {
    let place = place(asked.source, asked.private)?;
    let ours_folder = git_folder(&place.git)?;
    let place = with_their_objects(place, asked.objects);
    let changes = changes(&place.git, asked)?;
    let seen: Vec<Option<Identity>> = changes.iter().map(|change| Identity::at(&place.root.join(path_of(&change.path)))).collect();
    let disk = ours::settings(&place.git, asked.windows_names)?;
    let (ours, known) = ours::ours(&place, &changes, disk.ignores_case)?;
    let rows: Vec<(Change, Ours)> = changes.into_iter().zip(ours).collect();
    let decisions = decide(&rows, &disk, &known);
    let mut applied = Applied { paths: Vec::new(), left_behind: None };
    for ((change, _), decision) in rows.iter().zip(&decisions) {
        let outcome = match decision {
            Decision::Add => Outcome::Added,
            Decision::Replace => Outcome::Changed,
            Decision::Delete => Outcome::Deleted,
            Decision::Same => Outcome::Same,
            Decision::Leave(why) => Outcome::LeftAlone(why.clone()),
        };
        applied.paths.push(AppliedPath { path: change.path.clone(), outcome, kept: None });
    }
    if asked.dry_run || applied.paths.iter().all(|path| path.outcome == Outcome::Same) {
        return Ok(applied);
    }
    let laying = Laying::begin(&place, &ours_folder, asked)?;
    applied.left_behind.clone_from(&laying.left_behind);
    if let Err(error) = laying.stage(&place, asked.theirs, &rows, &applied.paths) {
        // Nothing of the person's is in it yet.
        let _ = std::fs::remove_dir_all(&laying.all);
        return Err(error.into());
    }
    laying.run(&rows, &seen, &mut applied.paths, step);
    Ok(applied)
}

/// Whether something can be laid on this working tree.
///
/// # Errors
/// The person is in the middle of something, or git does not open the repository.
pub fn check_free(source: &Source) -> Result<(), ApplyError> {
    git_folder(&source.git()).map(drop)
}

/// The folder of ours in the person's repository.
fn git_folder(git: &Git) -> Result<PathBuf, ApplyError> {
    let mut words = vec!["rev-parse", "--path-format=absolute", "--git-path", "yoi"];
    for (file, _) in UNDER_WAY {
        words.extend(["--git-path", file]);
    }
    let paths = String::from_utf8_lossy(&git.run(&words, &[])?).into_owned();
    let mut paths = paths.lines().map(PathBuf::from);
    let ours = paths.next().unwrap_or_default();
    match paths.zip(UNDER_WAY).find(|(path, _)| std::fs::symlink_metadata(path).is_ok()) {
        Some((_, (_, verb))) => Err(ApplyError::UnderWay(verb)),
        None => Ok(ours),
    }
}

fn with_their_objects(mut place: Place, objects: &Path) -> Place {
    let mut list = quoted(&place.their_objects);
    list.push(LIST);
    list.push(quoted(objects));
    place.git = place.git.with("GIT_ALTERNATE_OBJECT_DIRECTORIES", list);
    place
}

/// The paths that the other side has changed.
fn changes(git: &Git, asked: &Application<'_>) -> Result<Vec<Change>, GitError> {
    let words = ["diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev", "--ignore-submodules=none", asked.base, asked.theirs];
    Ok(ours::changes(&git.run(&words, &[])?))
}

/// The folders of ours while something is laid.
struct Laying<'a> {
    root: &'a Path,
    /// The folder that the person is in, which is not removed under them.
    here: PathBuf,
    /// The other side's files, each at its own path.
    new: PathBuf,
    /// Files of the person that were deleted.
    gone: PathBuf,
    all: PathBuf,
    kept: PathBuf,
    left_behind: Option<PathBuf>,
    /// It is free again when this is dropped.
    _lock: File,
}

impl<'a> Laying<'a> {
    fn begin(place: &'a Place, folder: &Path, asked: &Application<'_>) -> Result<Self, ApplyError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |error: io::Error| ApplyError::from(GitError::File(path, error))
        };
        std::fs::create_dir_all(folder).map_err(failed(folder))?;
        let lock_path = folder.join("apply.lock");
        let lock = File::options().create(true).truncate(false).write(true).open(&lock_path).map_err(failed(&lock_path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(std::fs::TryLockError::WouldBlock) => return Err(ApplyError::Busy),
            Err(std::fs::TryLockError::Error(error)) => return Err(failed(&lock_path)(error)),
        }
        let all = folder.join("apply");
        let mut left_behind = None;
        if std::fs::symlink_metadata(&all).is_ok() {
            let free = (1..u32::MAX).map(|n| folder.join(format!("interrupted-{n}"))).find(|path| std::fs::symlink_metadata(path).is_err());
            if let Some(free) = free {
                disk::move_to_free(&all, &free).map_err(failed(&free))?;
                left_behind = Some(free);
            }
        }
        let (new, gone) = (all.join("new"), all.join("gone"));
        for path in [&new, &gone] {
            std::fs::create_dir_all(path).map_err(failed(path))?;
        }
        let kept = folder.join("conflicts").join(asked.label);
        let here = asked.here.canonicalize().map_err(failed(asked.here))?;
        Ok(Laying { root: &place.root, here, new, gone, all, kept, left_behind, _lock: lock })
    }

    /// Writes the other side's files as git would check them out, beside the working tree.
    fn stage(&self, place: &Place, theirs: &str, rows: &[(Change, Ours)], paths: &[AppliedPath]) -> Result<(), GitError> {
        let mut wanted = Vec::new();
        for ((change, _), path) in rows.iter().zip(paths) {
            let is_written = match &path.outcome {
                Outcome::Added | Outcome::Changed => true,
                // This disk cannot hold it, beside others at least.
                Outcome::LeftAlone(Why::Name(_) | Why::Case(_)) | Outcome::Deleted | Outcome::Same => false,
                Outcome::LeftAlone(_) => change.theirs.as_ref().is_some_and(|entry| entry.mode & 0o170_000 != 0o160_000),
            };
            if is_written {
                wanted.extend_from_slice(&change.path);
                wanted.push(0);
            }
        }
        if wanted.is_empty() {
            return Ok(());
        }
        let git = place.git.clone().with("GIT_INDEX_FILE", self.all.join("index"));
        git.run(&args(&["read-tree", theirs]), &[])?;
        let mut prefix = self.new.to_string_lossy().into_owned();
        prefix.push('/');
        git.run(&args(&["checkout-index", "--quiet", &format!("--prefix={prefix}"), "-z", "--stdin"]), &wanted).map(drop)
    }

    fn staged(&self, path: &[u8]) -> PathBuf {
        self.new.join(path_of(path))
    }

    /// Carries it out: first what is kept, then what goes, so that there is room, then what comes.
    fn run(&self, rows: &[(Change, Ours)], seen: &[Option<Identity>], paths: &mut [AppliedPath], step: &mut dyn FnMut()) {
        for path in paths.iter_mut().filter(|path| matches!(path.outcome, Outcome::LeftAlone(_))) {
            path.kept = self.keep(&path.path);
        }
        for deletes in [true, false] {
            for (((_, ours), seen), path) in rows.iter().zip(seen).zip(paths.iter_mut()) {
                let done = match path.outcome {
                    Outcome::Deleted if deletes => self.delete(&path.path, *seen, step),
                    Outcome::Added if !deletes => self.add(&path.path, ours, step),
                    Outcome::Changed if !deletes => self.replace(&path.path, *seen, step),
                    Outcome::Added | Outcome::Changed | Outcome::Deleted | Outcome::Same | Outcome::LeftAlone(_) => Ok(()),
                };
                if let Err(error) = done {
                    path.outcome = Outcome::LeftAlone(why(&error));
                    path.kept = self.keep(&path.path);
                }
            }
        }
        let _ = std::fs::remove_dir_all(&self.all);
    }

    /// Keeps the other version beside, and returns where it is. One that is there already is the same.
    fn keep(&self, path: &[u8]) -> Option<PathBuf> {
        let (from, to) = (self.staged(path), self.kept.join(path_of(path)));
        std::fs::symlink_metadata(&from).ok()?;
        std::fs::create_dir_all(to.parent()?).ok()?;
        match disk::move_to_free(&from, &to) {
            Ok(()) => Some(to),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Some(to),
            Err(_) => None,
        }
    }

    fn delete(&self, path: &[u8], seen: Option<Identity>, step: &mut dyn FnMut()) -> io::Result<()> {
        let full = self.still_reached(path)?;
        let to = self.gone.join(path_of(path));
        if let Some(folder) = to.parent() {
            std::fs::create_dir_all(folder)?;
        }
        step();
        disk::take_away(&full, &to, seen.ok_or(ErrorKind::ResourceBusy)?)?;
        disk::remove_empty_folders(self.root, &full, &self.here);
        Ok(())
    }

    fn replace(&self, path: &[u8], seen: Option<Identity>, step: &mut dyn FnMut()) -> io::Result<()> {
        let full = self.still_reached(path)?;
        step();
        disk::replace(&self.staged(path), &full, seen.ok_or(ErrorKind::ResourceBusy)?)
    }

    fn add(&self, path: &[u8], ours: &Ours, step: &mut dyn FnMut()) -> io::Result<()> {
        let full = self.root.join(path_of(path));
        step();
        // The folder of files that were deleted is gone with the last of them, but for one that was empty or has only such in it.
        match disk::look(self.root, path)? {
            There::Nothing => {}
            There::Folder(_) | There::File | There::Special | There::Below(_) | There::Inside(_) => {
                return Err(ErrorKind::ResourceBusy.into());
            }
        }
        debug_assert!(ours.entry.is_none(), "only what the person does not have is added");
        if let Some(folder) = full.parent() {
            std::fs::create_dir_all(folder)?;
        }
        disk::move_to_free(&self.staged(path), &full)
    }

    /// The path of a file that no link leads to.
    fn still_reached(&self, path: &[u8]) -> io::Result<PathBuf> {
        match disk::look(self.root, path)? {
            There::File => Ok(self.root.join(path_of(path))),
            There::Nothing | There::Folder(_) | There::Special | There::Below(_) | There::Inside(_) => Err(ErrorKind::ResourceBusy.into()),
        }
    }
}

fn why(error: &io::Error) -> Why {
    match error.kind() {
        ErrorKind::ResourceBusy | ErrorKind::AlreadyExists => Why::Changing,
        ErrorKind::CrossesDevices => Why::OtherDisk,
        _ => Why::Failed(error.to_string()),
    }
}
