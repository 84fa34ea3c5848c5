//! The state of a working tree as one commit.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::git::{Git, GitError, quoted};
use crate::scan::{Scan, believe_nothing, both, changed_since, has_folder, scan};

/// How often a capture begins again while files change.
const TRIES: usize = 3;
/// Paths that an error names.
const NAMED: usize = 5;
/// The index of the last capture, in the private folder.
const CAPTURED: &str = "captured.index";
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
    /// A folder that is in no repository of its own. One of ours, elsewhere, stands for it: it is made when it is not there.
    Folder {
        /// The folder.
        root: PathBuf,
        /// The repository of ours.
        repository: PathBuf,
    },
}

impl Source {
    /// git as this source's repository sees it.
    pub(crate) fn git(&self) -> Git {
        match self {
            Source::WorkTree(folder) => Git::in_folder(folder),
            Source::Folder { root, repository } => Git::in_folder(root).with("GIT_DIR", repository).with("GIT_WORK_TREE", root),
        }
    }

    /// A folder in the working tree.
    fn folder(&self) -> &Path {
        match self {
            Source::WorkTree(folder) | Source::Folder { root: folder, .. } => folder,
        }
    }
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
    /// Bytes of those of them that git does not track: nobody has said yet that they belong to the tree.
    pub untracked: u64,
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
    /// It is not taken without a question: files that git does not track.
    #[error("files that git does not track are {bytes} bytes; the largest: {}", .largest.join(", "))]
    Untracked {
        /// All of them.
        bytes: u64,
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
    /// The objects of the person; where there is no repository, those of the one that stands for it.
    pub their_objects: PathBuf,
    index: PathBuf,
}

/// Captures the state of a working tree.
///
/// # Errors
/// git fails, there is too much, or files do not rest.
pub fn capture(source: &Source, asked: &Asked<'_>) -> Result<Captured, CaptureError> {
    let place = place(source, asked.private)?;
    if matches!(source, Source::Folder { .. }) {
        forget_ignored(&place)?;
    }
    let (head, found) = both(|| place.git.try_run(&["rev-parse", "--verify", "--quiet", "HEAD^{commit}"], &[]), || scan(&place));
    let (head, found) = (head?, found?);
    let base = head.status.success().then(|| String::from_utf8_lossy(&head.stdout).trim().to_owned());
    found.check(&place, asked.limits)?;
    let include = included(&place, asked.include)?;
    let mut changing = Vec::new();
    for number in 0..TRIES {
        // What has changed since the first look is found by another one.
        let is_all = fill_index(&place, Some(&found).filter(|_| number == 0), &include)?;
        let has_repositories = !is_all || found.has_repositories || has_folder(&include);
        let (changed, tree) = both(|| changed_since(&place), || tree(&place, has_repositories));
        changing = changed?;
        if changing.is_empty() {
            let (tree, repositories) = tree?;
            let captured = commit(&place, asked.seconds, base, tree, repositories)?;
            // That of a clone begins with the person's each time.
            let _ = match source {
                Source::WorkTree(_) => std::fs::remove_file(&place.index),
                Source::Folder { .. } => std::fs::rename(&place.index, asked.private.join(CAPTURED)),
            };
            return Ok(captured);
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
    if let Source::Folder { repository, .. } = source {
        make_repository(repository)?;
    }
    let git = source.git();
    let args = ["rev-parse", "--path-format=absolute", "--show-toplevel", "--git-path", "index", "--git-path", "objects"];
    let found = git.try_run(&args, &[])?;
    let text = String::from_utf8_lossy(&found.stdout).into_owned();
    let [root, theirs, their_objects] = text.lines().collect::<Vec<_>>()[..] else {
        let why = String::from_utf8_lossy(&found.stderr).trim().to_owned();
        return Err(CaptureError::NoWorkTree { folder: source.folder().to_owned(), why });
    };
    // The times of files that the person's index knows make it quick.
    match copy_with_time(Path::new(theirs), &index) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => drop(std::fs::remove_file(&index)),
        Err(error) => return Err(GitError::File(index, error).into()),
    }
    let git = git
        .moved_to(Path::new(root))
        .with("GIT_OBJECT_DIRECTORY", &objects)
        .with("GIT_ALTERNATE_OBJECT_DIRECTORIES", quoted(Path::new(their_objects)))
        .with("GIT_INDEX_FILE", &index);
    Ok(Place { git, root: PathBuf::from(root), their_objects: PathBuf::from(their_objects), index })
}

/// Makes the repository that stands for a folder, unless it is there.
///
/// # Errors
/// git fails.
pub fn make_repository(repository: &Path) -> Result<(), GitError> {
    // What git makes last.
    if repository.join("objects/info").exists() {
        return Ok(());
    }
    private_folder(repository).map_err(|error| GitError::File(repository.to_owned(), error))?;
    Git::in_folder(repository).run(&["init", "--quiet", "--bare", "--template="], &[]).map(drop)
}

/// Makes a folder with those above that are not there, for the person alone: what they send is in it.
fn private_folder(path: &Path) -> std::io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(path)
}

/// Lets the repository that stands for a folder know the files that the last capture has read: the next one reads only those that have changed, and nobody
/// is asked about them again. Does nothing for a clone: its index is the person's.
///
/// # Errors
/// The disk does not take it.
pub fn remember(source: &Source, private: &Path) -> Result<(), GitError> {
    let Source::Folder { repository, .. } = source else { return Ok(()) };
    let index = repository.join("index");
    match std::fs::rename(private.join(CAPTURED), &index) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(GitError::File(index, error)),
        _ => Ok(()),
    }
}

/// What was captured before, and is ignored by now, stays at home: in a folder without git nobody has ever said that it belongs to the tree.
fn forget_ignored(place: &Place) -> Result<(), GitError> {
    let ignored = place.git.run(&args(&["ls-files", "-z", "--cached", "--ignored", "--exclude-standard"]), &[])?;
    if !ignored.is_empty() {
        place.git.run(&args(&["update-index", "-z", "--force-remove", "--stdin"]), &ignored)?;
    }
    Ok(())
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

/// Returns whether what was found was all that had to be taken.
fn fill_index(place: &Place, found: Option<&Scan>, include: &[u8]) -> Result<bool, CaptureError> {
    let is_all = match found {
        Some(found) => found.add(place)?,
        None => false,
    };
    if !is_all {
        believe_nothing(place)?;
        place.git.run(&args(&["add", "--all", "--", "."]), &[])?;
    }
    if !include.is_empty() {
        place.git.run(&args(&["update-index", "-z", "--add", "--remove", "--stdin"]), include)?;
    }
    Ok(is_all)
}

/// The tree of the private index, and the repositories within it, where there may be some.
fn tree(place: &Place, has_repositories: bool) -> Result<(String, Vec<String>), GitError> {
    let tree = place.git.line(&args(&["write-tree"]))?;
    if !has_repositories {
        return Ok((tree, Vec::new()));
    }
    let listed = place.git.run(&args(&["ls-files", "-z", "--stage"]), &[])?;
    // `160000 HASH STAGE<tab>PATH`.
    let inner = records(&listed).filter_map(|record| record.strip_prefix(b"160000 ")?.splitn(2, |byte| *byte == b'\t').nth(1));
    Ok((tree, inner.map(|path| String::from_utf8_lossy(path).into_owned()).collect()))
}

fn commit(place: &Place, seconds: i64, base: Option<String>, tree: String, repositories: Vec<String>) -> Result<Captured, CaptureError> {
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
