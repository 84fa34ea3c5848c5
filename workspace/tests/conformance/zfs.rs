//! What only provider Zfs has: names, properties and dependents of datasets.

use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::mount::{MountFlags, UnmountFlags};
use yoi_test_support::wait_until;
use yoi_workspace::plan::select;
use yoi_workspace::{
    ChangeKind, CloneAccess, CommandFault, DataRoot, Error, ErrorReason, FaultPoint, Faults, NodeKind, PlantedFault, ProviderKind,
    ProviderRequest, Quota, QuotaState, RootOptions, Uid, ZfsOptions, mountinfo,
};

use crate::changes::{changes_of, rewrite_quietly};
use crate::fixture::{Fixture, current_owner, dataset_of, fill_repository, planted, read_in, write_in};
use crate::zfs_pool::{POOL, below, exists, sync, zfs};
use crate::{Case, Verdict};

pub const CASES: &[Case] = &[
    ("w2_a_clone_of_a_dataset_is_whole_and_light", w2),
    ("w9_a_child_dataset_is_refused_and_nothing_is_left", w9),
    ("w11_auto_takes_zfs_first_and_says_so", w11),
    ("w15_the_mount_table_decides_what_is_a_dataset", w15),
    ("w25_forks_of_a_tree_that_goes_keep_what_they_need_and_no_more", w25),
    ("w26_a_base_goes_before_a_sealed_fork_of_it", sealed_fork),
    ("a_change_in_one_second_with_a_snapshot_is_listed", in_one_second),
    ("w34_a_dataset_that_is_not_ours_is_refused_and_untouched", w34),
    ("w34_what_others_made_of_a_tree_keeps_it", w34_dependents),
    ("w32_what_an_earlier_attempt_left_of_a_dataset_is_no_part_of_the_next", leftovers),
    ("planted_a_dataset_destroyed_with_its_forks_is_found", dependents),
    ("planted_a_foreign_dataset_destroyed_is_found", foreign),
    ("w36_a_dataset_that_is_mounted_out_of_sight_is_busy", out_of_sight),
    ("w37_a_dataset_with_a_refquota_holds_it", refquota),
    ("w37_a_quota_below_what_is_used_follows_a_tree_that_becomes_smaller", smaller),
    ("a_change_list_of_a_clone_comes_from_zfs_diff", diff),
];

/// Makes the cases of this file run where trees are datasets.
macro_rules! only_zfs {
    ($fixture:expr) => {
        if $fixture.kind() != ProviderKind::Zfs {
            return Verdict::NotRun("about datasets");
        }
    };
}
pub(crate) use only_zfs;

/// The name of a tree's dataset.
pub fn dataset(fixture: &Fixture, uid: Uid) -> String {
    format!("{}/{uid}", dataset_of(&fixture.dir))
}

fn number(name: &str, property: &str) -> u64 {
    zfs(&["get", "-Hp", "-o", "value", property, name]).trim().parse().unwrap()
}

fn w2(fixture: &Fixture) -> Verdict {
    only_zfs!(fixture);
    let (base, path) = fixture.empty();
    fill_repository(&path);
    fs::write(path.join("large"), vec![7; 20 << 20]).unwrap();
    fixture.provider().seal(base).unwrap();
    let used = || {
        sync();
        number(POOL, "used")
    };
    let before = used();
    let (clone, path) = fixture.clone_of(base);
    assert_eq!(fs::metadata(path.join("large")).unwrap().len(), 20 << 20);
    let grown = used().saturating_sub(before);
    assert!(grown <= 1 << 20, "the pool grew by {grown} bytes");
    let usage = fixture.provider().usage(clone).unwrap();
    assert!(usage.logical_bytes > 20 << 20 && usage.exclusive_bytes <= 1 << 20, "{usage:?}");
    Verdict::Ran
}

fn w9(fixture: &Fixture) -> Verdict {
    only_zfs!(fixture);
    let (base, _) = fixture.empty();
    let child = format!("{}/child", dataset(fixture, base));
    zfs(&["create", "-o", "mountpoint=legacy", &child]);
    assert_eq!(fixture.provider().seal(base).unwrap_err().reason(), ErrorReason::NestedVolume);
    let error = fixture.provider().clone_tree(fixture.uid(), base, CloneAccess::ReadWrite).unwrap_err();
    assert!(matches!(error, Error::NestedVolume { from } if from == base), "{error}");
    fixture.assert_only(&[base]);
    // It inherits our properties, and is not ours all the same.
    assert_eq!(fixture.provider().destroy(base).unwrap_err().reason(), ErrorReason::Foreign);
    assert!(exists(&child));
    zfs(&["destroy", &child]);
    fixture.provider().destroy(base).unwrap();
    fixture.assert_only(&[]);
    assert_eq!(below(&dataset_of(&fixture.dir)), Vec::<String>::new());
    Verdict::Ran
}

