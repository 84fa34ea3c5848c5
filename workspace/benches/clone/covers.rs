//! A build in a tree from which paths are lent, beside one in a tree that is whole.

use std::fs;
use std::path::Path;

use yoi_workspace::mount::{Cover, Shown, TargetRoot, lay_covers, take_off_covers, unbind};

use super::disk::Pool;
use super::{Table, Times, base, make, take_turns};

pub const SAMPLES: usize = 12;
const FILES: usize = 57_000;
const COVERS: usize = 8;

pub fn covers(temp: &Path, samples: usize, table: &mut Table) {
    let pool = Pool::new(temp, "covers");
    let (from, _) = base(&pool, FILES);
    let folder = temp.join("published");
    fs::create_dir(&folder).unwrap();
    let root = TargetRoot::open(&folder).unwrap();
    for name in ["whole", "lent"] {
        pool.root().publish(make(pool.provider(), from), &root, Path::new(name), false).unwrap();
    }
    // Far from each other, and not what the build writes.
    let lent = |n: usize| format!("d{}", n * (FILES / 100 / COVERS));
    let cover = |n| Cover { path: lent(n).into(), shown: Shown::ReadOnly, shown_file: None, folders: None };
    lay_covers(&root, Path::new("lent"), false, &(0..COVERS).map(cover).collect::<Vec<_>>()).unwrap();
    assert!(fs::write(folder.join("lent/d0/more"), "").is_err(), "nothing is covered");
    // The first builds fill the caches, and do not count.
    let (mut ours, mut bare) = (Times::default(), Times::default());
    for n in 0..=samples {
        let (mut lent, mut whole) = (Times::default(), Times::default());
        take_turns(n, || lent.time(|| build(&folder.join("lent"))), || whole.time(|| build(&folder.join("whole"))));
        if n > 0 {
            ours.0.append(&mut lent.0);
            bare.0.append(&mut whole.0);
        }
    }
    table.head("A build in a tree of 57,000 files: each is looked at and read, and for every tenth one a file is written anew");
    table.over(&format!("build, {COVERS} covers over none"), &ours, &bare, Some(1.05));
    take_off_covers(&root, Path::new("lent")).unwrap();
    ["whole", "lent"].into_iter().for_each(|name| unbind(&root, Path::new(name)).unwrap());
}

/// What a compiler does to a tree, without the compiling.
fn build(tree: &Path) {
    let out = tree.join("out");
    _ = fs::remove_dir_all(&out);
    fs::create_dir(&out).unwrap();
    for n in 0..FILES {
        let source = tree.join(format!("d{}/f{n}", n / 100));
        let length = fs::metadata(&source).unwrap().len();
        let text = fs::read(&source).unwrap();
        assert_eq!(text.len() as u64, length);
        if n % 10 == 0 {
            fs::write(out.join(format!("o{n}")), &text).unwrap();
        }
    }
}
