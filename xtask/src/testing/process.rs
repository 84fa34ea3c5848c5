//! One run of a program of tests: its output into a file, its time, and an end after its deadline.

use crate::command::command_line;
use anyhow::{Context, Result};
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How a program ended.
pub struct Ended {
    /// None if its deadline ended it.
    pub status: Option<ExitStatus>,
    pub took: Duration,
    /// All that it printed, in the order in which it did.
    pub output: PathBuf,
}

impl Ended {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.output).unwrap_or_default()).into_owned()
    }

    pub fn succeeded(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }
}

/// How often the end of a program is looked for.
const PAUSE: Duration = Duration::from_millis(10);

/// Runs a program to its end, or to its deadline; then it and what it started, but for what left its process group, are killed.
pub fn run(mut command: Command, output: &Path, deadline: Duration) -> Result<Ended> {
    if let Some(folder) = output.parent() {
        fs::create_dir_all(folder)?;
    }
    let file = File::create(output).with_context(|| format!("failed to make {}", output.display()))?;
    command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file).process_group(0);
    let began = Instant::now();
    let mut child = command.spawn().with_context(|| format!("failed to start {}", command_line(&command)))?;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break Some(status);
        }
        if began.elapsed() > deadline {
            kill(&mut child)?;
            break None;
        }
        std::thread::sleep(PAUSE);
    };
    Ok(Ended { status, took: began.elapsed(), output: output.to_owned() })
}

fn kill(child: &mut Child) -> Result<()> {
    if let Some(group) = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw) {
        // It may have ended in this moment.
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
    child.wait()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::command;

    fn sh(script: &str, deadline: Duration) -> Ended {
        let folder = tempfile::tempdir().unwrap();
        run(command("sh", ["-c", script]), &folder.keep().join("below/output"), deadline).unwrap()
    }

    #[test]
    fn what_a_program_prints_is_kept_in_its_order_with_its_end() {
        let ended = sh("echo out; echo err >&2; exit 3", Duration::from_secs(60));
        assert_eq!((ended.text().as_str(), ended.status.and_then(|status| status.code())), ("out\nerr\n", Some(3)));
        assert!(!ended.succeeded());
    }

    #[test]
    fn a_program_that_does_not_end_is_killed_with_what_it_started() {
        // The child holds the other end of the pipe: `read` returns when it is dead.
        let ended = sh("sleep 1000 & echo $!; wait", Duration::from_millis(300));
        assert!(ended.status.is_none() && !ended.succeeded());
        let child = format!("/proc/{}/stat", ended.text().trim());
        crate::command::wait("the end of the child", Duration::from_secs(60), || {
            // A zombie until somebody reaps it.
            let state = fs::read_to_string(&child).ok();
            Ok(state.is_none_or(|state| state.contains(") Z")).then_some(()))
        })
        .unwrap();
    }
}
