//! What differs between a tree and its base.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use yoi_workspace::{Change, ChangeKind, CloneAccess, ErrorReason, NodeKind, ProviderKind};

use crate::lab::{Lab, content};
use crate::{Case, Verdict};

pub const CASES: &[Case] = &[
    ("an_untouched_clone_has_no_changes", none),
    ("every_kind_of_change_is_told_once", every),
    ("a_change_that_hides_its_size_and_time_is_told", hidden),
    ("a_clone_of_a_clone_is_compared_with_the_first_base", indirect),
    ("a_tree_that_began_empty_is_told_from_nothing", from_nothing),
    ("a_fork_whose_parent_is_gone_is_compared_with_their_base", gone_parent),
    ("changes_since_a_live_tree_are_refused", live),
    ("on_btrfs_a_change_list_visits_only_what_changed", only_changed),
    ("any_run_of_edits_is_told_as_a_plain_comparison_tells_it", any),
];

fn told(lab: &Lab, uid: yoi_workspace::Uid, since: yoi_workspace::Uid) -> Vec<(ChangeKind, NodeKind, String)> {
    let changes = lab.provider().changes(uid, since).unwrap();
    changes.into_iter().map(|Change { path, kind, node }| (kind, node, path.to_str().unwrap().to_owned())).collect()
}

fn none(lab: &Lab) -> Verdict {
    let (base, _) = lab.base();
    let (clone, path) = lab.clone_of(base);
    assert_eq!(told(lab, clone, base), []);
    content(&path);
    assert_eq!(told(lab, clone, base), []);
    Verdict::Ran
}

fn every(lab: &Lab) -> Verdict {
    use ChangeKind::{Added, Deleted, Modified};
    use NodeKind::{Dir, File, Symlink};
    let (base, _) = lab.base();
    let (clone, path) = lab.clone_of(base);
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
    assert_eq!(told(lab, clone, base), expected.map(|(kind, node, path)| (kind, node, path.to_owned())));
    Verdict::Ran
}

/// Same length, and the mtime put back, as `cp -p` or a careless tool would.
fn rewrite_quietly(path: &Path) {
    let before = fs::metadata(path).unwrap();
    let bytes: Vec<u8> = fs::read(path).unwrap().iter().map(|b| b ^ 1).collect();
    fs::write(path, bytes).unwrap();
    let times = fs::FileTimes::new().set_modified(before.modified().unwrap());
    fs::File::options().write(true).open(path).unwrap().set_times(times).unwrap();
}

fn from_nothing(lab: &Lab) -> Verdict {
    let (base, path) = lab.base();
    let told = lab.provider().contents(base).unwrap();
    assert!(told.iter().all(|c| c.kind == ChangeKind::Added));
    assert_eq!(told.iter().map(|c| c.path.clone()).collect::<Vec<_>>(), content(&path).into_iter().map(|(p, ..)| p).collect::<Vec<_>>());
    Verdict::Ran
}

fn gone_parent(lab: &Lab) -> Verdict {
    if lab.kind() == ProviderKind::Copy {
        return Verdict::NotRun("copy forks no live tree");
    }
    let (base, _) = lab.base();
    let (parent, path) = lab.clone_of(base);
    fs::write(path.join("of-the-parent"), "x").unwrap();
    let (fork, path) = lab.clone_of(parent);
    fs::write(path.join("of-the-fork"), "x").unwrap();
    lab.provider().destroy(parent).unwrap();
    let added = |name: &str| (ChangeKind::Added, NodeKind::File, name.to_owned());
    assert_eq!(told(lab, fork, base), [added("of-the-fork"), added("of-the-parent")]);
    Verdict::Ran
}

fn hidden(lab: &Lab) -> Verdict {
    let (base, _) = lab.base();
    let (clone, path) = lab.clone_of(base);
    rewrite_quietly(&path.join("src/file7.rs"));
    assert_eq!(told(lab, clone, base), [(ChangeKind::Modified, NodeKind::File, "src/file7.rs".to_owned())]);
    Verdict::Ran
}

fn indirect(lab: &Lab) -> Verdict {
    let (base, _) = lab.base();
    let (middle, path) = lab.clone_of(base);
    rewrite_quietly(&path.join("src/file7.rs"));
    lab.provider().seal(middle).unwrap();
    let (last, path) = lab.clone_of(middle);
    fs::write(path.join("new"), "x").unwrap();
    let expected =
        [(ChangeKind::Added, NodeKind::File, "new".to_owned()), (ChangeKind::Modified, NodeKind::File, "src/file7.rs".to_owned())];
    assert_eq!(told(lab, last, base), expected);
    assert_eq!(told(lab, last, middle), expected[..1]);
    lab.provider().destroy(middle).unwrap();
    assert_eq!(told(lab, last, base), expected);
    Verdict::Ran
}

fn live(lab: &Lab) -> Verdict {
    let (base, _) = lab.base();
    let (clone, _) = lab.clone_of(base);
    let refused = lab.provider().changes(base, clone).unwrap_err();
    assert_eq!(refused.reason(), ErrorReason::SourceNotSealed);
    if lab.kind() == ProviderKind::Btrfs {
        let checkpoint = lab.uid();
        lab.provider().clone_tree(checkpoint, clone, CloneAccess::ReadOnly).unwrap();
        assert_eq!(told(lab, clone, checkpoint), []);
        fs::write(lab.path(clone).join("later"), "x").unwrap();
        assert_eq!(told(lab, clone, checkpoint), [(ChangeKind::Added, NodeKind::File, "later".to_owned())]);
    }
    Verdict::Ran
}

