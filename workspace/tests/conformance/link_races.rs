//! Directories become links while a tree is destroyed, measured, compared or mounted: nothing outside of the data root changes.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rustix::fs::{CWD, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use yoi_test_support::wait_until;
use yoi_workspace::mount::{TargetRoot, unbind};
use yoi_workspace::{ChangeLimits, CloneAccess, HostFolder, ProviderKind, mountinfo};

use crate::fixture::{Fixture, StopOnDrop, needs_root};
use crate::not_run::DESTROYED_WHOLE;
use crate::outside::Outside;
use crate::{Case, Verdict, host, lanes};

pub const CASES: &[Case] = &[
    ("a_tree_is_destroyed_while_its_folders_become_links", destroyed),
    ("planted_a_removal_by_path_is_found", by_path),
    ("a_tree_is_measured_sealed_and_compared_while_its_folders_become_links", read),
    ("a_host_folder_is_captured_while_it_and_its_folders_become_links", captured),
    ("a_tree_is_mounted_while_the_path_to_its_target_becomes_a_link", mounted),
    ("planted_a_mount_by_path_is_found", mounted_by_path),
];

const SWAPS: usize = 5_000;

/// Exchanges directories with links as fast as it can, until it is stopped.
struct Swapper {
    stop: AtomicBool,
    done: AtomicUsize,
}

impl Swapper {
    fn new() -> Self {
        Self { stop: AtomicBool::new(false), done: AtomicUsize::new(0) }
    }

    fn swap(&self, at: &OwnedFd, pairs: &[(String, String)]) {
        while !self.stop.load(Ordering::Relaxed) {
            let mut any = false;
            for (a, b) in pairs {
                if exchange(at, a, b).is_ok() {
                    any = true;
                    self.done.fetch_add(1, Ordering::Relaxed);
                }
            }
            if !any {
                std::thread::yield_now();
            }
        }
    }

    /// Runs `act` while the directories are exchanged.
    fn during<T>(&self, at: &Path, pairs: &[(String, String)], act: impl FnOnce() -> T) -> T {
        self.stop.store(false, Ordering::Relaxed);
        let dir = rustix::fs::open(at, OFlags::DIRECTORY, Mode::empty()).unwrap();
        let (before, wanted) = (self.done.load(Ordering::Relaxed), pairs.len());
        std::thread::scope(|scope| {
            scope.spawn(|| self.swap(&dir, pairs));
            let _stop = StopOnDrop(&self.stop);
            wait_until("the folders are exchanged", || (self.done.load(Ordering::Relaxed) >= before + wanted).then_some(()));
            act()
        })
    }
}

/// Exchanges two names: by three renames where the file system cannot do it at once, as OpenZFS before 2.2.
fn exchange(at: &OwnedFd, a: &str, b: &str) -> rustix::io::Result<()> {
    let rename = |from: &str, to: &str| rustix::fs::renameat(at, from, at, to);
    match rustix::fs::renameat_with(at, a, at, b, RenameFlags::EXCHANGE) {
        Err(Errno::INVAL | Errno::NOSYS) => {
            let aside = format!("{a}-aside");
            rename(a, &aside).and_then(|()| rename(b, a)).and_then(|()| rename(&aside, b))
        }
        done => done,
    }
}

/// Fills a tree with directories, and beside each a link to outside, where the same names are.
fn fill_with_links(path: &Path, outside: &Outside) -> Vec<(String, String)> {
    let dirs = ["a", "b", "c", "d", "e", "f", "g", "h"];
    for dir in dirs {
        for n in 0..4 {
            fs::create_dir_all(path.join(dir).join(format!("sub{n}"))).unwrap();
            for m in 0..4 {
                fs::write(path.join(dir).join(format!("f{m}")), "x").unwrap();
                fs::write(path.join(dir).join(format!("sub{n}/f{m}")), "x").unwrap();
            }
        }
        std::os::unix::fs::symlink(&outside.dir, path.join(format!("{dir}-link"))).unwrap();
    }
    dirs.map(|dir| (dir.to_owned(), format!("{dir}-link"))).to_vec()
}

fn destroyed(fixture: &Fixture) -> Verdict {
    if fixture.kind() == ProviderKind::Zfs {
        return Verdict::NotRun(DESTROYED_WHOLE);
    }
    let (outside, swapper) = (Outside::new(fixture, "outside"), Swapper::new());
    let mut rounds = 0;
    while swapper.done.load(Ordering::Relaxed) < lanes::rounds(SWAPS) || rounds < 20 {
        let (uid, path) = fixture.empty();
        let pairs = fill_with_links(&path, &outside);
        // A directory that is a link at the moment may stop a call; the next call goes on.
        swapper.during(&path, &pairs, || (0..50).any(|_| fixture.provider().destroy(uid).is_ok()));
        fixture.provider().destroy(uid).unwrap();
        assert_eq!(outside.harm(), None, "after {} swaps", swapper.done.load(Ordering::Relaxed));
        rounds += 1;
    }
    fixture.assert_only(&[]);
    println!("    {} swaps, {rounds} trees", swapper.done.load(Ordering::Relaxed));
    Verdict::Ran
}

