//! Commands: in the foreground for the length of a call, and in the background.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::fs::Access;
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::net::unix::pipe::Receiver;
use yoi_wire::entry::ToolOutcome;

mod background;
mod foreground;
mod memory_kills;
mod script;
mod terminal_text;

pub use background::{BackgroundError, BackgroundOutput, MAX_BACKGROUND};

use background::BackgroundProcesses;
use memory_kills::MemoryKills;
use script::Script;

use super::result::{CallResult, LiveOutput};
use crate::error_text::without_os_error_number;
use crate::processes::{ProcessSupervisor, SupervisedProcess};

/// Bytes of an output's limit that are kept free for the lines about how the command ended.
const RESERVED_FOR_STATUS: usize = 400;

/// How long to read on after all processes of a command were killed: one that cannot be killed must not hold the call.
const PIPE_DRAIN_TIMEOUT: Duration = Duration::from_secs(1);
/// The largest pipe that an unprivileged process may make, unless the machine says otherwise.
const MAX_PIPE_BYTES: usize = 1 << 20;

/// Runs commands by bash, or by `/bin/sh` where there is no bash. It keeps the working directory from command to command.
#[derive(Debug)]
pub struct Shell {
    processes: Arc<ProcessSupervisor>,
    script: Script,
    /// Where the next command starts.
    directory: Mutex<PathBuf>,
    memory_kills: MemoryKills,
    background: Arc<BackgroundProcesses>,
}

/// A command that has started.
struct StartedCommand {
    process: SupervisedProcess,
    output: Receiver,
    /// The shell writes here in which directory it ends.
    last_directory: OwnedFd,
    /// Where it started.
    directory: PathBuf,
    /// Kills for memory before it started.
    kills_before: Option<u64>,
    /// Said before its output: that it runs elsewhere than expected.
    note: String,
}

/// Reads everything that is in the pipe now, also when a busy machine schedules the reader only after [`PIPE_DRAIN_TIMEOUT`].
fn read_rest(pipe: &Receiver, buffer: &mut [u8], mut push: impl FnMut(&[u8])) {
    let mut rest = MAX_PIPE_BYTES;
    while let Ok(read @ 1..) = pipe.try_read(buffer) {
        push(&buffer[..read]);
        rest = rest.saturating_sub(read);
        if rest == 0 {
            return;
        }
    }
}

impl Shell {
    /// Commands start in the supervisor's folder of the tree.
    #[must_use]
    pub fn new(processes: Arc<ProcessSupervisor>) -> Self {
        // Joined with an empty folder, the root would be shown with a slash behind.
        let directory = processes.directory();
        let directory = if directory.as_os_str().is_empty() { processes.root().to_owned() } else { processes.root().join(directory) };
        let memory_kills = MemoryKills::of_this_process();
        Self { processes, script: Script::of_this_system(), directory: Mutex::new(directory), memory_kills, background: Arc::default() }
    }

    /// A shell for another conversation: its own working directory, and its own commands in the background.
    pub(super) fn for_another_conversation(&self) -> Self {
        Self::new(self.processes.clone())
    }

    /// A shell that starts in the root, with the same commands in the background.
    pub(super) fn in_root(&self) -> Self {
        let directory = Mutex::new(self.processes.root().to_owned());
        Self { background: self.background.clone(), directory, ..Self::new(self.processes.clone()) }
    }

    /// Runs a command for at most `limit`. Standard output and error come interleaved, in at most `bytes` bytes, and piece by piece at
    /// `live`. Every process of it has ended on return, and when the future is dropped.
    pub async fn run(&self, command: &str, limit: Duration, bytes: usize, live: &LiveOutput) -> CallResult {
        self.run_with(command, &[], limit, bytes, live).await
    }

    /// As [`Self::run`], with these variables beside those of every command.
    pub async fn run_with(&self, command: &str, env: &[(&str, &str)], limit: Duration, bytes: usize, live: &LiveOutput) -> CallResult {
        let started = match self.start(command, env) {
            Ok(started) => started,
            Err(message) => return CallResult::failed(message),
        };
        let ended = foreground::finish(started, limit, bytes.saturating_sub(RESERVED_FOR_STATUS), live, &self.memory_kills).await;
        if let Some(directory) = ended.moved_to {
            *self.directory.lock().unwrap_or_else(PoisonError::into_inner) = directory;
        }
        ended.result
    }

    /// Starts a command that goes on after the call, and returns its id.
    ///
    /// # Errors
    /// It does not start, or too many are running.
    pub fn start_background(&self, command: &str) -> Result<String, BackgroundError> {
        self.start_background_with(command, &[])
    }

    /// As [`Self::start_background`], with these variables beside those of every command.
    ///
    /// # Errors
    /// It does not start, or too many are running.
    pub fn start_background_with(&self, command: &str, env: &[(&str, &str)]) -> Result<String, BackgroundError> {
        self.background.start(&self.memory_kills, || self.start(command, env))
    }

    /// What a background command wrote since the last call, in at most `bytes` bytes. Waits up to `wait` for something new.
    ///
    /// # Errors
    /// There is no such command.
    pub async fn background_output(&self, id: &str, wait: Duration, bytes: usize) -> Result<BackgroundOutput, BackgroundError> {
        Ok(self.background.get(id)?.read(wait, bytes).await)
    }

