//! Programs, run as a user runs them.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::io::AsyncWriteExt;

/// What a program returned and printed.
#[derive(Clone, Debug)]
pub struct CommandOutput {
    /// Exit code, or -1 when a signal ended the program.
    pub code: i32,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl CommandOutput {
    /// Returns the output of a program that succeeded.
    ///
    /// # Errors
    /// When the exit code is not 0, with both outputs.
    pub fn exit_ok(self) -> Result<CommandOutput> {
        if self.code != 0 {
            bail!("exit code {}\nstdout: {}\nstderr: {}", self.code, self.out, self.err);
        }
        Ok(self)
    }
}

/// How long a program may take. Longer than each of them waits by itself.
const LIMIT: Duration = Duration::from_secs(600);

/// Runs `program` for at most ten minutes, with `env` added to this process's environment.
///
/// # Errors
/// When it cannot be started or does not end in time. Another exit code than 0 is no error here.
pub async fn run(program: &str, args: &[&str], env: &[(&str, &str)], stdin: Option<&str>) -> Result<CommandOutput> {
    let mut child = tokio::process::Command::new(program)
        .args(args)
        .envs(env.iter().copied())
        .stdin(if stdin.is_some() { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("failed to start {program}"))?;
    if let (Some(text), Some(mut pipe)) = (stdin, child.stdin.take()) {
        // A program that ends before it has read everything is judged by its exit code and its output.
        let _ = pipe.write_all(text.as_bytes()).await;
    }
    let output = tokio::time::timeout(LIMIT, child.wait_with_output())
        .await
        .with_context(|| format!("{program} {args:?} did not end in {LIMIT:?}"))??;
    Ok(CommandOutput {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}
