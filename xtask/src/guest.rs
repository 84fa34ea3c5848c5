//! A Linux 6.1 with OpenZFS in an emulator: what the machine's own kernel lacks is tried there. It boots in about 5 s, computes at half the speed, and takes
//! 40 to 70 times as long to start a process: for conformance, not for figures.

mod debian;
mod machine;

use crate::{packages, progress};
use anyhow::{Result, bail};
use machine::Run;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Why this machine runs no guest; None if it does.
pub fn lack() -> Option<&'static str> {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        return Some("the guest is a Linux for x86-64");
    }
    (!rustix::process::geteuid().is_root()).then_some("making the guest's Debian takes root")
}

/// Runs one command, with files in its folder and disks; its standard output and exit code are those of this process.
pub fn exec(files: &[PathBuf], disks: &[PathBuf], limit: Duration, command: &[String]) -> Result<ExitCode> {
    if let Some(why) = lack() {
        bail!("{why}");
    }
    packages::for_guest()?;
    let debian = debian::ensure()?;
    progress::note(&debian.versions);
    let code = Run { script: &command.join(" "), files, disks, limit }.on(&debian)?;
    Ok(u8::try_from(code).map_or(ExitCode::FAILURE, ExitCode::from))
}
