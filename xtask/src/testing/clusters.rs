//! The tests that need a real Kubernetes, and the clusters that they run on: one of three nodes for all that can share it, and with `--all` then one
//! of one node whose components are killed and removed.

use super::outcome::Verdict;
use super::report::{LaneOutcome, Report};
use super::run::{Setting, Way};
use super::table::{Place, Tier};
use super::{Request, compile::Compiled, discover::Test, play, registry_install, workers};
use crate::cluster::{self, DataRoot, HostInventory, Kubectl, Shape};
use crate::command::wait;
use crate::images::{self, Built};
use crate::install;
use crate::instance::{Instance, Node};
use crate::{build, bundle, test_environment};
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::time::Duration;

/// The cluster that tests share.
pub const SHARED: Instance = Instance::YoiTest;
/// A tainted control plane and two workers, as kind-config.yaml asks for.
const SHARED_NODES: u8 = 3;
/// The cluster whose components are killed and removed.
const DISRUPTED: Instance = Instance::YoiFaults;

/// Rounds of kills, on each of two file systems.
pub const ROUNDS: u32 = 12;
/// The environment variable that says another number of them.
pub const ROUNDS_VARIABLE: &str = "YOI_KILL_ROUNDS";
/// The test that plays the rounds.
pub const ROUNDS_TEST: &str = "e2e/kills::nothing_is_lost_doubled_or_left_over_whatever_is_killed";

/// The test in whose rounds lender and holder of a path write while processes die, and the environment variable that says how many.
pub const WRITERS_TEST: &str = "e2e/kills::two_writers::lender_and_holder_never_both_write_whatever_dies_between_two_states_of_a_loan";
pub const WRITERS_VARIABLE: &str = "YOI_WRITER_ROUNDS";

/// Those that make another machine a node.
pub const HOST_TESTS: &str = "e2e/e2e::host::";

/// What earlier lanes leave for later ones.
pub struct Clusters<'a> {
    compiled: &'a Compiled,
    root: bool,
    whole: bool,
    all: bool,
    keep: bool,
    built: Option<Built>,
    before: Option<HostInventory>,
    /// Yoi is installed on the shared cluster.
    installed: bool,
}

impl<'a> Clusters<'a> {
    pub fn new(compiled: &'a Compiled, request: &Request, root: bool) -> Self {
        let (whole, all) = (request.is_whole(), request.tier > Tier::Test);
        Self { compiled, root, whole, all, keep: request.keep, built: None, before: None, installed: false }
    }

    /// Makes the shared cluster with Yoi, and runs the tests that can share it, then those that want it alone.
    pub fn shared(&mut self, report: &Report, setting: &Setting<'_>, tests: &BTreeMap<Place, Vec<Test>>) {
        let of = |place| tests.get(&place).map_or(&[][..], Vec::as_slice);
        if tests.keys().all(|place| !place.has_cluster()) {
            return;
        }
        report.lane("images", || {
            if !self.root {
                return Ok(LaneOutcome::skipped("a node needs root"));
            }
            let built = images::build_with(SHARED, &self.compiled.programs)?;
            if tests.values().flatten().any(|test| test.name.starts_with(HOST_TESTS)) {
                bundle::write(&built, images::Profile::Dev, Some(test_environment::bundle()))?;
            }
            self.built = Some(built);
            Ok(LaneOutcome::Passed)
        });
        if [Place::Shared, Place::Alone, Place::Last, Place::Programs].iter().all(|place| of(*place).is_empty()) {
            return;
        }
        let Some(built) = &self.built else { return };
        report.lane("cluster of three nodes, with Yoi", || {
            if !self.keep {
                [SHARED, DISRUPTED].into_iter().try_for_each(cluster::down)?;
                self.before = Some(HostInventory::take()?);
            }
            shared_up()?;
            images::import_all(SHARED, built)?;
            charts(SHARED, built)?;
            self.installed = true;
            Ok(LaneOutcome::Passed)
        });
        for (place, lane) in [(Place::Shared, "tests that share a cluster"), (Place::Alone, "tests that change its nodes or Yoi")] {
            if !of(place).is_empty() {
                report.lane(lane, || match self.way(place)? {
                    Some(way) => Ok(play(setting, of(place), &way)),
                    None => Ok(LaneOutcome::skipped("Yoi is not installed")),
                });
            }
        }
        if !of(Place::Programs).is_empty() {
            report.lane("programs from npm", || self.programs(setting, of(Place::Programs)));
        }
    }

