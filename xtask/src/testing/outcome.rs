//! How tests ended, and where that is kept.

use crate::cache;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How one test ended.
#[derive(Debug, Clone)]
pub struct Outcome {
    pub test: String,
    pub verdict: Verdict,
    pub took: Duration,
    /// Where all that it printed is, also what a run before its second try printed.
    pub outputs: Vec<PathBuf>,
}

impl Outcome {
    pub fn has_failed(&self) -> bool {
        matches!(self.verdict, Verdict::Failed(_))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Passed,
    /// With why, in a line.
    Failed(String),
    /// It failed beside others with the first sentence, and passed alone.
    Flaky(String),
    /// What it needs is not here.
    NotRun(String),
}

impl Verdict {
    fn word(&self) -> &'static str {
        match self {
            Verdict::Passed => "ok",
            Verdict::Failed(_) => "FAILED",
            Verdict::Flaky(_) => "FLAKY",
            Verdict::NotRun(_) => "not run",
        }
    }
}

/// The outcomes of a run, put together by all that run tests.
#[derive(Default)]
pub struct Outcomes(Mutex<Vec<Outcome>>);

impl Outcomes {
    /// Keeps an outcome, and prints it in a line.
    pub fn add(&self, outcome: Outcome) {
        let why = match &outcome.verdict {
            Verdict::Passed => String::new(),
            Verdict::Failed(why) | Verdict::Flaky(why) | Verdict::NotRun(why) => format!(": {why}"),
        };
        println!("{:>7} {:>7.1}s  {}{why}", outcome.verdict.word(), outcome.took.as_secs_f64(), outcome.test);
        let mut outcomes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        outcomes.retain(|other| other.test != outcome.test);
        outcomes.push(outcome);
    }

    pub fn all(&self) -> Vec<Outcome> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn failed(&self) -> Vec<Outcome> {
        self.all().into_iter().filter(Outcome::has_failed).collect()
    }

    pub fn of_place(&self, is_there: impl Fn(&str) -> bool) -> Counts {
        let mut counts = Counts::default();
        for outcome in self.all().iter().filter(|outcome| is_there(&outcome.test)) {
            match outcome.verdict {
                Verdict::Passed => counts.passed += 1,
                Verdict::Flaky(_) => counts.flaky += 1,
                Verdict::Failed(_) => counts.failed += 1,
                Verdict::NotRun(_) => counts.not_run += 1,
            }
        }
        counts
    }

    /// Prints the ten that took longest, and what failed tests said.
    pub fn print(&self) {
        let mut all = self.all();
        all.sort_by_key(|outcome| std::cmp::Reverse(outcome.took));
        println!("\nThe slowest:");
        for outcome in all.iter().take(10) {
            println!("{:>7.1}s  {}", outcome.took.as_secs_f64(), outcome.test);
        }
        for outcome in all.iter().filter(|outcome| matches!(outcome.verdict, Verdict::Failed(_) | Verdict::Flaky(_))) {
            for output in &outcome.outputs {
                let text = fs::read(output).unwrap_or_default();
                let text = crate::command::tail(&String::from_utf8_lossy(&text), PRINTED_LINES);
                println!("\n---- {} {} ({}) ----\n{text}", outcome.verdict.word(), outcome.test, output.display());
            }
        }
    }
}

/// Lines of a failed test that are printed; all of them are in its file.
const PRINTED_LINES: usize = 80;

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    pub passed: usize,
    pub flaky: usize,
    pub failed: usize,
    pub not_run: usize,
}

/// What each test took and which failed when they ran last, kept in the user's cache: every run adds to it.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Times {
    seconds: BTreeMap<String, f64>,
    /// Those that failed when they ran last.
    pub failed: BTreeSet<String>,
}

fn times_file() -> PathBuf {
    crate::instance::cache().join("test-times.json")
}

impl Times {
    pub fn read() -> Times {
        fs::read(times_file()).ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
    }

    pub fn of(&self, test: &str) -> Option<f64> {
        self.seconds.get(test).copied()
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.seconds.keys().map(String::as_str)
    }

    /// Takes over what these took. A test that did not run to its end says nothing about its time.
    pub fn update(&mut self, outcomes: &[Outcome]) {
        for outcome in outcomes.iter().filter(|outcome| matches!(outcome.verdict, Verdict::Passed | Verdict::Flaky(_))) {
            self.failed.remove(&outcome.test);
            self.seconds.insert(outcome.test.clone(), (outcome.took.as_secs_f64() * 100.0).round() / 100.0);
        }
        self.failed.extend(outcomes.iter().filter(|outcome| outcome.has_failed()).map(|outcome| outcome.test.clone()));
    }

    pub fn write(&self) -> Result<PathBuf> {
        let file = times_file();
        fs::create_dir_all(crate::instance::cache())?;
        // Renamed, so that a run beside this one reads no half of it.
        let fresh = file.with_extension(format!("{}.new", cache::key([std::process::id().to_string()])));
        fs::write(&fresh, serde_json::to_string_pretty(self)? + "\n")?;
        fs::rename(&fresh, &file).with_context(|| format!("failed to write {}", file.display()))?;
        Ok(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(test: &str, verdict: Verdict, seconds: u64) -> Outcome {
        Outcome { test: test.to_owned(), verdict, took: Duration::from_secs(seconds), outputs: vec![] }
    }

    #[test]
    fn a_second_outcome_of_a_test_takes_the_place_of_the_first() {
        let outcomes = Outcomes::default();
        outcomes.add(outcome("a", Verdict::Failed("no room".into()), 1));
        assert_eq!(outcomes.failed().len(), 1);
        outcomes.add(outcome("a", Verdict::Flaky("no room".into()), 2));
        outcomes.add(outcome("b", Verdict::Passed, 2));
        assert_eq!(outcomes.of_place(|_| true), Counts { passed: 1, flaky: 1, failed: 0, not_run: 0 });
        assert_eq!(outcomes.of_place(|test| test == "b"), Counts { passed: 1, ..Counts::default() });
    }

    #[test]
    fn only_a_test_that_passed_says_what_it_takes() {
        let mut times = Times::default();
        times.update(&[outcome("a", Verdict::Passed, 3), outcome("b", Verdict::Failed("late".into()), 600)]);
        times.update(&[outcome("a", Verdict::Passed, 4)]);
        assert_eq!((times.of("a"), times.of("b")), (Some(4.0), None));
        assert_eq!(times.failed, BTreeSet::from(["b".to_owned()]));
        times.update(&[outcome("b", Verdict::Passed, 1)]);
        assert!(times.failed.is_empty());
    }
}
