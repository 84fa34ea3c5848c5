//! The pool of provider Zfs. It lies on the disk of the file system that has the entries, behind it, so that one log has the order of all writes.

use std::path::Path;
use std::process::Command;

use super::{POOL_AT, POOL_SIZE};
use crate::fixture::run;
use crate::zfs_pool::{POOL, end_pool, zfs};

/// The dataset that trees are made in.
pub const TREES: &str = "yoi/trees";

/// An imported pool, and the loop device that is its part of the disk. Both go when it is dropped.
pub struct Pool {
    device: String,
}

impl Pool {
    /// Makes the pool on the device.
    pub fn create(disk: &Path) -> Self {
        // Otherwise writes wait in the page cache of the disk.
        let device = attach(disk, &["--direct-io=on"]);
        run("zpool", &["create", "-o", "cachefile=none", "-m", "none", POOL, &device].map(Path::new));
        zfs(&["create", "-o", "canmount=off", TREES]);
        Self { device }
    }

    /// Imports the pool that a cut left in the file.
    pub fn import(file: &Path) -> Self {
        let pool = Self { device: attach(file, &[]) };
        // Nobody has exported it.
        run("zpool", &["import", "-f", "-N", "-o", "cachefile=none", "-d", &pool.device, POOL].map(Path::new));
        pool
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            end_pool(&["export", POOL]);
        }
        run("losetup", &["-d", &self.device].map(Path::new));
    }
}

fn attach(disk: &Path, more: &[&str]) -> String {
    let [offset, size] = [("offset", POOL_AT), ("sizelimit", POOL_SIZE)].map(|(name, bytes)| format!("--{name}={bytes}"));
    let attached = Command::new("losetup").args(["--find", "--show", &offset, &size]).args(more).arg(disk).output().unwrap();
    assert!(attached.status.success(), "losetup {disk:?}: {}", String::from_utf8_lossy(&attached.stderr));
    String::from_utf8(attached.stdout).unwrap().trim().to_owned()
}
