//! One suite for every provider. `cargo test -p yoi-workspace --test conformance [FILTER...]`.
//!
//! Each case runs in each lane. A lane or case that cannot run here is printed as NOT RUN with the reason, and counted separately. If
//! `YOI_MUST_RUN` is set (by `cargo xtask test`), a lane or case that lacks something is a failure.
#![expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "a harness of its own: it has a filter and calls git")]

mod basics;
mod changes;
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
mod mounts;
mod not_run;
mod outside;
mod overlay;
mod power;
mod power_log;
mod prepared_build;
mod quota;
mod sharing;
mod syscall_faults;
mod usage;
mod zfs;
mod zfs_bad;
mod zfs_fuse;
mod zfs_kernel;
mod zfs_source;

use std::collections::BTreeSet;
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

/// How often a case in the lane of zfs-fuse is begun again with a new daemon, which hangs, closes descriptors of other calls and calls a
/// dataset busy that is not. What fails by chance for another reason can hide behind that; the lane of the kernel's ZFS begins nothing again.
const RESTARTS: usize = 2;

/// How many cases of that lane may be begun again. More than that is not the daemon alone.
const MAX_BEGUN_AGAIN: usize = 6;

pub type Case = (&'static str, fn(&Fixture) -> Verdict);

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let Some((power_log::COMMAND, rest)) = args.split_first().map(|(first, rest)| (&**first, rest)) {
        return power_log::main(rest);
    }
    // As the standard harness has it: only the cases of just these names.
    let exact = args.iter().any(|arg| arg == "--exact");
    let filters: Vec<String> = args.into_iter().filter(|a| !a.starts_with('-')).collect();
    let must = fixture::must_run();
    fixture::enter_mount_namespace();
    let (mut passed, mut failed, mut not_run, mut begun_again) = (0, Vec::new(), 0, BTreeSet::new());
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
        mounts::CASES,
        hostile_paths::CASES,
        link_races::CASES,
        power::CASES,
    ]
    .into_iter()
    .flatten()
    .collect();
    if let Some(name) = not_run::stranger(&cases.iter().map(|c| c.0).collect::<Vec<_>>()) {
        println!("test {name} ... FAILED: not_run.rs names it, and there is no such case");
        failed.push(name.to_owned());
    }
    let only_list = std::env::args().any(|arg| arg == "--list");
    for &lane in Lane::all() {
        let mut wanted: Vec<(String, &Case)> = cases.iter().map(|c| (format!("{lane:?}::{}", c.0), *c)).collect();
        let fits = |name: &str, filter: &str| if exact { name == filter } else { name.contains(filter) };
        wanted.retain(|(name, _)| filters.is_empty() || filters.iter().any(|filter| fits(name, filter)));
        if only_list {
            wanted.drain(..).for_each(|(name, _)| println!("{name}: test"));
        }
        if wanted.is_empty() {
            continue;
        }
        let mut filesystem = match fixture::LaneFilesystem::prepare(lane) {
            Ok(filesystem) => filesystem,
            Err(why) if must => {
                wanted.iter().for_each(|(name, _)| println!("test {name} ... FAILED: it must run here: {why}"));
                failed.extend(wanted.into_iter().map(|(name, _)| name));
                continue;
            }
            Err(why) => {
                wanted.iter().for_each(|(name, _)| println!("test {name} ... NOT RUN: {why}"));
                not_run += wanted.len();
                continue;
            }
        };
        let enforces_quotas = filesystem.enforces_quotas;
        let expected = |short: &str| not_run::reason(lane, enforces_quotas, short);
        for (name, (short, case)) in wanted {
            if let Some(why) = not_run::reason_in_guest(lane, short).filter(|_| lanes::in_guest()) {
                println!("test {name} ... NOT RUN: {why}");
                not_run += 1;
                continue;
            }
            let started = Instant::now();
            let run = |filesystem: &LaneFilesystem| catch_unwind(AssertUnwindSafe(|| case(&Fixture::new(filesystem, &name))));
            let mut verdict = run(&filesystem);
            for _ in 0..RESTARTS {
                let ended = filesystem.has_ended();
                if !ended && (verdict.is_ok() || lane != Lane::ZfsFuse) {
                    break;
                }
                let why = if ended { "ended or no longer answered" } else { "may have failed this case itself" };
                println!("    the program of this lane {why}, and is started again");
                drop(filesystem);
                filesystem = LaneFilesystem::prepare(lane).unwrap();
                verdict = verdict.or_else(|_| {
                    begun_again.insert(name.clone());
                    run(&filesystem)
                });
            }
            let found = match &verdict {
                Ok(Verdict::NotRun(why)) => Some(*why),
                Ok(Verdict::Ran) => None,
                // It says nothing about the table.
                Ok(Verdict::Lacks(_)) | Err(_) => expected(short),
            };
            if let Some(why) = not_run::difference(expected(short), found) {
                println!("test {name} ... FAILED: {why}");
                failed.push(name);
                continue;
            }
            match verdict {
                Ok(Verdict::Ran) => {
                    println!("test {name} ... ok ({:.2?})", started.elapsed());
                    passed += 1;
                }
                Ok(Verdict::Lacks(why)) if must => {
                    println!("test {name} ... FAILED: it must run here: {why}");
                    failed.push(name);
                }
                Ok(Verdict::NotRun(why) | Verdict::Lacks(why)) => {
                    println!("test {name} ... NOT RUN: {why}");
                    not_run += 1;
                }
                Err(_) => {
                    println!("test {name} ... FAILED");
                    failed.push(name);
                }
            }
        }
    }
    if begun_again.len() > MAX_BEGUN_AGAIN {
        println!("test cases_begun_again ... FAILED: more than {MAX_BEGUN_AGAIN}");
        failed.push("cases_begun_again".to_owned());
    }
    println!("\nconformance: {passed} passed; {} failed; {not_run} not run; {} begun again", failed.len(), begun_again.len());
    begun_again.iter().for_each(|name| println!("    begun again: {name}"));
    failed.iter().for_each(|name| println!("    {name}"));
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
