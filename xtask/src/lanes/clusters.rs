//! The lanes that need a real Kubernetes. There are two of them side by side, because tests mostly wait: on one the tests that bear each other's
//! company, on the other those that take away or kill what any other test needs.

use super::report::{Lane, Outcome, Report};
use super::{elsewhere, prefixed, program};
use crate::cluster::{self, Inventory};
use crate::images::{self, Built};
use crate::install::{self, Target};
use crate::instance::{Instance, repository};
use crate::witness;
use anyhow::{Result, bail};
use std::process::Command;

/// Where tests keep each other company.
pub const SHARED: Instance = Instance::YoiTest;
/// Where they run alone.
const BROKEN: Instance = Instance::YoiFaults;
const BOTH: [Instance; 2] = [SHARED, BROKEN];

/// Rounds of kills.
const ROUNDS: u32 = 12;
/// Half of them on each cluster.
const MANY_ROUNDS: u32 = 300;
/// The test that plays them.
const PLAYS: &str = "nothing_is_lost_doubled_or_left_over_whatever_is_killed";

/// What later lanes take from earlier ones.
#[derive(Default)]
struct Gathered {
    before: Option<Inventory>,
    built: Option<Built>,
    charts: bool,
}

pub fn lanes(report: &mut Report, all: bool, filter: Option<&str>) {
    let mut got = Gathered::default();
    let root = rustix::process::geteuid().is_root();
    report.lane("clusters up", || {
        if !root {
            return Ok(Outcome::skipped("a node needs root"));
        }
        BOTH.into_iter().try_for_each(cluster::down)?;
        got.before = Some(Inventory::take()?);
        BOTH.into_iter().try_for_each(cluster::up)?;
        Ok(Outcome::Passed)
    });
    let up = report.passed("clusters up");
    report.lane("images", || {
        if !up {
            return Ok(Outcome::skipped("no cluster to import them into"));
        }
        let built = images::build_and_import(SHARED)?;
        images::import_all(BROKEN, &built)?;
        got.built = Some(built);
        Ok(Outcome::Passed)
    });
    report.lane("charts", || {
        let Some(built) = &got.built else { return Ok(Outcome::skipped("no images")) };
        BOTH.into_iter().try_for_each(|instance| charts(instance, built))?;
        // Once, and not by two at the same time.
        compile()?;
        got.charts = true;
        Ok(Outcome::Passed)
    });
    let with_charts = |play: fn(&Built, bool, Option<&str>) -> Result<()>| match &got.built {
        Some(built) if got.charts => play(built, all, filter).map(|()| Outcome::Passed),
        _ => Ok(Outcome::skipped("Yoi is not installed")),
    };
    report.beside(vec![Lane::new("cluster tests", || with_charts(shared)), Lane::new("teardown, kills, a reboot", || with_charts(broken))]);
    if all {
        report.lane("what wants it all to itself", || with_charts(alone));
    }
    if filter.is_none() {
        report.lane("up by context and registry", || {
            if !got.charts {
                return Ok(Outcome::skipped("Yoi could not be installed"));
            }
            elsewhere::check().map(|()| Outcome::Passed)
        });
    }
    report.lane("clusters down, nothing left", || {
        let Some(before) = &got.before else { return Ok(Outcome::skipped("there was no cluster")) };
        BOTH.into_iter().try_for_each(cluster::down)?;
        let after = Inventory::take()?;
        let mut left: Vec<_> = BOTH.into_iter().flat_map(|instance| after.beyond(before, instance)).collect();
        left.sort_unstable();
        left.dedup();
        if !left.is_empty() {
            bail!("{} things are left behind:\n  {}", left.len(), left.join("\n  "));
        }
        Ok(Outcome::Passed)
    });
}

fn charts(instance: Instance, built: &Built) -> Result<()> {
    install::charts(&Target::local(instance)?, &built.references())
}

fn compile() -> Result<()> {
    let line = "test --no-run -p yoi-e2e --lib --bins --tests --test teardown --test kills";
    let compiled = crate::command::loud(Command::new(program()).args(line.split(' ')).current_dir(repository()))?;
    verdict(vec![(compiled, line)])
}

/// They mostly wait for the cluster: more of them at once than there are cores.
fn shared(built: &Built, all: bool, filter: Option<&str>) -> Result<()> {
    let mut played = vec![play(SHARED, built, "test -p yoi-e2e --no-fail-fast", filter, "--test-threads=6")?];
    if all && filter.is_none_or(|filter| PLAYS.contains(filter)) {
        played.push(kills(SHARED, built, all, Some(PLAYS))?);
    }
    verdict(played)
}

fn broken(built: &Built, all: bool, filter: Option<&str>) -> Result<()> {
    let teardown = play(BROKEN, built, "test -p yoi-e2e --test teardown", filter, "--test-threads=6")?;
    // It ends with the charts taken away.
    charts(BROKEN, built)?;
    verdict(vec![teardown, kills(BROKEN, built, all, filter)?])
}

fn kills(on: Instance, built: &Built, all: bool, filter: Option<&str>) -> Result<Played> {
    let rounds = if all { MANY_ROUNDS / 2 } else { ROUNDS };
    let rounds = std::env::var("YOI_KILL_ROUNDS").unwrap_or_else(|_| rounds.to_string());
    let words = "--test-threads=1 --nocapture";
    play_with(on, built, "test -p yoi-e2e --test kills", filter, words, &[("YOI_KILL_ROUNDS", &rounds)])
}

/// Tests that measure honest work beside a flood: nothing else runs.
fn alone(built: &Built, _: bool, filter: Option<&str>) -> Result<()> {
    verdict(vec![play(SHARED, built, "test -p yoi-e2e --no-fail-fast", filter, "--test-threads=1 --ignored")?])
}

/// Whether it passed, and what was run.
type Played = (bool, &'static str);

fn play(on: Instance, built: &Built, line: &'static str, filter: Option<&str>, words: &str) -> Result<Played> {
    play_with(on, built, line, filter, words, &[])
}

fn play_with(
    on: Instance,
    built: &Built,
    line: &'static str,
    filter: Option<&str>,
    words: &str,
    settings: &[(&str, &str)],
) -> Result<Played> {
    let mut cargo = Command::new(program());
    cargo.args(line.split(' ')).args(filter).arg("--").args(words.split(' ')).current_dir(repository());
    cargo.envs(witness::environment(on, built)?).envs(settings.iter().copied());
    Ok((prefixed::run(on.name(), cargo)?, line))
}

fn verdict(played: Vec<Played>) -> Result<()> {
    let failed: Vec<_> = played.into_iter().filter(|(passed, _)| !passed).map(|(_, line)| format!("`cargo {line}` failed")).collect();
    if !failed.is_empty() {
        bail!("{}", failed.join("; "));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_failure_of_several_is_the_lanes() {
        assert!(verdict(vec![(true, "a"), (true, "b")]).is_ok());
        let said = verdict(vec![(true, "a"), (false, "b")]).unwrap_err().to_string();
        assert_eq!(said, "`cargo b` failed");
    }
}