    /// How tests run on the shared cluster; None if Yoi is not installed there.
    pub fn way(&self, place: Place) -> Result<Option<Way>> {
        let Some(built) = self.built.as_ref().filter(|_| self.installed) else { return Ok(None) };
        Ok(Some(way(SHARED, built, place)?))
    }

    fn programs(&self, setting: &Setting<'_>, tests: &[Test]) -> Result<LaneOutcome> {
        let (Some(mut way), Some(built)) = (self.way(Place::Programs)?, &self.built) else {
            return Ok(LaneOutcome::skipped("Yoi is not installed"));
        };
        if let Some(why) = images::programs_unavailable()? {
            return Ok(LaneOutcome::skipped(&why));
        }
        let references = images::import_programs(SHARED, built)?;
        way.environment.retain(|(name, _)| *name != "YOI_IMAGES");
        way.environment.push(("YOI_IMAGES", references.display().to_string()));
        Ok(play(setting, tests, &way))
    }

    /// Runs what comes after all other tests of the shared cluster, and takes the cluster away.
    pub fn last(&mut self, report: &Report, setting: &Setting<'_>, tests: &BTreeMap<Place, Vec<Test>>) {
        if self.installed {
            // A deletion that hangs is a fault of ours. Tests that failed leave theirs as they are.
            if setting.outcomes.failed().is_empty() {
                let one_was_flaky = setting.outcomes.all().iter().any(|outcome| matches!(outcome.verdict, Verdict::Flaky(_)));
                report.lane("namespaces of tests are gone", || namespaces_gone(setting.slowness, one_was_flaky));
            }
            let last = tests.get(&Place::Last).map_or(&[][..], Vec::as_slice);
            if !last.is_empty() {
                report.lane("uninstalled and installed again", || match self.way(Place::Last)? {
                    Some(way) => Ok(play(setting, last, &way)),
                    None => Ok(LaneOutcome::skipped("Yoi is not installed")),
                });
            }
            if self.all && self.whole {
                report.lane("up by context and registry", || registry_install::check().map(|()| LaneOutcome::Passed));
            }
        }
        self.down(report, "cluster down, nothing left");
    }

    fn down(&mut self, report: &Report, lane: &'static str) {
        if self.keep {
            return;
        }
        let Some(before) = &self.before else { return };
        report.lane(lane, || {
            [SHARED, DISRUPTED].into_iter().try_for_each(cluster::down)?;
            let after = HostInventory::take()?;
            let mut left: Vec<_> = [SHARED, DISRUPTED].into_iter().flat_map(|instance| after.difference(before, instance)).collect();
            left.sort_unstable();
            left.dedup();
            if !left.is_empty() {
                bail!("{} things are left behind:\n  {}", left.len(), left.join("\n  "));
            }
            Ok(LaneOutcome::Passed)
        });
    }

    /// Runs the tests that remove and kill what others need, on a cluster of one node with trees on Btrfs, and the rounds of kills once more on ext4.
    pub fn disrupted(&mut self, report: &Report, setting: &Setting<'_>, tests: &BTreeMap<Place, Vec<Test>>) {
        let of = |place| tests.get(&place).map_or(&[][..], Vec::as_slice);
        let (disrupted, kills) = (of(Place::Disrupted), of(Place::Kills));
        if disrupted.is_empty() && kills.is_empty() {
            return;
        }
        let Some(built) = &self.built else { return };
        let up = |data_root| -> Result<LaneOutcome> {
            cluster::down(DISRUPTED)?;
            cluster::up(DISRUPTED, Shape { data_root, ..Shape::default() })?;
            images::import_all(DISRUPTED, built)?;
            charts(DISRUPTED, built)?;
            Ok(LaneOutcome::Passed)
        };
        let mut before = None;
        report.lane("cluster of one node, with Yoi", || {
            cluster::down(DISRUPTED)?;
            before = Some(HostInventory::take()?);
            up(None)
        });
        if !report.passed("cluster of one node, with Yoi") {
            return;
        }
        if !disrupted.is_empty() {
            report.lane("tests that remove and replace Yoi", || {
                let outcome = play(setting, disrupted, &way(DISRUPTED, built, Place::Disrupted)?);
                // The last of them uninstalls it.
                charts(DISRUPTED, built)?;
                Ok(outcome)
            });
        }
        if !kills.is_empty() {
            report.lane("kills", || Ok(play(setting, kills, &way(DISRUPTED, built, Place::Kills)?)));
            let again: Vec<Test> = kills.iter().filter(|test| test.name == ROUNDS_TEST).cloned().collect();
            if !again.is_empty() {
                report.lane("kills where trees are overlays", || {
                    // A node keeps the file system that it was made with.
                    up(Some(DataRoot::Ext4))?;
                    let way = Way { variant: Some("ext4"), ..way(DISRUPTED, built, Place::Kills)? };
                    Ok(play(setting, &again, &way))
                });
            }
        }
        self.before = before;
        self.down(report, "that cluster down, nothing left");
    }
}

