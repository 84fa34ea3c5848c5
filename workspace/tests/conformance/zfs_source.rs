//! Folders of the host that are in datasets: which dataset they are in, and where, and what is made of them.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use yoi_workspace::mount::{TargetRoot, unbind};
use yoi_workspace::{
    CaptureMethod, ChangeKind, CloneAccess, DataRoot, DatasetFolder, Error, ErrorReason, ProviderKind, Quota, QuotaState, RootOptions, Uid,
    ZfsOptions, mountinfo,
};

use crate::changes::changes_of;
use crate::failing_commands::{FailingCommands, Failure};
use crate::fixture::{Fixture, content, dataset_of, fill_repository, read_in, run, unmount_below};
use crate::host;
use crate::zfs::only_zfs;
use crate::zfs_pool::{POOL, below, destroy_all, end_pool, exists, zfs};
use crate::{Case, Verdict};

pub const CASES: &[Case] = &[
    ("w6_a_folder_in_a_dataset_is_found_with_its_path_there", w6),
    ("w7_of_two_mount_points_with_one_beginning_the_right_dataset_is_found", w7),
    ("w8_a_folder_of_a_pools_root_dataset_is_found", w8),
    ("w6_a_folder_in_a_dataset_is_a_folder_of_its_clone", w6_tree),
    ("w8_a_pools_root_dataset_is_cloned_below_the_parent_of_trees", w8_tree),
    ("w9_a_child_dataset_in_a_host_folder_is_refused_by_its_path", w9),
    ("w32_a_capture_of_a_dataset_that_dies_at_any_command_leaves_nothing", w32),
    ("a_folder_of_another_pool_is_copied_and_the_marker_says_why", w10),
];

fn found(path: &Path) -> Option<DatasetFolder> {
    DatasetFolder::of(fs::File::open(path).unwrap()).unwrap()
}

fn folder(dataset: &str, below: &str) -> Option<DatasetFolder> {
    Some(DatasetFolder { dataset: dataset.to_owned(), below: below.into() })
}

/// Makes a dataset that is mounted at a path, as a person has one.
fn mounted(fixture: &Fixture, name: &str, at: &Path) -> String {
    let dataset = format!("{}/{name}", dataset_of(&fixture.dir));
    zfs(&["create", "-p", "-o", &format!("mountpoint={}", at.display()), &dataset]);
    dataset
}

fn w6(fixture: &Fixture) -> Verdict {
    only_zfs!(fixture);
    let at = fixture.dir.join("home of a person");
    let dataset = mounted(fixture, "home", &at);
    fs::create_dir_all(at.join("src/repo/inner")).unwrap();
    assert_eq!(found(&at), folder(&dataset, ""));
    assert_eq!(found(&at.join("src/repo")), folder(&dataset, "src/repo"));
    // Through another mount, of a part of it.
    let part = fixture.dir.join("part");
    fs::create_dir(&part).unwrap();
    rustix::mount::mount_bind(at.join("src"), &part).unwrap();
    assert_eq!(found(&part.join("repo/inner")), folder(&dataset, "src/repo/inner"));
    // What is mounted on it is not in it, and what has its path is not it.
    rustix::mount::mount("home", at.join("src/repo"), "tmpfs", rustix::mount::MountFlags::empty(), None).unwrap();
    assert_eq!(found(&at.join("src/repo")), None);
    assert_eq!(found(&part.join("repo")), folder(&dataset, "src/repo"));
    assert_eq!(found(&fixture.dir), None);
    assert_eq!(found(&at).unwrap().pool(), POOL);
    unmount_below(&fixture.dir);
    Verdict::Ran
}

