//! Commits as the agent what it has not committed.

use std::ffi::OsStr;
use std::path::Path;
use std::time::Duration;

use yoi_engine::processes::{CapturedOutput, ProcessSupervisor};
use yoi_wire::bundle::CommitRequest;

use crate::git_repository::{GitError, GitRepository};

const TIMEOUT: Duration = Duration::from_secs(20);
const MAX_ANSWER_BYTES: usize = 64 << 10;
/// As the agent: its own configuration says name and address. No hook and no signature, because both may ask for something.
const ARGS: [&str; 8] =
    ["-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "safe.directory=*", "-c", "commit.gpgSign=false"];

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
}

/// Commits all changes of the tree, new files among them, onto what is checked out. Returns the new commit, or `None` when there is nothing to commit.
///
/// # Errors
/// The tree is no repository, conflicts of a merge are in it, or git fails.
pub async fn commit(processes: &ProcessSupervisor, tree: &Path, request: &CommitRequest) -> Result<Option<String>, CommitError> {
    request.validate().map_err(CommitError::Message)?;
    // It also refuses a repository that is not in the tree.
    let repository = GitRepository::open(processes, tree).await?.ok_or(CommitError::NoRepository)?;
    drop(repository);
    if !git(processes, &["ls-files", "--unmerged"]).await?.stdout.is_empty() {
        return Err(CommitError::Conflicts);
    }
    git(processes, &["add", "--all", "--", "."]).await?;
    if git(processes, &["status", "--porcelain=v1", "--untracked-files=no", "--ignore-submodules=dirty"]).await?.stdout.is_empty() {
        return Ok(None);
    }
    git(processes, &["commit", "--quiet", "--no-verify", "--message", &request.message]).await?;
    let hash = git(processes, &["rev-parse", "--verify", "HEAD"]).await?;
    Ok(Some(String::from_utf8_lossy(&hash.stdout).trim().to_owned()))
}

async fn git(processes: &ProcessSupervisor, args: &[&str]) -> Result<CapturedOutput, GitError> {
    let all = [&ARGS[..], args].concat();
    let env = [("GIT_TERMINAL_PROMPT", OsStr::new("0")), ("GIT_EDITOR", OsStr::new("false"))];
    let output = processes.capture("git", &all, &env, TIMEOUT, MAX_ANSWER_BYTES).await.map_err(GitError::Run)?;
    if output.success {
        return Ok(output);
    }
    Err(GitError::Failed(format!("git {} said: {}", args.first().unwrap_or(&""), output.stderr.trim())))
}
