//! The system's git, the only program that this crate starts.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Why git has no answer.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    /// The program is not there, or cannot be started.
    #[error("failed to start git")]
    Start(#[source] io::Error),
    /// It was started, and ended otherwise than with code 0.
    #[error("failed to run git {verb}: {words}")]
    Failed {
        /// What it was to do.
        verb: String,
        /// Its last words.
        words: String,
    },
    /// A file between us and git.
    #[error("failed to read or write {}", .0.display())]
    File(PathBuf, #[source] io::Error),
}

/// One repository, and the environment in which each git of ours sees it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Git {
    folder: PathBuf,
    env: Vec<(&'static str, OsString)>,
}

/// What neither the person's environment nor their shell may say to a git of ours.
const REMOVED: [&str; 8] = [
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_NAMESPACE",
    "GIT_LITERAL_PATHSPECS",
];

impl Git {
    /// git in this folder.
    pub(crate) fn in_folder(folder: &Path) -> Self {
        Git { folder: folder.to_owned(), env: Vec::new() }
    }

    /// As this one, in another folder.
    pub(crate) fn moved_to(self, folder: &Path) -> Self {
        Git { folder: folder.to_owned(), ..self }
    }

    /// As this one, with a variable more.
    pub(crate) fn with(mut self, name: &'static str, value: impl Into<OsString>) -> Self {
        self.env.push((name, value.into()));
        self
    }

    /// As this one, started in another folder.
    pub(crate) fn started_in(mut self, folder: &Path) -> Self {
        folder.clone_into(&mut self.folder);
        self
    }

    fn command(&self, args: &[&OsStr]) -> Command {
        let mut command = Command::new("git");
        for name in REMOVED {
            command.env_remove(name);
        }
        command.current_dir(&self.folder).args(args).env("LC_ALL", "C").env("GIT_TERMINAL_PROMPT", "0");
        command.env("GIT_NO_REPLACE_OBJECTS", "1").env("GIT_OPTIONAL_LOCKS", "0");
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Runs it with this input, whatever its code is.
    pub(crate) fn try_run(&self, args: &[&str], input: &[u8]) -> Result<Output, GitError> {
        let args: Vec<&OsStr> = args.iter().map(OsStr::new).collect();
        let mut command = self.command(&args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(GitError::Start)?;
        let stdin = child.stdin.take();
        // Both pipes must be served at once: git may answer before it has read all.
        let output = std::thread::scope(|scope| {
            scope.spawn(move || {
                if let Some(mut stdin) = stdin {
                    // A git that ends early has said why.
                    let _ = stdin.write_all(input);
                }
            });
            child.wait_with_output()
        });
        output.map_err(GitError::Start)
    }

    /// Runs it, and returns its output when it ends with code 0.
    pub(crate) fn run(&self, args: &[&str], input: &[u8]) -> Result<Vec<u8>, GitError> {
        let output = self.try_run(args, input)?;
        if output.status.success() { Ok(output.stdout) } else { Err(failed(args, &output.stderr)) }
    }

    /// Its output as text of one line.
    pub(crate) fn line(&self, args: &[&str]) -> Result<String, GitError> {
        Ok(String::from_utf8_lossy(&self.run(args, &[])?).trim_end_matches(['\n', '\r']).to_owned())
    }

    /// Whether it ends with code 0.
    pub(crate) fn succeeds(&self, args: &[&str]) -> Result<bool, GitError> {
        Ok(self.try_run(args, &[])?.status.success())
    }

    /// A setting that is true or false, and `otherwise` where it is not set.
    pub(crate) fn bool_setting(&self, name: &str, otherwise: bool) -> Result<bool, GitError> {
        let found = self.try_run(&["config", "--type=bool", "--get", name], &[])?;
        Ok(if found.status.success() { found.stdout.starts_with(b"true") } else { otherwise })
    }

    /// Runs it with a file as its input.
    pub(crate) fn run_with_file(&self, args: &[&str], input: File) -> Result<(), GitError> {
        let words: Vec<&OsStr> = args.iter().map(OsStr::new).collect();
        let output = self.command(&words).stdin(Stdio::from(input)).output().map_err(GitError::Start)?;
        if output.status.success() { Ok(()) } else { Err(failed(args, &output.stderr)) }
    }

    /// Starts it with this short input, for an output that may be long.
    pub(crate) fn start(&self, args: &[&str], input: &[u8], stderr: File) -> Result<std::process::Child, GitError> {
        let words: Vec<&OsStr> = args.iter().map(OsStr::new).collect();
        let mut command = self.command(&words);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::from(stderr));
        let mut child = command.spawn().map_err(GitError::Start)?;
        if let Some(mut stdin) = child.stdin.take() {
            let _ = stdin.write_all(input);
        }
        Ok(child)
    }
}

/// The error for a git that has failed.
pub(crate) fn failed(args: &[&str], stderr: &[u8]) -> GitError {
    let verb = args.iter().find(|arg| !arg.starts_with('-') && !arg.contains('=')).copied().unwrap_or_default().to_owned();
    let text = String::from_utf8_lossy(stderr).trim().replace('\n', " ");
    let begin = text.char_indices().rev().nth(600).map_or(0, |(at, _)| at);
    GitError::Failed { verb, words: text[begin..].to_owned() }
}

/// A path in a list of folders of objects, as git reads one: a name may hold the character that parts names.
pub(crate) fn quoted(path: &Path) -> OsString {
    let text = path.to_string_lossy();
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")).into()
}
