//! Datasets of a kernel's ZFS: the provider's fork over `zfs snapshot` and `zfs clone` by hand, in a pool in a file.

use std::path::{Path, PathBuf};
use std::process::Command;

use yoi_workspace::{CloneAccess, ProviderKind, Uid};

use crate::loop_disk::{Disk, FileSystem, fill_repository, run, uid};
use crate::pool::{PARENT, POOL, kernel_has_zfs};
use crate::providers::{agents_status, read_only_status};
use crate::{Table, Times, take_turns};

const FILES: [usize; 2] = [1_500, 57_000];
const SAMPLES: usize = 100;

fn zfs(args: &[&str]) {
    run(Command::new("zfs").args(args));
}

fn fork(disk: &Disk, from: Uid) -> Uid {
    let new = uid();
    disk.provider(ProviderKind::Zfs).clone_tree(new, from, CloneAccess::ReadWrite).unwrap();
    new
}

fn fork_by_hand(from: Uid, name: &str) {
    let snapshot = format!("{PARENT}/{from}@{name}");
    zfs(&["snapshot", &snapshot]);
    zfs(&["clone", "-o", "canmount=noauto", &snapshot, &format!("{POOL}/{name}")]);
}

/// Measures nothing, and says so, where the kernel has no ZFS.
pub fn measure(temp: &Path, samples: Option<usize>, table: &mut Table) {
    if !kernel_has_zfs() {
        println!("\nzfs: NOT RUN: needs a kernel with ZFS; `cargo xtask bench zfs` has one");
        return;
    }
    let disk = Disk::new(temp, "entries of datasets", FileSystem::Zfs);
    let bases = FILES.map(|files| disk.base(ProviderKind::Zfs, |path| fill_repository(path, files)));
    let samples = samples.unwrap_or(SAMPLES);
    let mut times = [(); FILES.len()].map(|()| (Times::default(), Times::default()));
    for n in 0..samples {
        for (k, (ours, bare)) in times.iter_mut().enumerate() {
            let from = bases[k].0;
            take_turns(n, || ours.time(|| _ = fork(&disk, from)), || bare.time(|| fork_by_hand(from, &format!("hand-{n}-{k}"))));
        }
    }
    table.head("ZFS: fork (the Provider's verb alone)");
    for (files, (ours, bare)) in FILES.iter().zip(&times) {
        table.over(&format!("zfs: fork over zfs snapshot and zfs clone by hand, {files} files"), ours, bare, Some(1.3));
    }
    table.over("zfs: fork, 57,000 files over 1,500", &times[1].0, &times[0].0, Some(1.1));

    let (from, base) = &bases[1];
    let (mut first, mut second, mut warm) = (Times::default(), Times::default(), Times::default());
    let (mut show, mut destroy) = (Times::default(), Times::default());
    read_only_status(base);
    for n in 0..samples {
        let tree = fork(&disk, *from);
        let mut shown = PathBuf::new();
        show.time(|| shown = disk.show(tree, false));
        warm.time(|| read_only_status(base));
        first.time(|| agents_status(&shown));
        second.time(|| agents_status(&shown));
        disk.hide(tree);
        destroy.time(|| disk.provider(ProviderKind::Zfs).destroy(tree).unwrap());
        if n % 10 == 9 {
            println!("git status: {} of {samples}", n + 1);
        }
    }
    table.head("ZFS: the first git status in a new tree of 57,000 files");
    table.over("zfs: first git status over warm in the base", &first, &warm, Some(1.3));
    table.over("zfs: second git status over warm in the base", &second, &warm, None);
    table.alone("zfs: first show", &show);
    table.alone("zfs: destroy", &destroy);
    bases.iter().for_each(|(base, _)| disk.hide(*base));
}
