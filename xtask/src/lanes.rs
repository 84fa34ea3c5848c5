//! `cargo xtask test`: independent lanes, each run even when another failed, unless it stands on that one.

mod elsewhere;
mod kills;
mod kind;
mod report;

use crate::cluster::{self, Inventory};
use crate::command::loud;
use crate::images::{self, Built};
use crate::install::{self, Target};
use crate::instance::{Instance, repository};
use crate::{generate, law, planted, witness};
use anyhow::{Result, bail};
use report::{Outcome, Report};
use std::process::{Command, ExitCode};

const INSTANCE: Instance = Instance::YoiTest;

/// What later lanes take from earlier ones.
#[derive(Default)]
struct Gathered {
    before: Option<Inventory>,
    built: Option<Built>,
    charts: bool,
}

pub fn run(all: bool, filter: Option<&str>) -> Result<ExitCode> {
    let mut report = Report::default();
    if filter.is_none() {
        report.lane("format", || cargo(&["fmt", "--all", "--check"]));
        report.lane("lints", || cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]));
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
        Ok(Outcome::Passed)
    });
    report.lane("unit tests", || {
        let mut words = vec!["test", "--no-fail-fast", "--workspace", "--exclude", "yoi-e2e"];
        words.extend(filter);
        cargo(&words)
    });
    on_a_cluster(&mut report, all, filter);
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

fn on_a_cluster(report: &mut Report, all: bool, filter: Option<&str>) {
    let mut got = Gathered::default();
    let root = rustix::process::geteuid().is_root();
    report.lane("cluster up", || {
        if !root {
            return Ok(Outcome::skipped("a node needs root"));
        }
        cluster::down(INSTANCE)?;
        got.before = Some(Inventory::take()?);
        cluster::up(INSTANCE)?;
        Ok(Outcome::Passed)
    });
    let up = report.passed("cluster up");
    report.lane("images", || {
        if !up {
            return Ok(Outcome::skipped("no cluster to import them into"));
        }
        got.built = Some(images::build_and_import(INSTANCE)?);
        Ok(Outcome::Passed)
    });
    report.lane("charts", || {
        let Some(built) = &got.built else { return Ok(Outcome::skipped("no images")) };
        install::charts(&Target::local(INSTANCE)?, &built.references())?;
        got.charts = true;
        Ok(Outcome::Passed)
    });
    report.lane("cluster tests", || match &got.built {
        Some(built) if got.charts => cluster_tests(built, filter, all),
        _ => Ok(Outcome::skipped("Yoi is not installed")),
    });
    if filter.is_none() {
        report.lane("kills and a reboot", || match &got.built {
            Some(built) if got.charts => kills::run(built, all),
            _ => Ok(Outcome::skipped("Yoi is not installed")),
        });
        report.lane("up by context and registry", || {
            if !got.charts {
                return Ok(Outcome::skipped("Yoi could not be installed"));
            }
            elsewhere::check().map(|()| Outcome::Passed)
        });
    }
    report.lane("cluster down, nothing left", || {
        let Some(before) = &got.before else { return Ok(Outcome::skipped("there was no cluster")) };
        cluster::down(INSTANCE)?;
        let after = Inventory::take()?;
        match after.beyond(before, INSTANCE).as_slice() {
            [] => Ok(Outcome::Passed),
            left => bail!("{} things are left behind:\n  {}", left.len(), left.join("\n  ")),
        }
    });
}

fn cluster_tests(built: &Built, filter: Option<&str>, all: bool) -> Result<Outcome> {
    let mut test = Command::new(program());
    // They mostly wait for the cluster: more of them at once than there are cores.
    test.args(["test", "--no-fail-fast", "-p", "yoi-e2e"]).args(filter).args(["--", "--test-threads=6"]).current_dir(repository());
    if all {
        // What takes minutes and needs the machine for itself.
        test.arg("--include-ignored");
    }
    test.envs(witness::environment(INSTANCE, built)?);
    verdict(loud(&mut test)?, "cargo test -p yoi-e2e")
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
