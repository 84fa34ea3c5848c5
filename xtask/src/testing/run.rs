//! Runs tests as processes of their own: one process a test, and one a lane of the suite of providers.

use super::discover::{CONFORMANCE, Test};
use super::outcome::{Outcome, Outcomes, Times, Verdict};
use super::pool::{self, Job};
use super::process;
use super::slowness;
use super::table::{Lock, Table};
use crate::cargo;
use crate::instance::repository;
use anyhow::Result;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A test that takes longer than so many times what it took last is ended.
const PATIENCE: f64 = 6.0;
/// No test is ended before this time, times the slowness of the machine.
const LEAST: Duration = Duration::from_secs(600);
/// The same for one, or for a lane with one, whose time is not known yet.
const LEAST_OF_UNKNOWN: Duration = Duration::from_secs(2400);

/// What every test of a run gets.
pub struct Setting<'a> {
    pub table: &'a Table,
    pub times: &'a Times,
    pub slowness: f64,
    pub outcomes: &'a Outcomes,
    pub environment: Vec<(&'static str, String)>,
}

/// How tests of one place run.
pub struct Way {
    pub workers: usize,
    /// Niceness: tests beside a cluster that runs others leave it the processors.
    pub nice: Option<u8>,
    /// More of the environment, such as which cluster it is.
    pub environment: Vec<(&'static str, String)>,
    /// Added to the names of tests that run more than once, each time on something else.
    pub variant: Option<&'static str>,
}

impl Setting<'_> {
    /// Runs these tests, and adds their outcomes.
    pub fn run(&self, tests: &[Test], way: &Way) {
        let mut jobs: Vec<Job<'_>> = vec![];
        let mut lanes: BTreeMap<&str, Vec<&Test>> = BTreeMap::new();
        for test in tests {
            if test.program.name == CONFORMANCE {
                let lane = test.own_name().split_once("::").map_or(test.own_name(), |(lane, _)| lane);
                lanes.entry(lane).or_default().push(test);
                continue;
            }
            jobs.push(Job {
                locks: self.locks_of(test),
                seconds: self.seconds(test),
                run: Box::new(move || self.outcomes.add(self.run_one(test, way))),
            });
        }
        for (lane, tests) in lanes {
            jobs.push(Job {
                locks: vec![],
                seconds: tests.iter().map(|test| self.seconds(test)).sum(),
                run: Box::new(move || self.run_lane(lane, &tests, way).into_iter().for_each(|outcome| self.outcomes.add(outcome))),
            });
        }
        pool::run(jobs, way.workers);
    }

    fn locks_of(&self, test: &Test) -> Vec<Lock> {
        self.table.row(&test.name).map(|row| row.locks.clone()).unwrap_or_default()
    }

    /// What it took last; for one that never ran something in the middle, so that it is not the last to begin.
    fn seconds(&self, test: &Test) -> f64 {
        self.times.of(&test.name).unwrap_or(1.0)
    }

    fn deadline(&self, tests: &[&Test]) -> Duration {
        let seconds: f64 = tests.iter().map(|test| self.seconds(test)).sum();
        let known = tests.iter().all(|test| self.times.of(&test.name).is_some());
        let least = if known { LEAST } else { LEAST_OF_UNKNOWN };
        least.max(Duration::from_secs_f64(seconds * PATIENCE)).mul_f64(self.slowness)
    }

    pub fn run_one(&self, test: &Test, way: &Way) -> Outcome {
        let name = full_name(&test.name, way);
        let mut command = self.command(test, way);
        command.args(["--exact", test.own_name(), "--nocapture", "--test-threads=1"]);
        if test.ignored {
            command.arg("--ignored");
        }
        let output = output_file(&name);
        match process::run(command, &output, self.deadline(&[test])) {
            Ok(ended) => {
                let verdict = verdict(&ended.text(), ended.succeeded(), ended.status.is_none());
                Outcome { test: name, verdict, took: ended.took, outputs: vec![output] }
            }
            Err(error) => Outcome { test: name, verdict: Verdict::Failed(format!("{error:#}")), took: Duration::ZERO, outputs: vec![] },
        }
    }

    /// Runs cases of one lane in one process, which prints the time of each.
    fn run_lane(&self, lane: &str, tests: &[&Test], way: &Way) -> Vec<Outcome> {
        let mut command = self.command(tests[0], way);
        command.arg("--exact").args(tests.iter().map(|test| test.own_name()));
        let output = output_file(&format!("{CONFORMANCE}::{lane}"));
        let deadline = self.deadline(tests);
        let (text, took) = match process::run(command, &output, deadline) {
            Ok(ended) => (ended.text(), ended.took),
            Err(error) => (format!("{error:#}"), Duration::ZERO),
        };
        let reported = cases(&text);
        let outcome = |test: &&Test| {
            let missing = || (Verdict::Failed("its process ended before it".to_owned()), took);
            let (verdict, took) = reported.get(test.own_name()).cloned().unwrap_or_else(missing);
            Outcome { test: full_name(&test.name, way), verdict, took, outputs: vec![output.clone()] }
        };
        let mut outcomes: Vec<_> = tests.iter().map(outcome).collect();
        // What it found wrong beside its cases, such as a table that names a case that there is not.
        let known: Vec<_> = tests.iter().map(|test| test.own_name()).collect();
        outcomes.extend(reported.into_iter().filter(|(case, _)| !known.contains(&case.as_str())).map(|(case, (verdict, took))| Outcome {
            test: format!("{CONFORMANCE}::{case}"),
            verdict,
            took,
            outputs: vec![output.clone()],
        }));
        outcomes
    }

