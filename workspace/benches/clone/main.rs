//! Compares making a workspace with the bare system calls, and the ways to a working tree with each other: `cargo bench -p yoi-workspace`,
//! or `cargo bench -p yoi-workspace --bench clone -- PART...` for some of [`PARTS`]; a number there replaces how often usage and the
//! ways are measured. Needs root. With `YOI_BENCH_OUT=FOLDER` the rows are also written to `workspace.json`, `providers.json`, `zfs.json` and
//! `providers-zfs.json` in that FOLDER.
//!
//! Our call and the bare call take turns on the same file system. Sizes that are compared with each other take turns, too, and so do
//! numbers, so that a busy moment hits all of them. Numbers are also measured one after the other, because a node has one data root.
#![expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "a program of its own: it is told where to write, and calls git")]

mod covers;
mod disk;
mod loop_disk;
mod many_trees;
mod overlays;
mod pool;
mod providers;
mod table;
mod usage;
mod zfs;

use std::fs::{self, File};
use std::path::Path;
use std::time::Instant;

use disk::{Pool, one_flushed_file, snapshot};
use loop_disk::uid;
use table::{Table, Times, met};
use yoi_workspace::{CloneAccess, Journal, Owner, Provider, ProviderKind, TreeOrigin, Uid};

const KIND: ProviderKind = ProviderKind::Btrfs;
const SAMPLES: usize = 150;
const SIZES: [usize; 3] = [1_500, 13_000, 57_000];
const THREADS: usize = 32;
const EACH: usize = 40;

const PARTS: [&str; 7] = ["snapshots", "overlays", "usage", "covers", "providers", "zfs", "providers-zfs"];

fn main() {
    if !rustix::process::geteuid().is_root() {
        println!("workspace: NOT RUN: needs root");
        return;
    }
    loop_disk::enter_mount_namespace();
    let temp = tempfile::tempdir().unwrap();
    let began = Instant::now();
    let words: Vec<String> = std::env::args().skip(1).collect();
    let named: Vec<_> = PARTS.into_iter().filter(|part| words.iter().any(|word| word == part)).collect();
    let samples = words.iter().find_map(|word| word.parse().ok());
    let wants = |part: &str| named.is_empty() || named.contains(&part);
    let (mut workspace, mut side_by_side) = (Table::default(), Table::default());
    let (mut datasets, mut with_zfs) = (Table::default(), Table::default());
    if wants("snapshots") {
        sizes(temp.path(), &mut workspace);
        many_trees::numbers(temp.path(), &mut workspace);
    }
    if wants("overlays") {
        overlays::overlays(temp.path(), &mut workspace);
    }
    if wants("usage") {
        usage::usage(temp.path(), samples.unwrap_or(usage::SAMPLES), &mut workspace);
    }
    if wants("covers") {
        covers::covers(temp.path(), samples.unwrap_or(covers::SAMPLES), &mut workspace);
    }
    if wants("providers") {
        providers::providers(temp.path(), samples, &mut side_by_side);
    }
    if wants("zfs") {
        zfs::measure(temp.path(), samples, &mut datasets);
    }
    if wants("providers-zfs") {
        providers::with_zfs(temp.path(), samples, &mut with_zfs);
    }
    println!("\n{:.0?} in all", began.elapsed());
    workspace.write("workspace");
    side_by_side.write("providers");
    datasets.write("zfs");
    with_zfs.write("providers-zfs");
}

/// Makes a sealed base with this number of small files, and opens its root for the bare call.
fn base(pool: &Pool, files: usize) -> (Uid, File) {
    let base = uid();
    let provider = pool.provider();
    provider.create_empty(base, Owner { uid: 0, gid: 0 }).unwrap();
    let path = pool.path(base);
    for n in 0..files {
        let dir = path.join(format!("d{}", n / 100));
        if n % 100 == 0 {
            fs::create_dir(&dir).unwrap();
        }
        fs::write(dir.join(format!("f{n}")), vec![b'x'; 200 + n * 37 % 4_000]).unwrap();
    }
    provider.seal(base).unwrap();
    (base, File::open(path).unwrap())
}

fn make(provider: &dyn Provider, from: Uid) -> Uid {
    let new = uid();
    provider.clone_tree(new, from, CloneAccess::ReadWrite).unwrap();
    new
}

/// Runs both, in alternating order, because the second finds the disk as the first has left it.
fn take_turns(n: usize, one: impl FnOnce(), other: impl FnOnce()) {
    if n.is_multiple_of(2) {
        one();
        other();
    } else {
        other();
        one();
    }
}