fn w11(fixture: &Fixture) -> Verdict {
    only_zfs!(fixture);
    let offers = fixture.root.probe().unwrap().offers;
    let chosen = select(ProviderRequest::Auto, &offers).unwrap();
    assert_eq!(chosen.provider, ProviderKind::Zfs);
    assert_eq!(chosen.reason, format!("Zfs: instant snapshots in datasets below {}", dataset_of(&fixture.dir)));
    assert_eq!(select(ProviderRequest::Zfs, &offers).unwrap().provider, ProviderKind::Zfs);
    assert_eq!(below(&dataset_of(&fixture.dir)), Vec::<String>::new());
    Verdict::Ran
}

fn w15(fixture: &Fixture) -> Verdict {
    only_zfs!(fixture);
    let (uid, path) = fixture.empty();
    let table = mountinfo::read().unwrap();
    let real = table.iter().find(|m| m.mount_point == path).unwrap();
    assert_eq!(fixture.root.mounted_tree(real), Some(uid));
    let name = dataset(fixture, uid);
    for fs_type in ["zfs", "fuse.zfs"] {
        assert_eq!(fixture.root.mounted_tree(&mountinfo::Mount { fs_type: fs_type.into(), ..real.clone() }), Some(uid));
    }
    for fs_type in ["tmpfs", "fuse", "fuse.zfsish", "ext4"] {
        assert_eq!(fixture.root.mounted_tree(&mountinfo::Mount { fs_type: fs_type.into(), ..real.clone() }), None, "{fs_type}");
    }
    assert_eq!(fixture.root.mounted_tree(&mountinfo::Mount { root: "/src".into(), ..real.clone() }), None);
    // A folder with the name of a dataset, and another file system that calls itself so, are none.
    let outside = tempfile::tempdir().unwrap();
    let like = outside.path().join(&name);
    fs::create_dir_all(&like).unwrap();
    rustix::mount::mount(&*name, &like, "tmpfs", MountFlags::empty(), None).unwrap();
    assert_eq!(fixture.root.mounts_elsewhere().unwrap(), Vec::<std::path::PathBuf>::new());
    fixture.provider().destroy(uid).unwrap();
    rustix::mount::unmount(&like, UnmountFlags::empty()).unwrap();
    fixture.assert_only(&[]);
    Verdict::Ran
}

fn w25(fixture: &Fixture) -> Verdict {
    only_zfs!(fixture);
    let (base, path) = fixture.empty();
    fs::write(path.join("file"), vec![7; 4 << 20]).unwrap();
    fixture.provider().seal(base).unwrap();
    let forks: Vec<_> = (0..4).map(|_| fixture.clone_of(base).0).collect();
    let (_, changed) = fixture.clone_of(forks[1]);
    fs::write(changed.join("file"), "x").unwrap();
    fixture.provider().destroy(base).unwrap();
    assert!(!exists(&dataset(fixture, base)));
    for fork in &forks {
        assert_eq!(read_in(&fixture.root, *fork, "file").unwrap().len(), 4 << 20);
        write_in(&fixture.root, *fork, "mine", b"x");
    }
    // In any order, and forks of forks.
    let late = fixture.clone_of(forks[2]).0;
    for uid in [forks[3], forks[1], forks[0], forks[2]] {
        fixture.provider().destroy(uid).unwrap();
        assert_eq!(read_in(&fixture.root, late, "file").unwrap().len(), 4 << 20);
    }
    assert_eq!(fs::read_to_string(changed.join("file")).unwrap(), "x");
    for entry in fixture.root.inventory().unwrap().entries {
        fixture.provider().destroy(entry.uid).unwrap();
    }
    fixture.assert_only(&[]);
    assert_eq!(below(&dataset_of(&fixture.dir)), Vec::<String>::new(), "snapshots without a tree");
    Verdict::Ran
}

