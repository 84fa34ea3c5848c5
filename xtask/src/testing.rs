//! `cargo xtask test`: lanes, each a step that the final table reports, and the tests of `xtask/tests.txt`, each a process of its own.
//!
//! # Flow
//! 1. What needs no compiler of ours: format, the import law, generated files.
//! 2. One compilation, with clippy's lints. What does not compile or is warned of ends the run.
//! 3. Side by side: tests without a cluster, and a cluster of three nodes with the tests that share it.
//! 4. On that cluster one after the other: what takes its nodes or components away.
//! 5. A test that failed runs once more, alone.
//! 6. The cluster goes, and nothing of it is left.
//!
//! `--all` adds a cluster that is killed, the programs from npm, an installation from a registry, the guest's kernel, and what measures. There the
//! guest and the tests without a cluster are beside 4 and 6 too, and what measures comes after all.

mod clusters;
mod compile;
mod discover;
mod flakes;
mod guest;
mod kind;
mod outcome;
mod pool;
mod process;
mod registry_install;
mod report;
mod run;
mod select;
mod slowness;
mod soak;
mod table;

use crate::affected::{self, Affected};
use crate::command::run_in_terminal;
use crate::instance::repository;
use crate::portable::Portable;
use crate::{cargo, generate, law, packages, planted, portable, progress, test_environment};
use anyhow::{Result, bail};
use clusters::Clusters;
use compile::Compiled;
use discover::Test;
use flakes::Flakes;
use outcome::{Outcomes, Times};
use report::{LaneOutcome, Report};
use run::{Setting, Way};
use select::Selection;
pub use soak::{Part, run as soak};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
pub use table::Tier;
use table::{Place, Table};

/// What a person asked for.
pub struct Request {
    pub tier: Tier,
    pub filters: Vec<String>,
    /// Leave the cluster, and use the one that is there.
    pub keep: bool,
    /// Write what tests took into the table.
    pub record: bool,
    /// Only what the changes since this revision affect.
    pub since: Option<String>,
}

impl Request {
    /// Whether the tests are those of the table, and not some that were named.
    fn is_whole(&self) -> bool {
        self.filters.is_empty()
    }
}

/// Every target: libraries, programs with tests of their own, test programs that run only by name, and benchmarks and examples, which are only compiled.
const TARGETS: [&str; 7] = ["--lib", "--bins", "--test", "*", "--bench", "*", "--examples"];

/// How many tests of a place run at a time. More than there are cores, because most of them wait.
fn workers(place: Place) -> usize {
    match place {
        Place::Unit => 4,
        // The API server and three kubelets are what they wait for.
        Place::Shared | Place::Disrupted => 8,
        // Each of them is large.
        Place::Programs => 3,
        Place::Alone | Place::Last | Place::Kills | Place::Timing => 1,
    }
}

/// Niceness of unit tests: the cluster tests beside them have precedence.
const NICER: u8 = 10;

