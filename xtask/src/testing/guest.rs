//! The conformance suite of `workspace` in the guest, for what the machine's own kernel may lack: project quotas, ZFS, and an older kernel's overlays and
//! Btrfs.

use super::compile::Compiled;
use super::discover::CONFORMANCE;
use super::report::LaneOutcome;
use super::run::{self, Setting};
use crate::command::{capture, command, run_in_terminal, this_program};
use crate::{guest, packages};
use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// What only the guest has, and its kernel's overlays in one case: about 20 minutes.
const OWN: &str = "Zfs:: ::w37_ ::planted_a_quota_ OverlayOnExt4::w1_";
const LIMIT: Duration = Duration::from_secs(6 * 3600);
const POWER_LIMIT: &str = "3600";

/// The command of the suite for logs of disks.
const POWER_LOG: &str = "power-log";

/// Runs the cases that only the guest can.
pub fn conformance(setting: &Setting<'_>, compiled: &Compiled) -> Result<LaneOutcome> {
    run_cases(setting, compiled, OWN)
}

/// Runs every case there.
pub fn whole_conformance(setting: &Setting<'_>, compiled: &Compiled) -> Result<LaneOutcome> {
    run_cases(setting, compiled, "")
}

fn run_cases(setting: &Setting<'_>, compiled: &Compiled, filters: &str) -> Result<LaneOutcome> {
    if let Some(why) = guest::lack() {
        return Ok(LaneOutcome::skipped(why));
    }
    packages::for_guest()?;
    let suite = suite(compiled)?;
    let name = file_name(suite)?;
    let mut guest = command("nice", ["-n", "10"]);
    guest.arg(this_program()?).args(["guest", "--limit", &LIMIT.as_secs().to_string(), "--bring"]).arg(suite).arg("--");
    guest.arg(format!("modprobe -a loop zfs && YOI_GUEST=1 YOI_MUST_RUN=1 ./{name} {filters}"));
    let outcomes = run::reported("guest", guest, LIMIT)?;
    let failed: Vec<_> = outcomes.iter().filter(|outcome| outcome.has_failed()).map(|outcome| outcome.test.clone()).collect();
    let count = outcomes.len();
    outcomes.into_iter().for_each(|outcome| setting.outcomes.add(outcome));
    if count == 0 {
        bail!("the guest reported no case; what it printed is in {}", run::output_folder().join("guest.log").display());
    }
    Ok(LaneOutcome::Ran(format!("{count} cases, {} failed", failed.len())))
}

/// Cuts the power of the disks of trees between all writes: the guest is recorded, and what a cut would have left is looked at here.
pub fn power_cuts(compiled: &Compiled) -> Result<LaneOutcome> {
    if let Some(why) = guest::lack() {
        return Ok(LaneOutcome::skipped(why));
    }
    packages::for_guest()?;
    let suite = suite(compiled)?;
    // In memory if possible: each state of a disk is a copy of it.
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
    let made = capture(command(suite, [POWER_LOG, "make"]).arg(folder.path()))?;
    let disks: Vec<&str> = made.lines().collect();
    let devices: Vec<String> = ('a'..='z').take(disks.len()).map(|letter| format!("/dev/vd{letter}")).collect();
    let name = file_name(suite)?;
    let mut record = Command::new(this_program()?);
    record.args(["guest", "--limit", POWER_LIMIT, "--bring"]).arg(suite);
    record.args(disks.iter().flat_map(|disk| ["--disk", disk])).arg("--");
    record.arg(format!("modprobe -a loop zfs && YOI_GUEST=1 ./{name} {POWER_LOG} record {}", devices.join(" ")));
    if !run_in_terminal(&mut record)? {
        bail!("the guest could not record what it wrote to its disks");
    }
    let here = run_in_terminal(Command::new(suite).args([POWER_LOG, "replay"]).arg(folder.path()))?;
    let Some(pool) = disks.iter().find(|disk| disk.contains("Zfs")) else { bail!("no disk has a pool") };
    let base = pool.strip_suffix("img").context("a disk's file has another ending")?.to_owned() + "base";
    let mut replay = Command::new(this_program()?);
    replay.args(["guest", "--limit", &LIMIT.as_secs().to_string(), "--bring"]).arg(suite);
    replay.args(["--disk", &base, "--disk", &format!("{pool}.log"), "--"]);
    replay.arg(format!("modprobe -a loop zfs && YOI_GUEST=1 ./{name} {POWER_LOG} replay-pool /dev/vda /dev/vdb"));
    let there = run_in_terminal(&mut replay)?;
    if !here || !there {
        bail!("a cut of power left something wrong; it stands above");
    }
    Ok(LaneOutcome::Passed)
}

fn suite(compiled: &Compiled) -> Result<&Path> {
    compiled.test_program(CONFORMANCE).context("the suite of providers was not compiled")
}

fn file_name(suite: &Path) -> Result<String> {
    Ok(suite.file_name().context("the suite has no name")?.to_string_lossy().into_owned())
}