fn sealed_fork(fixture: &Fixture) -> Verdict {
    only_zfs!(fixture);
    let (base, _) = fixture.base();
    let (next, path) = fixture.clone_of(base);
    fs::write(path.join("file"), "of the next generation").unwrap();
    fixture.provider().seal(next).unwrap();
    let (fork, path) = fixture.clone_of(next);
    fixture.provider().destroy(base).unwrap();
    assert_eq!(fs::read_to_string(path.join("file")).unwrap(), "of the next generation");
    fixture.provider().destroy(next).unwrap();
    assert_eq!(fs::read_to_string(path.join("file")).unwrap(), "of the next generation");
    fixture.provider().destroy(fork).unwrap();
    fixture.assert_only(&[]);
    assert_eq!(below(&dataset_of(&fixture.dir)), Vec::<String>::new());
    Verdict::Ran
}

/// The clock of the kernel ticks.
fn in_one_second(fixture: &Fixture) -> Verdict {
    only_zfs!(fixture);
    let (base, _) = fixture.base();
    let ((tree, path), (sibling, beside)) = (fixture.clone_of(base), fixture.clone_of(base));
    let modified = |name: &str| vec![(ChangeKind::Modified, NodeKind::File, name.to_owned())];
    for round in 0..5 {
        rewrite_quietly(&path.join("src/file7.rs"));
        let (checkpoint, kept) = (fixture.uid(), fs::read(path.join("src/file7.rs")).unwrap());
        fixture.provider().clone_tree(checkpoint, tree, CloneAccess::ReadOnly).unwrap();
        assert_eq!(changes_of(fixture, tree, checkpoint), []);
        rewrite_quietly(&path.join("src/file7.rs"));
        assert_eq!(changes_of(fixture, tree, checkpoint), modified("src/file7.rs"), "round {round}");
        assert_eq!(read_in(&fixture.root, checkpoint, "src/file7.rs").map(String::into_bytes), Some(kept), "the snapshot has it");
    }
    // Neither began as the other: what both wrote at once, and in different words, is no common past.
    fs::write(beside.join("src/file8.rs"), "one").unwrap();
    fs::write(path.join("src/file8.rs"), "two").unwrap();
    let checkpoint = fixture.uid();
    fixture.provider().clone_tree(checkpoint, sibling, CloneAccess::ReadOnly).unwrap();
    assert!(changes_of(fixture, tree, checkpoint).ends_with(&modified("src/file8.rs")));
    Verdict::Ran
}

/// Makes a dataset that has the name of a tree and is not ours, with a file in it.
fn foreign_dataset(fixture: &Fixture, properties: &[String]) -> Uid {
    let uid = fixture.uid();
    let name = dataset(fixture, uid);
    let mut args = vec!["create", "-o", "mountpoint=legacy"];
    args.extend(properties.iter().flat_map(|property| ["-o", property]));
    args.push(&name);
    zfs(&args);
    uid
}

fn w34(fixture: &Fixture) -> Verdict {
    only_zfs!(fixture);
    let (base, _) = fixture.base();
    let root = fixture.root.name();
    let other_root = fixture.uid();
    for properties in [
        vec![],
        vec![format!("dev.yoi:root={root}")],
        vec![format!("dev.yoi:uid={base}"), format!("dev.yoi:root={root}")],
        vec!["dev.yoi:uid=UID".to_owned(), format!("dev.yoi:root={other_root}")],
    ] {
        let uid = foreign_dataset(fixture, &properties);
        let name = dataset(fixture, uid);
        if let Some(text) = properties.iter().find(|p| p.ends_with("UID")) {
            zfs(&["set", &text.replace("UID", &uid.to_string()), &name]);
        }
        for refused in [
            fixture.provider().create_empty(uid, current_owner()).err(),
            fixture.provider().clone_tree(uid, base, CloneAccess::ReadWrite).err(),
        ] {
            let refused = refused.unwrap();
            assert_eq!(refused.reason(), ErrorReason::Foreign, "{refused:?}");
        }
        // There is no entry, so there is nothing to destroy.
        fixture.provider().destroy(uid).unwrap();
        assert!(exists(&name), "{properties:?}");
        zfs(&["destroy", &name]);
    }
    fixture.assert_only(&[base]);
    // A dataset that lost its properties has an entry, and is not ours any more.
    let (clone, _) = fixture.clone_of(base);
    fixture.rest(clone);
    zfs(&["inherit", "dev.yoi:root", &dataset(fixture, clone)]);
    let refused = fixture.provider().destroy(clone).unwrap_err();
    assert_eq!(refused.reason(), ErrorReason::Foreign, "{refused:?}");
    assert!(exists(&dataset(fixture, clone)));
    Verdict::Ran
}

