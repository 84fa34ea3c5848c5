//! ZFS in the kernel, with a pool in a file, and its commands.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use yoi_test_support::wait_for;

use crate::fixture::run;

/// The name of the pool. Its parent datasets for trees are named after the folders of the data roots.
pub const POOL: &str = "yoi";

/// The pool. It is destroyed when dropped.
pub struct ZfsPool(());

/// Why this machine has no ZFS in its kernel; None if it does.
pub fn lack() -> Option<&'static str> {
    (!Path::new("/dev/zfs").exists()).then_some("needs a kernel with ZFS")
}

impl ZfsPool {
    /// Makes the pool in a new file.
    pub fn make(image: &Path) -> Self {
        fs::File::create(image).unwrap().set_len(4 << 30).unwrap();
        run("zpool", &["create".as_ref(), "-m".as_ref(), "none".as_ref(), POOL.as_ref(), image]);
        Self(())
    }
}

impl Drop for ZfsPool {
    fn drop(&mut self) {
        _ = zpool(&["destroy", "-f", POOL]);
    }
}

fn answer(program: &str, args: &[&str]) -> (bool, String) {
    let out = Command::new(program).env("LC_ALL", "C").args(args).output().unwrap();
    (out.status.success(), String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr))
}

pub fn zpool(args: &[&str]) -> (bool, String) {
    answer("zpool", args)
}

/// Destroys or exports a pool whose datasets are unmounted.
pub fn end_pool(args: &[&str]) {
    repeat_while_busy("zpool", args).unwrap();
}

/// Destroys an unmounted dataset with all that is in it, if it is there.
pub fn destroy_all(name: &str) {
    if let Err(said) = repeat_while_busy("zfs", &["destroy", "-R", name]) {
        println!("    {said}");
    }
}

/// A dataset that was detached is busy until the last one who has it open lets go of it.
fn repeat_while_busy(program: &str, args: &[&str]) -> Result<(), String> {
    let mut last = String::new();
    let done = wait_for(Duration::from_secs(20), || match answer(program, args) {
        (true, _) => Some(Ok(())),
        (false, said) if !said.contains("busy") => Some(Err(said)),
        (false, said) => {
            last = said;
            None
        }
    });
    done.unwrap_or(Err(last))
}

/// Runs `zfs`, which must succeed.
pub fn zfs(args: &[&str]) -> String {
    let (done, said) = answer("zfs", args);
    assert!(done, "zfs {args:?}: {said}");
    said
}

/// Whether a dataset or snapshot is there.
pub fn exists(name: &str) -> bool {
    answer("zfs", &["get", "-H", "type", name]).0
}

/// All datasets and snapshots below one, without itself.
pub fn below(parent: &str) -> Vec<String> {
    let listed = zfs(&["get", "-Hp", "-r", "-o", "name", "type", parent]);
    listed.lines().filter(|name| *name != parent).map(str::to_owned).collect()
}

/// Waits until all that was written counts: an operation on a dataset ends with the transaction that it is in.
pub fn sync() {
    zfs(&["set", "dev.yoi.test:sync=on", POOL]);
}
