//! The state of a working tree as one commit.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::git::{Git, GitError, quoted};

/// How often a capture begins again while files change.
const TRIES: usize = 3;
/// Paths that an error names.
const NAMED: usize = 5;
/// The index is whole, so that no other file is written with it; nothing of the person's index is told to another program, no hook is run when ours is
/// written, and no letter is refused.
const OWN_INDEX: [&str; 14] = [
    "-c",
    "core.hooksPath=/dev/null",
    "-c",
    "core.splitIndex=false",
    "-c",
    "core.fsmonitor=false",
    "-c",
    "core.untrackedCache=false",
    "-c",
    "core.safecrlf=false",
    "-c",
    "advice.addEmbeddedRepo=false",
    "-c",
    "gc.auto=0",
];

/// What is captured.
#[derive(Clone, Debug)]
pub enum Source {
    /// The working tree of a git repository, by any folder in it.
    WorkTree(PathBuf),
    /// A folder that is in no repository of its own.
    Folder(PathBuf),
}

/// How a capture is made.
#[derive(Clone, Debug)]
pub struct Asked<'a> {
    /// A folder of ours for the index and the objects. It stays: what is in it makes the next capture quick.
    pub private: &'a Path,
    /// Ignored files that are taken all the same, as patterns of git with `**`.
    pub include: &'a [String],
    /// The moment, in seconds since 1970, which the commit bears.
    pub seconds: i64,
    /// What is too much.
    pub limits: Limits,
}

/// What is too much to be captured without a question.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of the files that HEAD does not hold as they are.
    pub bytes: u64,
}

/// A captured tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Captured {
    /// The commit, which no branch leads to.
    pub commit: String,
    /// Its tree. Two captures of the same state have the same.
    pub tree: String,
    /// What was checked out: its only parent. `None` where nothing was ever committed.
    pub base: Option<String>,
    /// Submodules and other repositories within the tree: of each only the commit that it has checked out.
    pub repositories: Vec<String>,
}

/// Why there is no capture.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// git failed, or a file of ours.
    #[error(transparent)]
    Git(#[from] GitError),
    /// The folder is in no repository.
    #[error("{} is in no git work tree: {why}", .folder.display())]
    NoWorkTree {
        /// The folder.
        folder: PathBuf,
        /// git's words.
        why: String,
    },
    /// It is not taken without a question.
    #[error("what has changed is {bytes} bytes, and at most {most} are taken without a question; the largest: {}", .largest.join(", "))]
    TooLarge {
        /// All of it.
        bytes: u64,
        /// The limit.
        most: u64,
        /// Paths with their sizes.
        largest: Vec<String>,
    },
    /// Files were written the whole time.
    #[error("files change while they are read: {}; wait until nothing writes to them", .0.join(", "))]
    Changing(Vec<String>),
    /// A pattern that no ignored file fits, most likely a typing mistake.
    #[error("no ignored file fits the pattern {0}")]
    NothingIncluded(String),
}

/// A working tree, and a git that writes only to the private folder.
pub(crate) struct Place {
    pub git: Git,
    pub root: PathBuf,
    /// The objects of the person; where there is no repository, the private ones.
    pub their_objects: PathBuf,
    index: PathBuf,
}

/// Captures the state of a working tree.
///
/// # Errors
/// git fails, there is too much, or files do not rest.
pub fn capture(source: &Source, asked: &Asked<'_>) -> Result<Captured, CaptureError> {
    let place = place(source, asked.private)?;
    let head = place.git.try_run(&["rev-parse", "--verify", "--quiet", "HEAD^{commit}"], &[])?;
    let base = head.status.success().then(|| String::from_utf8_lossy(&head.stdout).trim().to_owned());
    check_size(&place, asked.limits)?;
    let include = included(&place, asked.include)?;
    let mut changing = Vec::new();
    for _ in 0..TRIES {
        fill_index(&place, &include)?;
        changing = changed_since(&place)?;
        if changing.is_empty() {
            return commit(&place, asked.seconds, base);
        }
    }
    changing.truncate(NAMED);
    Err(CaptureError::Changing(changing))
}

