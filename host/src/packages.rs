//! What the machine must have: the parts that no package of Rust or Go brings.

use crate::command::{command, find_program, run};
use crate::progress;
use anyhow::{Error, Result, anyhow, bail};
use std::path::Path;

/// A program or file that must be there, and the Debian package that brings it.
#[derive(Clone, Copy)]
pub struct Need {
    pub what: &'static str,
    pub package: &'static str,
}

const CLUSTER: &[Need] = &[
    Need { what: "containerd", package: "containerd" },
    Need { what: "ctr", package: "containerd" },
    Need { what: "runc", package: "runc" },
    Need { what: "/usr/lib/cni/ptp", package: "containernetworking-plugins" },
    BTRFS,
    EXT4,
    Need { what: "ip", package: "iproute2" },
    Need { what: "iptables", package: "iptables" },
    Need { what: "ipset", package: "ipset" },
    Need { what: "conntrack", package: "conntrack" },
    MOUNT,
    Need { what: "nsenter", package: "util-linux" },
];

pub const BTRFS: Need = Need { what: "mkfs.btrfs", package: "btrfs-progs" };
pub const EXT4: Need = Need { what: "mkfs.ext4", package: "e2fsprogs" };
pub const MOUNT: Need = Need { what: "mount", package: "mount" };
pub const XFS: Need = Need { what: "mkfs.xfs", package: "xfsprogs" };

/// Checks that the machine has what a node takes from it, and installs nothing.
pub fn check_for_cluster() -> Result<()> {
    let missing = missing(CLUSTER);
    if missing.is_empty() { Ok(()) } else { Err(missing_error(&missing)) }
}

fn missing(needs: &[Need]) -> Vec<Need> {
    needs.iter().copied().filter(|need| !is_present(need.what)).collect()
}

/// Names what is missing, and the line that installs it.
fn missing_error(missing: &[Need]) -> Error {
    let what: Vec<_> = missing.iter().map(|need| need.what).collect();
    anyhow!("this machine lacks {}; on Debian or Ubuntu:\n  sudo {}", what.join(", "), install_line(&packages(missing)))
}

fn packages(needs: &[Need]) -> Vec<&'static str> {
    let mut packages: Vec<_> = needs.iter().map(|need| need.package).collect();
    packages.dedup();
    packages
}

fn install_line(packages: &[&str]) -> String {
    format!("apt-get install --no-install-recommends {}", packages.join(" "))
}

pub fn for_cluster() -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        bail!("a node needs root: run this again as root (for example `sudo -E env PATH=\"$PATH\" cargo xtask ...`)");
    }
    install(CLUSTER)
}

/// What a data root on XFS takes besides.
pub fn for_xfs() -> Result<()> {
    install(&[XFS])
}

/// Installs what is missing, as root by apt-get; else says what that is and how it is installed.
pub fn install(needs: &[Need]) -> Result<()> {
    let missing = missing(needs);
    if missing.is_empty() {
        return Ok(());
    }
    let Some(apt) = find_program("apt-get").filter(|_| rustix::process::geteuid().is_root()) else {
        return Err(missing_error(&missing));
    };
    let packages = packages(&missing);
    let step = progress::start(format!("Install {}", packages.join(" ")));
    let get = |first: &[&str]| {
        let mut get = command(&apt, first);
        // A policy that refuses keeps Debian from starting a containerd service of its own.
        get.env("DEBIAN_FRONTEND", "noninteractive").env("RUNLEVEL", "1");
        get
    };
    if run(get(&["install", "-y", "--no-install-recommends"]).args(&packages)).is_err() {
        run(&mut get(&["update"]))?;
        run(get(&["install", "-y", "--no-install-recommends"]).args(&packages))?;
    }
    if let Some(still) = missing.iter().find(|need| !is_present(need.what)) {
        bail!("failed to find {} after `{}`", still.what, install_line(&packages));
    }
    step.done("");
    Ok(())
}

fn is_present(what: &str) -> bool {
    // Distributions that are not Debian keep the network plugins in /opt.
    let elsewhere = what.strip_prefix("/usr/lib/cni/").map(|plugin| format!("/opt/cni/bin/{plugin}"));
    if what.starts_with('/') {
        Path::new(what).exists() || elsewhere.is_some_and(|path| Path::new(&path).exists())
    } else {
        find_program(what).is_some()
    }
}

/// Where the network plugins are.
pub fn cni_folder() -> &'static str {
    if Path::new("/usr/lib/cni/ptp").exists() { "/usr/lib/cni" } else { "/opt/cni/bin" }
}