fn way(on: Instance, built: &Built, place: Place) -> Result<Way> {
    Ok(Way { workers: workers(place), nice: None, environment: test_environment::variables(on, built)?, variant: None })
}

/// The last worker has its trees as overlays on ext4, the others on Btrfs: every test meets both.
fn shared_up() -> Result<()> {
    if Node::existing(SHARED).len() >= usize::from(SHARED_NODES) {
        return cluster::up(SHARED, Shape::default());
    }
    for (nodes, data_root) in [(SHARED_NODES - 1, DataRoot::Btrfs), (SHARED_NODES, DataRoot::Ext4)] {
        cluster::up(SHARED, Shape { nodes: Some(nodes), data_root: Some(data_root) })?;
    }
    Ok(())
}

fn charts(instance: Instance, built: &Built) -> Result<()> {
    install::charts(&install::target(instance)?, &built.references())
}

/// How long a namespace may take to go on a quiet machine.
const GONE_WITHIN: Duration = Duration::from_secs(180);

/// Waits until every namespace of a test is gone; the tests only ask for it, and one that failed before it passed has not even asked.
fn namespaces_gone(slowness: f64, one_was_flaky: bool) -> Result<LaneOutcome> {
    let kubectl = Kubectl::new(SHARED, &build::kubernetes()?);
    if one_was_flaky {
        kubectl.run(["delete", "namespaces", "-l", "yoi.dev/e2e=true", "--wait=false"])?;
    }
    wait("the end of the tests' namespaces", GONE_WITHIN.mul_f64(slowness), || {
        let text = kubectl.run(["get", "namespaces", "-l", "yoi.dev/e2e=true", "-o", "json"])?;
        let list: serde_json::Value = serde_json::from_str(&text)?;
        let left: Vec<_> = list["items"].as_array().context("a list has items")?.iter().map(why_there).collect();
        if left.is_empty() {
            return Ok(Some(()));
        }
        bail!("{} are still there:\n  {}", left.len(), left.join("\n  "))
    })?;
    Ok(LaneOutcome::Passed)
}

fn why_there(namespace: &serde_json::Value) -> String {
    let name = namespace["metadata"]["name"].as_str().unwrap_or_default();
    let conditions = namespace["status"]["conditions"].as_array().into_iter().flatten();
    let held: Vec<_> = conditions.filter(|c| c["status"] == "True").filter_map(|c| c["message"].as_str()).collect();
    match (&namespace["metadata"]["deletionTimestamp"], held.is_empty()) {
        (serde_json::Value::Null, _) => format!("{name}: nobody asked for its deletion"),
        (_, true) => name.to_owned(),
        (_, false) => format!("{name}: {}", held.join("; ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_namespace_that_stays_says_why() {
        let held = json!({"metadata": {"name": "a", "deletionTimestamp": "2026-01-01T00:00:00Z"}, "status": {"conditions": [
            {"status": "False", "message": "all is discovered"}, {"status": "True", "message": "a finalizer remains"}]}});
        assert_eq!(why_there(&held), "a: a finalizer remains");
        assert_eq!(why_there(&json!({"metadata": {"name": "b"}})), "b: nobody asked for its deletion");
    }
}
