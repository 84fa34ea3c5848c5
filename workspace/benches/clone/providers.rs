//! Every way to a working tree of a repository of 57,000 files, side by side.
//!
//! All ways take turns, so that a busy moment hits each of them. Each way makes a tree that is on the disk when it is made: what the other
//! programs leave in memory is flushed, and that counts.

mod tree;
mod ways;

use std::os::fd::AsFd as _;
use std::path::Path;

use yoi_workspace::{ChangeLimits, ProviderKind, read_ahead};

use self::tree::{Disks, Made};
pub use self::tree::{agents_status, read_only_status};
use self::ways::Way;
use crate::pool::kernel_has_zfs;
use crate::table::{Table, Times, median, met};

const FILES: usize = 57_000;
/// In an emulator, whose processes and system calls take many times as long, and whose disks are in memory.
const FILES_IN_GUEST: usize = 5_000;
const ROUNDS_IN_GUEST: usize = 3;
const ROUNDS: usize = 5;
/// Of what takes less than a second.
const SAMPLES: usize = 100;
const CHANGED: usize = 28;

/// `samples` replaces how often everything is measured.
pub fn providers(temp: &Path, samples: Option<usize>, table: &mut Table) {
    let disks = Disks::new(temp, &Way::here(), FILES);
    reflink_and_copy(&side_by_side(&disks, samples.unwrap_or(ROUNDS), table), table);
    first_status(&disks, samples.unwrap_or(SAMPLES), table);
    change_lists(&disks, samples.unwrap_or(SAMPLES), table);
}

/// The table alone, with fewer files, where the kernel has ZFS beside all the others.
pub fn with_zfs(temp: &Path, samples: Option<usize>, table: &mut Table) {
    if !kernel_has_zfs() {
        println!("\nways with ZFS: NOT RUN: need a kernel with ZFS; `cargo xtask bench providers-zfs` has one");
        return;
    }
    let disks = Disks::new(temp, &Way::here(), FILES_IN_GUEST);
    side_by_side(&disks, samples.unwrap_or(ROUNDS_IN_GUEST), table);
}

/// What one way took.
#[derive(Default)]
struct Taken {
    create: Times,
    status: Times,
    /// `git status` in the base, which has been read before.
    warm_status: Times,
    build: Times,
    destroy: Times,
    kib_on_disk: Vec<f64>,
    /// The highest share of a tree that it shares with no other; 0 of a way that is not asked.
    exclusive_part: f64,
}

/// Adds a cell for each way and thing that is measured.
fn side_by_side(disks: &Disks, rounds: usize, table: &mut Table) -> Vec<(Way, Taken)> {
    let mut taken: Vec<(Way, Taken)> = Way::here().into_iter().map(|way| (way, Taken::default())).collect();
    for n in 0..rounds {
        for k in 0..taken.len() {
            let at = (n + k) % taken.len();
            let (way, times) = &mut taken[at];
            let site = disks.of(*way);
            let used = site.disk.used();
            let mut made = None;
            times.create.time(|| made = Some(Made::make(site, *way)));
            let made = made.unwrap();
            times.kib_on_disk.push(site.disk.used().saturating_sub(used) as f64 / 1024.0);
            if *way == Way::Reflink {
                times.exclusive_part = times.exclusive_part.max(made.exclusive_part(site));
            }
            times.warm_status.time(|| tree::read_only_status(&site.base));
            let status = if way.provider().is_some() { tree::agents_status } else { tree::status };
            times.status.time(|| status(&made.path));
            times.build.time(|| tree::build(&made.path));
            times.destroy.time(|| made.destroy(site));
            println!("round {}: {}", n + 1, way.name());
        }
    }
    println!("\n{:<28} {:>10} {:>13} {:>12} {:>10} {:>12}", "p50, ms", "create", "first status", "first build", "destroy", "KiB on disk");
    for (way, times) in &taken {
        let name = way.name();
        for (what, times) in
            [("create", &times.create), ("first status", &times.status), ("first build", &times.build), ("destroy", &times.destroy)]
        {
            table.cell(name, what, "ms", &times.millis());
        }
        table.cell(name, "on disk", "KiB", &times.kib_on_disk);
        let ms = |times: &Times| times.p50() / 1e3;
        let (create, status, build, destroy) = (ms(&times.create), ms(&times.status), ms(&times.build), ms(&times.destroy));
        println!("{name:<28} {create:>10.1} {status:>13.1} {build:>12.1} {destroy:>10.1} {:>12.0}", median(&times.kib_on_disk));
    }
    taken
}

