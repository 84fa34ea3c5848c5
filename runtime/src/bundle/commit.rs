//! Commits as the agent what it has not committed.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use yoi_engine::processes::{CapturedOutput, ProcessSupervisor};
use yoi_engine::tree_git;
use yoi_wire::bundle::CommitRequest;

use crate::git_repository::{GitError, GitRepository, Untracked, untracked};
use crate::hidden_paths::HiddenPaths;

const TIMEOUT: Duration = Duration::from_secs(20);
const MAX_ANSWER_BYTES: usize = 64 << 10;
/// As the agent: its own configuration says name and address. No signature, because that may ask for something.
///
/// Filters do run, as they would for the agent: without the one of git LFS or of git-crypt, another content would be committed. So this is for the agent's
/// own Pod only, where a filter is one more program of the agent, in the frame.
const ARGS: [&str; 2] = ["-c", "commit.gpgSign=false"];

/// Why nothing was committed.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    #[error("failed to commit")]
    Git(#[from] GitError),
    #[error("the tree is no git repository, so nothing can be committed")]
    NoRepository,
    #[error("{0}")]
    Message(String),
    #[error("a merge is not finished in the agent's tree, and its conflicts would be committed: let the agent finish or abort it")]
    Conflicts,
    #[error("the names of what has changed take more than {} MiB: let the agent commit it", untracked::MAX_LIST_BYTES >> 20)]
    TooMuch,
}

/// Commits all changes of the tree, new files among them, onto what is checked out. Returns the new commit, or `None` when there is nothing to commit.
/// Repositories in folders of the tree that are no submodules are left out.
///
/// # Errors
/// The tree is no repository, conflicts of a merge are in it, or git fails.
pub async fn commit(processes: &ProcessSupervisor, tree: &Path, request: &CommitRequest) -> Result<Option<String>, CommitError> {
    request.validate().map_err(CommitError::Message)?;
    // It also refuses a repository that is not in the tree.
    let repository = GitRepository::open(processes, tree).await?.ok_or(CommitError::NoRepository)?;
    // What is hidden from the agent looks as if it were removed.
    let hidden = HiddenPaths::read(tree, "");
    drop(repository);
    if !git(processes, &["ls-files", "--unmerged"]).await?.stdout.is_empty() {
        return Err(CommitError::Conflicts);
    }
    // `git add --all` would start a git in each submodule, fail at a repository without a commit, and add one that has a commit as a submodule.
    let changed = list(processes, &["diff-files", "--name-only", "-z", "--ignore-submodules=dirty"]).await?;
    let changed: Vec<u8> = changed
        .split_inclusive(|byte| *byte == 0)
        .filter(|name| !hidden.has(name.strip_suffix(b"\0").unwrap_or(name)))
        .flatten()
        .copied()
        .collect();
    let untracked = Untracked::parse(&list(processes, &untracked::LIST).await?, false);
    let new = untracked.files.iter().filter(|file| !hidden.has(file)).flat_map(|file| [file.as_slice(), &b"\0"[..]]);
    let names = untracked::stdin_of([changed.as_slice()].into_iter().chain(new)).map_err(GitError::Run)?;
    run(processes, &["update-index", "-z", "--add", "--remove", "--replace", "--stdin"], names, MAX_ANSWER_BYTES).await?;
    let status = git(processes, &["status", "--porcelain=v1", "--untracked-files=no", "--ignore-submodules=dirty"]).await?.stdout;
    // A line that begins with a blank is about what is in the tree alone.
    if !status.split(|byte| *byte == b'\n').any(|line| line.first().is_some_and(|letter| *letter != b' ')) {
        return Ok(None);
    }
    git(processes, &["commit", "--quiet", "--no-verify", "--message", &request.message]).await?;
    let hash = git(processes, &["rev-parse", "--verify", "HEAD"]).await?;
    Ok(Some(String::from_utf8_lossy(&hash.stdout).trim().to_owned()))
}

/// Names, each ended by a zero byte.
async fn list(processes: &ProcessSupervisor, args: &[&str]) -> Result<Vec<u8>, CommitError> {
    let output = run(processes, args, Stdio::null(), untracked::MAX_LIST_BYTES).await?;
    if output.truncated { Err(CommitError::TooMuch) } else { Ok(output.stdout) }
}

async fn git(processes: &ProcessSupervisor, args: &[&str]) -> Result<CapturedOutput, GitError> {
    run(processes, args, Stdio::null(), MAX_ANSWER_BYTES).await
}

async fn run(processes: &ProcessSupervisor, args: &[&str], stdin: Stdio, limit: usize) -> Result<CapturedOutput, GitError> {
    let all = [&tree_git::ARGS[..], &ARGS, args].concat();
    let env: Vec<(&str, &OsStr)> =
        tree_git::ENV.iter().chain(&[("GIT_EDITOR", "false")]).map(|(name, value)| (*name, OsStr::new(*value))).collect();
    let output = processes.capture_with_stdin("git", &all, &env, stdin, TIMEOUT, limit).await.map_err(GitError::Run)?;
    if output.success {
        return Ok(output);
    }
    Err(GitError::Failed(format!("git {} said: {}", args.first().unwrap_or(&""), output.stderr.trim())))
}
