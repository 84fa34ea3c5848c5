//! Change lists: what differs between a tree and its base.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use yoi_workspace::{Change, ChangeKind, ChangeLimits, CloneAccess, ErrorReason, NodeKind};

use crate::fixture::{Fixture, content};
use crate::lanes::{Lane, rounds};
use crate::syscall_faults::{Counted, Fault, run_with_fault};
use crate::{Case, Verdict};

pub const CASES: &[Case] = &[
    ("an_untouched_clone_has_no_changes", none),
    ("every_kind_of_change_is_listed_once", every),
    ("a_change_that_keeps_size_and_time_is_listed", hidden),
    ("a_clone_of_a_clone_is_compared_with_the_first_base", indirect),
    ("a_tree_that_began_empty_is_compared_with_nothing", from_nothing),
    ("a_fork_whose_parent_is_gone_is_compared_with_their_base", gone_parent),
    ("changes_since_a_live_tree_are_refused", live),
    ("on_btrfs_and_overlay_a_change_list_visits_only_what_changed", only_changed),
    ("a_folder_deeper_than_256_levels_is_named_and_what_is_in_it_is_left_out", deep),
    ("a_list_that_is_cut_holds_the_first_paths", cut),
    ("more_changed_paths_than_are_looked_up_one_by_one_are_listed_all_the_same", long_paths),
    ("a_comparison_ends_when_its_caller_no_longer_wants_it_or_its_time_is_over", cancelled),
    ("any_run_of_edits_is_listed_as_by_a_plain_comparison", any),
];

pub fn changes_of(fixture: &Fixture, uid: yoi_workspace::Uid, since: yoi_workspace::Uid) -> Vec<(ChangeKind, NodeKind, String)> {
    let changes = fixture.provider().changes(uid, since, &ChangeLimits::NONE).unwrap().changes;
    changes.into_iter().map(|Change { path, kind, node }| (kind, node, path.to_str().unwrap().to_owned())).collect()
}

fn none(fixture: &Fixture) -> Verdict {
    let (base, _) = fixture.base();
    let (clone, path) = fixture.clone_of(base);
    assert_eq!(changes_of(fixture, clone, base), []);
    content(&path);
    assert_eq!(changes_of(fixture, clone, base), []);
    Verdict::Ran
}

