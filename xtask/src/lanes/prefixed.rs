//! Runs a program with a prefix before each line of its output, so that several can run at the same time.

use crate::command::command_line;
use crate::progress::minutes;
use anyhow::{Context, Result};
use std::collections::VecDeque;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Instant;

/// What a program of tests said of itself.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Ran {
    pub succeeded: bool,
    /// How many tests it ran.
    pub tests: u64,
    /// What it printed of those that failed, with the same prefix.
    pub failures: Vec<String>,
}

/// Runs the program to its end.
pub fn run(name: &str, mut command: Command) -> Result<Ran> {
    let (reader, writer) = std::io::pipe()?;
    command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
    let mut child = command.spawn().with_context(|| format!("failed to start {}", command_line(&command)))?;
    // Or its ends of the pipe stay open here, and the reader never comes to an end.
    drop(command);
    let mut lines = BufReader::new(reader);
    let mut line = Vec::new();
    let mut ran = Ran::default();
    let began = Instant::now();
    let mut in_failures = false;
    // What the test that runs now has printed: tests with `--nocapture` say why they fail before the word FAILED, and nowhere else.
    let mut printed = VecDeque::new();
    while lines.read_until(b'\n', &mut line)? > 0 {
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end();
        let prefixed = format!("{name:<10} | {text}");
        if text.starts_with("test result: ") {
            println!("{prefixed}; {} since {name} began", minutes(began.elapsed()));
        } else {
            println!("{prefixed}");
        }
        ran.tests += parse_test_count(text).unwrap_or_default();
        if text.starts_with("test ") {
            printed.clear();
        }
        printed.push_back(prefixed.clone());
        if printed.len() > MAX_PRINTED_LINES {
            printed.pop_front();
        }
        if text == "FAILED" {
            ran.failures.extend(printed.drain(..));
        }
        // Captured words of failed tests stand between these two lines.
        in_failures = (in_failures || text == "failures:") && !text.starts_with("test result: ");
        if in_failures && ran.failures.len() < MAX_FAILURE_LINES {
            ran.failures.push(prefixed);
        }
        line.clear();
    }
    ran.succeeded = child.wait()?.success();
    Ok(ran)
}

/// Lines about failed tests that are kept of one program: more than a person reads, and little memory.
const MAX_FAILURE_LINES: usize = 300;

/// Lines that are kept of a test that printed as it ran; its error is the last of them.
const MAX_PRINTED_LINES: usize = 60;

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
        assert!(sh("echo out; echo err >&2").succeeded);
        assert!(!sh("exit 1").succeeded);
    }

    #[test]
    fn tests_are_counted_over_all_programs() {
        let sh = |script: &str| run("here", crate::command::command("sh", ["-c", script])).unwrap();
        assert_eq!(
            sh("echo 'running 2 tests'; echo 'test a ... ok'; echo 'running 1 test'; echo 'running 0 tests'; echo 'running late'").tests,
            3
        );
    }

    #[test]
    fn the_words_of_failed_tests_are_kept_for_the_end() {
        let script = "echo 'test a ... FAILED'; echo failures:; echo '---- a stdout ----'; echo 'no room'; echo 'test result: FAILED. 0 passed'; echo after";
        let ran = run("here", crate::command::command("sh", ["-c", script])).unwrap();
        assert_eq!(ran.failures, ["here       | failures:", "here       | ---- a stdout ----", "here       | no room"]);
    }

    #[test]
    fn a_test_that_prints_as_it_runs_is_kept_with_its_error() {
        let script = "echo 'test a ... well'; echo ok; echo 'test b ... begins'; echo 'Error: no room'; echo FAILED; echo 'test c ... ok'";
        let ran = run("here", crate::command::command("sh", ["-c", script])).unwrap();
        assert_eq!(ran.failures, ["here       | test b ... begins", "here       | Error: no room", "here       | FAILED"]);
    }
}
