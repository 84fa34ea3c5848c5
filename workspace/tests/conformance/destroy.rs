//! Destroying a tree, whatever is in it and however often it is destroyed.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use yoi_test_support::wait_until;
use yoi_workspace::{CloneAccess, Error, ErrorReason, Journal, TreeOrigin, Uid, mountinfo};

use crate::fixture::{Fixture, current_owner, fill_repository, is_root, make_subvolume, run, set_immutable, set_read_only};
use crate::{Case, Verdict};

pub const CASES: &[Case] = &[
    ("w33_destroying_twice_or_nothing_succeeds", w33),
    ("w34_what_is_not_ours_is_refused_and_untouched", w34),
    ("w35_what_an_agent_left_inside_does_not_matter", w35),
    ("w35_a_tree_deeper_than_any_stack_is_destroyed", deep),
    ("w35_trees_destroyed_at_once_do_not_wait_for_each_other", at_once),
    ("w44_a_hundred_trees_made_and_destroyed_leave_nothing", w44),
];

fn w33(fixture: &Fixture) -> Verdict {
    let (base, _) = fixture.base();
    for _ in 0..2 {
        fixture.provider().destroy(base).unwrap();
        fixture.provider().destroy(fixture.uid()).unwrap();
    }
    fixture.assert_only(&[]);
    Verdict::Ran
}

fn w34(fixture: &Fixture) -> Verdict {
    for token in ["../../etc", "trees/00", "", "0198f0aa-5b1c-7d2e-8f00-0123456789ab/.."] {
        assert!(token.parse::<Uid>().is_err());
    }
    // A directory with the right name and no marker, one with the marker of another tree, and a link to another directory.
    let shard = |uid: Uid| fixture.dir.join("trees").join(uid.shard());
    let (unmarked, (ours, _), linked) = (fixture.uid(), fixture.base(), fixture.uid());
    let precious = shard(unmarked).join(unmarked.to_string()).join("tree");
    fs::create_dir_all(&precious).unwrap();
    fs::write(precious.join("file"), "precious").unwrap();
    let borrowed = fixture.uid();
    let other = shard(borrowed).join(borrowed.to_string());
    fs::create_dir_all(other.join("tree")).unwrap();
    let marker = fs::read_link(shard(ours).join(ours.to_string()).join("marker")).unwrap();
    std::os::unix::fs::symlink(marker, other.join("marker")).unwrap();
    let elsewhere = fixture.dir.join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::write(elsewhere.join("file"), "precious").unwrap();
    std::os::unix::fs::symlink(&elsewhere, shard(linked).join(linked.to_string())).unwrap();

    for uid in [unmarked, borrowed] {
        for refused in [
            fixture.provider().destroy(uid).err(),
            fixture.provider().seal(uid).err(),
            fixture.provider().create_empty(uid, current_owner()).err(),
            fixture.provider().clone_tree(fixture.uid(), uid, CloneAccess::ReadWrite).err(),
        ] {
            assert_eq!(refused.unwrap().reason(), ErrorReason::Foreign);
        }
    }
    assert!(fixture.provider().destroy(linked).is_err());
    let in_trash = fixture.uid();
    fs::create_dir_all(fixture.dir.join("trash").join(in_trash.to_string()).join("tree")).unwrap();
    assert!(matches!(fixture.provider().destroy(in_trash), Err(Error::Foreign { .. })));
    for kept in [precious.join("file"), elsewhere.join("file"), other.join("tree"), fixture.dir.join("trash").join(in_trash.to_string())] {
        assert!(kept.exists(), "{}", kept.display());
    }
    let found = fixture.root.inventory().unwrap();
    assert_eq!(found.foreign.len(), 1, "{found:?}");
    assert_eq!(found.entries.iter().filter(|e| e.marker.is_none()).count(), 3);
    Verdict::Ran
}

fn w35(fixture: &Fixture) -> Verdict {
    if !is_root() {
        return Verdict::Lacks("needs root for immutable files and mounts");
    }
    let (uid, path) = fixture.empty();
    fill_repository(&path);
    let immutable_here = |path: &Path| assert!(set_immutable(path) || !fixture.on_btrfs());
    immutable_here(&path.join("src/file1.rs"));
    immutable_here(&path.join("src/deep"));
    fs::create_dir_all(path.join("closed/inner")).unwrap();
    fs::write(path.join("closed/inner/file"), "x").unwrap();
    fs::set_permissions(path.join("closed"), fs::Permissions::from_mode(0o000)).unwrap();

    let outside = fixture.dir.join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("file"), "precious").unwrap();
    fs::create_dir_all(path.join("mnt/one")).unwrap();
    rustix::mount::mount_bind(&outside, path.join("mnt/one")).unwrap();
    rustix::mount::mount_bind(&outside, path.join("mnt/one")).unwrap();

    if fixture.on_btrfs() {
        make_subvolume(&path.join("sub"));
        make_subvolume(&path.join("sub/inner"));
        fs::write(path.join("sub/inner/file"), "x").unwrap();
        fs::create_dir(path.join("sub/held")).unwrap();
        make_subvolume(&path.join("sub/held/fast"));
        immutable_here(&path.join("sub/held/fast"));
        immutable_here(&path.join("sub/held"));
        set_read_only(&path.join("sub/inner"));
        set_read_only(&path.join("sub"));
        fs::create_dir(path.join("shut")).unwrap();
        make_subvolume(&path.join("shut/sub"));
        fs::set_permissions(path.join("shut"), fs::Permissions::from_mode(0o000)).unwrap();
        for n in 0..300 {
            make_subvolume(&path.join(format!("many{n}")));
        }
    }
    immutable_here(&path);
    fixture.provider().destroy(uid).unwrap();
    fixture.assert_only(&[]);
    assert_eq!(fs::read_to_string(outside.join("file")).unwrap(), "precious");
    let inside = |m: &mountinfo::Mount| m.mount_point.starts_with(&fixture.dir) && m.mount_point != fixture.dir;
    assert!(!mountinfo::read().unwrap().iter().any(inside));
    Verdict::Ran
}

