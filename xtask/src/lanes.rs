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
use report::{Outcome, Report};
use std::process::{Command, ExitCode};

/// In the environment of a test: to be skipped for want of a right or a program is to fail.
const MUST_RUN: &str = "YOI_MUST_RUN";

pub fn run(all: bool, filter: Option<&str>) -> Result<ExitCode> {
    let mut report = Report::default();
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
    report.lane("unit tests", || {
        let mut words = vec!["test", "--no-fail-fast", "--workspace"];
        words.extend(filter);
        let mut tests = Command::new(program());
        tests.args(&words).current_dir(repository());
        if whole {
            tests.env(MUST_RUN, "1");
        }
        verdict(loud(&mut tests)?, &format!("cargo {}", words.join(" ")))
    });
    if !whole {
        // cargo counts a test that found it cannot run as passed.
        report.lane("unit tests with mounts", || Ok(Outcome::skipped("they need root and its packages; without, they only say so")));
    }
    clusters::lanes(&mut report, all, filter);
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
