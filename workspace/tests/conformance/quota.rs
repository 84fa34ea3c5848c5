//! Quotas: what is refused, who pays, what is left, and what the counters say.

use std::fs;
use std::io::{ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::path::Path;

use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use yoi_workspace::{CloneAccess, DataRoot, Error, ErrorReason, PlantedFault, ProviderKind, Quota, QuotaState, Uid, mountinfo};

use crate::fixture::{Fixture, make_subvolume, planted, run};
use crate::lanes::{DiskKind, Lane};
use crate::not_run::{NO_PROJECT_QUOTAS, NO_SIMPLE_QUOTAS, OWN_QUOTAS};
use crate::{Case, Verdict};

pub const CASES: &[Case] = &[
    ("w37_a_quota_is_enforced_or_its_state_says_why_not", held),
    ("w37_a_quota_goes_up_and_down_and_below_what_is_used", changed),
    ("w37_a_fork_has_a_quota_of_its_own", forked),
    ("w37_a_nested_subvolume_is_no_way_around_a_quota", nested),
    ("w44_nothing_is_left_of_the_quotas_of_trees_that_are_gone", nothing_left),
    ("a_quota_above_the_data_root_is_refused_with_both_figures", too_large),
    ("the_usage_that_is_counted_is_the_usage_that_a_visit_finds", counted),
    ("where_classic_quota_groups_are_on_nothing_is_changed", classic),
    ("w37_quotas_that_are_turned_off_later_are_known", turned_off),
    ("planted_a_quota_not_set_on_a_clone_is_found", not_set),
];

const MIB: u64 = 1 << 20;

fn quota(mib: u64) -> Option<Quota> {
    Some(Quota::new(mib * MIB).unwrap())
}

/// Writes a file, in steps, as a program without rights of root: ext4 lets those go over every limit. Returns what was taken.
fn write_as_agent(path: &Path, bytes: u64) -> u64 {
    let write = || {
        let mut effective = capabilities(None).unwrap();
        effective.effective.remove(CapabilitySet::SYS_RESOURCE);
        set_capabilities(None, effective).unwrap();
        let is_over = |e: &std::io::Error| matches!(e.kind(), ErrorKind::QuotaExceeded | ErrorKind::StorageFull);
        let mut file = match fs::File::options().create(true).append(true).open(path) {
            Ok(file) => file,
            Err(e) if is_over(&e) => return 0,
            Err(e) => panic!("{path:?}: {e}"),
        };
        let step = vec![5_u8; 64 << 10];
        let mut written = 0;
        while written < bytes {
            match file.write(&step).and_then(|n| file.sync_data().map(|()| n)) {
                Ok(n) => written += n as u64,
                Err(e) if is_over(&e) => break,
                Err(e) => panic!("{path:?}: {e}"),
            }
        }
        written
    };
    std::thread::scope(|scope| scope.spawn(write).join().unwrap())
}

/// A sealed base. Where clones pay for what they copy it is small, elsewhere larger than any quota here.
fn base(fixture: &Fixture) -> Uid {
    let (base, path) = fixture.empty();
    let bytes = match fixture.kind() {
        ProviderKind::Btrfs | ProviderKind::Overlay => 24 * MIB,
        ProviderKind::Zfs | ProviderKind::Reflink | ProviderKind::Copy => MIB / 32,
    };
    fs::write(path.join("large"), vec![3; bytes as usize]).unwrap();
    fixture.provider().seal(base).unwrap();
    base
}

/// A clone with a quota. None if nothing enforces it, which only the lanes without Btrfs subvolumes may say, with the reason.
fn limited_clone(fixture: &Fixture, root: &DataRoot, base: Uid, mib: u64) -> Option<Uid> {
    let (uid, provider) = (fixture.uid(), root.provider(fixture.kind()).unwrap());
    provider.clone_tree(uid, base, CloneAccess::ReadWrite).unwrap();
    match provider.set_quota(uid, quota(mib)).unwrap() {
        QuotaState::Enforced => {
            assert_eq!(root.marker(uid).unwrap().quota, quota(mib));
            Some(uid)
        }
        QuotaState::Unsupported { reason } => {
            assert!(!fixture.enforces_quotas, "{reason}");
            let expected = match fixture.lane {
                Lane::Btrfs => "simple quotas",
                _ if fixture.on_btrfs() => "plain folders on Btrfs have no quota",
                _ => "project quotas",
            };
            assert!(reason.contains(expected), "{reason}");
            assert_eq!(root.marker(uid).unwrap().quota, None);
            None
        }
    }
}

fn not_enforced(fixture: &Fixture) -> Verdict {
    Verdict::NotRun(match fixture.lane {
        Lane::Btrfs => NO_SIMPLE_QUOTAS,
        _ if fixture.on_btrfs() => "plain folders on Btrfs have no quota",
        _ => NO_PROJECT_QUOTAS,
    })
}

fn assert_within_a_mib(written: u64, mib: u64) {
    assert!((mib * MIB..=(mib + 1) * MIB).contains(&written), "{written} bytes were taken, of a quota of {mib} MiB");
}

fn charged(fixture: &Fixture, uid: Uid) -> u64 {
    fixture.sync();
    fixture.provider().usage(uid).unwrap().charged_bytes.unwrap()
}

fn held(fixture: &Fixture) -> Verdict {
    if fixture.kind() == ProviderKind::Zfs {
        return Verdict::NotRun(OWN_QUOTAS);
    }
    let base = base(fixture);
    let Some(uid) = limited_clone(fixture, &fixture.root, base, 10) else {
        // It is as a tree without a quota.
        let (uid, path) = fixture.clone_of(base);
        fixture.provider().set_quota(uid, quota(10)).unwrap();
        assert_eq!(write_as_agent(&path.join("new"), 15 * MIB), 15 * MIB);
        assert_eq!(fixture.provider().usage(uid).unwrap().charged_bytes, None);
        return Verdict::Ran;
    };
    let sibling = limited_clone(fixture, &fixture.root, base, 10).unwrap();
    // What an overlay makes in its work folder when it is first shown counts, too.
    fixture.path(sibling);
    let others = || [charged(fixture, base), charged(fixture, sibling)];
    let before = others();
    let new = fixture.path(uid).join("new");
    assert_within_a_mib(write_as_agent(&new, 15 * MIB), 10);
    assert_eq!(others(), before, "base or sibling pay");
    assert!(charged(fixture, uid) >= 10 * MIB);
    assert_eq!(write_as_agent(&fixture.path(sibling).join("new"), 5 * MIB), 5 * MIB, "a sibling has less");
    // A full tree can be made empty.
    fs::remove_file(&new).unwrap();
    fixture.sync();
    assert_within_a_mib(write_as_agent(&new, 15 * MIB), 10);
    Verdict::Ran
}

fn changed(fixture: &Fixture) -> Verdict {
    if fixture.kind() == ProviderKind::Zfs {
        return Verdict::NotRun(OWN_QUOTAS);
    }
    let base = base(fixture);
    let Some(uid) = limited_clone(fixture, &fixture.root, base, 2) else { return not_enforced(fixture) };
    let path = fixture.path(uid);
    let set = |quota| assert_eq!(fixture.provider().set_quota(uid, quota).unwrap(), QuotaState::Enforced);
    assert_within_a_mib(write_as_agent(&path.join("a"), 4 * MIB), 2);
    set(quota(10));
    assert_eq!(write_as_agent(&path.join("b"), 5 * MIB), 5 * MIB, "it does not go on after a raise");
    set(quota(3));
    assert_eq!(fixture.root.marker(uid).unwrap().quota, quota(3));
    assert_eq!(write_as_agent(&path.join("c"), MIB), 0, "over the lowered quota");
    // Also in another process.
    let reopened = DataRoot::open(&fixture.dir).unwrap();
    let provider = reopened.provider(fixture.kind()).unwrap();
    provider.set_quota(uid, None).unwrap();
    provider.set_quota(uid, None).unwrap();
    assert_eq!(reopened.marker(uid).unwrap().quota, None);
    assert_eq!(write_as_agent(&path.join("d"), 15 * MIB), 15 * MIB);
    Verdict::Ran
}

fn forked(fixture: &Fixture) -> Verdict {
    if fixture.kind() == ProviderKind::Zfs {
        return Verdict::NotRun(OWN_QUOTAS);
    }
    let base = base(fixture);
    let Some(parent) = limited_clone(fixture, &fixture.root, base, 2) else { return not_enforced(fixture) };
    assert_within_a_mib(write_as_agent(&fixture.path(parent).join("mine"), 4 * MIB), 2);
    fixture.rest(parent);
    if !fixture.forks_at_rest() {
        fixture.provider().seal(parent).unwrap();
    }
    let (fork, path) = fixture.clone_of(parent);
    assert_eq!(fixture.root.marker(fork).unwrap().quota, None, "a quota is not inherited");
    let at_first = charged(fixture, fork);
    if fixture.kind() == ProviderKind::Btrfs {
        assert!(at_first < MIB / 4, "{at_first} bytes of a fork that has written nothing");
    }
    assert_eq!(fixture.provider().set_quota(fork, quota(6)).unwrap(), QuotaState::Enforced);
    let parents = charged(fixture, parent);
    let written = write_as_agent(&path.join("mine too"), 9 * MIB);
    assert_within_a_mib(written + at_first.next_multiple_of(64 << 10), 6);
    assert_eq!(charged(fixture, parent), parents, "the parent pays");
    // What the fork shares with its parent stays its own when the parent goes.
    fixture.provider().destroy(parent).unwrap();
    assert_eq!(write_as_agent(&path.join("mine too"), MIB), 0);
    Verdict::Ran
}

fn nested(fixture: &Fixture) -> Verdict {
    if fixture.kind() != ProviderKind::Btrfs {
        return Verdict::NotRun("about Btrfs");
    }
    let Some(uid) = limited_clone(fixture, &fixture.root, base(fixture), 4) else { return not_enforced(fixture) };
    let path = fixture.path(uid);
    assert_eq!(write_as_agent(&path.join("a"), 2 * MIB), 2 * MIB);
    make_subvolume(&path.join("nested"));
    make_subvolume(&path.join("nested/more"));
    let taken = write_as_agent(&path.join("nested/more/b"), 15 * MIB);
    assert_within_a_mib(2 * MIB + taken, 4);
    // Also a part of a tree that is full can go.
    fixture.provider().destroy(uid).unwrap();
    Verdict::Ran
}

/// The quota groups of the kernel that are ours.
fn groups(at: &Path) -> usize {
    let table = mountinfo::read().unwrap();
    let device = &table.iter().rev().find(|m| at.starts_with(&m.mount_point)).unwrap().source;
    let is_here = |folder: &Path| folder.join("devices").join(Path::new(device).file_name().unwrap()).exists();
    let folder = fs::read_dir("/sys/fs/btrfs").unwrap().map(|entry| entry.unwrap().path()).find(|folder| is_here(folder));
    let groups = fs::read_dir(folder.expect("the kernel does not know this Btrfs").join("qgroups")).unwrap();
    groups.filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().starts_with("89_")).count()
}

