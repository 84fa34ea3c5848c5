//! The conformance suite of `workspace` in the guest, for what the machine's own kernel may lack: project quotas, ZFS, and an older kernel's overlays and
//! Btrfs.

use super::report::LaneOutcome;
use super::{CONFORMANCE, Selection, outcome};
use crate::cargo;
use crate::command::{capture, command, this_program};
use crate::guest;
use crate::packages;
use anyhow::{Context, Result, bail};
use std::path::PathBuf;
use std::process::Command;

/// Cases of the pass in every `cargo xtask test`: a few minutes.
const SHORT: &[&str] = &["::w37_", "::planted_a_quota_", "OverlayOnExt4::w1_"];
const SHORT_LIMIT: &str = "1800";
const WHOLE_LIMIT: &str = "21600";

/// The command of the suite for logs of disks.
const POWER_LOG: &str = "power-log";
const POWER_LIMIT: &str = "3600";

/// Runs the whole suite with `--all`, else a few cases, and only if nothing has to be compiled for it.
pub fn conformance(selection: &Selection<'_>) -> Result<LaneOutcome> {
    if let Some(why) = guest::lack() {
        return Ok(LaneOutcome::skipped(why));
    }
    if !selection.all && !guest::has_modules() {
        return Ok(LaneOutcome::skipped(
            "no OpenZFS is compiled for the guest's kernel; `cargo xtask guest true` does it in about 7 minutes",
        ));
    }
    packages::for_guest()?;
    let suite = suite()?;
    let name = suite.file_name().context("the suite has no name")?.to_string_lossy().into_owned();
    let (limit, filters) = match (selection.all, selection.filters) {
        (false, _) => (SHORT_LIMIT, SHORT.join(" ")),
        (true, filters) => (WHOLE_LIMIT, filters.join(" ")),
    };
    let mut run = Command::new(this_program()?);
    run.args(["guest", "--limit", limit, "--bring"]).arg(&suite).arg("--");
    run.arg(format!("modprobe -a loop zfs && YOI_GUEST=1 YOI_MUST_RUN=1 ./{name} {filters}"));
    let (passed, line) = selection.run("guest", run, format!("cargo xtask guest ... {name} {filters}"))?;
    outcome(passed, &line)
}

/// Cuts the power of the disks of trees between all writes: the guest is recorded, and what a cut would have left is looked at here.
pub fn power_cuts(selection: &Selection<'_>) -> Result<LaneOutcome> {
    if let Some(why) = guest::lack() {
        return Ok(LaneOutcome::skipped(why));
    }
    packages::for_guest()?;
    let suite = suite()?;
    // In memory if possible: each state of a disk is a copy of it.
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
    let made = capture(command(&suite, [POWER_LOG, "make"]).arg(folder.path()))?;
    let disks: Vec<&str> = made.lines().collect();
    let devices: Vec<String> = ('a'..='z').take(disks.len()).map(|letter| format!("/dev/vd{letter}")).collect();
    let name = suite.file_name().context("the suite has no name")?.to_string_lossy().into_owned();
    let mut record = Command::new(this_program()?);
    record.args(["guest", "--limit", POWER_LIMIT, "--bring"]).arg(&suite);
    record.args(disks.iter().flat_map(|disk| ["--disk", disk])).arg("--");
    record.arg(format!("modprobe -a loop zfs && YOI_GUEST=1 ./{name} {POWER_LOG} record {}", devices.join(" ")));
    let (passed, line) = selection.run("power", record, format!("cargo xtask guest ... {name} {POWER_LOG} record"))?;
    if !passed {
        return outcome(passed, &line);
    }
    let mut replay = Command::new(&suite);
    replay.args([POWER_LOG, "replay"]).arg(folder.path());
    let (passed_here, line) = selection.run("power", replay, format!("{name} {POWER_LOG} replay"))?;
    let Some(pool) = disks.iter().find(|disk| disk.contains("Zfs")) else { bail!("no disk has a pool") };
    let base = pool.strip_suffix("img").context("a disk's file has another ending")?.to_owned() + "base";
    let mut replay = Command::new(this_program()?);
    replay.args(["guest", "--limit", WHOLE_LIMIT, "--bring"]).arg(&suite).args(["--disk", &base, "--disk", &format!("{pool}.log"), "--"]);
    replay.arg(format!("modprobe -a loop zfs && YOI_GUEST=1 ./{name} {POWER_LOG} replay-pool /dev/vda /dev/vdb"));
    let (passed_there, line_there) = selection.run("power", replay, format!("cargo xtask guest ... {name} {POWER_LOG} replay-pool"))?;
    outcome(passed_here, &line)?;
    outcome(passed_there, &line_there)
}

/// The program of the suite, compiled as for the unit tests.
fn suite() -> Result<PathBuf> {
    cargo::executable(&["test", "--no-run", "--workspace", "--test", CONFORMANCE])
}
