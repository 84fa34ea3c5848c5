//! Runs a program with a prefix before each line of its output, so that several can run at the same time.

use crate::command::command_line;
use anyhow::{Context, Result};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

/// Runs the program to its end. Returns whether it succeeded, and how many tests it ran according to its output.
pub fn run(name: &str, mut command: Command) -> Result<(bool, u64)> {
    let (reader, writer) = std::io::pipe()?;
    command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
    let mut child = command.spawn().with_context(|| format!("failed to start {}", command_line(&command)))?;
    // Or its ends of the pipe stay open here, and the reader never comes to an end.
    drop(command);
    let mut lines = BufReader::new(reader);
    let mut line = Vec::new();
    let mut tests = 0;
    while lines.read_until(b'\n', &mut line)? > 0 {
        let text = String::from_utf8_lossy(&line);
        println!("{name:<10} | {}", text.trim_end());
        tests += parse_test_count(text.trim_end()).unwrap_or_default();
        line.clear();
    }
    Ok((child.wait()?.success(), tests))
}

/// Parses the first line of a test program: `running 3 tests`.
fn parse_test_count(line: &str) -> Option<u64> {
    let (number, tests) = line.strip_prefix("running ")?.split_once(' ')?;
    tests.starts_with("test").then(|| number.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_fails_is_told_from_one_that_does_not() {
        let sh = |script: &str| run("here", crate::command::command("sh", ["-c", script])).unwrap();
        assert_eq!(sh("echo out; echo err >&2"), (true, 0));
        assert_eq!(sh("exit 1"), (false, 0));
    }

    #[test]
    fn tests_are_counted_over_all_programs() {
        let sh = |script: &str| run("here", crate::command::command("sh", ["-c", script])).unwrap();
        assert_eq!(
            sh("echo 'running 2 tests'; echo 'test a ... ok'; echo 'running 1 test'; echo 'running 0 tests'; echo 'running late'"),
            (true, 3)
        );
    }
}
