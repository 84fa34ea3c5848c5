//! `cargo xtask soak`: what looks long for rare faults, or looks whether the tests find planted ones. Once an issue, not with each change.

use super::clusters::{self, Clusters};
use super::outcome::{Outcomes, Times};
use super::report::{LaneOutcome, Report};
use super::run::{self, Setting};
use super::select::Selection;
use super::table::{Place, Table, Tier};
use super::{Request, TARGETS, cargo, compile, discover, guest, packages, slowness};
use crate::planted;
use anyhow::Result;
use std::collections::BTreeMap;
use std::process::ExitCode;

/// A part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// 100 rounds of kills on each of two file systems, and 30 of two writers at a lent path: two hours
    Rounds,
    /// Each planted fault, built and looked for: two hours
    Planted,
    /// Cuts of power between all writes of the guest's disks
    Power,
    /// 200 attachments while gateways are replaced, 50 refreshes under agents at work, 20 kills of `host up`, and every manifest against the API server
    Long,
    /// Floods of hostile requests beside ordinary messages
    Abuse,
    /// Every case of every provider in the guest's kernel
    Guest,
    /// The benchmarks of trees and sessions, shown only
    Benches,
}

const ALL: [Part; 7] = [Part::Rounds, Part::Planted, Part::Power, Part::Long, Part::Abuse, Part::Guest, Part::Benches];

const ROUNDS: u32 = 100;
const WRITERS_ROUNDS: u32 = 30;
/// Tests whose loops are longer here, or that are only here: the last takes over twenty minutes of the API server.
const LONG: [&str; 4] = [
    "e2e/replacement::attached",
    "e2e/e2e::refresh",
    "e2e/manifests::p3_the_api_server_rust_and_the_operator_agree_on_every_manifest",
    "e2e/e2e::host::a_setup_that_is_killed_at_any_moment_goes_on_and_leaves_nothing_half",
];

/// Runs these parts, or all.
pub fn run(parts: &[Part]) -> Result<ExitCode> {
    let parts = if parts.is_empty() { &ALL[..] } else { parts };
    let has = |part| parts.contains(&part);
    let report = Report::default();
    let (table, mut times) = (Table::read()?, Times::read());
    let outcomes = Outcomes::default();
    run::clear_outputs()?;
    report.lane("packages", packages);
    let root = report.passed("packages");
    let mut compiled = compile::Compiled::default();
    report.lane("compiled", || {
        compiled = compile::compile(&TARGETS)?;
        Ok(LaneOutcome::Passed)
    });
    if report.failed() {
        report.print(Default::default());
        return Ok(ExitCode::FAILURE);
    }
    let mut environment = run::unit_environment(root, true);
    environment.extend([
        ("YOI_ATTACHMENTS", "200".to_owned()),
        ("YOI_REFRESHES", "50".to_owned()),
        (clusters::ROUNDS_VARIABLE, ROUNDS.to_string()),
        (clusters::WRITERS_VARIABLE, WRITERS_ROUNDS.to_string()),
    ]);
    let setting = Setting { table: &table, times: &times, slowness: slowness::measure()?, outcomes: &outcomes, environment };
    let mut filters = vec![];
    if has(Part::Rounds) {
        filters.extend([clusters::ROUNDS_TEST, clusters::WRITERS_TEST].map(str::to_owned));
    }
    if has(Part::Long) {
        filters.extend(LONG.map(str::to_owned));
    }
    if has(Part::Abuse) {
        filters.push("e2e/security::abuse".to_owned());
    }
    if !filters.is_empty() {
        let request = Request { tier: Tier::Soak, filters: filters.clone(), keep: false, record: false, since: None };
        let mut tests = Selection { tier: Tier::Soak, filters, affected: None, failed: Default::default() }
            .of(&table, &discover::tests(&compiled.tests)?)?;
        // Each of them wants the machine for itself.
        let shared = tests.remove(&Place::Shared).unwrap_or_default();
        tests.entry(Place::Alone).or_default().extend(shared);
        let mut clusters = Clusters::new(&compiled, &request, root);
        clusters.shared(&report, &setting, &tests);
        clusters.last(&report, &setting, &BTreeMap::new());
        clusters.disrupted(&report, &setting, &tests);
    }
    if has(Part::Guest) {
        report.lane("every provider in the guest's kernel", || guest::whole_conformance(&setting, &compiled));
    }
    if has(Part::Power) {
        report.lane("power cuts at any write", || guest::power_cuts(&compiled));
    }
    if has(Part::Planted) {
        report.lane("planted faults found", || planted::run(&[]).map(|()| LaneOutcome::Passed));
    }
    if has(Part::Benches) {
        report.lane("benchmarks, shown only", || cargo(&["bench", "-p", "yoi-workspace", "-p", "yoi-session"]));
    }
    times.update(&outcomes.all());
    times.write()?;
    outcomes.print();
    report.print(outcomes.of_place(|_| true));
    Ok(if report.failed() || !outcomes.failed().is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
