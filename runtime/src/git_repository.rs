//! The git repository of the tree, read with a copy of its index, so that nothing in the tree is written.
//!
//! The agent can change every file of the repository. git is started so that it runs no program which these files name ([`tree_git`]), and the paths that
//! they name must be in the tree.
//!
//! # Guarantees
//! This process opens no path of the tree or of the folder for temporary files by itself. Jobs in the frame do ([`ProcessSupervisor::run_in_frame`]), beneath
//! a descriptor of the tree and without following a link that appears meanwhile; and git does, which is in the frame, too.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::process::ChildStdout;
use yoi_engine::processes::{CapturedOutput, ProcessSupervisor, SupervisedProcess};
use yoi_engine::tree_git;

mod place;
mod private_folder;
pub(crate) mod untracked;
mod whole;
mod work;

use crate::hidden_paths::HiddenPaths;
use private_folder::PrivateFolder;
pub use untracked::Untracked;

const TIMEOUT: Duration = Duration::from_secs(20);
/// The tree's own configuration counts, and no other.
const GIT_ENV: [(&str, &str); 3] = [("GIT_CONFIG_NOSYSTEM", "1"), ("GIT_CONFIG_GLOBAL", "/dev/null"), ("GIT_OPTIONAL_LOCKS", "0")];
/// Commits are what their hashes say: no replacements and no grafts.
const TRUE_HISTORY: [(&str, &str); 2] = [("GIT_NO_REPLACE_OBJECTS", "1"), ("GIT_GRAFT_FILE", "/dev/null")];
/// The copy of the index is whole, so that no other file is written with it, and takes each name that a file can have.
const OWN_INDEX: [&str; 6] = ["-c", "core.splitIndex=false", "-c", "core.protectNTFS=false", "-c", "core.protectHFS=false"];
/// Bytes of an answer that is a path, a commit or a number.
const MAX_ANSWER_BYTES: usize = 64 << 10;
/// Bytes of one read of a long output.
const CHUNK: usize = 64 << 10;

/// Why the repository cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    #[error("failed to run git")]
    Run(#[source] std::io::Error),
    #[error(
        "the agent's image has no git, so its diff and commits cannot be read while it runs: stop it, and they are read with another image, or name an \
         image that holds git in spec.pod.image"
    )]
    Missing,
    #[error("failed to open the files of the tree's repository")]
    Files(#[source] std::io::Error),
    #[error("failed to read the tree's repository: {0}")]
    Failed(String),
    #[error("failed to read the tree's repository: it is outside of the tree, at {}", .0.display())]
    Outside(PathBuf),
    #[error("failed to read the tree's repository, as it is not whole: {0}")]
    NotWhole(String),
}

impl GitError {
    /// For an error of a start of git. The tree, where it starts, is always there.
    fn from_start(error: std::io::Error) -> Self {
        if error.kind() == std::io::ErrorKind::NotFound { GitError::Missing } else { GitError::Run(error) }
    }
}

/// A repository in the tree.
pub struct GitRepository<'a> {
    processes: &'a ProcessSupervisor,
    /// The folder of its work tree, relative to the root of the tree; empty for the root.
    at: String,
    env: Vec<(String, OsString)>,
    folder: PrivateFolder,
    hidden: HiddenPaths,
}

impl<'a> GitRepository<'a> {
    /// The repository in the root of the tree; `None` where the tree is no git work tree.
    ///
    /// # Errors
    /// git fails, or the repository leads out of the tree.
    pub async fn open(processes: &'a ProcessSupervisor, tree: &Path) -> Result<Option<Self>, GitError> {
        Self::open_at(processes, tree, "").await
    }