fn deep(fixture: &Fixture) -> Verdict {
    let (uid, path) = fixture.empty();
    let mut at = rustix::fs::open(&path, rustix::fs::OFlags::DIRECTORY, rustix::fs::Mode::empty()).unwrap();
    for _ in 0..3000 {
        rustix::fs::mkdirat(&at, "d", rustix::fs::Mode::RWXU).unwrap();
        at = rustix::fs::openat(&at, "d", rustix::fs::OFlags::DIRECTORY, rustix::fs::Mode::empty()).unwrap();
    }
    drop(at);
    let refused = fixture.provider().measure(uid).unwrap_err();
    assert_eq!(refused.reason(), ErrorReason::TreeTooDeep);
    fixture.provider().destroy(uid).unwrap();
    fixture.assert_only(&[]);
    Verdict::Ran
}

/// A destroy that asks for a commit while another commit ends must not wait for the periodic one, every 30 s by default.
fn at_once(fixture: &Fixture) -> Verdict {
    // Nobody who waits for it ends before the test is given up.
    let _commits = fixture.on_btrfs().then(|| RareCommits::begin(fixture));
    for turn in 0..40 {
        let trees = [0, 100, 300].map(|wait| (fixture.empty().0, Duration::from_micros(wait * turn % 2000)));
        let ended = AtomicUsize::new(0);
        thread::scope(|scope| {
            for (uid, after) in trees {
                let ended = &ended;
                scope.spawn(move || {
                    // Turn by turn the three begin further apart, so that one asks in each moment of another's commit.
                    thread::sleep(after);
                    fixture.provider().destroy(uid).unwrap();
                    ended.fetch_add(1, Ordering::Relaxed);
                });
            }
            let goal = format!("turn {turn}: all three are destroyed");
            wait_until(goal, || (ended.load(Ordering::Relaxed) == trees.len()).then_some(()));
        });
    }
    fixture.assert_only(&[]);
    Verdict::Ran
}

/// The file system of the lane commits by itself every ten minutes only.
struct RareCommits<'a>(&'a Path);

impl<'a> RareCommits<'a> {
    fn begin(fixture: &'a Fixture) -> Self {
        let at = fixture.dir.parent().unwrap();
        commit_every(at, 600);
        Self(at)
    }
}

impl Drop for RareCommits<'_> {
    fn drop(&mut self) {
        commit_every(self.0, 30);
    }
}

fn commit_every(at: &Path, seconds: u32) {
    let options = format!("remount,commit={seconds}");
    run("mount", &["-o".as_ref(), options.as_ref(), at]);
}

fn backing_of_ours(backing: &str, ground: &Path) -> bool {
    Path::new(backing.trim()).starts_with(ground)
}

fn w44(fixture: &Fixture) -> Verdict {
    let journal_dir = fixture.dir.join("journal");
    let journal = Journal::open(&journal_dir).unwrap();
    let (base, path) = fixture.empty();
    fs::write(path.join("file"), "x").unwrap();
    fixture.provider().seal(base).unwrap();
    let count = || {
        // Only what belongs to this run: other processes mount on this machine, too.
        let ground = fixture.dir.parent().and_then(Path::parent).unwrap();
        let mounts = mountinfo::read().unwrap().iter().filter(|m| m.mount_point.starts_with(ground)).count();
        let backing = |e: &fs::DirEntry| fs::read_to_string(e.path().join("loop/backing_file")).unwrap_or_default();
        let loops = fs::read_dir("/sys/block").unwrap().filter(|e| backing_of_ours(&backing(e.as_ref().unwrap()), ground)).count();
        let fds = fs::read_dir("/proc/self/fd").unwrap().count();
        (mounts, loops, fds, fs::read_dir(&journal_dir).unwrap().count(), fixture.root.inventory().unwrap())
    };
    // The first overlay makes what all overlays of a process have in common.
    let first = fixture.clone_of(base).0;
    fixture.provider().destroy(first).unwrap();
    let before = count();
    for _ in 0..100 {
        let (uid, origin) = (fixture.uid(), TreeOrigin::Clone { from: base, access: CloneAccess::ReadWrite });
        journal.begin_create(uid, fixture.kind(), origin).unwrap();
        fixture.provider().clone_tree(uid, base, CloneAccess::ReadWrite).unwrap();
        journal.record_created(uid).unwrap();
        fs::write(fixture.path(uid).join("mine"), "x").unwrap();
        journal.begin_destroy(uid).unwrap();
        fixture.provider().destroy(uid).unwrap();
        journal.record_destroyed(uid).unwrap();
    }
    assert_eq!(count(), before);
    Verdict::Ran
}