fn w34_dependents(fixture: &Fixture) -> Verdict {
    only_zfs!(fixture);
    let (base, _) = fixture.base();
    let snapshot = format!("{}@of-a-person", dataset(fixture, base));
    zfs(&["snapshot", &snapshot]);
    let refused = fixture.provider().destroy(base).unwrap_err();
    assert_eq!(refused.reason(), ErrorReason::Foreign, "{refused:?}");
    assert!(exists(&snapshot));
    zfs(&["destroy", &snapshot]);
    fixture.provider().destroy(base).unwrap();

    // A clone that somebody made of a snapshot of ours is never promoted, and never destroyed.
    let (base, _) = fixture.base();
    let (theirs, fork) = (format!("{POOL}/theirs-{base}"), fixture.clone_of(base).0);
    zfs(&["clone", "-o", "mountpoint=legacy", &format!("{}@{fork}", dataset(fixture, base)), &theirs]);
    fixture.provider().destroy(fork).unwrap();
    let refused = fixture.provider().destroy(base).unwrap_err();
    assert_eq!(refused.reason(), ErrorReason::DependentForks, "{refused:?}");
    assert!(exists(&theirs) && exists(&dataset(fixture, base)));
    zfs(&["destroy", &theirs]);
    fixture.provider().destroy(base).unwrap();
    fixture.assert_only(&[]);
    assert_eq!(below(&dataset_of(&fixture.dir)), Vec::<String>::new());
    Verdict::Ran
}

fn leftovers(fixture: &Fixture) -> Verdict {
    only_zfs!(fixture);
    let (base, path) = fixture.empty();
    fs::write(path.join("file"), "first").unwrap();
    let (uid, root) = (fixture.uid(), fixture.root.name());
    let ours = [format!("dev.yoi:uid={uid}"), format!("dev.yoi:root={root}")];
    let (name, snapshot) = (dataset(fixture, uid), format!("{}@{uid}", dataset(fixture, base)));
    let take = || zfs(&["snapshot", "-o", &ours[0], "-o", &ours[1], &snapshot]);
    let left: [(&str, &dyn Fn()); 3] = [
        ("a snapshot", &|| _ = take()),
        ("a snapshot and its clone", &|| {
            take();
            zfs(&["clone", "-o", "mountpoint=legacy", "-o", &ours[0], "-o", &ours[1], &snapshot, &name]);
        }),
        ("a dataset", &|| _ = zfs(&["create", "-o", "mountpoint=legacy", "-o", &ours[0], "-o", &ours[1], &name])),
    ];
    for (n, (what, make)) in left.iter().enumerate() {
        make();
        let text = format!("later {n}");
        fs::write(path.join("file"), &text).unwrap();
        fixture.provider().clone_tree(uid, base, CloneAccess::ReadWrite).unwrap();
        assert_eq!(read_in(&fixture.root, uid, "file"), Some(text), "after {what}");
        fixture.provider().destroy(uid).unwrap();
        assert!(!exists(&name) && !exists(&snapshot), "after {what}");
    }
    // Of the tree itself.
    zfs(&["create", "-o", "mountpoint=legacy", "-o", &ours[0], "-o", &ours[1], &name]);
    fixture.provider().create_empty(uid, current_owner()).unwrap();
    // What has the name of our snapshot and is not ours stays, and no entry is left.
    let second = fixture.uid();
    let theirs = format!("{}@{second}", dataset(fixture, base));
    zfs(&["snapshot", &theirs]);
    let refused = fixture.provider().clone_tree(second, base, CloneAccess::ReadWrite).unwrap_err();
    assert_eq!(refused.reason(), ErrorReason::Foreign, "{refused:?}");
    assert!(exists(&theirs));
    fixture.assert_only(&[base, uid]);
    Verdict::Ran
}

fn dependents(fixture: &Fixture) -> Verdict {
    only_zfs!(fixture);
    let (base, _) = fixture.base();
    let fork = fixture.uid();
    fixture.provider().clone_tree(fork, base, CloneAccess::ReadWrite).unwrap();
    let root = fixture.reopened(planted(PlantedFault::DependentsDestroyed));
    // What has not yet let go of the base makes it busy.
    let error = wait_until("the base takes its fork with it: else the harness detects nothing", || {
        _ = root.provider(ProviderKind::Zfs).unwrap().destroy(base);
        fixture.root.open_tree(fork).err()
    });
    println!("    found: a fork went with its parent: {error}: {}", std::error::Error::source(&error).unwrap());
    assert!(!exists(&dataset(fixture, fork)));
    Verdict::Ran
}