    fn command(&self, test: &Test, way: &Way) -> Command {
        let mut command = match way.nice {
            Some(nice) => {
                let mut command = Command::new("nice");
                command.args(["-n", &nice.to_string()]).arg(&test.program.file);
                command
            }
            None => Command::new(&test.program.file),
        };
        command.current_dir(&test.program.folder).env("CARGO_MANIFEST_DIR", &test.program.folder).env("CARGO", cargo::program());
        // An error of a test says what happened; fifty frames of the executor after it only push that out of sight.
        command.env("RUST_LIB_BACKTRACE", "0").env(slowness::VARIABLE, self.slowness.to_string());
        command.envs(self.environment.iter().cloned()).envs(way.environment.iter().cloned());
        command
    }

    /// Runs a test that failed once more. Returns whether it passed.
    pub fn try_again(&self, test: &Test, way: &Way, first: &Outcome) -> bool {
        let Verdict::Failed(why) = &first.verdict else { return false };
        let mut second = self.run_again(test, way);
        let passed = second.verdict == Verdict::Passed;
        if passed {
            second.verdict = Verdict::Flaky(why.clone());
        }
        second.outputs = [first.outputs.clone(), second.outputs].concat();
        self.outcomes.add(second);
        passed
    }

    fn run_again(&self, test: &Test, way: &Way) -> Outcome {
        if test.program.name == CONFORMANCE {
            let lane = format!("{} again", test.own_name());
            return self.run_lane(&lane, &[test], way).swap_remove(0);
        }
        let kept = output_file(&full_name(&test.name, way));
        let _ = std::fs::rename(&kept, kept.with_extension("first"));
        self.run_one(test, way)
    }
}

fn full_name(test: &str, way: &Way) -> String {
    way.variant.map_or_else(|| test.to_owned(), |variant| format!("{test} ({variant})"))
}

/// The folder with what each test of the last run printed.
pub fn output_folder() -> PathBuf {
    repository().join("target/test-output")
}

fn output_file(test: &str) -> PathBuf {
    // A file's name holds 255 bytes, and names of tests are sentences.
    let mut name = test.replace("::", "/").replace([' ', '(', ')'], "-");
    if let Some((folder, file)) = name.rsplit_once('/').filter(|(_, file)| file.len() > MAX_NAME) {
        name = format!("{folder}/{}", &file[..MAX_NAME]);
    }
    output_folder().join(Path::new(&name)).with_extension("log")
}

const MAX_NAME: usize = 240;

/// How one test ended, by what its program printed. A program that ran no test has not passed one.
fn verdict(text: &str, succeeded: bool, ended_by_deadline: bool) -> Verdict {
    if ended_by_deadline {
        return Verdict::Failed("it did not end, and was ended".to_owned());
    }
    let ran = text.lines().any(|line| line.starts_with("test result: ok. 1 passed;"));
    match (succeeded, ran) {
        (true, true) => Verdict::Passed,
        (true, false) => Verdict::Failed("its program ran no test of this name".to_owned()),
        (false, _) => Verdict::Failed(sentence(text)),
    }
}

/// The line that says why a test failed.
fn sentence(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    // Behind `test NAME ... ` where the test printed nothing before.
    let error_in = |line: &&str| line.find("Error: ").filter(|at| *at == 0 || line[..*at].ends_with(" ... "));
    let error = lines.iter().enumerate().rev().find_map(|(nth, line)| Some((nth, &line[error_in(line)?..])));
    // What a program of the test said tells more than its exit code.
    let said = |nth: usize| lines[nth + 1..].iter().find_map(|line| line.strip_prefix("stderr: ").filter(|text| !text.is_empty()));
    let error = error.map(|(nth, error)| if error.starts_with("Error: exit code") { said(nth).unwrap_or(error) } else { error });
    let after_panic = || {
        let at = lines.iter().position(|line| line.contains("panicked at "))?;
        lines.get(at + 1).copied()
    };
    let line = error.or_else(after_panic).unwrap_or("it failed and said nothing");
    line.chars().take(300).collect()
}

/// The cases that the suite of providers reported: `test Btrfs::w1_... ok (1.23s)`, `... FAILED`, `... NOT RUN: why`.
fn cases(text: &str) -> BTreeMap<String, (Verdict, Duration)> {
    let case = |line: &str| {
        let (name, end) = line.strip_prefix("test ")?.split_once(" ... ")?;
        let verdict = if end.starts_with("ok") {
            Verdict::Passed
        } else if let Some(why) = end.strip_prefix("NOT RUN: ") {
            Verdict::NotRun(why.to_owned())
        } else {
            Verdict::Failed(end.strip_prefix("FAILED").unwrap_or(end).trim_start_matches(": ").to_owned())
        };
        Some((name.to_owned(), (verdict, seconds(end).unwrap_or_default())))
    };
    text.lines().filter_map(case).collect()
}

