//! A pool of the kernel's ZFS, in a file.

use std::fs::File;
use std::path::Path;
use std::process::Command;

use crate::loop_disk::run;

/// A process has one pool at a time.
pub const POOL: &str = "yoi-bench";
/// The dataset below which trees are made.
pub const PARENT: &str = "yoi-bench/trees";
const SIZE: u64 = 3 << 29;

/// It is destroyed when dropped, also by a panic.
pub struct Pool {
    _folder: tempfile::TempDir,
}

/// Whether this kernel has ZFS.
pub fn kernel_has_zfs() -> bool {
    Path::new("/dev/zfs").exists()
}

impl Pool {
    pub fn make() -> Self {
        // The kernel opens the file of a pool in the first mount namespace, which shares this file system.
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let file = folder.path().join("pool");
        File::create(&file).unwrap().set_len(SIZE).unwrap();
        run(Command::new("zpool").args(["create", "-m", "none", POOL]).arg(&file));
        let pool = Self { _folder: folder };
        run(Command::new("zfs").args(["create", "-o", "mountpoint=none", PARENT]));
        pool
    }

    /// Used bytes of all datasets, after what was destroyed has been freed.
    pub fn used(&self) -> u64 {
        run(Command::new("zpool").args(["wait", "-t", "free", POOL]));
        let out = Command::new("zfs").args(["get", "-Hpo", "value", "used", POOL]).output().unwrap();
        String::from_utf8(out.stdout).unwrap().trim().parse().unwrap()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        _ = Command::new("zpool").args(["destroy", "-f", POOL]).status();
    }
}