    /// What starts the commands.
    pub(super) fn processes(&self) -> &ProcessSupervisor {
        &self.processes
    }

    /// Ends a background command with all its processes, and returns what it wrote since the last call.
    ///
    /// # Errors
    /// There is no such command.
    pub async fn stop_background(&self, id: &str, bytes: usize) -> Result<BackgroundOutput, BackgroundError> {
        let process = self.background.get(id)?;
        process.stop().await;
        Ok(process.read(Duration::ZERO, bytes).await)
    }

    /// Whether a background command runs.
    #[must_use]
    pub fn has_background(&self) -> bool {
        self.background.is_running()
    }

    /// How many background commands run, and every change of that.
    #[must_use]
    pub fn background_count(&self) -> tokio::sync::watch::Receiver<usize> {
        self.background.count()
    }

    /// Ends all background commands. Their processes have ended on return.
    pub async fn stop_all(&self) {
        self.background.stop_all().await;
    }

    /// Starts in the working directory; in the root when that cannot be entered; in `/` when the root is closed.
    fn start(&self, command: &str, env: &[(&str, &str)]) -> Result<StartedCommand, String> {
        let root = self.processes.root();
        let mut directory = self.directory.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut note = String::new();
        loop {
            let error = match self.start_in(&directory, (command, env), &note) {
                Ok(started) => return Ok(started),
                Err(error) => error,
            };
            let next = match directory_state(&directory) {
                // A missing program and a missing working directory give the same error.
                DirectoryState::Gone if directory == root => {
                    return Err(format!(
                        "failed to start: the working directory {} is gone; nothing can run until it is there",
                        root.display()
                    ));
                }
                // The agent has taken its own right to the root of its tree. From elsewhere it can give that back.
                DirectoryState::Closed if directory == root => Path::new("/"),
                DirectoryState::Gone | DirectoryState::Closed if directory != Path::new("/") => root,
                DirectoryState::Usable | DirectoryState::Gone | DirectoryState::Closed => {
                    return Err(without_os_error_number(&format!("failed to start {}: {error}", self.script.program().display())));
                }
            };
            let why = match directory_state(&directory) {
                DirectoryState::Gone => "is gone",
                DirectoryState::Closed | DirectoryState::Usable => "cannot be entered (permission denied)",
            };
            note.push_str(&format!("[{} {why}, so this command runs in {}]\n", directory.display(), next.display()));
            directory = next.to_owned();
        }
    }

    fn start_in(&self, directory: &Path, (command, env): (&str, &[(&str, &str)]), note: &str) -> io::Result<StartedCommand> {
        let (output, write) = pipe_with(PipeFlags::CLOEXEC)?;
        let stderr = write.try_clone()?;
        let output = Receiver::from_owned_fd(output)?;
        let (last_directory, report) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let report_fd = report.as_raw_fd();
        let kills_before = self.memory_kills.count();
        let process = self.processes.start(self.script.program(), |process| {
            process.envs(env.iter().copied()).args(self.script.args(command)).stdout(write).stderr(stderr).current_dir(directory);
            // SAFETY: one system call on a descriptor that is open until the program has started.
            unsafe { process.pre_exec(move || Script::pass_descriptor(report_fd)) };
        })?;
        drop(report);
        Ok(StartedCommand { process, output, last_directory, directory: directory.to_owned(), kills_before, note: note.to_owned() })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DirectoryState {
    Usable,
    Gone,
    /// This process may not enter it.
    Closed,
}

fn directory_state(path: &Path) -> DirectoryState {
    match rustix::fs::access(path, Access::EXEC_OK) {
        Ok(()) if path.is_dir() => DirectoryState::Usable,
        Err(rustix::io::Errno::ACCESS) => DirectoryState::Closed,
        Ok(()) | Err(_) => DirectoryState::Gone,
    }
}

/// How a command ended, as outcome and as the last lines of its output.
fn describe_end(status: Option<ExitStatus>, kills_before: Option<u64>, kills_after: Option<u64>) -> (ToolOutcome, String) {
    use std::os::unix::process::ExitStatusExt;
    let (code, signal) = (status.and_then(|status| status.code()), status.and_then(|status| status.signal()));
    // A shell exits with 128 + 9 when its last program was killed.
    let killed = signal == Some(9) || code == Some(137);
    let memory = match (kills_before, kills_after) {
        (Some(before), Some(after)) if after > before => {
            "[out of memory: the kernel killed a process while this command ran, because the memory limit of this container was reached]\n"
        }
        (Some(_), Some(_)) => "",
        (None, _) | (_, None) if killed => "[a process was killed; whether memory ran out is not known here]\n",
        (None, _) | (_, None) => "",
    };
    match (code, signal) {
        (Some(0), _) => (ToolOutcome::Succeeded, format!("{memory}[exit code 0]")),
        (Some(code), _) => (ToolOutcome::Failed, format!("{memory}[exit code {code}]")),
        (None, Some(signal)) => (ToolOutcome::Failed, format!("{memory}[ended by signal {signal}]")),
        (None, None) => (ToolOutcome::Failed, format!("{memory}[how it ended is not known]")),
    }
}

/// Ends the last line.
fn end_line(text: &mut String) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
}

#[cfg(test)]
mod tests;