/// The planted fault: checks a path, and then uses the path again.
fn remove_by_path(path: &Path) {
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        match fs::symlink_metadata(entry.path()) {
            Ok(meta) if meta.is_dir() => remove_by_path(&entry.path()),
            _ => _ = fs::remove_file(entry.path()),
        }
    }
    _ = fs::remove_dir(path);
}

fn by_path(fixture: &Fixture) -> Verdict {
    let (outside, swapper) = (Outside::new(fixture, "outside"), Swapper::new());
    for rounds in 1..500 {
        let path = fixture.dir.join(format!("tree{rounds}"));
        fs::create_dir(&path).unwrap();
        let pairs = fill_with_links(&path, &outside);
        swapper.during(&path, &pairs, || remove_by_path(&path));
        if let Some(harm) = outside.harm() {
            println!("    found: {harm}, after {} swaps, {rounds} trees", swapper.done.load(Ordering::Relaxed));
            return Verdict::Ran;
        }
    }
    panic!("the harness detects nothing");
}

fn read(fixture: &Fixture) -> Verdict {
    let (outside, swapper) = (Outside::new(fixture, "outside"), Swapper::new());
    let (base, path) = fixture.empty();
    fill_with_links(&path, &outside);
    fixture.provider().seal(base).unwrap();
    let (mut rounds, mut answers) = (0, 0);
    while swapper.done.load(Ordering::Relaxed) < lanes::rounds(SWAPS) || rounds < lanes::rounds(10) {
        let (uid, path) = fixture.clone_of(base);
        let pairs: Vec<_> = ["a", "b", "c", "d", "e", "f", "g", "h"].map(|d| (d.to_owned(), format!("{d}-link"))).to_vec();
        swapper.during(&path, &pairs, || {
            for _ in 0..5 {
                // A call may fail, but it must not follow a link.
                if let Ok(usage) = fixture.provider().usage(uid) {
                    assert!(usage.logical_bytes < 1 << 40, "it weighed what is outside");
                    answers += 1;
                }
                if let Ok(list) = fixture.provider().changes(uid, base, &ChangeLimits::NONE) {
                    assert!(!list.changes.iter().any(|c| c.path.ends_with("canary")), "it told what is outside");
                    answers += 1;
                }
            }
            if fixture.forks_live() {
                let fork = fixture.uid();
                fixture.provider().clone_tree(fork, uid, CloneAccess::ReadWrite).unwrap();
                assert!(fixture.provider().usage(fork).unwrap().logical_bytes < 1 << 40);
                fixture.provider().destroy(fork).unwrap();
            }
            if let Ok(manifest) = fixture.provider().seal(uid) {
                assert!(manifest.bytes < 1 << 40, "it sealed what is outside");
                answers += 1;
            }
        });
        fixture.provider().destroy(uid).unwrap();
        rounds += 1;
    }
    assert!(answers > rounds, "only {answers} answers");
    assert_eq!(outside.harm(), None);
    println!("    {} swaps, {rounds} trees, {answers} answers", swapper.done.load(Ordering::Relaxed));
    Verdict::Ran
}

