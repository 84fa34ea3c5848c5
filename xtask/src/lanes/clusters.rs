//! The lanes that need a real Kubernetes. Two clusters run side by side, because tests mostly wait. On one run the tests that can share a
//! cluster, on the other those that kill, remove or replace what other tests need.

use super::report::{Lane, LaneOutcome, Report};
use super::{Selection, registry_install};
use crate::cargo;
use crate::cluster::{self, DataRoot, HostInventory, Shape};
use crate::images::{self, Built};
use crate::install::{self, InstallTarget};
use crate::instance::{Instance, repository};
use crate::test_environment;
use anyhow::{Result, bail};
use std::process::Command;

/// The cluster that tests share.
pub const SHARED: Instance = Instance::YoiTest;
/// A tainted control plane and two workers, as kind-config.yaml asks for.
const SHARED_NODES: u8 = 3;
/// The cluster whose components are killed and removed.
const DISRUPTED: Instance = Instance::YoiFaults;
const BOTH: [Instance; 2] = [SHARED, DISRUPTED];

/// Test targets of `e2e/` that can share a cluster.
const SHARED_TARGETS: [&str; 5] = ["degraded", "e2e", "explain", "replacement", "security"];
/// Those that want the shared cluster for themselves after that, because they take its nodes away.
const NODE_TARGETS: [&str; 1] = ["nodes"];
/// Those that need the image of the programs from npm.
const PROGRAM_TARGETS: [&str; 1] = ["programs"];
/// Those that cannot, in the order in which they run: the first ends with the charts uninstalled, the second kills everything, and the
/// third, which has other schemas installed for a while, is here because this cluster is done first.
const DISRUPTIVE_TARGETS: [&str; 3] = ["teardown", "kills", "manifests"];

/// Rounds of kills.
const ROUNDS: u32 = 12;
/// With `--all`, on each file system.
const MANY_ROUNDS: u32 = 100;
/// The test that plays the rounds.
const ROUNDS_TEST: &str = "nothing_is_lost_doubled_or_left_over_whatever_is_killed";

/// What earlier lanes leave for later ones.
#[derive(Default)]
struct Prepared {
    before: Option<HostInventory>,
    built: Option<Built>,
    charts: bool,
}

/// Runs these lanes, and at the same time `beside`, which need no cluster.
pub fn lanes(report: &mut Report, selection: &Selection<'_>, beside: Vec<Lane<'_>>) {
    let mut prepared = Prepared::default();
    let root = rustix::process::geteuid().is_root();
    // Compiled before there is a cluster: two of them take half a processor even at rest.
    report.lane("images", || {
        if !root {
            return Ok(LaneOutcome::skipped("a node needs root"));
        }
        prepared.built = Some(images::build_for(SHARED)?);
        compile()?;
        Ok(LaneOutcome::Passed)
    });
    report.lane("clusters up", || {
        let Some(built) = &prepared.built else { return Ok(LaneOutcome::skipped("no images")) };
        BOTH.into_iter().try_for_each(cluster::down)?;
        prepared.before = Some(HostInventory::take()?);
        shared_up()?;
        cluster::up(DISRUPTED, Shape::default())?;
        BOTH.into_iter().try_for_each(|instance| images::import_all(instance, built))?;
        Ok(LaneOutcome::Passed)
    });
    let up = report.passed("clusters up");
    report.lane("charts", || match &prepared.built {
        Some(built) if up => {
            BOTH.into_iter().try_for_each(|instance| charts(instance, built))?;
            prepared.charts = true;
            Ok(LaneOutcome::Passed)
        }
        _ => Ok(LaneOutcome::skipped("no cluster with images")),
    });
    let with_charts = |play: fn(&Built, &Selection<'_>) -> Result<()>| match &prepared.built {
        Some(built) if prepared.charts => play(built, selection).map(|()| LaneOutcome::Passed),
        _ => Ok(LaneOutcome::skipped("Yoi is not installed")),
    };
    let on_shared = Lane::new("cluster tests", || with_charts(run_shared));
    let on_disrupted = Lane::new("teardown, kills, manifests", || with_charts(run_disruptive));
    report.run_parallel(beside.into_iter().chain([on_shared, on_disrupted]).collect());
    report.lane("programs from npm", || match &prepared.built {
        Some(built) if prepared.charts => run_programs(built, selection),
        _ => Ok(LaneOutcome::skipped("Yoi is not installed")),
    });
    if selection.all {
        report.lane("tests that need the whole machine", || with_charts(run_alone));
    }
    if selection.filters.is_empty() {
        report.lane("up by context and registry", || {
            if !prepared.charts {
                return Ok(LaneOutcome::skipped("Yoi could not be installed"));
            }
            registry_install::check().map(|()| LaneOutcome::Passed)
        });
    }
    report.lane("clusters down, nothing left", || {
        let Some(before) = &prepared.before else { return Ok(LaneOutcome::skipped("there was no cluster")) };
        BOTH.into_iter().try_for_each(cluster::down)?;
        let after = HostInventory::take()?;
        let mut left: Vec<_> = BOTH.into_iter().flat_map(|instance| after.difference(before, instance)).collect();
        left.sort_unstable();
        left.dedup();
        if !left.is_empty() {
            bail!("{} things are left behind:\n  {}", left.len(), left.join("\n  "));
        }
        Ok(LaneOutcome::Passed)
    });
}