fn nothing_left(fixture: &Fixture) -> Verdict {
    if fixture.kind() != ProviderKind::Btrfs {
        return Verdict::NotRun("about Btrfs");
    }
    if !fixture.enforces_quotas {
        return not_enforced(fixture);
    }
    let base = base(fixture);
    let before = groups(&fixture.dir);
    for n in 0..10 {
        let uid = limited_clone(fixture, &fixture.root, base, 4).unwrap();
        let path = fixture.path(uid);
        if n % 2 == 0 {
            make_subvolume(&path.join("nested"));
        }
        assert_eq!(groups(&fixture.dir), before + 1);
        fixture.provider().destroy(uid).unwrap();
        assert_eq!(groups(&fixture.dir), before, "after tree {n}");
    }
    Verdict::Ran
}

fn too_large(fixture: &Fixture) -> Verdict {
    let (uid, _) = fixture.empty();
    let error = fixture.provider().set_quota(uid, quota(1 << 20)).unwrap_err();
    assert!(matches!(error, Error::QuotaTooLarge { .. }), "{error:?}");
    assert_eq!(error.reason(), ErrorReason::OutOfSpace);
    let text = error.to_string();
    assert!(text.contains("1048576 MiB are more than the ") && text.ends_with(" MiB of the data root"), "{text}");
    assert_eq!(fixture.root.marker(uid).unwrap().quota, None);
    Verdict::Ran
}