fn captured(fixture: &Fixture) -> Verdict {
    needs_root!();
    let (outside, swapper, top) = (Outside::new(fixture, "outside"), Swapper::new(), host::beside(fixture));
    let source = top.join("source");
    fs::create_dir_all(&source).unwrap();
    let mut pairs: Vec<_> =
        fill_with_links(&source, &outside).into_iter().map(|(a, b)| (format!("source/{a}"), format!("source/{b}"))).collect();
    std::os::unix::fs::symlink(&outside.dir, top.join("source-link")).unwrap();
    // A file is exchanged, too: with a link to the file of its name outside, which is more than any tree holds.
    for n in 0..4 {
        fs::write(source.join(format!("file{n}")), "x").unwrap();
        std::os::unix::fs::symlink(outside.dir.join("canary"), source.join(format!("file{n}-link"))).unwrap();
        pairs.push((format!("source/file{n}"), format!("source/file{n}-link")));
    }
    host::give_away(&source);
    let root = fs::File::open(&top).unwrap();
    let (mut rounds, mut opened, mut whole) = (0, 0, 0);
    let mut attempt = || {
        rounds += 1;
        let Ok(folder) = HostFolder::open(&root, Path::new("source"), &source) else { return };
        opened += 1;
        let uid = fixture.uid();
        // It may be refused as changing, but no link may be followed.
        if fixture.provider().capture(uid, &folder, host::USER, CloneAccess::ReadOnly).is_ok() {
            assert!(fixture.provider().usage(uid).unwrap().logical_bytes < 1 << 40, "it captured what is outside");
            whole += 1;
            fixture.provider().destroy(uid).unwrap();
        }
    };
    // First what is in it, then the folder itself, then nothing.
    for _ in 0..2 {
        let begun = swapper.done.load(Ordering::Relaxed);
        swapper.during(&top, &pairs, || {
            let mut tries = 0;
            while swapper.done.load(Ordering::Relaxed) < begun + SWAPS || tries < 10 {
                attempt();
                tries += 1;
            }
        });
        pairs = vec![("source".to_owned(), "source-link".to_owned())];
    }
    if top.join("source").is_symlink() {
        rustix::fs::renameat_with(CWD, top.join("source"), CWD, top.join("source-link"), RenameFlags::EXCHANGE).unwrap();
    }
    attempt();
    assert_eq!(outside.harm(), None);
    assert!(whole > 0, "it was never captured");
    println!("    {} swaps, {rounds} attempts, {opened} opened, {whole} captured", swapper.done.load(Ordering::Relaxed));
    fixture.assert_only(&[]);
    Verdict::Ran
}

/// A path to a target. One component is exchanged with a link to outside, where the rest of the path exists, too.
fn target_path(fixture: &Fixture) -> (PathBuf, Outside, Vec<(String, String)>) {
    let dir = fixture.dir.join("pods");
    fs::create_dir_all(dir.join("pod/sub0")).unwrap();
    let outside = Outside::new(fixture, "outside");
    std::os::unix::fs::symlink(&outside.dir, dir.join("pod-link")).unwrap();
    (dir, outside, vec![("pod".to_owned(), "pod-link".to_owned())])
}

fn mounted(fixture: &Fixture) -> Verdict {
    needs_root!();
    let (base, _) = fixture.base();
    let (dir, outside, pairs) = target_path(fixture);
    let (root, target, swapper) = (TargetRoot::open(&dir).unwrap(), Path::new("pod/sub0/mount"), Swapper::new());
    let (mut rounds, mut mounted) = (0, 0);
    swapper.during(&dir, &pairs, || {
        while swapper.done.load(Ordering::Relaxed) < SWAPS || rounds < 200 {
            mounted += usize::from(fixture.root.publish(base, &root, target, false).is_ok());
            _ = unbind(&root, target);
            rounds += 1;
        }
    });
    if dir.join("pod").is_symlink() {
        rustix::fs::renameat_with(CWD, dir.join("pod"), CWD, dir.join("pod-link"), RenameFlags::EXCHANGE).unwrap();
    }
    unbind(&root, target).unwrap();
    assert_eq!(outside.harm(), None);
    assert!(!mountinfo::read().unwrap().iter().any(|m| m.mount_point.starts_with(&dir)));
    assert!(mounted > 0, "it was never mounted");
    println!("    {} swaps, {rounds} attempts, {mounted} mounted", swapper.done.load(Ordering::Relaxed));
    Verdict::Ran
}

fn mounted_by_path(fixture: &Fixture) -> Verdict {
    needs_root!();
    let (_, tree) = fixture.base();
    let (dir, outside, pairs) = target_path(fixture);
    let (target, swapper) = (dir.join("pod/sub0"), Swapper::new());
    let harm = swapper.during(&dir, &pairs, || {
        (0..50_000).find_map(|_| {
            // The planted fault: checks the path and then uses it again, with other work between.
            let judged = target.canonicalize().is_ok_and(|real| real.starts_with(&dir));
            std::thread::yield_now();
            if judged && rustix::mount::mount_bind(&tree, &target).is_ok() {
                let harm = outside.harm();
                _ = rustix::mount::unmount(&target, rustix::mount::UnmountFlags::DETACH);
                return harm;
            }
            None
        })
    });
    for mount in mountinfo::read().unwrap().iter().filter(|m| m.mount_point.starts_with(&fixture.dir)) {
        _ = rustix::mount::unmount(&mount.mount_point, rustix::mount::UnmountFlags::DETACH);
    }
    println!("    found: {}, after {} swaps", harm.expect("the harness detects nothing"), swapper.done.load(Ordering::Relaxed));
    Verdict::Ran
}
