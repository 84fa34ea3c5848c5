//! The git repository of the tree, read with a copy of its index, so that nothing in the tree is written.
//!
//! The agent can change every file of the repository. git is started so that it runs no program which these files name, and the paths that they
//! name must be in the tree.

use std::ffi::OsStr;
use std::fs::{File, FileTimes};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use tokio::io::AsyncReadExt;
use tokio::process::ChildStdout;
use uuid::Uuid;
use yoi_engine::processes::{CapturedOutput, ProcessSupervisor, SupervisedProcess};

const TIMEOUT: Duration = Duration::from_secs(20);
/// With [`GIT_ENV`] and [`GIT_ARGS`] git starts no program that the tree's configuration names, and prompts for nothing.
const GIT_ENV: [(&str, &str); 4] =
    [("GIT_CONFIG_NOSYSTEM", "1"), ("GIT_CONFIG_GLOBAL", "/dev/null"), ("GIT_OPTIONAL_LOCKS", "0"), ("GIT_TERMINAL_PROMPT", "0")];
/// Commits are what their hashes say: no replacements and no grafts.
const TRUE_HISTORY: [(&str, &str); 2] = [("GIT_NO_REPLACE_OBJECTS", "1"), ("GIT_GRAFT_FILE", "/dev/null")];
const GIT_ARGS: [&str; 6] = ["-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "safe.directory=*"];
/// Bytes of an answer that is a path, a commit or a number.
const MAX_ANSWER_BYTES: usize = 64 << 10;
/// Bytes of one read of a long output.
const CHUNK: usize = 64 << 10;

/// Why the repository cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    #[error("failed to run git")]
    Run(#[source] std::io::Error),
    #[error("failed to read the tree's repository: {0}")]
    Failed(String),
    #[error("failed to read the tree's repository: it is outside of the tree, at {}", .0.display())]
    Outside(PathBuf),
}

/// The repository in the root of the tree.
pub struct GitRepository<'a> {
    processes: &'a ProcessSupervisor,
    objects: String,
    temp: TempDir,
}

impl<'a> GitRepository<'a> {
    /// `None` where the tree is no git work tree.
    ///
    /// # Errors
    /// git fails, or the repository leads out of the tree.
    pub async fn open(processes: &'a ProcessSupervisor, tree: &Path) -> Result<Option<Self>, GitError> {
        if !tree.join(".git").exists() {
            return Ok(None);
        }
        let temp = TempDir::new().map_err(GitError::Run)?;
        let queries = ["--git-dir", "--git-common-dir", "--show-toplevel", "--git-path", "index", "--git-path", "objects"];
        let answer = run(processes, &[&["rev-parse", "--path-format=absolute"], &queries[..]].concat(), &[], MAX_ANSWER_BYTES).await?;
        let paths = String::from_utf8_lossy(&succeeded("rev-parse", answer)?.stdout).into_owned();
        let [dir, common, top_level, index, objects] = paths.lines().collect::<Vec<_>>()[..] else {
            return Err(GitError::Failed(format!("git printed {} paths instead of five", paths.lines().count())));
        };
        // Files in the tree say where these paths are, and the agent can write those files.
        let tree = tree.canonicalize().map_err(GitError::Run)?;
        for path in [dir, common, top_level, objects] {
            resolve_beneath(&tree, Path::new(path))?;
        }
        match resolve_beneath(&tree, Path::new(index)) {
            Ok(index) => copy_file(&index, &temp.index()).map_err(GitError::Run)?,
            // The repository has no index before its first `git add`.
            Err(GitError::Run(error)) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        Ok(Some(Self { processes, objects: objects.to_owned(), temp }))
    }

    /// Runs git, and returns at most `limit` bytes of its output.
    ///
    /// # Errors
    /// It does not start, takes longer than 20 s, or does not end with code 0.
    pub async fn git(&self, args: &[&str], limit: usize) -> Result<CapturedOutput, GitError> {
        succeeded(args[0], self.try_git(args, limit).await?)
    }

    async fn try_git(&self, args: &[&str], limit: usize) -> Result<CapturedOutput, GitError> {
        let index = self.temp.index();
        run(self.processes, args, &self.extra_env(&index), limit).await
    }

    fn extra_env<'b>(&'b self, index: &'b Path) -> Vec<(&'b str, &'b OsStr)> {
        let own = [
            ("GIT_INDEX_FILE", index.as_os_str()),
            ("GIT_OBJECT_DIRECTORY", self.temp.0.as_os_str()),
            ("GIT_ALTERNATE_OBJECT_DIRECTORIES", OsStr::new(&self.objects)),
        ];
        own.into_iter().chain(TRUE_HISTORY.map(|(name, value)| (name, OsStr::new(value)))).collect()
    }

    /// Whether git ends with code 0.
    ///
    /// # Errors
    /// git cannot be run.
    pub async fn succeeds(&self, args: &[&str]) -> Result<bool, GitError> {
        Ok(self.try_git(args, MAX_ANSWER_BYTES).await?.success)
    }

    /// The text that git prints, without the space around it.
    ///
    /// # Errors
    /// As [`GitRepository::git`].
    pub async fn answer(&self, args: &[&str]) -> Result<String, GitError> {
        Ok(String::from_utf8_lossy(&self.git(args, MAX_ANSWER_BYTES).await?.stdout).trim().to_owned())
    }