fn counted(fixture: &Fixture) -> Verdict {
    let (base, path) = fixture.empty();
    for n in 0..2000 {
        fs::write(path.join(format!("f{n}")), vec![1; 3000]).unwrap();
    }
    fs::write(path.join("large"), vec![1; 20 << 20]).unwrap();
    fs::hard_link(path.join("large"), path.join("second name")).unwrap();
    fixture.provider().seal(base).unwrap();
    let (clone, path) = fixture.clone_of(base);
    fs::write(path.join("new"), vec![2; 12 << 20]).unwrap();
    fs::remove_file(path.join("f7")).unwrap();
    for n in 100..200 {
        fs::write(path.join(format!("f{n}")), vec![2; 9000]).unwrap();
    }
    fixture.sync();
    let (cheap, visited) = (fixture.provider().usage(clone).unwrap(), fixture.provider().measure(clone).unwrap());
    assert_eq!((cheap.logical_bytes, cheap.entries), (visited.logical_bytes, visited.entries));
    let (a, b) = (cheap.exclusive_bytes as f64, visited.exclusive_bytes as f64);
    assert!((a - b).abs() <= b / 20.0, "{cheap:?} against {visited:?}");
    Verdict::Ran
}

fn classic(fixture: &Fixture) -> Verdict {
    if fixture.kind() != ProviderKind::Btrfs {
        return Verdict::NotRun("about Btrfs");
    }
    let temp = tempfile::tempdir_in("/dev/shm").unwrap();
    let (image, at) = (temp.path().join("image"), temp.path().join("at"));
    DiskKind::Btrfs.make(&image, 256 << 20, &at);
    run("btrfs", &["quota".as_ref(), "enable".as_ref(), &at]);
    let root = DataRoot::open(&at).unwrap();
    let QuotaState::Unsupported { reason } = root.set_up_quotas().unwrap() else { panic!("classic quota groups were replaced") };
    assert!(reason.contains("classic quota groups are on"), "{reason}");
    let (provider, uid) = (root.provider(ProviderKind::Btrfs).unwrap(), fixture.uid());
    provider.create_empty(uid, crate::fixture::current_owner()).unwrap();
    assert_eq!(provider.set_quota(uid, quota(2)).unwrap(), QuotaState::Unsupported { reason });
    assert_eq!(provider.usage(uid).unwrap().charged_bytes, None);
    provider.destroy(uid).unwrap();
    drop(root);
    rustix::mount::unmount(&at, rustix::mount::UnmountFlags::empty()).unwrap();
    Verdict::Ran
}