fn every(fixture: &Fixture) -> Verdict {
    use ChangeKind::{Added, Deleted, Modified};
    use NodeKind::{Dir, File, Symlink};
    let (base, _) = fixture.base();
    let (clone, path) = fixture.clone_of(base);
    fs::write(path.join("src/file1.rs"), "edited").unwrap();
    fs::remove_file(path.join("src/file4.rs")).unwrap();
    fs::rename(path.join("src/deep"), path.join("moved")).unwrap();
    fs::set_permissions(path.join("src/file5.rs"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(path.join("new")).unwrap();
    fs::write(path.join("new/file"), "x").unwrap();
    fs::remove_file(path.join("src/link.rs")).unwrap();
    std::os::unix::fs::symlink("file2.rs", path.join("src/link.rs")).unwrap();
    fs::remove_file(path.join("untracked.txt")).unwrap();
    fs::create_dir(path.join("untracked.txt")).unwrap();
    fs::remove_dir_all(path.join("target")).unwrap();
    let expected = [
        (Added, Dir, "moved"),
        (Added, Dir, "moved/er"),
        (Added, File, "moved/er/still.rs"),
        (Added, Dir, "new"),
        (Added, File, "new/file"),
        (Deleted, Dir, "src/deep"),
        (Deleted, Dir, "src/deep/er"),
        (Deleted, File, "src/deep/er/still.rs"),
        (Modified, File, "src/file1.rs"),
        (Deleted, File, "src/file4.rs"),
        (Modified, File, "src/file5.rs"),
        (Modified, Symlink, "src/link.rs"),
        (Deleted, Dir, "target"),
        (Deleted, File, "target/ignored.bin"),
        (Deleted, File, "untracked.txt"),
        (Added, Dir, "untracked.txt"),
    ];
    assert_eq!(changes_of(fixture, clone, base), expected.map(|(kind, node, path)| (kind, node, path.to_owned())));
    Verdict::Ran
}

/// Changes the content and keeps size and mtime, as `cp -p` can.
pub fn rewrite_quietly(path: &Path) {
    let before = fs::metadata(path).unwrap();
    let bytes: Vec<u8> = fs::read(path).unwrap().iter().map(|b| b ^ 1).collect();
    fs::write(path, bytes).unwrap();
    let times = fs::FileTimes::new().set_modified(before.modified().unwrap());
    fs::File::options().write(true).open(path).unwrap().set_times(times).unwrap();
}

fn from_nothing(fixture: &Fixture) -> Verdict {
    let (base, path) = fixture.base();
    let listed = fixture.provider().contents(base, &ChangeLimits::NONE).unwrap().changes;
    assert!(listed.iter().all(|c| c.kind == ChangeKind::Added));
    assert_eq!(listed.iter().map(|c| c.path.clone()).collect::<Vec<_>>(), content(&path).into_iter().map(|(p, ..)| p).collect::<Vec<_>>());
    Verdict::Ran
}

fn gone_parent(fixture: &Fixture) -> Verdict {
    if !fixture.forks_at_rest() {
        return Verdict::NotRun("forks sealed trees only");
    }
    let (base, _) = fixture.base();
    let (parent, path) = fixture.clone_of(base);
    fs::write(path.join("of-the-parent"), "x").unwrap();
    fixture.rest(parent);
    let (fork, path) = fixture.clone_of(parent);
    fs::write(path.join("of-the-fork"), "x").unwrap();
    fixture.provider().destroy(parent).unwrap();
    let added = |name: &str| (ChangeKind::Added, NodeKind::File, name.to_owned());
    assert_eq!(changes_of(fixture, fork, base), [added("of-the-fork"), added("of-the-parent")]);
    Verdict::Ran
}

fn hidden(fixture: &Fixture) -> Verdict {
    let (base, _) = fixture.base();
    let (clone, path) = fixture.clone_of(base);
    rewrite_quietly(&path.join("src/file7.rs"));
    assert_eq!(changes_of(fixture, clone, base), [(ChangeKind::Modified, NodeKind::File, "src/file7.rs".to_owned())]);
    Verdict::Ran
}

fn indirect(fixture: &Fixture) -> Verdict {
    let (base, _) = fixture.base();
    let (middle, path) = fixture.clone_of(base);
    rewrite_quietly(&path.join("src/file7.rs"));
    fixture.provider().seal(middle).unwrap();
    let (last, path) = fixture.clone_of(middle);
    fs::write(path.join("new"), "x").unwrap();
    let expected =
        [(ChangeKind::Added, NodeKind::File, "new".to_owned()), (ChangeKind::Modified, NodeKind::File, "src/file7.rs".to_owned())];
    assert_eq!(changes_of(fixture, last, base), expected);
    assert_eq!(changes_of(fixture, last, middle), expected[..1]);
    fixture.provider().destroy(middle).unwrap();
    assert_eq!(changes_of(fixture, last, base), expected);
    Verdict::Ran
}

fn live(fixture: &Fixture) -> Verdict {
    let (base, _) = fixture.base();
    let (clone, _) = fixture.clone_of(base);
    let refused = fixture.provider().changes(base, clone, &ChangeLimits::NONE).unwrap_err();
    assert_eq!(refused.reason(), ErrorReason::SourceNotSealed);
    if fixture.forks_live() {
        let checkpoint = fixture.uid();
        fixture.provider().clone_tree(checkpoint, clone, CloneAccess::ReadOnly).unwrap();
        assert_eq!(changes_of(fixture, clone, checkpoint), []);
        fs::write(fixture.path(clone).join("later"), "x").unwrap();
        assert_eq!(changes_of(fixture, clone, checkpoint), [(ChangeKind::Added, NodeKind::File, "later".to_owned())]);
    }
    Verdict::Ran
}

fn only_changed(fixture: &Fixture) -> Verdict {
    if !fixture.forks_at_rest() || fixture.lane == Lane::Zfs {
        return Verdict::NotRun("its change list visits every file");
    }
    let (base, path) = fixture.empty();
    for dir in 0..100 {
        fs::create_dir(path.join(format!("d{dir}"))).unwrap();
        (0..100).for_each(|n| fs::write(path.join(format!("d{dir}/f{n}")), "x").unwrap());
    }
    fixture.provider().seal(base).unwrap();
    let (clone, path) = fixture.clone_of(base);
    for n in 0..28 {
        fs::write(path.join(format!("d{n}/f{n}")), "changed").unwrap();
    }
    fixture.sync();
    // How many system calls on files it takes, which no load of the machine changes.
    let calls =
        |act: &(dyn Fn() + Sync)| run_with_fault(Counted::All, usize::MAX, Fault::Death, act).map(|run| (run.answer, run.operations));
    let (listed, visited) = (
        calls(&|| assert_eq!(changes_of(fixture, clone, base).len(), 28)),
        calls(&|| assert!(fixture.provider().measure(clone).unwrap().entries > 10_000)),
    );
    let (Ok((Some(()), listed)), Ok((Some(()), visited))) = (listed, visited) else {
        panic!("the list or the visit failed, or this kernel counts no system calls");
    };
    println!("    28 changes in 10,000 files: {listed} system calls; a visit of every file: {visited}");
    assert!(visited > 10_000 && listed * 10 < visited, "{listed} against {visited}");
    Verdict::Ran
}

/// Makes `levels` folders named `name`, each in the former one, and returns the innermost. Their path may be longer than a system call takes.
fn nest(at: &Path, name: &str, levels: usize) -> OwnedFd {
    let mut inner = rustix::fs::open(at, OFlags::DIRECTORY, Mode::empty()).unwrap();
    for _ in 0..levels {
        rustix::fs::mkdirat(&inner, name, Mode::RWXU).unwrap();
        inner = rustix::fs::openat(&inner, name, OFlags::DIRECTORY, Mode::empty()).unwrap();
    }
    inner
}

fn write_in(dir: &OwnedFd, name: &str) {
    rustix::fs::openat(dir, name, OFlags::CREATE | OFlags::WRONLY, Mode::RUSR).unwrap();
}

fn deep(fixture: &Fixture) -> Verdict {
    let (base, _) = fixture.base();
    let (clone, path) = fixture.clone_of(base);
    fs::write(path.join("beside"), "x").unwrap();
    let inner = nest(&path, "d", 300);
    write_in(&inner, "never-seen");
    let provider = fixture.provider();
    let mut left_out = 0;
    for list in [provider.changes(clone, base, &ChangeLimits::NONE).unwrap(), provider.contents(clone, &ChangeLimits::NONE).unwrap()] {
        assert!(!list.cut && list.changes.iter().any(|c| c.path == Path::new("beside")));
        assert!(!list.changes.iter().any(|c| c.path.ends_with("never-seen")));
        let [named] = &list.too_deep[..] else { panic!("{} folders are named", list.too_deep.len()) };
        assert_eq!(named.components().count(), 257);
        assert!(list.changes.iter().any(|c| c.path == *named), "the folder itself is listed");
        left_out += 1;
    }
    assert_eq!(left_out, 2);
    // An overlay with an open file is in use.
    drop(inner);
    provider.destroy(clone).unwrap();
    Verdict::Ran
}

fn cut(fixture: &Fixture) -> Verdict {
    let (base, _) = fixture.base();
    let (clone, path) = fixture.clone_of(base);
    for n in 0..100 {
        fs::write(path.join(format!("new{n:03}")), "x").unwrap();
    }
    fs::write(path.join("src/file1.rs"), "edited").unwrap();
    let provider = fixture.provider();
    let all = provider.changes(clone, base, &ChangeLimits::NONE).unwrap();
    assert_eq!((all.changes.len(), all.cut), (101, false));
    for (limits, expected) in [
        (ChangeLimits { paths: 40, ..ChangeLimits::NONE }, 40),
        (ChangeLimits { bytes: 6 * 20, ..ChangeLimits::NONE }, 20),
        (ChangeLimits { paths: 0, ..ChangeLimits::NONE }, 0),
    ] {
        let list = provider.changes(clone, base, &limits).unwrap();
        assert!(list.cut && list.changes == all.changes[..expected], "{} of {expected}", list.changes.len());
        let list = provider.contents(clone, &limits).unwrap();
        assert!(list.cut && list.changes.len() <= limits.paths);
    }
    Verdict::Ran
}

fn long_paths(fixture: &Fixture) -> Verdict {
    let (base, _) = fixture.base();
    let (clone, path) = fixture.clone_of(base);
    // 2,000 paths of more than 2.5 KB: Btrfs gives up to look each of them up and visits every file.
    let inner = nest(&path, &"d".repeat(250), 10);
    (0..2_000).for_each(|n| write_in(&inner, &format!("file{n}")));
    let list = fixture.provider().changes(clone, base, &ChangeLimits::NONE).unwrap();
    assert_eq!((list.changes.len(), list.cut), (2_010, false));
    Verdict::Ran
}

fn cancelled(fixture: &Fixture) -> Verdict {
    let (base, path) = fixture.empty();
    for n in 0..1_000 {
        fs::write(path.join(format!("f{n}")), "x").unwrap();
    }
    fixture.provider().seal(base).unwrap();
    let (clone, path) = fixture.clone_of(base);
    // So that each file is looked at.
    (0..1_000).for_each(|n| fs::set_permissions(path.join(format!("f{n}")), fs::Permissions::from_mode(0o600)).unwrap());
    let asked = Cell::new(0);
    let is_cancelled = || {
        asked.set(asked.get() + 1);
        asked.get() > 3
    };
    let limits = ChangeLimits { is_cancelled: &is_cancelled, ..ChangeLimits::NONE };
    for list in [fixture.provider().changes(clone, base, &limits), fixture.provider().contents(clone, &limits)] {
        assert_eq!(list.unwrap_err().reason(), ErrorReason::Cancelled);
    }
    assert_eq!(asked.get(), 5, "it goes on though nobody wants it");
    let late = ChangeLimits { is_late: &is_cancelled, ..ChangeLimits::NONE };
    asked.set(0);
    let list = fixture.provider().contents(clone, &late).unwrap();
    assert!(list.cut && (1..1_000).contains(&list.changes.len()), "what was found in time: {}", list.changes.len());
    let list = fixture.provider().changes(clone, base, &late).unwrap();
    assert!(list.cut && list.changes.len() < 1_000, "its time is over: {}", list.changes.len());
    assert_eq!(changes_of(fixture, clone, base).len(), 1_000);
    Verdict::Ran
}

/// A random number generator with a seed, so that a failure can be repeated.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % limit
    }

    fn pick(&mut self, root: &Path, dirs: bool) -> Option<PathBuf> {
        let all: Vec<_> = content(root).into_iter().map(|(p, ..)| p).filter(|p| !p.starts_with(".git")).collect();
        let right: Vec<_> = all.into_iter().filter(|p| fs::symlink_metadata(root.join(p)).unwrap().is_dir() == dirs).collect();
        (!right.is_empty()).then(|| root.join(&right[self.below(right.len())]))
    }
}

