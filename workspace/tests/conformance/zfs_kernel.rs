//! ZFS in the kernel, with a pool in a file.

use std::fs;
use std::path::Path;

use crate::fixture::run;
use crate::zfs_fuse::{POOL, zpool};

/// The pool. It is destroyed when dropped.
pub struct KernelPool(());

/// Why this machine has no ZFS in its kernel; None if it does.
pub fn lack() -> Option<&'static str> {
    (!Path::new("/dev/zfs").exists()).then_some("needs a kernel with ZFS")
}

impl KernelPool {
    pub fn make(image: &Path) -> Self {
        fs::File::create(image).unwrap().set_len(4 << 30).unwrap();
        run("zpool", &["create".as_ref(), "-m".as_ref(), "none".as_ref(), POOL.as_ref(), image]);
        Self(())
    }
}

impl Drop for KernelPool {
    fn drop(&mut self) {
        _ = zpool(&["destroy", "-f", POOL]);
    }
}