    /// The repository in the folder `at` of the tree; `None` where that is no work tree of its own.
    ///
    /// # Errors
    /// As [`GitRepository::open`].
    pub async fn open_at(processes: &'a ProcessSupervisor, tree: &Path, at: &str) -> Result<Option<Self>, GitError> {
        let hidden = HiddenPaths::read(tree, at);
        let (root, folder) = (tree.to_owned(), at.to_owned());
        let found = processes.run_in_frame(move || place::find(&root, &folder)).await.map_err(GitError::Files)??;
        let Some(tree) = found else { return Ok(None) };
        let mut env: Vec<(String, OsString)> =
            tree_git::ENV.iter().chain(&GIT_ENV).chain(&TRUE_HISTORY).map(|(name, value)| ((*name).to_owned(), (*value).into())).collect();
        let queries = ["--git-dir", "--git-common-dir", "--show-toplevel", "--git-path", "index", "--git-path", "objects"];
        let args = [&["rev-parse", "--path-format=absolute"], &queries[..]].concat();
        let answer = run(processes, at, &args, &env, Stdio::null(), MAX_ANSWER_BYTES).await?;
        let paths = String::from_utf8_lossy(&succeeded("rev-parse", answer)?.stdout).into_owned();
        let paths: Vec<String> = paths.lines().map(str::to_owned).collect();
        let printed = |paths: Vec<String>| GitError::Failed(format!("git printed {} paths instead of five", paths.len()));
        let [dir, common, top_level, index, objects]: [String; 5] = paths.try_into().map_err(printed)?;
        // A folder below the root may hold what is no repository to git. Then git has found the one above.
        if !at.is_empty() && Path::new(&top_level) != tree.root().join(at) {
            return Ok(None);
        }
        let without_filters = tree_git::without_filters(processes, at, &borrowed(&env), TIMEOUT).await.map_err(GitError::Run)?;
        env.extend(without_filters);
        let (temp, objects_too) = (processes.temp().to_owned(), objects.clone());
        let make = move || {
            let index = place::check(&tree, &[dir, common, top_level], &objects_too, &index)?;
            PrivateFolder::create(&temp, index).map_err(GitError::Files)
        };
        let folder = processes.run_in_frame(make).await.map_err(GitError::Files)??;
        env.push(("GIT_INDEX_FILE".to_owned(), folder.index().into()));
        env.push(("GIT_OBJECT_DIRECTORY".to_owned(), folder.path().into()));
        env.push(("GIT_ALTERNATE_OBJECT_DIRECTORIES".to_owned(), objects.into()));
        let repository = Self { processes, at: at.to_owned(), env, folder, hidden };
        repository.leave_out_hidden().await?;
        Ok(Some(repository))
    }

    /// Has git take the files that are hidden from the agent for unchanged: in the copy of the index they are not looked at in the tree.
    async fn leave_out_hidden(&self) -> Result<(), GitError> {
        if self.hidden.is_empty() {
            return Ok(());
        }
        let pathspecs = self.hidden.pathspecs();
        let list: Vec<&str> = ["ls-files", "-z", "--"].into_iter().chain(pathspecs.iter().map(String::as_str)).collect();
        let mut names = Vec::new();
        let take = |name: &[u8]| names.extend(name.iter().chain(b"\0").copied());
        self.for_each_record(&list, take).await?;
        let names = untracked::stdin_of(std::iter::once(names.as_slice())).map_err(GitError::Run)?;
        let args = ["update-index", "--skip-worktree", "-z", "--stdin"];
        succeeded(args[0], run(self.processes, &self.at, &args, &self.env, names, MAX_ANSWER_BYTES).await?).map(drop)
    }

    /// Whether the node hides this path of the repository from the agent.
    #[must_use]
    pub fn is_hidden(&self, path: &[u8]) -> bool {
        self.hidden.has(path)
    }

    /// Where a path of this repository is, relative to the root of the tree.
    #[must_use]
    pub fn path_in_tree(&self, path: &str) -> String {
        if self.at.is_empty() { path.to_owned() } else { format!("{}/{path}", self.at) }
    }

    /// Runs git, and returns at most `limit` bytes of its output.
    ///
    /// # Errors
    /// It does not start, takes longer than 20 s, or does not end with code 0.
    pub async fn git(&self, args: &[&str], limit: usize) -> Result<CapturedOutput, GitError> {
        succeeded(args[0], self.try_git(args, limit).await?)
    }

    async fn try_git(&self, args: &[&str], limit: usize) -> Result<CapturedOutput, GitError> {
        run(self.processes, &self.at, args, &self.env, Stdio::null(), limit).await
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
        self.stream_with_stdin(args, Stdio::null())
    }

    fn stream_with_stdin(self, args: &[&str], stdin: Stdio) -> Result<GitStream, GitError> {
        let (process, stdout) = self.start_with_stdin(args, stdin)?;
        Ok(GitStream { process, stdout, _folder: self.folder })
    }

    fn start(&self, args: &[&str]) -> Result<(SupervisedProcess, ChildStdout), GitError> {
        self.start_with_stdin(args, Stdio::null())
    }