fn reflink_and_copy(taken: &[(Way, Taken)], table: &mut Table) {
    let of = |way: Way| &taken.iter().find(|(other, _)| *other == way).unwrap().1;
    let exclusive = of(Way::Reflink).exclusive_part;
    table.head("Reflink and copy, a tree of 57,000 files");
    table.over("reflink: make, over cp -a --reflink=always and a flush", &of(Way::Reflink).create, &of(Way::CpReflink).create, Some(1.0));
    table.figure(
        "reflink: exclusive over logical bytes (at most 0.01x)",
        exclusive,
        &format!("{:.2} %", exclusive * 100.0),
        &met(exclusive <= 0.01, "<= 1 %"),
    );
    for way in [Way::Reflink, Way::Copy] {
        let name = format!("{}: first git status over warm in the base", way.name());
        table.over(&name, &of(way).status, &of(way).warm_status, Some(2.0));
    }
}

/// What [`first_status`] takes.
#[derive(Default)]
struct FirstStatus {
    /// The node's reading of a new tree, which an agent does not wait for.
    read_ahead: Times,
    first: Times,
    second: Times,
    /// The first in a tree that nobody has read.
    without: Times,
    /// In the base, which has been read before.
    warm: Times,
}

fn first_status(disks: &Disks, samples: usize, table: &mut Table) {
    let mut taken = [Way::Btrfs, Way::Overlay].map(|way| (way, FirstStatus::default()));
    for _ in 0..samples {
        for (way, times) in &mut taken {
            let site = disks.of(*way);
            let made = Made::make(site, *way);
            times.warm.time(|| tree::read_only_status(&site.base));
            // As the mounter does once the tree is mounted, while the Pod starts.
            let root = std::fs::File::open(&made.path).unwrap();
            times.read_ahead.time(|| assert!(read_ahead(root.as_fd(), usize::MAX, &|| false) > FILES));
            drop(root);
            times.first.time(|| tree::agents_status(&made.path));
            times.second.time(|| tree::agents_status(&made.path));
            made.destroy(site);
            let made = Made::make(site, *way);
            times.without.time(|| tree::agents_status(&made.path));
            made.destroy(site);
        }
    }
    table.head("The first git status in a new tree of 57,000 files");
    for (way, times) in &taken {
        let name = way.name();
        let FirstStatus { read_ahead, first, second, without, warm } = times;
        table.over(&format!("{name}: first git status after the node's read-ahead, over warm in the base"), first, warm, Some(1.3));
        table.over(&format!("{name}: first git status over warm in the base"), without, warm, None);
        table.over(&format!("{name}: the node's read-ahead of a new tree, over that git status"), read_ahead, without, None);
        table.over(&format!("{name}: second git status over warm in the base"), second, warm, None);
    }
}

fn change_lists(disks: &Disks, samples: usize, table: &mut Table) {
    let mut taken = [(Way::Btrfs, ProviderKind::Btrfs), (Way::Overlay, ProviderKind::Overlay)].map(|(way, kind)| {
        let site = disks.of(way);
        (way, kind, Made::make(site, way), Times::default(), Times::default())
    });
    for (.., made, _, _) in &taken {
        for n in 0..CHANGED {
            std::fs::write(made.path.join(format!("d{n}/f{}", n * 100)), "changed").unwrap();
        }
        tree::read_only_status(&made.path);
    }
    for _ in 0..samples {
        for (way, kind, made, ours, status) in &mut taken {
            let site = disks.of(*way);
            let (provider, uid) = (site.disk.provider(*kind), made.uid.unwrap());
            ours.time(|| assert_eq!(provider.changes(uid, site.base_uid, &ChangeLimits::NONE).unwrap().changes.len(), CHANGED));
            status.time(|| tree::read_only_status(&made.path));
        }
    }
    table.head("The change list of 28 changes in 57,000 files");
    for (way, _, made, ours, status) in taken {
        table.over(&format!("{}: change list over git status", way.name()), &ours, &status, Some(0.1));
        made.destroy(disks.of(way));
    }
}
