//! TreeOrigin a workspace beside many others.

use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use yoi_workspace::Uid;

use crate::disk::{self, Pool, snapshot};
use crate::{SIZES, THREADS, Table, Times, base, make, take_turns};

const SAMPLES: usize = 100;
const NUMBERS: [usize; 4] = [1, 100, 1_000, 5_000];
/// Workspaces made between two calls of `clear`, of each kind.
const BATCH: usize = 20;

/// A data root with many workspaces of one base.
struct ManyTrees {
    pool: Pool,
    base: Uid,
    root: File,
    parent: File,
    made: Vec<(Uid, String)>,
}

impl ManyTrees {
    /// The base has 13,000 files, because the growth depends on the tree: with a base of 1,500 small files the bare ioctl took 7 times as long
    /// beside 5,000 snapshots. The cause is a guess: a snapshot adds a reference to every block that the root points to, hundreds of leaves in
    /// the small tree and few in the large one.
    fn make(temp: &Path, number: usize) -> ManyTrees {
        let pool = Pool::new(temp, &format!("many{number}"));
        let (base, root) = base(&pool, SIZES[1]);
        let next = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    while next.fetch_add(1, Ordering::Relaxed) < number as u64 {
                        make(pool.provider(), base);
                    }
                });
            }
        });
        pool.sync();
        let parent = pool.folder("bare");
        ManyTrees { pool, base, root, parent, made: vec![] }
    }

    fn sample(&mut self, n: usize, made: &mut Made) {
        let (mut new, name) = (self.base, n.to_string());
        let ManyTrees { pool, base, root, parent, .. } = self;
        take_turns(n, || made.ours.time(|| new = make(pool.provider(), *base)), || made.bare.time(|| snapshot(root, parent, &name)));
        self.made.push((new, name));
    }

    /// Destroys what the samples made, so that the number stays. Waits for the cleaner: the kernel cleans up a deleted snapshot in the background,
    /// and that work would slow down the next sample.
    fn clear(&mut self, made: &mut Made) {
        for (new, name) in self.made.drain(..) {
            made.gone.time(|| self.pool.provider().destroy(new).unwrap());
            disk::delete(&self.parent, &name);
        }
        disk::wait_for_the_cleaner(&self.parent);
    }
}

#[derive(Default)]
struct Made {
    ours: Times,
    bare: Times,
    gone: Times,
}

pub fn numbers(temp: &Path, table: &mut Table) {
    let mut data_roots: Vec<_> = NUMBERS.iter().map(|number| (ManyTrees::make(temp, *number), Made::default(), Made::default())).collect();
    // As on a node, which has one data root.
    for (data_root, alone, _) in &mut data_roots {
        for n in 0..SAMPLES {
            data_root.sample(n, alone);
            if n % BATCH == BATCH - 1 {
                data_root.clear(alone);
            }
        }
    }
    // In turns, so that a busy moment hits each number.
    for n in 0..SAMPLES {
        for k in 0..NUMBERS.len() {
            let (data_root, _, turns) = &mut data_roots[(n + k) % NUMBERS.len()];
            data_root.sample(n, turns);
        }
        if n % BATCH == BATCH - 1 {
            data_roots.iter_mut().for_each(|(data_root, _, turns)| data_root.clear(turns));
        }
    }
    table.head("TreeOrigin a workspace, by workspaces of the same base that are there");
    for (number, (_, alone, _)) in NUMBERS.iter().zip(&data_roots) {
        table.over(&format!("verb over ioctl, {number} there"), &alone.ours, &alone.bare, Some(1.2));
    }
    table.head("The same, four data roots in turn");
    for (number, (_, _, turns)) in NUMBERS.iter().zip(&data_roots) {
        table.over(&format!("verb over ioctl, {number} there, data roots in turn"), &turns.ours, &turns.bare, Some(1.2));
    }
    let (first, last) = (&data_roots[0].2, &data_roots[data_roots.len() - 1].2);
    table.over("verb, 5,000 there over 1, data roots in turn", &last.ours, &first.ours, Some(1.5));
    table.over("bare ioctl, 5,000 there over 1, data roots in turn", &last.bare, &first.bare, None);
    table.over("destroy, 5,000 there over 1, data roots in turn", &last.gone, &first.gone, None);
}
