//! What overlays promise beyond other trees: one mount for one upper layer, layers that are forked and listed whole.

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use yoi_workspace::mount::{BindOutcome, TargetRoot, unbind};
use yoi_workspace::{
    ChangeKind, ChangeLimits, CloneAccess, DataRoot, Error, ErrorReason, NodeKind, PlantedFault, Provider, ProviderKind, Uid, mountinfo,
};

use crate::changes::{Random, changes_of, check_against_model, edit};
use crate::fixture::{Fixture, content, planted, read_in, write_in};
use crate::{Case, Verdict};

pub const CASES: &[Case] = &[
    ("w19_an_upper_layer_is_mounted_once_whoever_asks", mounted_once),
    ("an_older_kernel_that_takes_layers_by_path_makes_the_same_overlays", by_path),
    ("planted_an_upper_layer_that_is_mounted_twice_is_found", mounted_twice),
    ("w19_an_overlay_that_is_mounted_out_of_sight_is_busy", out_of_sight),
    ("an_overlay_at_rest_stands_in_no_mount_table_and_takes_64_kib", at_rest),
    ("w18_an_overlay_keeps_its_writes_and_a_renamed_folder_over_a_restart", restarted),
    ("a_mount_is_known_by_its_file_system_and_not_by_its_path", known_mounts),
    ("w27_a_fork_of_an_overlay_at_rest_is_whole", forked),
    ("planted_a_whiteout_forgotten_in_a_fork_is_found", whiteout_forgotten),
    ("names_of_one_file_stay_one_file_in_overlays_lists_and_forks", hard_links),
    ("planted_an_index_tied_to_the_source_of_a_fork_is_found", index_tied),
    ("planted_a_redirect_that_a_change_list_ignores_is_found", redirect_ignored),
    ("planted_a_base_that_can_be_written_is_found", base_writable),
    ("an_overlay_whose_base_is_gone_or_another_one_is_lost_and_never_mounted", lost),
    ("a_folder_that_replaces_one_of_the_base_hides_what_was_in_it", opaque),
];

fn not_here(fixture: &Fixture) -> Option<Verdict> {
    (fixture.kind() != ProviderKind::Overlay).then_some(Verdict::NotRun("about overlays"))
}

macro_rules! overlays_only {
    ($fixture:ident) => {
        if let Some(verdict) = not_here($fixture) {
            return verdict;
        }
    };
}

fn clone_at_rest(fixture: &Fixture, from: Uid) -> Uid {
    let uid = fixture.uid();
    fixture.provider().clone_tree(uid, from, CloneAccess::ReadWrite).unwrap();
    uid
}

fn overlays(root: &DataRoot) -> &dyn Provider {
    root.provider(ProviderKind::Overlay).unwrap()
}

/// The super blocks of a tree that the kernel's mount table shows.
fn super_blocks(fixture: &Fixture, uid: Uid) -> BTreeSet<String> {
    let source = format!("yoi:{}:{uid}", fixture.root.name());
    mountinfo::read().unwrap().into_iter().filter(|m| m.source == Path::new(&source)).map(|m| m.device).collect()
}

/// Mounts a tree from three processes, and returns how many super blocks that took.
fn mount_thrice(fixture: &Fixture, uid: Uid, new_process: &dyn Fn() -> DataRoot) -> usize {
    let dir = fixture.dir.join("pods");
    fs::create_dir_all(&dir).unwrap();
    let targets = TargetRoot::open(&dir).unwrap();
    for n in 0..3 {
        let root = new_process();
        let target = PathBuf::from(format!("pod{n}"));
        assert_eq!(root.publish(uid, &targets, &target, false).unwrap(), BindOutcome::Mounted);
        fs::write(dir.join(&target).join(format!("of-{n}")), "x").unwrap();
    }
    let found = super_blocks(fixture, uid).len();
    (0..3).for_each(|n| unbind(&targets, &PathBuf::from(format!("pod{n}"))).unwrap());
    found
}

