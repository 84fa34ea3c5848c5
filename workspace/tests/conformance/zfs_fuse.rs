//! ZFS in user space: Debian's zfs-fuse with a pool in a file, in this suite's own mount namespace.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::mount::{MountFlags, UnmountFlags};

use crate::fixture::run;
use crate::lanes::is_installed;

/// The name of the pool. Its parent datasets for trees are named after the folders of the data roots.
pub const POOL: &str = "yoi";

/// Where the daemon and its programs keep their socket, lock, settings and list of pools.
const PRIVATE: [&str; 4] = ["/run/zfs", "/run/lock/zfs", "/etc/zfs", "/var/lib/zfs"];

/// The daemon and its pool. Both end when it is dropped.
pub struct ZfsFuse {
    daemon: Child,
    private: Vec<PathBuf>,
}

/// Why this machine runs no such daemon; None if it does.
pub fn lack() -> Option<&'static str> {
    match () {
        () if !Path::new("/dev/fuse").exists() => Some("needs /dev/fuse"),
        () if !is_installed("zfs-fuse") => Some("needs zfs-fuse"),
        () => None,
    }
}

impl ZfsFuse {
    /// Starts the daemon and makes the pool in a new file.
    pub fn start(image: &Path) -> Self {
        let mut private = Vec::new();
        for folder in PRIVATE {
            fs::create_dir_all(folder).unwrap();
            rustix::mount::mount("zfs-fuse", folder, "tmpfs", MountFlags::empty(), None).unwrap();
            private.push(folder.into());
        }
        let quiet = Stdio::null;
        let mut command = Command::new("zfs-fuse");
        // It must not outlive a suite that is killed.
        // SAFETY: the call takes numbers.
        let die_with_parent = || match unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        };
        // SAFETY: between fork and exec it makes one system call.
        unsafe { command.pre_exec(die_with_parent) };
        let daemon = command
            .args(["--no-daemon", "--no-kstat-mount", "--enable-xattr"])
            .stdin(quiet())
            .stdout(quiet())
            .stderr(quiet())
            .spawn()
            .unwrap();
        let started = Self { daemon, private };
        let begun = Instant::now();
        while !zpool(&["list"]).0 {
            assert!(begun.elapsed() < Duration::from_secs(20), "zfs-fuse does not answer");
            std::thread::sleep(Duration::from_millis(10));
        }
        fs::File::create(image).unwrap().set_len(4 << 30).unwrap();
        run("zpool", &["create".as_ref(), "-m".as_ref(), "none".as_ref(), POOL.as_ref(), image]);
        started
    }
}

impl Drop for ZfsFuse {
    fn drop(&mut self) {
        _ = zpool(&["export", POOL]);
        _ = self.daemon.kill();
        _ = self.daemon.wait();
        for folder in self.private.iter().rev() {
            _ = rustix::mount::unmount(folder, UnmountFlags::DETACH);
        }
    }
}

fn answer(program: &str, args: &[&str]) -> (bool, String) {
    let out = Command::new(program).env("LC_ALL", "C").args(args).output().unwrap();
    (out.status.success(), String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr))
}

pub fn zpool(args: &[&str]) -> (bool, String) {
    answer("zpool", args)
}

/// Destroys or exports a pool whose datasets are unmounted. The daemon notices some time after the kernel that they are.
pub fn end_pool(args: &[&str]) {
    let begun = Instant::now();
    loop {
        match zpool(args) {
            (true, _) => return,
            (false, said) => assert!(begun.elapsed() < Duration::from_secs(20), "zpool {args:?}: {said}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
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