fn foreign(fixture: &Fixture) -> Verdict {
    only_zfs!(fixture);
    let uid = foreign_dataset(fixture, &[]);
    let name = dataset(fixture, uid);
    let root = fixture.reopened(planted(PlantedFault::ForeignDatasetDestroyed));
    _ = root.provider(ProviderKind::Zfs).unwrap().create_empty(uid, current_owner());
    let owner = zfs(&["get", "-Hp", "-o", "source", "dev.yoi:root", &name]);
    assert_eq!(owner.trim(), "local", "the harness detects nothing");
    println!("    found: {name} was not ours, and is gone: another stands in its place");
    Verdict::Ran
}

fn out_of_sight(fixture: &Fixture) -> Verdict {
    only_zfs!(fixture);
    let (base, _) = fixture.base();
    let uid = fixture.uid();
    fixture.provider().clone_tree(uid, base, CloneAccess::ReadWrite).unwrap();
    let mut options = ZfsOptions::new(dataset_of(&fixture.dir).parse().unwrap());
    options.deadline = Duration::from_secs(2);
    let root = DataRoot::open_with(&fixture.dir, RootOptions { zfs: Some(options), ..RootOptions::default() }).unwrap();
    // Attached nowhere, as it is in the mount namespace of a container that has not ended.
    let held = fixture.provider().open_for_mount(uid).unwrap();
    for _ in 0..2 {
        let refused = root.provider(ProviderKind::Zfs).unwrap().destroy(uid).unwrap_err();
        assert_eq!(refused.reason(), ErrorReason::Busy, "{refused:?}");
        assert!(exists(&dataset(fixture, uid)));
    }
    drop(held);
    fixture.provider().destroy(uid).unwrap();
    assert!(!exists(&dataset(fixture, uid)));
    fixture.assert_only(&[base]);
    Verdict::Ran
}

fn refquota(fixture: &Fixture) -> Verdict {
    only_zfs!(fixture);
    let (base, path) = fixture.empty();
    fs::write(path.join("shared"), vec![7; 2 << 20]).unwrap();
    fixture.provider().seal(base).unwrap();
    let ((clone, path), (_, sibling)) = (fixture.clone_of(base), fixture.clone_of(base));
    let set = |mib: Option<u64>| {
        let quota = mib.map(|mib| Quota::new(mib << 20).unwrap());
        assert_eq!(fixture.provider().set_quota(clone, quota).unwrap(), QuotaState::Enforced);
        assert_eq!(fixture.root.marker(clone).unwrap().quota, quota);
    };
    set(Some(10));
    // With room for metadata.
    assert_eq!(number(&dataset(fixture, clone), "refquota"), (10 << 20) + (512 << 10));
    let charged = fixture.provider().usage(clone).unwrap().charged_bytes.unwrap();
    assert!(((2 << 20)..(3 << 20)).contains(&charged), "{charged} bytes of a clone that shares 2 MiB");
    let fill = |at: &std::path::Path| -> (u64, Option<i32>) {
        use std::io::Write;
        let mut file = match fs::File::options().append(true).create(true).open(at) {
            Ok(file) => file,
            Err(error) => return (0, error.raw_os_error()),
        };
        for mib in 0..15u64 {
            if let Err(error) = file.write_all(&vec![9; 1 << 20]).and_then(|()| file.sync_all()) {
                return (mib << 20, error.raw_os_error());
            }
            sync();
        }
        (15 << 20, None)
    };
    let (written, error) = fill(&path.join("own"));
    // Shared blocks count: 2 MiB of the base are in the 10 MiB.
    assert!((7 << 20..=9 << 20).contains(&written), "{written} bytes");
    assert_eq!(error, Some(libc::EDQUOT));
    assert_eq!(fill(&sibling.join("own")), (15 << 20, None), "a sibling pays");
    set(Some(30));
    assert_eq!(fill(&path.join("more")), (15 << 20, None));
    // Below what is used: taken, and the next write fails.
    set(Some(1));
    assert_eq!(fill(&path.join("again")), (0, Some(libc::EDQUOT)));
    set(None);
    assert_eq!(number(&dataset(fixture, clone), "refquota"), 0);
    assert_eq!(fill(&path.join("again")).1, None);
    Verdict::Ran
}