pub fn run(request: &Request) -> Result<ExitCode> {
    let report = Report::default();
    let (mut table, mut times, flakes) = (Table::read()?, Times::read(), Flakes::read()?);
    let outcomes = Outcomes::default();
    run::clear_outputs()?;
    let affected = request.since.as_deref().map(affected::since).transpose()?;
    if let Some(affected) = &affected {
        println!("Affected: {affected}");
    }
    if request.is_whole() {
        static_checks(&report, request.tier);
    }
    if affected.as_ref().is_some_and(Affected::nothing) {
        report.print(Default::default());
        return Ok(if report.failed() { ExitCode::FAILURE } else { ExitCode::SUCCESS });
    }
    report.lane("packages", packages);
    let root = report.passed("packages");
    let mut compiled = Compiled::default();
    report.lane("compiled, with lints", || {
        compiled = compile::compile(&TARGETS)?;
        // A person who runs a test by its name has not finished yet.
        if !compiled.warnings.is_empty() && request.is_whole() {
            bail!("{} warnings; they stand above", compiled.warnings.len());
        }
        Ok(LaneOutcome::Passed)
    });
    if report.failed() {
        report.print(Default::default());
        return Ok(ExitCode::FAILURE);
    }
    let slowness = slowness::measure()?;
    println!("This machine takes {slowness} times as long as a quiet one of two cores.");
    let selection = Selection { tier: request.tier, filters: request.filters.clone(), affected, failed: times.failed.clone() };
    let tests = selection.of(&table, &discover::tests(&compiled.tests)?)?;
    let thorough = request.tier > Tier::Test;
    let setting =
        Setting { table: &table, times: &times, slowness, outcomes: &outcomes, environment: environment(root, thorough, &compiled)? };
    let mut clusters = Clusters::new(&compiled, request, root);
    let of = |place| tests.get(&place).map_or(&[][..], Vec::as_slice);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            if !of(Place::Unit).is_empty() {
                report.lane("tests without a cluster", || Ok(play(&setting, of(Place::Unit), &unit_way())));
            }
        });
        // The longest of all, on one core: whatever it began after, it would end last.
        if request.tier > Tier::Test && request.is_whole() {
            scope.spawn(|| report.lane("providers in a guest kernel", || guest::conformance(&setting, &compiled)));
        }
        clusters.shared(&report, &setting, &tests);
        // The guest and the unit tests of `--all` take as long as all clusters together, and one core.
        if request.tier > Tier::Test {
            clusters.last(&report, &setting, &tests);
            clusters.disrupted(&report, &setting, &tests);
        }
    });
    if request.tier == Tier::Test {
        if request.is_whole() {
            report.lane("once more, alone", || try_again(&setting, &flakes, &tests, &clusters));
        }
        clusters.last(&report, &setting, &tests);
        clusters.disrupted(&report, &setting, &tests);
    }
    if !of(Place::Timing).is_empty() {
        report.lane("measured, with nothing beside", || Ok(play(&setting, of(Place::Timing), &Way { workers: 1, ..unit_way() })));
    }
    if !root {
        // A test that found that it cannot run here says so, and counts as passed.
        report.lane("unit tests with mounts", || Ok(LaneOutcome::skipped("they need root and its packages; without, they only say so")));
    }
    times.update(&outcomes.all());
    let kept = times.write()?;
    if request.record {
        record(&mut table, &times, &outcomes)?;
    }
    outcomes.print();
    println!("\nWhat each test took is kept in {}; what it printed in {}.", kept.display(), run::output_folder().display());
    report.print(outcomes.of_place(|_| true));
    Ok(if report.failed() || !outcomes.failed().is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn environment(root: bool, thorough: bool, compiled: &Compiled) -> Result<Vec<(&'static str, String)>> {
    let mut environment = run::unit_environment(root, thorough);
    // Some tests of `e2e` need the programs and no cluster.
    environment.extend(test_environment::programs(compiled.programs.get("kubectl-yoi").map(PathBuf::as_path))?);
    // Who sets another number wants that one.
    if std::env::var_os(clusters::ROUNDS_VARIABLE).is_none() {
        environment.push((clusters::ROUNDS_VARIABLE, clusters::ROUNDS.to_string()));
    }
    Ok(environment)
}

fn unit_way() -> Way {
    Way { workers: workers(Place::Unit), nice: Some(NICER), environment: vec![], variant: None }
}

/// Runs tests, and says in a line how many ended how.
fn play(setting: &Setting<'_>, tests: &[Test], way: &Way) -> LaneOutcome {
    setting.run(tests, way);
    let counts = setting.outcomes.of_place(|name| {
        let name = name.split_once(" (").map_or(name, |(name, _)| name);
        tests.iter().any(|test| test.name == name)
    });
    LaneOutcome::Ran(format!("{} passed, {} failed, {} not run", counts.passed, counts.failed, counts.not_run))
}

/// What needs nothing compiled but this program.
fn static_checks(report: &Report, tier: Tier) {
    report.lane("format", || cargo(&["fmt", "--all", "--check"]));
    report.lane("import law", || law::run().map(|()| LaneOutcome::Passed));
    report.lane("generated files", || generate::run(true).map(|()| LaneOutcome::Passed));
    report.lane("planted faults fit the code", || planted::check().map(|()| LaneOutcome::Passed));
    report.lane("kind configuration", kind::check);
    if tier > Tier::Test {
        report.lane("licences and sources", dependencies);
        report.lane("the plugin on Windows and macOS", || {
            Ok(match portable::check()? {
                Portable::Compiles => LaneOutcome::Passed,
                Portable::NotTried { why } => LaneOutcome::skipped(&why),
            })
        });
        report.lane("kind load image-archive", || Ok(LaneOutcome::skipped("needs a Docker engine; only the configuration was checked")));
    }
}

fn packages() -> Result<LaneOutcome> {
    if !cfg!(target_os = "linux") || !rustix::process::geteuid().is_root() {
        return Ok(LaneOutcome::skipped("installing takes root; tests that miss a program say so"));
    }
    packages::for_cluster()?;
    packages::for_images()?;
    packages::for_tests()?;
    Ok(LaneOutcome::Passed)
}

/// Runs what failed once more, one after the other with nothing beside. See `docs/flakes.md`.
fn try_again(setting: &Setting<'_>, flakes: &Flakes, tests: &BTreeMap<Place, Vec<Test>>, clusters: &Clusters<'_>) -> Result<LaneOutcome> {
    let failed = setting.outcomes.failed();
    if failed.is_empty() {
        return Ok(LaneOutcome::Ran("nothing failed".to_owned()));
    }
    if failed.len() > flakes::MOST {
        return Ok(LaneOutcome::Ran(format!("{} failed: too many to be chance", failed.len())));
    }
    let revision = crate::command::capture(crate::command::command("git", ["rev-parse", "--short", "HEAD"]).current_dir(repository()))?;
    let mut flaky = vec![];
    for first in failed {
        let found = tests.iter().find_map(|(place, tests)| Some((*place, tests.iter().find(|test| test.name == first.test)?)));
        let Some((place, test)) = found else { continue };
        let once = setting.table.row(&test.name).is_none_or(|row| !row.tried_again);
        if once || flakes.is_known(&test.name) {
            continue;
        }
        let Some(way) = (if place.has_cluster() { clusters.way(Place::Alone)? } else { Some(Way { workers: 1, ..unit_way() }) }) else {
            continue;
        };
        if setting.try_again(test, &way, &first) {
            if let outcome::Verdict::Failed(why) = &first.verdict {
                flakes::append(&test.name, revision.trim(), why)?;
            }
            flaky.push(test.name.clone());
        }
    }
    Ok(LaneOutcome::Ran(if flaky.is_empty() { "failed again".to_owned() } else { format!("FLAKY: {}", flaky.join(", ")) }))
}

/// Writes what the tests of each row took together into the table.
fn record(table: &mut Table, times: &Times, outcomes: &Outcomes) -> Result<()> {
    let tests: Vec<String> = outcomes.all().into_iter().map(|outcome| outcome.test).collect();
    set_seconds(table, times, tests.iter().map(String::as_str));
    table.write()
}

/// Sets the seconds of the rows of these tests to what they took last.
fn set_seconds<'a>(table: &mut Table, times: &Times, tests: impl Iterator<Item = &'a str>) {
    let mut sums: BTreeMap<usize, f64> = BTreeMap::new();
    for test in tests {
        if let (Some(row), Some(seconds)) = (table.index(test), times.of(test)) {
            *sums.entry(row).or_default() += seconds;
        }
    }
    for (row, seconds) in sums {
        table.rows[row].seconds = Some(seconds);
    }
}