fn mounted_once(fixture: &Fixture) -> Verdict {
    overlays_only!(fixture);
    let (base, _) = fixture.base();
    let uid = clone_at_rest(fixture, base);
    assert_eq!(mount_thrice(fixture, uid, &|| DataRoot::open(&fixture.dir).unwrap()), 1);
    (0..3).for_each(|n| assert!(read_in(&fixture.root, uid, &format!("of-{n}")).is_some()));

    let dir = fixture.dir.join("pods");
    let targets = TargetRoot::open(&dir).unwrap();
    let publish = |name: &str, read_only| fixture.root.publish(uid, &targets, Path::new(name), read_only).unwrap();
    // The first is read-only, and the second can be written all the same.
    publish("reader", true);
    publish("writer", false);
    assert_eq!(fs::write(dir.join("reader/x"), "x").unwrap_err().kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    fs::write(dir.join("writer/x"), "x").unwrap();
    assert_eq!(publish("writer", false), BindOutcome::AlreadyMounted);
    assert!(dir.join("reader/x").exists() && super_blocks(fixture, uid).len() == 1);
    ["reader", "writer"].iter().for_each(|name| unbind(&targets, Path::new(name)).unwrap());
    Verdict::Ran
}

fn by_path(fixture: &Fixture) -> Verdict {
    overlays_only!(fixture);
    let (base, _) = fixture.base();
    let older = || fixture.reopened(planted(PlantedFault::LayersByPathOnly));
    let root = older();
    assert!(root.probe().unwrap().offers.iter().any(|o| o.provider == ProviderKind::Overlay && o.available));
    let uid = clone_at_rest(fixture, base);
    assert_eq!(mount_thrice(fixture, uid, &older), 1);
    assert_eq!(read_in(&root, uid, "of-2").as_deref(), Some("x"));
    // What was made by paths is found by descriptors, and the other way round.
    let held = overlays(&root).open_for_mount(uid).unwrap();
    assert_eq!(fixture.root.open_tree(uid).unwrap_err().reason(), ErrorReason::Busy);
    drop(held);
    assert_eq!(read_in(&fixture.root, uid, "of-2").as_deref(), Some("x"));
    for seed in 1000..1005 {
        assert_eq!(wrong_fork(fixture, &root, base, seed), None);
    }
    overlays(&root).destroy(uid).unwrap();
    Verdict::Ran
}

fn mounted_twice(fixture: &Fixture) -> Verdict {
    overlays_only!(fixture);
    let (base, _) = fixture.base();
    let uid = clone_at_rest(fixture, base);
    let found = mount_thrice(fixture, uid, &|| fixture.reopened(planted(PlantedFault::UpperMountedTwice)));
    assert!(found > 1, "the harness detects nothing");
    println!("    found: {found} super blocks have the upper layer of {uid}");
    Verdict::Ran
}

fn out_of_sight(fixture: &Fixture) -> Verdict {
    overlays_only!(fixture);
    let (base, _) = fixture.base();
    let uid = clone_at_rest(fixture, base);
    let other = DataRoot::open(&fixture.dir).unwrap();
    // Attached nowhere, as it is in the mount namespace of a container that has not ended.
    let held = overlays(&other).open_for_mount(uid).unwrap();
    assert_eq!(fixture.root.open_tree(uid).unwrap_err().reason(), ErrorReason::Busy);
    let refused = fixture.provider().destroy(uid).unwrap_err();
    assert!(matches!(&refused, Error::Busy { targets, .. } if targets.is_empty()), "{refused}");
    let refused = fixture.provider().clone_tree(fixture.uid(), uid, CloneAccess::ReadWrite).unwrap_err();
    assert_eq!(refused.reason(), ErrorReason::SourceNotSealed);
    // What the upper layer says can be read meanwhile.
    assert_eq!(changes_of(fixture, uid, base), []);
    fixture.provider().usage(uid).unwrap();
    drop(held);
    fixture.provider().destroy(uid).unwrap();
    fixture.assert_only(&[base]);
    Verdict::Ran
}

fn at_rest(fixture: &Fixture) -> Verdict {
    overlays_only!(fixture);
    let (base, _) = fixture.base();
    let lines = || mountinfo::read().unwrap().len();
    let before = lines();
    let trees: Vec<_> = (0..20).map(|_| clone_at_rest(fixture, base)).collect();
    for uid in &trees {
        let usage = fixture.provider().usage(*uid).unwrap();
        assert!(usage.logical_bytes > 3 << 20 && usage.exclusive_bytes == 0, "{usage:?}");
        fixture.provider().contents(*uid, &ChangeLimits::NONE).unwrap();
        fixture.root.open_tree(*uid).unwrap();
        // Folders of ours: the upper layer, the work folder, what the kernel makes in it.
        let on_disk: u64 = blocks(&fixture.entry(*uid));
        assert!(on_disk <= 64 << 10, "{on_disk} bytes");
    }
    assert_eq!(lines(), before);
    Verdict::Ran
}

fn blocks(at: &Path) -> u64 {
    let own = fs::symlink_metadata(at).unwrap();
    let below = if own.is_dir() { fs::read_dir(at).unwrap().map(|e| blocks(&e.unwrap().path())).sum() } else { 0 };
    own.blocks() * 512 + below
}

fn restarted(fixture: &Fixture) -> Verdict {
    overlays_only!(fixture);
    let (base, source) = fixture.base();
    let (uid, path) = fixture.clone_of(base);
    fs::write(path.join("mine"), "x").unwrap();
    fs::remove_file(path.join("src/file1.rs")).unwrap();
    fs::rename(path.join("src/deep"), path.join("moved")).unwrap();
    let before = content(&path);
    fixture.rest(uid);
    assert!(super_blocks(fixture, uid).is_empty());
    let root = DataRoot::open(&fixture.dir).unwrap();
    assert_eq!(read_in(&root, uid, "mine").as_deref(), Some("x"));
    assert_eq!(content(&fixture.path(uid)), before);
    assert!(source.join("src/file1.rs").exists());
    Verdict::Ran
}

fn known_mounts(fixture: &Fixture) -> Verdict {
    crate::fixture::needs_root!();
    let (base, _) = fixture.base();
    let clone = fixture.uid();
    fixture.provider().clone_tree(clone, base, CloneAccess::ReadWrite).unwrap();
    let pods = tempfile::tempdir().unwrap();
    let targets = TargetRoot::open(pods.path()).unwrap();
    let tree_at = |name: &str| {
        let at = pods.path().canonicalize().unwrap().join(name);
        mountinfo::read().unwrap().iter().find(|m| m.mount_point == at).map(|m| fixture.root.mounted_tree(m))
    };
    for (uid, name) in [(base, "base"), (clone, "clone")] {
        fixture.root.publish(uid, &targets, Path::new(name), false).unwrap();
        assert_eq!(tree_at(name), Some(Some(uid)), "{name}");
    }
    let held: BTreeSet<_> = fixture.root.mounts_elsewhere().unwrap().into_iter().filter(|at| at.starts_with(pods.path())).collect();
    assert_eq!(held.len(), 2, "{held:?}");
    // A folder with the path of a tree, on another file system.
    let lookalike = pods.path().join("trees").join(base.shard()).join(base.to_string()).join("tree");
    fs::create_dir_all(&lookalike).unwrap();
    fs::create_dir(pods.path().join("other")).unwrap();
    rustix::mount::mount_bind(&lookalike, pods.path().join("other")).unwrap();
    // A part of a tree is no tree.
    fs::create_dir(pods.path().join("part")).unwrap();
    rustix::mount::mount_bind(pods.path().join("clone/src"), pods.path().join("part")).unwrap();
    assert_eq!((tree_at("other"), tree_at("part")), (Some(None), Some(None)));
    ["other", "part", "base", "clone"].iter().for_each(|name| unbind(&targets, Path::new(name)).unwrap());
    Verdict::Ran
}

/// Forks an edited overlay, and the fork. Returns what is not as it was in the source.
fn wrong_fork(fixture: &Fixture, root: &DataRoot, base: Uid, seed: u64) -> Option<String> {
    let (parent, path) = fixture.clone_of(base);
    let mut random = Random(seed);
    edit(&mut random, &path, 0);
    let (wanted, list) = (content(&path), changes_of(fixture, parent, base));
    fixture.rest(parent);
    let (fork, again) = (fixture.uid(), fixture.uid());
    overlays(root).clone_tree(fork, parent, CloneAccess::ReadWrite).unwrap();
    let path = fixture.path(fork);
    if content(&path) != wanted {
        return Some(format!("seed {seed}: the fork shows other content than its source"));
    }
    assert_eq!(changes_of(fixture, fork, base), list, "seed {seed}");
    edit(&mut random, &path, 100);
    let later = content(&path);
    fixture.provider().seal(fork).unwrap();
    overlays(root).clone_tree(again, fork, CloneAccess::ReadWrite).unwrap();
    fixture.provider().destroy(parent).unwrap();
    if content(&fixture.path(again)) != later {
        return Some(format!("seed {seed}: the fork of the fork shows other content than its source"));
    }
    check_against_model(fixture, again, base, &fixture.path(base), &fixture.path(again), seed);
    check_against_model(fixture, again, fork, &fixture.path(fork), &fixture.path(again), seed);
    for uid in [fork, again] {
        fixture.provider().destroy(uid).unwrap();
    }
    None
}

fn forked(fixture: &Fixture) -> Verdict {
    overlays_only!(fixture);
    let (base, _) = fixture.base();
    for seed in 1000..1030 {
        assert_eq!(wrong_fork(fixture, &fixture.root, base, seed), None);
    }
    fixture.assert_only(&[base]);
    Verdict::Ran
}

fn whiteout_forgotten(fixture: &Fixture) -> Verdict {
    overlays_only!(fixture);
    let (base, _) = fixture.base();
    let root = fixture.reopened(planted(PlantedFault::WhiteoutForgotten));
    let found = (1000..1030).find_map(|seed| wrong_fork(fixture, &root, base, seed));
    println!("    found: {}", found.expect("the harness detects nothing"));
    Verdict::Ran
}

/// Makes a base in which one file has three names, and writes to one of them in a clone.
fn linked(fixture: &Fixture) -> (Uid, Uid) {
    let (base, path) = fixture.empty();
    fs::create_dir_all(path.join("dir/sub")).unwrap();
    fs::create_dir(path.join("moved")).unwrap();
    fs::write(path.join("dir/one"), "old").unwrap();
    for name in ["two", "dir/sub/three", "moved/four"] {
        fs::hard_link(path.join("dir/one"), path.join(name)).unwrap();
    }
    fixture.provider().seal(base).unwrap();
    let uid = clone_at_rest(fixture, base);
    write_in(&fixture.root, uid, "two", b"new");
    (base, uid)
}

fn hard_links(fixture: &Fixture) -> Verdict {
    let (base, uid) = linked(fixture);
    let names = ["dir/one", "dir/sub/three", "moved/four", "two"];
    let all_show = |uid, text: &str| names.map(|name| assert_eq!(read_in(&fixture.root, uid, name).as_deref(), Some(text), "{name}"));
    all_show(uid, "new");
    all_show(base, "old");
    let modified = |name: &str| (ChangeKind::Modified, NodeKind::File, name.to_owned());
    assert_eq!(changes_of(fixture, uid, base), names.map(modified));
    // A name that moved, and one that is gone.
    let path = fixture.path(uid);
    fs::rename(path.join("moved"), path.join("elsewhere")).unwrap();
    fs::remove_file(path.join("dir/one")).unwrap();
    let expected = [
        (ChangeKind::Deleted, NodeKind::File, "dir/one".to_owned()),
        modified("dir/sub/three"),
        (ChangeKind::Added, NodeKind::Dir, "elsewhere".to_owned()),
        (ChangeKind::Added, NodeKind::File, "elsewhere/four".to_owned()),
        (ChangeKind::Deleted, NodeKind::Dir, "moved".to_owned()),
        (ChangeKind::Deleted, NodeKind::File, "moved/four".to_owned()),
        modified("two"),
    ];
    assert_eq!(changes_of(fixture, uid, base), expected);
    fixture.rest(uid);
    fixture.provider().seal(uid).unwrap();
    let (fork, path) = fixture.clone_of(uid);
    assert_eq!(changes_of(fixture, fork, base), expected);
    assert_eq!(changes_of(fixture, fork, uid), []);
    fs::write(path.join("dir/sub/three"), "of the fork").unwrap();
    for (name, links) in [("dir/sub/three", 3), ("elsewhere/four", 3), ("two", 3)] {
        assert_eq!(fs::read_to_string(path.join(name)).unwrap(), "of the fork", "{name}");
        assert_eq!(fs::metadata(path.join(name)).unwrap().nlink(), links, "{name}");
        assert_eq!(read_in(&fixture.root, uid, name).as_deref(), Some("new"), "{name}");
    }
    Verdict::Ran
}

fn index_tied(fixture: &Fixture) -> Verdict {
    overlays_only!(fixture);
    let (_, uid) = linked(fixture);
    let root = fixture.reopened(planted(PlantedFault::IndexTiedToItsSource));
    let fork = fixture.uid();
    overlays(&root).clone_tree(fork, uid, CloneAccess::ReadWrite).unwrap();
    match fixture.root.open_tree(fork) {
        Err(refused) => {
            assert_eq!(refused.reason(), ErrorReason::TreeLost, "{refused:?}");
            println!("    found: {refused}");
        }
        Ok(_) => {
            assert_eq!(read_in(&fixture.root, fork, "dir/one").as_deref(), Some("old"), "the harness detects nothing");
            println!("    found: a name of a file shows what was in it before");
        }
    }
    Verdict::Ran
}

fn redirect_ignored(fixture: &Fixture) -> Verdict {
    overlays_only!(fixture);
    let (base, _) = fixture.base();
    let (uid, path) = fixture.clone_of(base);
    fs::rename(path.join("src/deep"), path.join("moved")).unwrap();
    let listed = |root: &DataRoot| overlays(root).changes(uid, base, &ChangeLimits::NONE).unwrap().changes;
    let right = listed(&fixture.root);
    assert!(right.iter().any(|c| c.kind == ChangeKind::Added && c.path == Path::new("moved/er/still.rs")));
    let wrong = listed(&fixture.reopened(planted(PlantedFault::RedirectIgnored)));
    assert_ne!(wrong, right, "the harness detects nothing");
    println!("    found: {} of {} changes are listed", wrong.len(), right.len());
    Verdict::Ran
}

fn base_writable(fixture: &Fixture) -> Verdict {
    overlays_only!(fixture);
    let (base, _) = fixture.base();
    let root = fixture.reopened(planted(PlantedFault::LowerWritable));
    let tree = root.open_tree(base).unwrap();
    fs::write(format!("/proc/self/fd/{}/late", tree.as_raw_fd()), "x").expect("the harness detects nothing");
    println!("    found: a file was written to the sealed base {base}");
    Verdict::Ran
}

fn lost(fixture: &Fixture) -> Verdict {
    overlays_only!(fixture);
    let (base, path) = fixture.base();
    let uid = clone_at_rest(fixture, base);
    write_in(&fixture.root, uid, "mine", b"x");
    let targets = TargetRoot::open(&fixture.dir).unwrap();
    let refused = |why: &str| {
        let root = DataRoot::open(&fixture.dir).unwrap();
        let error = root.open_tree(uid).unwrap_err();
        assert!(matches!(error, Error::LowerLost { lower, .. } if lower == base), "{why}: {error:?}");
        assert_eq!(error.reason(), ErrorReason::TreeLost);
        assert!(root.publish(uid, &targets, Path::new("target"), false).is_err());
        assert!(super_blocks(fixture, uid).is_empty(), "{why}");
        assert!(matches!(overlays(&root).clone_tree(fixture.uid(), uid, CloneAccess::ReadWrite), Err(Error::LowerLost { .. })));
    };
    // Another folder in its place, with the same names in it.
    fs::rename(&path, path.with_file_name("aside")).unwrap();
    fs::create_dir(&path).unwrap();
    fs::write(path.join("mine"), "of another tree").unwrap();
    refused("another base");
    fs::remove_dir_all(&path).unwrap();
    fs::rename(path.with_file_name("aside"), &path).unwrap();
    assert_eq!(read_in(&fixture.root, uid, "mine").as_deref(), Some("x"));

    let entry = fixture.entry(base);
    fs::rename(&entry, fixture.dir.join("aside")).unwrap();
    refused("no base");
    fixture.provider().destroy(uid).unwrap();
    fs::rename(fixture.dir.join("aside"), &entry).unwrap();
    fixture.assert_only(&[base]);
    Verdict::Ran
}

fn opaque(fixture: &Fixture) -> Verdict {
    let (base, _) = fixture.base();
    let (uid, path) = fixture.clone_of(base);
    fs::remove_dir_all(path.join("src/deep")).unwrap();
    fs::create_dir_all(path.join("src/deep/er")).unwrap();
    fs::write(path.join("src/deep/er/fresh.rs"), "x").unwrap();
    let expected = [
        (ChangeKind::Added, NodeKind::File, "src/deep/er/fresh.rs".to_owned()),
        (ChangeKind::Deleted, NodeKind::File, "src/deep/er/still.rs".to_owned()),
    ];
    assert_eq!(changes_of(fixture, uid, base), expected);
    fixture.rest(uid);
    fixture.provider().seal(uid).unwrap();
    let (fork, path) = fixture.clone_of(uid);
    assert_eq!(changes_of(fixture, fork, base), expected);
    assert!(!path.join("src/deep/er/still.rs").exists());
    Verdict::Ran
}
