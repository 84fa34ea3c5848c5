//! Promise: every manifest, however wrong, odd or huge, is either refused with a readable message or accepted and explained in a condition, and
//! never disturbs another object.
//!
//! The cases are generated from the schemas (`mutate`) and written by hand (`handwritten`). Each is sent to the API server as a dry run
//! (`dry_run`), read by Rust's types and planned by the operator's code in this process (`decisions`), and the three answers are compared
//! (`compare`). Some are really stored (`stored`), also by a newer schema (`newer`). `planted` checks that the harness finds faults.

mod api_server;
mod case;
mod compare;
mod decisions;
mod dry_run;
mod handwritten;
mod mutate;
mod newer;
mod planted;
mod schema;
mod specimen;
mod stored;

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use anyhow::{Result, ensure};
use yoi_e2e::locks::{self, Lock};

use crate::case::Case;

/// Every case, handwritten ones first. To generate them takes a while.
static CASES: LazyLock<Arc<Vec<Case>>> = LazyLock::new(|| Arc::new(generate()));

fn generate() -> Vec<Case> {
    let mut all = handwritten::all();
    all.extend(mutate::all());
    all
}

#[test]
fn every_field_of_every_schema_is_set_in_a_specimen() {
    let unset = mutate::unset_nodes();
    assert!(unset.is_empty(), "no valid value is known for {unset:?}: set it in a specimen");
}

#[test]
fn the_same_thousand_manifests_are_generated_each_time() {
    let (one, two) = (&**CASES, generate());
    assert!(one.len() >= 1000, "{} manifests", one.len());
    assert!(one.iter().zip(&two).all(|(a, b)| a.text == b.text && a.name == b.name && a.method == b.method) && one.len() == two.len());
    let mut kinds = BTreeMap::<_, usize>::new();
    for case in one {
        *kinds.entry(case.kind.as_str()).or_default() += 1;
    }
    assert_eq!(kinds.len(), 5, "{kinds:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p3_the_api_server_rust_and_the_operator_agree_on_every_manifest() -> Result<()> {
    let report = dry_run::run(&CASES).await?;
    println!("{}", report.table());
    println!("{} manifests, {} conditions and made objects read", report.cases, report.checked);
    ensure!(report.cases >= 1000, "{} manifests", report.cases);
    ensure!(report.unused().is_empty(), "allowed differences that no case shows: {:?}", report.unused());
    report.result()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_api_server_rust_and_the_operator_agree_on_every_handwritten_manifest() -> Result<()> {
    let report = dry_run::run(&Arc::new(handwritten::all())).await?;
    println!("{} manifests, {} conditions and made objects read", report.cases, report.checked);
    ensure!(report.cases >= 500, "{} manifests", report.cases);
    report.result()
}

#[tokio::test]
async fn odd_objects_report_what_is_wrong_and_delay_no_other_object() -> Result<()> {
    let outcome = stored::run().await?;
    println!(
        "{} odd objects made, {} refused; all had conditions {:?} after the last; an agent took {:?} before and {:?} after; {} writes in 20 quiet seconds",
        outcome.made, outcome.refused, outcome.slowest, outcome.before, outcome.after, outcome.writes
    );
    println!("{:?}", outcome.reasons);
    ensure!(outcome.made >= 150, "only {} objects were made", outcome.made);
    ensure!(
        outcome.after < outcome.before * 3 + Duration::from_secs(20).mul_f64(yoi_test_support::slowness()),
        "{:?}, and {:?} before",
        outcome.after,
        outcome.before
    );
    ensure!(outcome.writes <= stored::QUIET_WRITES, "{} writes in 20 quiet seconds", outcome.writes);
    Ok(())
}

#[tokio::test]
async fn objects_of_a_newer_version_stop_no_watch() -> Result<()> {
    let _alone = locks::exclusive(&[Lock::Schemas]).await?;
    newer::run().await
}

#[test]
fn a_validator_that_accepts_everything_is_found() {
    let report = planted::accept_everything();
    let seen = report.faults.iter().filter(|f| f.what.contains("takes what must be refused")).count();
    assert!(seen == report.cases && seen > 500, "{seen} of {} cases", report.cases);
    println!("{seen} of {} manifests are missed; the first: {}: {}", report.cases, report.faults[0].case, report.faults[0].what);
}

#[test]
fn a_rust_type_that_refuses_or_panics_at_a_value_of_the_schema_is_found() {
    let mut report = compare::Report::default();
    let of_forks = |c: &&Case| c.kind == case::Kind::AgentWorkspace && c.label == "fork" && c.expected == case::Expected::Accepted;
    let case = CASES.iter().find(of_forks).expect("a case that is taken");
    for (from, to) in [("\"provider\":\"Auto\"", "\"provider\":\"Copy\""), ("\"binding\":\"WaitForConsumer\"", "\"binding\":\"Immediate\"")]
    {
        let planted = case::Case { text: case.text.replace(from, to), ..Case::clone(case) };
        assert_ne!(planted.text, case.text);
        report.compare(&planted, &api_server::Response::Accepted(planted.text.clone()), planted::read_with_faults, decisions::decide);
    }
    let faults: Vec<&str> = report.faults.iter().map(|f| f.what.as_str()).collect();
    assert!(faults.iter().any(|s| s.contains("breaks every watch: unknown variant `Copy`")), "{faults:?}");
    assert!(faults.iter().any(|s| s.contains("it panics: a word that nobody thought of")), "{faults:?}");
    println!("{faults:?}");
}

#[tokio::test]
async fn each_rule_that_is_dropped_from_a_schema_is_found() -> Result<()> {
    let dropped = planted::without_rules().await?;
    println!("{} of {} dropped rules are seen, such as: {}", dropped.seen.len(), dropped.all.len(), dropped.sentence);
    let implied = |kind, rule: &str| planted::IMPLIED.iter().any(|(k, r, _)| *k == kind && *r == rule);
    let missed: Vec<_> = dropped.all.difference(&dropped.seen).filter(|(kind, rule)| !implied(*kind, rule)).collect();
    ensure!(missed.is_empty(), "no case finds these rules missing: {missed:?}");
    Ok(())
}