fn sizes(temp: &Path, table: &mut Table) {
    let pool = Pool::new(temp, "sizes");
    let provider = pool.provider();
    let bases: Vec<_> = SIZES.iter().map(|files| base(&pool, *files)).collect();
    let parent = pool.folder("bare");
    let mut times: Vec<_> = SIZES.iter().map(|_| (Times::default(), Times::default())).collect();
    for n in 0..SAMPLES {
        for k in 0..bases.len() {
            let at = (n + k) % bases.len();
            let ((from, root), (ours, bare)) = (&bases[at], &mut times[at]);
            take_turns(n, || ours.time(|| _ = make(provider, *from)), || bare.time(|| snapshot(root, &parent, &format!("{n}-{from}"))));
        }
    }
    table.head("TreeOrigin a workspace, by files in the tree (the Provider's verb alone)");
    for (files, (ours, bare)) in SIZES.iter().zip(&times) {
        table.over(&format!("verb over ioctl, {files} files"), ours, bare, Some(1.2));
    }
    let (small, big) = (&times[0], &times[2]);
    table.over("verb, 57,000 files over 1,500", &big.0, &small.0, Some(1.1));
    table.over("bare ioctl, 57,000 files over 1,500", &big.1, &small.1, None);

    journal(temp, table);
    rate(&pool, bases[0].0, &bases[0].1, table);
    group(&pool, bases[0].0, table);
    live_fork(&pool, bases[2].0, table);
}

/// The journal's share of making a workspace: the intent before, and the record after.
fn journal(temp: &Path, table: &mut Table) {
    let journal = Journal::open(&temp.join("journal")).unwrap();
    let dir = temp.join("bare-journal");
    fs::create_dir(&dir).unwrap();
    let handle = File::open(&dir).unwrap();
    let (mut intent, mut done, mut bare) = (Times::default(), Times::default(), Times::default());
    for _ in 0..SAMPLES {
        let new = uid();
        let origin = TreeOrigin::Clone { from: new, access: CloneAccess::ReadWrite };
        intent.time(|| _ = journal.begin_create(new, KIND, origin).unwrap());
        bare.time(|| one_flushed_file(&dir, &handle, &new.to_string()));
        done.time(|| journal.record_created(new).unwrap());
    }
    table.head("The journal, apart (on the disk of the kubelet's folder; a record is a file, flushed, renamed, its folder flushed)");
    table.over("journal: the intent, over the bare flushes", &intent, &bare, None);
    // The row is the record that the tree was made. Its name is published with earlier results, so it stays.
    table.over("journal: the word that it stands", &done, &bare, None);
}

fn rate(pool: &Pool, from: Uid, root: &File, table: &mut Table) {
    let provider = pool.provider();
    let (mut one_parent, mut ours) = (Vec::new(), Vec::new());
    for round in 0..3 {
        let parent = pool.folder(&format!("one-parent{round}"));
        one_parent.push(per_second(|n| snapshot(root, &parent, &n.to_string())));
        ours.push(per_second(|_| _ = make(provider, from)));
    }
    let middle = |rates: &mut Vec<f64>| {
        rates.sort_by(f64::total_cmp);
        rates[rates.len() / 2]
    };
    let (one_parent, ours) = (middle(&mut one_parent), middle(&mut ours));
    table.head(&format!("Rate with {THREADS} in flight"));
    let words = format!("{ours:.0}/s, one parent {one_parent:.0}/s, {:.1}x", ours / one_parent);
    table.figure(
        "rate, 32 in flight, over bare ioctl into one parent (at least 6x)",
        ours / one_parent,
        &words,
        &met(ours / one_parent >= 6.0, ">= 6x"),
    );
}

fn per_second(act: impl Fn(usize) + Sync) -> f64 {
    let act = &act;
    let began = Instant::now();
    std::thread::scope(|scope| {
        (0..THREADS).for_each(|t| drop(scope.spawn(move || (0..EACH).for_each(|n| act(t * EACH + n)))));
    });
    (THREADS * EACH) as f64 / began.elapsed().as_secs_f64()
}

/// What a commit after each clone would cost.
fn group(pool: &Pool, from: Uid, table: &mut Table) {
    let provider = pool.provider();
    let (mut plain, mut committed) = (Times::default(), Times::default());
    for n in 0..SAMPLES {
        take_turns(
            n,
            || plain.time(|| _ = make(provider, from)),
            || {
                committed.time(|| {
                    make(provider, from);
                    pool.sync();
                });
            },
        );
    }
    table.head("A commit of the file system after each clone (not done: see Durability in `Provider`)");
    table.over("verb and commit over verb", &committed, &plain, None);
}

fn live_fork(pool: &Pool, from: Uid, table: &mut Table) {
    let provider = pool.provider();
    let live = make(provider, from);
    let path = pool.path(live);
    for n in 0..200 {
        fs::write(path.join(format!("d{n}/f{}", n * 100)), vec![b'y'; 50_000]).unwrap();
    }
    pool.sync();
    let before = pool.used();
    let mut times = Times::default();
    let mut fork = live;
    times.time(|| fork = make(provider, live));
    pool.sync();
    let (disk, data) = (pool.used().saturating_sub(before), provider.measure(fork).unwrap().exclusive_bytes);
    table.head("Fork of a live tree of 57,000 files");
    let words = format!("{data} bytes of data, {disk} on disk");
    let most = data.max(disk) as f64;
    table.figure(
        "exclusive bytes of a fork, over 1 MiB (below 1x)",
        most / f64::from(1 << 20),
        &words,
        &met(most < f64::from(1 << 20), "< 1 MiB"),
    );
}