fn w7(fixture: &Fixture) -> Verdict {
    only_zfs!(fixture);
    let paths: [PathBuf; 3] = ["a/x", "a/xy", "a/x/y"].map(|path| fixture.dir.join(path));
    let [x, xy, inner] = [("x", &paths[0]), ("xy", &paths[1]), ("inner", &paths[2])].map(|(name, at)| mounted(fixture, name, at));
    paths.iter().for_each(|path| fs::create_dir(path.join("z")).unwrap());
    assert_eq!(found(&paths[1].join("z")), folder(&xy, "z"));
    assert_eq!(found(&paths[0].join("z")), folder(&x, "z"));
    assert_eq!(found(&paths[2].join("z")), folder(&inner, "z"));
    // By prefixes, the path of `xy` would be one of `x`.
    assert!(paths[1].to_str().unwrap().starts_with(paths[0].to_str().unwrap()));
    unmount_below(&fixture.dir);
    Verdict::Ran
}

fn w8(fixture: &Fixture) -> Verdict {
    only_zfs!(fixture);
    let (image, at) = (fixture.dir.join("root-pool"), fixture.dir.join("root-of-a-pool"));
    fs::File::create(&image).unwrap().set_len(128 << 20).unwrap();
    run("zpool", &["create".as_ref(), "-m".as_ref(), &at, "rootpool".as_ref(), &image]);
    fs::create_dir_all(at.join("repo")).unwrap();
    assert_eq!(found(&at), folder("rootpool", ""));
    assert_eq!(found(&at.join("repo")), folder("rootpool", "repo"));
    assert_eq!(found(&at).unwrap().pool(), "rootpool");
    unmount_below(&fixture.dir);
    end_pool(&["destroy", "rootpool"]);
    assert!(fixture.root.provider(ProviderKind::Zfs).is_ok());
    Verdict::Ran
}

/// Captures a folder as a snapshot, and makes a clone of that.
fn taken(fixture: &Fixture, source: &Path, why: &str, below: &str) -> (Uid, Uid, PathBuf) {
    host::give_away(source);
    let expected = content(source);
    let base = fixture.uid();
    let marker = host::capture_with(fixture.provider(), base, source).unwrap();
    let captured = marker.captured.unwrap();
    assert_eq!((captured.how, &*captured.why), (CaptureMethod::Snapshot, why));
    assert_eq!(marker.below, Path::new(below));
    let (clone, path) = fixture.clone_of(base);
    assert_eq!(content(&path), expected);
    (base, clone, path)
}

/// Destroys all trees, and checks that nothing of them is left in a dataset of a person.
fn end(fixture: &Fixture, person: &str) {
    for entry in fixture.root.inventory().unwrap().entries {
        fixture.rest(entry.uid);
        fixture.provider().destroy(entry.uid).unwrap();
    }
    fixture.assert_only(&[]);
    assert_eq!(below(person).into_iter().filter(|name| name.contains('@')).collect::<Vec<_>>(), Vec::<String>::new());
    assert!(exists(person));
}

