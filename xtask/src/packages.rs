//! What the machine must have: the parts that no package of Rust or Go brings.

use anyhow::{Context, Result};
use std::fs;
pub use yoi_host::packages::for_cluster;
use yoi_host::packages::{BTRFS, EXT4, MOUNT, Need, XFS, install};

const IMAGES: &[Need] = &[
    Need { what: "mmdebstrap", package: "mmdebstrap" },
    Need { what: "/usr/bin/busybox", package: "busybox-static" },
    BTRFS,
    Need { what: "ldd", package: "libc-bin" },
];

const SSHD_FOLDER: &str = "/run/sshd";

/// What tests and benchmarks run on small disks of their own.
const DISKS: &[Need] = &[EXT4, BTRFS, XFS, MOUNT, Need { what: "git", package: "git" }];

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

/// What compresses a bundle.
pub fn for_bundle() -> Result<()> {
    install(&[Need { what: "zstd", package: "zstd" }])
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
