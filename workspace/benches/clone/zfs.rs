//! Datasets of a kernel's ZFS: the provider's fork over `zfs snapshot` and `zfs clone` by hand, in a pool in a file.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use yoi_workspace::mount::{TargetRoot, unbind};
use yoi_workspace::{CloneAccess, Owner, ProviderKind, RootOptions, Uid, ZfsOptions};

use crate::loop_disk::{Disk, FileSystem, fill_repository, run, uid};
use crate::providers::{agents_status, read_only_status};
use crate::{Table, Times, take_turns};

const POOL: &str = "yoi-bench";
const PARENT: &str = "yoi-bench/trees";
const POOL_SIZE: u64 = 3 << 29;
const FILES: [usize; 2] = [1_500, 57_000];
const FORKS: usize = 100;
/// A `git status` of so many files takes seconds in an emulator.
const STATUSES: usize = 20;

/// The pool, its file, and a data root whose entries are on ext4. It is destroyed when dropped, also by a panic.
struct Pool {
    disk: Option<Disk>,
    folder: tempfile::TempDir,
}

impl Pool {
    fn make() -> Self {
        // The kernel opens the file of a pool in the first mount namespace, which shares this file system.
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let file = folder.path().join("pool");
        File::create(&file).unwrap().set_len(POOL_SIZE).unwrap();
        run(Command::new("zpool").args(["create", "-m", "none", POOL]).arg(&file));
        let mut pool = Self { disk: None, folder };
        zfs(&["create", "-o", "mountpoint=none", PARENT]);
        let options = RootOptions { zfs: Some(ZfsOptions::new(PARENT.parse().unwrap())), ..RootOptions::default() };
        let disk = Disk::with(pool.folder.path(), "entries", FileSystem::Ext4, options);
        fs::create_dir(disk.at.join("shown")).unwrap();
        pool.disk = Some(disk);
        pool
    }

    fn disk(&self) -> &Disk {
        self.disk.as_ref().unwrap()
    }

    fn fork(&self, from: Uid) -> Uid {
        let new = uid();
        self.disk().provider(ProviderKind::Zfs).clone_tree(new, from, CloneAccess::ReadWrite).unwrap();
        new
    }

    fn targets(&self) -> TargetRoot {
        TargetRoot::open(&self.disk().at.join("shown")).unwrap()
    }

    fn show(&self, tree: Uid, read_only: bool) -> PathBuf {
        let name = tree.to_string();
        self.disk().root().publish(tree, &self.targets(), Path::new(&name), read_only).unwrap();
        self.disk().at.join("shown").join(name)
    }

    fn hide(&self, tree: Uid) {
        unbind(&self.targets(), Path::new(&tree.to_string())).unwrap();
    }

    /// Makes a sealed base that is a git repository with everything committed.
    fn base(&self, files: usize) -> Uid {
        let (base, provider) = (uid(), self.disk().provider(ProviderKind::Zfs));
        provider.create_empty(base, Owner { uid: 0, gid: 0 }).unwrap();
        fill_repository(&self.show(base, false), files);
        self.hide(base);
        provider.seal(base).unwrap();
        base
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.disk = None;
        _ = Command::new("zpool").args(["destroy", "-f", POOL]).status();
    }
}

fn zfs(args: &[&str]) {
    run(Command::new("zfs").args(args));
}

fn fork_by_hand(from: Uid, name: &str) {
    let snapshot = format!("{PARENT}/{from}@{name}");
    zfs(&["snapshot", &snapshot]);
    zfs(&["clone", "-o", "canmount=noauto", &snapshot, &format!("{POOL}/{name}")]);
}

/// Measures nothing, and says so, where the kernel has no ZFS.
pub fn measure(samples: Option<usize>, table: &mut Table) {
    if !Path::new("/dev/zfs").exists() {
        println!("\nzfs: NOT RUN: needs a kernel with ZFS; `cargo xtask bench zfs` has one");
        return;
    }
    let pool = Pool::make();
    let bases = FILES.map(|files| pool.base(files));
    let mut times = [(); FILES.len()].map(|()| (Times::default(), Times::default()));
    for n in 0..samples.unwrap_or(FORKS) {
        for (k, (ours, bare)) in times.iter_mut().enumerate() {
            let from = bases[k];
            take_turns(n, || ours.time(|| _ = pool.fork(from)), || bare.time(|| fork_by_hand(from, &format!("hand-{n}-{k}"))));
        }
    }
    table.head("ZFS: fork (the Provider's verb alone)");
    for (files, (ours, bare)) in FILES.iter().zip(&times) {
        table.over(&format!("zfs: fork over zfs snapshot and zfs clone by hand, {files} files"), ours, bare, Some(1.3));
    }
    table.over("zfs: fork, 57,000 files over 1,500", &times[1].0, &times[0].0, Some(1.1));

    let base = pool.show(bases[1], true);
    let (mut first, mut second, mut warm) = (Times::default(), Times::default(), Times::default());
    let (mut show, mut destroy) = (Times::default(), Times::default());
    read_only_status(&base);
    for _ in 0..samples.unwrap_or(STATUSES) {
        let tree = pool.fork(bases[1]);
        let mut shown = PathBuf::new();
        show.time(|| shown = pool.show(tree, false));
        warm.time(|| read_only_status(&base));
        first.time(|| agents_status(&shown));
        second.time(|| agents_status(&shown));
        pool.hide(tree);
        destroy.time(|| pool.disk().provider(ProviderKind::Zfs).destroy(tree).unwrap());
    }
    table.head("ZFS: the first git status in a new tree of 57,000 files");
    table.over("zfs: first git status over warm in the base", &first, &warm, Some(1.3));
    table.over("zfs: second git status over warm in the base", &second, &warm, None);
    table.alone("zfs: first show", &show);
    table.alone("zfs: destroy", &destroy);
    pool.hide(bases[1]);
}
