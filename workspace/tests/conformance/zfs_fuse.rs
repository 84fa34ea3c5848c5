//! ZFS in user space: Debian's zfs-fuse with a pool in a file, in this suite's own mount namespace.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use rustix::mount::{MountFlags, UnmountFlags};
use rustix::process::{Pid, Signal};

use crate::fixture::run;
use crate::lanes::is_installed;

/// The name of the pool. Its parent datasets for trees are named after the folders of the data roots.
pub const POOL: &str = "yoi";

/// Where the daemon and its programs keep their socket, lock, settings and list of pools.
const PRIVATE: [&str; 4] = ["/run/zfs", "/run/lock/zfs", "/etc/zfs", "/var/lib/zfs"];

/// How long a daemon takes at most to answer what costs it nothing.
const PATIENCE: Duration = Duration::from_secs(20);

/// The daemon and its pool. Both end when it is dropped.
///
/// The daemon stops to answer once in some hundred mounts: all its threads wait for each other, and every process that asks it waits, too. So
/// it is asked now and then, and killed if it does not answer: then the calls that wait fail, and the case can be run again.
pub struct ZfsFuse {
    daemon: Child,
    _private: Vec<PrivateFolder>,
    /// Ends the watch over the daemon when it is dropped.
    _watch: Sender<()>,
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
            private.push(PrivateFolder::new(folder));
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
        let (watch, ended) = channel();
        let pid = Pid::from_child(&daemon);
        let started = Self { daemon, _private: private, _watch: watch };
        let begun = Instant::now();
        while !zpool(&["list"]).0 {
            assert!(begun.elapsed() < Duration::from_secs(20), "zfs-fuse does not answer");
            std::thread::sleep(Duration::from_millis(10));
        }
        fs::File::create(image).unwrap().set_len(4 << 30).unwrap();
        run("zpool", &["create".as_ref(), "-m".as_ref(), "none".as_ref(), POOL.as_ref(), image]);
        let mounted = image.with_extension("asked");
        zfs(&["create", "-o", &format!("mountpoint={}", mounted.display()), &format!("{POOL}/asked")]);
        std::thread::spawn(move || {
            while ended.recv_timeout(Duration::from_secs(1)) == Err(RecvTimeoutError::Timeout) {
                let ((answer, answered), mounted) = (channel(), mounted.clone());
                std::thread::spawn(move || answer.send(fs::metadata(mounted).is_ok()));
                if answered.recv_timeout(PATIENCE).is_err() {
                    _ = rustix::process::kill_process(pid, Signal::KILL);
                }
            }
        });
        started
    }

    /// Whether the daemon has ended, or was killed because it no longer answered.
    pub fn has_ended(&mut self) -> bool {
        self.daemon.try_wait().unwrap().is_some()
    }
}

impl Drop for ZfsFuse {
    fn drop(&mut self) {
        // Its pool is not exported: that would wait for a daemon that hangs, and the file goes, too.
        _ = self.daemon.kill();
        _ = self.daemon.wait();
    }
}

/// A folder that only this suite sees the content of. It stays, empty: its removal would end the mounts on it in other namespaces, too, which
/// are those of another suite.
pub struct PrivateFolder(PathBuf);

impl PrivateFolder {
    pub fn new(folder: &str) -> Self {
        fs::create_dir_all(folder).unwrap();
        rustix::mount::mount("zfs-fuse", folder, "tmpfs", MountFlags::empty(), None).unwrap();
        Self(folder.into())
    }
}

impl Drop for PrivateFolder {
    fn drop(&mut self) {
        _ = rustix::mount::unmount(&self.0, UnmountFlags::DETACH);
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

/// Destroys an unmounted dataset with all that is in it, if it is there. A daemon that mounts one file system while it lets go of another may
/// close the wrong descriptor, so the next case waits for that.
pub fn destroy_all(name: &str) {
    if let Err(said) = repeat_while_busy("zfs", &["destroy", "-R", name]) {
        println!("    {said}");
    }
}

/// The daemon notices some time after the kernel that a dataset is unmounted.
fn repeat_while_busy(program: &str, args: &[&str]) -> Result<(), String> {
    let begun = Instant::now();
    loop {
        match answer(program, args) {
            (true, _) => return Ok(()),
            (false, said) if !said.contains("busy") || begun.elapsed() > Duration::from_secs(20) => return Err(said),
            (false, _) => std::thread::sleep(Duration::from_millis(20)),
        }
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
