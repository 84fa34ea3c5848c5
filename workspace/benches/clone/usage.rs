//! What a tree takes: the counters of the file system against a visit of every file.

use std::fs;
use std::path::Path;

use yoi_workspace::{ProviderKind, Quota, QuotaState};

use super::disk::Pool;
use super::loop_disk::{Disk, FileSystem, fill_repository};
use super::{Table, Times, base, make, met, take_turns};

pub const SAMPLES: usize = 100;

pub fn usage(temp: &Path, samples: usize, table: &mut Table) {
    on_btrfs(temp, samples, table);
    on_overlay(temp, samples, table);
}

fn on_btrfs(temp: &Path, samples: usize, table: &mut Table) {
    let pool = Pool::new(temp, "usage");
    assert_eq!(pool.root().set_up_quotas().unwrap(), QuotaState::Enforced);
    let (from, _) = base(&pool, 57_000);
    let (provider, tree) = (pool.provider(), make(pool.provider(), from));
    assert_eq!(provider.set_quota(tree, Some(Quota::new(1 << 30).unwrap())).unwrap(), QuotaState::Enforced);
    let path = pool.path(tree);
    for n in 0..1000 {
        fs::write(path.join(format!("d{n}-of-the-agent")), vec![b'y'; 64 << 10]).unwrap();
    }
    fs::remove_dir_all(path.join("d569")).unwrap();
    pool.sync();
    let (mut counted, mut visited) = (Times::default(), Times::default());
    for n in 0..samples {
        let ours = || counted.time(|| _ = provider.usage(tree).unwrap());
        take_turns(n, ours, || visited.time(|| _ = provider.measure(tree).unwrap()));
    }
    table.head("Usage of a tree of 57,000 files where simple quotas count it, over a visit of every file");
    table.over("usage, 57,000 files, counted over visited", &counted, &visited, Some(0.05));
    let (ours, theirs) = (provider.usage(tree).unwrap(), provider.measure(tree).unwrap());
    assert_eq!(ours.logical_bytes, theirs.logical_bytes);
    let ratio = ours.exclusive_bytes as f64 / theirs.exclusive_bytes as f64;
    let words = format!("{} of {} bytes", ours.exclusive_bytes, theirs.exclusive_bytes);
    table.figure("exclusive bytes, counted over visited (within 5 %)", ratio, &words, &met((ratio - 1.0).abs() <= 0.05, "0.95x to 1.05x"));
}

/// Where an overlay's quota counts it, the counter costs nothing; the sizes of its files are the same on every kernel.
fn on_overlay(temp: &Path, samples: usize, table: &mut Table) {
    let disk = Disk::new(temp, "usage of overlays", FileSystem::Ext4);
    let provider = disk.provider(ProviderKind::Overlay);
    let (base, path) = disk.empty(ProviderKind::Overlay);
    fill_repository(&path, 57_000);
    provider.seal(base).unwrap();
    let tree = make(provider, base);
    let shown = disk.show(tree, false);
    for n in 0..1000 {
        fs::write(shown.join(format!("d{}/of-the-agent{n}", n / 10)), vec![b'y'; 64 << 10]).unwrap();
    }
    fs::remove_dir_all(shown.join("d569")).unwrap();
    disk.flush();
    let (mut counted, mut visited) = (Times::default(), Times::default());
    for n in 0..samples {
        let ours = || counted.time(|| _ = provider.usage(tree).unwrap());
        take_turns(n, ours, || visited.time(|| _ = provider.measure(tree).unwrap()));
    }
    table.head("Usage of an overlay of 57,000 files, over a visit of every file");
    table.over("overlay: usage, 57,000 files, over a visit", &counted, &visited, Some(0.05));
    assert_eq!(provider.usage(tree).unwrap(), provider.measure(tree).unwrap());
    disk.hide(tree);
}