fn w6_tree(fixture: &Fixture) -> Verdict {
    only_zfs!(fixture);
    let at = fixture.dir.join("home");
    let person = mounted(fixture, "home", &at);
    let source = at.join("a/repo");
    fs::create_dir_all(&source).unwrap();
    fill_repository(&source);
    fs::create_dir(at.join("a/repo-two")).unwrap();
    fs::write(at.join("a/secret"), vec![1; 1 << 20]).unwrap();
    let (base, clone, path) = taken(fixture, &source, "the source lies in a dataset of the trees' pool", "a/repo");

    // What a Pod mounts is the folder, and the mount is known as the tree's.
    fixture.rest(clone);
    let pods = tempfile::tempdir().unwrap();
    let root = TargetRoot::open(pods.path()).unwrap();
    for _ in 0..2 {
        fixture.root.publish(clone, &root, Path::new("pod"), false).unwrap();
    }
    let (shown, table) = (pods.path().join("pod"), mountinfo::read().unwrap());
    assert!(shown.join("src").exists() && !shown.join("a").exists() && !shown.join("../secret").exists());
    let [mount] = &table.iter().filter(|m| m.mount_point == shown).collect::<Vec<_>>()[..] else { panic!("mounted twice") };
    assert_eq!([fixture.root.mounted_tree(mount), fixture.root.shown_tree(mount), mountinfo::named_tree(mount)], [Some(clone); 3]);
    let part = mountinfo::Mount { root: mount.root.join("src"), ..(*mount).clone() };
    assert_eq!([fixture.root.mounted_tree(&part), fixture.root.shown_tree(&part)], [None; 2], "a part of a tree");
    assert_eq!(fixture.provider().destroy(clone).unwrap_err().reason(), ErrorReason::Busy);
    unbind(&root, Path::new("pod")).unwrap();

    // Only the folder is listed and measured, and it takes no quota.
    assert_eq!(fixture.path(clone), path);
    fs::write(path.join("new"), "x").unwrap();
    fs::remove_file(path.join("src/file4.rs")).unwrap();
    let list: Vec<_> = changes_of(fixture, clone, base).into_iter().map(|(kind, _, path)| (kind, path)).collect();
    let wanted = [(ChangeKind::Added, "new"), (ChangeKind::Deleted, "src/file4.rs")].map(|(kind, path)| (kind, path.to_owned()));
    assert_eq!(list, wanted);
    assert!(fixture.provider().usage(clone).unwrap().logical_bytes < 4 << 20);
    let state = fixture.provider().set_quota(clone, Some(Quota::new(1 << 20).unwrap())).unwrap();
    assert!(matches!(&state, QuotaState::Unsupported { reason } if reason.starts_with("the tree is one folder of a dataset")), "{state:?}");

    // The source goes on, changes no tree, and the base may go before its forks.
    fs::write(source.join("src/file1.rs"), "edited outside").unwrap();
    let fork = fixture.clone_of(clone).1;
    assert!(fork.join("new").exists() && !fork.join("src/file4.rs").exists());
    assert_ne!(fs::read_to_string(fork.join("src/file1.rs")).unwrap(), "edited outside");
    fixture.provider().destroy(base).unwrap();
    assert!(fork.join("src/file1.rs").exists());
    end(fixture, &person);
    unmount_below(&fixture.dir);
    Verdict::Ran
}

fn w8_tree(fixture: &Fixture) -> Verdict {
    only_zfs!(fixture);
    let (dir, image, at) = (fixture.dir.join("folder"), fixture.dir.join("root-pool"), fixture.dir.join("root-of-a-pool"));
    fs::create_dir(&dir).unwrap();
    fs::File::create(&image).unwrap().set_len(128 << 20).unwrap();
    run("zpool", &["create".as_ref(), "-m".as_ref(), &at, "rootpool".as_ref(), &image]);
    zfs(&["create", "-o", "mountpoint=none", "rootpool/trees"]);
    let options = RootOptions { zfs: Some(ZfsOptions::new("rootpool/trees".parse().unwrap())), ..RootOptions::default() };
    let root = DataRoot::open_with(&dir, options).unwrap();
    fs::write(at.join("file"), "not committed").unwrap();
    host::give_away(&at);
    let (base, clone, provider) = (fixture.uid(), fixture.uid(), root.provider(ProviderKind::Zfs).unwrap());
    let captured = host::capture_with(provider, base, &at).unwrap().captured.unwrap();
    assert_eq!((captured.how, &*captured.why), (CaptureMethod::Snapshot, "the source is a dataset of the trees' pool"));
    provider.clone_tree(clone, base, CloneAccess::ReadWrite).unwrap();
    assert!(exists(&format!("rootpool/trees/{clone}")));
    assert_eq!(read_in(&root, clone, "file").as_deref(), Some("not committed"));
    for uid in [base, clone] {
        provider.destroy(uid).unwrap();
    }
    assert_eq!(below("rootpool"), ["rootpool/trees"]);
    drop(root);
    unmount_below(&fixture.dir);
    end_pool(&["destroy", "rootpool"]);
    Verdict::Ran
}