/// Opens the repository so that nothing of it is written.
pub(crate) fn place(source: &Source, private: &Path) -> Result<Place, CaptureError> {
    let file = |path: &Path| {
        let path = path.to_owned();
        move |error| GitError::File(path, error)
    };
    let objects = private.join("objects");
    std::fs::create_dir_all(&objects).map_err(file(&objects))?;
    let index = private.join("index");
    // Of a capture that was killed. Only one at a time works in a private folder.
    let _ = std::fs::remove_file(private.join("index.lock"));
    match source {
        Source::WorkTree(folder) => {
            let git = Git::in_folder(folder);
            let args = ["rev-parse", "--path-format=absolute", "--show-toplevel", "--git-path", "index", "--git-path", "objects"];
            let found = git.try_run(&args, &[])?;
            let text = String::from_utf8_lossy(&found.stdout).into_owned();
            let [root, theirs, their_objects] = text.lines().collect::<Vec<_>>()[..] else {
                let why = String::from_utf8_lossy(&found.stderr).trim().to_owned();
                return Err(CaptureError::NoWorkTree { folder: folder.clone(), why });
            };
            // The times of files that the person's index knows make it quick.
            match copy_with_time(Path::new(theirs), &index) {
                Ok(()) => {}
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => drop(std::fs::remove_file(&index)),
                Err(error) => return Err(GitError::File(index, error).into()),
            }
            let git = Git::in_folder(Path::new(root))
                .with("GIT_OBJECT_DIRECTORY", &objects)
                .with("GIT_ALTERNATE_OBJECT_DIRECTORIES", quoted(Path::new(their_objects)))
                .with("GIT_INDEX_FILE", &index);
            Ok(Place { git, root: PathBuf::from(root), their_objects: PathBuf::from(their_objects), index })
        }
        Source::Folder(folder) => {
            let repository = private.join("repository");
            if !repository.join("HEAD").exists() {
                let path = repository.to_string_lossy().into_owned();
                Git::in_folder(private).run(&["init", "--quiet", "--bare", "--template=", &path], &[])?;
            }
            let git = Git::in_folder(folder)
                .with("GIT_DIR", &repository)
                .with("GIT_WORK_TREE", folder)
                .with("GIT_OBJECT_DIRECTORY", &objects)
                .with("GIT_INDEX_FILE", &index);
            Ok(Place { git, root: folder.clone(), their_objects: objects, index })
        }
    }
}

/// git looks closer at what was changed in the moment in which the index was written, so the copy must be as old as the index.
fn copy_with_time(from: &Path, to: &Path) -> std::io::Result<()> {
    let modified = std::fs::metadata(from)?.modified()?;
    std::fs::copy(from, to)?;
    std::fs::File::options().write(true).open(to)?.set_modified(modified)
}

pub(crate) fn args<'a>(words: &[&'a str]) -> Vec<&'a str> {
    [&OWN_INDEX[..], words].concat()
}

pub(crate) fn records(output: &[u8]) -> impl Iterator<Item = &[u8]> {
    output.split(|byte| *byte == 0).filter(|record| !record.is_empty())
}

/// Refuses what nobody wants to send by mistake, before a byte of it is read.
fn check_size(place: &Place, limits: Limits) -> Result<(), CaptureError> {
    let untracked = place.git.run(&args(&["ls-files", "-z", "--others", "--exclude-standard"]), &[])?;
    let changed = place.git.run(&args(&["diff-files", "-z", "--name-only", "--diff-filter=d", "--ignore-submodules"]), &[])?;
    let mut sizes: Vec<(u64, String)> = Vec::new();
    for record in records(&untracked).chain(records(&changed)).collect::<BTreeSet<_>>() {
        let path = place.root.join(path_of(record));
        let size = std::fs::symlink_metadata(path).map(|found| if found.is_file() { found.len() } else { 0 }).unwrap_or_default();
        sizes.push((size, String::from_utf8_lossy(record).into_owned()));
    }
    let bytes: u64 = sizes.iter().map(|(size, _)| size).sum();
    if bytes <= limits.bytes {
        return Ok(());
    }
    sizes.sort_by(|a, b| b.cmp(a));
    let largest = sizes.into_iter().take(NAMED).map(|(size, path)| format!("{path} ({size})")).collect();
    Err(CaptureError::TooLarge { bytes, most: limits.bytes, largest })
}

