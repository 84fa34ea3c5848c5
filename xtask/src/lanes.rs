//! `cargo xtask test`: independent lanes. A lane is one step that the final table reports. Each runs even when another failed, unless
//! it depends on that one.

mod clusters;
mod guest;
mod kind;
mod prefixed;
mod registry_install;
mod report;

use crate::command::run_in_terminal;
use crate::instance::repository;
use crate::{cargo, generate, law, planted};
use anyhow::{Result, bail};
use report::{Lane, LaneOutcome, Report};
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Set in the environment of tests: a test that lacks a right or a program fails instead of being skipped.
const MUST_RUN: &str = "YOI_MUST_RUN";

/// What a person asked for, how many tests ran so far, and what those that failed printed.
struct Selection<'a> {
    all: bool,
    /// Parts of the names of tests; all tests if empty.
    filters: &'a [String],
    ran: AtomicU64,
    failures: Mutex<Vec<String>>,
}

impl Selection<'_> {
    /// Runs the tests; returns whether they passed, and the command line for an error message.
    fn run(&self, name: &str, tests: Command, command_line: String) -> Result<(bool, String)> {
        let ran = prefixed::run(name, tests)?;
        self.ran.fetch_add(ran.tests, Ordering::Relaxed);
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).extend(ran.failures);
        Ok((ran.succeeded, command_line))
    }

    /// Prints what failed once more: thousands of lines ran past since.
    fn print_failures(&self) {
        let failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        if !failures.is_empty() {
            println!("\nWhat the failed tests said:\n{}", failures.join("\n"));
        }
    }

    /// Fails when a filter matched no test at all.
    fn check_filter(&self) -> Result<LaneOutcome> {
        if !self.filters.is_empty() && self.ran.load(Ordering::Relaxed) == 0 {
            bail!("no test that could run here has a name that contains {}", self.filters.join(" or "));
        }
        Ok(LaneOutcome::Passed)
    }
}

