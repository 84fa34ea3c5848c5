//! What the machine must have: the parts that no package of Rust or Go brings.

use crate::command::{command, find_program, run};
use crate::progress;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::Path;

/// A program or file that must be there, and the Debian package that brings it.
#[derive(Clone, Copy)]
struct Need {
    what: &'static str,
    package: &'static str,
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

const IMAGES: &[Need] = &[
    Need { what: "mmdebstrap", package: "mmdebstrap" },
    Need { what: "/usr/bin/busybox", package: "busybox-static" },
    Need { what: "mkfs.btrfs", package: "btrfs-progs" },
    Need { what: "ldd", package: "libc-bin" },
];

const SSHD_FOLDER: &str = "/run/sshd";

/// What tests and benchmarks run on small disks of their own.
const DISKS: &[Need] = &[
    Need { what: "mkfs.ext4", package: "e2fsprogs" },
    Need { what: "mkfs.btrfs", package: "btrfs-progs" },
    XFS,
    Need { what: "mount", package: "mount" },
    Need { what: "git", package: "git" },
];

const XFS: Need = Need { what: "mkfs.xfs", package: "xfsprogs" };

const TESTS: &[Need] = &[
    // A build in a tree at its source's path.
    Need { what: "cmake", package: "cmake" },
    Need { what: "make", package: "make" },
    // A repository over ssh, and one with large files.
    Need { what: "/usr/sbin/sshd", package: "openssh-server" },
    Need { what: "ssh", package: "openssh-client" },
    Need { what: "git-lfs", package: "git-lfs" },
];

/// What Grep is compared with.
const RIPGREP: Need = Need { what: "rg", package: "ripgrep" };

/// What the guest takes: a kernel of its own in an emulator.
const GUEST: &[Need] = &[
    Need { what: "qemu-system-x86_64", package: "qemu-system-x86" },
    Need { what: "mmdebstrap", package: "mmdebstrap" },
    Need { what: "strip", package: "binutils" },
    Need { what: "setpriv", package: "util-linux" },
    Need { what: "/usr/share/keyrings/debian-archive-keyring.gpg", package: "debian-archive-keyring" },
];

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

pub fn for_images() -> Result<()> {
    install(IMAGES)
}

/// What the tests of the crates take.
pub fn for_tests() -> Result<()> {
    install(&[DISKS, TESTS].concat())?;
    // sshd of root demands this folder, which the package's service would make. Made here, it is no thing that the first run left behind.
    fs::create_dir_all(SSHD_FOLDER).with_context(|| format!("failed to make {SSHD_FOLDER}"))
}

/// What the benchmarks take that need no cluster.
pub fn for_benches() -> Result<()> {
    install(&[DISKS, &[RIPGREP]].concat())
}

pub fn for_guest() -> Result<()> {
    install(GUEST)
}

fn install(needs: &[Need]) -> Result<()> {
    let missing: Vec<_> = needs.iter().filter(|need| !present(need.what)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let mut packages: Vec<_> = missing.iter().map(|need| need.package).collect();
    packages.dedup();
    let line = format!("apt-get install --no-install-recommends {}", packages.join(" "));
    let Some(apt) = find_program("apt-get").filter(|_| rustix::process::geteuid().is_root()) else {
        let what: Vec<_> = missing.iter().map(|need| need.what).collect();
        bail!("this machine lacks {}; on Debian or Ubuntu:\n  sudo {line}", what.join(", "));
    };
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