    /// Starts git, for an output that may be long.
    ///
    /// # Errors
    /// It does not start.
    pub fn stream(self, args: &[&str]) -> Result<GitStream, GitError> {
        let index = self.temp.index();
        let env = self.extra_env(&index);
        let started = self.processes.start("git", |command| {
            command.args(GIT_ARGS).args(args).envs(GIT_ENV).envs(env.iter().copied()).stdout(Stdio::piped()).stderr(Stdio::null());
        });
        let mut process = started.map_err(GitError::Run)?;
        let stdout = process.take_stdout().ok_or_else(|| GitError::Failed("git's output is no pipe".to_owned()))?;
        Ok(GitStream { process, stdout, _temp: self.temp })
    }

    /// The commit's hash; `None` when the repository has no such commit.
    ///
    /// # Errors
    /// git cannot be run.
    pub async fn commit(&self, name: &str) -> Result<Option<String>, GitError> {
        let name = format!("{name}^{{commit}}");
        let answer = self.try_git(&["rev-parse", "--verify", "--quiet", &name], MAX_ANSWER_BYTES).await?;
        let hash = String::from_utf8_lossy(&answer.stdout).trim().to_owned();
        Ok((answer.success && !hash.is_empty()).then_some(hash))
    }

    /// The hash of the tree without files.
    ///
    /// # Errors
    /// git fails.
    pub async fn empty_tree(&self) -> Result<String, GitError> {
        let answer = self.git(&["hash-object", "-t", "tree", "-w", "/dev/null"], MAX_ANSWER_BYTES).await?;
        Ok(String::from_utf8_lossy(&answer.stdout).trim().to_owned())
    }

    /// How many commits `range` has.
    ///
    /// # Errors
    /// git fails.
    pub async fn count_commits(&self, range: &[&str]) -> Result<u64, GitError> {
        let args = [&["rev-list", "--count"], range, &["--"]].concat();
        let answer = self.git(&args, MAX_ANSWER_BYTES).await?;
        let text = String::from_utf8_lossy(&answer.stdout);
        text.trim().parse().map_err(|_| GitError::Failed(format!("git counted {:?} commits", text.trim())))
    }
}

/// What git prints. Dropping it ends git.
pub struct GitStream {
    process: SupervisedProcess,
    stdout: ChildStdout,
    _temp: TempDir,
}

impl GitStream {
    /// More of the output; nothing once git has ended with code 0.
    ///
    /// # Errors
    /// The output cannot be read, or git has failed.
    pub async fn next(&mut self) -> std::io::Result<Vec<u8>> {
        let mut chunk = vec![0; CHUNK];
        let count = self.stdout.read(&mut chunk).await?;
        chunk.truncate(count);
        if count == 0 && !self.process.wait().await?.success() {
            return Err(std::io::Error::other("git failed in the middle of its output"));
        }
        Ok(chunk)
    }
}

fn succeeded(command: &str, output: CapturedOutput) -> Result<CapturedOutput, GitError> {
    if output.success {
        return Ok(output);
    }
    let code = output.exit_code.map_or_else(|| "a signal".to_owned(), |code| code.to_string());
    Err(GitError::Failed(format!("git {command} ended with {code}: {}", output.stderr.trim())))
}

async fn run(processes: &ProcessSupervisor, args: &[&str], extra_env: &[(&str, &OsStr)], limit: usize) -> Result<CapturedOutput, GitError> {
    let args: Vec<&str> = GIT_ARGS.into_iter().chain(args.iter().copied()).collect();
    let env: Vec<(&str, &OsStr)> =
        GIT_ENV.iter().map(|(name, value)| (*name, OsStr::new(*value))).chain(extra_env.iter().copied()).collect();
    processes.capture("git", &args, &env, TIMEOUT, limit).await.map_err(GitError::Run)
}

/// The path without links, if that is in the tree.
fn resolve_beneath(tree: &Path, path: &Path) -> Result<PathBuf, GitError> {
    let real = path.canonicalize().map_err(GitError::Run)?;
    if real.starts_with(tree) { Ok(real) } else { Err(GitError::Outside(real)) }
}

/// Copies a regular file. Others are refused: opening a FIFO would wait for its writer, and a device may be endless.
fn copy_file(from: &Path, to: &Path) -> std::io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(rustix::fs::open(from, flags, Mode::empty())?);
    if !file.metadata()?.is_file() {
        return Err(std::io::Error::other(format!("{} is not a regular file", from.display())));
    }
    let mut index_copy = File::create_new(to)?;
    std::io::copy(&mut file, &mut index_copy)?;
    // git compares the content of files that are not older than the index. A copy with a later time would hide a change of equal length.
    index_copy.set_times(FileTimes::new().set_modified(file.metadata()?.modified()?))
}

/// A folder for the copy of git's index and for new objects, removed when this value is dropped.
struct TempDir(PathBuf);

impl TempDir {
    fn new() -> std::io::Result<Self> {
        let path = std::env::temp_dir().join(format!("yoi-git-{}", Uuid::new_v4()));
        std::fs::create_dir(&path)?;
        Ok(Self(path))
    }

    fn index(&self) -> PathBuf {
        self.0.join("index")
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