fn w9(fixture: &Fixture) -> Verdict {
    only_zfs!(fixture);
    let at = fixture.dir.join("home");
    let person = mounted(fixture, "home", &at);
    fs::create_dir_all(at.join("repo/src")).unwrap();
    fs::create_dir(at.join("beside")).unwrap();
    let child = format!("{person}/child");
    for (place, refused) in [("repo/src/deep", true), ("beside/deep", false)] {
        zfs(&["create", "-o", &format!("mountpoint={}", at.join(place).display()), &child]);
        host::give_away(&at);
        for is_shown in [true, false] {
            if !is_shown {
                // As where this process does not see the mount.
                rustix::mount::unmount(at.join(place), rustix::mount::UnmountFlags::DETACH).unwrap();
            }
            let captured = host::capture_with(fixture.provider(), fixture.uid(), &at.join("repo"));
            match refused {
                true => {
                    let error = captured.unwrap_err();
                    assert!(matches!(&error, Error::SourceNested { path } if path == Path::new("src/deep")), "{error}");
                    fixture.assert_only(&[]);
                }
                false => assert_eq!(captured.unwrap().captured.unwrap().how, CaptureMethod::Snapshot),
            }
        }
        destroy_all(&child);
    }
    end(fixture, &person);
    unmount_below(&fixture.dir);
    Verdict::Ran
}

/// What an attempt that died has left of a source's dataset goes with the next attempt, and what is another's stays.
fn w32(fixture: &Fixture) -> Verdict {
    only_zfs!(fixture);
    let at = fixture.dir.join("home");
    let person = mounted(fixture, "home", &at);
    fs::write(at.join("file"), "first").unwrap();
    host::give_away(&at);
    let uid = fixture.uid();
    let faults = Arc::new(FailingCommands::default());
    let root = fixture.reopened(faults.clone());
    let mut tried = 0;
    loop {
        let (_, failed) =
            faults.run(tried + 1, Failure::Death, || host::capture_with(root.provider(ProviderKind::Zfs).unwrap(), uid, &at).map(drop));
        if failed.is_none() {
            break;
        }
        tried += 1;
        fixture.root.perform(&yoi_workspace::plan::DiskStep::Discard { uid }).ok();
        fixture.provider().destroy(uid).unwrap();
        end(fixture, &person);
    }
    assert!(tried > 5, "{tried} commands");
    assert_eq!(read_in(&fixture.root, uid, "file").as_deref(), Some("first"));
    fixture.provider().destroy(uid).unwrap();
    let theirs = format!("{person}@{uid}");
    zfs(&["snapshot", &theirs]);
    let refused = host::capture_with(fixture.provider(), uid, &at).unwrap_err();
    assert_eq!(refused.reason(), ErrorReason::Foreign, "{refused:?}");
    assert!(exists(&theirs));
    zfs(&["destroy", &theirs]);
    end(fixture, &person);
    unmount_below(&fixture.dir);
    Verdict::Ran
}

fn w10(fixture: &Fixture) -> Verdict {
    only_zfs!(fixture);
    let (image, at) = (fixture.dir.join("other-pool"), fixture.dir.join("of-another-pool"));
    fs::File::create(&image).unwrap().set_len(128 << 20).unwrap();
    run("zpool", &["create".as_ref(), "-m".as_ref(), &at, "otherpool".as_ref(), &image]);
    let source = at.join("repo");
    fs::create_dir(&source).unwrap();
    fs::write(source.join("file"), "not committed").unwrap();
    host::give_away(&source);
    let uid = fixture.uid();
    let captured = host::capture_with(fixture.provider(), uid, &source).unwrap().captured.unwrap();
    assert_eq!(captured.how, CaptureMethod::Copied);
    assert!(captured.why.starts_with("the source is in another pool than the trees"), "{}", captured.why);
    assert_eq!(read_in(&fixture.root, uid, "file").as_deref(), Some("not committed"));
    unmount_below(&fixture.dir);
    end_pool(&["destroy", "otherpool"]);
    Verdict::Ran
}