/// Prints the table, each row with what its tests took when they ran last here.
pub fn list() -> Result<()> {
    let (mut table, times) = (Table::read()?, Times::read());
    set_seconds(&mut table, &times, times.names());
    print!("{table}");
    println!(
        "\nOn a quiet machine of two cores `cargo xtask test` takes about {}.",
        progress::minutes(table.estimate(Tier::Test, workers))
    );
    let unknown = table.rows.iter().filter(|row| row.tier == Tier::All && row.seconds.is_none()).count();
    match unknown {
        0 => println!("With `--all` it takes about {}.", progress::minutes(table.estimate(Tier::All, workers))),
        _ => println!("Of `--all` nobody can say: {unknown} of its rows have never run here."),
    }
    Ok(())
}

/// Licences, bans and sources. Advisories need a database that is fetched from elsewhere.
fn dependencies() -> Result<LaneOutcome> {
    let program = crate::build::cargo_deny()?.join("bin/cargo-deny");
    let checked = run_in_terminal(Command::new(program).args(["check", "licenses", "bans", "sources"]).current_dir(repository()))?;
    if !checked {
        bail!("cargo-deny found what deny.toml does not allow");
    }
    Ok(LaneOutcome::Passed)
}

fn cargo(words: &[&str]) -> Result<LaneOutcome> {
    let succeeded = run_in_terminal(cargo::cargo().args(words).current_dir(repository()))?;
    if !succeeded {
        bail!("`cargo {}` failed", words.join(" "));
    }
    Ok(LaneOutcome::Passed)
}
