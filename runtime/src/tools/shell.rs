//! Commands, each in a session of its own, with an environment built from nothing.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::pipe::{PipeFlags, pipe_with};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;
use tokio::process::Command;
use tokio::time::sleep;
use uuid::Uuid;
use yoi_wire::entry::ToolOutcome;

use super::CallResult;
use super::output_limit::BoundedOutput;
use super::processes::{CALL_ID_ENV, ChildProcesses, ProcessTree};
use crate::status::without_os_error_number;

/// Left of an output's limit for what is said about it.
const RESERVED_FOR_STATUS: usize = 160;
/// For the last bytes of a pipe after all processes of a call were killed; one that cannot be killed must not hold the call.
const PIPE_DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// What is kept of a captured program's complaints.
const MAX_STDERR_BYTES: u64 = 4096;

#[derive(Debug)]
pub struct Shell {
    children: Arc<ChildProcesses>,
    program: PathBuf,
    /// The root of the tree.
    root: PathBuf,
    env: Vec<(OsString, OsString)>,
}

impl Shell {
    /// `user_env` is what the Pod's owner set for the container.
    #[must_use]
    pub fn new(children: Arc<ChildProcesses>, root: PathBuf, agent: &str, user_env: &[(OsString, OsString)]) -> Self {
        let bash = ["/bin/bash", "/usr/bin/bash"].into_iter().map(PathBuf::from).find(|path| path.exists());
        Self { children, program: bash.unwrap_or_else(|| PathBuf::from("/bin/sh")), root, env: environment(agent, user_env) }
    }

    pub async fn run(&self, command: &str, limit: Duration, bytes: usize) -> CallResult {
        let call_id = Uuid::new_v4().to_string();
        let mut process = Command::new(&self.program);
        process.arg("-c").arg(command).env(CALL_ID_ENV, &call_id);
        match self.start(process, call_id) {
            Ok(running) => running.end(limit, BoundedOutput::new(bytes.saturating_sub(RESERVED_FOR_STATUS))).await,
            // The system says the same of a program and of a working directory that is not there.
            Err(_) if !self.root.is_dir() => CallResult::failed(format!(
                "failed to start: the working directory {} is gone; nothing can run until it is there",
                self.root.display()
            )),
            Err(error) => CallResult::failed(without_os_error_number(&format!("failed to start {}: {error}", self.program.display()))),
        }
    }

    /// A command without a shell: its standard output up to `limit` bytes, whether that was all, and how it ended.
    ///
    /// # Errors
    /// It does not start, or takes longer than `time`.
    pub async fn capture(
        &self,
        program: &str,
        args: &[&str],
        env: &[(&str, &std::ffi::OsStr)],
        time: Duration,
        limit: usize,
    ) -> std::io::Result<Captured> {
        let call_id = Uuid::new_v4().to_string();
        let mut process = Command::new(program);
        process
            .args(args)
            .env_clear()
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .envs(env.iter().copied())
            .env(CALL_ID_ENV, &call_id);
        process.current_dir(&self.root).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        in_new_session(&mut process);
        let mut awaited = self.children.spawn(&mut process)?;
        let _tree = awaited.tree(call_id);
        let (out, err) = (awaited.child.stdout.take(), awaited.child.stderr.take());
        let read = async {
            let (mut output, mut errors) = (Vec::new(), Vec::new());
            let out = out.map(|out| out.take(limit as u64 + 1));
            let both = async {
                if let Some(mut out) = out {
                    out.read_to_end(&mut output).await?;
                }
                Ok::<(), std::io::Error>(())
            };
            let others = async {
                if let Some(mut err) = err {
                    (&mut err).take(MAX_STDERR_BYTES).read_to_end(&mut errors).await?;
                    // A closed pipe would end a program that has much to complain of.
                    tokio::io::copy(&mut err, &mut tokio::io::sink()).await?;
                }
                Ok::<(), std::io::Error>(())
            };
            tokio::try_join!(both, others)?;
            let cut = output.len() > limit;
            output.truncate(limit);
            // Its pipe is closed by now, so one that has more to say ends; its status then says nothing.
            let status = awaited.child.wait().await?;
            Ok(Captured {
                output,
                errors: String::from_utf8_lossy(&errors).into_owned(),
                cut,
                ok: cut || status.success(),
                code: status.code(),
            })
        };
        tokio::time::timeout(time, read).await.map_err(|_| std::io::Error::from(std::io::ErrorKind::TimedOut))?
    }