/// The last worker has its trees as overlays on ext4, the others on Btrfs: every test meets both.
fn shared_up() -> Result<()> {
    for (nodes, data_root) in [(SHARED_NODES - 1, DataRoot::Btrfs), (SHARED_NODES, DataRoot::Ext4)] {
        cluster::up(SHARED, Shape { nodes: Some(nodes), data_root: Some(data_root) })?;
    }
    Ok(())
}

fn charts(instance: Instance, built: &Built) -> Result<()> {
    install::charts(&InstallTarget::local(instance)?, &built.references())
}

/// Returns cargo's arguments for these test targets. Their manifest has `test = false`, so cargo builds them only by name, and
/// `--all-targets` leaves them out.
pub fn target_args(targets: &[&'static str]) -> Vec<&'static str> {
    // With the whole workspace, so that dependencies are those of the unit tests and not compiled again with other features.
    let mut words = vec!["--workspace"];
    words.extend(targets.iter().flat_map(|target| ["--test", target]));
    words
}

fn every_target() -> Vec<&'static str> {
    [SHARED_TARGETS.as_slice(), &NODE_TARGETS, &PROGRAM_TARGETS, &DISRUPTIVE_TARGETS].concat()
}

pub fn all_target_args() -> Vec<&'static str> {
    target_args(&every_target())
}

fn compile() -> Result<()> {
    let words = [vec!["test", "--no-run"], all_target_args()].concat();
    let compiled = crate::command::run_in_terminal(Command::new(cargo::program()).args(&words).current_dir(repository()))?;
    outcome(vec![(compiled, words.join(" "))])
}

/// Runs more tests at once than there are cores, because they mostly wait for the cluster.
fn run_shared(built: &Built, selection: &Selection<'_>) -> Result<()> {
    let runs = vec![
        run_targets(SHARED, built, &SHARED_TARGETS, selection, &["--test-threads=6"])?,
        run_targets(SHARED, built, &NODE_TARGETS, selection, &["--test-threads=1"])?,
    ];
    outcome(runs)
}

/// Runs the tests of the programs from npm, with nothing else running: each of them is large.
fn run_programs(built: &Built, selection: &Selection<'_>) -> Result<LaneOutcome> {
    let words = ["--test-threads=3"];
    if !has_tests(test(SHARED, built, &PROGRAM_TARGETS, selection.filters, &["--list"])?)? {
        return Ok(LaneOutcome::skipped("no test of it was asked for"));
    }
    if let Some(why) = images::programs_unavailable()? {
        return Ok(LaneOutcome::skipped(&why));
    }
    let references = images::import_programs(SHARED, built)?;
    let mut cargo = test(SHARED, built, &PROGRAM_TARGETS, selection.filters, &words)?;
    cargo.env("YOI_IMAGES", references);
    outcome(vec![run_cargo(SHARED, selection, cargo)?])?;
    Ok(LaneOutcome::Passed)
}

/// Whether a run with `--list` names a test.
fn has_tests(mut list: Command) -> Result<bool> {
    Ok(crate::command::capture(&mut list)?.lines().any(|line| line.ends_with(": test")))
}

