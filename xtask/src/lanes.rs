//! `cargo xtask test`: independent lanes, each run even when another failed, unless it stands on that one.

mod clusters;
mod elsewhere;
mod kind;
mod prefixed;
mod report;

use crate::command::loud;
use crate::instance::repository;
use crate::{generate, law, planted};
use anyhow::{Result, bail};
use report::{Lane, Outcome, Report};
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicU64, Ordering};

/// In the environment of a test: to be skipped for want of a right or a program is to fail.
const MUST_RUN: &str = "YOI_MUST_RUN";

/// What a person asked for, and how much of it there was.
struct Wanted<'a> {
    all: bool,
    filter: Option<&'a str>,
    ran: AtomicU64,
}

impl Wanted<'_> {
    /// Whether it passed, and what was run.
    fn play(&self, name: &str, tests: Command, line: String) -> Result<(bool, String)> {
        let (passed, ran) = prefixed::run(name, tests)?;
        self.ran.fetch_add(ran, Ordering::Relaxed);
        Ok((passed, line))
    }

    /// A word that no test bears would be found to hold.
    fn found(&self) -> Result<Outcome> {
        match (self.filter, self.ran.load(Ordering::Relaxed)) {
            (Some(filter), 0) => bail!("no test that could run here has a name that contains {filter:?}"),
            _ => Ok(Outcome::Passed),
        }
    }
}

pub fn run(all: bool, filter: Option<&str>) -> Result<ExitCode> {
    let mut report = Report::default();
    let wanted = Wanted { all, filter, ran: AtomicU64::new(0) };
    if filter.is_none() {
        report.lane("format", || cargo(&["fmt", "--all", "--check"]));
        report.lane("lints", || {
            cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])?;
            cargo(&[vec!["clippy"], clusters::all_named(), vec!["--", "-D", "warnings"]].concat())
        });
        report.lane("import law", || law::run().map(|()| Outcome::Passed));
        report.lane("generated files", || generate::run(true).map(|()| Outcome::Passed));
        report.lane("dependencies", dependencies);
        report.lane("kind configuration", kind::check);
        report.lane("planted faults fit the code", || planted::check().map(|()| Outcome::Passed));
        report.lane("kind load image-archive", || Ok(Outcome::skipped("needs a Docker engine; only the configuration was checked")));
        report.lane("NetworkPolicies enforced", || Ok(Outcome::skipped("the local cluster's network stores them and enforces none")));
    }
    report.lane("packages", || {
        if !rustix::process::geteuid().is_root() {
            return Ok(Outcome::skipped("installing takes root; tests that miss a program say so"));
        }
        crate::packages::for_cluster()?;
        crate::packages::for_images()?;
        crate::packages::for_tests()?;
        Ok(Outcome::Passed)
    });
    let whole = cfg!(target_os = "linux") && report.passed("packages");
    // Compiled while nothing else runs, played beside the cluster's tests, which leave the processors idle for half of their time.
    report.lane("unit tests compiled", || cargo(&["test", "--no-run", "--workspace"]));
    let units = Lane::new("unit tests", || {
        let (passed, line) = units(whole, &wanted)?;
        verdict(passed, &line)
    });
    clusters::lanes(&mut report, &wanted, units);
    if filter.is_some() {
        report.lane("there are such tests", || wanted.found());
    }
    if !whole {
        // cargo counts a test that found it cannot run as passed.
        report.lane("unit tests with mounts", || Ok(Outcome::skipped("they need root and its packages; without, they only say so")));
    }
    if all && filter.is_none() {
        report.lane("planted faults found", || {
            if !rustix::process::geteuid().is_root() {
                return Ok(Outcome::skipped("a node needs root"));
            }
            planted::run(None).map(|()| Outcome::Passed)
        });
        report.lane("benchmarks, shown only", || {
            if !rustix::process::geteuid().is_root() {
                return Ok(Outcome::skipped("a loop-backed file system needs root"));
            }
            cargo(&["bench", "-p", "yoi-workspace", "-p", "yoi-session"])
        });
    }
    report.print();
    Ok(if report.failed() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// A cluster beside them has the right of way.
const NICER: &str = "10";

/// Whether they passed, and what was run.
fn units(whole: bool, wanted: &Wanted<'_>) -> Result<(bool, String)> {
    let mut words = vec!["test", "--no-fail-fast", "--workspace"];
    words.extend(wanted.filter);
    let mut tests = Command::new("nice");
    tests.args(["-n", NICER]).arg(program()).args(&words).current_dir(repository());
    if whole {
        tests.env(MUST_RUN, "1");
    }
    wanted.play("unit", tests, format!("cargo {}", words.join(" ")))
}

/// Licences, bans and sources, where the tool for it is installed. Advisories need a database that is fetched from elsewhere.
fn dependencies() -> Result<Outcome> {
    if !repository().join("deny.toml").exists() {
        return Ok(Outcome::skipped("no deny.toml"));
    }
    if crate::command::found("cargo-deny").is_none() {
        return Ok(Outcome::skipped("cargo-deny is not installed (cargo install cargo-deny)"));
    }
    cargo(&["deny", "check", "licenses", "bans", "sources"])
}

fn cargo(words: &[&str]) -> Result<Outcome> {
    let succeeded = loud(Command::new(program()).args(words).current_dir(repository()))?;
    verdict(succeeded, &format!("cargo {}", words.join(" ")))
}

fn program() -> std::ffi::OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

fn verdict(succeeded: bool, line: &str) -> Result<Outcome> {
    if !succeeded {
        bail!("`{line}` failed");
    }
    Ok(Outcome::Passed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_that_no_test_bears_fails() {
        let wanted = |filter, ran| Wanted { all: false, filter, ran: AtomicU64::new(ran) };
        assert!(wanted(None, 0).found().is_ok() && wanted(Some("peers"), 1).found().is_ok());
        assert!(wanted(Some("peres"), 0).found().is_err_and(|error| error.to_string().contains("\"peres\"")));
    }
}