fn only_changed(lab: &Lab) -> Verdict {
    if lab.kind() == ProviderKind::Copy {
        return Verdict::NotRun("copy visits every file");
    }
    let (base, path) = lab.empty();
    for dir in 0..100 {
        fs::create_dir(path.join(format!("d{dir}"))).unwrap();
        (0..100).for_each(|n| fs::write(path.join(format!("d{dir}/f{n}")), "x").unwrap());
    }
    lab.provider().seal(base).unwrap();
    let (clone, path) = lab.clone_of(base);
    for n in 0..28 {
        fs::write(path.join(format!("d{n}/f{n}")), "changed").unwrap();
    }
    lab.sync();
    // The best of several, against a single visit of every file: a ratio, so that a busy machine does not matter.
    let time = |act: &dyn Fn()| {
        let once = || {
            let started = std::time::Instant::now();
            act();
            started.elapsed()
        };
        (0..5).map(|_| once()).min().unwrap()
    };
    let listed = time(&|| assert_eq!(told(lab, clone, base).len(), 28));
    let visited = time(&|| assert!(lab.provider().usage(clone).unwrap().entries > 10_000));
    println!("    28 changes in 10,000 files: {listed:.2?}; a visit of every file: {visited:.2?}");
    assert!(listed * 4 < visited, "{listed:?} against {visited:?}");
    Verdict::Ran
}

/// A small generator with a seed, so that a failure can be seen again.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % sides
    }

    fn pick(&mut self, root: &Path, dirs: bool) -> Option<PathBuf> {
        let all: Vec<_> = content(root).into_iter().map(|(p, ..)| p).filter(|p| !p.starts_with(".git")).collect();
        let right: Vec<_> = all.into_iter().filter(|p| fs::symlink_metadata(root.join(p)).unwrap().is_dir() == dirs).collect();
        (!right.is_empty()).then(|| root.join(&right[self.roll(right.len())]))
    }
}

fn any(lab: &Lab) -> Verdict {
    let (base, source) = lab.base();
    for seed in 0..40 {
        let mut dice = Dice(seed);
        let (clone, root) = lab.clone_of(base);
        edit(&mut dice, &root, 0);
        check_against_model(lab, clone, base, &source, &root, seed);
        if lab.kind() == ProviderKind::Btrfs {
            let checkpoint = lab.uid();
            lab.provider().clone_tree(checkpoint, clone, CloneAccess::ReadOnly).unwrap();
            edit(&mut dice, &root, 100);
            check_against_model(lab, clone, checkpoint, &lab.path(checkpoint), &root, seed);
            lab.provider().destroy(checkpoint).unwrap();
        }
        lab.provider().destroy(clone).unwrap();
    }
    Verdict::Ran
}

/// Up to eleven edits of all kinds.
fn edit(dice: &mut Dice, root: &Path, from: usize) {
    for n in from..from + dice.roll(12) {
        let (file, dir) = (dice.pick(root, false), dice.pick(root, true));
        let (Some(file), Some(dir)) = (file, dir) else { continue };
        let fresh = dir.join(format!("n{n}"));
        match dice.roll(9) {
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

fn check_against_model(lab: &Lab, clone: yoi_workspace::Uid, base: yoi_workspace::Uid, source: &Path, root: &Path, seed: u64) {
    let index = |at| content(at).into_iter().map(|(p, mode, bytes)| (p, (mode, bytes))).collect::<BTreeMap<_, _>>();
    let (old, new) = (index(source), index(root));
    let kind = |mode: u32| mode & 0o170000;
    let replaced = |p: &PathBuf| old.get(p).zip(new.get(p)).is_some_and(|(a, b)| kind(a.0) != kind(b.0));
    let gone: BTreeSet<_> = old.keys().filter(|p| !new.contains_key(*p) || replaced(p)).cloned().collect();
    let come: BTreeSet<_> = new.keys().filter(|p| !old.contains_key(*p) || replaced(p)).cloned().collect();
    let differs: BTreeSet<_> =
        new.iter().filter(|(p, now)| !replaced(p) && old.get(*p).is_some_and(|was| was != *now)).map(|(p, _)| p.clone()).collect();
    let told = lab.provider().changes(clone, base).unwrap();
    let of = |kind| told.iter().filter(|c| c.kind == kind).map(|c| c.path.clone()).collect::<BTreeSet<_>>();
    assert_eq!(of(ChangeKind::Deleted), gone, "seed {seed}");
    assert_eq!(of(ChangeKind::Added), come, "seed {seed}");
    assert!(of(ChangeKind::Modified).is_superset(&differs), "seed {seed}: {:?} misses some of {differs:?}", of(ChangeKind::Modified));
    let sorted: BTreeSet<_> = told.iter().map(|c| (c.path.clone(), c.kind)).collect();
    assert_eq!(sorted.len(), told.len(), "seed {seed}: a change is told twice");
}
