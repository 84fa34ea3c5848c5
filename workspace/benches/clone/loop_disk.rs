//! File systems in files, each with a data root, and what the measurements do in them.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mount::UnmountFlags;
use yoi_workspace::mount::{TargetRoot, unbind};
use yoi_workspace::{DataRoot, Owner, Provider, ProviderKind, RootOptions, Uid, ZfsOptions, ensure_loop_btrfs};

use crate::pool::{PARENT, POOL, Pool};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileSystem {
    Btrfs,
    Ext4,
    Xfs,
    /// A pool; the entries of trees are on ext4.
    Zfs,
}

/// A file system in a file, with a data root. It is removed when dropped, also by a panic.
pub struct Disk {
    pub at: PathBuf,
    root: Option<DataRoot>,
    pool: Option<Pool>,
}

impl Disk {
    pub fn new(temp: &Path, name: &str, file_system: FileSystem) -> Self {
        const SIZE: u64 = 8 << 30;
        let (image, at) = (temp.join(name).with_extension("image"), temp.join(name));
        let make = |mkfs: &str, force: &str, kind: &str| {
            File::create(&image).unwrap().set_len(SIZE).unwrap();
            fs::create_dir(&at).unwrap();
            run(Command::new(mkfs).args(["-q", force]).arg(&image));
            run(Command::new("mount").args(["-t", kind, "-o", "loop"]).arg(&image).arg(&at));
        };
        let pool = (file_system == FileSystem::Zfs).then(Pool::make);
        match file_system {
            FileSystem::Btrfs => {
                // Its file takes its whole size at once, and is in memory in the guest.
                let free = rustix::fs::statvfs(temp).map(|v| v.f_bavail * v.f_frsize).unwrap();
                ensure_loop_btrfs(&image, SIZE.min(free / 3), &at).unwrap();
            }
            FileSystem::Ext4 | FileSystem::Zfs => make("mkfs.ext4", "-F", "ext4"),
            FileSystem::Xfs => make("mkfs.xfs", "-f", "xfs"),
        }
        // Only the loop device holds the file now, so its space comes back however this process ends.
        fs::remove_file(&image).unwrap();
        let zfs = pool.as_ref().map(|_| ZfsOptions::new(PARENT.parse().unwrap()));
        let root = Some(DataRoot::open_with(&at, RootOptions { zfs, ..RootOptions::default() }).unwrap());
        fs::create_dir(at.join("shown")).unwrap();
        Self { at, root, pool }
    }

    pub fn root(&self) -> &DataRoot {
        self.root.as_ref().unwrap()
    }

    pub fn provider(&self, kind: ProviderKind) -> &dyn Provider {
        self.root().provider(kind).unwrap()
    }

    /// Makes a tree and returns where it is to be filled.
    pub fn empty(&self, kind: ProviderKind) -> (Uid, PathBuf) {
        let uid = uid();
        self.provider(kind).create_empty(uid, Owner { uid: 0, gid: 0 }).unwrap();
        let path = match kind {
            ProviderKind::Zfs => self.show(uid, false),
            _ => self.at.join("trees").join(uid.shard()).join(uid.to_string()).join("tree"),
        };
        (uid, path)
    }

    /// Makes a sealed base and returns where it is read.
    pub fn base(&self, kind: ProviderKind, fill: impl FnOnce(&Path)) -> (Uid, PathBuf) {
        let (uid, path) = self.empty(kind);
        fill(&path);
        let is_shown = kind == ProviderKind::Zfs;
        if is_shown {
            self.hide(uid);
        }
        self.provider(kind).seal(uid).unwrap();
        (uid, if is_shown { self.show(uid, true) } else { path })
    }

    /// Where trees are shown.
    fn shown(&self) -> TargetRoot {
        TargetRoot::open(&self.at.join("shown")).unwrap()
    }

    /// Shows a tree, as the volume of a Pod does.
    pub fn show(&self, tree: Uid, read_only: bool) -> PathBuf {
        let name = tree.to_string();
        self.root().publish(tree, &self.shown(), Path::new(&name), read_only).unwrap();
        self.at.join("shown").join(name)
    }

    pub fn hide(&self, tree: Uid) {
        unbind(&self.shown(), Path::new(&tree.to_string())).unwrap();
    }

    /// Writes all dirty data.
    pub fn flush(&self) {
        rustix::fs::syncfs(File::open(&self.at).unwrap()).unwrap();
        if self.pool.is_some() {
            run(Command::new("zpool").args(["sync", POOL]));
        }
    }

    /// Used bytes of the device.
    pub fn used(&self) -> u64 {
        self.flush();
        match &self.pool {
            Some(pool) => pool.used(),
            None => rustix::fs::statvfs(&self.at).map(|v| (v.f_blocks - v.f_bfree) * v.f_frsize).unwrap(),
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.root = None;
        // Lazily, because a failure may leave descriptors open. The loop device goes with the last of them.
        _ = rustix::mount::unmount(&self.at, UnmountFlags::DETACH);
    }
}

pub fn run(command: &mut Command) {
    let out = command.output().unwrap();
    assert!(out.status.success(), "{command:?}: {}", String::from_utf8_lossy(&out.stderr));
}

pub fn git(at: &Path, args: &[&str]) {
    let settings = ["-c", "user.name=b", "-c", "user.email=b@b", "-c", "safe.directory=*", "-c", "gc.auto=0"];
    run(Command::new("git").current_dir(at).args(settings).args(args));
}

/// Fills a folder with so many small files, and makes it a git repository with everything committed.
pub fn fill_repository(path: &Path, files: usize) {
    for n in 0..files {
        let dir = path.join(format!("d{}", n / 100));
        if n % 100 == 0 {
            fs::create_dir(&dir).unwrap();
        }
        let mut content = format!("{n}\n").into_bytes();
        content.resize(200 + n * 37 % 4_000, b'x');
        fs::write(dir.join(format!("f{n}")), content).unwrap();
    }
    git(path, &["init", "-q"]);
    git(path, &["add", "."]);
    git(path, &["commit", "-q", "-m", "one"]);
    // As most repositories are: with a file for each object, a copy of the repository would be one of twice as many files.
    git(path, &["repack", "-q", "-a", "-d"]);
    git(path, &["status"]);
}

pub fn uid() -> Uid {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    // Spread over the shards as random UIDs are.
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    bytes[8..].copy_from_slice(&n.to_be_bytes());
    Uid::from_bytes(bytes)
}

/// Enters a new mount namespace: its mounts go with the process, however it ends. Call it before there is another thread.
pub fn enter_mount_namespace() {
    use rustix::mount::{MountPropagationFlags, mount_change};
    // SAFETY: the descriptors of this one thread are not shared in a way that a new mount namespace changes.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) }.unwrap();
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).unwrap();
}