    fn start(&self, mut process: Command, call_id: String) -> std::io::Result<RunningCommand> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
        process.env_clear().envs(self.env.iter().map(|(name, value)| (name, value))).env(CALL_ID_ENV, &call_id);
        process.current_dir(&self.root).stdin(Stdio::null()).stdout(write.try_clone()?).stderr(write);
        in_new_session(&mut process);
        let pipe = Receiver::from_owned_fd(read)?;
        let awaited = self.children.spawn(&mut process)?;
        // With the command go its ends of the pipe: the last writer is then a process of the call.
        drop(process);
        let tree = awaited.tree(call_id);
        Ok(RunningCommand { pipe, awaited, tree })
    }
}

#[derive(Debug)]
pub struct Captured {
    pub output: Vec<u8>,
    pub errors: String,
    /// There was more output than the limit.
    pub cut: bool,
    pub ok: bool,
    pub code: Option<i32>,
}

fn in_new_session(process: &mut Command) {
    // SAFETY: setsid is one system call and allocates nothing.
    unsafe {
        process.pre_exec(|| {
            rustix::process::setsid()?;
            Ok(())
        });
    }
}

struct RunningCommand {
    pipe: Receiver,
    awaited: super::processes::AwaitedChild,
    tree: ProcessTree,
}

impl RunningCommand {
    async fn end(mut self, limit: Duration, mut output: BoundedOutput) -> CallResult {
        let mut buffer = vec![0; 16 << 10];
        let (mut open, mut status, mut timed_out) = (true, None, false);
        let mut deadline = std::pin::pin!(sleep(limit));
        while open || status.is_none() {
            tokio::select! {
                read = self.pipe.read(&mut buffer), if open => match read {
                    Ok(0) | Err(_) => open = false,
                    Ok(read) => output.push(&buffer[..read]),
                },
                ended = self.awaited.child.wait(), if status.is_none() => {
                    status = Some(ended.ok());
                    // What it left behind would hold the pipe, and go on writing to the tree between calls.
                    self.tree.end();
                    deadline.as_mut().reset(tokio::time::Instant::now() + PIPE_DRAIN_TIMEOUT);
                }
                () = &mut deadline => {
                    if status.is_some() || timed_out {
                        break;
                    }
                    timed_out = true;
                    self.tree.end();
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
        let status: Option<ExitStatus> = status.flatten();
        match (status.and_then(|status| status.code()), status.and_then(|status| status.signal())) {
            (Some(0), _) => CallResult::succeeded(output + "[exit code 0]"),
            (Some(code), _) => CallResult::failed(format!("{output}[exit code {code}]")),
            (None, Some(signal)) => CallResult::failed(format!("{output}[ended by signal {signal}]")),
            (None, None) => CallResult::failed(output + "[how it ended is not known]"),
        }
    }
}

/// What a tool finds: our own words, what the Pod's owner set, and nothing of the runtime's.
fn environment(agent: &str, user_env: &[(OsString, OsString)]) -> Vec<(OsString, OsString)> {
    let variable = |name: &str, value: &str| (OsString::from(name), OsString::from(value));
    let mut all = vec![
        variable("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
        variable("HOME", "/home/agent"),
        variable("LANG", "C.UTF-8"),
        variable("TMPDIR", "/tmp"),
    ];
    all.retain(|(name, _)| user_env.iter().all(|(given, _)| given != name));
    all.extend(user_env.iter().filter(|(name, _)| name != "TERM").cloned());
    all.push(variable("TERM", "dumb"));
    all.push(variable("YOI_AGENT", agent));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_captured_program_may_complain_at_length() {
        let shell = Shell::new(Arc::new(ChildProcesses::default()), std::env::temp_dir(), "a", &[]);
        let script = "i=0; while [ $i -lt 3000 ]; do echo 'one more line of complaint' >&2; i=$((i+1)); done; echo done";
        let done = shell.capture("sh", &["-c", script], &[], Duration::from_secs(20), 100).await.unwrap();
        assert!(done.ok && !done.cut && done.output == b"done\n", "{:?}", done.code);
        assert_eq!(done.errors.len() as u64, MAX_STDERR_BYTES);
    }
}