/// The duration at the end of a line, as Rust prints one with two digits: `ok (12.34ms)`.
fn seconds(end: &str) -> Option<Duration> {
    let (_, time) = end.rsplit_once('(')?;
    let time = time.strip_suffix(')')?;
    let units = [("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9), ("s", 1.0)];
    let (number, unit) = units.iter().find_map(|(unit, seconds)| Some((time.strip_suffix(unit)?, seconds)))?;
    Duration::try_from_secs_f64(number.parse::<f64>().ok()? * unit).ok()
}

/// Runs a program that reports cases as the suite of providers does; the names of their outcomes begin with `name`.
pub fn reported(name: &str, command: Command, deadline: Duration) -> Result<Vec<Outcome>> {
    let output = output_file(name);
    let ended = process::run(command, &output, deadline)?;
    let mut outcomes: Vec<_> = cases(&ended.text())
        .into_iter()
        .map(|(case, (verdict, took))| Outcome { test: format!("{name}::{case}"), verdict, took, outputs: vec![output.clone()] })
        .collect();
    if !ended.succeeded() && !outcomes.iter().any(Outcome::has_failed) {
        let verdict = Verdict::Failed("its program failed, and named no case".to_owned());
        outcomes.push(Outcome { test: name.to_owned(), verdict, took: ended.took, outputs: vec![output] });
    }
    Ok(outcomes)
}

/// What tests on no cluster get.
pub fn unit_environment(must_run: bool, thorough: bool) -> Vec<(&'static str, String)> {
    let mut environment = vec![];
    if must_run {
        // A test that lacks a right or a program fails instead of being skipped.
        environment.push(("YOI_MUST_RUN", "1".to_owned()));
    }
    if thorough {
        environment.push(("YOI_THOROUGH", "1".to_owned()));
    }
    environment
}

/// Fails if something of the last run cannot be taken away.
pub fn clear_outputs() -> Result<()> {
    match std::fs::remove_dir_all(output_folder()) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_ran_no_test_has_not_passed_one() {
        let ran = "running 1 test\ntest a ... ok\n\ntest result: ok. 1 passed; 0 failed; 0 ignored";
        assert_eq!(verdict(ran, true, false), Verdict::Passed);
        let none = "running 0 tests\n\ntest result: ok. 0 passed; 0 failed; 0 ignored";
        assert!(matches!(verdict(none, true, false), Verdict::Failed(why) if why.contains("no test")));
        let ignored = "test a ... ignored\n\ntest result: ok. 0 passed; 0 failed; 1 ignored";
        assert!(matches!(verdict(ignored, true, false), Verdict::Failed(_)));
        assert!(matches!(verdict(ran, false, true), Verdict::Failed(why) if why.contains("did not end")));
    }

    #[test]
    fn the_sentence_of_a_failure_is_its_error_or_its_panic() {
        assert_eq!(sentence("test a ...\nError: no room\n\nCaused by: x\nFAILED"), "Error: no room");
        assert_eq!(sentence("test a ... Error: no room\nFAILED"), "Error: no room");
        assert_eq!(sentence("test a ... Error: exit code 5\nstdout: \nstderr: error: not reachable\n"), "error: not reachable");
        assert_eq!(sentence("thread 'a' panicked at src/a.rs:1:1:\nassertion failed: no\nnote: x"), "assertion failed: no");
        assert_eq!(sentence(""), "it failed and said nothing");
    }

    #[test]
    fn cases_of_the_suite_are_read_with_their_times() {
        let text = "test Btrfs::w1_a ... ok (1.23s)\n  words\ntest Btrfs::w2_b ... ok (12.50ms)\ntest Btrfs::w3_c ... FAILED\n\
            test Btrfs::w4_d ... NOT RUN: no quota (here)\ntest x ... FAILED: no such case\n\nconformance: 2 passed";
        let read = cases(text);
        assert_eq!(read.len(), 5);
        assert_eq!(read["Btrfs::w1_a"], (Verdict::Passed, Duration::from_millis(1230)));
        assert_eq!(read["Btrfs::w2_b"].1, Duration::from_micros(12_500));
        assert_eq!(read["Btrfs::w3_c"].0, Verdict::Failed(String::new()));
        assert_eq!(read["Btrfs::w4_d"].0, Verdict::NotRun("no quota (here)".into()));
        assert_eq!(read["x"].0, Verdict::Failed("no such case".into()));
    }

    #[test]
    fn names_that_are_sentences_fit_the_name_of_a_file() {
        let file = output_file(&format!("plan/lib::a::{} (ext4)", "b".repeat(400)));
        assert!(file.file_name().unwrap().len() <= 255 && file.to_string_lossy().contains("plan/lib/a/bbb"));
    }
}
