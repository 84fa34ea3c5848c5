//! One suite for every provider. `cargo test -p yoi-workspace --test conformance -- [OPTION...] [FILTER...]`.
//!
//! Each case runs in each lane. A lane or case that cannot run here is printed as NOT RUN with the reason, and counted separately. If
//! `YOI_MUST_RUN` is set (by `cargo xtask test`), a lane or case that lacks something is a failure.
//!
//! A filter is a part of `LANE::CASE`; with `--exact` it is the whole of it. `--lanes=A,B` takes these lanes only, `--short` the part of the suite in
//! `short.rs`, `--timing` only what is about time, and `--list` prints what would run. Two processes can run beside each other.
#![expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "a harness of its own: it has a filter and calls git")]

mod basics;
mod changes;
mod covers;
mod covers_pod;
mod crash;
mod destroy;
mod failing_commands;
mod failing_syscalls;
mod fixture;
mod forks;
mod host;
mod host_build;
mod hostile_paths;
mod hostile_trees;
mod lanes;
mod link_races;
mod memory;
mod mounts;
mod not_run;
mod outside;
mod overlay;
mod power;
mod power_log;
mod prepared_build;
mod quota;
mod sharing;
mod short;
mod syscall_faults;
mod usage;
mod views;
mod views_in_use;
mod zfs;
mod zfs_bad;
mod zfs_pool;
mod zfs_source;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::Instant;

use fixture::{Fixture, LaneFilesystem};
use lanes::Lane;

