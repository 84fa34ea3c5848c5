//! The lanes that need a real Kubernetes. There are two of them side by side, because tests mostly wait: on one the tests that bear each other's
//! company, on the other those that take away or kill what any other test needs.

use super::report::{Lane, Outcome, Report};
use super::{Wanted, elsewhere, program};
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

/// Test targets of `e2e/` that bear each other's company.
const SHARED_TARGETS: [&str; 6] = ["e2e", "explain", "manifests", "poor", "replacement", "security"];
/// Those that do not, in their order: the first ends with the charts taken away, the second kills everything.
const BROKEN_TARGETS: [&str; 2] = ["teardown", "kills"];

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

/// With one more lane beside them, which needs none.
pub fn lanes(report: &mut Report, wanted: &Wanted<'_>, other: Lane<'_>) {
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
    let with_charts = |play: fn(&Built, &Wanted<'_>) -> Result<()>| match &got.built {
        Some(built) if got.charts => play(built, wanted).map(|()| Outcome::Passed),
        _ => Ok(Outcome::skipped("Yoi is not installed")),
    };
    report.beside(vec![
        other,
        Lane::new("cluster tests", || with_charts(shared)),
        Lane::new("teardown, kills, a reboot", || with_charts(broken)),
    ]);
    if wanted.all {
        report.lane("what wants it all to itself", || with_charts(alone));
    }
    if wanted.filter.is_none() {
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

/// Cargo leaves targets that are run by name only out of all others, and of `--all-targets` too.
pub fn named(targets: &[&'static str]) -> Vec<&'static str> {
    // With the whole workspace, so that dependencies are those of the unit tests and not compiled again with other features.
    let mut words = vec!["--workspace"];
    words.extend(targets.iter().flat_map(|target| ["--test", target]));
    words
}

pub fn all_named() -> Vec<&'static str> {
    named(&[SHARED_TARGETS.as_slice(), BROKEN_TARGETS.as_slice()].concat())
}

fn compile() -> Result<()> {
    let words = [vec!["test", "--no-run"], all_named()].concat();
    let compiled = crate::command::loud(Command::new(program()).args(&words).current_dir(repository()))?;
    verdict(vec![(compiled, words.join(" "))])
}

/// They mostly wait for the cluster: more of them at once than there are cores.
fn shared(built: &Built, wanted: &Wanted<'_>) -> Result<()> {
    let mut played = vec![play(SHARED, built, &SHARED_TARGETS, wanted, &["--test-threads=6"])?];
    if wanted.all && wanted.filter.is_none_or(|filter| PLAYS.contains(filter)) {
        played.push(kills(SHARED, built, wanted, Some(PLAYS))?);
    }
    verdict(played)
}

fn broken(built: &Built, wanted: &Wanted<'_>) -> Result<()> {
    let teardown = play(BROKEN, built, &BROKEN_TARGETS[..1], wanted, &["--test-threads=6"])?;
    charts(BROKEN, built)?;
    verdict(vec![teardown, kills(BROKEN, built, wanted, wanted.filter)?])
}

fn kills(on: Instance, built: &Built, wanted: &Wanted<'_>, filter: Option<&str>) -> Result<Played> {
    let rounds = if wanted.all { MANY_ROUNDS / 2 } else { ROUNDS };
    let mut cargo = test(on, built, &BROKEN_TARGETS[1..], filter, &["--test-threads=1", "--nocapture"])?;
    if std::env::var_os("YOI_KILL_ROUNDS").is_none() {
        cargo.env("YOI_KILL_ROUNDS", rounds.to_string());
    }
    played(on, wanted, cargo)
}

/// Tests that measure honest work beside a flood: nothing else runs.
fn alone(built: &Built, wanted: &Wanted<'_>) -> Result<()> {
    verdict(vec![play(SHARED, built, &SHARED_TARGETS, wanted, &["--test-threads=1", "--ignored"])?])
}

/// Whether it passed, and what was run.
type Played = (bool, String);

fn play(on: Instance, built: &Built, targets: &[&'static str], wanted: &Wanted<'_>, words: &[&str]) -> Result<Played> {
    played(on, wanted, test(on, built, targets, wanted.filter, words)?)
}

fn test(on: Instance, built: &Built, targets: &[&'static str], filter: Option<&str>, words: &[&str]) -> Result<Command> {
    let mut cargo = Command::new(program());
    cargo.args(["test", "--no-fail-fast"]).args(named(targets)).args(filter).arg("--").args(words).current_dir(repository());
    cargo.envs(witness::environment(on, built)?);
    Ok(cargo)
}

fn played(on: Instance, wanted: &Wanted<'_>, cargo: Command) -> Result<Played> {
    let line = cargo.get_args().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
    wanted.play(on.name(), cargo, line)
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
        assert!(verdict(vec![(true, "a".into()), (true, "b".into())]).is_ok());
        let said = verdict(vec![(true, "a".into()), (false, "b".into())]).unwrap_err().to_string();
        assert_eq!(said, "`cargo b` failed");
    }

    #[test]
    fn every_test_target_that_needs_a_cluster_has_its_place() {
        let manifest = std::fs::read_to_string(repository().join("e2e/Cargo.toml")).unwrap();
        let (_, targets) = manifest.split_once("[[test]]").unwrap();
        let (targets, _) = targets.split_once("[[bench]]").unwrap();
        let mut stand: Vec<_> = targets.lines().filter_map(|line| line.strip_prefix("name = ")?.trim_matches('"').into()).collect();
        let mut placed = [SHARED_TARGETS.as_slice(), BROKEN_TARGETS.as_slice()].concat();
        stand.sort_unstable();
        placed.sort_unstable();
        assert_eq!(stand, placed);
        assert_eq!(targets.matches("test = false").count(), placed.len(), "the unit tests would run what needs a cluster");
    }
}