fn run_disruptive(built: &Built, selection: &Selection<'_>) -> Result<()> {
    let teardown = run_targets(DISRUPTED, built, &DISRUPTIVE_TARGETS[..1], selection, &["--test-threads=6"])?;
    charts(DISRUPTED, built)?;
    let mut runs = vec![teardown, kills(DISRUPTED, built, selection, selection.filters)?];
    if selection.filters.is_empty() || selection.filters.iter().any(|filter| ROUNDS_TEST.contains(filter.as_str())) {
        // The same rounds where trees are overlays. A node keeps the file system that it was made with.
        cluster::down(DISRUPTED)?;
        cluster::up(DISRUPTED, Shape { data_root: Some(DataRoot::Ext4), ..Shape::default() })?;
        images::import_all(DISRUPTED, built)?;
        charts(DISRUPTED, built)?;
        runs.push(kills(DISRUPTED, built, selection, &[ROUNDS_TEST.to_owned()])?);
    }
    runs.push(run_targets(DISRUPTED, built, &DISRUPTIVE_TARGETS[2..], selection, &["--test-threads=6"])?);
    // What other lanes still run has the processor that it takes even at rest.
    cluster::down(DISRUPTED)?;
    outcome(runs)
}

fn kills(on: Instance, built: &Built, selection: &Selection<'_>, filters: &[String]) -> Result<TestRun> {
    let rounds = if selection.all { MANY_ROUNDS } else { ROUNDS };
    let mut cargo = test(on, built, &DISRUPTIVE_TARGETS[1..2], filters, &["--test-threads=1", "--nocapture"])?;
    if std::env::var_os("YOI_KILL_ROUNDS").is_none() {
        cargo.env("YOI_KILL_ROUNDS", rounds.to_string());
    }
    run_cargo(on, selection, cargo)
}

/// Runs the tests that measure ordinary work beside a flood of requests, with nothing else running.
fn run_alone(built: &Built, selection: &Selection<'_>) -> Result<()> {
    outcome(vec![run_targets(SHARED, built, &SHARED_TARGETS, selection, &["--test-threads=1", "--ignored"])?])
}

/// Whether it passed, and its command line.
type TestRun = (bool, String);

fn run_targets(on: Instance, built: &Built, targets: &[&'static str], selection: &Selection<'_>, words: &[&str]) -> Result<TestRun> {
    let mut cargo = test(on, built, targets, selection.filters, words)?;
    if selection.all {
        cargo.env("YOI_ATTACHMENTS", "200").env("YOI_REFRESHES", "50");
    }
    run_cargo(on, selection, cargo)
}

fn test(on: Instance, built: &Built, targets: &[&'static str], filters: &[String], words: &[&str]) -> Result<Command> {
    let mut cargo = Command::new(cargo::program());
    cargo.args(["test", "--no-fail-fast"]).args(target_args(targets)).arg("--").args(filters).args(words).current_dir(repository());
    cargo.envs(test_environment::variables(on, built)?);
    Ok(cargo)
}

fn run_cargo(on: Instance, selection: &Selection<'_>, cargo: Command) -> Result<TestRun> {
    let line = cargo.get_args().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
    selection.run(on.name(), cargo, line)
}

fn outcome(runs: Vec<TestRun>) -> Result<()> {
    let failed: Vec<_> = runs.into_iter().filter(|(passed, _)| !passed).map(|(_, line)| format!("`cargo {line}` failed")).collect();
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
        assert!(outcome(vec![(true, "a".into()), (true, "b".into())]).is_ok());
        let said = outcome(vec![(true, "a".into()), (false, "b".into())]).unwrap_err().to_string();
        assert_eq!(said, "`cargo b` failed");
    }

    #[test]
    fn every_test_target_that_needs_a_cluster_has_its_place() {
        let manifest = std::fs::read_to_string(repository().join("e2e/Cargo.toml")).unwrap();
        let (_, targets) = manifest.split_once("[[test]]").unwrap();
        let (targets, _) = targets.split_once("[[bench]]").unwrap();
        let mut declared: Vec<_> = targets.lines().filter_map(|line| line.strip_prefix("name = ")?.trim_matches('"').into()).collect();
        let mut placed = every_target();
        declared.sort_unstable();
        placed.sort_unstable();
        assert_eq!(declared, placed);
        assert_eq!(targets.matches("test = false").count(), placed.len(), "the unit tests would run what needs a cluster");
    }
}