/// How a case ended, if it did not panic.
pub enum Verdict {
    Ran,
    /// The case does not apply to this lane.
    NotRun(&'static str),
    /// This machine or this user lacks what the case needs.
    Lacks(&'static str),
}

pub type Case = (&'static str, fn(&Fixture) -> Verdict);

/// The words of the command line.
struct Options {
    filters: Vec<String>,
    /// A filter is the whole name.
    exact: bool,
    /// None: all of them.
    lanes: Option<Vec<String>>,
    short: bool,
    timing: bool,
    list: bool,
}

impl Options {
    /// What is not known is an option of the standard harness, which changes nothing here.
    fn new(args: &[String]) -> Self {
        let has = |option: &str| args.iter().any(|arg| arg == option);
        let lanes = args.iter().find_map(|arg| arg.strip_prefix("--lanes="));
        Self {
            filters: args.iter().filter(|arg| !arg.starts_with('-')).cloned().collect(),
            exact: has("--exact"),
            lanes: lanes.map(|lanes| lanes.split(',').map(str::to_owned).collect()),
            short: has("--short"),
            timing: has("--timing"),
            list: has("--list"),
        }
    }

    /// The first lane that is asked for and is not among those of this machine.
    fn unknown_lane(&self) -> Option<&str> {
        let known = |name: &str| Lane::all().iter().any(|lane| format!("{lane:?}") == name);
        self.lanes.iter().flatten().map(String::as_str).find(|name| !known(name))
    }

    fn wants(&self, lane: Lane, case: &str, name: &str) -> bool {
        let matches = |filter: &String| if self.exact { name == filter } else { name.contains(&**filter) };
        (self.filters.is_empty() || self.filters.iter().any(matches))
            && self.lanes.as_ref().is_none_or(|lanes| lanes.contains(&format!("{lane:?}")))
            && (!self.short || short::has(lane, case))
            && (!self.timing || short::is_about_time(case))
    }
}

/// What has become of the cases.
#[derive(Default)]
struct Outcome {
    passed: usize,
    not_run: usize,
    failed: Vec<String>,
}

impl Outcome {
    fn fail(&mut self, name: String, why: &str) {
        println!("test {name} ... FAILED{}{why}", if why.is_empty() { "" } else { ": " });
        self.failed.push(name);
    }

    fn skip(&mut self, name: &str, why: &str) {
        println!("test {name} ... NOT RUN: {why}");
        self.not_run += 1;
    }

    fn run(&mut self, filesystem: &LaneFilesystem, name: String, (short, case): &Case) {
        let lane = filesystem.lane;
        if let Some(why) = not_run::reason_in_guest(lane, short).filter(|_| lanes::in_guest()) {
            return self.skip(&name, why);
        }
        let started = Instant::now();
        let verdict = catch_unwind(AssertUnwindSafe(|| case(&Fixture::new(filesystem, &name))));
        let expected = not_run::reason(lane, filesystem.enforces_quotas, short);
        let found = match &verdict {
            Ok(Verdict::NotRun(why)) => Some(*why),
            Ok(Verdict::Ran) => None,
            // It says nothing about the table.
            Ok(Verdict::Lacks(_)) | Err(_) => expected,
        };
        if let Some(why) = not_run::difference(expected, found) {
            return self.fail(name, &why);
        }
        match verdict {
            Ok(Verdict::Ran) => {
                println!("test {name} ... ok ({:.2?})", started.elapsed());
                self.passed += 1;
            }
            Ok(Verdict::Lacks(why)) if fixture::must_run() => self.fail(name, &format!("it must run here: {why}")),
            Ok(Verdict::NotRun(why) | Verdict::Lacks(why)) => self.skip(&name, why),
            Err(_) => self.fail(name, ""),
        }
    }
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let Some((power_log::COMMAND, rest)) = args.split_first().map(|(first, rest)| (&**first, rest)) {
        return power_log::main(rest);
    }
    let options = Options::new(&args);
    if let Some(name) = options.unknown_lane() {
        println!("there is no lane {name} here");
        return ExitCode::FAILURE;
    }
    fixture::enter_mount_namespace();
    let cases: Vec<&Case> = [
        basics::CASES,
        forks::CASES,
        destroy::CASES,
        changes::CASES,
        crash::CASES,
        failing_syscalls::CASES,
        overlay::CASES,
        zfs::CASES,
        zfs_bad::CASES,
        zfs_source::CASES,
        sharing::CASES,
        quota::CASES,
        usage::CASES,
        host::CASES,
        host_build::CASES,
        prepared_build::CASES,
        hostile_trees::CASES,
        memory::CASES,
        mounts::CASES,
        covers::CASES,
        views::CASES,
        views_in_use::CASES,
        hostile_paths::CASES,
        link_races::CASES,
        power::CASES,
    ]
    .into_iter()
    .flatten()
    .collect();
    let mut outcome = Outcome::default();
    if let Some(name) = not_run::stranger(&cases.iter().map(|c| c.0).collect::<Vec<_>>()) {
        outcome.fail(name.to_owned(), "not_run.rs names it, and there is no such case");
    }
    if let Some(why) = short::mistake(&cases) {
        outcome.fail("short_run".to_owned(), &why);
    }
    for &lane in Lane::all() {
        let mut wanted: Vec<(String, &Case)> = cases.iter().map(|c| (format!("{lane:?}::{}", c.0), *c)).collect();
        wanted.retain(|(name, case)| options.wants(lane, case.0, name));
        if options.list {
            wanted.drain(..).for_each(|(name, _)| println!("{name}: test"));
        }
        if wanted.is_empty() {
            continue;
        }
        match LaneFilesystem::prepare(lane) {
            Ok(filesystem) => wanted.into_iter().for_each(|(name, case)| outcome.run(&filesystem, name, case)),
            Err(why) if fixture::must_run() => {
                wanted.into_iter().for_each(|(name, _)| outcome.fail(name, &format!("it must run here: {why}")));
            }
            Err(why) => wanted.iter().for_each(|(name, _)| outcome.skip(name, why)),
        }
    }
    let Outcome { passed, not_run, failed } = outcome;
    println!("\nconformance: {passed} passed; {} failed; {not_run} not run", failed.len());
    failed.iter().for_each(|name| println!("    {name}"));
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
