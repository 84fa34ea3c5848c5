//! Programs that run side by side, each line of them with the name of where it comes from.

use crate::command::shown;
use anyhow::{Context, Result};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

/// To its end; whether it succeeded.
pub fn run(name: &str, mut command: Command) -> Result<bool> {
    let (reader, writer) = std::io::pipe()?;
    command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
    let mut child = command.spawn().with_context(|| format!("failed to start {}", shown(&command)))?;
    // Or its ends of the pipe stay open here, and the reader never comes to an end.
    drop(command);
    let mut lines = BufReader::new(reader);
    let mut line = Vec::new();
    while lines.read_until(b'\n', &mut line)? > 0 {
        println!("{name:<10} | {}", String::from_utf8_lossy(&line).trim_end());
        line.clear();
    }
    Ok(child.wait()?.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_fails_is_told_from_one_that_does_not() {
        let sh = |script: &str| run("here", crate::command::command("sh", ["-c", script])).unwrap();
        assert!(sh("echo out; echo err >&2"));
        assert!(!sh("exit 1"));
    }
}
