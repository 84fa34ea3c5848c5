//! What the agent has changed: text by git where the tree is a git repository, paths by the node's shim.

use std::ffi::OsStr;
use std::fs::{File, FileTimes};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use uuid::Uuid;
use yoi_wire::node::ChangeList;
use yoi_wire::people::DiffResponse;

use crate::processes::{CapturedOutput, ProcessSupervisor};
use crate::shim_client::{self, ShimClientError};

const TIMEOUT: Duration = Duration::from_secs(20);
/// Bytes of the diff's text.
const MAX_TEXT_BYTES: usize = 1 << 20;
/// With [`GIT_ENV`] and [`GIT_ARGS`] git starts no program that the tree's configuration names, and prompts for nothing.
const GIT_ENV: [(&str, &str); 4] =
    [("GIT_CONFIG_NOSYSTEM", "1"), ("GIT_CONFIG_GLOBAL", "/dev/null"), ("GIT_OPTIONAL_LOCKS", "0"), ("GIT_TERMINAL_PROMPT", "0")];
const GIT_ARGS: [&str; 6] = ["-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "safe.directory=*"];

/// Why there is no diff.
#[derive(Debug, thiserror::Error)]
pub enum DiffError {
    #[error("failed to list the changed paths")]
    Paths(#[from] ShimClientError),
    #[error("failed to run git")]
    Git(#[source] std::io::Error),
    #[error("failed to compare the tree with git's HEAD: {0}")]
    Compare(String),
    #[error("failed to compare the tree with git's HEAD: its repository is outside of the tree, at {}", .0.display())]
    Outside(PathBuf),
}

/// The changes of a tree: its text against git's HEAD, and the changed paths against its base.
///
/// # Errors
/// The shim does not answer, or git fails in a tree that has a repository.
pub async fn diff(processes: &ProcessSupervisor, tree: &Path, shim_socket: &Path) -> Result<DiffResponse, DiffError> {
    let listed = async {
        match shim_client::list_changes(shim_socket).await {
            Ok(list) => Ok((list, None)),
            // git's text is shown without the list of paths.
            Err(ShimClientError::NoBase(why)) => Ok((ChangeList::default(), Some(why))),
            Err(error) => Err(DiffError::Paths(error)),
        }
    };
    let ((list, no_base), text) = futures::try_join!(listed, against_head(processes, tree))?;
    let (text, cut) = text.map_or((None, false), |(text, cut)| (Some(text), cut));
    let (text_cut, paths_cut) = (Some(cut), Some(list.cut));
    Ok(DiffResponse { text, paths: list.changes, no_base, cut: cut || list.cut, text_cut, paths_cut })
}

/// The text of `git diff HEAD` with untracked files, and whether it was truncated. `None` where the tree is no git work tree. The
/// repository's index and object store are read and never written.
///
/// # Errors
/// git fails, or the repository leads out of the tree.
pub async fn against_head(processes: &ProcessSupervisor, tree: &Path) -> Result<Option<(String, bool)>, DiffError> {
    if !tree.join(".git").exists() {
        return Ok(None);
    }
    let temp = TempDir::new().map_err(DiffError::Git)?;
    let queries = ["--git-dir", "--git-common-dir", "--show-toplevel", "--git-path", "index", "--git-path", "objects"];
    let answer = git(processes, &[&["rev-parse", "--path-format=absolute"], &queries[..]].concat(), &[]).await?;
    let paths = String::from_utf8_lossy(&answer.stdout).into_owned();
    let [dir, common, top_level, index, objects] = paths.lines().collect::<Vec<_>>()[..] else {
        return Err(DiffError::Compare(format!("git printed {} paths instead of five", paths.lines().count())));
    };
    // Files in the tree say where these paths are, and the agent can write those files.
    let tree = tree.canonicalize().map_err(DiffError::Git)?;
    for path in [dir, common, top_level, objects] {
        resolve_beneath(&tree, Path::new(path))?;
    }
    let index_copy = temp.0.join("index");
    match resolve_beneath(&tree, Path::new(index)) {
        Ok(index) => copy_file(&index, &index_copy).map_err(DiffError::Git)?,
        // The repository has no index before its first `git add`.
        Err(DiffError::Git(error)) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let extra_env = [
        ("GIT_INDEX_FILE", index_copy.as_os_str()),
        ("GIT_OBJECT_DIRECTORY", temp.0.as_os_str()),
        ("GIT_ALTERNATE_OBJECT_DIRECTORIES", OsStr::new(objects)),
    ];
    // Adds untracked files to the copy without content, so that the diff shows them as added.
    git(processes, &["add", "--intent-to-add", "--", "."], &extra_env).await?;
    let head = try_git(processes, &["rev-parse", "--verify", "--quiet", "HEAD"], &extra_env).await?;
    let empty = git(processes, &["hash-object", "-t", "tree", "-w", "/dev/null"], &extra_env).await?;
    let empty = String::from_utf8_lossy(&empty.stdout).trim().to_owned();
    let against = if head.success { "HEAD" } else { &empty };
    let text = git(processes, &["diff", "--no-color", "--no-ext-diff", "--no-textconv", "--no-renames", against, "--"], &extra_env).await?;
    Ok(Some((whole_lines(text.stdout, text.truncated), text.truncated)))
}

/// The path without links, if that is in the tree.
fn resolve_beneath(tree: &Path, path: &Path) -> Result<PathBuf, DiffError> {
    let real = path.canonicalize().map_err(DiffError::Git)?;
    if real.starts_with(tree) { Ok(real) } else { Err(DiffError::Outside(real)) }
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

/// Removes the broken last line of a truncated text.
fn whole_lines(mut text: Vec<u8>, cut: bool) -> String {
    if cut {
        text.truncate(text.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1));
    }
    String::from_utf8_lossy(&text).into_owned()
}

async fn try_git(processes: &ProcessSupervisor, args: &[&str], extra_env: &[(&str, &OsStr)]) -> Result<CapturedOutput, DiffError> {
    let args: Vec<&str> = GIT_ARGS.into_iter().chain(args.iter().copied()).collect();
    let env: Vec<(&str, &OsStr)> =
        GIT_ENV.iter().map(|(name, value)| (*name, OsStr::new(*value))).chain(extra_env.iter().copied()).collect();
    processes.capture("git", &args, &env, TIMEOUT, MAX_TEXT_BYTES).await.map_err(DiffError::Git)
}

async fn git(processes: &ProcessSupervisor, args: &[&str], extra_env: &[(&str, &OsStr)]) -> Result<CapturedOutput, DiffError> {
    let output = try_git(processes, args, extra_env).await?;
    if output.success {
        return Ok(output);
    }
    let code = output.exit_code.map_or_else(|| "a signal".to_owned(), |code| code.to_string());
    Err(DiffError::Compare(format!("git {} ended with {code}: {}", args[0], output.stderr.trim())))
}

/// A folder for the copy of git's index, removed when this value is dropped.
struct TempDir(PathBuf);

impl TempDir {
    fn new() -> std::io::Result<Self> {
        let path = std::env::temp_dir().join(format!("yoi-diff-{}", Uuid::new_v4()));
        std::fs::create_dir(&path)?;
        Ok(Self(path))
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