pub fn run(all: bool, filters: &[String]) -> Result<ExitCode> {
    let mut report = Report::default();
    let selection = Selection { all, filters, ran: AtomicU64::new(0), failures: Mutex::default() };
    if filters.is_empty() {
        report.lane("format", || cargo(&["fmt", "--all", "--check"]));
        report.lane("lints", || {
            cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])?;
            cargo(&[vec!["clippy"], clusters::all_target_args(), vec!["--test", CONFORMANCE, "--", "-D", "warnings"]].concat())
        });
        report.lane("import law", || law::run().map(|()| LaneOutcome::Passed));
        report.lane("generated files", || generate::run(true).map(|()| LaneOutcome::Passed));
        report.lane("dependencies", dependencies);
        report.lane("kind configuration", kind::check);
        report.lane("planted faults fit the code", || planted::check().map(|()| LaneOutcome::Passed));
        report.lane("kind load image-archive", || Ok(LaneOutcome::skipped("needs a Docker engine; only the configuration was checked")));
    }
    report.lane("packages", || {
        if !rustix::process::geteuid().is_root() {
            return Ok(LaneOutcome::skipped("installing takes root; tests that miss a program say so"));
        }
        crate::packages::for_cluster()?;
        crate::packages::for_images()?;
        crate::packages::for_tests()?;
        Ok(LaneOutcome::Passed)
    });
    let whole = cfg!(target_os = "linux") && report.passed("packages");
    // Compiled while nothing else runs; run beside the cluster tests, which leave the processors idle for half of their time.
    report.lane("unit tests compiled", || {
        cargo(&["test", "--no-run", "--workspace"])?;
        cargo(&["test", "--no-run", "--workspace", "--test", CONFORMANCE])
    });
    let units = [("unit tests", "unit", &[][..]), ("conformance", "conforms", &["--test", CONFORMANCE])].map(|(lane, name, targets)| {
        let selection = &selection;
        Lane::new(lane, move || {
            let (passed, line) = units(name, targets, whole, selection)?;
            outcome(passed, &line)
        })
    });
    if all || filters.is_empty() {
        report.lane("conformance in a guest kernel", || guest::conformance(&selection));
    }
    if all && filters.is_empty() {
        report.lane("power cuts at any write", || guest::power_cuts(&selection));
    }
    clusters::lanes(&mut report, &selection, units.into());
    if !filters.is_empty() {
        report.lane("there are such tests", || selection.check_filter());
    }
    if !whole {
        // cargo counts a test that found it cannot run as passed.
        report.lane("unit tests with mounts", || Ok(LaneOutcome::skipped("they need root and its packages; without, they only say so")));
    }
    if all && filters.is_empty() {
        report.lane("planted faults found", || {
            if !rustix::process::geteuid().is_root() {
                return Ok(LaneOutcome::skipped("a node needs root"));
            }
            planted::run(&[]).map(|()| LaneOutcome::Passed)
        });
        report.lane("benchmarks, shown only", || {
            if !rustix::process::geteuid().is_root() {
                return Ok(LaneOutcome::skipped("a loop-backed file system needs root"));
            }
            cargo(&["bench", "-p", "yoi-workspace", "-p", "yoi-session"])
        });
    }
    selection.print_failures();
    report.print();
    Ok(if report.failed() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The target of `workspace` that tries each provider on each file system.
const CONFORMANCE: &str = "conformance";

/// Niceness of unit tests: the cluster tests beside them have precedence.
const NICER: &str = "10";

/// Returns whether the unit tests of these targets passed, and their command line.
fn units(name: &str, targets: &[&str], whole: bool, selection: &Selection<'_>) -> Result<(bool, String)> {
    let mut words = vec!["test", "--no-fail-fast", "--workspace"];
    words.extend(targets);
    if !selection.filters.is_empty() {
        words.push("--");
        words.extend(selection.filters.iter().map(String::as_str));
    }
    let mut tests = Command::new("nice");
    tests.args(["-n", NICER]).arg(cargo::program()).args(&words).current_dir(repository());
    if whole {
        tests.env(MUST_RUN, "1");
    }
    if selection.all {
        tests.env("YOI_HISTORIES", "200").env("YOI_POPULATOR_KILLS", "100").env("YOI_PUSHER_KILLS", "100");
    }
    selection.run(name, tests, format!("cargo {}", words.join(" ")))
}

/// Licences, bans and sources, where the tool for it is installed. Advisories need a database that is fetched from elsewhere.
fn dependencies() -> Result<LaneOutcome> {
    if !repository().join("deny.toml").exists() {
        return Ok(LaneOutcome::skipped("no deny.toml"));
    }
    if crate::command::find_program("cargo-deny").is_none() {
        return Ok(LaneOutcome::skipped("cargo-deny is not installed (cargo install cargo-deny)"));
    }
    cargo(&["deny", "check", "licenses", "bans", "sources"])
}

fn cargo(words: &[&str]) -> Result<LaneOutcome> {
    let succeeded = run_in_terminal(Command::new(cargo::program()).args(words).current_dir(repository()))?;
    outcome(succeeded, &format!("cargo {}", words.join(" ")))
}

fn outcome(succeeded: bool, line: &str) -> Result<LaneOutcome> {
    if !succeeded {
        bail!("`{line}` failed");
    }
    Ok(LaneOutcome::Passed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_that_no_test_bears_fails() {
        let check = |filters: &[&str], ran| {
            let filters: Vec<String> = filters.iter().map(|filter| (*filter).to_owned()).collect();
            Selection { all: false, filters: &filters, ran: AtomicU64::new(ran), failures: Mutex::default() }.check_filter()
        };
        assert!(check(&[], 0).is_ok() && check(&["peers"], 1).is_ok());
        assert!(check(&["peres", "piers"], 0).is_err_and(|error| error.to_string().contains("peres or piers")));
    }
}
