//! A program run to its end, with its output captured.

use std::ffi::OsStr;
use std::io;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncReadExt;

use super::ProcessSupervisor;

/// Bytes of standard error that are kept.
const MAX_STDERR_BYTES: u64 = 4096;

/// What a program wrote, and how it ended.
#[derive(Debug)]
pub struct CapturedOutput {
    pub stdout: Vec<u8>,
    /// The first 4 KiB.
    pub stderr: String,
    /// Standard output was longer than the limit.
    pub truncated: bool,
    /// It ended with code 0, or was cut off at the limit.
    pub success: bool,
    /// `None` after a signal.
    pub exit_code: Option<i32>,
}

impl ProcessSupervisor {
    /// Runs a program without a shell and returns at most `limit` bytes of its standard output.
    ///
    /// # Errors
    /// It does not start, or takes longer than `timeout`.
    pub async fn capture(
        &self,
        program: &str,
        args: &[&str],
        env: &[(&str, &OsStr)],
        timeout: Duration,
        limit: usize,
    ) -> io::Result<CapturedOutput> {
        self.capture_with_stdin(program, args, env, Stdio::null(), timeout, limit).await
    }

    /// As [`ProcessSupervisor::capture`], of a program that reads `stdin`.
    ///
    /// # Errors
    /// As [`ProcessSupervisor::capture`].
    pub async fn capture_with_stdin(
        &self,
        program: &str,
        args: &[&str],
        env: &[(&str, &OsStr)],
        stdin: Stdio,
        timeout: Duration,
        limit: usize,
    ) -> io::Result<CapturedOutput> {
        let mut process = self.start(program, |command| {
            command.args(args).envs(env.iter().copied()).stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
        })?;
        let (out, err) = (process.child.stdout.take(), process.child.stderr.take());
        let read = async {
            let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
            let read_stdout = async {
                if let Some(out) = out {
                    out.take(limit as u64 + 1).read_to_end(&mut stdout).await?;
                }
                Ok::<(), io::Error>(())
            };
            let read_stderr = async {
                if let Some(mut err) = err {
                    (&mut err).take(MAX_STDERR_BYTES).read_to_end(&mut stderr).await?;
                    // A closed pipe would end a program that writes more.
                    tokio::io::copy(&mut err, &mut tokio::io::sink()).await?;
                }
                Ok::<(), io::Error>(())
            };
            tokio::try_join!(read_stdout, read_stderr)?;
            let truncated = stdout.len() > limit;
            stdout.truncate(limit);
            // The pipe is closed by now. A program that has more to write ends by that, so its status says nothing.
            let status = process.wait().await?;
            Ok(CapturedOutput {
                stdout,
                stderr: String::from_utf8_lossy(&stderr).into_owned(),
                truncated,
                success: truncated || status.success(),
                exit_code: status.code(),
            })
        };
        tokio::time::timeout(timeout, read).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_captured_program_may_write_much_to_standard_error() {
        let supervisor = ProcessSupervisor::new(std::env::temp_dir(), "a", &[]);
        let script = "i=0; while [ $i -lt 3000 ]; do echo 'one more line of complaint' >&2; i=$((i+1)); done; echo done";
        let output = supervisor.capture("sh", &["-c", script], &[], Duration::from_secs(20), 100).await.unwrap();
        assert!(output.success && !output.truncated && output.stdout == b"done\n", "{:?}", output.exit_code);
        assert_eq!(output.stderr.len() as u64, MAX_STDERR_BYTES);
    }
}