fn any(fixture: &Fixture) -> Verdict {
    let (base, source) = fixture.base();
    for seed in 0..rounds(40) as u64 {
        let mut random = Random(seed);
        let (clone, root) = fixture.clone_of(base);
        edit(&mut random, &root, 0);
        check_against_model(fixture, clone, base, &source, &root, seed);
        if fixture.forks_live() {
            let checkpoint = fixture.uid();
            fixture.provider().clone_tree(checkpoint, clone, CloneAccess::ReadOnly).unwrap();
            edit(&mut random, &root, 100);
            check_against_model(fixture, clone, checkpoint, &fixture.path(checkpoint), &root, seed);
            fixture.provider().destroy(checkpoint).unwrap();
        }
        fixture.provider().destroy(clone).unwrap();
    }
    Verdict::Ran
}

/// Up to eleven edits of all kinds.
pub fn edit(random: &mut Random, root: &Path, from: usize) {
    for n in from..from + random.below(12) {
        let (file, dir) = (random.pick(root, false), random.pick(root, true));
        let (Some(file), Some(dir)) = (file, dir) else { continue };
        let fresh = dir.join(format!("n{n}"));
        match random.below(9) {
            0 => fs::write(&fresh, "new").unwrap(),
            1 => fs::remove_file(file).unwrap(),
            2 => fs::rename(file, fresh).unwrap(),
            3 => fs::create_dir(fresh).unwrap(),
            4 => fs::remove_dir_all(dir).unwrap(),
            5 if !fresh.starts_with(&dir) || dir.parent() == Some(root) => fs::rename(&dir, root.join(format!("d{n}"))).unwrap(),
            5 => fs::write(&fresh, "").unwrap(),
            6 => fs::hard_link(file, fresh).unwrap(),
            7 if !file.is_symlink() => rewrite_quietly(&file),
            7 => fs::remove_file(file).unwrap(),
            _ => {
                // A new inode under an old name, as editors save.
                let text = fs::read(&file).unwrap_or_default();
                fs::write(&fresh, text.iter().rev().copied().collect::<Vec<u8>>()).unwrap();
                fs::rename(fresh, file).unwrap();
            }
        }
    }
}