/// The ignored files that fit a pattern, each ended by a zero byte.
fn included(place: &Place, patterns: &[String]) -> Result<Vec<u8>, CaptureError> {
    let mut all = Vec::new();
    for pattern in patterns {
        let pathspec = format!(":(top,glob){pattern}");
        let words = args(&["ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--", &pathspec]);
        let found = place.git.run(&words, &[])?;
        if found.is_empty() {
            return Err(CaptureError::NothingIncluded(pattern.clone()));
        }
        all.extend(found);
    }
    Ok(all)
}

fn fill_index(place: &Place, include: &[u8]) -> Result<(), CaptureError> {
    believe_nothing(place)?;
    place.git.run(&args(&["add", "--all", "--", "."]), &[])?;
    if !include.is_empty() {
        place.git.run(&args(&["update-index", "-z", "--add", "--remove", "--stdin"]), include)?;
    }
    Ok(())
}

/// Lets git look at paths that the person has told it to believe unchanged, or left out: they said so for their own status. What is left out and not there
/// stays as the index has it.
pub(crate) fn believe_nothing(place: &Place) -> Result<(), CaptureError> {
    let flags = place.git.run(&args(&["ls-files", "-z", "-v"]), &[])?;
    let (mut assumed, mut left_out) = (Vec::new(), Vec::new());
    for record in records(&flags) {
        let (Some(flag), Some(path)) = (record.first(), record.get(2..)) else { continue };
        if flag.is_ascii_lowercase() {
            assumed.extend(path);
            assumed.push(0);
        }
        if flag.eq_ignore_ascii_case(&b's') && std::fs::symlink_metadata(place.root.join(path_of(path))).is_ok() {
            left_out.extend(path);
            left_out.push(0);
        }
    }
    for (flag, paths) in [("--no-assume-unchanged", assumed), ("--no-skip-worktree", left_out)] {
        if !paths.is_empty() {
            place.git.run(&args(&["update-index", "-z", flag, "--stdin"]), &paths)?;
        }
    }
    Ok(())
}

/// Paths that are not as they were when they were read.
fn changed_since(place: &Place) -> Result<Vec<String>, CaptureError> {
    place.git.try_run(&args(&["update-index", "-q", "--refresh"]), &[])?;
    let changed = place.git.run(&args(&["diff-files", "-z", "--name-only", "--ignore-submodules=dirty"]), &[])?;
    Ok(records(&changed).map(|record| String::from_utf8_lossy(record).into_owned()).collect())
}

fn commit(place: &Place, seconds: i64, base: Option<String>) -> Result<Captured, CaptureError> {
    let tree = place.git.line(&args(&["write-tree"]))?;
    let date: OsString = format!("@{seconds} +0000").into();
    let mut git = place.git.clone();
    // Not the person: they have not made this commit, and their name need not travel.
    for (name, value) in [
        ("GIT_AUTHOR_NAME", "yoi"),
        ("GIT_AUTHOR_EMAIL", "yoi@yoi.invalid"),
        ("GIT_COMMITTER_NAME", "yoi"),
        ("GIT_COMMITTER_EMAIL", "yoi@yoi.invalid"),
    ] {
        git = git.with(name, value);
    }
    let git = git.with("GIT_AUTHOR_DATE", date.clone()).with("GIT_COMMITTER_DATE", date);
    let mut words = vec!["-c", "commit.gpgSign=false", "commit-tree", "-m", "The working tree as it is", &tree];
    if let Some(base) = &base {
        words.extend(["-p", base]);
    }
    let commit = git.line(&words)?;
    let listed = place.git.run(&args(&["ls-files", "-z", "--stage"]), &[])?;
    // `160000 HASH STAGE<tab>PATH`.
    let inner = records(&listed).filter_map(|record| record.strip_prefix(b"160000 ")?.splitn(2, |byte| *byte == b'\t').nth(1));
    let repositories = inner.map(|path| String::from_utf8_lossy(path).into_owned()).collect();
    let _ = std::fs::remove_file(&place.index);
    Ok(Captured { commit, tree, base, repositories })
}

#[cfg(unix)]
pub(crate) fn path_of(record: &[u8]) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    PathBuf::from(std::ffi::OsStr::from_bytes(record))
}

#[cfg(not(unix))]
pub(crate) fn path_of(record: &[u8]) -> PathBuf {
    PathBuf::from(String::from_utf8_lossy(record).into_owned())
}
