//! What the machine must have: the parts that no package of Rust or Go brings.

use crate::command::{command, find_program, run};
use crate::progress;
use anyhow::{Result, bail};
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
    Need { what: "mkfs.btrfs", package: "btrfs-progs" },
    Need { what: "mkfs.ext4", package: "e2fsprogs" },
    Need { what: "ip", package: "iproute2" },
    Need { what: "iptables", package: "iptables" },
    Need { what: "ipset", package: "ipset" },
    Need { what: "conntrack", package: "conntrack" },
    Need { what: "mount", package: "mount" },
    Need { what: "nsenter", package: "util-linux" },
];

pub const XFS: Need = Need { what: "mkfs.xfs", package: "xfsprogs" };

/// Checks that the machine has what a node takes from it, and installs nothing.
pub fn there_for_cluster() -> Result<()> {
    let missing: Vec<_> = CLUSTER.iter().filter(|need| !present(need.what)).collect();
    if missing.is_empty() { Ok(()) } else { bail!("this machine lacks {}", lacking(&missing)) }
}

/// What is missing, and the line that installs it.
fn lacking(missing: &[&Need]) -> String {
    let what: Vec<_> = missing.iter().map(|need| need.what).collect();
    format!("{}; on Debian or Ubuntu:\n  sudo {}", what.join(", "), install_line(missing))
}

fn install_line(missing: &[&Need]) -> String {
    let mut packages: Vec<_> = missing.iter().map(|need| need.package).collect();
    packages.dedup();
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
    let missing: Vec<_> = needs.iter().filter(|need| !present(need.what)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let line = install_line(&missing);
    let Some(apt) = find_program("apt-get").filter(|_| rustix::process::geteuid().is_root()) else {
        bail!("this machine lacks {}", lacking(&missing));
    };
    let mut packages: Vec<_> = missing.iter().map(|need| need.package).collect();
    packages.dedup();
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
    if let Some(still) = missing.iter().find(|need| !present(need.what)) {
        bail!("failed to find {} after `{line}`", still.what);
    }
    step.done("");
    Ok(())
}

fn present(what: &str) -> bool {
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