/// Turns the enforcement of project quotas off.
fn turn_project_quotas_off(at: &Path) {
    const PROJECTS_ENFORCED: u32 = 1 << 5;
    const PROJECT: u32 = 2;
    const QUOTA_OFF: u32 = (b'X' as u32) << 8 | 2;
    let (dir, mut flags) = (fs::File::open(at).unwrap(), PROJECTS_ENFORCED);
    // SAFETY: XQUOTAOFF reads a u32.
    let done = unsafe { libc::syscall(libc::SYS_quotactl_fd, dir.as_raw_fd(), QUOTA_OFF << 8 | PROJECT, 0, &raw mut flags) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}

fn turned_off(fixture: &Fixture) -> Verdict {
    if fixture.kind() == ProviderKind::Zfs {
        return Verdict::NotRun(OWN_QUOTAS);
    }
    if !fixture.enforces_quotas {
        return not_enforced(fixture);
    }
    let temp = tempfile::tempdir_in("/dev/shm").unwrap();
    let (image, at) = (temp.path().join("image"), temp.path().join("at"));
    fixture.lane.disk().make(&image, 400 << 20, &at);
    let root = DataRoot::open(&at).unwrap();
    assert_eq!(root.set_up_quotas().unwrap(), QuotaState::Enforced);
    let (provider, uid) = (root.provider(fixture.kind()).unwrap(), fixture.uid());
    provider.create_empty(uid, crate::fixture::current_owner()).unwrap();
    assert_eq!(provider.set_quota(uid, quota(2)).unwrap(), QuotaState::Enforced);
    assert!(provider.usage(uid).unwrap().charged_bytes.is_some());
    match fixture.kind() {
        ProviderKind::Btrfs => run("btrfs", &["quota".as_ref(), "disable".as_ref(), &at]),
        _ => turn_project_quotas_off(&at),
    }
    assert_eq!(provider.usage(uid).unwrap().charged_bytes, None);
    let QuotaState::Unsupported { reason } = provider.set_quota(uid, quota(2)).unwrap() else { panic!("it is said to be enforced") };
    println!("    {reason}");
    assert_eq!(root.marker(uid).unwrap().quota, None);
    provider.destroy(uid).unwrap();
    drop(root);
    rustix::mount::unmount(&at, rustix::mount::UnmountFlags::empty()).unwrap();
    Verdict::Ran
}

fn not_set(fixture: &Fixture) -> Verdict {
    if fixture.kind() == ProviderKind::Zfs {
        return Verdict::NotRun(OWN_QUOTAS);
    }
    let base = base(fixture);
    if limited_clone(fixture, &fixture.root, base, 2).is_none() {
        return not_enforced(fixture);
    }
    let root = fixture.reopened(planted(PlantedFault::QuotaNotSetOnClone));
    let uid = limited_clone(fixture, &root, base, 2).unwrap();
    let written = write_as_agent(&fixture.path(uid).join("new"), 4 * MIB);
    assert_eq!(written, 4 * MIB, "the harness detects nothing");
    println!("    found: {written} bytes were taken, of a quota of 2 MiB");
    Verdict::Ran
}