fn smaller(fixture: &Fixture) -> Verdict {
    only_zfs!(fixture);
    let (uid, path) = fixture.empty();
    for name in ["a", "b"] {
        fs::write(path.join(name), vec![7; 5 << 20]).unwrap();
    }
    fixture.sync();
    fixture.provider().set_quota(uid, Some(Quota::new(2 << 20).unwrap())).unwrap();
    let limit = || number(&dataset(fixture, uid), "refquota");
    assert!(limit() > 9 << 20);
    let mut expected = 10u64 << 20;
    for name in ["a", "b"] {
        fs::remove_file(path.join(name)).unwrap();
        expected -= 5 << 20;
        // What was freed counts some transactions later.
        wait_until("the limit follows what is used", || {
            fixture.sync();
            // The shim asks for it at most once in 60 s.
            fixture.provider().usage(uid).unwrap();
            (limit() <= expected.max((2 << 20) + (512 << 10)) + (1 << 20)).then_some(())
        });
    }
    assert_eq!(limit(), (2 << 20) + (512 << 10));
    assert_eq!(fixture.root.marker(uid).unwrap().quota, Some(Quota::new(2 << 20).unwrap()));
    fs::write(path.join("again"), vec![7; 1 << 20]).unwrap();
    Verdict::Ran
}

/// Counts the calls of `zfs diff`, and makes them fail if asked.
#[derive(Default)]
struct Diffs {
    count: AtomicUsize,
    fail: AtomicBool,
}

impl Faults for Diffs {
    fn on_point(&self, _: FaultPoint) {}

    fn on_command(&self, args: &[&str]) -> CommandFault {
        match args[0] {
            "diff" => {
                self.count.fetch_add(1, Ordering::Relaxed);
                if self.fail.load(Ordering::Relaxed) { CommandFault::NotRun } else { CommandFault::None }
            }
            _ => CommandFault::None,
        }
    }
}

static DETOURS: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn diff(fixture: &Fixture) -> Verdict {
    only_zfs!(fixture);
    let diffs = Arc::new(Diffs::default());
    let mut options = ZfsOptions::new(dataset_of(&fixture.dir).parse().unwrap());
    options.on_detour = |text| DETOURS.lock().unwrap().push(text.to_owned());
    let faults: Arc<dyn Faults> = diffs.clone();
    let root = DataRoot::open_with(&fixture.dir, RootOptions { zfs: Some(options), faults, ..RootOptions::default() }).unwrap();
    let (base, path) = fixture.empty();
    fill_repository(&path);
    let strange = std::ffi::OsString::from_vec(b"a b\\c\n\xff\t\\0040".to_vec());
    fs::write(path.join(&strange), "one").unwrap();
    fixture.provider().seal(base).unwrap();
    let (tree, at) = fixture.clone_of(base);
    let list = || root.provider(ProviderKind::Zfs).unwrap().changes(tree, base, &yoi_workspace::ChangeLimits::NONE).unwrap().changes;
    // The list is that of a visit, and it is made by one diff.
    let check = |what: &str, expected: usize| {
        DETOURS.lock().unwrap().clear();
        diffs.count.store(0, Ordering::Relaxed);
        let found = list();
        assert_eq!(DETOURS.lock().unwrap().clone(), Vec::<String>::new(), "{what}");
        assert_eq!(diffs.count.load(Ordering::Relaxed), 1, "{what}");
        diffs.fail.store(true, Ordering::Relaxed);
        assert_eq!(list(), found, "{what}");
        diffs.fail.store(false, Ordering::Relaxed);
        let told = DETOURS.lock().unwrap().clone();
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told.iter().all(|text| text.starts_with("every file of ") && text.contains("list the changes")), "{told:?}");
        assert_eq!(found.len(), expected, "{what}: {found:?}");
    };
    check("nothing", 0);
    fs::write(at.join(&strange), "two").unwrap();
    fs::rename(at.join("src/deep"), at.join("moved")).unwrap();
    fs::remove_file(at.join("src/file4.rs")).unwrap();
    fs::write(at.join("new \u{e9}"), "x").unwrap();
    rewrite_quietly(&at.join("src/file7.rs"));
    check("edits", 4 + 6);
    fs::hard_link(at.join("src/file8.rs"), at.join("other-name")).unwrap();
    check("another name", 4 + 6 + 2);
    fs::write(at.join("other-name"), "by its other name").unwrap();
    check("a write by another name", 4 + 6 + 2);
    let open = fs::File::create(at.join("open")).unwrap();
    fs::remove_file(at.join("open")).unwrap();
    check("an open file without a name", 4 + 6 + 2);
    drop(open);
    Verdict::Ran
}