pub fn check_against_model(fixture: &Fixture, clone: yoi_workspace::Uid, base: yoi_workspace::Uid, source: &Path, root: &Path, seed: u64) {
    let index = |at| content(at).into_iter().map(|(p, mode, bytes)| (p, (mode, bytes))).collect::<BTreeMap<_, _>>();
    let (old, new) = (index(source), index(root));
    let kind = |mode: u32| mode & 0o170000;
    let replaced = |p: &PathBuf| old.get(p).zip(new.get(p)).is_some_and(|(a, b)| kind(a.0) != kind(b.0));
    let gone: BTreeSet<_> = old.keys().filter(|p| !new.contains_key(*p) || replaced(p)).cloned().collect();
    let come: BTreeSet<_> = new.keys().filter(|p| !old.contains_key(*p) || replaced(p)).cloned().collect();
    let differs: BTreeSet<_> =
        new.iter().filter(|(p, now)| !replaced(p) && old.get(*p).is_some_and(|was| was != *now)).map(|(p, _)| p.clone()).collect();
    let listed = fixture.provider().changes(clone, base, &ChangeLimits::NONE).unwrap().changes;
    let of = |kind| listed.iter().filter(|c| c.kind == kind).map(|c| c.path.clone()).collect::<BTreeSet<_>>();
    assert_eq!(of(ChangeKind::Deleted), gone, "seed {seed}");
    assert_eq!(of(ChangeKind::Added), come, "seed {seed}");
    assert!(of(ChangeKind::Modified).is_superset(&differs), "seed {seed}: {:?} misses some of {differs:?}", of(ChangeKind::Modified));
    let sorted: BTreeSet<_> = listed.iter().map(|c| (c.path.clone(), c.kind)).collect();
    assert_eq!(sorted.len(), listed.len(), "seed {seed}: a change is listed twice");
}