    fn start_with_stdin(&self, args: &[&str], stdin: Stdio) -> Result<(SupervisedProcess, ChildStdout), GitError> {
        let started = self.processes.start("git", |command| {
            command.args(arguments(&self.at, args)).envs(borrowed(&self.env)).stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::null());
        });
        let mut process = started.map_err(GitError::from_start)?;
        let stdout = process.take_stdout().ok_or_else(|| GitError::Failed("git's output is no pipe".to_owned()))?;
        Ok((process, stdout))
    }

    /// Gives each record of git's output, which a zero byte ends, to `record`. The whole may be long.
    ///
    /// # Errors
    /// git does not start, takes longer than 20 s, or does not end with code 0.
    pub async fn for_each_record(&self, args: &[&str], mut record: impl FnMut(&[u8])) -> Result<(), GitError> {
        let (mut process, mut stdout) = self.start(args)?;
        let read = async {
            let (mut rest, mut chunk) = (Vec::new(), vec![0; CHUNK]);
            loop {
                let count = stdout.read(&mut chunk).await?;
                if count == 0 {
                    return process.wait().await;
                }
                rest.extend_from_slice(&chunk[..count]);
                let mut begin = 0;
                while let Some(length) = rest[begin..].iter().position(|byte| *byte == 0) {
                    record(&rest[begin..begin + length]);
                    begin += length + 1;
                }
                rest.drain(..begin);
            }
        };
        match tokio::time::timeout(TIMEOUT, read).await {
            Ok(Ok(status)) if status.success() => Ok(()),
            Ok(Ok(_)) => Err(GitError::Failed(format!("git {} failed", args[0]))),
            Ok(Err(error)) => Err(GitError::Run(error)),
            Err(_) => Err(GitError::Run(std::io::ErrorKind::TimedOut.into())),
        }
    }

    /// Submodules, and other repositories that are in the index as one commit each: their paths in this repository, at most `most`. Paths that are not
    /// UTF-8 are left out.
    ///
    /// # Errors
    /// git fails.
    pub async fn submodules(&self, most: usize) -> Result<Vec<String>, GitError> {
        let mut found = Vec::new();
        let take = |record: &[u8]| {
            // `160000 HASH STAGE<tab>PATH`.
            let path = record.strip_prefix(b"160000 ").and_then(|rest| rest.splitn(2, |byte| *byte == b'\t').nth(1));
            if let Some(path) = path.and_then(|path| std::str::from_utf8(path).ok())
                && found.len() < most
            {
                found.push(path.to_owned());
            }
        };
        self.for_each_record(&["ls-files", "--stage", "-z"], take).await?;
        found.dedup();
        Ok(found)
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

    /// The commit of its own that a submodule is to be at in `commit`; `None` where there is no submodule at `path`.
    ///
    /// # Errors
    /// git cannot be run.
    pub async fn commit_of_submodule(&self, commit: &str, path: &str) -> Result<Option<String>, GitError> {
        let pathspec = format!(":(top,literal){path}");
        let answer = self.try_git(&["ls-tree", "-z", "--full-tree", commit, "--", &pathspec], MAX_ANSWER_BYTES).await?;
        let text = String::from_utf8_lossy(&answer.stdout).into_owned();
        // `160000 commit HASH<tab>PATH`.
        let hash = text.strip_prefix("160000 commit ").and_then(|rest| rest.split('\t').next());
        Ok(hash.filter(|_| answer.success).map(str::to_owned))
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
    _folder: PrivateFolder,
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

async fn run(
    processes: &ProcessSupervisor,
    at: &str,
    args: &[&str],
    env: &[(String, OsString)],
    stdin: Stdio,
    limit: usize,
) -> Result<CapturedOutput, GitError> {
    processes.capture_with_stdin("git", &arguments(at, args), &borrowed(env), stdin, TIMEOUT, limit).await.map_err(GitError::from_start)
}

fn arguments<'a>(at: &'a str, args: &[&'a str]) -> Vec<&'a str> {
    [&["-C", if at.is_empty() { "." } else { at }][..], &tree_git::ARGS, &OWN_INDEX, args].concat()
}

fn borrowed(env: &[(String, OsString)]) -> Vec<(&str, &OsStr)> {
    env.iter().map(|(name, value)| (name.as_str(), value.as_os_str())).collect()
}
