//! The Shell tool.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::Access;
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;
use tokio::time::sleep;
use yoi_wire::entry::ToolOutcome;

use super::CallResult;
use super::output_limit::BoundedOutput;
use crate::error_text::without_os_error_number;
use crate::processes::{ProcessSupervisor, SupervisedProcess};

/// Bytes of an output's limit that are kept free for the line about how the command ended.
const RESERVED_FOR_STATUS: usize = 160;
/// How long to read on after all processes of a call were killed: a process that cannot be killed must not hold the call.
const PIPE_DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// Runs commands by bash, or by `/bin/sh` where there is no bash.
#[derive(Debug)]
pub struct Shell {
    processes: Arc<ProcessSupervisor>,
    program: PathBuf,
}

impl Shell {
    #[must_use]
    pub fn new(processes: Arc<ProcessSupervisor>) -> Self {
        let bash = ["/bin/bash", "/usr/bin/bash"].into_iter().map(PathBuf::from).find(|path| path.exists());
        Self { processes, program: bash.unwrap_or_else(|| PathBuf::from("/bin/sh")) }
    }

    /// Runs a command for at most `limit`. Standard output and error come interleaved, in at most `bytes` bytes.
    pub async fn run(&self, command: &str, limit: Duration, bytes: usize) -> CallResult {
        match self.start(command, None) {
            Ok(running) => running.finish(limit, BoundedOutput::new(bytes.saturating_sub(RESERVED_FOR_STATUS))).await,
            // The agent has taken its own right to the root of its tree. From elsewhere it can give that back.
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied && self.is_root_closed() => {
                let note =
                    format!("[{} cannot be entered (permission denied), so this command runs in /]\n", self.processes.root().display());
                let limit_bytes = bytes.saturating_sub(RESERVED_FOR_STATUS + note.len());
                match self.start(command, Some(Path::new("/"))) {
                    Ok(running) => {
                        let result = running.finish(limit, BoundedOutput::new(limit_bytes)).await;
                        CallResult { output: note + &result.output, ..result }
                    }
                    Err(error) => self.start_failure(&error),
                }
            }
            // A missing program and a missing working directory give the same error.
            Err(_) if !self.processes.root().is_dir() => CallResult::failed(format!(
                "failed to start: the working directory {} is gone; nothing can run until it is there",
                self.processes.root().display()
            )),
            Err(error) => self.start_failure(&error),
        }
    }

    fn start_failure(&self, error: &std::io::Error) -> CallResult {
        CallResult::failed(without_os_error_number(&format!("failed to start {}: {error}", self.program.display())))
    }

    /// Whether this process may not enter the root of the tree.
    fn is_root_closed(&self) -> bool {
        rustix::fs::access(self.processes.root(), Access::EXEC_OK).is_err()
    }

    /// Starts in `directory`, else in the root of the tree.
    fn start(&self, shell_command: &str, directory: Option<&Path>) -> std::io::Result<RunningCommand> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
        let stderr = write.try_clone()?;
        let pipe = Receiver::from_owned_fd(read)?;
        let process = self.processes.start(&self.program, |command| {
            command.arg("-c").arg(shell_command).stdout(write).stderr(stderr);
            if let Some(directory) = directory {
                command.current_dir(directory);
            }
        })?;
        Ok(RunningCommand { pipe, process })
    }
}

struct RunningCommand {
    pipe: Receiver,
    process: SupervisedProcess,
}

impl RunningCommand {
    async fn finish(mut self, limit: Duration, mut output: BoundedOutput) -> CallResult {
        let mut buffer = vec![0; 16 << 10];
        let (mut open, mut status, mut timed_out) = (true, None, false);
        let mut deadline = std::pin::pin!(sleep(limit));
        while open || status.is_none() {
            tokio::select! {
                read = self.pipe.read(&mut buffer), if open => match read {
                    Ok(0) | Err(_) => open = false,
                    Ok(read) => output.push(&buffer[..read]),
                },
                ended = self.process.wait(), if status.is_none() => {
                    status = Some(ended.ok());
                    // Processes that the command left behind would keep the pipe open, and write to the tree between calls.
                    self.process.kill_tree();
                    deadline.as_mut().reset(tokio::time::Instant::now() + PIPE_DRAIN_TIMEOUT);
                }
                () = &mut deadline => {
                    if status.is_some() || timed_out {
                        break;
                    }
                    timed_out = true;
                    self.process.kill_tree();
                    deadline.as_mut().reset(tokio::time::Instant::now() + PIPE_DRAIN_TIMEOUT);
                }
            }
        }
        let mut output = output.into_text();
        if !output.is_empty() && !output.ends_with('\n') {
            output.push('\n');
        }
        if timed_out {
            output.push_str(&format!("[the time limit of {} s was reached; all its processes were ended]", limit.as_secs()));
            return CallResult { outcome: ToolOutcome::TimedOut, output };
        }
        let status = status.flatten();
        match (status.and_then(|status| status.code()), status.and_then(|status| status.signal())) {
            (Some(0), _) => CallResult::succeeded(output + "[exit code 0]"),
            (Some(code), _) => CallResult::failed(format!("{output}[exit code {code}]")),
            (None, Some(signal)) => CallResult::failed(format!("{output}[ended by signal {signal}]")),
            (None, None) => CallResult::failed(output + "[how it ended is not known]"),
        }
    }
}
